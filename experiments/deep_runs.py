"""Shared code of the experiments on networks: images, networks, private trainings and their summaries.

A training is a :class:`Job`, whose noise is given by a noise multiplier, or is the least noise for an epsilon. Sampling
is Poisson, adjacency is add-or-remove, delta is 1e-5, and the number of images is public. The seed determines initial
weights, batches and noise, and methods are compared with the same seeds. Accuracies are those on the test set, which is
not used for any choice within a run.
"""

import argparse
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from support import Spread, arrays, console, keep_run, kept_run, resumed
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from privet.deep import PrivateTraining, RecursiveMomentum, make_private
from privet.denoise import LaplacianSmoothing
from privet.plans import GradientPlan, Poisson
from privet.privacy import Budget

DELTA = 1e-5
MARKS = 12  # largest number of points on a curve

# ------------------------------------------------------------------------------------------------------------- images

Parts = tuple[TensorDataset, TensorDataset]


def decoded(residuals: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pixels of delta-coded images, with shape (images, channels, height, width)."""
    pixels: NDArray[np.uint8] = residuals.cumsum(axis=2, dtype=np.uint8).cumsum(axis=3, dtype=np.uint8)
    pixels[:, 0] += pixels[:, 1]
    pixels[:, 2] += pixels[:, 1]
    return pixels


def from_zero_to_one(pixels: Tensor) -> Tensor:
    """Return pixels from 0 to 1, as in the tutorial of TensorFlow Privacy."""
    return pixels


def mnist_moments(pixels: Tensor) -> Tensor:
    """Return pixels standardised by MNIST's mean and deviation, as in the MNIST example of pytorch-dp."""
    return (pixels - 0.1307) / 0.3081


def from_minus_one(pixels: Tensor) -> Tensor:
    """Return pixels from -1 to 1, as in PyTorch's tutorial."""
    return 2 * pixels - 1


def centred(pixels: Tensor) -> Tensor:
    """Return the central 24 x 24 pixels, standardised per image, as in TensorFlow's tutorial."""
    middle = pixels[..., 4:-4, 4:-4]
    dims = (1, 2, 3)
    least = middle[0].numel() ** -0.5
    return (middle - middle.mean(dims, keepdim=True)) / middle.std(dims, keepdim=True).clamp(min=least)


def as_given(features: Tensor) -> Tensor:
    """Return features as they are stored."""
    return features


Scale = Callable[[Tensor], Tensor]
SCALES: dict[str, Scale] = {
    scale.__name__: scale for scale in (from_zero_to_one, mnist_moments, from_minus_one, centred, as_given)
}


@lru_cache(maxsize=2)
def images(source: str, scale: str, n: int, n_test: int | None = None, held_out: int = 0) -> Parts:
    """Return the first ``n`` training images, and the images on which accuracy is measured.

    The latter are the first ``n_test`` or all test images, or the ``held_out`` training images that follow the first
    ``n``, on which settings are chosen.
    """
    parts = arrays(source, {"train": n + held_out, "test": n_test})
    training = _part(parts, "train", scale, slice(n))
    looked_at = _part(parts, "train", scale, slice(n, n + held_out)) if held_out else None
    return training, looked_at or _part(parts, "test", scale, slice(n_test))


def _part(parts: dict[str, NDArray[Any]], part: str, scale: str, rows: slice) -> TensorDataset:
    stored = torch.from_numpy(_pixels(parts, part, rows))
    pixels = stored.float() if stored.is_floating_point() else stored.float() / 255
    labels = torch.from_numpy(parts[f"y_{part}"][rows].astype(np.int64))
    return TensorDataset(SCALES[scale](pixels), labels)


def _pixels(parts: dict[str, NDArray[Any]], part: str, rows: slice) -> NDArray[np.uint8]:
    if f"r_{part}" in parts:
        return decoded(parts[f"r_{part}"][rows])
    pixels = parts[f"x_{part}"][rows]
    return pixels[:, None] if pixels.ndim == 3 else pixels


# ----------------------------------------------------------------------------------------------------------- networks


def mnist_cnn() -> nn.Module:
    """Return the network of the MNIST tutorial of TensorFlow Privacy and the MNIST example of pytorch-dp."""
    first = [nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, stride=1)]
    second = [nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn5() -> nn.Module:
    """Return the network of PyTorch's CIFAR-10 tutorial, with two convolutions and three linear layers."""
    first = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    full = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*first, *second, nn.Flatten(), *full)


def cnn6_top() -> nn.Module:
    """Return the three linear layers of CNN6, for the outputs of its frozen convolutions."""
    return nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def tensorflow_cnn() -> nn.Module:
    """Return the network of TensorFlow's CIFAR-10 tutorial for 24 x 24 pixels."""
    norm = partial(
        nn.LocalResponseNorm, 9, alpha=0.001, beta=0.75, k=1.0
    )  # alpha for a mean; the original uses 0.001/9 for a sum
    pool = partial(nn.MaxPool2d, 3, stride=2, padding=1)
    first = [nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool(), norm()]
    second = [nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), norm(), pool()]
    full = [nn.Linear(6 * 6 * 64, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)]
    return nn.Sequential(*first, *second, nn.Flatten(), *full)


