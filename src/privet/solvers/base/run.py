"""One run of a plan: its steps, its randomness, its progress and its guarantee."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from privet.plans.base import Plan, SteppedPlan
from privet.plans.step import Step
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, enforced
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.release import Progress

P_co = TypeVar("P_co", bound=Plan, covariant=True)

ALL_ITERATES = "every noisy gradient, all iterates and the final weights"
"""What a descent releases whose plan accounts for every noisy gradient."""


@dataclass(frozen=True, eq=False)
class Run(Generic[P_co]):
    """What every solver is given besides its problem.

    Parameters
    ----------
    plan : Plan
        What is released and how much noise it gets. A plan that was made for a budget holds the delta at which the
        guarantee is stated; a plan that was built by hand needs ``delta=``.
    source : NoiseSource
        Where batches and noise come from. By default, a generator that the operating system keys.
    progress : callable or None
        Called after each step with the number of steps done and the number planned.
    """

    plan: P_co
    source: NoiseSource = field(default_factory=NoiseSource)
    progress: Progress | None = None

    def steps(self: "Run[SteppedPlan]", n: int, *, at_most: int | None = None, release: str = "all") -> Iterator[Step]:
        """Yield the plan's steps over ``n`` records, and report progress after each.

        Parameters
        ----------
        n : int
            Number of records.
        at_most : int or None
            Stop after this many steps.
        release : {"all", "last"}
            What the solver releases, which must be what the plan accounts for.
        """
        planned = self.plan.steps if at_most is None else at_most
        for done, step in enumerate(self.plan.run(n, self.source, release=release), start=1):
            yield step
            self.report(done, planned)
            if done == at_most:
                step.close()
                return

    def report(self, done: int, planned: int) -> None:
        """Call ``progress``, if there is one."""
        if self.progress is not None:
            self.progress(done, planned)

    def guarantee(self, **conditions: Any) -> Guarantee:
        """Return the plan's guarantee, with what the noise source assumes. Raise if epsilon is infinite.

        Solvers call this before they draw any noise. ``conditions`` are those of the plan's ``guarantee``: ``bound``
        for what the solver enforces, and ``released``.
        """
        guarantee = self.plan.guarantee(**conditions)
        if not math.isfinite(guarantee.epsilon):
            raise ValueError(
                f"the plan has no finite epsilon at delta = {guarantee.delta:g}. Gaussian noise gives no pure epsilon "
                "guarantee: set delta > 0."
            )
        return guarantee.assuming(self.source.assumption())


def gradients_bounded_by(clip_norm: float) -> Assumption:
    """Return the condition that solvers enforce which clip gradients, or whose rows bound them."""
    return enforced(f"each record's gradient has l2 norm at most {clip_norm:.6g}, by bounded rows or by clipping")
