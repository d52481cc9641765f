"""Method ``hard_threshold``: DP-IGHT, noisy gradients of all features and a hard threshold after each step."""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import longest_step, precision, record_clip
from privet.plans import FullBatch, GradientPlan
from privet.solvers import AlignedStep, Release
from privet.solvers.hard_threshold import hard_threshold

_STEPS = 10


@method(
    "hard_threshold",
    summary="the gradient of all features in every step; the largest weights are kept",
    is_sparse=True,
)
def train(task: Task) -> Release:
    """Descend along noisy gradients of all features, and keep the largest weights after each step."""
    problem, rows = task.problem, task.problem.rows
    steps = task.max_iter or _STEPS
    clip_norm = record_clip(problem, task.scale, precision(task.budget, rows.n, rows.dimension), task.clip_norm)
    plan = GradientPlan.for_budget(task.budget, sampler=FullBatch(), steps=steps, clip_norm=clip_norm)
    # The largest weights are kept, and with them the largest of d noises.
    largest = math.sqrt(2 * math.log(2 * rows.n_features)) * plan.noise_std / rows.n
    rule = AlignedStep(
        first=1 / (problem.objective.curvature_bound * task.sparse_norm**2 + problem.regulariser.smoothness),
        longest=longest_step(largest, steps, task.sparse_norm, task.worth),
    )
    return hard_threshold(problem, task.run(plan), n_nonzero=task.n_nonzero, step_size=rule)