NETS: dict[str, Callable[[], nn.Module]] = {net.__name__: net for net in (mnist_cnn, cnn5, cnn6_top, tensorflow_cnn)}


def as_tensorflow_begins(layer: nn.Module) -> None:
    """Initialise a layer as TensorFlow does, with Glorot's weights and zero biases."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


# -------------------------------------------------------------------------------------------------------- one training


@dataclass(frozen=True)
class Job:
    """One private training. Exactly one of ``noise_multiplier`` and ``epsilon`` must be given."""

    method: str
    source: str
    scale: str
    n: int
    net: str
    steps: int
    batch: int
    clip_norm: float
    learning_rate: float
    noise_multiplier: float | None = None
    epsilon: float | None = None
    adam: bool = False
    smoothing: float = 0.0
    momentum: RecursiveMomentum | None = None
    decay_at: int | None = None  # the step from which the learning rate is divided by ten
    is_annealed: bool = False  # whether the learning rate decreases linearly to zero
    tensorflow: bool = False
    n_test: int | None = None
    held_out: int = 0  # the number of training images after the first n on which accuracy is measured, or 0
    seed: int = 0

    @property
    def rate(self) -> float:
        """The sampling rate."""
        return self.batch / self.n


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training: test accuracy in per cent after some steps, epsilon, and processor time."""

    steps: list[int]
    accuracy: list[float]
    epsilon: float
    noise_multiplier: float
    seconds: float

    @property
    def last(self) -> float:
        """The final accuracy."""
        return self.accuracy[-1]


