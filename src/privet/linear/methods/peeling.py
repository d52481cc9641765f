"""Method ``peeling``: private choice of features, then noise on the gradient of those alone.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import FIRST_CLIP, legibility
from privet.objectives import Shifted
from privet.objectives.summation import total_of
from privet.plans import AdaptivePlan
from privet.privacy import Guarantee, compose, enforced, gdp_mu
from privet.solvers import Release
from privet.solvers.hard_threshold import peeled_threshold

_CLIP_DECAY, _LAST_CLIP = 2 / 3, 0.06  # of the bound on the target
_MEAN_SHARE = 0.02  # of the squared Gaussian-DP parameter, for the mean of the targets
_RAREST = 0.02  # smallest share of a class that the start takes into account
# Pairs of a legibility and the number of rounds below it.
_NUMBER_ROUNDS = ((5.0, 1), (8.0, 2), (30.0, 4), (1000.0, 6), (math.inf, 12))
_CLASS_ROUNDS = ((15.0, 1), (40.0, 2), (100.0, 4), (1000.0, 6), (math.inf, 12))


@method(
    "peeling",
    summary="the choice of features, and the gradient of those alone, in a few rounds",
    is_sparse=True,
    auto_rank=1,
    auto_reason="noise on the choice of features and on the chosen ones is less than noise on all features",
)
def train(task: Task) -> Release:
    """Choose features privately, then measure the gradient of those alone, in a few rounds.

    With an intercept, a noisy mean of the targets is released first, and scores start there: features are chosen by
    their correlation with residuals, and if residuals have a mean, the largest features look like the best.
    """
    problem, rows, delta, mu = task.problem, task.problem.rows, task.budget.delta, gdp_mu(task.budget)
    reached = legibility(task.budget, rows.n, rows.n_features, task.n_nonzero, rows.row_norm / task.entry_bound)
    rounds = task.max_iter or peeling_rounds(reached, task.has_bounded_loss)
    bound = problem.objective.residual_bound
    options: dict[str, Any] = {
        "n_nonzero": task.n_nonzero,
        "entry_bound": task.entry_bound,
        "residual_clips": [bound] * rounds if task.has_bounded_loss else residual_clips(rounds, task.scale),
    }
    if not rows.intercept:
        return peeled_threshold(problem, task.run(AdaptivePlan(mu, delta=delta)), **options)
    shares = (_MEAN_SHARE, 1 - _MEAN_SHARE)
    first, rest = (AdaptivePlan(mu * math.sqrt(share) * (1 - 1e-12), delta=delta) for share in shares)
    offset, guarantee = _noisy_start(task, first)
    shifted = replace(problem, objective=Shifted(problem.objective, offset))
    release = peeled_threshold(shifted, task.run(rest), **options)
    weights = release.weights.copy()
    weights[-1] += offset / rows.intercept
    return replace(release, weights=weights, guarantee=compose([guarantee, release.guarantee], delta))


def _noisy_start(task: Task, plan: AdaptivePlan) -> tuple[float, Guarantee]:
    """Return the score of the noisy mean of the targets, which are 0 and 1, or at most ``task.scale`` in size."""
    targets, n = task.problem.targets, task.problem.rows.n
    low, half = (0.0, 0.5) if task.has_bounded_loss else (-task.scale, task.scale)
    margin = 1 + task.problem.rows.rounding
    with plan.open(task.source) as purse:
        # Targets minus the middle of their interval are at most half of its width in size.
        total = purse.noisy(np.array([total_of(targets - (low + half))]), half * margin, plan.mu)
    share = min(max(float(total[0]) / (2 * half * n) + 0.5, _RAREST), 1 - _RAREST)
    offset = math.log(share / (1 - share)) if task.has_bounded_loss else low + 2 * half * share
    bound = enforced(f"targets lie in an interval of width {2 * half:g}")
    return offset, plan.guarantee(bound=bound, released="a noisy mean of the targets")


def peeling_rounds(reached: float, has_bounded_loss: bool) -> int:
    """Return the number of rounds. With more rounds, each sees the data through more noise.

    Regressions gain more from later rounds, in which residuals, and so clips and noise, are smaller.
    """
    table = _CLASS_ROUNDS if has_bounded_loss else _NUMBER_ROUNDS
    return next((rounds for limit, rounds in table if reached < limit), table[-1][1])


def residual_clips(rounds: int, scale: float) -> list[float]:
    """Return the residual clip of each round. Few targets are near their bound, and residuals fall with the rounds."""
    return [scale * max(FIRST_CLIP * _CLIP_DECAY**done, _LAST_CLIP) for done in range(rounds)]
