"""``PrivateTraining``: batches, clipped sums, noise and steps of a model, all determined by one plan."""

import copy
import math
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from privet.deep import saving
from privet.deep.average import WeightAverage
from privet.deep.balanced import check_processes, release_weights
from privet.deep.batch_sums import ROUNDS_ALONE, BatchSums
from privet.deep.changes import Changes
from privet.deep.collate import IN_COLLATE, CollateCheck
from privet.deep.datasets import Examples
from privet.deep.gradient_estimators import Fresh, GradientEstimator, shrinking
from privet.deep.loop import TrainingLoop
from privet.deep.model_checks import (
    Movement,
    check_finite,
    check_model,
    check_optimizer,
    checked_processes,
    unwrapped,
    warn_about_zeros,
)
from privet.deep.objective import PUBLIC_WEIGHTS, Objective, Task
from privet.deep.rows import Rows, RowsError, as_batch, given_batch
from privet.deep.views import Views
from privet.denoise import Denoiser
from privet.networks import Loss, layer_denoiser, trained_parameters
from privet.plans import GradientPlan, PlanError, RecursivePlan, Step
from privet.privacy import Guarantee, NoiseSource, assumed
from privet.privacy.ledger.spending import LedgerLike, RunBooking
from privet.run_files import RunFiles
from privet.showing import Reported

_LARGE = 280
"""Batch size from which adding up the gradients takes longer than drawing the noise, per parameter and on one core."""


