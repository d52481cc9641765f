"""Sparse models by gradient steps and hard thresholds: DP-IGHT, and the same with features chosen by peeling.

Algorithm 1 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), with noise 2
G sqrt(T) / (n mu) in place of its Theorem 2.5.2, which misses a factor sqrt(2), and with gradients that are clipped to
G instead of assumed to be bounded. It adds noise to all d coordinates of a gradient. Peeling (Dwork, Su and Zhang,
"Differentially Private False Discovery Rate Control"; Cai, Wang and Zhang, "The Cost of Privacy") adds noise only to
the s coordinates that are kept, and to their choice.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.objectives.summation import total_of
from privet.plans import AdaptivePlan, GradientPlan
from privet.plans.adaptive import Purse
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import (
    ALL_ITERATES,
    Problem,
    Release,
    Run,
    StepSize,
    as_step_size,
    gradients_bounded_by,
)
from privet.solvers.base.sparsity import (
    check_support,
    checked_entry_bound,
    clipped_total,
    kept,
    rounding_of,
    thresholded,
)
from privet.solvers.noisy_gradient import check_run

SHARES = (0.55, 0.40, 0.05)
"""Shares of a round's squared price: for the choice of features, for their gradient, and for the step size."""


def hard_threshold(
    problem: Problem,
    run: Run[GradientPlan],
    *,
    n_nonzero: int,
    step_size: float | StepSize,
    keep_iterates: bool = False,
) -> Release:
    """Descend along noisy gradients, and keep the largest weights after each step: DP-IGHT.

    Parameters
    ----------
    problem : Problem
        The objective, with one score per record.
    run : Run of a GradientPlan
        The plan determines batches, clip, noise and number of steps.
    n_nonzero : int
        How many features keep a weight, not counting an intercept.
    step_size : float or StepSize
        A constant, or a rule that uses noisy gradients only.
    keep_iterates : bool
        Whether the trace contains every iterate. The guarantee covers all of them.

    Formal guarantees
    -----------------
    The guarantee is that of the plan: each step uses the data only in one noisy sum of gradients of norm at most
    ``plan.clip_norm``. The threshold is applied after the noise, so it is post-processing. It is not a contraction, so
    amplification by iteration does not hold, and a plan with ``release="last"`` is refused. All iterates count as
    released.
    """
    rows, n, plan = problem.rows, problem.rows.n, run.plan
    check_support(problem, n_nonzero)
    check_run(n, plan, step_size=step_size)
    divisor = plan.divisor(n)
    guarantee = run.guarantee(bound=gradients_bounded_by(plan.clip_norm), released=ALL_ITERATES)
    choose = as_step_size(step_size).start(plan.noise_std / divisor)
    weights, iterates = problem.start(), []
    for step in run.steps(n):
        batch, targets = problem.batch(step.batch, plan.adjacency)
        total = problem.objective.gradient_sum(weights, batch, targets, plan.clip_norm)
        gradient = step.noisy(total) / divisor + problem.regulariser.gradient(weights)
        weights = thresholded(weights - choose(gradient) * gradient, n_nonzero, rows.n_features)
        if keep_iterates:
            iterates.append(weights)
    trace: dict[str, Any] = {"steps": plan.steps, "clip_norm": plan.clip_norm, "noise_std": plan.noise_std / divisor}
    return Release(weights, guarantee, trace | kept(iterates))


