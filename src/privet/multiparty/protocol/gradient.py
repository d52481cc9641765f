"""MPC Grad-P: gradient descent in which every step opens one noisy sum of all parties' gradients.

Section 6.3.2 of "Towards Efficient and Effective Privacy-Preserving Machine Learning" (L. Wang, 2021), Theorem 6.3.4.
The noise is what the theorem needs (its proof and its Table 6.1 give too little), and epsilon is computed from the
distribution that is actually drawn.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import nonnegative, positive
from privet.multiparty.protocol.aggregation import Aggregator, JointProblem
from privet.plans.aggregation import AggregationPlan
from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Progress, Release

_FARTHEST = 1e100  # Larger weights could make scores, and therefore sums, overflow.


def gradient_plan(
    problem: JointProblem, budget: Budget, *, steps: int, clip_norm: float | None = None, jointly: bool = True
) -> AggregationPlan:
    """Return the plan of ``steps`` noisy sums of gradients within ``budget``.

    A record's gradient is bounded by the loss's Lipschitz constant, or clipped to ``clip_norm`` (required for a squared
    loss). Replacing a record therefore changes the sum over all parties by at most twice that bound. ``jointly`` says
    whether the parties draw the noise together.
    """
    clip = record_clip(problem, clip_norm)
    return AggregationPlan.for_budget(
        budget,
        dimension=problem.n_weights,
        steps=steps,
        sensitivity=2 * clip,
        largest=problem.n * clip,
        jointly=jointly,
    )


def record_clip(problem: JointProblem, clip_norm: float | None) -> float:
    """Return the bound on a record's gradient: the smaller of ``clip_norm`` and the loss's Lipschitz constant."""
    bound = min(problem.lipschitz, math.inf if clip_norm is None else positive("clip_norm", clip_norm))
    if not math.isfinite(bound):
        raise ValueError(
            f"The gradients of the {type(problem.objective).__name__} loss have no bound. Set clip_norm, or use Huber."
        )
    return bound


async def joint_gradient_descent(
    problem: JointProblem,
    aggregator: Aggregator,
    *,
    delta: float | None = None,
    step_size: float | None = None,
    averaged: float = 0.0,
    progress: Progress | None = None,
) -> Release:
    """Descend along noisy sums of the gradients of all parties' records.

    Parameters
    ----------
    problem : JointProblem
        The public part of the problem.
    aggregator : Aggregator
        Real or simulated parties, with the plan of :func:`gradient_plan`.
    delta : float or None
        Delta of the stated guarantee. None means that of the plan's budget.
    step_size : float or None
        None means 1/smoothness, as in the theorem.
    averaged : float
        Fraction of the last iterates whose average is returned. 0 returns the last iterate.
    progress : callable or None
        Called with the number of steps done and planned.

    Formal guarantees
    -----------------
    The guarantee of the plan. Parties see every iterate, so it covers all noisy sums together, by composition. Steps,
    regulariser and average are post-processing of what was opened. They are computed entry by entry, so that all
    parties compute exactly the same numbers.
    """
    plan = aggregator.plan
    size = 1 / problem.smoothness if step_size is None else positive("step_size", step_size)
    if nonnegative("averaged", averaged) > 1:
        raise ValueError(f"averaged must be a fraction of the steps, from 0 to 1, got {averaged:g}")
    n_tail = max(1, math.ceil(averaged * plan.steps))
    clip = plan.sensitivity / 2
    if plan.dimension != problem.n_weights or plan.largest < problem.n * clip:
        raise ValueError(
            "The plan was made for other parties or columns. Make it from this problem with gradient_plan."
        )
    bound = enforced(f"each record's gradient has l2 norm at most {clip:.6g}, by bounded rows or by clipping")
    # Stated first: a plan without a delta must raise before anything is opened.
    guarantee = plan.guarantee(delta, bound=bound, released="every noisy gradient, all iterates and the final weights")
    weights = problem.start()
    tail = np.zeros_like(weights)
    for done in range(1, plan.steps + 1):
        noisy = await aggregator.noisy_sum(_gradient_sum(weights, clip))
        gradient = noisy.reshape(weights.shape) / aggregator.rows_of(problem) + problem.regulariser.gradient(weights)
        weights = weights - size * gradient
        # This depends only on opened values. An error that depended on the rows would reveal something about them.
        if np.abs(weights).max() > _FARTHEST:
            raise ValueError(f"The descent diverges. Choose a step_size below {size:.3g}.")
        if done > plan.steps - n_tail:
            tail += weights
        if progress is not None:
            progress(done, plan.steps)
    trace = {
        "steps": plan.steps,
        "step_size": size,
        "clip_norm": clip,
        "noise_std": aggregator.noise_std / aggregator.rows_of(problem),
    }
    return Release(tail / n_tail, guarantee.assuming(*aggregator.conditions()), trace)


def _gradient_sum(weights: NDArray[Any], clip: float) -> Any:
    def summand(party: Problem) -> NDArray[Any]:
        return party.objective.gradient_sum(weights, party.rows, party.targets, clip).ravel()

    return summand
