"""Method ``frank_wolfe``: one privately chosen feature per step, whose gradient is never measured."""

import math
from dataclasses import replace

from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import from_noisy_mean
from privet.plans import AdaptivePlan
from privet.solvers import Release
from privet.solvers.base.sparsity import thresholded
from privet.solvers.frank_wolfe import frank_wolfe

_STEPS_PER_FEATURE = 3  # a step chooses a corner that was chosen before about two times of three
_CLIP = 0.3  # of the bound on the target: noise grows with the clip, more than covariances do
_CLASS_SCORES, _NUMBER_SCORES = 2.0, 0.5  # sizes of the scores to reach, in units of the scale


@method(
    "frank_wolfe",
    summary="the choice of one feature per step, whose gradient is never measured",
    uses=("tpr",),
    is_sparse=True,
)
def train(task: Task) -> Release:
    """Move towards privately chosen corners of an l1 ball, three times as often as there are features to keep."""
    return from_noisy_mean(task, _walk)


def _walk(task: Task) -> Release:
    rows = task.problem.rows
    scores = (_CLASS_SCORES if task.has_bounded_loss else _NUMBER_SCORES) * task.scale
    release = frank_wolfe(
        task.problem,
        task.run(AdaptivePlan.for_budget(task.budget)),
        l1_radius=math.sqrt(task.n_nonzero) * scores / max(task.entry_bound, rows.intercept),
        steps=task.max_iter or _STEPS_PER_FEATURE * task.n_nonzero,
        entry_bound=task.entry_bound,
        residual_clip=task.problem.objective.residual_bound if task.has_bounded_loss else _CLIP * task.scale,
    )
    return replace(release, weights=thresholded(release.weights, task.n_nonzero, rows.n_features))
