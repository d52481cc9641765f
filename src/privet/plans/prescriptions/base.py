"""What the prescriptions share: rounding a number of steps, and refusing a budget that a theorem does not cover."""

import math

from privet.checks import LARGEST_COUNT
from privet.privacy.budget import Budget, BudgetLike, as_budget


def at_least_one(steps: float) -> int:
    """Return a number of steps that a formula gives, rounded up, at least 1 and at most the largest count."""
    if math.isnan(steps):
        raise ValueError("the formula gives no number of steps for these values, because it is not a number")
    return int(min(max(math.ceil(steps), 1), LARGEST_COUNT))


def approximate(budget: BudgetLike, theorem: str, n: int | None = None) -> Budget:
    """Return the budget if its delta is positive, else raise ValueError: ``theorem`` is about Gaussian noise."""
    checked = as_budget(budget, n)
    if checked.is_pure:
        raise ValueError(f"{theorem} is about Gaussian noise, which needs delta > 0, got delta = 0. Set delta.")
    return checked
