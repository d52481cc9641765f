"""Private training steps of networks: privet and Opacus against plain PyTorch, in one run, on one thread, as ratios.

All ratios are to the best plain step. On images, plain PyTorch runs a second time in channels-last format, which anyone
can choose, and the faster of the two counts.

A step is forward pass, backward pass, clipping, noise and SGD update, on the same batches of a fixed size. privet runs
its real ``PrivateTraining.step`` with secure noise. Opacus 1.6 runs in both of its modes, hooks and ghost clipping,
without secure noise.

The contenders take turns in one process, so that a busy machine slows all of them alike. The first step of a turn warms
up caches and the allocator and is not counted. A ratio is the median over rounds, turn against turn, by the wall clock.
A separate column gives privet's ratio by processor time of all threads, because privet draws noise in a second thread.

Memory is the peak of resident memory above that before the first step, measured in a separate process per contender
whose allocator returns freed memory at once (Linux). Before the race, one step without noise is compared: all private
contenders must make the same step. privet runs a second time with Laplacian smoothing; what smoothing adds is given as
a share of privet's own step.

Opacus needs a separate environment, which also holds privet (`make bench` makes it).

Models can be measured in several runs: ``--json`` replaces their results in the file, and keeps those of the others.

    python benchmarks/deep.py [--quick] [--models mnist-cnn mlp-1024 ...] [--json]
"""

import argparse
import gc
import importlib.util
import json
import math
import os
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from privet.deep import PrivateTraining
from privet.deep.clipping.summing import room
from privet.denoise import Denoiser, LaplacianSmoothing
from privet.plans import FixedSize, GradientPlan

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import RESULTS, commit, console, print_table, write_results

Batch = tuple[Tensor, Tensor]

CLIP_NORM = 1.0
NOISE_MULTIPLIER = 1.0
NEXT_TO_NO_NOISE = 1e-9
LEARNING_RATE = 0.01
POOL = 4  # batches that the contenders go through, again and again
VOCABULARY, LENGTH, WIDTH = 5000, 64, 64

SMOOTHING_TO_REACH = 0.05  # as a share of privet's step
SAME = 1e-3  # largest distance between two noiseless steps, relative to the step
TURN_SECONDS = 0.2
SLOW_SECONDS = 0.5  # a slower step is timed in the fewest rounds, because its ratio is not in doubt
MEMORY_STEPS = 3
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # the allocator returns freed memory at once


# ------------------------------------------------------------------------------------------------------------- models


class LSTMClassifier(nn.Module):
    """An embedding of tokens, an LSTM, and a classifier on its last output."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of both classes."""
        outputs, _ = self.lstm(self.embedding(tokens))
        scores: Tensor = self.head(outputs[:, -1])
        return scores


class TransformerClassifier(nn.Module):
    """One transformer block on sequences of vectors, and a classifier on the mean over positions."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(WIDTH, heads, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return the scores of both classes."""
        scores: Tensor = self.head(self.block(sequences).mean(1))
        return scores


class LoraClassifier(nn.Module):
    """A small, frozen GPT-2 of Hugging Face with LoRA, and a linear classifier."""

    def __init__(self, width: int = 128, layers: int = 4, rank: int = 8) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import GPT2Config, GPT2Model

        super().__init__()
        sizes = {"n_embd": width, "n_layer": layers, "n_head": 4, "n_positions": LENGTH, "vocab_size": VOCABULARY}
        sizes |= {"bos_token_id": 0, "eos_token_id": 0}
        config = GPT2Config(**sizes, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False)
        lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
        self.network = get_peft_model(GPT2Model(config), lora)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of both classes."""
        scores: Tensor = self.head(self.network(input_ids=tokens).last_hidden_state[:, -1])
        return scores


def mnist_cnn() -> nn.Module:
    first = [nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, stride=1)]
    second = [nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


def cifar_cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 10))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def toy() -> nn.Module:
    """Return a model that takes no time, but is large enough for noise to be drawn as for large models."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 1000))


def vectors(*shape: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, *shape)


