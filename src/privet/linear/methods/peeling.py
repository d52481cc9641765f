"""Method ``peeling``: private choice of features, then noise on the gradient of those alone.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import FIRST_CLIP, from_noisy_mean, legibility
from privet.plans import AdaptivePlan
from privet.solvers import Release
from privet.solvers.hard_threshold import peeled_threshold

_CLIP_DECAY, _LAST_CLIP = 2 / 3, 0.06  # of the bound on the target
# Pairs of a legibility and the number of rounds below it.
_NUMBER_ROUNDS = ((5.0, 1), (8.0, 2), (30.0, 4), (1000.0, 6), (math.inf, 12))
_CLASS_ROUNDS = ((15.0, 1), (40.0, 2), (100.0, 4), (1000.0, 6), (math.inf, 12))


@method(
    "peeling",
    summary="the choice of features, and the gradient of those alone, in a few rounds",
    uses=("tpr",),
    is_sparse=True,
    excess=lambda task: 0.0,  # of the sparse methods, auto takes this one
)
def train(task: Task) -> Release:
    """Choose features privately, then measure the gradient of those alone, in a few rounds."""
    return from_noisy_mean(task, _peel)


def _peel(task: Task) -> Release:
    problem, rows = task.problem, task.problem.rows
    reached = legibility(task.budget, rows.n, rows.n_features, task.n_nonzero, rows.row_norm / task.entry_bound)
    rounds = task.max_iter or peeling_rounds(reached, task.has_bounded_loss)
    bound = problem.objective.residual_bound
    return peeled_threshold(
        problem,
        task.run(AdaptivePlan.for_budget(task.budget)),
        n_nonzero=task.n_nonzero,
        entry_bound=task.entry_bound,
        residual_clips=[bound] * rounds if task.has_bounded_loss else residual_clips(rounds, task.scale),
    )


def peeling_rounds(reached: float, has_bounded_loss: bool) -> int:
    """Return the number of rounds. With more rounds, each sees the data through more noise.

    Regressions gain more from later rounds, in which residuals, and so clips and noise, are smaller.
    """
    table = _CLASS_ROUNDS if has_bounded_loss else _NUMBER_ROUNDS
    return next((rounds for limit, rounds in table if reached < limit), table[-1][1])


def residual_clips(rounds: int, scale: float) -> list[float]:
    """Return the residual clip of each round. Few targets are near their bound, and residuals fall with the rounds."""
    return [scale * max(FIRST_CLIP * _CLIP_DECAY**done, _LAST_CLIP) for done in range(rounds)]
