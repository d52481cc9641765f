"""Method ``objective``: noise in the objective, then its minimum.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods._expectation import excess_of_tilt
from privet.plans.tasks import black_box_share
from privet.privacy import Budget, gdp_mu
from privet.privacy.analyses.objective_noise import OUTPUT_SHARE, least_strong_convexity, volume_loss
from privet.solvers import Release, objective_perturbation
from privet.solvers.objective_perturbation import objective_plan

_VOLUME_SHARE = 0.25  # of epsilon, for the curvature of one record
_HELD_BY_DATA = 0.1  # of the excess for a weak penalty: the loss itself keeps the minimum from moving far
_WEIGHTS = 16.0  # scores that weights of a usual length give a row of full norm, in units of the scale


def excess(task: Task) -> float:
    """Return the expected excess at the penalty that the budget requires."""
    objective, rows = task.problem.objective, task.problem.rows
    budget, alpha = black_box_share(task.budget, task.tasks), max(_required_alpha(task), task.problem.strong_convexity)
    volume = volume_loss(objective.smoothness(rows.norm_bound), rows.n, alpha)
    if not budget.is_pure:
        delta = budget.delta if objective.is_one_sided else budget.delta / 2
        return excess_of_tilt(task, Budget(budget.epsilon - volume, delta), alpha) / (1 - OUTPUT_SHARE)
    excess = excess_of_tilt(task, Budget((budget.epsilon - volume) * (1 - OUTPUT_SHARE)), alpha)
    return excess if alpha == task.problem.strong_convexity else _HELD_BY_DATA * excess


@method(
    "objective",
    summary="a linear term of the objective, whose minimum is released",
    is_pure=True,
    needs_bound=True,
    needs_one_score=True,
    takes_steps=False,
    excess=excess,
)
def train(task: Task) -> Release:
    """Tilt the objective by noise, then find its minimum. ``alpha`` is raised to the value that the budget requires."""
    added = max(_required_alpha(task) - task.problem.strong_convexity, 0.0)
    plan = objective_plan(task.problem, task.budget, added_alpha=added, tasks=task.tasks)
    return task.solve(objective_perturbation, plan)


def _required_alpha(task: Task) -> float:
    problem = task.problem
    return objective_alpha(
        black_box_share(task.budget, task.tasks),
        lipschitz=problem.lipschitz,
        n=problem.rows.n,
        n_weights=problem.start().size,
        scale=task.scale,
        row_norm=problem.rows.row_norm,
        smoothness=problem.objective.smoothness(problem.rows.norm_bound),
    )


def objective_alpha(
    budget: Budget, *, lipschitz: float, smoothness: float, n: int, n_weights: int, scale: float, row_norm: float
) -> float:
    """Return the penalty at which the noise in the objective moves the minimiser by at most a usual length.

    A tilt of length t moves the minimiser of an alpha-strongly convex objective by at most t / alpha. The curvature of
    one record costs epsilon as well, more for a smaller alpha. It may take at most a quarter of epsilon.
    """
    least = least_strong_convexity(smoothness, n, _VOLUME_SHARE * budget.epsilon)
    if budget.is_pure:
        tilt = n_weights * 2 * lipschitz / budget.epsilon  # the mean of a Gamma(n_weights) radius
    else:
        tilt = math.sqrt(n_weights) * 2 * lipschitz / gdp_mu(budget)
    return max(tilt / (n * _WEIGHTS * scale / row_norm), least)
