"""``private.check()`` before a long training: a few of its steps are replayed with and without one example.

The check of the first batch sees what a model does to a few ordinary examples. A replay sees everything that an example
changes in a training, also later and also if it is unusual: sums that move too far, and whatever else differs in the
model, the optimizer or the loss.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from privet import global_generators
from privet.checks import count
from privet.deep.gradient_estimators import GradientEstimator, Recursive
from privet.deep.mates import Batch, changed_copies, joined
from privet.deep.objective import Task
from privet.deep.rows import Build, Parts, as_batch, is_flat
from privet.networks import trained_parameters
from privet.plans import GradientPlan, Poisson, RecursivePlan
from privet.replay import Replayed, Units, replay

if TYPE_CHECKING:
    from privet.deep.training import PrivateTraining

Prepare = Callable[..., Any]
"""What a training loop does to a batch before step()."""

_FACTORS = {"large values": 1e3, "huge values": 1e22, "tiny values": 1e-22, "values that are not numbers": math.nan}
"""What the inputs of an ordinary example are multiplied with."""


def check(
    private: "PrivateTraining", *, steps: int = 4, examples: int = 16, prepare: Prepare | None = None
) -> list[Replayed]:
    """Replay a few steps of a training with and without one example. See :meth:`PrivateTraining.check`."""
    if private._processes.size > 1:
        raise ValueError("check() works in one process only. Call it before torch.distributed is initialised.")
    n = len(private.dataset)
    if n < 2:
        raise ValueError(f"check() needs at least two examples, but the dataset has {n}.")
    chosen = np.unique(np.linspace(0, n - 1, min(n, count("examples", examples, at_least=2))).astype(np.int64))
    few = _Few(private, count("steps", steps, at_least=2), len(chosen), prepare or _as_it_is)
    found, restore_generators = [], global_generators.kept()
    with warnings.catch_warnings(), ExitStack() as last:
        last.callback(restore_generators)
        warnings.simplefilter("ignore")  # The training itself gives them.
        for name, data, place in _neighbours(few.take(private._examples.collated(chosen)), few.accepts):
            found.append(_replayed(few, data, place, name))
            if found[-1].is_violation:
                cause = (few.errors or found[-1].problems)[0]
                raise ValueError(
                    f"The training does not keep its guarantee. It was run with and without {name}. {cause} This "
                    "message depends on the examples, and is for the holder of the data only."
                )
            if few.errors:  # With the same error in both runs, there is no violation, but nothing was checked either.
                raise ValueError(f"The training cannot be checked, because its steps fail. {few.errors[0]}")
    return found


def _replayed(few: "_Few", data: Batch, place: int, name: str) -> Replayed:
    """Replay a training with, and without the example at ``place``."""
    size = len(data[-1])
    kept = np.delete(np.arange(size), place)
    places = np.full(size, -1)
    places[kept] = np.arange(size - 1)
    without = tuple(each[torch.as_tensor(kept)] for each in data)
    return replay(few, data, without, units=Units(places, size - 1), name=name)


def _neighbours(batch: Batch, accepts: Callable[[Batch], bool]) -> Iterator[tuple[str, Batch, int]]:
    """Yield batches, each with the name and the place of an example that is to be left out."""
    if not all(isinstance(each, Tensor) for each in batch):
        raise ValueError("check() needs examples that are tensors, or that torch's default_collate makes into tensors.")
    rows = [tuple(each[place : place + 1] for each in batch) for place in range(len(batch[-1]))]
    middle = len(rows) // 2
    yield "one of the examples", batch, middle
    for name, example in {"a copy of an example": rows[0], **_unusual(rows[middle])}.items():
        if accepts(example):
            yield name, joined([*rows[:middle], example, *rows[middle:]]), middle


def _unusual(example: Batch) -> dict[str, Batch]:
    """Return examples that are unlike the others, with the same target, and one without a target."""
    *inputs, target = example
    found: dict[str, Batch] = {}
    if any(each.is_floating_point() for each in inputs):
        for name, factor in _FACTORS.items():
            found[f"an example with {name}"] = (*(_scaled(each, factor) for each in inputs), target)
    for place, changed in enumerate(islice(changed_copies(example), 3)):
        found[f"a changed example (number {place + 1})"] = changed
    if target.is_floating_point():
        found["an example without a target"] = (*inputs, target * math.nan)
        found["an example with a huge target"] = (*inputs, 1e22 * (target + 1))
    return found


def _scaled(values: Tensor, factor: float) -> Tensor:
    return values * factor if values.is_floating_point() else values


def _as_it_is(*batch: Any, **entries: Any) -> Any:
    return entries or batch


class _Few:
    """A few steps of a training, on copies of its model, optimizer and loss.

    Batches are drawn by Poisson sampling with rate 1/2, whatever the sampler of the training is. Sampling and
    accounting do not depend on the model, so they need no check.
    """

    def __init__(self, private: "PrivateTraining", steps: int, public_n: int, prepare: Prepare) -> None:
        self._private, self._steps, self._public_n, self._prepare = private, steps, public_n, prepare
        self.errors: list[str] = []
        self._build: Build | None = None

    def take(self, batch: Any) -> Batch:
        """Return the rows of some examples, from which batches of the same structure are built."""
        size, given = self._public_n, as_batch(batch)
        if is_flat(given):
            return tuple(given)
        parts = Parts.of(given, size)
        self._build = parts.build
        return (*parts.rows, torch.zeros(size, dtype=torch.long))

    def _built(self, rows: Batch) -> Any:
        """Return a batch of rows, as the training loop prepares it."""
        batch = rows if self._build is None else self._build(iter(rows))
        return self._prepare(**batch) if isinstance(batch, Mapping) else self._prepare(*batch)

    def __call__(self, data: Batch) -> "PrivateTraining":
        """Train on the data, and return all that is left of it."""
        private = self._begun(data)
        try:
            for batch in private.batches():
                private.step(self._built(batch))
        except Exception as error:
            self.errors.append(str(error))
            raise
        return private

    def accepts(self, example: Batch) -> bool:
        """Return whether the model can compute the loss of an example that was made up."""
        model, _, loss, _ = self._copies()
        try:
            task = Task.of(model, loss, as_batch(self._built(example)), len(example[-1]))
            with torch.no_grad():
                task.loss(task.model(*task.rows[:-1]), task.rows[-1])
        except Exception:  # The model was not made for this example.
            return False
        return True

    def _begun(self, data: Batch) -> "PrivateTraining":
        model, optimizer, loss, denoiser = self._copies()
        begun = type(self._private)(
            model,
            optimizer,
            TensorDataset(*data),
            plan=self._plan(model),
            loss=loss,
            denoiser=denoiser,
            max_move=self._private._max_move,
            max_batch=self._private._sums.max_batch,
            views=self._private._sums.views,
        )
        begun._booking = None  # A replay releases nothing.
        return begun

    def _copies(self) -> Any:
        """Return copies of the model, the optimizer, the loss and the denoiser, which belong together."""
        given = self._private
        try:
            return copy.deepcopy((given.model, given.optimizer, given._loss, given._denoiser))
        except Exception as error:
            raise ValueError(
                f"check() works on copies, but the model, the optimizer or the loss cannot be copied: {error}. Call it "
                "before the first forward pass, or remove attributes that cannot be copied."
            ) from error

    def _plan(self, model: nn.Module) -> GradientPlan | GradientEstimator:
        """Return a plan of a few steps with the bounds and the noise of the training."""
        plan, sampler = self._private.plan, Poisson(0.5)
        rest: dict[str, Any] = {"public_n": self._public_n, "delta": plan.delta}
        if isinstance(plan, GradientPlan):
            return GradientPlan(sampler, self._steps, plan.clip_norm, plan.noise_multiplier, **rest)
        few = RecursivePlan(
            sampler,
            self._steps,
            plan.clip_norm,
            plan.difference_norm,
            plan.refresh,
            plan.noise_multiplier,
            plan.first_noise_multiplier,
            **rest,
        )
        return Recursive(few, list(trained_parameters(model).values()))
