"""Method ``random_round``: stochastic descent that stops after a random number of noisy steps, RRPSGD.

Algorithm 2 of "Efficient Private ERM for Smooth Objectives" (Zhang, Zheng, Mou, Wang, 2017).

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import TOLERATED_SCORE_NOISE, record_clip
from privet.linear.methods.minibatch import random_batches
from privet.plans import GradientPlan
from privet.privacy import gdp_mu
from privet.solvers import Release, random_round

_FEWEST_STEPS, _MOST_STEPS = 50, 20_000
_NOISE = 2.0  # noise multiplier of a step: with less, sampling hardly amplifies privacy


@method(
    "random_round",
    summary="the gradient of a small random batch in every step; the number of steps is random",
    uses=("clip_norm", "batch_size", "noise_multiplier", "tpr"),
)
def train(task: Task) -> Release:
    """Take a random number of noisy steps on random batches, at most ``max_iter``.

    The paper makes up to n^2 steps on one record each. Fewer steps on larger batches need no more noise for the same
    total length of the steps, as long as the batch size times the square root of the number of steps stays the same.
    """
    problem, rows, mu = task.problem, task.problem.rows, gdp_mu(task.share)
    clip_norm = record_clip(task)
    noise_per_step = 2 * clip_norm * rows.row_norm / (problem.smoothness * rows.n * mu)
    steps = task.max_iter or random_round_steps(noise_per_step, task.worth)
    batches = random_batches(task, batch_size(rows.n, mu, steps))
    plan = GradientPlan.for_budget(
        task.noise_or_budget, sampler=batches, steps=steps, clip_norm=clip_norm, tasks=task.tasks
    )
    release = task.solve(random_round, plan, step_size=late_stop(problem.smoothness, steps))
    remark = f"at most {steps} steps on batches of {batches.size}"
    if task.tasks > 1:  # each task has stopped after another number of steps
        return replace(release, trace={**release.trace, "remark": remark})
    rounds = release.trace["rounds"]
    return replace(release, trace={**release.trace, "steps": rounds, "remark": f"{remark}, stopped after {rounds}"})


def random_round_steps(noise_per_step: float, scale: float) -> int:
    """Return the largest number of steps, at which the noise of all steps reaches a tolerated size in the scores.

    ``noise_per_step`` is 2 * clip_norm * row_norm / (smoothness n mu), as if each step used all records.
    """
    return int(min(max(TOLERATED_SCORE_NOISE * scale / noise_per_step, _FEWEST_STEPS), _MOST_STEPS))


def batch_size(n: int, mu: float, steps: int) -> int:
    """Return the number of records per step at which the noise multiplier is about 2.

    Sampling b of n records amplifies privacy about as if T steps had mu = 2 (b/n) sqrt(T) / z, for z of at least 1.
    Larger batches would not reduce the noise on the weights, and smaller ones would waste the budget. For T = n^2 steps
    and mu of at most 1, the size is 1, as in the paper.
    """
    return min(max(math.ceil(n * mu * _NOISE / (2 * math.sqrt(steps))), 1), n)


def late_stop(smoothness: float, steps: int) -> NDArray[np.float64]:
    """Return step sizes with which the run seldom stops in its first half.

    A step of size eta is the last one with a probability proportional to 2 eta - smoothness eta^2. This is largest at
    1/smoothness, the size of the second half, and a fifth of that at 1.9/smoothness, the size of the first half.
    """
    return np.where(np.arange(steps) < steps // 2, 1.9, 1.0) / smoothness
