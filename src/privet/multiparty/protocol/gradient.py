"""MPC Grad-P: gradient descent in which every step opens one noisy sum of all parties' gradients.

Section 6.3.2 of "Towards Efficient and Effective Privacy-Preserving Machine Learning" (L. Wang, 2021), Theorem 6.3.4,
with the noise that the theorem needs (its proof and its Table 6.1 give too little) and the exact law that is drawn.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import nonnegative, positive
from privet.multiparty.protocol.aggregation import Aggregator
from privet.multiparty.protocol.problem import JointProblem
from privet.plans.aggregation import AggregationPlan
from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.problem import Problem
from privet.solvers.base.release import Progress, Release

_FARTHEST = 1e100  # weights beyond which scores, and with them sums, could overflow


def gradient_plan(
    problem: JointProblem, budget: Budget, *, steps: int, clip_norm: float | None = None
) -> AggregationPlan:
    """Return the plan of ``steps`` noisy sums of gradients within ``budget``.

    A record's gradient is bounded by the loss's Lipschitz constant, or clipped to ``clip_norm`` (which a squared loss
    needs), so a replaced record moves the sum over all parties by twice that.
    """
    clip = record_clip(problem, clip_norm)
    return AggregationPlan.for_budget(
        budget, dimension=problem.n_weights, steps=steps, sensitivity=2 * clip, largest=problem.n * clip
    )


def record_clip(problem: JointProblem, clip_norm: float | None) -> float:
    """Return the bound on a record's gradient: the clip, unless the loss has a smaller one of its own."""
    bound = min(problem.lipschitz, math.inf if clip_norm is None else positive("clip_norm", clip_norm))
    if not math.isfinite(bound):
        raise ValueError(
            f"the gradients of {type(problem.objective).__name__} losses have no bound: give clip_norm, or use Huber"
        )
    return bound


async def joint_gradient_descent(
    problem: JointProblem,
    aggregator: Aggregator,
    *,
    delta: float,
    step_size: float | None = None,
    averaged: float = 0.0,
    progress: Progress | None = None,
) -> Release:
    """Descend along noisy sums of the gradients of all parties' records.

    Parameters
    ----------
    problem : JointProblem
        What is public of the problem.
    aggregator : Aggregator
        With the plan of :func:`gradient_plan`: real parties, or simulated ones.
    delta : float
        At which the guarantee is stated.
    step_size : float or None
        None is 1/smoothness, as in the theorem.
    averaged : float
        Share of the last iterates whose average is returned; 0 returns the last iterate.
    progress : callable or None
        Called with steps done and planned.

    Formal guarantees
    -----------------
    The plan's. Parties see every iterate, so privacy is that of all noisy sums together, by composition. Steps,
    regulariser and average are post-processing of what was opened, computed entry by entry, so that all parties arrive
    at the very same numbers.
    """
    plan = aggregator.plan
    size = 1 / problem.smoothness if step_size is None else positive("step_size", step_size)
    if nonnegative("averaged", averaged) > 1:
        raise ValueError(f"averaged is a share of the steps, from 0 to 1, got {averaged:g}")
    n_tail = max(1, math.ceil(averaged * plan.steps))
    clip = plan.sensitivity / 2
    if plan.dimension != problem.n_weights or plan.largest < problem.n * clip:
        raise ValueError("the plan was made for other parties or columns: make it from the problem, by gradient_plan")
    weights = problem.start()
    tail = np.zeros_like(weights)
    for done in range(1, plan.steps + 1):
        noisy = await aggregator.noisy_sum(_gradient_sum(weights, clip))
        gradient = noisy.reshape(weights.shape) / problem.n + problem.regulariser.gradient(weights)
        weights = weights - size * gradient
        if np.abs(weights).max() > _FARTHEST:  # of what everybody sees: a failure that depended on rows would tell
            raise ValueError(f"the descent runs away: take a step_size shorter than {size:.3g}")
        if done > plan.steps - n_tail:
            tail += weights
        if progress is not None:
            progress(done, plan.steps)
    bound = enforced(f"each record's gradient has l2 norm at most {clip:.6g}, by bounded rows or by clipping")
    guarantee = plan.guarantee(delta, bound=bound, released="every noisy gradient, all iterates and the final weights")
    trace = {"steps": plan.steps, "step_size": size, "clip_norm": clip, "noise_std": plan.noise_std / problem.n}
    return Release(tail / n_tail, guarantee.assuming(*aggregator.conditions()), trace)


def _gradient_sum(weights: NDArray[Any], clip: float) -> Any:
    def summand(party: Problem) -> NDArray[Any]:
        return party.objective.gradient_sum(weights, party.rows, party.targets, clip).ravel()

    return summand
