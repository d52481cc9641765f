"""How a step turns its batch into a private gradient: from this batch alone (DP-SGD) or recursively (DP-SRM).

An estimator holds a plan, determines what one example contributes to the noisy sum, and turns that sum into a gradient.
Everything else in training is the same for both.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor, nn

from privet.deep.clipping import BatchGradients
from privet.deep.fingerprint import checksum
from privet.plans import GradientPlan, PlanError, RecursivePlan, Step
from privet.plans.class_counts import ClassCounts
from privet.plans.gradient import Ahead
from privet.plans.samplers import FixedOrder
from privet.privacy import Guarantee, NoiseSource, compose, enforced

Slots = dict[nn.Parameter, Tensor]
"""For each parameter, the flat vector in which the sum of its gradients is accumulated."""


Added = tuple[Tensor, Tensor]
"""The losses of the examples of a batch, and which examples contribute zero because a gradient is not finite."""


@dataclass(frozen=True)
class RecursiveMomentum:
    """Settings of DP-SRM, which estimates the gradient in the first step and mostly its changes in later steps.

    See L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), Algorithm 4.

    Parameters
    ----------
    difference_norm : float
        Bound C2 on the norm of the difference between one example's gradients at consecutive points.
    refresh : float
        The weight gamma in [0, 1] of fresh gradients. With 1, the method is DP-SGD.
    first_batch_size : int or None
        Expected size b0 of the first batch. None uses the size of the other batches.
    max_move : float or None
        How far one step may move the parameters: the learning rate times the norm of the gradient estimate. A larger
        estimate is scaled down. None leaves the steps as they are.
    """

    difference_norm: float
    refresh: float
    first_batch_size: int | None = None
    max_move: float | None = None


class GradientEstimator(ABC):
    """Produces one private gradient per step."""

    plan: GradientPlan | RecursivePlan
    counts: ClassCounts | None = None
    """The noisy counts of classes that are released before the first step."""
    mixes_sums: bool = False
    """Whether several sums over a batch are added up. The slots are then in double precision."""

    @abstractmethod
    def add_sums(self, slots: Slots, gradients: Callable[[], BatchGradients], bound: float, room: float) -> Added:
        """Add the contributions of a batch to ``slots``.

        Return the losses of its examples, and which of them contribute zero because a gradient is not finite, or too
        large. ``gradients`` computes per-example gradients at the current parameters. The contribution of each example
        has norm at most ``bound`` times ``room``. The noise of the step is calibrated to ``bound``, and ``room`` is a
        little less than 1, so that the rounding errors of sums fit into it.
        """

    @abstractmethod
    def gradient(self, mean: Tensor) -> Tensor:
        """Return the private gradient, given the noisy mean. Both are vectors of all parameters."""

    @abstractmethod
    def steps(self, n: int, source: NoiseSource, spent: int, ahead: Ahead | None = None) -> Iterator[Step]:
        """Yield the steps that remain after ``spent`` steps."""

    @abstractmethod
    def at(self, spent: int) -> GradientPlan:
        """Return the plan of the step that follows ``spent`` steps, which gives its noise and its divisor."""

    @abstractmethod
    def so_far(self, spent: int) -> GradientPlan | RecursivePlan:
        """Return the plan of the first ``spent`` steps alone; with ``spent=0``, the plan of all steps."""

    @property
    @abstractmethod
    def bound_in_words(self) -> str:
        """What bounds the contribution of one example, as text for the guarantee."""

    def guarantee(self, spent: int) -> Guarantee:
        """Return the guarantee of the first ``spent`` steps; with ``spent=0``, the guarantee of all steps."""
        guarantee = self.so_far(spent).guarantee(
            self.plan.delta, bound=enforced(self.bound_in_words), released="every noisy gradient and all weights"
        )
        return guarantee if self.counts is None else compose([self.counts.guarantee(), guarantee], self.plan.delta)

    def state(self) -> dict[str, Tensor]:
        """Return the state that the next step needs from earlier steps, for saving."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore a saved state."""
        if state:
            raise ValueError(
                "The file holds the state of a training with recursive momentum, which this training does not use."
            )


