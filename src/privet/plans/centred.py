"""Training on centred rows: a noisy mean, then noisy gradients or a noisy result, under one budget."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from privet.checks import count, positive
from privet.plans.gradient import GradientPlan, check_noise
from privet.plans.output import OutputPlan
from privet.plans.samplers import FullBatch, Sampler
from privet.plans.stabilities.base import Stability
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.analyses.calibration import calibrate
from privet.privacy.analyses.gaussian import as_exact_budget, gdp_mu
from privet.privacy.budget import (
    Adjacency,
    Budget,
    BudgetLike,
    NoiseMultiplier,
    as_budget_or_noise,
    stated_delta,
)
from privet.privacy.events import Composition, Event
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, compose

_LEAST_SHARE = 1e-3
_USUAL_DELTA = 1e-6  # where none is given. The ratio of the two noises hardly depends on it.


@dataclass(frozen=True)
class CentredPlan:
    """A noisy sum of the rows, which gives their mean, followed by a descent on the centred rows.

    Parameters
    ----------
    mean : GradientPlan
        One full-batch release of the sum of all rows.
    gradients : GradientPlan
        The noisy gradients of the centred rows. If it has several tasks, they share the mean, which is released once.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    :meth:`guarantee`, the adaptive composition of the two, computed from their events.
    """

    mean: GradientPlan
    gradients: GradientPlan
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_mean(self.mean)
        if self.mean.adjacency is not self.gradients.adjacency:
            raise ValueError("the mean and the descent must be accounted for under the same adjacency")
        check_noise(self.mean, self.gradients)

    @classmethod
    def for_budget(
        cls,
        budget: BudgetLike,
        *,
        steps: int | None = None,
        clip_norm: float,
        row_norm: float,
        share: float = 0.05,
        sampler: Sampler | None = None,
        **options: Any,
    ) -> "CentredPlan":
        """Return the plan with the least noise for ``budget``, or with the given noise, under replace-one.

        Parameters
        ----------
        budget : Budget or NoiseMultiplier
            Budget of the mean and the descent together; or the noise multiplier of the **gradients**, from which that
            of the mean follows by ``share``.
        steps, clip_norm, sampler, **options
            Fields of the descent, as for :class:`GradientPlan`. Without a sampler, batches are full.
        row_norm : float
            Bound on the norm of a row.
        share : float
            Fraction of the privacy cost that the mean may spend, between 0 and 1. The cost is measured by mu^2, where
            mu is the parameter of Gaussian differential privacy.
        """
        budget = as_budget_or_noise(budget)
        positive("row_norm", row_norm)
        _check_share(share)
        draft = GradientPlan(sampler or FullBatch(), steps, clip_norm, 1.0, Adjacency.REPLACE_ONE, **options)
        mean = GradientPlan(FullBatch(), 1, row_norm, 1.0)
        # Noise that each part alone would need, for the budget or for what the given gradients cost. For Gaussian
        # releases, the cost mu^2 is inversely proportional to the square of the noise multiplier, so this ratio of
        # multipliers gives the mean the desired share. With random batches, this holds approximately.
        cost = _cost(draft, budget) if isinstance(budget, NoiseMultiplier) else budget
        alone = [calibrate(part.event_at, Adjacency.REPLACE_ONE, cost) for part in (mean, draft)]
        ratio = math.sqrt((1 - share) / share) * alone[0] / alone[1]

        def event_at(multiplier: float) -> Event:
            return Composition((mean.event_at(multiplier * ratio), draft.event_at(multiplier)))

        multiplier = calibrate(event_at, Adjacency.REPLACE_ONE, budget)
        return cls(
            replace(mean, noise_multiplier=multiplier * ratio),
            replace(draft, noise_multiplier=multiplier, delta=budget.delta),
            delta=budget.delta,
        )

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency of both parts."""
        return self.mean.adjacency

    def truncated(self, steps: int) -> "CentredPlan":
        """Return the plan of the mean and the first ``steps`` steps of the descent: :meth:`GradientPlan.truncated`."""
        return replace(self, gradients=self.gradients.truncated(steps))

    @property
    def tasks(self) -> int:
        """How many descents on the same rows the plan covers."""
        return self.gradients.tasks

    @property
    def event(self) -> Event:
        """What the mean and the descent release together, in the form that composes."""
        return Composition((self.mean.event, self.gradients.event))

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bounds: tuple[Assumption, Assumption] | None = None,
        contracts: Assumption | None = None,
    ) -> Guarantee:
        """Return the guarantee of both parts together; ``bounds`` are the conditions on rows and on gradients."""
        delta = stated_delta(delta, self.delta)
        of_mean, of_descent = bounds or (None, None)
        mean = self.mean.guarantee(delta, bound=of_mean, released="the noisy mean of the rows")
        released = "all noisy gradients, all iterates" if self.gradients.release == "all" else None
        descent = self.gradients.guarantee(delta, bound=of_descent, released=released, contracts=contracts)
        return compose([mean, descent], delta=delta)


