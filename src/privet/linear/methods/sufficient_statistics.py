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


def excess(task: Task) -> float:
    """Return the expected excess."""
    return math.inf


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