class PrivateTraining(TrainingLoop, Reported):
    """The private training of a model. See :func:`~privet.deep.make_private`.

    Attributes
    ----------
    plan : GradientPlan or RecursivePlan
        Sampling, clipping norm, noise and number of steps.
    steps_done : int
        Number of steps that the current weights result from.
    steps_spent : int
        Number of steps whose noise was drawn, or may have been drawn. It exceeds ``steps_done`` after a crash.
    guarantee : Guarantee
        The guarantee of all steps spent.

    Formal guarantees
    -----------------
    Each step sees the data only through one noisy sum of gradients over a batch that the plan drew. The gradient of
    each example is clipped, over all parameters together. The sum is divided by a public constant. What the optimizer,
    the denoiser and schedulers do with the result is post-processing. :attr:`guarantee` covers the steps made so far,
    in this process and in those that it was resumed from.
    """

    _stays_with_holder: ClassVar[frozenset[str]] = frozenset(
        {"dataset", "_examples", "_step", "_drawn", "_chosen", "_last_loss", "_booking", "_stream", "_collate_check"}
    )

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        plan: GradientPlan | GradientEstimator,
        loss: Loss | str,
        denoiser: Denoiser | None = None,
        order: str = "OIHW",
        max_move: float | None = None,
        max_batch: int | None = None,
        random_state: int | None = None,
        n_is_public: bool = False,
        ledger: LedgerLike | None = None,
        class_weight: Mapping[int, float] | str | None = None,
        views: Views | None = None,
        average: float | None = None,
    ) -> None:
        check_model(unwrapped(model))
        self._examples = Examples.of(dataset)
        self.model, self.optimizer, self.dataset = unwrapped(model), optimizer, self._examples.dataset
        self.steps_done = self.steps_spent = 0
        self._estimator = Fresh(plan) if isinstance(plan, GradientPlan) else plan
        if self.plan.delta is None:
            raise ValueError("The plan has no delta. Set delta= when you build it, or make it with for_budget().")
        counts = self._estimator.counts
        self._loss = Objective.of(loss, self.model, counts.equal_weights if counts else class_weight)
        self._has_weights = counts is None
        self._denoiser, self._max_move = layer_denoiser(denoiser, order), max_move
        self._n_is_public = n_is_public
        self._parameters = list(trained_parameters(self.model).values())
        check_optimizer(self.model, optimizer, self._parameters)
        self._processes = checked_processes(self.plan)
        check_processes(counts, self._processes)
        self._processes.check_alike(self.plan, [each.shape for each in self._parameters])
        assumptions = self._processes.check_datasets(self.dataset)
        if self._examples.collate is not None:
            assumptions.append(IN_COLLATE)
        if self._loss.class_weight is not None and counts is None:
            assumptions.append(PUBLIC_WEIGHTS)
        self._processes.begin_alike([*model.parameters(), *model.buffers()])
        self._seed = random_state
        self._source = self._new_source("make_private")
        self._files = RunFiles(NoiseSource().below, repr(self.plan), ahead=math.ceil(self.plan.steps / 1000))
        self._sums = BatchSums(
            self.model, self._loss, self._estimator, self._parameters, self._processes.size, max_batch, views
        )
        self._collate_check = CollateCheck(self._examples, self.model, self._loss)
        self._average = None if average is None else WeightAverage(average, self._parameters)
        self._booking: RunBooking | None = RunBooking("training", ledger)
        self._step: Step | None = None
        self._drawn, self._process = 0, os.getpid()
        self._chosen = np.zeros(0, np.int64)
        self._has_begun = False
        self._stream: Iterator[Any] | None = None
        self._last_loss = math.nan
        self._changes = Changes(self.model, self._loss.loss, assumptions)
        self._movement = Movement(self.model, optimizer)

    @property
    def plan(self) -> GradientPlan | RecursivePlan:
        """The plan of the whole training."""
        return self._estimator.plan

    @property
    def class_weight(self) -> dict[int, float] | None:
        """The weights of the classes. Those of balanced classes are 1 until the first batch is drawn."""
        return None if self._loss.class_weight is None else dict(self._loss.class_weight)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the steps made so far; before the first step, that of the whole training."""
        return self._stated(self.steps_spent)

    def _stated(self, spent: int) -> Guarantee:
        """Return the guarantee of the first ``spent`` steps; with ``spent=0``, that of the whole training."""
        guarantee = self._estimator.guarantee(spent)
        if self._n_is_public:
            guarantee = guarantee.assuming(
                assumed("the number of examples, from which the sampling rate is computed, is public")
            )
        return guarantee.assuming(ROUNDS_ALONE, self._source.assumption(), *self._changes.assumptions)

    def _book(self) -> None:
        """Book the whole training, unless that was done. If it fails, it fails in all processes."""
        error: Exception | None = None
        if self._booking is not None and self._processes.is_first:
            try:
                self._booking.ensure(lambda: self._stated(0))
            except Exception as found:
                error = found
        if not self._processes.agreed(error is None):
            raise error or RuntimeError("The first process could not book the training. See its error message.")

    def _new_source(self, purpose: str) -> NoiseSource:
        return NoiseSource(self._seed, purpose=f"{purpose} in process {self._processes.rank}")

    # ---------------------------------------------------------------------------------------------------- training

    def _drawn_batches(self) -> Iterator[Any]:
        """Yield the batch of each remaining step."""
        share = self._processes.share(len(self.dataset))
        loaded: list[Any] = []

        def ahead(drawn: Iterator[Any]) -> Iterator[Any]:
            for batch, found in self._examples.ahead(drawn, share):
                loaded.append(found)
                yield batch

        is_ahead = self._examples.is_ahead
        for step in self._estimator.steps(len(share), self._source, self.steps_spent, ahead if is_ahead else None):
            if self._processes.size == 1:  # The loop may have entered another context of privet.spending().
                self._book()
            self._step, self._chosen = step, share[step.batch]
            self._drawn = len(self._chosen)
            batch = loaded.pop() if is_ahead else self._examples.collated(self._chosen)
            self._changes.remember_batch(as_batch(batch))
            yield batch
            del batch  # The next one may need its memory.
        self._files.settle(self.steps_spent)

    def _begin(self) -> None:
        self._book()
        if not self._has_weights:
            release_weights(self)
        self._has_begun = True

    def _check_used(self) -> None:
        if self._step is not None:
            raise PlanError("A batch was drawn and not used. Call step(batch) before the next batch is drawn.")

    def step(self, *batch: Any, **entries: Any) -> Tensor:
        """Take one private step on a batch of :meth:`batches`, and return the losses of its examples.

        The batch can be given whole, as ``step(batch)``, or in its parts, as ``step(*batch)`` for a tuple and
        ``step(**batch)`` for a dictionary. The losses are private. They are for the holder of the data, and publishing
        them would be an additional release.
        """
        step, self._step = self._step, None
        if step is None:
            raise PlanError("step() was called without a new batch. Call it once for each batch of batches().")
        if os.getpid() != self._process:
            raise PlanError(
                "step() was called in a forked process. Its steps would not be counted in the parent process. Create "
                "the training in the process that uses it."
            )
        plan = self._estimator.at(self.steps_spent)
        # The step counts as spent from here on, whatever fails, so the next batch gets the noise of the next step.
        self.steps_spent += 1
        self._files.count(self.steps_spent)
        given = given_batch(batch, entries)
        task = self._task(given)
        self._changes.warn_about_batch(given)
        self._changes.warn_about_caller()
        check_optimizer(self.model, self.optimizer, self._parameters)
        check_finite(self._parameters, self.steps_done)
        self.optimizer.zero_grad(set_to_none=True)  # Free the gradients of the last step before those of this one.
        divisor = plan.divisor(len(self.dataset))
        total, losses = self._checked_total(task, step, divisor)
        self._last_loss = float(losses.mean()) if len(losses) else self._last_loss
        mean = self._noisy(step, total).div_(divisor)
        self._apply(self._estimator.gradient(mean), plan.noise_std / divisor)
        self.steps_done += 1
        return losses

    def _task(self, batch: Any) -> Task:
        """Return how a batch that was drawn is processed. Raise unless it has one row per example that was drawn."""
        try:
            return Task.of(self.model, self._loss, batch, self._drawn)
        except RowsError as error:
            raise PlanError(
                f"step() received {error.found} examples, but the batch that was drawn has {self._drawn}: {error} Pass "
                "the batch as batches() yields it. This step counts as spent."
            ) from error

    def _checked_total(self, task: Task, step: Step, divisor: float) -> tuple[Tensor, Tensor]:
        """Return the sum over the batch of a step and the losses, with a model that has been checked.

        A batch on which the model cannot be checked has no example with a finite gradient. Its sum is zero anyway, so
        it does not matter that the model sees it no further.
        """
        rows, size = task.rows, len(task.rows[-1])
        with self._sums.calling(task):
            if not self._sums.check(rows, self._others):
                rows = tuple(each[:0] for each in rows)
            self._collate_check.check(self._chosen)
            # For a large batch, the noise is drawn while gradients are added up. If it were drawn earlier, it would
            # need memory at the same time as the activations.
            if size < _LARGE:
                self._prepare(step)
            prepare = partial(self._prepare, step)
            total, losses, zeros = self._sums.total(rows[:-1], rows[-1], step.clip_norm, divisor, prepare)
            self._changes.check_forward(self._sums.counters)
        missing = size - len(losses)
        warn_about_zeros(zeros + missing, size, stacklevel=4)
        return total, torch.cat([losses, torch.full((missing,), math.nan)])

    def _others(self) -> Rows:
        """Return examples of the dataset, for a check of a batch that has no two different ones."""
        size = min(2, len(self.dataset))
        return Task.of(self.model, self._loss, as_batch(self._examples.collated(np.arange(size))), size).rows

    def _total(self, inputs: tuple[Any, ...], targets: Any) -> tuple[Tensor, Tensor]:
        """Return the sum over a batch as the next step would compute it, and the losses."""
        plan = self._estimator.at(self.steps_spent)
        return self._sums.total(inputs, targets, plan.clip_norm, plan.divisor(len(self.dataset)))[:2]

    def _prepare(self, step: Step) -> None:
        """Start drawing the noise in another thread."""
        if self._processes.is_first:
            step.prepare(sum(each.numel() for each in self._parameters))

    def _noisy(self, step: Step, total: Tensor) -> Tensor:
        """Return the sum over all processes, with noise that is drawn once."""
        total = self._processes.gathered(total)
        if self._processes.is_first:
            total = torch.from_numpy(step.noisy(total.numpy()))
        return self._processes.from_first(total.to(self._sums.dtype))

    def _apply(self, gradient: Tensor, noise_std: float) -> None:
        """Denoise a private gradient layer by layer, and let the optimizer take a step with it."""
        parts = gradient.split([parameter.numel() for parameter in self._parameters])
        layers = [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]
        if self._denoiser is not None:
            layers = [self._denoiser(layer, noise_std) for layer in layers]
        shrink = shrinking(layers, self.optimizer, self._max_move)
        self.optimizer.zero_grad(set_to_none=True)  # The forward pass may have set gradients of frozen parameters.
        for parameter, layer in zip(self._parameters, layers, strict=True):
            parameter.grad = (layer * shrink if shrink < 1 else layer).to(parameter)
        self.optimizer.step()
        if self._average is not None:
            self._average.update()
        self._movement.check(self._changes.accept())

    def averaged_model(self) -> nn.Module:
        """Return a copy of the model with the average of the weights, in eval mode. See ``average`` in make_private."""
        if self._average is None:
            raise ValueError("There is no average of the weights. Pass average=0.999 to make_private().")
        result = copy.deepcopy(self.model)
        self._average.write(list(trained_parameters(result).values()))
        return result.eval()

    # --------------------------------------------------------------------------------------------- save and resume

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write the training to a file, whole or not at all, from which :meth:`resume` can continue.

        From then on, each step is counted in a journal before its noise is drawn, so that a killed process leaves a
        record of everything it may have released. A run has one journal, beside its first file, and all its files refer
        to it. Keep them together.

        Parameters
        ----------
        path : path
            The file.
        extra : state or None
            Anything else that the run needs, for instance the ``state_dict()`` of a scheduler. :meth:`resume` returns
            it.

        Notes
        -----
        The noise generator is not saved, because its state would let a reader of the file subtract the noise. A resumed
        run draws from a new stream. torch's generator is seeded anew before it is saved, because its state would show
        how many random masks were drawn, and thus the sizes of batches.
        """
        saving.save(self, path, extra)

    def resume(self, path: str | os.PathLike[str]) -> Any:
        """Continue a training that :meth:`save` wrote, and return its ``extra``.

        This training must have been made with the same arguments. Steps that a killed process made after the file was
        written are lost but spent. The journal counts them, the guarantee includes them, and correspondingly fewer
        steps remain, so the budget holds.
        """
        return saving.resume(self, path)
