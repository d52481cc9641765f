"""How a step makes a private gradient of its batch: afresh (DP-SGD), or by recursive momentum (DP-SRM).

An estimate holds a plan, says what one example adds to the noisy sum, and what becomes of that sum. It is the only part
of training that differs between the two.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from privet.checks import positive
from privet.deep.clipping import BatchGradients
from privet.plans import GradientPlan, Poisson, RecursivePlan, Step
from privet.privacy import Budget, Guarantee, NoiseSource, enforced

Slots = dict[nn.Parameter, Tensor]
"""Where the sums of parameters' gradients are added up: flat vectors."""


@dataclass(frozen=True)
class RecursiveMomentum:
    """DP-SRM: gradients are measured once, and then mostly how they change (dissertation of L. Wang, Algorithm 4).

    Parameters
    ----------
    difference_norm : float
        Bound C2 on the norm of the difference of one example's gradients at consecutive points.
    refresh : float
        The weight gamma in [0, 1] of fresh gradients; at 1 it is DP-SGD.
    first_batch_size : int or None
        Expected size b0 of the first batch. None takes that of the others.
    max_move : float or None
        The adaptive step: how far one step may move the parameters, its learning rate times the estimate's norm; the
        estimate is scaled down to it. None leaves steps as they are.
    """

    difference_norm: float
    refresh: float
    first_batch_size: int | None = None
    max_move: float | None = None


class Estimate(ABC):
    """A private gradient a step."""

    plan: GradientPlan | RecursivePlan

    @abstractmethod
    def add_sums(self, slots: Slots, gradients: Callable[[], BatchGradients], bound: float) -> Tensor:
        """Add up what the examples give, and return their losses; ``gradients`` computes at the parameters as are.

        No example adds more than ``bound``, for which the step's noise was made.
        """

    @abstractmethod
    def gradient(self, mean: Tensor) -> Tensor:
        """Return the private gradient, given the noisy sum over its divisor, all parameters in one vector."""

    @abstractmethod
    def remaining(self, spent: int) -> GradientPlan | RecursivePlan | None:
        """Return the plan of the steps that are left after some; None if there are none."""

    @abstractmethod
    def at(self, spent: int) -> GradientPlan:
        """Return the plan of one step, given how many were made before: its noise and its divisor."""

    @abstractmethod
    def so_far(self, spent: int) -> GradientPlan | RecursivePlan:
        """Return the plan of the first steps alone, of which the guarantee is that of what was released."""

    @property
    @abstractmethod
    def bound_in_words(self) -> str:
        """What one example adds at most."""

    def steps(self, n: int, source: NoiseSource, spent: int) -> Iterator[Step]:
        """Yield the steps that are left."""
        plan = self.remaining(spent)
        return iter(()) if plan is None else plan.run(n, source)

    def guarantee(self, spent: int, delta: float) -> Guarantee:
        """Return what the first steps promise."""
        return self.so_far(spent).guarantee(
            delta, bound=enforced(self.bound_in_words), released="every noisy gradient and all weights"
        )

    def state(self) -> dict[str, Tensor]:
        """Return what the next step needs from those before, to be saved."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a saved state."""
        if state:
            raise ValueError("the file holds the state of recursive momentum, which this training does not use")


class Fresh(Estimate):
    """The clipped gradients of the batch, and nothing remembered: DP-SGD."""

    def __init__(self, plan: GradientPlan) -> None:
        self.plan: GradientPlan = plan

    def add_sums(self, slots: Slots, gradients: Callable[[], BatchGradients], bound: float) -> Tensor:
        """Add up clipped gradients."""
        found = gradients()
        found.add_clipped_sum(bound, slots)
        return found.losses

    def gradient(self, mean: Tensor) -> Tensor:
        """Return it as it is."""
        return mean

    def remaining(self, spent: int) -> GradientPlan | None:
        """Return the same plan with fewer steps."""
        return replace(self.plan, steps=self.plan.steps - spent) if spent < self.plan.steps else None

    def at(self, spent: int) -> GradientPlan:
        """Return the plan: all steps are alike."""
        return self.plan

    def so_far(self, spent: int) -> GradientPlan:
        """Return the same plan with the steps made; before the first, all."""
        return replace(self.plan, steps=spent or self.plan.steps)

    @property
    def bound_in_words(self) -> str:
        """The clip."""
        return f"each example's gradient is clipped to l2 norm {self.plan.clip_norm:.6g}, all parameters together"


