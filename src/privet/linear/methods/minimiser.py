"""Method ``minimiser``: the minimum of the objective, then noise on it."""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods._expectation import bound_of, excess_of_noise, noise_of_mean
from privet.plans import OutputPlan
from privet.solvers import Release, minimiser_perturbation
from privet.solvers.minimiser_perturbation import minimiser_stability


def excess(task: Task) -> float:
    """Return the expected excess, which is infinite without a penalty."""
    alpha = task.problem.strong_convexity
    if alpha <= 0:
        return math.inf
    return excess_of_noise(task, noise_of_mean(task.problem, task.share, bound_of(task)) / alpha)


@method(
    "minimiser",
    summary="the minimum of the objective",
    uses=("tpr",),
    is_pure=True,
    needs_bound=True,
    takes_steps=False,
    excess=excess,
)
def train(task: Task) -> Release:
    """Find the minimum, then add noise once. The noise is inversely proportional to ``alpha``."""
    plan = OutputPlan.for_budget(task.budget, stability=minimiser_stability(task.problem), tasks=task.tasks)
    return task.solve(minimiser_perturbation, plan)
