"""The privacy of the minimiser of a randomly tilted objective, and the calibration of objective perturbation.

The minimiser w of sum_i f_i(w) + n r(w) + <b, w>, with b random, determines b. So the ratio of its densities on two
neighbouring datasets, at one w, is a ratio of densities of b times a ratio of volumes. Each record's loss depends on w
through one score and is convex, with gradients of norm at most L that are beta-Lipschitz; r is m-strongly convex.

* Volumes differ by a factor of at most 1 + beta/(n m): the **volume loss** is its logarithm.
* For b with density exp(-||b||/s), the other factor is at most exp(2L/s).
* For b with density N(0, s^2 I), let mu = 2L/s. The release is (volume loss + e, delta)-DP for every e >= 0 with

      delta = 2 delta(e; mu), and delta = delta(e; mu) for losses whose gradient keeps its side,

  where delta(e; mu) is the profile of one Gaussian release, equation (1) of :mod:`privet.privacy.analyses.gaussian`. A
  loss keeps its side if no two of a record's gradients point in opposite directions, as for all losses of a margin.

Noise on the minimiser itself, Gaussian with output_mu = (how far computed minimisers may be apart beyond the exact
ones)/std, turns mu into hypot(mu, output_mu), up to a term that is far below delta in practice.

Proofs: docs/proofs.md, "Objective perturbation". They replace Theorem 1 of Kifer, Smith and Thakurta 2012 ("Private
Convex Empirical Risk Minimization and High-dimensional Regression") and, under replace-one, the add-or-remove analysis
of Redberg, Koskela and Wang 2023 ("Improving the Privacy and Practicality of Objective Perturbation for Differentially
Private Linear Learners").
"""

import math

from scipy.special import log_ndtr

from privet.checks import count, nonnegative, positive
from privet.privacy.analyses.gaussian import gdp_delta, gdp_epsilon, gdp_mu
from privet.privacy.budget import Budget

_LARGEST_EPSILON = 1e6  # beyond this there is hardly any noise left to save
OUTPUT_SHARE = 0.01  # of mu^2 (Gaussian), or of epsilon beyond the volume loss (pure), for the noise on the result
_ROUNDING = 4e-16
_SLIVER = 1e-6  # the share of delta that is set aside for the cross term of tilt and output noise


def volume_loss(smoothness: float, n: int, strong_convexity: float) -> float:
    """Return the volume loss log(1 + beta/(n m)), rounded up."""
    ratio = nonnegative("smoothness", smoothness) / (count("n", n) * positive("strong_convexity", strong_convexity))
    return math.log1p(ratio) * (1 + _ROUNDING)


def least_strong_convexity(smoothness: float, n: int, epsilon: float) -> float:
    """Return the m at which the volume loss is all of epsilon: beta/(n (e^epsilon - 1))."""
    return smoothness / (n * math.expm1(min(epsilon, 700.0)))


def objective_delta(epsilon: float, mu: float, output_mu: float, *, volume: float, is_one_sided: bool) -> float:
    """Return a delta for which the release is (epsilon, delta)-DP; ``epsilon`` must be at least the volume loss."""
    room = nonnegative("epsilon less the volume loss", epsilon - volume)
    profile = gdp_delta(math.hypot(mu, output_mu), room)
    if not is_one_sided:
        return min(1.0, 2 * profile)
    return min(1.0, 2 * profile, profile + _cross_term(room, mu, output_mu))


def objective_epsilon(delta: float, mu: float, output_mu: float, *, volume: float, is_one_sided: bool) -> float:
    """Return the smallest epsilon for which the release is known to be (epsilon, delta)-DP, rounded up."""
    total = math.hypot(mu, output_mu)
    room = gdp_epsilon(total, positive("delta", delta) / 2)
    if is_one_sided:
        # The cross term is at most exp(-(e/output_mu - output_mu/2)^2/2)/2, so from here on within its sliver.
        least = output_mu * (output_mu / 2 + math.sqrt(max(0.0, -2 * math.log(2 * _SLIVER * delta))))
        room = min(room, max(gdp_epsilon(total, delta * (1 - _SLIVER)), least))
    return (volume + room) * (1 + _ROUNDING)


def objective_mu(budget: Budget, *, volume: float, is_one_sided: bool) -> tuple[float, float]:
    """Return the largest (mu, output_mu) within the budget, output_mu^2 being :data:`OUTPUT_SHARE` of both squares."""
    if not volume < budget.epsilon:
        raise ValueError(f"the volume loss {volume:.6g} alone exceeds epsilon = {budget.epsilon:g}")
    room = (min(budget.epsilon, _LARGEST_EPSILON) - volume) * (1 - 1e-12)
    # If the cross term is too large for its share of delta (delta near 1), the two-sided noise is still valid.
    for delta in (budget.delta * (1 - 2 * _SLIVER), budget.delta / 2):
        total = gdp_mu(Budget(room, delta)) * (1 - 1e-9)
        mu, output_mu = math.sqrt(1 - OUTPUT_SHARE) * total, math.sqrt(OUTPUT_SHARE) * total
        reached = objective_epsilon(budget.delta, mu, output_mu, volume=volume, is_one_sided=is_one_sided)
        if reached <= budget.epsilon:  # never true at the first delta for two-sided losses
            return mu, output_mu
    raise RuntimeError(f"calibration to {budget} did not converge. Please report this plan as a bug.")


def _cross_term(room: float, mu: float, output_mu: float) -> float:
    """Return delta(0; mu) e^room Phi(-room/output_mu - output_mu/2)."""
    if output_mu == 0:
        return 0.0
    return gdp_delta(mu, 0.0) * math.exp(room + float(log_ndtr(-room / output_mu - output_mu / 2)))
