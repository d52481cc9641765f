"""Audits of tiny deep networks, with or without one more example whose gradient is as long as clipping allows.

The loss is the output of the last layer times a target. An example with target zero has no gradient, and one with a
large target has a gradient of the clipping norm, in a direction that the attacker knows. At sampling rate 1, the
guarantee is Gaussian, and few runs measure it well. That matters because a run of a network takes thousands of times as
long as one of a sum.
"""

import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scenarios import BUDGET, CLIP, LAX, SAMPLED, Key, Scenario
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from privet import deep
from privet.deep import PrivateTraining, RecursiveMomentum, processes, selfcheck
from privet.deep.gradient_estimators import GradientEstimator, Recursive
from privet.denoise import LaplacianSmoothing
from privet.plans import FixedSize, GradientPlan, Poisson, RecursivePlan
from privet.privacy import Guarantee, NoiseSource

STILL = 1e-3  # A step so short that gradients keep their direction.
FAR = 1e4
Pair = tuple[TensorDataset, TensorDataset]

# ------------------------------------------------------------------------------------------------- what there must be


def entries_of(module: Any) -> set[str]:
    """Return the public functions of a module that prepare a private training."""
    functions = {name: getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    return {
        name
        for name, prepare in functions.items()
        if inspect.signature(prepare, eval_str=True).return_annotation is PrivateTraining
    }


def kinds_of(base: type[GradientEstimator]) -> set[type[GradientEstimator]]:
    """Return all concrete subclasses of a gradient estimator, at any depth."""
    below = set().union(*(kinds_of(kind) for kind in base.__subclasses__()))
    return below if inspect.isabstract(base) else below | {base}


def trainings_of(entries: Iterable[str], kinds: Iterable[type[GradientEstimator]]) -> set[Key]:
    """Return what must have a scenario: each way to prepare a training, with each gradient estimator."""
    names = [kind.__name__ for kind in kinds]
    return {(entry, name) for entry in entries for name in names}


def required() -> set[Key]:
    """Return what must have a scenario in this package, found by inspection."""
    kinds = [kind for kind in kinds_of(GradientEstimator) if kind.__module__.startswith("privet.")]
    return trainings_of(entries_of(deep), kinds)


# ------------------------------------------------------------------------------------------------ networks and examples


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a loss whose gradient is that of the output times the target."""
    return outputs[:, 0] * targets


def steeper_off_zero(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a loss whose gradient grows with the distance of the output from zero, on both sides.

    A first step from zero in any direction makes gradients longer, so their difference has the same direction.
    """
    output = outputs[:, 0]
    return targets * (output + FAR * output * output.abs())


def one_more(others: int = 2, *, width: int = 1, value: float = 1.0, pull: float = 0.0) -> Pair:
    """Return examples without and with one more, whose gradient exceeds the clipping norm.

    The gradients of the others have length ``pull``.
    """
    X = torch.full((others + 1, width), value, dtype=torch.float64)
    y = torch.full((others + 1,), pull, dtype=torch.float64)
    y[-1] = FAR
    return TensorDataset(X[:-1], y[:-1]), TensorDataset(X, y)


def replaced() -> Pair:
    """Return four examples that pull in the same direction, and the same with the last one turned round."""
    X, y = torch.ones((4, 1), dtype=torch.float64), torch.full((4,), -FAR, dtype=torch.float64)
    turned = y.clone()
    turned[-1] = FAR
    return TensorDataset(X, y), TensorDataset(X, turned)


def linear(width: int = 1, *, bias: bool = False) -> nn.Module:
    """Return one layer."""
    return nn.Linear(width, 1, bias=bias, dtype=torch.float64)


def two_layers() -> nn.Module:
    """Return one hidden unit."""
    return nn.Sequential(linear(bias=True), nn.Tanh(), linear())


def chain(length: int) -> nn.Module:
    """Return consecutive layers of one unit each, whose gradients are equal if all weights are 1."""
    return nn.Sequential(*(linear() for _ in range(length)))


class TwoPlaces(nn.Module):
    """The difference of two entries of a table in single precision, each multiplied by a factor of the example."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1, 1)

    def forward(self, rows: Tensor, factors: Tensor) -> Tensor:
        return (self.table(rows)[:, :, 0] * factors).sum(1)


def whole(outputs: Tensor, _: Tensor) -> Tensor:
    """Return the output itself as the loss."""
    return outputs


def cancelling() -> Pair:
    """Return examples without and with one whose two positions have huge gradients in one row, which nearly cancel."""
    rows, factors = torch.zeros((3, 2), dtype=torch.long), torch.zeros((3, 2))
    factors[-1] = torch.tensor([-16797968.0, 16794448.0])
    tensors = (rows, factors, torch.zeros(3))
    return TensorDataset(*(tensor[:-1] for tensor in tensors)), TensorDataset(*tensors)


# ------------------------------------------------------------------------------------------------------------ trainings


@dataclass(frozen=True)
class Training:
    """One way to train: the arguments of :func:`privet.deep.make_private`, with the first dataset's size as public_n.

    A given ``plan`` saves the calibration, which takes longer than the training if batches are sampled.
    """

    model: Callable[[], nn.Module]
    start: float = 1.0
    steps: int = 1
    loss: Callable[[Tensor, Tensor], Tensor] = weighted
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    lr: float = STILL
    plan: GradientPlan | RecursivePlan | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def prepared(self, model: nn.Module, dataset: TensorDataset, public_n: int, seed: int) -> PrivateTraining:
        """Return a training of a model before its first step."""
        optimizer = self.optimizer(model.parameters(), lr=self.lr)
        if self.plan is None:
            fields = {"budget": BUDGET, "epochs": self.steps, "batch_size": public_n, "public_n": public_n}
            private = deep.make_private(
                model,
                optimizer,
                dataset,
                loss=self.loss,
                clip_norm=CLIP,
                random_state=seed,
                **fields,
                **self.options,
            )
        else:
            plan = replace(self.plan, delta=LAX)
            private = PrivateTraining(
                model,
                optimizer,
                dataset,
                plan=Recursive(plan, list(model.parameters())) if isinstance(plan, RecursivePlan) else plan,
                loss=self.loss,
                random_state=seed,
                **self.options,
            )
        # Skip the check of the first batch, which takes as long as a step.
        private._sums.checked = selfcheck.Checked(selfcheck.as_given, frozenset(), is_complete=True)
        return private

    def begun(self) -> nn.Module:
        """Return the model with its initial weights."""
        model = self.model()
        self.begin(model)
        return model

    @torch.no_grad()
    def begin(self, model: nn.Module) -> None:
        """Reset a model to its initial weights."""
        for parameter in model.parameters():
            parameter.fill_(self.start)

    def moves(self, private: PrivateTraining) -> NDArray[np.float64]:
        """Train, and return the change of the weights in each step, in units of the learning rate."""
        weights = [_flat(private.model)]
        for batch in private.batches():
            private.step(*batch)
            weights.append(_flat(private.model))
        return -np.diff(weights, axis=0) / self.lr

    def about(self, pair: Pair) -> tuple[Key, Guarantee]:
        """Return the key of the training's scenario, and its guarantee."""
        private = self.prepared(self.begun(), pair[0], len(pair[0]), 0)
        return (deep.make_private.__name__, type(private._estimator).__name__), private.guarantee

    def direction(self, pair: Pair) -> NDArray[np.float64]:
        """Return the direction of the last example's gradient at the initial weights, as a unit vector."""
        model = self.begun()
        *inputs, target = (tensor[-1:] for tensor in pair[1].tensors)
        self.loss(model(*inputs), target).sum().backward()
        gradient = np.concatenate([parameter.grad.numpy().ravel() for parameter in model.parameters()])
        return gradient / np.linalg.norm(gradient)

    def mechanism(self, pair: Pair) -> Callable[[Any, NoiseSource], NDArray[np.float64]]:
        """Return a mechanism whose runs return the changes of the weights in all steps."""
        model, public_n = self.begun(), len(pair[0])

        def run(dataset: TensorDataset, source: NoiseSource) -> NDArray[np.float64]:
            self.begin(model)
            return self.moves(self.prepared(model, dataset, public_n, source.below(10**15)))

        return run


def _flat(model: nn.Module) -> NDArray[np.float64]:
    with torch.no_grad():
        return torch.cat([parameter.flatten() for parameter in model.parameters()]).numpy()


def without_memory(moves: NDArray[np.float64], refresh: float) -> NDArray[np.float64]:
    """Return every noisy mean of recursive momentum, without the remembered estimate."""
    return np.vstack([moves[:1], moves[1:] - (1 - refresh) * moves[:-1]])


# ---------------------------------------------------------------------------------------------------- several processes


class Threads:
    """A replacement for ``torch.distributed`` whose processes are threads, each with a rank."""

    ReduceOp = torch.distributed.ReduceOp

    def __init__(self, size: int) -> None:
        self._size, self._here, self._barrier = size, threading.local(), threading.Barrier(size)
        self._sent: dict[int, Tensor] = {}
        self._told: dict[int, Any] = {}

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """Run a function of the rank in each process, and return the results."""
        made: dict[int, Any] = {}

        def one(rank: int) -> None:
            self._here.rank = rank
            try:
                made[rank] = work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(1, self._size)]
        with patch.object(processes, "distributed", self):
            for thread in threads:
                thread.start()
            try:
                one(0)
            finally:
                for thread in threads:
                    thread.join()
        return [made[rank] for rank in range(self._size)]

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_rank(self) -> int:
        return self._here.rank

    def get_world_size(self) -> int:
        return self._size

    def reduce(self, tensor: Tensor, dst: int) -> None:
        """Sum tensors of all processes in one process."""
        self._exchange(tensor)
        if self.get_rank() == dst:
            tensor.copy_(sum(self._sent.values()))
        self._barrier.wait()

    def all_reduce(self, tensor: Tensor, op: Any) -> None:
        """Put the largest value into the tensors of all processes."""
        assert op is self.ReduceOp.MAX
        self._exchange(tensor)
        tensor.copy_(torch.stack(list(self._sent.values())).amax(0))
        self._barrier.wait()

    def broadcast(self, tensor: Tensor, src: int) -> None:
        """Copy the tensor of one process to all."""
        self._exchange(tensor)
        tensor.copy_(self._sent[src])
        self._barrier.wait()

    def all_gather_object(self, told: list[Any], mine: Any) -> None:
        """Put what each process passes into the lists of all."""
        self._told[self.get_rank()] = mine
        self._barrier.wait()
        told[:] = [self._told[rank] for rank in range(self._size)]
        self._barrier.wait()

    def _exchange(self, tensor: Tensor) -> None:
        self._sent[self.get_rank()] = tensor.clone()
        self._barrier.wait()


