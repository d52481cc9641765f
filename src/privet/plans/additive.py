"""The plan of an additive model: noisy counts of the cells of all columns, then noisy gradients."""

import math
from typing import Any

from privet.checks import count
from privet.plans.centred import CentredPlan
from privet.privacy.budget import BudgetLike, stated_delta
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, compose, enforced


class AdditivePlan(CentredPlan):
    """Noisy counts, released once, followed by a descent along noisy gradients.

    The two parts are those of :class:`CentredPlan`, where ``mean`` is the release of the counts.

    Formal guarantees
    -----------------
    :meth:`guarantee`, the adaptive composition of the two, computed from their events. A record is in one cell of each
    of d columns. Replacing it moves the counts of at most two cells per column by 1, and the vector of all counts by
    at most sqrt(2 d) in the l2 norm (docs/proofs.md, section 36). ``mean.clip_norm`` is half of that, because replacing
    a record moves a sum by twice the bound on one contribution. Layout and scales of the second part depend on the
    counts only after their noise, and its clip on nothing but public numbers.
    """

    @classmethod
    def for_columns(
        cls, budget: BudgetLike, *, n_columns: int, steps: int, clip_norm: float, share: float
    ) -> "AdditivePlan":
        """Return the plan with the least noise for ``budget``, or with the given noise of the gradients.

        ``share`` is the part of the privacy cost that the counts may spend, as for :meth:`CentredPlan.for_budget`.
        """
        norm = half_move_of_counts(n_columns)
        plan = cls.for_budget(budget, row_norm=norm, share=share, steps=steps, clip_norm=clip_norm)
        assert isinstance(plan, AdditivePlan)
        return plan

    def guarantee(self, delta: float | None = None, *, bounds: Any = None, contracts: Any = None) -> Guarantee:
        """Return the guarantee of both parts together; ``bounds`` are the conditions on counts and on gradients."""
        delta = stated_delta(delta, self.delta)
        of_counts, of_descent = bounds or (None, None)
        counts = self.mean.guarantee(delta, bound=of_counts, released="the noisy counts of the cells of all columns")
        released = "all noisy gradients, all iterates and the final curves"
        descent = self.gradients.guarantee(delta, bound=of_descent, released=released)
        return compose([counts, descent], delta=delta)


def half_move_of_counts(n_columns: int) -> float:
    """Return half of how far replacing a record can move the counts of all cells: sqrt(2 d) / 2, rounded up."""
    return math.nextafter(math.sqrt(count("n_columns", n_columns) / 2), math.inf)


def one_cell_per_column(n_columns: int, with_moments: bool = False) -> Assumption:
    """Return the condition on counts that a solver enforces."""
    moments = (
        ", where the mean and the mean square of the target in [-1, 1] count as two columns" if with_moments else ""
    )
    return enforced(
        f"each record is in one cell of each of {n_columns} columns, so that replacing it moves all counts together by "
        f"at most sqrt(2 * {n_columns}) in the l2 norm{moments}"
    )
