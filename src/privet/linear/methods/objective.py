"""Method ``objective``: noise in the objective, then its minimum.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.plans.tasks import black_box_share
from privet.privacy import Budget, gdp_mu
from privet.privacy.analyses.objective_noise import least_strong_convexity
from privet.solvers import Release, objective_perturbation
from privet.solvers.objective_perturbation import objective_plan

_VOLUME_SHARE = 0.25  # of epsilon, for the curvature of one record
_WEIGHTS = 16.0  # scores that weights of a usual length give a row of full norm, in units of the scale


@method(
    "objective",
    summary="a linear term of the objective, whose minimum is released",
    is_pure=True,
    needs_bound=True,
    needs_one_score=True,
    auto_rank=2,
    auto_reason="delta = 0: of the methods with a pure form, noise in the objective does the least harm",
)
def train(task: Task) -> Release:
    """Tilt the objective by noise, then find its minimum. ``alpha`` is raised to the value that the budget requires."""
    problem = task.problem
    wanted = objective_alpha(
        black_box_share(task.budget, task.tasks),
        lipschitz=problem.lipschitz,
        n=problem.rows.n,
        n_weights=problem.start().size,
        scale=task.scale,
        row_norm=problem.rows.row_norm,
        smoothness=problem.objective.smoothness(problem.rows.norm_bound),
    )
    added = max(wanted - problem.strong_convexity, 0.0)
    plan = objective_plan(problem, task.budget, added_alpha=added, tasks=task.tasks)
    return task.solve(objective_perturbation, plan)


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