def train(job: Job) -> Outcome:
    """Return the outcome of a job, computed on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    training, test = images(job.source, job.scale, job.n, job.n_test, job.held_out)
    model = NETS[job.net]()
    if job.tensorflow:
        model.apply(as_tensorflow_begins)
    begin = time.process_time()
    private = begun(job, model, training)
    curve = dict(accuracies(job, private, test))
    seconds = time.process_time() - begin
    spent = private.guarantee.epsilon
    return Outcome([*curve], [*curve.values()], spent, private.plan.noise_multiplier, seconds)


def begun(job: Job, model: nn.Module, training: TensorDataset) -> PrivateTraining:
    """Return the training of a job before its first step."""
    kind = torch.optim.Adam if job.adam else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=job.learning_rate)
    shared: dict[str, Any] = {
        "loss": nn.CrossEntropyLoss(),
        "denoiser": LaplacianSmoothing(job.smoothing) if job.smoothing else None,
        "random_state": job.seed,
    }
    if job.epsilon is None:
        return PrivateTraining(model, optimizer, training, plan=plan_of(job), **shared)
    return make_private(
        model,
        optimizer,
        training,
        budget=Budget(job.epsilon, DELTA),
        epochs=job.steps * job.rate,
        batch_size=job.batch,
        clip_norm=job.clip_norm,
        recursion=job.momentum,
        **shared,
    )


def plan_of(job: Job, steps: int | None = None) -> GradientPlan:
    """Return the plan of a job with a given noise multiplier, for all or only its first steps."""
    if job.noise_multiplier is None:
        raise ValueError("the job has an epsilon and no noise multiplier")
    return GradientPlan(
        Poisson(job.rate), steps or job.steps, job.clip_norm, job.noise_multiplier, public_n=job.n, delta=DELTA
    )


def marks(steps: int) -> list[int]:
    """Return the steps after which accuracy is measured, including the last."""
    return sorted({max(1, round(steps * mark / MARKS)) for mark in range(1, MARKS + 1)})


def accuracies(job: Job, private: PrivateTraining, test: TensorDataset) -> Iterator[tuple[int, float]]:
    """Run all steps, and yield the test accuracy after some of them."""
    steps = private.plan.steps

    def share(step: int) -> float:
        """Return the share of the learning rate that a step uses."""
        annealed = 1 - step / steps if job.is_annealed else 1.0
        return annealed if job.decay_at is None or step < job.decay_at else 0.1 * annealed

    schedule = torch.optim.lr_scheduler.LambdaLR(private.optimizer, share)
    looked_at = set(marks(steps))
    for batch in private.batches():
        private.step(*batch)
        schedule.step()
        if private.steps_done in looked_at:
            yield private.steps_done, accuracy(private.model, test)


@torch.no_grad()
def accuracy(model: nn.Module, part: TensorDataset) -> float:
    """Return the accuracy in per cent."""
    inputs, labels = part.tensors
    guessed = torch.cat([model(few).argmax(1) for few in inputs.split(500)])
    return 100 * float((guessed == labels).double().mean())


def start_and_majority(job: Job) -> dict[str, float]:
    """Return the accuracy of the untrained network and the share of the most frequent class, in per cent."""
    torch.manual_seed(job.seed)
    model = NETS[job.net]()
    _, test = images(job.source, job.scale, job.n, job.n_test, job.held_out)
    counts = torch.bincount(test.tensors[1]).double()
    return {"start": accuracy(model, test), "majority": 100 * float(counts.max() / counts.sum())}


def without_noise(job: Job) -> Job:
    """Return the same training as DP-SGD without noise, which has no guarantee."""
    return replace(job, method="without noise", epsilon=None, noise_multiplier=0.0, momentum=None, smoothing=0.0)


# ----------------------------------------------------------------------------------------------------- many trainings

Outcomes = dict[Job, Outcome]


def run_all(jobs: Sequence[Job], workers: int) -> Outcomes:
    """Run the jobs with one thread each, and print each outcome. Jobs that have finished before are not run again."""
    new = [job for job in jobs if not kept_run(job).exists()]
    if workers == 1:
        _keep(new, map(train, new))
    elif new:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            _keep(new, pool.map(train, new))
    return {job: Outcome(**resumed(job, lambda job=job: asdict(train(job)))) for job in jobs}


def _keep(jobs: Sequence[Job], outcomes: Iterator[Outcome]) -> None:
    for number, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True), 1):
        keep_run(job, asdict(outcome))
        setting = f"{job.net}, learning rate {job.learning_rate:g}, noise {outcome.noise_multiplier:.3g}"
        result = f"{outcome.last:.2f} % in {outcome.seconds:.0f} s of one core"
        console.print(f"{number}/{len(jobs)} {job.method}, {setting}, seed {job.seed}: {result}")


@dataclass(frozen=True)
class Runs:
    """The runs of one setting."""

    job: Job
    outcomes: list[Outcome]

    @property
    def last(self) -> Spread:
        """The final accuracy."""
        return Spread.of([outcome.last for outcome in self.outcomes])

    @property
    def late(self) -> Spread:
        """Mean accuracy over the last quarter of the measurements, which oscillates less than the final one."""
        looks = max(1, len(self.outcomes[0].steps) // 4)
        return Spread.of([float(np.mean(outcome.accuracy[-looks:])) for outcome in self.outcomes])

    @property
    def best(self) -> Spread:
        """Best accuracy of each run. Selecting it privately would need an additional budget."""
        return Spread.of([max(outcome.accuracy) for outcome in self.outcomes])

    @property
    def curve(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Steps, mean accuracy, and its standard deviation over runs."""
        values = np.array([outcome.accuracy for outcome in self.outcomes])
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
        return np.array(self.outcomes[0].steps), values.mean(axis=0), spread

    def summary(self) -> dict[str, Any]:
        """Return what is written to the results file."""
        steps, mean, std = self.curve
        kept = {name: value for name, value in asdict(self.job).items() if name != "seed"}
        return {
            **kept,
            "last": asdict(self.last),
            "late": asdict(self.late),
            "best": asdict(self.best),
            "spent_epsilon": self.outcomes[0].epsilon,
            "spent_noise_multiplier": self.outcomes[0].noise_multiplier,
            "curve": {"steps": steps.tolist(), "mean": mean.round(2).tolist(), "std": std.round(2).tolist()},
            "processor_seconds": round(Spread.of([outcome.seconds for outcome in self.outcomes]).mean, 1),
        }


def grouped(outcomes: Outcomes, key: Callable[[Job], Hashable]) -> dict[Any, Runs]:
    """Return the runs grouped by ``key``, which returns the setting of a job."""
    found: dict[Any, Runs] = {}
    for job, outcome in outcomes.items():
        found.setdefault(key(job), Runs(job, [])).outcomes.append(outcome)
    return found


def draw(panel: Any, runs: Runs, label: str, *, by_time: bool = False, **style: Any) -> None:
    """Draw the mean test accuracy against steps or processor time, with a band of one standard deviation.

    All steps of a run take about equally long, so the time at a step is a share of that of the whole run.
    """
    steps, mean, std = runs.curve
    seconds = Spread.of([outcome.seconds for outcome in runs.outcomes]).mean
    where = steps * seconds / steps[-1] if by_time else steps
    (line,) = panel.plot(where, mean, label=label, **style)
    panel.fill_between(where, mean - std, mean + std, alpha=0.15, color=line.get_color())


def options(description: str | None, arguments: Sequence[str] | None, **choices: Sequence[str]) -> argparse.Namespace:
    """Return the command-line options: ``preset`` is "standard", "full" or "quick", and ``runs`` may be None.

    Each of ``choices`` is the name of a further option and its values, the first of which is the default.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, default=values[0])
    parser.add_argument("--runs", type=int, help="seeds of every setting")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    size = parser.add_mutually_exclusive_group()
    for name, help_text in (("quick", "a few steps, to see that it runs"), ("full", "the paper's configuration: days")):
        size.add_argument(f"--{name}", action="store_const", const=name, dest="preset", help=help_text)
    parser.set_defaults(preset="standard")
    return parser.parse_args(arguments)
