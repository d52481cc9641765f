"""The Gaussian mechanism, exactly, for every epsilon > 0.

The privacy profile of one Gaussian release with ``mu = sensitivity / sigma`` (Balle and Wang, "Improving the Gaussian
Mechanism for Differential Privacy: Analytical Calibration and Optimal Denoising", Theorem 5; it is the (epsilon, delta)
form of mu-Gaussian differential privacy, Dong, Roth and Su, "Gaussian Differential Privacy", Corollary 2.13) is

    delta(epsilon; mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).                            (1)

T adaptive releases with ratios mu_1..mu_T are equivalent to one release with mu = sqrt(sum mu_t^2), so (1) is all that
the accounting of full-batch training needs.

All calibrations round towards more noise: the root is found to about 1e-12 and then moved by a margin that exceeds the
rounding error of (1).
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr

from privet.checks import delta_value, nonnegative, positive
from privet.privacy.budget import AttackRate, Budget, BudgetLike, as_budget, stated_delta

_ROOT_TOLERANCE = 1e-13
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_FEW = 200  # up to this number, values are computed one by one
# Beyond these the exact profile is out of reach of floating point, and the zCDP bound is as good.
_HUGE_EPSILON, _HUGE_MU = 1e8, 2e4  # mu <= sqrt(2 epsilon): the exact side reaches further


def gaussian_sigma(sensitivity: float, budget: Budget) -> float:
    """Return the smallest standard deviation that gives a release of this l2 sensitivity the budget.

    Parameters
    ----------
    sensitivity : float
        Largest l2 distance between the values on two neighbouring datasets.
    budget : Budget
        The target. Delta must be positive, because Gaussian noise gives no pure epsilon guarantee.

    Formal guarantees
    -----------------
    The release ``value + N(0, sigma^2 I)`` is (epsilon, delta)-DP under the adjacency of ``sensitivity``. The returned
    value is never below the root of (1) and exceeds it by less than 1e-6 relative.
    """
    return positive("sensitivity", sensitivity) / gdp_mu(budget)


def gaussian_epsilon(sensitivity: float, sigma: float, delta: float) -> float:
    """Return the epsilon of one Gaussian release, exact up to rounding errors, and rounded up."""
    return gdp_epsilon(positive("sensitivity", sensitivity) / positive("sigma", sigma), delta)


@lru_cache(maxsize=1024)  # Defaults, plans and calibration ask for the mu of the same budget.
def gdp_mu(budget: Budget) -> float:
    """Return mu*(epsilon, delta): the largest mu for which mu-GDP implies the budget."""
    if budget.is_pure:
        raise ValueError(
            "Gaussian noise gives no pure epsilon guarantee: set delta > 0, or use a method with K-norm noise"
        )
    log_target = math.log(budget.delta)
    if budget.epsilon > _HUGE_EPSILON:  # by zCDP: epsilon = rho + 2 sqrt(rho ln(1/delta)), rho = mu^2/2
        return math.sqrt(2) * (math.sqrt(budget.epsilon - log_target) - math.sqrt(-log_target)) * (1 - 1e-9)
    mu = _increasing_root(lambda log_mu: _log_gdp_delta(math.exp(log_mu), budget.epsilon) - log_target)
    return mu * (1 - 1e-9)


def shared_budget(budget: Budget, share: float) -> Budget:
    """Return a share of a budget: of its squared mu, or of its epsilon if it is pure. Gaussian shares compose to it."""
    if share == 1:
        return budget
    if budget.is_pure:
        return Budget(budget.epsilon * share)
    return Budget(gdp_epsilon(gdp_mu(budget) * math.sqrt(share), budget.delta), budget.delta)


def as_exact_budget(value: BudgetLike) -> Budget:
    """Return the budget for releases that are exactly Gaussian or, with delta = 0, pure.

    For these, an attack rate has an exact translation. For all others it has none: :func:`as_budget` refuses it.
    """
    return rate_budget(value) if isinstance(value, AttackRate) else as_budget(value)


def rate_budget(rate: AttackRate) -> Budget:
    """Return the budget that Gaussian releases meet just if they meet the rate; a pure budget if its delta is 0."""
    delta = stated_delta(None, rate.delta)
    if delta == 0:
        return Budget(rate.pure_epsilon)
    epsilon = gdp_epsilon(rate.mu, delta)
    if epsilon == 0:
        raise ValueError(
            f"{rate} leaves less room than delta = {delta:g} alone, so that epsilon would be 0. Choose a larger "
            "true-positive rate, or a smaller delta."
        )
    return Budget(epsilon, delta)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP implies (epsilon, delta)-DP; infinity if ``delta`` is 0."""
    mu, delta = nonnegative("mu", mu), delta_value(delta)
    if mu == 0 or (delta > 0 and math.exp(_log_gdp_delta(mu, 0.0)) <= delta):
        return 0.0
    if delta == 0:
        return math.inf
    log_target = math.log(delta)
    if mu > _HUGE_MU:
        return (mu**2 / 2 + mu * math.sqrt(-2 * log_target)) * (1 + 1e-12) if mu < 1e150 else math.inf
    epsilon = _increasing_root(lambda log_epsilon: log_target - _log_gdp_delta(mu, math.exp(log_epsilon)))
    return epsilon * (1 + 1e-10) + 1e-300


