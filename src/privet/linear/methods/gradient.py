"""Method ``gradient``: gradient descent with noise in every step.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math
from collections.abc import Callable
from typing import Any

from privet.denoise import LaplacianSmoothing, beta
from privet.linear.methods._base import Task, method
from privet.linear.methods._expectation import excess_of_descent, is_pulled
from privet.plans import CentredPlan, FullBatch, GradientPlan
from privet.privacy import Budget, gdp_mu
from privet.solvers import AlignedStep, Problem, Release, centred_gradient_descent, noisy_gradient_descent

CENTRE_SHARE = 0.05  # of the squared Gaussian-DP parameter, for the noisy mean of the rows
_AVERAGED, _AVERAGED_IF_PULLED = 0.15, 0.3  # the share of the iterates, at the end, whose average is returned
TOLERATED_SCORE_NOISE = 1.5  # of the scale of scores, for a row of full norm
_STEPS, _MOST_STEPS = 50, 400
_FINE = 1000.0  # precision from which more steps pay off
GROWTH = 2.0  # of steps while consecutive gradients agree
_CLIPS = tuple(share / 20 for share in range(4, 21))  # from 0.2 to 1, of the bound on gradients
_LEAST_CLIP, _LEAST_CLIP_OF_BATCHES = 0.2, 0.4


@method(
    "gradient",
    summary="the gradient in every step, on rows centred at a noisy mean",
    uses=("clip_norm", "smoothing", "noise_multiplier", "tpr"),
    # auto compares expectations whose constants were fitted to descents with these clips.
    excess=lambda task: excess_of_descent(task, _clip_share(task, _LEAST_CLIP_OF_BATCHES)),
)
def train(task: Task) -> Release:
    """Train with noise in every step. Rows are centred if an intercept absorbs the centre at little cost."""
    problem, rows = task.problem, task.problem.rows
    reached = precision(task.share, rows.n, problem.start().size)
    steps = task.max_iter or gradient_steps(reached)
    clip_norm = record_clip(task, _LEAST_CLIP)
    fields: dict[str, Any] = {"steps": steps, "clip_norm": clip_norm, "tasks": task.tasks}
    plan: CentredPlan | GradientPlan
    smoothness = centred_smoothness(problem)
    if smoothness is not None:
        plan = CentredPlan.for_budget(task.noise_or_budget, row_norm=rows.weight_in_total, share=CENTRE_SHARE, **fields)
        solver: Callable[..., Release] = centred_gradient_descent
        noise_std = plan.gradients.noise_std
    else:
        plan = GradientPlan.for_budget(task.noise_or_budget, sampler=FullBatch(), **fields)
        solver, noise_std = noisy_gradient_descent, plan.noise_std
    # Smoothing leaves this share of the noise, on average over the directions of the features.
    remaining = math.sqrt(beta(rows.n_features, task.smoothing)) if task.smoothing else 1.0
    longest = longest_step(remaining * noise_std / rows.n, steps, rows.row_norm, task.worth)
    step_size = AlignedStep(first=1.8 / (smoothness or problem.smoothness), longest=longest, growth=GROWTH)
    denoiser = LaplacianSmoothing(task.smoothing) if task.smoothing else None
    return task.solve(solver, plan, step_size=step_size, averaged=averaged_share(task), denoiser=denoiser)


def centred_smoothness(problem: Problem) -> float | None:
    """Return the smoothness of the objective on centred rows, or None if centring would make the objective steeper.

    The penalty is on the weights of the original rows. Seen from centred rows, it is steeper in the direction of the
    centre, because the weight of the intercept absorbs the centre.
    """
    rows, of_loss = problem.rows, problem.smoothness - problem.regulariser.smoothness
    if not rows.intercept:
        return None
    of_penalty = problem.regulariser.smoothness * (1 + rows.row_norm / rows.intercept) ** 2
    return of_loss + of_penalty if of_penalty <= of_loss else None


def precision(budget: Budget, n: int, n_weights: int) -> float:
    """Return the ratio of the sum of n gradients to the norm of the noise that one release of it would need."""
    return n * gdp_mu(budget) / math.sqrt(n_weights)


def gradient_steps(precision: float) -> int:
    """Return the number of noisy steps. More than 50 are taken only if the noise hardly matters."""
    return int(min(_STEPS * max(1.0, math.sqrt(precision / _FINE)), _MOST_STEPS))


def record_clip(task: Task, least: float = _LEAST_CLIP_OF_BATCHES) -> float:
    """Return the bound to which each record's gradient is clipped, at most the bound that the loss has.

    Long gradients are rare, and noise grows with the clip, but a clip also moves the minimum. The share of the bound
    is the one of least expected excess, and at least ``least``, unless the user asked for a clip. Steps along single
    records or small batches are limited by other rules, which were found with larger clips.
    """
    rows, lipschitz, clip_norm = task.problem.rows, task.problem.lipschitz, task.clip_norm
    if clip_norm is None:
        share = _clip_share(task, least)
        clip_norm = share * rows.row_norm * task.residual_scale if share < 1 else math.inf
    bound = min(clip_norm, lipschitz)
    # The gradient of a squared loss is unbounded. It is clipped where the residual exceeds the scale.
    return bound if math.isfinite(bound) else rows.norm_bound * task.scale


def _clip_share(task: Task, least: float) -> float:
    return min((share for share in _CLIPS if share >= least), key=lambda share: excess_of_descent(task, share))


def averaged_share(task: Task) -> float:
    """Return the share of the iterates, at the end, whose average is returned.

    A strong penalty pulls the iterates to the minimum, and noise scatters them around it, so the average of many is
    better than each of them. Otherwise the descent is still under way at the end, and the last iterates are the best.
    """
    return _AVERAGED_IF_PULLED if is_pulled(task, _clip_share(task, _LEAST_CLIP)) else _AVERAGED


def longest_step(noise_std: float, steps: int, row_norm: float, scale: float) -> float:
    """Return the step size at which the noise of all steps together reaches a tolerated size in the scores.

    Each of ``steps`` noises has standard deviation ``noise_std`` per coordinate, and is multiplied by the step size and
    by the norm of a row.
    """
    noise = noise_std * math.sqrt(steps) * row_norm
    return TOLERATED_SCORE_NOISE * scale / noise if noise else math.inf
