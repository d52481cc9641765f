"""How far a method's result is expected to be above the minimum of the objective, from public numbers alone.

``method="auto"`` compares these expectations, and defaults are derived from them. They use n, the number of weights,
the budget, the bounds and the penalty, and never the data. The constants were fitted by trials on a9a and on the five
tables of experiments/efficient_erm_table3.py. They affect the choice among methods, and never a guarantee.

Notation: L bounds the gradient of a record, R its row, mu is the Gaussian-DP parameter of the budget, and
x = 2 L sqrt(d)/(n mu) is the norm of the noise that one release of the mean gradient needs.
"""

import math

from privet.linear.methods._base import Task
from privet.privacy import Budget, gdp_mu
from privet.solvers import Problem

USUAL_SCORE = 6.0  # norm of the weights times R, in units of the deviation of a score that matters
_DESCENT = 1.8  # excess of a noisy descent on a convex objective, in units of x times the deviation that matters over R
_REPEATED = 5.0  # noise of a descent that its average does not remove, relative to the minimum of a tilted objective
_SHORT_ROWS = 0.25  # usual squared length of rows, and curvature at the minimum, relative to their bounds
_CLIPPED, _POWER = 0.03, 6  # a clip of c times the bound costs about 0.03 (1 - c)^6


def noise_of_mean(problem: Problem, budget: Budget, lipschitz: float) -> float:
    """Return x: the norm of the noise that one release of the mean gradient needs within ``budget``."""
    d = problem.start().size
    # K-norm noise has a standard deviation of sqrt(d+1) sensitivity/epsilon per coordinate, which gives this mu.
    mu = budget.epsilon / math.sqrt(d + 1) if budget.is_pure else gdp_mu(budget)
    return 2 * lipschitz * math.sqrt(d) / (problem.rows.n * mu)


def bound_of(task: Task) -> float:
    """Return the bound L of a record's gradient. A loss without a bound gets that of an error as large as the scale."""
    lipschitz = task.problem.lipschitz
    return lipschitz if math.isfinite(lipschitz) else task.problem.rows.norm_bound * task.scale


def usual_length(task: Task) -> float:
    """Return a usual norm of the minimiser, limited by the slope of the loss."""
    return USUAL_SCORE * _deviation(task)


def _deviation(task: Task) -> float:
    """Return how far weights must move for a deviation of the score that matters to the loss."""
    return min(task.worth, task.problem.objective.residual_bound) / task.problem.rows.largest_norm


def excess_of_descent(task: Task, clipped: float = 1.0) -> float:
    """Return the expected excess of a descent with noise in every step, for gradients clipped to a share of L."""
    return min(_noise_of_descent(task, clipped)) + _CLIPPED * task.scale**2 * (1 - clipped) ** _POWER


def is_pulled(task: Task, clipped: float) -> bool:
    """Return whether the penalty, rather than the number of steps, limits what noise does to a descent."""
    free, pulled = _noise_of_descent(task, clipped)
    return pulled < free


def _noise_of_descent(task: Task, clipped: float) -> tuple[float, float]:
    """Return the excess that noise causes in a descent without a penalty, and in one that a penalty pulls back."""
    x = clipped * noise_of_mean(task.problem, task.share, bound_of(task))
    alpha = task.problem.strong_convexity
    return _DESCENT * _deviation(task) * x, _REPEATED * x * x / (2 * alpha) if alpha > 0 else math.inf


def excess_of_tilt(task: Task, budget: Budget, alpha: float) -> float:
    """Return the expected excess of the minimum of a tilted objective, whose penalty is raised to ``alpha``.

    The tilt moves the minimum by at most x/alpha, and the excess is the tilt times half of this.
    """
    x = noise_of_mean(task.problem, budget, bound_of(task))
    added = max(alpha - task.problem.strong_convexity, 0.0)
    return x * x / (2 * alpha) + added / 2 * usual_length(task) ** 2


def excess_of_noise(task: Task, distance: float) -> float:
    """Return the excess that noise on the weights causes, for noise of norm ``distance``."""
    problem, d = task.problem, task.problem.start().size
    # On overflow, a product is infinite, whereas a power raises an error.
    return (problem.strong_convexity + _curvature(task) / d) / 2 * distance * distance


def _curvature(task: Task) -> float:
    """Return a usual sum of the second derivatives of the mean loss over all weights."""
    problem = task.problem
    n_outputs = problem.start().size // problem.rows.dimension
    # Errors beyond the threshold of a robust loss have no curvature.
    inside = min(1.0, problem.objective.residual_bound / task.worth)
    return _SHORT_ROWS * inside * n_outputs * problem.objective.start_curvature * problem.rows.largest_norm**2
