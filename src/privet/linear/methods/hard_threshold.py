"""Method ``hard_threshold``: DP-IGHT, noisy gradients of all features and a hard threshold after each step."""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import from_noisy_mean
from privet.linear.methods.gradient import longest_step
from privet.plans import FullBatch, GradientPlan
from privet.solvers import AlignedStep, Release
from privet.solvers.hard_threshold import hard_threshold

_STEPS = 10
_CLIP = 0.2  # of the row norm times the scale of scores: noise grows with the clip, more than covariances do
_FIRST = 4.0  # the first step, in units of one that is safe for every table
_GROWTH, _CUT = 3.0, 0.3  # few steps must be enough to find a good length


@method(
    "hard_threshold",
    summary="the gradient of all features in every step; the largest weights are kept",
    uses=("tpr",),
    is_sparse=True,
)
def train(task: Task) -> Release:
    """Descend along noisy gradients of all features, and keep the largest weights after each step."""
    return from_noisy_mean(task, descend)


def descend(task: Task) -> Release:
    """Run DP-IGHT with settings that follow from public numbers."""
    problem, rows = task.problem, task.problem.rows
    steps = task.max_iter or _STEPS
    clip_norm = min(_CLIP * rows.row_norm * task.scale, problem.lipschitz)
    plan = GradientPlan.for_budget(task.budget, sampler=FullBatch(), steps=steps, clip_norm=clip_norm)
    # The largest weights are kept, and with them the largest of d noises.
    largest = math.sqrt(2 * math.log(2 * rows.n_features)) * plan.noise_std / rows.n
    curvature = problem.objective.start_curvature * task.sparse_norm**2 + problem.regulariser.smoothness
    rule = AlignedStep(
        first=_FIRST / curvature,
        longest=longest_step(largest, steps, task.sparse_norm, task.worth),
        growth=_GROWTH,
        cut=_CUT,
    )
    return hard_threshold(problem, task.run(plan), n_nonzero=task.n_nonzero, step_size=rule)
