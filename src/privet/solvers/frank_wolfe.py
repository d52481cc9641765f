"""Frank-Wolfe on the l1 ball, its corners chosen by the exponential mechanism.

Algorithm 2 of Talwar, Thakurta and Zhang, "Nearly-Optimal Private LASSO" (2015). Residuals are clipped instead of
assumed to be bounded, and choices are accounted for by their range in Gaussian DP instead of Laplace noise with strong
composition.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.plans.adaptive import AdaptivePlan, Purse, selection_epsilon
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.sparsity import (
    check_one_score,
    checked_entry_bound,
    clipped_total,
    kept,
    rounding_of,
)


def frank_wolfe(
    problem: Problem,
    run: Run[AdaptivePlan],
    *,
    l1_radius: float,
    steps: int,
    entry_bound: float,
    residual_clip: float,
    keep_iterates: bool = False,
) -> Release:
    """Move towards privately chosen corners of the l1 ball. Each step makes at most one more weight nonzero.

    Step t = 1, 2, ... chooses a corner v, plus or minus l1_radius times a unit vector, with a small <gradient, v>, and
    moves the weights to (1 - a) w + a v with a = 2/(t + 2).

    Parameters
    ----------
    problem : Problem
        The objective, with one score per record. An intercept is one more coordinate of the ball, chosen and bounded
        like the others. Its column should not exceed ``entry_bound``, because the noise is scaled to the larger one.
    run : Run of an AdaptivePlan
        The budget.
    l1_radius : float
        Radius of the ball: bound on the sum of absolute weights.
    steps : int
        How many corners are chosen, which also bounds the number of nonzero weights.
    entry_bound : float
        Bound on the absolute value of every entry of the rows. A larger entry raises an error.
    residual_clip : float
        Residuals are clipped to this value. Those of a logistic loss never exceed 1.
    keep_iterates : bool
        Whether the trace contains every iterate. The guarantee covers all of them.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, by adaptive composition. The data is used only in the choices among 2d
    sums: the d coordinates of the gradient's sum, and their negatives. One record contributes at most its clipped
    residual times its largest entry to each of them, which is at most residual_clip * max(entry_bound, intercept) in
    absolute value. Each choice is an exponential mechanism
    (:meth:`~privet.plans.adaptive.Purse.noisy_min`) at the price plan.mu / sqrt(steps).
    """
    check_one_score(problem)
    radius, steps = positive("l1_radius", l1_radius), count("steps", steps)
    clip = min(positive("residual_clip", residual_clip), problem.objective.residual_bound)
    largest = max(checked_entry_bound(problem, entry_bound), abs(problem.rows.intercept))
    bound = enforced(f"entries are bounded by {largest:.6g} and residuals clipped to {clip:.6g}")
    released = "the corners chosen, all iterates and the final weights"
    guarantee = run.guarantee(bound=bound, released=released)
    epsilon = selection_epsilon(run.plan.mu / math.sqrt(steps) * (1 - 1e-12))
    weights, iterates = problem.start(), []
    with run.plan.open(run.source) as purse:
        for done in range(1, steps + 1):
            place, sign = _corner(problem, purse, weights, clip, largest, epsilon)
            share = 2 / (done + 2)
            weights = (1 - share) * weights
            weights[place] += sign * share * radius
            if keep_iterates:
                iterates.append(weights)
            run.report(done, steps)
    trace: dict[str, Any] = {"steps": steps, "l1_radius": radius, "residual_clip": clip, "epsilon_of_a_choice": epsilon}
    return Release(weights, guarantee, trace | kept(iterates))


def _corner(
    problem: Problem, purse: Purse, weights: NDArray[Any], clip: float, largest: float, epsilon: float
) -> tuple[int, float]:
    """Return the coordinate and the sign of the chosen corner."""
    shift = problem.rows.n * problem.regulariser.gradient(weights)
    total = clipped_total(problem, weights, clip) + shift
    bound = clip * largest * (1 + problem.rows.rounding) + rounding_of(shift)
    place = purse.noisy_min(np.concatenate([total, -total]), bound, epsilon)
    return place % total.size, 1.0 if place < total.size else -1.0