@dataclass(frozen=True)
class CentredOutputPlan:
    """A noisy sum of the rows, which gives their mean, followed by one noisy result of the centred rows.

    Parameters
    ----------
    mean : GradientPlan
        One full-batch release of the sum of all rows.
    output : OutputPlan
        The result of a stable computation on the centred rows. If it has several tasks, they share the mean.
    centred_norm : float
        Norm to which centred rows are scaled down.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    :meth:`guarantee`, the adaptive composition of the two, computed from their events. The stability of ``output`` must
    hold for every centre.
    """

    mean: GradientPlan
    output: OutputPlan
    centred_norm: float
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        positive("centred_norm", self.centred_norm)
        _check_mean(self.mean)
        if not self.mean.has_noise:
            raise ValueError("the mean has no noise, which leaves the whole run without privacy: add noise to the mean")
        if self.mean.adjacency is not self.output.adjacency:
            raise ValueError("the mean and the result must be accounted for under the same adjacency")

    @classmethod
    def for_budget(
        cls,
        budget: BudgetLike,
        *,
        stability: Stability,
        row_norm: float,
        centred_norm: float,
        share: float = 0.05,
        tasks: int = 1,
    ) -> "CentredOutputPlan":
        """Return the plan with the least noise for ``budget``, whose delta is above 0, under replace-one.

        Parameters
        ----------
        budget : Budget
            Budget of the mean and the result together.
        stability : Stability
            How far the result can move, for every centre, if centred rows are scaled down to ``centred_norm``.
        row_norm, share
            As for :meth:`CentredPlan.for_budget`.
        tasks : int
            How many results are released, one per task.
        """
        budget = as_exact_budget(budget)
        _check_share(share)
        if budget.is_pure:
            raise ValueError("a noisy mean has Gaussian noise, which gives no pure epsilon guarantee: set delta > 0")
        # All releases are Gaussian, so their squared mu add up. The margin covers rounding.
        total = gdp_mu(budget) * (1 - 1e-9)
        of_mean, of_result = total * math.sqrt(share), total * math.sqrt((1 - share) / count("tasks", tasks))
        mean = GradientPlan(FullBatch(), 1, positive("row_norm", row_norm), 2 / of_mean)
        scale = positive("sensitivity", stability.sensitivity) / of_result
        output = OutputPlan(stability, scale, is_pure=False, tasks=tasks, delta=budget.delta)
        return cls(mean, output, centred_norm, delta=budget.delta)

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency of both parts."""
        return self.mean.adjacency

    @property
    def tasks(self) -> int:
        """How many results on the same rows the plan covers."""
        return self.output.tasks

    @property
    def event(self) -> Event:
        """What the mean and the result release together, in the form that composes."""
        return Composition((self.mean.event, self.output.event))

    def guarantee(
        self, delta: float | None = None, *, bounds: tuple[Assumption, Assumption] | None = None
    ) -> Guarantee:
        """Return the guarantee of both parts together; ``bounds`` are the conditions on rows and on the result."""
        delta = stated_delta(delta, self.delta)
        of_mean, of_output = bounds or (None, None)
        mean = self.mean.guarantee(delta, bound=of_mean, released="the noisy mean of the rows")
        released = "the final weights, with noise added once"
        return compose([mean, self.output.guarantee(delta, bound=of_output, released=released)], delta=delta)


def _check_mean(mean: GradientPlan) -> None:
    if mean.steps != 1 or not isinstance(mean.sampler, FullBatch):
        raise ValueError("the mean must be one release over all rows: use GradientPlan(FullBatch(), 1, ...)")


def _check_share(share: float) -> None:
    if not _LEAST_SHARE <= positive("share", share) <= 1 - _LEAST_SHARE:
        raise ValueError(f"share must lie in [{_LEAST_SHARE:g}, {1 - _LEAST_SHARE:g}], got {share:g}")


def _cost(descent: GradientPlan, noise: NoiseMultiplier) -> Budget:
    """Return what the descent alone costs with this noise; without noise, where it does not matter, with some."""
    delta = noise.delta or _USUAL_DELTA
    return Budget(epsilon(descent.event_at(noise.multiplier or 1.0), descent.adjacency, delta), delta)