def peeled_threshold(
    problem: Problem,
    run: Run[AdaptivePlan],
    *,
    n_nonzero: int,
    entry_bound: float,
    residual_clips: Sequence[float],
    shares: tuple[float, float, float] = SHARES,
    keep_iterates: bool = False,
) -> Release:
    """Choose features privately, then measure the gradient of those alone, round by round.

    Each round has the price mu_t, the plan's total divided by the square root of the number of rounds, and makes three
    releases:

    - the n_nonzero largest of |w - eta g|, by peeling: one record moves a coordinate of the gradient's sum by at most
      its residual times ``entry_bound``, however many features there are;
    - the gradient g of these (and of the intercept), with Gaussian noise;
    - the mean of (row . g)^2, which determines the step size eta = |g|^2 / (curvature times this mean).

    Parameters
    ----------
    problem : Problem
        The objective, with one score per record.
    run : Run of an AdaptivePlan
        The budget. Progress is reported after each round.
    n_nonzero : int
        How many features keep a weight, not counting an intercept.
    entry_bound : float
        Bound on the absolute value of every entry of the rows. A larger entry raises an error.
    residual_clips : sequence of float
        One clip of residuals per round. It may decrease from round to round, as residuals do. Residuals of a logistic
        loss never exceed 1.
    shares : three floats
        Shares of a round's squared price for its three releases, at most 1 in total. Small budgets gain from a larger
        first share, because wrong features do more harm than inaccurate weights.
    keep_iterates : bool
        Whether the trace contains every iterate. The guarantee covers all of them.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, by adaptive composition. Let B be the clip of a round, a the entry bound,
    s = n_nonzero, R the norm of rows and b the value of the intercept's column. One record contributes at most B a to
    each sum from which features are chosen, and the absolute value of a sum moves no further than the sum. It
    contributes at most B sqrt(min(a^2 s, R^2) + b^2) to the gradient of the s chosen features, and at most
    (min(a |g|_1, R |g|_2) + b |g_b|)^2 to the sum of squares, where g is the direction of the step in the
    chosen features and g_b its entry for the intercept. Everything else is post-processing.
    """
    check_support(problem, n_nonzero)
    entry_bound = checked_entry_bound(problem, entry_bound)
    clips = [min(positive("a residual clip", clip), problem.objective.residual_bound) for clip in residual_clips]
    price = run.plan.mu / math.sqrt(count("the number of rounds", len(clips))) * (1 - 1e-12)
    first, second, third = (price * math.sqrt(positive("a share", share)) for share in shares)
    if sum(shares) > 1 + 1e-12:
        raise ValueError(f"the shares of a round must add up to at most 1, got {sum(shares):g}")
    bound = enforced(
        f"entries are bounded by {entry_bound:.6g} and residuals clipped to "
        f"{', '.join(f'{clip:.6g}' for clip in clips)} in turn"
    )
    released = "the features chosen, their noisy gradients, all iterates and the final weights"
    guarantee = run.guarantee(bound=bound, released=released)
    weights, step, iterates = problem.start(), math.inf, []
    with run.plan.open(run.source) as purse:
        for done, clip in enumerate(clips, start=1):
            weights, step = _round(problem, purse, weights, step, clip, entry_bound, n_nonzero, (first, second, third))
            if keep_iterates:
                iterates.append(weights)
            run.report(done, len(clips))
    trace: dict[str, Any] = {"steps": len(clips), "step_size": step, "residual_clips": clips}
    return Release(weights, guarantee, trace | kept(iterates))


def _round(
    problem: Problem,
    purse: Purse,
    weights: NDArray[Any],
    step: float,
    clip: float,
    entry_bound: float,
    n_nonzero: int,
    prices: tuple[float, float, float],
) -> tuple[NDArray[Any], float]:
    """Return the weights after one round, and its step size."""
    rows, objective = problem.rows, problem.objective
    n, d, margin = rows.n, rows.n_features, 1 + rows.rounding
    total, penalty = clipped_total(problem, weights, clip), problem.regulariser.gradient(weights)
    # n |w - eta g| / eta. In the first round eta is infinite, and all weights are zero.
    shift = n * penalty[:d] - (n / step) * weights[:d]
    one = clip * entry_bound * margin + rounding_of(shift)
    chosen = purse.noisy_top(np.abs(total[:d] + shift), one, prices[0], n_nonzero)
    support = np.append(chosen, np.arange(d, rows.dimension))
    length = math.hypot(min(entry_bound * math.sqrt(n_nonzero), rows.row_norm), rows.intercept)
    direction = np.zeros_like(weights)
    noisy = purse.noisy(total[support], clip * length * margin, prices[1])
    direction[support] = noisy / n + penalty[support]
    along = rows.scores(direction)
    reach = _reach(rows.row_norm, rows.intercept, entry_bound, direction, d) * margin
    # A square in [0, reach^2] differs from the middle of the interval by at most reach^2 / 2.
    squares = purse.noisy(np.array([total_of(along * along)]), reach**2 / 2, prices[2])
    curvature = objective.start_curvature * max(float(squares[0]) / n, _least_square(reach, n, prices[2]))
    size = float(direction @ direction) / (curvature + problem.regulariser.smoothness * float(direction @ direction))
    moved = np.zeros_like(weights)
    moved[support] = weights[support] - size * direction[support]
    return moved, size


def _reach(row_norm: float, intercept: float, entry_bound: float, direction: NDArray[Any], d: int) -> float:
    """Return a bound on |row . direction|."""
    features, rest = direction[:d], direction[d:]
    return float(
        min(entry_bound * np.abs(features).sum(), row_norm * np.linalg.norm(features)) + np.abs(intercept * rest).sum()
    )


def _least_square(reach: float, n: int, price: float) -> float:
    """Return twice the standard deviation of the noise on the mean square, below which it is not reliable."""
    return max(2 * reach**2 / (n * price), 1e-300)
