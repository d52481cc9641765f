"""The plan of a private draft: what is asked about a private table, with how much noise, and what all of it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

from scipy.special import ndtri

from privet.checks import count, positive, probability, quotient_above
from privet.plans import OutputPlan, PlanError
from privet.plans.adaptive import selection_epsilon
from privet.plans.stabilities.histogram import HistogramStability
from privet.preprocessing.quantiles import QuantilePlan
from privet.privacy import Adjacency, Budget, Guarantee, enforced, gdp_mu
from privet.privacy.budget import BudgetLike, as_budget, stated_delta
from privet.privacy.events import Event, NearlyGaussian
from privet.privacy.noise.release import grid_step

KINDS_SHARE = 0.25
"""The share of the squared mu that pays for the numbers of cells of each kind. The other questions share the rest."""
_DISTANCE_SHARE = 0.1  # of delta, for levels that no other row has
_COMPOSED_EPSILON = 10.0
"""The distance costs delta in proportion to e^epsilon, also of a total of several releases. Up to a total epsilon of
this size, it costs its share at most. A larger distance would soon make the total infinite."""
_MARGIN = 1 - 1e-12
_LARGEST_EPSILON = 100.0


@dataclass(frozen=True)
class DraftPlan:
    """What is asked about the columns of a private table, and what all answers together cost.

    First, the cells of each kind (missing, numbers, texts, dates) are counted in every column, with noise. What is
    asked next depends on these answers: the levels of columns of texts and of the target, by a histogram with noise
    and a threshold; and two quantiles of columns of numbers or dates, by the exponential mechanism.

    Parameters
    ----------
    n_columns : int
    mu : float
        Gaussian-DP parameter of all answers together, except for the threshold.
    distance : float
        Total variation distance that all thresholds together may add.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    On two neighbouring tables, the answers are within total variation ``distance`` of those of a mu-GDP mechanism.
    docs/proofs.md, section 34, proves it. Replace-one adjacency; the number of rows and the names of the columns are
    public.
    """

    n_columns: int
    mu: float
    distance: float
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    adjacency = Adjacency.REPLACE_ONE
    tasks = 1

    def __post_init__(self) -> None:
        count("n_columns", self.n_columns)
        positive("mu", self.mu)
        probability("distance", self.distance)

    @classmethod
    def for_budget(cls, budget: BudgetLike, n_columns: int) -> DraftPlan:
        """Return the plan that spends the budget, whose delta must be positive."""
        budget = as_budget(budget)
        if budget.is_pure:
            raise ValueError(
                "A private draft needs delta > 0: it finds levels that nobody declared by a threshold, which costs "
                "some delta. Leave delta out, or declare the columns in a code book."
            )
        if budget.epsilon > _LARGEST_EPSILON:
            raise ValueError(
                f"epsilon = {budget.epsilon:g} is no protection. Use at most {_LARGEST_EPSILON:g}; 1 is usual."
            )
        distance = _DISTANCE_SHARE * budget.delta / (1 + math.exp(max(budget.epsilon, _COMPOSED_EPSILON)))
        mu = gdp_mu(Budget(budget.epsilon, budget.delta - distance * (1 + math.exp(budget.epsilon))))
        plan = cls(n_columns, mu, distance, delta=budget.delta)
        while plan.guarantee().epsilon > budget.epsilon:
            plan = replace(plan, mu=plan.mu * (1 - 1e-7))
        return plan

    @property
    def event(self) -> Event:
        """What is released, in the form that composes."""
        return NearlyGaussian(self.mu, self.distance)

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee of all answers together, and of everything that is made from them."""
        return Guarantee.of(
            self.event,
            self.adjacency,
            stated_delta(delta, self.delta),
            released=f"a draft of the schema of {self.n_columns} columns: kinds, levels, bounds and noisy counts",
            assumptions=(
                enforced("each cell is read by itself, whatever the other cells are"),
                enforced(HistogramStability(self.n_columns).in_words(), detail=True),
                enforced(
                    f"a level is named only if its noisy count exceeds a threshold, which a level of a single record "
                    f"does with a probability that is part of delta (at most {self.distance:.3g} for all columns)",
                    detail=True,
                ),
                enforced(
                    "quantiles are drawn exactly by the exponential mechanism, on a public grid of round numbers",
                    detail=True,
                ),
                enforced("the names of the columns and the number of rows are public", detail=True),
            ),
        )

    def kinds(self) -> OutputPlan:
        """Return the plan for the numbers of cells of each kind, in all columns."""
        return _counts(self.n_columns, self.mu * math.sqrt(KINDS_SHARE) * _MARGIN)

    def questions(self, n_levels: int, n_bounds: int) -> Questions:
        """Return the plan for what is asked next, given how many columns' levels and bounds are asked for."""
        asked = Questions(self, n_levels, n_bounds)
        if _square(self.kinds()) + asked.cost() > Fraction(self.mu) ** 2:
            raise PlanError("the questions cost more than the plan accounts for")
        return asked


@dataclass(frozen=True)
class Questions:
    """What is asked about single columns: the levels of some, the bounds of others. Each question has the same price.

    Parameters
    ----------
    plan : DraftPlan
    n_levels, n_bounds : int
        How many columns are asked for their levels, and how many for their bounds. Both follow from noisy counts.
    """

    plan: DraftPlan
    n_levels: int
    n_bounds: int

    @property
    def price(self) -> float:
        """The mu of one question."""
        number = max(self.n_levels + self.n_bounds, 1)
        return self.plan.mu * math.sqrt((1 - KINDS_SHARE) / number) * _MARGIN

    def levels(self) -> OutputPlan:
        """Return the plan for the histograms of levels of all columns that are asked for them."""
        return _counts(self.n_levels, self.price * math.sqrt(self.n_levels) * _MARGIN)

    @property
    def threshold(self) -> float:
        """The smallest noisy count at which a level is named.

        Noise alone, on a count of zero, reaches it with a probability of at most ``distance / n_levels``: the noisy
        count is rounded to a grid of step h, of which the threshold is a multiple, and one more step pays for it.
        """
        scale = self.levels().scale
        step = grid_step(scale)
        quantile = -float(ndtri(self.plan.distance / self.n_levels)) * (1 + 1e-9)
        return (math.ceil(scale * quantile / step) + 1) * step

    def bounds(self, resolution: int) -> QuantilePlan:
        """Return the plan for two quantiles of one column, on a grid of ``resolution`` steps."""
        each = selection_epsilon(self.price / math.sqrt(2) * _MARGIN)
        return QuantilePlan(1, (0.01, 0.99), resolution, each, is_pure=False)

    def cost(self) -> Fraction:
        """Return the squared mu of all questions together, exactly."""
        levels = _square(self.levels()) if self.n_levels else Fraction(0)
        return levels + self.n_bounds * _square(self.bounds(1))

    def rank_error(self, resolution: int) -> float:
        """Return how far the rank of a drawn quantile is from the target at most, with a probability of 95 %.

        The weight of all grid points that are further off is below resolution * exp(-epsilon rank / 2).
        """
        return 2 / self.bounds(resolution).query_epsilon * (math.log(resolution + 1) + 3)


def _square(plan: OutputPlan | QuantilePlan) -> Fraction:
    """Return the squared mu of what a plan releases."""
    mu = plan.event.gaussian_mu(plan.adjacency)
    assert mu is not None
    return Fraction(mu) ** 2


def _counts(n_columns: int, mu: float) -> OutputPlan:
    stability = HistogramStability(n_columns)
    return OutputPlan(stability, quotient_above(stability.sensitivity, mu), is_pure=False)
