"""Method ``two_stage``: blocks of records vote on the features, then noise in the objective of the chosen ones."""

from typing import Any

from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import bounded_problem
from privet.linear.methods.objective import objective_alpha
from privet.privacy import Budget
from privet.solvers import Release
from privet.solvers.two_stage import two_stage, two_stage_plan

_SELECTION_SHARE = 0.7  # of epsilon: wrong features do more harm than inaccurate weights


@method(
    "two_stage",
    summary="the votes of blocks of records on the features, then a linear term of the objective",
    is_sparse=True,
)
def train(task: Task) -> Release:
    """Let blocks of records vote on the features, then tilt the objective of the chosen features by noise."""
    problem, rows = bounded_problem(task), task.problem.rows
    length = task.sparse_norm * (1 + rows.rounding)
    wanted = objective_alpha(
        Budget(task.budget.epsilon / 2, task.budget.delta / 2),
        lipschitz=problem.objective.lipschitz(length),
        smoothness=problem.objective.smoothness(length),
        n=rows.n,
        n_weights=task.n_nonzero + rows.dimension - rows.n_features,
        scale=task.scale,
        row_norm=task.sparse_norm,
    )
    features: dict[str, Any] = {"n_nonzero": task.n_nonzero, "entry_bound": task.entry_bound}
    added_alpha = max(wanted - problem.strong_convexity, 0.0)
    plan = two_stage_plan(problem, task.budget, added_alpha=added_alpha, selection_share=_SELECTION_SHARE, **features)
    return two_stage(problem, task.run(plan), vote_steps=task.max_iter or 1, **features)