def gdp_epsilons(mus: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """Return :func:`gdp_epsilon` of many mus at once, each to a relative 1e-9 (or 1e-12) and rounded up.

    Exact values on a grid of mus bracket the others, because epsilon grows with mu. The brackets are then halved, all
    at once, and their upper ends are returned.
    """
    values, places = np.unique(mus, return_inverse=True)
    if values.size <= _FEW:
        return np.array([gdp_epsilon(value, delta) for value in values])[places]
    grid = np.append(values[:: values.size // _FEW], values[-1])
    exact = np.array([gdp_epsilon(value, delta) for value in grid])
    above = np.searchsorted(grid, values)
    low, high = exact[np.maximum(above - 1, 0)], exact[above]
    inside = np.isfinite(high) & (values < grid[above]) & (values < _HUGE_MU)
    mu, low, high, log_target = values[inside], low[inside], high[inside], math.log(delta or 1.0)
    while np.any(high - low > 1e-9 * high + 1e-12):  # the absolute term ends the loop if epsilon is 0
        middle = (low + high) / 2
        is_enough = log_gdp_deltas(mu, middle) <= log_target - 1e-11 - 1e-15 * mu**2
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    epsilons = exact[above]
    epsilons[inside] = high
    huge = values >= _HUGE_MU
    epsilons[huge] = [gdp_epsilon(value, delta) for value in values[huge]]
    return epsilons[places]


def averaged_epsilon(mus: NDArray[np.float64], chances: NDArray[np.float64], delta: float) -> float:
    """Return the least epsilon at which the average of Gaussian profiles is at most ``delta``."""
    mus, chances = mus[mus > 0], chances[mus > 0]
    if mus.size == 0 or delta == 0:
        return math.inf if mus.size else 0.0

    def excess(epsilon: float) -> float:
        return float(chances @ np.exp(log_gdp_deltas(mus, np.full(mus.shape, epsilon)))) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, gdp_epsilon(float(mus.max()), delta), xtol=1e-12)) * (1 + 1e-9) + 1e-11


def averaged_deltas(
    mus: NDArray[np.float64], chances: NDArray[np.float64], epsilons: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the average of Gaussian profiles at each epsilon."""
    mus, chances = mus[mus > 0], chances[mus > 0]
    mu, epsilon = np.broadcast_arrays(mus, epsilons[:, None])
    return np.asarray(np.exp(log_gdp_deltas(mu.ravel(), epsilon.ravel())).reshape(mu.shape) @ chances)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return delta(epsilon; mu) of equation (1), for any epsilon >= 0."""
    mu, epsilon = nonnegative("mu", mu), nonnegative("epsilon", epsilon)
    return math.exp(_log_gdp_delta(mu, epsilon)) if mu > 0 else 0.0


def gdp_to_zcdp(mu: float) -> float:
    """Return the rho of zero-concentrated DP that mu-GDP implies: mu^2/2, attained by the Gaussian mechanism."""
    return nonnegative("mu", mu) ** 2 / 2


def pure_to_zcdp(epsilon: float) -> float:
    """Return the rho that pure epsilon-DP implies: epsilon^2/2 (Bun and Steinke 2016, Proposition 1.4)."""
    return nonnegative("epsilon", epsilon) ** 2 / 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon such that rho-zCDP implies (epsilon, delta)-DP.

    The conversion of Canonne, Kamath and Steinke ("The Discrete Gaussian for Differential Privacy", Corollary 13),
    minimised over the Renyi order. Any order gives a valid epsilon, so an inexact minimum is still safe.
    """
    rho, delta = nonnegative("rho", rho), delta_value(delta)
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf

    def epsilon_of(log_order_minus_one: float) -> float:
        order_minus_one = math.exp(log_order_minus_one)
        order = 1 + order_minus_one
        return order * rho + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / order_minus_one

    # sqrt(ln(1/delta)/rho) minimises the plain conversion; the refined minimum is nearby.
    guess = 0.5 * (math.log(max(-math.log(delta), 1e-3)) - math.log(rho))
    found = minimize_scalar(epsilon_of, bounds=(guess - 6, guess + 6), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(found.fun))


def zcdp_rho(budget: Budget) -> float:
    """Return the largest rho for which :func:`zcdp_epsilon` certifies the budget, rounded down."""
    if budget.is_pure:
        raise ValueError("zCDP gives no pure epsilon guarantee: set delta > 0")
    return _increasing_root(lambda log_rho: zcdp_epsilon(math.exp(log_rho), budget.delta) - budget.epsilon) * (1 - 1e-9)


def _log_gdp_delta(mu: float, epsilon: float) -> float:
    """Return the logarithm of (1), stable in both tails."""
    upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    if upper > 1:
        # Both terms are far from underflow; write (1) as Phi(upper) * (1 - ratio).
        log_upper = float(log_ndtr(upper))
        return log_upper + math.log(-math.expm1(epsilon + float(log_ndtr(lower)) - log_upper))
    # e^epsilon phi(lower) = phi(upper), so with the scaled function erfcx both terms share one exponential factor.
    x, width = -upper / math.sqrt(2), mu / math.sqrt(2)
    if width > 0.1:
        drop = float(erfcx(x) - erfcx(x + width))
    else:  # The difference is the integral of -erfcx'(t) = 2/sqrt(pi) - 2 t erfcx(t) > 0, which does not cancel.
        t = x + width * (1 + _NODES) / 2
        drop = float(_WEIGHTS @ (2 / math.sqrt(math.pi) - 2 * t * erfcx(t))) * width / 2
    return -upper * upper / 2 + math.log(max(drop, 1e-300) / 2)


def log_gdp_deltas(mu: NDArray[np.float64], epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithms of (1) for arrays of one shape; mus above 0."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # where one form fails, the other is used
        upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        log_upper = log_ndtr(upper)
        large = log_upper + np.log(-np.expm1(np.minimum(epsilon + log_ndtr(lower) - log_upper, 0.0)))
        x, width = np.maximum(-upper / math.sqrt(2), -1.0), mu / math.sqrt(2)
        drop = erfcx(x) - erfcx(x + width)
        narrow = np.flatnonzero((width <= 0.1) & (upper <= 1))
        t = x[narrow, None] + width[narrow, None] * (1 + _NODES) / 2
        drop[narrow] = (2 / math.sqrt(math.pi) - 2 * t * erfcx(t)) @ _WEIGHTS * width[narrow] / 2
        return np.asarray(np.where(upper > 1, large, -upper * upper / 2 + np.log(np.maximum(drop, 1e-300) / 2)))


def _increasing_root(function: Callable[[float], float]) -> float:
    """Return the x > 0 at which an increasing function of log(x) is zero."""
    low = high = 0.0
    while function(low) > 0:
        low -= 2.0
        if low < -690:
            return 0.0
    while function(high) < 0:
        high += 2.0
    return math.exp(float(brentq(function, low, high, xtol=_ROOT_TOLERANCE, rtol=1e-14)))
