"""Method ``adaptive``: DP-AGD, a descent with a private line search that pays for better gradients if they are needed.

Algorithm 1 of Lee and Kifer, "Concentrated Differentially Private Gradient Descent with Adaptive per-Iteration Privacy
Budget".

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import record_clip
from privet.plans import AdaptivePlan
from privet.solvers import Release, adaptive_gradient_descent

_STEPS = 60
_MOVE, _SHORTEST_MOVE = 0.5, 2.0  # of a score of full norm in one step, times the root of the number of weights


@method(
    "adaptive",
    summary="the gradient in every step, and to the choice of each step size by the losses that it would give",
    uses=("clip_norm", "tpr"),
    needs_bound=True,
)
def train(task: Task) -> Release:
    """Train with noise in every step and privately chosen step sizes. ``max_iter`` is the expected number of steps.

    In many dimensions most of a step is noise, which hardly moves a score, so steps may be longer.
    """
    problem, rows = task.problem, task.problem.rows
    n_weights = problem.start().size
    return task.solve(
        adaptive_gradient_descent,
        AdaptivePlan.for_budget(task.budget, tasks=task.tasks),
        clip_norm=record_clip(task),
        expected_steps=task.max_iter or _STEPS,
        max_step=max(_MOVE * math.sqrt(n_weights), _SHORTEST_MOVE) * task.scale / rows.row_norm,
    )
