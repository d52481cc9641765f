"""Noisy gradient descent: DP-GD and DP-SGD, and with smoothing DP-GD-LS and DP-LSSGD.

Algorithm 1 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in Privacy-Preserving ERM",
with the accountant's noise in the place of its Theorem 2.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import positive
from privet.denoise import Denoiser
from privet.plans import GradientPlan
from privet.privacy.guarantee import enforced
from privet.privacy.noise import NoiseSource
from privet.solvers.problem import Problem
from privet.solvers.release import Progress, Release


def noisy_gradient_descent(
    problem: Problem,
    plan: GradientPlan,
    *,
    step_size: float,
    delta: float,
    source: NoiseSource,
    denoiser: Denoiser | None = None,
    progress: Progress | None = None,
) -> Release:
    """Descend along noisy sums of bounded gradients.

    Parameters
    ----------
    problem : Problem
        What to minimise.
    plan : GradientPlan
        Batches, clip, noise and number of steps.
    step_size : float
        Of the descent.
    delta : float
        At which the guarantee is stated.
    source : NoiseSource
        Of batches and noise.
    denoiser : Denoiser or None
        Applied to each noisy gradient, for instance :class:`~privet.denoise.LaplacianSmoothing`, to the features of
        one class at a time.
    progress : callable or None
        Called with steps done and planned.

    Formal guarantees
    -----------------
    The plan's: each step sees the data only through one noisy sum whose summands have norm at most ``plan.clip_norm``
    (clipped, or bounded by the rows). The regulariser, the denoiser and the step are post-processing, so all iterates
    are covered. The sum is divided by a public constant (:meth:`GradientPlan.divisor`).
    """
    positive("step_size", step_size)
    n = problem.rows.n
    divisor = plan.divisor(n)
    bound = enforced(f"each record's gradient has l2 norm at most {plan.clip_norm:.6g}, by bounded rows or by clipping")
    guarantee = plan.guarantee(delta, bound=bound, released="every noisy gradient, all iterates and the final weights")
    if not math.isfinite(guarantee.epsilon):
        raise ValueError(f"the plan has no finite epsilon at delta = {delta:g}: set delta > 0")
    weights = problem.start()
    for done, step in enumerate(plan.run(n, source), start=1):
        rows, targets = problem.rows.take(step.batch), problem.targets[step.batch]
        total = problem.objective.gradient_sum(weights, rows, targets, plan.clip_norm)
        gradient = step.noisy(total) / divisor + problem.regulariser.gradient(weights)
        if denoiser is not None:
            gradient = _denoised(gradient, problem.rows.n_features, denoiser, plan.noise_std / divisor)
        weights = weights - step_size * gradient
        if progress is not None:
            progress(done, plan.steps)
    return Release(weights, guarantee.assuming(source.assumption()), {"steps": plan.steps, "step_size": step_size})


def _denoised(gradient: NDArray[Any], n_features: int, denoiser: Denoiser, noise_std: float) -> NDArray[Any]:
    """Denoise the features' part of each class by itself; an intercept has no neighbours and is left as it is."""
    result = gradient.copy()
    features = result.reshape(result.shape[0], -1)[:n_features]
    features[:] = np.column_stack(denoiser([column.copy() for column in features.T], noise_std))
    return result
