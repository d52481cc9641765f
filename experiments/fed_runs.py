"""Shared code of the federated experiments: settings, trainings, and repeated trainings.

A :class:`Setting` determines a training up to its data and its seed. A :class:`Task` consists of the data and the
network. The seed determines the initial weights, the assignment of examples to clients, the sampling and the noise.
Settings are compared with the same seeds. As in the paper, delta is N^-1.1 for N clients. The test set is used once,
after a training.
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
    """A federated training. Its noise is given either by the budget or by the noise multiplier.

    Attributes
    ----------
    n_clients, clients_per_round, rounds, clip_norm, sampling, local, order
        As in :func:`privet.federated.simulate`.
    epsilon : float or None
        The budget, for which an accountant finds the noise.
    is_by_theorem : bool
        Whether to take the noise for ``epsilon`` from Theorem 1 or 2 of the paper, as printed. (With the correction of
        docs/errata.md (h), no noise meets the side conditions for two budgets of the paper.)
    noise_multiplier : float or None
        The noise multiplier, called z in the paper.
    denoiser : Denoiser or None
        The denoiser of the server.
    step_size : float
        The global step size.
    tail_share : float or None
        Share of the last global models that are averaged; None takes the last model.
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
    step_size: float = 1.0
    tail_share: float | None = None

    @property
    def delta(self) -> float:
        """The delta of the paper."""
        return float(self.n_clients**-1.1)

    def plan(self) -> GradientPlan:
        """Return the plan of the training."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("Give either epsilon or noise_multiplier.")
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
        """Return the setting with Laplacian smoothing, or without a denoiser if sigma is 0."""
        return replace(self, denoiser=LaplacianSmoothing(sigma) if sigma else None)


@dataclass(frozen=True)
class Task:
    """Data and network. ``clients`` takes their number and a seed; ``test`` returns the test accuracy in per cent."""

    network: Callable[[], nn.Module]
    clients: Callable[[int, int], Clients]
    test: Score
    engine: str = "auto"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training: test accuracy in per cent, score after each round, epsilon, noise, time and model."""

    accuracy: float
    curve: list[float]
    epsilon: float
    noise_multiplier: float
    seconds: float
    model: nn.Module


def begun(task: Task, seed: int) -> nn.Module:
    """Return the network with the initial weights of a seed."""
    torch.manual_seed(seed)
    return task.network()


def train(task: Task, setting: Setting, seed: int, watch: Score | None = None) -> Outcome:
    """Return the outcome of one training."""
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
        step_size=setting.step_size,
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
    """Repeated trainings of one setting, which form a cell of a table."""

    outcomes: tuple[Outcome, ...]

    @property
    def accuracy(self) -> Spread:
        """Test accuracy in per cent."""
        return Spread.of([outcome.accuracy for outcome in self.outcomes])

    @property
    def curve(self) -> list[float]:
        """Mean score after each round."""
        return [float(value) for value in np.mean([outcome.curve for outcome in self.outcomes], axis=0)]

    def summary(self) -> dict[str, Any]:
        """Return what is written to the results file."""
        first = self.outcomes[0]
        return {
            "accuracy": asdict(self.accuracy),
            "accuracies": [round(outcome.accuracy, 3) for outcome in self.outcomes],
            "epsilon": first.epsilon,
            "noise_multiplier": first.noise_multiplier,
            "seconds_a_run": round(float(np.mean([outcome.seconds for outcome in self.outcomes])), 1),
        }


def gain(smoothed: Cell, plain: Cell) -> str:
    """Return a text that says whether smoothing improves accuracy, with the mean difference over common seeds."""
    pairs = zip(smoothed.outcomes, plain.outcomes, strict=True)
    apart = Spread.of([one.accuracy - other.accuracy for one, other in pairs])
    error = f", standard error {apart.std / apart.runs**0.5:.2f}" if apart.runs > 1 else ", one seed"
    means = f"{smoothed.accuracy.mean:.2f} against {plain.accuracy.mean:.2f}"
    return f"{'yes' if apart.mean > 0 else 'no'} ({means}: {apart.mean:+.2f}{error})"


def best_of(cells: Iterable[Cell]) -> Cell:
    """Return the cell with the best mean, which is slightly optimistic if there are several cells."""
    return max(cells, key=lambda cell: cell.accuracy.mean)


def repeated(name: str, task: Task, setting: Setting, seeds: Sequence[int], watch: Score | None = None) -> Cell:
    """Train with each seed, and print a summary."""
    cell = Cell(tuple(train(task, setting, seed, watch) for seed in seeds))
    kept = cell.summary()
    console.print(
        f"{name}: {cell.accuracy.show(2)} %, epsilon {kept['epsilon']:.3g}, {kept['seconds_a_run']:.1f} s per run",
        markup=False,
    )
    return cell


def without_privacy(
    task: Task, setting: Setting, seed: int, rounds: int | None = None
) -> Iterator[tuple[int, Weights, Weights]]:
    """Run federated averaging without privacy, and yield the round, the mean update and the new model.

    It uses the clients, sizes and local training of the setting with uniform sampling, but no clipping, noise, denoiser
    or average. It is the baseline for private training.
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
    """Return the mean of the updates, and raise if a client failed."""
    updates = []
    for _, answer in answers:
        if not isinstance(answer, dict):
            raise RuntimeError(f"A client failed to train: {answer!r}")
        updates.append(answer)
    return {name: np.mean([update[name] for update in updates], axis=0) for name in updates[0]}


def trained_without_privacy(task: Task, setting: Setting, seed: int) -> nn.Module:
    """Return the model after the last round without privacy."""
    *_, (_, _, weights) = without_privacy(task, setting, seed)
    return with_weights(begun(task, seed), weights)