def in_two_processes(training: Training, pair: Pair) -> Callable[[Any, NoiseSource], NDArray[np.float64]]:
    """Return a mechanism whose runs return the changes of the weights in both processes."""
    models, public_n = [training.begun() for _ in range(2)], len(pair[0])

    def run(dataset: TensorDataset, source: NoiseSource) -> NDArray[np.float64]:
        seed = source.below(10**15)

        def process(rank: int) -> NDArray[np.float64]:
            training.begin(models[rank])
            return training.moves(training.prepared(models[rank], dataset, public_n, seed))

        return np.hstack(Threads(2).run(process))

    return run


# ------------------------------------------------------------------------------------------------------------ scenarios


def _scenario(
    variant: str,
    training: Training,
    pair: Pair,
    *,
    share: float,
    why: str = "",
    seen: Callable[[NDArray[np.float64]], ArrayLike] | None = None,
    run: Callable[[Any, NoiseSource], NDArray[np.float64]] | None = None,
    runs: int = 400,
) -> Scenario:
    """Return an audit, by default of the change in the direction of the last example in each step."""
    about, guarantee = training.about(pair)
    direction = training.direction(pair)
    see = seen or (lambda moves: moves @ direction)
    run = run or training.mechanism(pair)
    name = f"{' '.join(about)}, {variant}"
    return Scenario(about, name, lambda data, source: see(run(data, source)), pair, guarantee, share, why, runs)


