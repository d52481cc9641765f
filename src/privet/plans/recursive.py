"""Recursive momentum: noisy sums of gradients and gradient *differences*, which are small and need little noise.

The plan of DP-SRM, Algorithm 4 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning"
(UCLA 2021), with tight sensitivities, and with the accountant in place of its Theorem 4.5.1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from privet.checks import count, nonnegative, positive
from privet.plans.gradient import Ahead, GradientPlan, Step, check_noise
from privet.plans.samplers import Sampler, common_adjacency
from privet.plans.tasks import all_runs, of_tasks
from privet.privacy.analyses.calibration import calibrate
from privet.privacy.budget import Adjacency, BudgetLike, as_budget_or_noise, stated_delta
from privet.privacy.events import Composition, Event
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True)
class RecursivePlan:
    """Everything that determines a run with recursive momentum: a first release, and later ones with smaller bounds.

    With C1 = ``clip_norm``, C2 = ``difference_norm`` and g = ``refresh``, a unit contributes

        clip(gradient, C1)                                                 to the first sum,
        g clip(gradient, C1) + (1 - g) clip(gradient - gradient before, C2)    to every later one,

    where the two gradients are taken at the current and at the previous weights, on the same batch.

    Parameters
    ----------
    sampler : Sampler
        How the steps after the first choose their units.
    steps : int or None
        Number of noisy sums that are released, including the first: at least 2. None if the sampler implies it.
    clip_norm : float
        Bound C1 on the l2 norm of one unit's gradient.
    difference_norm : float
        Bound C2 on the l2 norm of the difference of one unit's gradients at consecutive points. A bound of 2 C1 or
        more never takes effect and only adds noise, but it is allowed.
    refresh : float
        Weight g in [0, 1] of fresh gradients, gamma in the paper. At 1 nothing is remembered, which is noisy gradient
        descent. At 0 only the first release measures gradients, and all others measure their changes.
    noise_multiplier : float
        Standard deviation of the noise on a later **sum**, divided by :attr:`contribution_norm`. 0 adds no noise, to
        any sum.
    first_noise_multiplier : float or None
        Standard deviation of the noise on the first sum, divided by ``clip_norm``. None takes ``noise_multiplier``.
    first : Sampler or None
        How the first step chooses its units. None takes ``sampler``.
    adjacency : Adjacency or None
        None takes the first adjacency that both samplers support.
    public_n : int or None
        As in :class:`GradientPlan`: a public guess of the number of units, needed under add-or-remove adjacency.
    tasks : int
        As in :class:`GradientPlan`: how many such runs are made on the same data, one per task.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    :meth:`guarantee`, computed from these fields and nothing else. By the triangle inequality a later contribution has
    norm at most g C1 + (1 - g) C2. Replacing a unit therefore moves a sum by at most twice that, which is attained, and
    adding or removing one moves it by at most that. What the recursion adds to a noisy sum, (1 - g) times the previous
    estimate, is post-processing. The first release and the later ones compose adaptively. :meth:`run` is the only way
    to draw their batches and noise.
    """

    sampler: Sampler
    steps: int
    clip_norm: float
    difference_norm: float
    refresh: float
    noise_multiplier: float
    first_noise_multiplier: float
    first: Sampler
    adjacency: Adjacency
    public_n: int | None
    tasks: int
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __init__(
        self,
        sampler: Sampler,
        steps: int | None,
        clip_norm: float,
        difference_norm: float,
        refresh: float,
        noise_multiplier: float,
        first_noise_multiplier: float | None = None,
        first: Sampler | None = None,
        adjacency: Adjacency | None = None,
        public_n: int | None = None,
        tasks: int = 1,
        delta: float | None = None,
    ) -> None:
        first = first or sampler
        set_field = object.__setattr__
        set_field(self, "sampler", sampler)
        set_field(self, "first", first)
        set_field(self, "steps", _planned_steps(first, sampler, steps))
        set_field(self, "clip_norm", positive("clip_norm", clip_norm))
        set_field(self, "difference_norm", positive("difference_norm", difference_norm))
        set_field(self, "refresh", _share("refresh", refresh))
        set_field(self, "noise_multiplier", nonnegative("noise_multiplier", noise_multiplier))
        chosen = noise_multiplier if first_noise_multiplier is None else first_noise_multiplier
        set_field(self, "first_noise_multiplier", nonnegative("first_noise_multiplier", chosen))
        set_field(self, "adjacency", common_adjacency(adjacency, sampler, first))
        set_field(self, "public_n", None if public_n is None else count("public_n", public_n))
        set_field(self, "tasks", count("tasks", tasks))
        set_field(self, "delta", delta)
        check_noise(self.first_plan, self.later_plan)

    @classmethod
    def for_budget(
        cls,
        budget: BudgetLike,
        *,
        sampler: Sampler,
        steps: int | None = None,
        clip_norm: float,
        difference_norm: float,
        refresh: float,
        first: Sampler | None = None,
        first_noise_ratio: float | None = None,
        adjacency: Adjacency | None = None,
        public_n: int | None = None,
        tasks: int = 1,
    ) -> "RecursivePlan":
        """Return the plan with the least noise that is certified to stay within ``budget``, or with the given noise.

        A noise multiplier in place of a budget is that of the sums after the first.

        ``first_noise_ratio`` is the first noise multiplier divided by that of the later releases. None takes
        :func:`balanced_ratio`, which depends on public numbers only.
        """
        budget = as_budget_or_noise(budget)
        fields = (sampler, steps, clip_norm, difference_norm, refresh, 1.0, None, first, adjacency, public_n, tasks)
        draft = cls(*fields, delta=budget.delta)
        ratio = balanced_ratio(draft) if first_noise_ratio is None else positive("first_noise_ratio", first_noise_ratio)

        def plan(multiplier: float) -> "RecursivePlan":
            return replace(draft, noise_multiplier=multiplier, first_noise_multiplier=multiplier * ratio)

        return plan(calibrate(lambda z: plan(z).event, draft.adjacency, budget, smallest=min(ratio, 1.0)))

    def truncated(self, steps: int) -> "GradientPlan | RecursivePlan":
        """Return the plan of the first ``steps`` steps alone, as :meth:`GradientPlan.truncated` does.

        The first step alone is that of a :class:`GradientPlan`.
        """
        if count("steps", steps, at_most=self.steps) == 1:
            return replace(self.first_plan, tasks=self.tasks, delta=self.delta)
        return replace(self, sampler=self.sampler.truncated(steps - 1), steps=steps)

    @property
    def contribution_norm(self) -> float:
        """Bound g C1 + (1 - g) C2 on one unit's contribution to a sum after the first."""
        return self.refresh * self.clip_norm + (1 - self.refresh) * self.difference_norm

    @cached_property
    def first_plan(self) -> GradientPlan:
        """The plan of the first release alone."""
        return GradientPlan(self.first, 1, self.clip_norm, self.first_noise_multiplier, self.adjacency, self.public_n)

    @cached_property
    def later_plan(self) -> GradientPlan:
        """The plan of the releases after the first."""
        return GradientPlan(
            self.sampler,
            self.steps - 1,
            self.contribution_norm,
            self.noise_multiplier,
            self.adjacency,
            self.public_n,
        )

    @property
    def event(self) -> Event:
        """What the whole run (or all runs, for several tasks) releases, in the form that composes."""
        return all_runs(Composition((self.first_plan.event, self.later_plan.event)), self.tasks)

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = "every noisy sum, and everything computed from them",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of a whole run, or of all runs; ``bound`` is as in :meth:`GradientPlan.guarantee`."""
        bound = bound or assumed(
            f"each {unit} contributes a vector of l2 norm at most {self.clip_norm:.6g} to the first sum, and at most "
            f"{self.contribution_norm:.6g} to each later one"
        )
        drawn = (self.first_plan.drawn("first release: "), self.later_plan.drawn("later releases: "))
        return Guarantee.of(
            self.event,
            self.adjacency,
            stated_delta(delta, self.delta),
            released=of_tasks(released, self.tasks),
            assumptions=(bound, *drawn, *dict.fromkeys(self.first.conditions(unit) + self.sampler.conditions(unit))),
            unit=unit,
        )

    def run(self, n: int, source: NoiseSource, *, release: str = "all", ahead: Ahead | None = None) -> Iterator[Step]:
        """Yield the steps of one run over ``n`` units: the first release, then the others."""
        for sampler in (self.first, self.sampler):  # both, before anything is drawn
            sampler.check_n(n)
        yield from self.first_plan.run(n, source, release=release, ahead=ahead)
        yield from self.later_plan.run(n, source, release=release, ahead=ahead)


def balanced_ratio(plan: RecursivePlan) -> float:
    """Return how much larger the plan's first noise multiplier should be than the later ones.

    A release over a share q of the units with multiplier z costs about (q/z)^2. With equal multipliers, a larger first
    batch would therefore spend most of the budget. With q0/z0 = sqrt(w) q/z the first release costs as much as w later
    ones. The noise of each release stays in the estimate for about 1/(2g) steps, and that of a later release is smaller
    by the factor D/C1, where D = g C1 + (1-g) C2. Over a long run, the total variance of the noise in the estimates is
    least for w = C1/D, hence

        z0 = z (q0/q) sqrt(D/C1).
    """
    weight = plan.clip_norm / plan.contribution_norm
    return plan.first.batch_share / plan.sampler.batch_share / math.sqrt(weight)


def _planned_steps(first: Sampler, sampler: Sampler, steps: int | None) -> int:
    if first.implied_steps not in {None, 1}:
        raise ValueError(
            f"{first!r} makes {first.implied_steps} steps, not one: give the first release its own sampler"
        )
    if sampler.implied_steps is None:
        return sampler.checked_steps(steps, at_least=2)
    implied = sampler.implied_steps + 1
    if steps not in (None, implied):
        raise ValueError(f"{sampler!r} and the step before it make {implied} steps, not {steps}: leave steps out")
    return implied


def _share(name: str, value: float) -> float:
    if nonnegative(name, value) > 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value:g}")
    return float(value)
