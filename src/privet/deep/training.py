"""Private training of a PyTorch model: batches, clipped sums, noise and steps, all determined by one plan."""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from privet.deep import saving
from privet.deep.batch_sums import ROUNDS_ALONE, BatchSums
from privet.deep.changes import Changes
from privet.deep.check import Prepare, check
from privet.deep.datasets import collated
from privet.deep.gradient_estimators import Fresh, GradientEstimator, SpentEpsilon, shrinking
from privet.deep.model_checks import (
    Movement,
    check_finite,
    check_model,
    check_optimizer,
    checked_processes,
    unwrapped,
    warn_about_zeros,
)
from privet.denoise import Denoiser
from privet.deprecation import renamed
from privet.networks import Loss, layer_denoiser, per_example, trained_parameters
from privet.plans import GradientPlan, PlanError, RecursivePlan, Step
from privet.privacy import Guarantee, NoiseSource, assumed
from privet.privacy.ledger.spending import LedgerLike, RunBooking
from privet.progress import status_bar
from privet.replay import Replayed
from privet.run_files import RunFiles
from privet.showing import Reported

_LARGE = 280
"""Batch size from which adding up the gradients takes longer than drawing the noise, per parameter and on one core."""


class PrivateTraining(Reported):
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

    _stays_with_holder: ClassVar[frozenset[str]] = frozenset({"dataset", "_step", "_drawn", "_last_loss", "_booking"})

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        plan: GradientPlan | GradientEstimator,
        loss: Loss,
        denoiser: Denoiser | None = None,
        order: str = "OIHW",
        max_move: float | None = None,
        max_batch: int | None = None,
        random_state: int | None = None,
        n_is_public: bool = False,
        ledger: LedgerLike | None = None,
    ) -> None:
        check_model(unwrapped(model))
        self.model, self.optimizer, self.dataset = unwrapped(model), optimizer, dataset
        self.steps_done = self.steps_spent = 0
        self._estimator = Fresh(plan) if isinstance(plan, GradientPlan) else plan
        if self.plan.delta is None:
            raise ValueError("The plan has no delta. Set delta= when you build it, or make it with for_budget().")
        self._loss, self._denoiser, self._max_move = per_example(loss), layer_denoiser(denoiser, order), max_move
        self._n_is_public = n_is_public
        self._parameters = list(trained_parameters(self.model).values())
        check_optimizer(self.model, optimizer, self._parameters)
        self._processes = checked_processes(self.plan)
        self._processes.check_alike(self.plan, [each.shape for each in self._parameters])
        assumptions = self._processes.check_datasets(dataset)
        self._processes.begin_alike([*model.parameters(), *model.buffers()])
        self._seed = random_state
        self._source = self._new_source("make_private")
        self._files = RunFiles(NoiseSource().below, repr(self.plan), ahead=math.ceil(self.plan.steps / 1000))
        self._sums = BatchSums(
            self.model, self._loss, self._estimator, self._parameters, self._processes.size, max_batch
        )
        self._booking: RunBooking | None = RunBooking("training", ledger)
        self._step: Step | None = None
        self._drawn, self._process = 0, os.getpid()
        self._has_begun = False
        self._last_loss = math.nan
        self._changes = Changes(self.model, self._loss, assumptions)
        self._movement = Movement(self.model, optimizer)

    @property
    def plan(self) -> GradientPlan | RecursivePlan:
        """The plan of the whole training."""
        return self._estimator.plan

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

    def batches(
        self, *, verbose: bool = False, progress: Callable[[int, int], None] | bool | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the batches of all remaining steps, each a tuple of inputs and targets. A batch may be empty.

        Parameters
        ----------
        verbose : bool
            Show a progress bar with the epsilon spent and the mean loss of the batch. The loss is private: it is for
            the holder of the data only.
        progress : callable or None
            Called after each step with the number of steps spent and the number planned. A bool is the deprecated name
            of ``verbose``.
        """
        if isinstance(progress, bool):
            renamed("The argument progress=True of batches()", "verbose=True")
            verbose, progress = progress, None
        return self._batches(verbose, progress)

    def _batches(self, verbose: bool, progress: Callable[[int, int], None] | None) -> Iterator[tuple[Any, ...]]:
        if self._has_begun:
            raise PlanError(
                "batches() can be iterated only once per training. Call make_private() again for a new training with "
                "its own budget."
            )
        self._book()
        self._has_begun = True
        share = self._processes.share(len(self.dataset))
        spent = SpentEpsilon(self._estimator)
        with status_bar("training", self.plan.steps, verbose and self._processes.is_first) as tell:
            for step in self._estimator.steps(len(share), self._source, self.steps_spent):
                if self._processes.size == 1:  # The loop may have entered another context of privet.spending().
                    self._book()
                self._step, chosen = step, share[step.batch]
                self._drawn = len(chosen)
                batch = collated(self.dataset, chosen)
                self._changes.remember_batch(batch)
                yield batch
                del batch  # The next one may need its memory.
                if self._step is not None:
                    raise PlanError("A batch was drawn and not used. Call step(*batch) before the next batch is drawn.")
                if verbose:
                    tell(self.steps_spent, f"loss {self._last_loss:.3f}, epsilon {spent.bound(self.steps_spent):.3g}")
                if progress is not None:
                    progress(self.steps_spent, self.plan.steps)
        self._files.settle(self.steps_spent)

    def step(self, *batch: Any) -> Tensor:
        """Take one private step on a batch of :meth:`batches`, and return the losses of its examples.

        The losses are private. They are for the holder of the data, and publishing them would be an additional release.
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
        if len(batch[-1]) != self._drawn:
            raise PlanError(
                f"step() received {len(batch[-1])} examples, but the batch that was drawn has {self._drawn}. Pass the "
                "batch as batches() yields it. This step counts as spent."
            )
        self._changes.warn_about_batch(batch)
        self._changes.warn_about_caller()
        check_optimizer(self.model, self.optimizer, self._parameters)
        check_finite(self._parameters, self.steps_done)
        self.optimizer.zero_grad(set_to_none=True)  # Free the gradients of the last step before those of this one.
        divisor = plan.divisor(len(self.dataset))
        total, losses = self._checked_total(batch, step, divisor)
        self._last_loss = float(losses.mean()) if len(losses) else self._last_loss
        mean = self._noisy(step, total).div_(divisor)
        self._apply(self._estimator.gradient(mean), plan.noise_std / divisor)
        self.steps_done += 1
        return losses

    def _checked_total(self, batch: tuple[Any, ...], step: Step, divisor: float) -> tuple[Tensor, Tensor]:
        """Return the sum over the batch of a step and the losses, with a model that has been checked.

        A batch on which the model cannot be checked has no example with a finite gradient. Its sum is zero anyway, so
        it does not matter that the model sees it no further.
        """
        *inputs, targets = batch
        size = len(targets)
        if not self._sums.check(batch, lambda: collated(self.dataset, np.arange(min(2, len(self.dataset))))):
            inputs, targets = [each[:0] for each in inputs], targets[:0]
        # For a large batch, the noise is drawn while gradients are added up. If it were drawn earlier, it would need
        # memory at the same time as the activations.
        if size < _LARGE:
            self._prepare(step)
        total, losses, zeros = self._sums.total(
            tuple(inputs), targets, step.clip_norm, divisor, partial(self._prepare, step)
        )
        self._changes.check_forward(self._sums.counters)
        missing = size - len(losses)
        warn_about_zeros(zeros + missing, size, stacklevel=4)
        return total, torch.cat([losses, torch.full((missing,), math.nan)])

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
        self._movement.check(self._changes.accept())

    def check(self, *, steps: int = 4, examples: int = 16, prepare: Prepare | None = None) -> list[Replayed]:
        """Replay a few steps with and without one example, and raise if anything but the noisy sums differs.

        Call it before a long training. It works on copies of the model, the optimizer and the loss, and on a few
        examples of the dataset, to which unusual ones are added. It spends no budget and changes nothing. Its result is
        for the holder of the data only.

        Parameters
        ----------
        steps, examples : int
            Number of steps of each replay, and number of examples.
        prepare : callable or None
            What the training loop does to a batch before :meth:`step`, for instance moving it to another device. It
            must not draw random numbers.

        Returns
        -------
        list of Replayed
            What was found for each added or removed example. None of it is a violation.
        """
        return check(self, steps=steps, examples=examples, prepare=prepare)

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
