"""Method ``minimiser``: the minimum of the objective, then noise on it."""

from privet.linear.methods._base import Task, method
from privet.plans import OutputPlan
from privet.solvers import Release, minimiser_perturbation
from privet.solvers.minimiser_perturbation import minimiser_stability


@method("minimiser", summary="the minimum of the objective", is_pure=True, needs_bound=True)
def train(task: Task) -> Release:
    """Find the minimum, then add noise once. The noise is inversely proportional to ``alpha``."""
    plan = OutputPlan.for_budget(task.budget, stability=minimiser_stability(task.problem), tasks=task.tasks)
    return task.solve(minimiser_perturbation, plan)
