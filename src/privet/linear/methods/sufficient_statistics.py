"""Method ``sufficient_statistics``: noisy products of all columns and targets, then least squares.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.plans import OutputPlan
from privet.privacy import gdp_mu
from privet.solvers import Release, sufficient_statistics
from privet.solvers.sufficient_statistics import MOST_COLUMNS, moment_stability

_SQUARE, _LINEAR = 45.0, 1.0  # found on validation rows of the four tables of benchmarks/regression_methods.py


def excess(task: Task) -> float:
    """Return the expected excess, which is infinite for more columns than the method supports.

    The error of the solution is quadratic in the noise as long as the noise is below the eigenvalues of most
    directions, and linear beyond. A descent does better there.
    """
    d = task.problem.rows.dimension
    if d > MOST_COLUMNS:
        return math.inf
    noise = 1 / (task.problem.rows.n * gdp_mu(task.share))
    return task.scale**2 * min(_SQUARE * (d * noise) ** 2, _LINEAR * math.sqrt(d) * noise)


@method(
    "sufficient_statistics",
    summary="the sums of all products of columns and targets, once",
    uses=("tpr",),
    needs_squared=True,
    takes_steps=False,
    excess=excess,
)
def train(task: Task) -> Release:
    """Release the moments of all tasks together, then solve the normal equations."""
    stability = moment_stability(task.problem, task.scale, task.tasks)
    plan = OutputPlan.for_budget(task.budget, stability=stability)
    return sufficient_statistics(task.problem, task.run(plan), others=[each.targets for each in task.others])