class Recursive(Estimate):
    """v = noisy mean of (gamma clip(g, C1) + (1 - gamma) clip(g - g before, C2)) + (1 - gamma) v before: DP-SRM."""

    def __init__(self, plan: RecursivePlan, parameters: list[nn.Parameter]) -> None:
        self.plan: RecursivePlan = plan
        self._parameters = parameters
        self._before: list[Tensor] | None = None
        self._estimate: Tensor | None = None

    def add_sums(self, slots: Slots, gradients: Callable[[], BatchGradients], bound: float) -> Tensor:
        """Add up clipped gradients, mixed from the second step on with clipped differences.

        A step that remembers nothing need not be the first: a crash may have lost that. Its noise is then a later
        step's, and so is the bound.
        """
        plan, mask = self.plan, torch.get_rng_state()
        here = gradients()
        if self._before is None:
            here.add_clipped_sum(bound, slots)
            return here.losses
        for parameter, total in here.clipped_sum(plan.clip_norm).items():
            slots[parameter].add_(total.flatten().to(slots[parameter]), alpha=plan.refresh)
        with _moved_to(self._before, self._parameters), _random_state(mask):  # the same dropout at both points
            there = gradients()
        for parameter, total in here.minus(there).clipped_sum(plan.difference_norm).items():
            slots[parameter].add_(total.flatten().to(slots[parameter]), alpha=1 - plan.refresh)
        return here.losses

    def gradient(self, mean: Tensor) -> Tensor:
        """Return the estimate, which remembers the one before; and remember where it was taken."""
        remembered = 0.0 if self._estimate is None else (1 - self.plan.refresh) * self._estimate
        self._estimate = mean + remembered
        self._before = [parameter.detach().clone() for parameter in self._parameters]
        return self._estimate.clone()  # an optimizer may write over its gradients

    def remaining(self, spent: int) -> GradientPlan | RecursivePlan | None:
        """Return the whole plan at the beginning, then what is left of the releases after the first."""
        if spent == 0:
            return self.plan
        left = self.plan.steps - spent
        return replace(self.plan.later_plan, steps=left) if left > 0 else None

    def at(self, spent: int) -> GradientPlan:
        """Return the plan of the first release, or that of the others."""
        return self.plan.later_plan if spent else self.plan.first_plan

    def so_far(self, spent: int) -> GradientPlan | RecursivePlan:
        """Return the first release alone, or the plan with the steps made; before the first, all."""
        return self.plan.first_plan if spent == 1 else replace(self.plan, steps=spent or self.plan.steps)

    @property
    def bound_in_words(self) -> str:
        """Both clips."""
        plan = self.plan
        return (
            f"each example's gradient is clipped to l2 norm {plan.clip_norm:.6g} and its change since the step before "
            f"to {plan.difference_norm:.6g}, all parameters together: it adds at most {plan.clip_norm:.6g} to the "
            f"first sum and {plan.contribution_norm:.6g} to a later one"
        )

    def state(self) -> dict[str, Tensor]:
        """Return the estimate and the point before."""
        if self._before is None or self._estimate is None:
            return {}
        return {"estimate": self._estimate} | {f"before.{i}": value for i, value in enumerate(self._before)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take them up."""
        if state:
            self._estimate = state["estimate"]
            self._before = [state[f"before.{i}"] for i in range(len(self._parameters))]


def estimate_for(
    budget: Budget,
    momentum: RecursiveMomentum | None,
    parameters: list[nn.Parameter],
    *,
    rate: float,
    steps: int,
    clip_norm: float,
    public_n: int,
) -> Estimate:
    """Return the estimate with the least noise that keeps within the budget."""
    if momentum is None:
        plan = GradientPlan.for_budget(
            budget, sampler=Poisson(rate), steps=steps, clip_norm=clip_norm, public_n=public_n
        )
        return Fresh(plan)
    first_rate = rate if momentum.first_batch_size is None else momentum.first_batch_size / public_n
    if momentum.max_move is not None:
        positive("max_move", momentum.max_move)
    recursive = RecursivePlan.for_budget(
        budget,
        sampler=Poisson(rate),
        steps=steps,
        clip_norm=clip_norm,
        difference_norm=momentum.difference_norm,
        refresh=momentum.refresh,
        first=Poisson(first_rate),
        public_n=public_n,
    )
    return Recursive(recursive, parameters)


@contextmanager
def _moved_to(values: list[Tensor], parameters: list[nn.Parameter]) -> Iterator[None]:
    """Give parameters other values for a while."""
    kept = [parameter.data for parameter in parameters]
    try:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.data = value
        yield
    finally:
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.data = value


@contextmanager
def _random_state(state: Tensor) -> Iterator[None]:
    """Repeat what torch drew from a state on: dropout, not privacy noise."""
    kept = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(kept)