class Fresh(GradientEstimator):
    """DP-SGD: the clipped gradients of the batch, without memory of earlier steps."""

    def __init__(self, plan: GradientPlan, counts: ClassCounts | None = None) -> None:
        self.plan: GradientPlan = plan
        self.counts = counts

    def add_sums(self, slots: Slots, gradients: Callable[[], BatchGradients], bound: float, room: float) -> Added:
        """Add the clipped gradients of a batch to ``slots``."""
        found = gradients()
        return found.losses, found.add_clipped_sum(bound * room, slots)

    def gradient(self, mean: Tensor) -> Tensor:
        """Return the noisy mean itself."""
        return mean

    def steps(self, n: int, source: NoiseSource, spent: int, ahead: Ahead | None = None) -> Iterator[Step]:
        """Yield the steps that remain after ``spent`` steps."""
        return _remaining(self.plan, n, source, spent, ahead)

    def at(self, spent: int) -> GradientPlan:
        """Return the plan, which is the same for all steps."""
        return self.plan

    def so_far(self, spent: int) -> GradientPlan:
        """Return the plan of the first ``spent`` steps alone; with ``spent=0``, the plan of all steps."""
        return self.plan.truncated(spent) if spent else self.plan

    @property
    def bound_in_words(self) -> str:
        """The clipping norm, as text for the guarantee."""
        return (
            f"each example's gradient is clipped to l2 norm {self.plan.clip_norm:.6g}, over all parameters together "
            "and with room for the rounding of sums"
        )


