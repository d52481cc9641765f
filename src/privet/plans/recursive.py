"""Recursive momentum: noisy sums of gradients mixed with gradient *differences*, which are small and need little noise.

The plan of DP-SRM, Algorithm 4 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning"
(UCLA 2021), with the sensitivities that are attained and the accountant in the place of its Theorem 4.5.1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from privet.checks import count, nonnegative, positive
from privet.plans.base import delta_of
from privet.plans.gradient import GradientPlan
from privet.plans.samplers import Sampler, common_adjacency
from privet.plans.step import Step
from privet.privacy.analyses.calibration import calibrate
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import Composition, Event
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True)
class RecursivePlan:
    """Sampling, bounds, noise and steps of a run with recursive momentum: one release that opens it, then the others.

    With C1 = ``clip_norm``, C2 = ``difference_norm`` and g = ``refresh``, a unit contributes

        clip(gradient, C1)                                                 to the first sum,
        g clip(gradient, C1) + (1 - g) clip(gradient - gradient before, C2)    to every later one,

    the two gradients being taken at this step's point and at the one before, on the same batch.

    Parameters
    ----------
    sampler : Sampler
        How the steps after the first choose their units.
    steps : int or None
        How many noisy sums are released, the first included: at least 2. None where the sampler implies it.
    clip_norm : float
        Bound C1 on the l2 norm of one unit's gradient.
    difference_norm : float
        Bound C2 on the l2 norm of the difference of one unit's gradients at consecutive points. 2 C1 or more can never
        bind and only adds noise; it is allowed.
    refresh : float
        The weight g in [0, 1] of fresh gradients, gamma in the paper. At 1 nothing is remembered: plain noisy gradient
        descent. At 0 only the first release measures gradients, all others measure how they change.
    noise_multiplier : float
        Standard deviation of the noise on a later **sum**, divided by :attr:`contribution_norm`.
    first_noise_multiplier : float or None
        Standard deviation of the noise on the first sum, divided by ``clip_norm``. None takes ``noise_multiplier``.
    first : Sampler or None
        How the first step chooses its units. None takes ``sampler``.
    adjacency : Adjacency or None
        None takes the first one under which both samplers are accounted for.
    public_n : int or None
        As in :class:`GradientPlan`: a public guess of the number of units, needed under add-or-remove adjacency.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    :meth:`guarantee`, computed from these fields and nothing else. By the triangle inequality a later contribution has
    norm at most g C1 + (1 - g) C2, so that replacing a unit moves a sum by at most twice that, and adding or removing
    one by at most that; the former is attained. What the recursion adds to a noisy sum, (1 - g) times the estimate
    released before, is post-processing. The run composes adaptively as its first release and its later ones;
    :meth:`run` is the only way to draw their batches and noise.
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
        set_field(self, "noise_multiplier", positive("noise_multiplier", noise_multiplier))
        chosen = noise_multiplier if first_noise_multiplier is None else first_noise_multiplier
        set_field(self, "first_noise_multiplier", positive("first_noise_multiplier", chosen))
        set_field(self, "adjacency", common_adjacency(adjacency, sampler, first))
        set_field(self, "public_n", None if public_n is None else count("public_n", public_n))
        set_field(self, "delta", delta)

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
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
    ) -> "RecursivePlan":
        """Return the plan with the least noise that is certified to keep within ``budget``.

        ``first_noise_ratio`` is the first noise multiplier over that of the later releases. None takes
        :func:`balanced_ratio`, which depends on public numbers only.
        """
        draft = cls(
            sampler, steps, clip_norm, difference_norm, refresh, 1.0, None, first, adjacency, public_n, budget.delta
        )
        ratio = balanced_ratio(draft) if first_noise_ratio is None else positive("first_noise_ratio", first_noise_ratio)

        def plan(least: float) -> "RecursivePlan":
            # The search is for the lesser of the two multipliers, so that both stay in the range of the accountants.
            multiplier = least / min(ratio, 1.0)
            return replace(draft, noise_multiplier=multiplier, first_noise_multiplier=multiplier * ratio)

        return plan(calibrate(lambda z: plan(z).event, draft.adjacency, budget))

    @property
    def contribution_norm(self) -> float:
        """Bound on what one unit adds to a sum after the first: g C1 + (1 - g) C2."""
        return self.refresh * self.clip_norm + (1 - self.refresh) * self.difference_norm

    @cached_property
    def first_plan(self) -> GradientPlan:
        """The first release by itself."""
        return GradientPlan(self.first, 1, self.clip_norm, self.first_noise_multiplier, self.adjacency, self.public_n)

    @cached_property
    def later_plan(self) -> GradientPlan:
        """The releases after the first by themselves."""
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
        """What the whole run releases, in the form that composes."""
        return Composition((self.first_plan.event, self.later_plan.event))

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = "every noisy sum, and with it everything computed from them",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of a whole run; ``bound`` is as in :meth:`GradientPlan.guarantee`."""
        bound = bound or assumed(
            f"each {unit} contributes a vector of l2 norm at most {self.clip_norm:.6g} to the first sum, and at most "
            f"{self.contribution_norm:.6g} to each later one"
        )
        drawn = (self.first_plan.drawn("first release: "), self.later_plan.drawn("later releases: "))
        return Guarantee.of(
            self.event,
            self.adjacency,
            delta_of(self, delta),
            released=released,
            assumptions=(bound, *drawn),
            unit=unit,
        )

    def run(self, n: int, source: NoiseSource, *, release: str = "all") -> Iterator[Step]:
        """Yield the steps of one run over ``n`` units: the first release, then the others."""
        for sampler in (self.first, self.sampler):  # before the first release is drawn, not after
            sampler.check_n(n)
        yield from self.first_plan.run(n, source, release=release)
        yield from self.later_plan.run(n, source, release=release)


def balanced_ratio(plan: RecursivePlan) -> float:
    """Return how much larger the plan's first noise multiplier should be than the later ones.

    A release over a share q of the units with multiplier z costs about (q/z)^2. Equal multipliers are thus no equal
    treatment: a first batch that is larger would spend most of the budget. With q0/z0 = sqrt(w) q/z the first release
    costs as much as w later ones. Its noise stays in the estimate for some 1/(2g) steps; so does that of every later
    release, on which it is smaller by the factor D/C1, D = g C1 + (1-g) C2. The sum over a long run of the noise's
    variance in the estimates is least for w = C1/D, hence

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