def tokens(n: int) -> Tensor:
    return torch.randint(VOCABULARY, (n, LENGTH))


@dataclass(frozen=True)
class Case:
    """A model, its batches, and the goals for it, as ratios to the best plain step; infinite where there is none.

    The lead is how many times faster than the better mode of Opacus.
    """

    title: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    batch: int
    classes: int = 10
    time_to_reach: float = math.inf
    memory_to_reach: float = math.inf
    lead_to_reach: float = 1.5
    needs: str | None = None

    def model(self) -> nn.Module:
        """Return the model, the same for all contenders."""
        torch.manual_seed(0)
        return self.build().train()

    def data(self) -> TensorDataset:
        """Return random examples for all batches."""
        torch.manual_seed(1)
        n = POOL * self.batch
        return TensorDataset(self.inputs(n), torch.randint(self.classes, (n,)))

    @property
    def has_images(self) -> bool:
        """Whether the inputs are images, which have a channels-last format."""
        return self.inputs(1).ndim == 4

    def batches(self) -> list[Batch]:
        """Return the batches that all contenders step on."""
        inputs, targets = self.data().tensors
        return list(zip(inputs.split(self.batch), targets.split(self.batch), strict=True))


CASES = {
    "mnist-cnn": Case("MNIST CNN of the papers, batch 256", mnist_cnn, vectors(1, 28, 28), 256, time_to_reach=1.4),
    "mlp-1024": Case("MLP 784-512-512-10, batch 1024", mlp, vectors(784), 1024, time_to_reach=1.2, memory_to_reach=1.3),
    "mlp-256": Case("MLP 784-512-512-10, batch 256", mlp, vectors(784), 256, time_to_reach=1.4),
    "cifar-cnn": Case("CIFAR CNN 32-64-128, batch 128", cifar_cnn, vectors(3, 32, 32), 128, time_to_reach=1.4),
    "lstm": Case("embedding 64 and LSTM 128, batch 64", LSTMClassifier, tokens, 64, classes=2, time_to_reach=1.6),
    "transformer": Case(
        "transformer block 64, 4 heads, batch 64", TransformerClassifier, vectors(LENGTH, WIDTH), 64, classes=2
    ),
    "gpt2-lora": Case(
        "GPT-2 of 4 layers 128, LoRA of rank 8, batch 32",
        LoraClassifier,
        tokens,
        32,
        classes=2,
        time_to_reach=1.4,
        memory_to_reach=1.3,
        lead_to_reach=math.inf,
        needs="peft",
    ),
}
TOY = Case("toy", toy, vectors(1, 8, 8), 4)


# --------------------------------------------------------------------------------------------------------- contenders


@dataclass(frozen=True)
class Seconds:
    """How long something took, by the wall clock and in processor time of all threads."""

    processor: float
    wall: float

    @classmethod
    def of(cls, run: Callable[[], Any]) -> "Seconds":
        """Time one call."""
        processor, wall = time.process_time(), time.perf_counter()
        run()
        return cls(time.process_time() - processor, time.perf_counter() - wall)

    @classmethod
    def median(cls, each: Sequence["Seconds"]) -> "Seconds":
        """Return the median of each clock."""
        return cls(median(one.processor for one in each), median(one.wall for one in each))


@dataclass(frozen=True)
class Contender:
    """One way to train: a step on a batch, and what must be done before each step but is not timed."""

    model: nn.Module
    step: Callable[[Batch], Any]
    before: Callable[[], Any] = lambda: None

    def seconds(self, batch: Batch) -> Seconds:
        """Take one step, and return how long it took."""
        self.before()
        return Seconds.of(lambda: self.step(batch))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def ordinary_step(model: nn.Module, optimizer: Any, criterion: Callable[..., Any], batch: Batch) -> None:
    """Take the step of an ordinary training loop, for plain PyTorch and for what Opacus has wrapped."""
    inputs, targets = batch
    optimizer.zero_grad(set_to_none=True)
    criterion(model(inputs), targets).backward()
    optimizer.step()