def _adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Return Adam with an epsilon so large that its steps depend on the lengths of gradients."""
    return torch.optim.Adam(parameters, lr=lr, eps=1.0)


REFRESH = 0.8


def recursive_training(difference_norm: float = CLIP / 2) -> Training:
    """Return two steps of DP-SRM from zero, the second of which has a difference beyond its clipping norm."""
    recursion = RecursiveMomentum(difference_norm, REFRESH)
    return Training(linear, 0.0, 2, steeper_off_zero, lr=1.0, options={"recursion": recursion})


def scenarios() -> list[Scenario]:
    """Return all audits of deep networks."""
    smooth = {"denoiser": LaplacianSmoothing(1.0)}
    one, few, wide, plain = one_more(), one_more(1), one_more(width=4), Training(linear)
    sampled = GradientPlan(Poisson(0.5), 1, CLIP, 0.5, public_n=2)
    three_of_four = GradientPlan(FixedSize(3, 4), 1, CLIP, 0.8)
    recursive = recursive_training()
    in_parts = RecursivePlan(Poisson(0.5), 2, CLIP, CLIP / 2, REFRESH, 0.6, public_n=2)

    def fresh_parts(moves: NDArray[np.float64]) -> ArrayLike:
        return without_memory(moves, REFRESH)

    return [
        _scenario("one hidden unit", Training(two_layers, steps=2), one, share=0.7),
        _scenario("parts of one example", Training(linear, options={"max_batch": 1}), few, share=0.7),
        _scenario("smoothed (DP-LSSGD)", Training(lambda: linear(4), steps=2, options=smooth), wide, share=0.7),
        _scenario("Adam", Training(two_layers, steps=2, optimizer=_adam), one, share=0.7),
        _scenario(
            "Adam, smoothed (DP-LSAdam)", Training(lambda: linear(4), optimizer=_adam, options=smooth), wide, share=0.7
        ),
        _scenario("two processes", plain, few, share=0.7, run=in_two_processes(plain, few), seen=np.ravel),
        _scenario("Poisson batches", Training(linear, plan=sampled), one, share=0.6, why=SAMPLED, runs=600),
        _scenario(
            "fixed-size batches", Training(linear, plan=three_of_four), replaced(), share=0.35, why=SAMPLED, runs=300
        ),
        _scenario(
            "a row used twice, in opposite directions",
            Training(TwoPlaces, loss=whole),
            cancelling(),
            share=0.0,
            why="its norm is a difference of two positions, which is overestimated because of rounding",
            runs=200,
        ),
        _scenario("full batch", recursive, one, share=0.7, seen=fresh_parts),
        _scenario(
            "Poisson batches, parts of one example",
            replace(recursive, plan=in_parts, options={"max_batch": 1}),
            one,
            share=0.4,
            why=SAMPLED,
            seen=fresh_parts,
            runs=400,
        ),
    ]
