"""Formulas that several sparse methods share: how many features a budget can distinguish, and a bounded problem."""

import math
from dataclasses import replace

from privet.linear.methods._base import Task
from privet.objectives import L2
from privet.privacy import Budget, gdp_mu
from privet.solvers import Problem

FIRST_CLIP = 0.6  # clip of the first residuals, as a share of the bound on the target
_WANTED_LEGIBILITY = 16.0


def legibility(budget: Budget, n: int, n_features: int, n_nonzero: int, norm_in_entries: float) -> float:
    """Return n mu q / (s log(2 d)): the sums by which s features of d are chosen, relative to the noise of the choice.

    If s independent features share the variance of the target, the sum of one feature is of the order of n q / sqrt(s)
    largest entries. The largest of d noises, each at a price of mu / sqrt(s), is of the order of sqrt(s) log(2 d) / mu
    largest entries. q = min(1, sqrt(3/d) R/e) is the root mean square of a feature over rows of norm R that are spread
    evenly, relative to that of entries spread evenly up to their bound e. ``norm_in_entries`` is R/e.
    """
    spread = min(1.0, math.sqrt(3 / n_features) * norm_in_entries)
    return n * gdp_mu(budget) * spread / (n_nonzero * math.log(2 * n_features))


def default_n_nonzero(budget: Budget, n: int, n_features: int, norm_in_entries: float) -> int:
    """Return the number of features, at least one, that the budget can choose among all with a legibility of 16."""
    affordable = legibility(budget, n, n_features, 1, norm_in_entries) / _WANTED_LEGIBILITY
    return int(max(1, min(n_features, round(min(affordable, n_features)))))


def bounded_problem(task: Task, alpha: float = 0.0) -> Problem:
    """Return the problem with a bounded loss and a penalty of at least ``alpha``.

    Methods that perturb a minimum need bounded gradients, so the Huber loss replaces the squared loss.
    """
    objective = task.problem.objective.with_bounded_gradient(task.scale)
    return replace(task.problem, objective=objective, regulariser=L2(max(task.problem.strong_convexity, alpha)))