def plain(case: Case, noise: float) -> Contender:
    """Return training without privacy; ``noise`` is not used."""
    model = case.model()
    return Contender(model, partial(ordinary_step, model, sgd(model), nn.CrossEntropyLoss()))


def channels_last(case: Case, noise: float) -> Contender:
    """Return training without privacy in the other memory format; the conversion of a batch is part of the step."""
    model = case.model().to(memory_format=torch.channels_last)
    step = partial(ordinary_step, model, sgd(model), nn.CrossEntropyLoss())
    return Contender(model, lambda batch: step((batch[0].contiguous(memory_format=torch.channels_last), batch[1])))


def privet(case: Case, noise: float, denoiser: Denoiser | None = None) -> Contender:
    """Return privet's training, whose plan advances before each step and whose drawn batch is replaced."""
    model, data = case.model(), case.data()
    clip_norm = CLIP_NORM / room(case.batch, torch.float32)  # Part of it is for rounding errors.
    plan = GradientPlan(FixedSize(case.batch, len(data)), 10**6, clip_norm, noise, delta=1e-5)
    private = PrivateTraining(model, sgd(model), data, plan=plan, loss=nn.CrossEntropyLoss(), denoiser=denoiser)
    return Contender(model, lambda batch: private.step(*batch), partial(next, private.batches()))


