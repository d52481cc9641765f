"""Method ``recursive_momentum``: DP-SRM, which measures gradients of random batches and, cheaper, how they change.

Algorithm 4 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), with an
average of iterates.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import longest_step, precision, record_clip
from privet.linear.methods.minibatch import default_batch_size, random_batches
from privet.plans import RecursivePlan
from privet.solvers import Release, recursive_momentum

_REFRESH = 0.4  # weight of fresh gradients in the estimate
_DIFFERENCE = 0.1  # clip of a change, in units of the clip of a gradient: adds 15 % to the noise of a step
_STEPS_PER_PRECISION, _FEWEST_STEPS, _MOST_STEPS = 0.2, 40, 300
_LONGEST = 256.0  # size of a step in units of 1/smoothness: the worst case is far steeper than most data
_AVERAGED = 0.3  # the share of the iterates, at the end, whose average is returned
_MOVE, _SHORTEST_MOVE = 0.15, 0.5  # of a score of full norm in one step, times the root of the number of weights


@method(
    "recursive_momentum",
    summary="a mixture of the gradient of a random batch and its change since the step before",
    uses=("clip_norm", "batch_size", "noise_multiplier", "tpr"),
)
def train(task: Task) -> Release:
    """Train along an estimate of the gradient that is updated by noisy changes.

    In many dimensions most of a step is noise, which hardly moves a score, so steps may be longer.
    """
    problem, rows = task.problem, task.problem.rows
    n_weights = problem.start().size
    reached = precision(task.share, rows.n, n_weights)
    steps = task.max_iter or recursive_steps(reached)
    clip_norm = record_clip(task)
    plan = RecursivePlan.for_budget(
        task.noise_or_budget,
        sampler=random_batches(task, default_batch_size(rows.n)),
        steps=steps,
        clip_norm=clip_norm,
        difference_norm=_DIFFERENCE * clip_norm,
        refresh=_REFRESH,
        tasks=task.tasks,
    )
    # The noise of a release stays in the estimate for 1/refresh steps.
    lasting_noise = plan.later_plan.noise_std / plan.later_plan.divisor(rows.n) / plan.refresh
    return task.solve(
        recursive_momentum,
        plan,
        step_size=min(longest_step(lasting_noise, steps, rows.row_norm, task.worth), _LONGEST / problem.smoothness),
        max_move=max(_MOVE * math.sqrt(n_weights), _SHORTEST_MOVE) * task.worth / rows.row_norm,
        averaged=_AVERAGED,
    )


def recursive_steps(precision: float) -> int:
    """Return the number of steps. With less noise, more steps can be told from noise."""
    return int(min(max(_STEPS_PER_PRECISION * precision, _FEWEST_STEPS), _MOST_STEPS))
