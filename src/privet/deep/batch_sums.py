"""The sum of clipped gradients over a batch, with room for its rounding errors within the clipping norm of the plan."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from privet.checks import count
from privet.deep import selfcheck
from privet.deep.clipping import BatchGradients, batch_gradients
from privet.deep.clipping.summing import LARGEST_CLIP, SMALLEST_CLIP, Summation, reserved_share, room
from privet.deep.gradient_estimators import GradientEstimator
from privet.deep.model_checks import check_model, without_compilation
from privet.deep.objective import Task
from privet.deep.randomness import alike
from privet.deep.rows import Build, Rows
from privet.deep.views import Views, averaged, step_seed
from privet.networks import Loss
from privet.privacy import assumed
from privet.privacy.noise.watch import is_watching

ROUNDS_ALONE = assumed(
    "the forward and backward pass of an example gives numbers that do not depend on other examples: not on those in "
    "its batch, not even by rounding, and on earlier ones only through the weights"
)


class BatchSums:
    """Sums the contributions of the examples of batches.

    Parameters
    ----------
    model, loss : nn.Module, callable
        The model, and a loss with one value per example.
    estimator : GradientEstimator
        Determines what an example contributes.
    parameters : sequence of nn.Parameter
        The trained parameters.
    processes : int
        Number of processes whose sums are added.
    max_batch : int or None
        The largest number of examples in memory at once.
    views : Views or None
        Makes several views of each example, whose gradients are averaged before the average is clipped.

    Attributes
    ----------
    dtype : torch.dtype
        The format of private gradients: single precision, or double if a parameter has it. Sums of large batches are in
        double precision until noise is added.
    max_batch : int or None
        As given.
    checked : Checked or None
        The result of the check of the first batch; None until a batch has been checked.

    Formal guarantees
    -----------------
    Let C be the clipping norm of the plan. The computed sums of two batches, one of which has one example more, differ
    by at most C. Each example is clipped to slightly less than C, and the rest is room for the rounding errors of both
    sums, including those over several parts and processes. The room depends on public numbers only. The larger a batch
    is, the fewer examples are added in one product, so that the errors always fit (docs/proofs.md, section 24).
    """

    _stays_with_holder: ClassVar[frozenset[str]] = frozenset({"checked"})

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        estimator: GradientEstimator,
        parameters: Sequence[nn.Parameter],
        processes: int = 1,
        max_batch: int | None = None,
        views: Views | None = None,
    ) -> None:
        self.views, self._build, self._totals = views, cast(Build | None, None), 0
        self._model, self._loss, self._estimator = model, loss, estimator
        self._parameters, self._processes = list(parameters), processes
        self.max_batch = None if max_batch is None else count("max_batch", max_batch)
        doubles = [each.dtype is torch.float64 for each in parameters]
        self.dtype = torch.float64 if any(doubles) else torch.float32
        self._narrowest = torch.float64 if all(doubles) else torch.float32
        self.checked: selfcheck.Checked | None = None
        for name in ("clip_norm", "difference_norm"):
            _check_clip(name, getattr(estimator.plan, name, 1.0))

    @contextmanager
    def calling(self, task: Task) -> Iterator[None]:
        """Call the model as the structure of a batch needs it, while the context lasts."""
        before = self._model, self._loss, self._build
        self._model, self._loss, self._build = task.model, task.loss, task.build
        try:
            yield
        finally:
            self._model, self._loss, self._build = before

    def check(self, batch: tuple[Any, ...], others: Callable[[], tuple[Any, ...]]) -> bool:
        """Check the model on a batch, unless it has been checked, and return whether it has been checked now.

        If it has not, then no example of the batch has a finite gradient, and the batch contributes zero.
        ``others()`` returns further examples, in case the batch has no two different ones.
        """
        if self.checked is None or not self.checked.is_complete:
            check_model(self._model)  # Layers may have changed their mode since the training was prepared.
            with without_compilation(self._model):
                self.checked = selfcheck.check_batch(self._model, self._loss, batch, others) or self.checked
        return self.checked is not None

    @property
    def counters(self) -> frozenset[str]:
        """Names of buffers and attributes that every forward pass changes in the same way."""
        found = frozenset() if self.checked is None else self.checked.counters
        if self._build is None:
            return found
        return frozenset(name.removeprefix("model.") for name in found)  # Those of the model inside of Called.

    def total(
        self,
        inputs: tuple[Any, ...],
        targets: Any,
        bound: float,
        expected: float,
        while_summing: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor, int]:
        """Return the sum of the examples' contributions as a flat vector, the losses, and how many contribute zero.

        Parameters
        ----------
        inputs, targets : tuple, tensor
            The batch. With ``max_batch``, it is processed in parts.
        bound : float
            What one example may contribute, for which the noise of the step is calibrated.
        expected : float
            The public, nominal size of the batch.
        while_summing : callable
            Called before gradients are added up.
        """
        size, part = len(targets), self.max_batch or max(len(targets), 1)
        error = reserved_share(expected, self._narrowest) / 2 / self._processes
        summation = Summation.within(error, size, self._narrowest)
        left = room(expected, self._narrowest)
        kind = summation.slot_dtype(self.dtype, -(-size // part))
        if self._estimator.mixes_sums:
            kind = torch.float64
        total = _zeros(sum(each.numel() for each in self._parameters), kind)
        pieces = total.split([each.numel() for each in self._parameters])
        slots, losses, zero = dict(zip(self._parameters, pieces, strict=True)), [torch.zeros(0)], 0
        layout = selfcheck.as_given if self.checked is None else self.checked.layout
        seed = step_seed(self._totals)
        self._totals += 1
        for start in range(0, size, part):
            chosen = slice(start, start + part)
            rows = self._viewed((*(each[chosen] for each in inputs), targets[chosen]), seed)

            def gradients(given: Rows = rows) -> BatchGradients:
                found = self._gradients((*layout(given[:-1]), given[-1]), summation)
                while_summing()
                return found

            with torch.no_grad(), self._masks(len(rows[-1])), without_compilation(self._model):
                in_part_losses, is_zero = self._estimator.add_sums(slots, gradients, bound, left)
            losses.append(in_part_losses.cpu())
            zero += int(is_zero.sum())
        return total, torch.cat(losses), zero

    def _viewed(self, rows: Rows, seed: int) -> Rows:
        return rows if self.views is None else self.views.of(rows, self._build, seed)

    def _gradients(self, rows: Rows, summation: Summation) -> BatchGradients:
        """Return the gradients of examples, each of which has one row, or one per view."""
        *inputs, targets = rows
        if self.views is None:
            return batch_gradients(self._model, self._loss, tuple(inputs), targets, summation)
        loss = averaged(self._loss, self.views.number)
        return batch_gradients(self._model, loss, tuple(inputs), targets, summation).merged(self.views.number)

    def _masks(self, size: int) -> AbstractContextManager[None]:
        """Switch random layers off if the training on ``size`` examples is replayed, while the context lasts.

        Their masks are drawn for a batch as a whole, so one example more would change the masks of all others.
        """
        return alike(self._model, size) if is_watching() else nullcontext()


def _zeros(size: int, dtype: torch.dtype) -> Tensor:
    """Return zeros. np.zeros allocates lazily, so their memory is touched only after the activations are freed."""
    return torch.from_numpy(np.zeros(size, np.float64 if dtype is torch.float64 else np.float32))


def _check_clip(name: str, value: float) -> None:
    if not SMALLEST_CLIP <= value <= LARGEST_CLIP:
        raise ValueError(
            f"{name} = {value:.3g} is outside the range in which sums of float32 numbers neither under- nor overflow. "
            f"Choose {name} between {SMALLEST_CLIP:g} and {LARGEST_CLIP:g}."
        )