def opacus(case: Case, noise: float, *, mode: str) -> Contender:
    """Return Opacus' training. Layers that Opacus does not support are replaced by its own."""
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator

    criterion: Callable[..., Any] = nn.CrossEntropyLoss()
    model = with_right_heads(ModuleValidator.fix(case.model()))
    model, optimizer, *wrapped = PrivacyEngine().make_private(
        module=model,
        optimizer=sgd(model),
        criterion=criterion,
        data_loader=DataLoader(case.data(), batch_size=case.batch),
        noise_multiplier=noise,
        max_grad_norm=CLIP_NORM,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    if mode == "ghost":
        criterion = wrapped[0]
    return Contender(model, partial(ordinary_step, model, optimizer, criterion))


def with_right_heads(model: nn.Module) -> nn.Module:
    """Repair Opacus 1.6, whose batch-first attention mixes up heads and positions before the last projection."""
    from opacus.layers import DPMultiheadAttention

    def reorder(heads: int, _: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        batch, length, width = inputs[0].shape
        return inputs[0].view(batch, heads, length, width // heads).transpose(1, 2).reshape(batch, length, width)

    for layer in model.modules():
        if isinstance(layer, DPMultiheadAttention) and layer.batch_first:
            layer.out_proj.register_forward_pre_hook(partial(reorder, layer.num_heads))
    return model


SMOOTHED = "privet, smoothing"
CONTENDERS: dict[str, Callable[[Case, float], Contender]] = {
    "plain": plain,
    "plain, channels last": channels_last,
    "privet": privet,
    SMOOTHED: partial(privet, denoiser=LaplacianSmoothing(1.0)),
    "Opacus hooks": partial(opacus, mode="hooks"),
    "Opacus ghost": partial(opacus, mode="ghost"),
}
PUBLIC = ("plain", "plain, channels last")
PEERS = ("Opacus hooks", "Opacus ghost")


def present() -> list[str]:
    """Return the contenders that can run here, and say how to get the others."""
    if importlib.util.find_spec("opacus") is not None:
        return list(CONTENDERS)
    console.print(
        "Opacus is not installed here, so its columns are left out. Run `make bench`, which makes an environment with "
        "it, or install opacus==1.6.0 beside privet in a separate environment."
    )
    return [name for name in CONTENDERS if name not in PEERS]


def is_possible(case: Case) -> bool:
    """Return whether the library that a case needs is installed, and say so if it is not."""
    if case.needs is None or importlib.util.find_spec(case.needs) is not None:
        return True
    console.print(f"{case.title} is left out, because {case.needs} is not installed here. `make bench` installs it.")
    return False


def earlier() -> dict[str, Any]:
    """Return the results of earlier runs by model."""
    path = RESULTS / "deep_benchmark.json"
    return dict(json.loads(path.read_text())["models"]) if path.exists() else {}


@dataclass(frozen=True)
class Refusal:
    """The reason why a contender does not run."""

    reason: str

    @classmethod
    def of(cls, error: Exception) -> "Refusal":
        """Keep the first line of the error."""
        return cls(next(iter(str(error).splitlines()), type(error).__name__))

    def __str__(self) -> str:
        return textwrap.shorten(f"refused: {self.reason}", 70, placeholder=" ...")


def started(name: str, case: Case, noise: float = NOISE_MULTIPLIER) -> Contender | Refusal:
    """Return a contender after its first step, or the reason why it cannot take one."""
    try:
        contender = CONTENDERS[name](case, noise)
        contender.seconds(case.batches()[0])
    except Exception as error:  # a case that a library does not support is a result and does not end the run
        return Refusal.of(error)
    return contender


# -------------------------------------------------------------------------------------------------------------- races


Round = dict[str, Seconds]
"""One turn of each contender."""


@dataclass(frozen=True)
class Timing:
    """Seconds per step, and the ratio to another contender's step, by each clock, over all rounds."""

    seconds: float
    ratio: float
    quartiles: tuple[float, float]
    processor_ratio: float
    rounds: int

    @classmethod
    def of(cls, name: str, rounds: Sequence[Round], to: str) -> "Timing":
        """Summarise the rounds that both took part in."""
        pairs = [(taken[name], taken[to]) for taken in rounds if name in taken and to in taken]
        ratios = [own.wall / base.wall for own, base in pairs]
        low, middle, high = quantiles(ratios, n=4, method="inclusive")
        processor = median(own.processor / base.processor for own, base in pairs)
        return cls(median(own.wall for own, _ in pairs), middle, (low, high), processor, len(pairs))


def best_of(rounds: Sequence[Round]) -> str:
    """Return the name of the fastest step without privacy."""
    present = [name for name in PUBLIC if name in rounds[0]]
    return min(present, key=lambda name: median(taken[name].wall for taken in rounds))


def turn(contender: Contender, batches: Sequence[Batch]) -> Seconds:
    """Return the median seconds of a step over one turn, without the first."""
    contender.seconds(batches[-1])
    taken: list[Seconds] = []
    while not taken or sum(one.processor for one in taken) < TURN_SECONDS:
        taken.append(contender.seconds(batches[len(taken) % len(batches)]))
    return Seconds.median(taken)


@dataclass(frozen=True)
class Length:
    """How long a race is."""

    seconds: float
    least_rounds: int


QUICK, FULL = Length(8.0, 3), Length(60.0, 7)


def race(contenders: dict[str, Contender], batches: Sequence[Batch], length: Length) -> list[Round]:
    """Return the durations of each contender, taken in turns."""
    rounds: list[Round] = []
    racing = dict(contenders)
    begin = time.perf_counter()
    while len(rounds) < length.least_rounds or time.perf_counter() - begin < length.seconds:
        rounds.append({name: turn(contender, batches) for name, contender in racing.items()})
        if len(rounds) >= length.least_rounds:
            is_quick = {name: took.processor < SLOW_SECONDS for name, took in rounds[-1].items()}
            racing = {name: one for name, one in racing.items() if name in PUBLIC or is_quick[name]}
    return rounds


def raced(case: Case, names: Iterable[str], length: Length) -> tuple[list[Round], dict[str, Refusal]]:
    """Return the rounds of the contenders that run, and the reasons why the others do not."""
    entries = {name: started(name, case) for name in names}
    contenders = {name: entry for name, entry in entries.items() if isinstance(entry, Contender)}
    refusals = {name: entry for name, entry in entries.items() if isinstance(entry, Refusal)}
    return race(contenders, case.batches(), length), refusals


def deviation(case: Case, names: Iterable[str]) -> float | None:
    """Return the distance between the private contenders after one step without noise, relative to the step."""
    entries = [started(name, case, NEXT_TO_NO_NOISE) for name in names if name not in (*PUBLIC, SMOOTHED)]
    inputs = case.batches()[0][0]
    with torch.no_grad():
        before = case.model()(inputs)
        moves = [entry.model(inputs) - before for entry in entries if isinstance(entry, Contender)]
    return max((float((move - moves[0]).norm() / moves[0].norm()) for move in moves[1:]), default=None)


# ------------------------------------------------------------------------------------------------------------- memory


def status(field: str) -> int:
    """Return a field of this process' status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def peak(name: str, case: Case) -> int:
    """Return the peak of resident memory over some steps, above that before the first.

    A few steps on a toy model come first. They load the libraries' code, which does not belong to the step.
    """
    contender, batches = CONTENDERS[name](TOY, NOISE_MULTIPLIER), TOY.batches()
    for batch in batches[:MEMORY_STEPS]:
        contender.seconds(batch)
    contender, batches = CONTENDERS[name](case, NOISE_MULTIPLIER), case.batches()
    contender.before()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = status("VmRSS")
    contender.step(batches[0])
    for batch in batches[1:MEMORY_STEPS]:
        contender.seconds(batch)
    return status("VmHWM") - before


def memory(name: str, key: str) -> int | None:
    """Return :func:`peak`, measured in a separate process, or None where it cannot be measured."""
    command = [sys.executable, __file__, "--peak", name, "--models", key]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | GIVE_BACK)
    return int(answer.stdout) if answer.returncode == 0 else None


# ------------------------------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class Result:
    """What was measured on a case."""

    key: str
    base: str
    timings: dict[str, Timing]
    refusals: dict[str, Refusal]
    smoothing: Timing | None
    peaks: dict[str, int | None]
    deviation: float | None

    @property
    def smoothing_share(self) -> float | None:
        """What smoothing adds to privet's step, as a share of it."""
        return self.smoothing.ratio - 1.0 if self.smoothing else None

    @property
    def case(self) -> Case:
        """The case."""
        return CASES[self.key]

    @property
    def lead(self) -> float | None:
        """How many times faster privet is than the better mode of Opacus."""
        peers = [self.timings[name].ratio for name in PEERS if name in self.timings]
        return min(peers) / self.timings["privet"].ratio if peers and "privet" in self.timings else None

    def memory_ratio(self, name: str) -> float | None:
        """Return the peak as a ratio to that of the best plain step."""
        own, base = self.peaks.get(name), self.peaks.get(self.base)
        return own / base if own and base else None

    def as_json(self) -> dict[str, Any]:
        """Return all measurements in plain types."""
        contenders = {
            name: {**asdict(timing), "peak_bytes": self.peaks.get(name), "memory_ratio": self.memory_ratio(name)}
            for name, timing in self.timings.items()
        }
        refused = {name: {"refused": refusal.reason} for name, refusal in self.refusals.items()}
        goals = {"time": self.case.time_to_reach, "lead": self.case.lead_to_reach, "memory": self.case.memory_to_reach}
        goals["smoothing"] = SMOOTHING_TO_REACH
        to_reach = {name: goal for name, goal in goals.items() if math.isfinite(goal)}
        return {
            "model": self.case.title,
            "ratios_to": self.base,
            "commit": commit(),
            "contenders": contenders | refused,
            "lead": self.lead,
            "smoothing": self.smoothing and {"share": self.smoothing_share, "against_privet": asdict(self.smoothing)},
            "deviation": self.deviation,
            "to_reach": to_reach,
        }


def measured(key: str, names: Sequence[str], length: Length) -> Result:
    """Return all measurements of a case."""
    case = CASES[key]
    names = [name for name in names if case.has_images or name != "plain, channels last"]
    console.print(f"  {case.title} ...")
    apart = deviation(case, names)
    if apart is not None and apart > SAME:
        console.print(f"  the private contenders do not make the same step: they differ by {apart:.1e} of it")
    gc.collect()  # per-example gradients take gigabytes
    rounds, refusals = raced(case, names, length)
    gc.collect()
    base = best_of(rounds)
    timings = {name: Timing.of(name, rounds, base) for name in rounds[0]}
    smoothing = Timing.of(SMOOTHED, rounds, "privet") if {"privet", SMOOTHED} <= timings.keys() else None
    return Result(key, base, timings, refusals, smoothing, {name: memory(name, key) for name in timings}, apart)


def verdict(value: float | None, goal: float, *, at_least: bool = False) -> str:
    """Return a goal, and whether it was reached."""
    if not math.isfinite(goal):
        return ""
    shown = f"{'≥' if at_least else '≤'} {goal:g}x"
    if value is None:
        return shown
    return f"{shown} {'yes' if (value >= goal if at_least else value <= goal) else 'no'}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def report(results: Sequence[Result], names: Sequence[str]) -> None:
    others = [name for name in names if name != SMOOTHED]
    columns = ["model", "best plain ms", *others, "to reach", "by processor", "lead on Opacus", "to reach"]
    rows = [time_row(result, others) for result in results]
    print_table("Time of a training step, as a ratio to the best plain one; one thread", columns, rows)
    rows = [memory_row(result, others) for result in results]
    print_table("Peak memory of a training step, likewise", ["model", "best plain MB", *others, "to reach"], rows)
    columns = ["model", "with ms", "adds", "quartiles", "by processor", "to reach"]
    rows = [smoothing_row(result.case, result.smoothing) for result in results if result.smoothing]
    print_table("Laplacian smoothing, sigma 1: what it adds to privet's step, as a share of it", columns, rows)


def time_row(result: Result, others: Sequence[str]) -> list[str]:
    timings, own = result.timings, result.timings.get("privet")
    ratio, processor = (own.ratio, own.processor_ratio) if own else (None, None)
    ratios = [times(timings[name].ratio) if name in timings else str(result.refusals.get(name, "")) for name in others]
    goals = [verdict(ratio, result.case.time_to_reach), times(processor)]
    goals += [times(result.lead), verdict(result.lead, result.case.lead_to_reach, at_least=True)]
    return [result.case.title, f"{1e3 * timings[result.base].seconds:.1f}", *ratios, *goals]


def memory_row(result: Result, others: Sequence[str]) -> list[str]:
    ratios = [times(result.memory_ratio(name)) for name in others]
    megabytes = f"{(result.peaks[result.base] or math.nan) / 1e6:.1f}"
    goal = verdict(result.memory_ratio("privet"), result.case.memory_to_reach)
    return [result.case.title, megabytes, *ratios, goal]


def smoothing_row(case: Case, timing: Timing) -> list[str]:
    share = timing.ratio - 1.0
    quartiles = " to ".join(f"{quartile - 1.0:+.1%}" for quartile in timing.quartiles)
    goal = f"≤ {SMOOTHING_TO_REACH:.0%} {'yes' if share <= SMOOTHING_TO_REACH else 'no'}"
    shares = [f"{share:+.1%}", quartiles, f"{timing.processor_ratio - 1.0:+.1%}"]
    return [case.title, f"{1e3 * timing.seconds:.1f}", *shares, goal]


def write(result: Result) -> None:
    """Replace the results of one model in the result file."""
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    models = {**earlier(), result.key: result.as_json()}
    write_results("deep_benchmark", {**versions, "models": {key: models[key] for key in CASES if key in models}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about ten seconds per model instead of a minute")
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES), metavar="MODEL")
    parser.add_argument("--json", action="store_true", help="write docs/results/deep_benchmark.json")
    parser.add_argument("--peak", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)  # warnings of Opacus about secure noise and about its hooks
    torch.set_num_threads(1)
    if options.peak:
        print(peak(options.peak, CASES[options.models[0]]))
        return
    names = present()
    keys = [key for key in options.models if is_possible(CASES[key])]
    results = []
    for key in keys:
        results.append(measured(key, names, QUICK if options.quick else FULL))
        if options.json:
            write(results[-1])
    report(results, names)


if __name__ == "__main__":
    main()
