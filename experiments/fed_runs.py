"""What the federated experiments share: a setting, its training, repeated trainings, and the tables that they make.

A :class:`Setting` says all of a training but its data and its seed; a :class:`Task` is the data and the network. The
seed decides first weights, who is a client of what, who is sampled, and the noise; settings that share a seed share
these, so that their difference is theirs. delta is N^-1.1 for N clients, as in the paper. The test part is looked at
once, when a training has ended.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from support import Spread, console
from torch import nn

from privet.denoise import Denoiser, LaplacianSmoothing
from privet.federated import ClientTrainer, LocalTraining, client_plan, paper_plan, simulate, tail
from privet.federated.clients import Clients, tensors
from privet.federated.engines.base import Answer
from privet.federated.engines.registry import engine_for
from privet.networks import Weights, trained_weights, with_weights
from privet.plans import FixedSize, GradientPlan, Poisson
from privet.privacy import Budget

Score = Callable[[nn.Module], float]


@dataclass(frozen=True)
class Setting:
    """A federated training; its noise is given by exactly one of the budget and the multiplier.

    Attributes
    ----------
    n_clients, clients_per_round, rounds, clip_norm, sampling, local, order
        As in :func:`privet.federated.simulate`.
    epsilon : float or None
        The budget, for which the accountant finds the noise.
    is_by_theorem : bool
        Take the noise for ``epsilon`` from Theorem 1 or 2 of the paper, as printed (``rounded_order=False``: after
        the repair of errata (h) two budgets of the paper have no noise that meets the conditions).
    noise_multiplier : float or None
        The noise itself, z of the paper.
    denoiser : Denoiser or None
        On the server.
    tail_share : float or None
        Put out the average of this share of the global models, the last ones; None puts out the last one.
    """

    n_clients: int
    clients_per_round: int
    rounds: int
    clip_norm: float
    local: LocalTraining
    sampling: str = "poisson"
    epsilon: float | None = None
    is_by_theorem: bool = False
    noise_multiplier: float | None = None
    denoiser: Denoiser | None = None
    order: str = "OIHW"
    tail_share: float | None = None

    @property
    def delta(self) -> float:
        """The paper's delta."""
        return float(self.n_clients**-1.1)

    def plan(self) -> GradientPlan:
        """Return sampling, bound, noise and rounds."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("a setting has a budget or a noise multiplier: give one of the two")
        if self.noise_multiplier is not None:
            sampler = (
                FixedSize(self.clients_per_round, self.n_clients)
                if self.sampling == "uniform"
                else Poisson(self.clients_per_round / self.n_clients)
            )
            public = None if self.sampling == "uniform" else self.n_clients
            return GradientPlan(sampler, self.rounds, self.clip_norm, self.noise_multiplier, public_n=public)
        given: dict[str, Any] = {
            "n_clients": self.n_clients,
            "clients_per_round": self.clients_per_round,
            "rounds": self.rounds,
            "clip_norm": self.clip_norm,
            "sampling": self.sampling,
        }
        budget = Budget(self.epsilon or 0.0, self.delta)
        return paper_plan(budget, **given, rounded_order=False) if self.is_by_theorem else client_plan(budget, **given)

    def smoothed(self, sigma: float) -> "Setting":
        """Return the same with Laplacian smoothing; sigma 0 is none."""
        return replace(self, denoiser=LaplacianSmoothing(sigma) if sigma else None)


@dataclass(frozen=True)
class Task:
    """Data and network; ``clients`` is given their number and a seed, ``test`` returns per cent of a trained model."""

    network: Callable[[], nn.Module]
    clients: Callable[[int, int], Clients]
    test: Score
    engine: str = "auto"


@dataclass(frozen=True)
class Outcome:
    """Test accuracy in per cent, what ``watch`` returned after each round, what was spent, and processor time."""

    accuracy: float
    curve: list[float]
    epsilon: float
    noise_multiplier: float
    seconds: float
    model: nn.Module


def begun(task: Task, seed: int) -> nn.Module:
    """Return the network with the first weights of a seed."""
    torch.manual_seed(seed)
    return task.network()


def train(task: Task, setting: Setting, seed: int, watch: Score | None = None) -> Outcome:
    """Train once."""
    begin = time.perf_counter()
    result = simulate(
        begun(task, seed),
        task.clients(setting.n_clients, seed),
        loss=nn.CrossEntropyLoss(),
        local=setting.local,
        plan=setting.plan(),
        delta=setting.delta,
        denoiser=setting.denoiser,
        order=setting.order,
        average=None if setting.tail_share is None else tail(setting.rounds, setting.tail_share),
        evaluate=watch,
        engine=task.engine,
        random_state=seed,
        verbose=False,
    )
    return Outcome(
        task.test(result.model),
        [report.score for report in result.history if report.score is not None],
        result.guarantee.epsilon,
        result.plan.noise_multiplier,
        time.perf_counter() - begin,
        result.model,
    )


@dataclass(frozen=True)
class Cell:
    """Repeated trainings of a setting, the cell of a table."""

    outcomes: tuple[Outcome, ...]

    @property
    def accuracy(self) -> Spread:
        """Test accuracy, per cent."""
        return Spread.of([outcome.accuracy for outcome in self.outcomes])

    @property
    def curve(self) -> list[float]:
        """The mean of what was watched."""
        return [float(value) for value in np.mean([outcome.curve for outcome in self.outcomes], axis=0)]

    def summary(self) -> dict[str, Any]:
        """Return what is kept of it."""
        first = self.outcomes[0]
        return {
            "accuracy": asdict(self.accuracy),
            "accuracies": [round(outcome.accuracy, 3) for outcome in self.outcomes],
            "epsilon": first.epsilon,
            "noise_multiplier": first.noise_multiplier,
            "seconds_a_run": round(float(np.mean([outcome.seconds for outcome in self.outcomes])), 1),
        }


def gain(smoothed: Cell, plain: Cell) -> str:
    """Return whether one is above the other, in words, with the difference of trainings that share a seed."""
    pairs = zip(smoothed.outcomes, plain.outcomes, strict=True)
    apart = Spread.of([one.accuracy - other.accuracy for one, other in pairs])
    error = f", standard error {apart.std / apart.runs**0.5:.2f}" if apart.runs > 1 else ", one seed"
    means = f"{smoothed.accuracy.mean:.2f} against {plain.accuracy.mean:.2f}"
    return f"{'yes' if apart.mean > 0 else 'no'} ({means}: {apart.mean:+.2f}{error})"


def best_of(cells: Iterable[Cell]) -> Cell:
    """Return the cell with the best mean, which flatters it a little where it is the best of several."""
    return max(cells, key=lambda cell: cell.accuracy.mean)


def repeated(name: str, task: Task, setting: Setting, seeds: Sequence[int], watch: Score | None = None) -> Cell:
    """Train with each seed, and say how it went."""
    cell = Cell(tuple(train(task, setting, seed, watch) for seed in seeds))
    kept = cell.summary()
    console.print(
        f"{name}: {cell.accuracy.show(2)} %, epsilon {kept['epsilon']:.3g}, {kept['seconds_a_run']:.1f} s a run",
        markup=False,
    )
    return cell


def without_privacy(
    task: Task, setting: Setting, seed: int, rounds: int | None = None
) -> Iterator[tuple[int, Weights, Weights]]:
    """Average clients' updates without clip and without noise: yield the round, the mean update and the new model.

    The setting's clients, sizes and local training, uniform sampling; its noise, denoiser and output rule stay out.
    This protects nobody. It is what private training is compared with.
    """
    generator = np.random.default_rng(seed)
    model = begun(task, seed)
    clients = task.clients(setting.n_clients, seed)
    trainer = ClientTrainer(model, nn.CrossEntropyLoss(), setting.local, float("inf"))
    engine = engine_for(task.engine, trainer, seed, None)
    weights = trained_weights(model)

    def fetch(client: int) -> Any:
        return tensors(clients[client], trainer.kind)

    try:
        for number in range(rounds or setting.rounds):
            chosen = generator.choice(setting.n_clients, setting.clients_per_round, replace=False).tolist()
            update = _mean(engine.answers(weights, number, chosen, fetch))
            weights = {name: value + update[name] for name, value in weights.items()}
            yield number + 1, update, weights
    finally:
        engine.close()


def _mean(answers: Iterator[Answer]) -> Weights:
    """Return the mean of updates; one that failed is an error of the experiment."""
    updates = []
    for _, answer in answers:
        if not isinstance(answer, dict):
            raise RuntimeError(f"a client did not train: {answer!r}")
        updates.append(answer)
    return {name: np.mean([update[name] for update in updates], axis=0) for name in updates[0]}


def trained_without_privacy(task: Task, setting: Setting, seed: int) -> nn.Module:
    """Return the model of the last of those rounds."""
    *_, (_, _, weights) = without_privacy(task, setting, seed)
    return with_weights(begun(task, seed), weights)