class Recursive(GradientEstimator):
    """DP-SRM: v = noisy mean of (gamma clip(g, C1) + (1 - gamma) clip(g - g', C2)) + (1 - gamma) v'.

    Here g is an example's gradient at the current parameters, g' its gradient at the previous parameters, and v' the
    previous estimate.
    """

    mixes_sums = True

    def __init__(self, plan: RecursivePlan, parameters: list[nn.Parameter]) -> None:
        self.plan: RecursivePlan = plan
        self._parameters = parameters
        self._before: list[Tensor] | None = None
        self._estimate: Tensor | None = None

    def add_sums(self, slots: Slots, gradients: Callable[[], BatchGradients], bound: float, room: float) -> Added:
        """Add clipped gradients, mixed with clipped differences if there is a previous estimate.

        A step without a previous estimate is not always the first one, because a crash may have lost the estimate. It
        then uses the noise and the bound of a later step.
        """
        plan, generator_state = self.plan, torch.get_rng_state()
        here = gradients()
        if self._before is None:
            return here.losses, here.add_clipped_sum(bound * room, slots)
        if bound < plan.contribution_norm:
            raise PlanError(
                f"The noise of this step is for contributions of norm {bound:.6g}, but with recursive momentum an "
                f"example contributes up to {plan.contribution_norm:.6g}."
            )
        fresh = here.clipped(plan.clip_norm * room)
        for parameter, total in fresh.sum().items():
            slots[parameter].add_(total.flatten().to(slots[parameter]), alpha=plan.refresh)
        # Dropout must draw the same masks at both points.
        with _moved_to(self._before, self._parameters), _random_state(generator_state):
            there = gradients()
        change = here.minus(there).clipped(plan.difference_norm * room)
        for parameter, total in change.sum().items():
            slots[parameter].add_(total.flatten().to(slots[parameter]), alpha=1 - plan.refresh)
        return here.losses, fresh.is_zero | change.is_zero

    def gradient(self, mean: Tensor) -> Tensor:
        """Return the new estimate, and remember it together with the current parameters."""
        remembered = 0.0 if self._estimate is None else (1 - self.plan.refresh) * self._estimate
        self._estimate = mean + remembered
        self._before = [parameter.detach().clone() for parameter in self._parameters]
        return self._estimate.clone()  # An optimizer may overwrite its gradients.

    def steps(self, n: int, source: NoiseSource, spent: int, ahead: Ahead | None = None) -> Iterator[Step]:
        """Yield the steps that remain after ``spent`` steps: all of them, or some of those after the first."""
        if spent == 0:
            return self.plan.run(n, source, ahead=ahead)
        return _remaining(self.plan.later_plan, n, source, spent - 1, ahead)

    def at(self, spent: int) -> GradientPlan:
        """Return the plan of the first release, or that of the later ones."""
        return self.plan.later_plan if spent else self.plan.first_plan

    def so_far(self, spent: int) -> GradientPlan | RecursivePlan:
        """Return the plan of the first ``spent`` steps alone; with ``spent=0``, the plan of all steps."""
        return self.plan.truncated(spent) if spent else self.plan

    @property
    def bound_in_words(self) -> str:
        """Both clipping norms, as text for the guarantee."""
        plan = self.plan
        return (
            f"each example's gradient is clipped to l2 norm {plan.clip_norm:.6g}, and its change since the previous "
            f"step to {plan.difference_norm:.6g}, over all parameters together; it contributes at most "
            f"{plan.clip_norm:.6g} to the first sum and {plan.contribution_norm:.6g} to a later one"
        )

    def state(self) -> dict[str, Tensor]:
        """Return the estimate and the parameters of the previous step, for saving."""
        if self._before is None or self._estimate is None:
            return {}
        return {"estimate": self._estimate} | {f"before.{i}": value for i, value in enumerate(self._before)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore a saved state."""
        if state:
            self._estimate = state["estimate"]
            self._before = [state[f"before.{i}"] for i in range(len(self._parameters))]


def shrinking(layers: Sequence[Tensor], optimizer: torch.optim.Optimizer, max_move: float | None) -> float:
    """Return the factor of DP-SRM's adaptive step: min(1, max_move / (learning rate times norm)).

    With several parameter groups, the largest learning rate counts.
    """
    if max_move is None:
        return 1.0
    rate = max(float(group["lr"]) for group in optimizer.param_groups)
    move = rate * float(torch.stack([layer.norm() for layer in layers]).norm())
    return min(1.0, max_move / move) if move > 0 else 1.0


class SpentEpsilon:
    """The epsilon that a training has spent, for its progress bar.

    Accounting takes time, so epsilon is computed for at most 20 numbers of steps. Any other number of steps is rounded
    up to the next of these.
    """

    def __init__(self, estimator: GradientEstimator) -> None:
        self._estimator = estimator
        self._found: dict[int, float] = {}

    def bound(self, spent: int) -> float:
        """Return an upper bound on the epsilon of ``spent`` steps."""
        planned = self._estimator.plan.steps
        block = math.ceil(planned / 20)
        steps = min(planned, math.ceil(spent / block) * block)
        if steps not in self._found:
            self._found[steps] = self._estimator.guarantee(steps).epsilon
        return self._found[steps]


def _remaining(
    plan: GradientPlan, n: int, source: NoiseSource, spent: int, ahead: Ahead | None = None
) -> Iterator[Step]:
    """Yield the steps of a plan that remain after ``spent`` steps.

    Independent batches are drawn for the remaining steps only. A fixed order continues where it stopped: if it started
    again, its first units would be visited more often than the plan accounts for. An order that is drawn secretly
    cannot continue, because the generator that drew it is not saved.
    """
    if spent >= plan.steps:
        return iter(())
    if spent == 0:
        return plan.run(n, source, ahead=ahead)
    if plan.sampler.implied_steps is None:
        return replace(plan, steps=plan.steps - spent).run(n, source, ahead=ahead)
    if type(plan.sampler) is not FixedOrder or plan.sampler.shuffled:
        raise PlanError(
            f"A training with {plan.sampler!r} cannot be resumed, because its order is drawn at random and is not "
            "saved. Use FixedOrder without shuffling, or Poisson."
        )
    return islice(plan.run(n, source, ahead=ahead), spent, None)


@contextmanager
def _moved_to(values: list[Tensor], parameters: list[nn.Parameter]) -> Iterator[None]:
    """Give parameters other values while the context lasts. Raise if the forward pass changes these values."""
    kept, before = [parameter.data for parameter in parameters], [checksum(value) for value in values]
    try:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.data = value
        yield
    finally:
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.data = value
    if [checksum(value) for value in values] != before:
        raise ValueError(
            "The forward pass of the model changed parameters at the previous point of recursive momentum. Only the "
            "optimizer may do so. Leave out options such as max_norm."
        )


@contextmanager
def _random_state(state: Tensor) -> Iterator[None]:
    """Set the state of torch's generator, which draws dropout masks but no privacy noise, while the context lasts."""
    kept = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(kept)
