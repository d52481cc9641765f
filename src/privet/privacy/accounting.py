"""One door to dp-accounting: an event and an adjacency in, an epsilon out; and calibration that never overshoots.

Which analysis is used
----------------------
* Full batch (:class:`GaussianRelease`): the exact Gaussian profile, no accountant needed.
* Poisson batches: privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022, "Connect the Dots", whose
  discretisation is an upper bound), under add-or-remove. Below the floor where the rounding of the discrete Fourier
  transform could matter, Renyi DP instead.
* Batches of fixed size: Renyi DP at integer orders (:mod:`privet.privacy.fixed_size`), under replace-one, **per order
  the minimum with the unsampled bound**, and as a whole the minimum with the exact unsampled profile. Both minima are
  valid because divergences are jointly quasi-convex: a uniformly random batch is a mixture of pairs none of which is
  worse than the unsampled pair.

The two conventions of dp-accounting
------------------------------------
For an event under REPLACE_ONE, dp-accounting's RDP accountant reads a noise multiplier relative to the replace-one
sensitivity (2C), its PLD accountant relative to the add-or-remove one (C). Events here are always relative to C: Renyi
bounds divide by :attr:`Adjacency.factor`, and privacy loss distributions are built for the pair of laws itself,
never through REPLACE_ONE. A test holds both against the exact Gaussian profile.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import delta_value
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import (
    ApproximateRelease,
    Event,
    FixedSizeGaussian,
    GaussianRelease,
    PoissonGaussian,
    PureRelease,
    leaves,
)
from privet.privacy.fixed_size import fixed_size_rdp
from privet.privacy.gaussian import gdp_epsilon, gdp_mu

Floats = NDArray[np.float64]

# Theorem 27 is proved for integers.
ORDERS = (*range(2, 257), 320, 384, 512, 768, 1024, 1536, 2048, 4096)


def epsilon(event: Event, adjacency: Adjacency, delta: float, *, analysis: str = "tightest") -> float:
    """Return the smallest epsilon that is certified for ``event`` at ``delta``.

    Parameters
    ----------
    event : Event
        What was released.
    adjacency : Adjacency
        Which datasets count as neighbours; an event whose analysis does not hold under it is refused.
    delta : float
        In [0, 1). At 0 only pure releases have a finite epsilon.
    analysis : {"tightest", "rdp", "pld", "unsampled"}
        ``tightest`` takes the best that applies. The others are for comparison; one that does not cover an event
        raises.

    Formal guarantees
    -----------------
    The release is (returned, delta)-DP under ``adjacency``, whatever the analysis.
    """
    return _bound_of(analysis)(_merged(event, adjacency), adjacency, delta_value(delta), _FINE)


def calibrate(
    family: Callable[[float], Event], adjacency: Adjacency, budget: Budget, *, analysis: str = "tightest"
) -> float:
    """Return a noise multiplier whose epsilon lies in (0.99, 1.0] of the budget's, never above it.

    Parameters
    ----------
    family : callable
        From a noise multiplier z to the event it would make; epsilon must fall as z grows, and the mu of a Gaussian
        release must be inversely proportional to z.
    adjacency, budget
        The target. Pure budgets have no Gaussian noise and are refused.
    analysis : str
        As for :func:`epsilon`.

    Notes
    -----
    Where all releases are Gaussian the multiplier is exact. Elsewhere the search runs on a coarse accountant (a wide
    grid), then a few steps on the one that certifies; the returned multiplier has been certified by the very function
    that :func:`epsilon` calls.
    """
    if budget.is_pure:
        raise ValueError("Gaussian noise gives no pure epsilon guarantee: set delta > 0, or use a K-norm method")

    bound = _bound_of(analysis)
    reference = _merged(family(1.0), adjacency)
    if all(isinstance(part, GaussianRelease) for part in reference):
        return _unsampled_mu(reference[0], adjacency) / gdp_mu(budget)  # exact, no search

    def certified(precision: _Precision) -> Callable[[float], float]:
        return lambda z: bound(_merged(family(z), adjacency), adjacency, budget.delta, precision)

    rough = _search(certified(_COARSE), budget.epsilon, 1.0, window=(0.90, 1.05))
    return _search(certified(_FINE), budget.epsilon, rough, window=(0.992, 1.0))


def _search(
    epsilon_of: Callable[[float], float], target: float, start: float, window: tuple[float, float], limit: int = 80
) -> float:
    """Find z with epsilon_of(z)/target in (window], by secant steps in log-log kept inside a bracket."""
    aim = math.log(target * (0.4 * window[0] + 0.6 * window[1]))
    low = high = None  # logs of multipliers with too much epsilon (low) and too little (high), with log epsilon
    x = math.log(start)
    for _ in range(limit):
        y = _log(epsilon_of(math.exp(x)))
        if target * window[0] < math.exp(min(y, 700.0)) <= target * window[1]:
            return math.exp(x)
        if y > aim:
            low = (x, y)
        else:
            high = (x, y)
        x = _next_guess(low, high, aim)
        if x < math.log(_LEAST_NOISE):
            raise ValueError(
                "this budget needs (almost) no noise, since delta is at least the chance that a unit is ever sampled: "
                "such a delta permits publishing whole records. Choose delta well below 1/n"
            )
        if x > 69:
            raise ValueError(f"no noise multiplier below e^69 reaches epsilon = {target:g}")
    raise RuntimeError(f"calibration to epsilon = {target:g} did not settle; please report the plan")


_LEAST_NOISE = 1e-3

_Point = tuple[float, float]


def _next_guess(low: _Point | None, high: _Point | None, aim: float) -> float:
    if low is None:
        assert high is not None
        # Far from the root epsilon falls about as 1/z, so this is a secant step; never less than a factor 1.1.
        return high[0] - min(max(aim - high[1], 0.1), 2.0)
    if high is None:
        return low[0] + min(max(low[1] - aim, 0.1), 2.0)
    (x0, y0), (x1, y1) = low, high
    if not (math.isfinite(y0) and math.isfinite(y1)) or y0 - y1 > 3.0:
        return (x0 + x1) / 2
    x = x0 + (x1 - x0) * (y0 - aim) / (y0 - y1)
    margin = 0.05 * (x1 - x0)  # an Illinois-like guard: never cling to an end of the bracket
    return min(max(x, x0 + margin), x1 - margin)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


# --------------------------------------------------------------------------------------------- which analysis


@dataclass(frozen=True)
class _Precision:
    """How fine a grid the privacy loss distributions are rounded to."""

    cells_per_deviation: float
    most_cells: int


_FINE = _Precision(cells_per_deviation=16.0, most_cells=20_000)
_COARSE = _Precision(cells_per_deviation=2.0, most_cells=2_000)


def _merged(event: Event, adjacency: Adjacency) -> tuple[Event, ...]:
    """Return the elementary events, with all Gaussian releases merged into one, exactly."""
    parts = leaves(event)
    for part in parts:
        if adjacency not in part.adjacencies:
            names = " or ".join(sorted(part.adjacencies))
            raise ValueError(f"{type(part).__name__} is accounted for under {names} adjacency, not {adjacency}")
    gaussians = [part.mu for part in parts if isinstance(part, GaussianRelease)]
    others = tuple(part for part in parts if not isinstance(part, GaussianRelease))
    return (GaussianRelease(math.hypot(*gaussians)), *others) if gaussians else others


def _tightest(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: _Precision) -> float:
    """Return the best certified epsilon."""
    if delta == 0 or all(isinstance(part, GaussianRelease) for part in parts):
        return _unsampled(parts, adjacency, delta, precision)
    if any(isinstance(part, FixedSizeGaussian) for part in parts):
        bounds = [_renyi(parts, adjacency, delta, precision)]
        if all(isinstance(part, FixedSizeGaussian | GaussianRelease) for part in parts):
            bounds.append(_unsampled(parts, adjacency, delta, precision))
        return min(bounds)
    if delta < _fourier_floor(parts):
        return _renyi(parts, adjacency, delta, precision)
    return _loss_distribution(parts, adjacency, delta, precision)


def _fourier_floor(parts: Sequence[Event]) -> float:
    """Return the delta below which the rounding of an FFT raised to the power of the steps could be felt."""
    steps = sum(part.steps for part in parts if isinstance(part, PoissonGaussian))
    return max(1e-12, 1e-14 * steps)


def _unsampled(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: _Precision) -> float:
    """Forget the sampling: Gaussians compose exactly, pure and black-box releases add up."""
    mu_squared, pure, slack = 0.0, 0.0, 0.0
    for part in parts:
        if isinstance(part, PureRelease):
            pure += part.epsilon
        elif isinstance(part, ApproximateRelease):
            pure, slack = pure + part.epsilon, slack + part.delta
        else:
            mu_squared += _unsampled_mu(part, adjacency) ** 2
    if mu_squared == 0:
        return pure if slack <= delta else math.inf
    return pure + gdp_epsilon(math.sqrt(mu_squared), delta - slack) if delta > slack else math.inf


def _unsampled_mu(part: Event, adjacency: Adjacency) -> float:
    if isinstance(part, GaussianRelease):
        return part.mu
    if isinstance(part, PoissonGaussian | FixedSizeGaussian):
        return adjacency.factor * math.sqrt(part.steps) / part.noise_multiplier
    raise _refusal("unsampled", part)


# ------------------------------------------------------------------------------------------ Renyi divergences


def _renyi(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: _Precision) -> float:
    from dp_accounting.rdp import compute_epsilon

    slack = sum(part.delta for part in parts if isinstance(part, ApproximateRelease))
    if delta <= slack:
        return math.inf
    orders = np.asarray(ORDERS, dtype=np.float64)
    total = sum((_rdp(part, adjacency, orders) for part in parts), start=np.zeros_like(orders))
    if not np.isfinite(total).any():
        return math.inf
    return max(0.0, float(compute_epsilon(orders, total, delta - slack)[0]))


@singledispatch
def _rdp(part: Event, adjacency: Adjacency, orders: Floats) -> Floats:
    """Return the Renyi divergence bound of one event at each order."""
    raise _refusal("rdp", part)


@_rdp.register
def _(part: GaussianRelease, adjacency: Adjacency, orders: Floats) -> Floats:
    return orders * (part.mu**2 / 2)


@_rdp.register(PureRelease)
@_rdp.register(ApproximateRelease)
def _(part: PureRelease | ApproximateRelease, adjacency: Adjacency, orders: Floats) -> Floats:
    # Randomised response is the worst epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015); its divergence, exactly.
    # An (epsilon, delta) release is one up to an event of probability delta, which _renyi has taken off the target.
    log_p, log_q = -np.logaddexp(0.0, -part.epsilon), -np.logaddexp(0.0, part.epsilon)
    one = orders * log_p + (1 - orders) * log_q
    other = orders * log_q + (1 - orders) * log_p
    return np.asarray(np.logaddexp(one, other) / (orders - 1), dtype=np.float64)


@_rdp.register
def _(part: PoissonGaussian, adjacency: Adjacency, orders: Floats) -> Floats:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    # RdpAccountant reads a multiplier relative to the sensitivity of its relation, PLD always relative to C. Under
    # add-or-remove, the only adjacency of this event, the two agree.
    accountant = RdpAccountant([int(order) for order in orders], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(part.noise_multiplier / adjacency.factor)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(part.rate, gaussian), part.steps)
    return np.asarray(accountant.rdp, dtype=np.float64)


@_rdp.register
def _(part: FixedSizeGaussian, adjacency: Adjacency, orders: Floats) -> Floats:
    sigma = part.noise_multiplier / adjacency.factor
    unsampled = orders / (2 * sigma**2)
    if part.size == part.n:
        return part.steps * unsampled
    return part.steps * np.minimum(fixed_size_rdp(sigma, part.size / part.n, orders), unsampled)


# ----------------------------------------------------------------------------------- privacy loss distributions


def _loss_distribution(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: _Precision) -> float:
    interval = min(_interval(part, precision) for part in parts)
    total: Any = None
    for part in parts:
        distribution = _pld(part, interval)
        total = distribution if total is None else total.compose(distribution)
    return float(total.get_epsilon_for_delta(delta))


def _interval(part: Event, precision: _Precision) -> float:
    """Return a grid width for the privacy loss.

    Rounding the loss of one step to a grid of width h adds variance of order h^2 a step: harmless while h is a small
    part of the standard deviation of that loss. Where rare large losses dominate, that would be a needlessly fine
    grid, so the number of cells a step is limited.
    """
    if isinstance(part, PoissonGaussian):
        z, rate = part.noise_multiplier, part.rate
        deviation = min(rate * math.sqrt(math.expm1(min(1 / z**2, 600.0))), 1 / z)
        largest_loss = math.log1p(rate * math.expm1(min((1 + 20 * z) / (2 * z**2), 600.0)))
        return max(deviation / precision.cells_per_deviation, largest_loss / precision.most_cells)
    if isinstance(part, GaussianRelease):
        return part.mu / precision.cells_per_deviation / 10 if part.mu > 0 else math.inf
    if isinstance(part, PureRelease | ApproximateRelease):
        return part.epsilon / 200 if part.epsilon > 0 else math.inf
    raise _refusal("pld", part)


@singledispatch
def _pld(part: Event, interval: float) -> Any:
    """Return the privacy loss distribution of one event, rounded pessimistically."""
    raise _refusal("pld", part)


@_pld.register
def _(part: GaussianRelease, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if part.mu == 0:
        return pld.identity(value_discretization_interval=interval)
    return pld.from_gaussian_mechanism(1 / part.mu, value_discretization_interval=interval)


@_pld.register(PureRelease)
@_pld.register(ApproximateRelease)
def _(part: PureRelease | ApproximateRelease, interval: float) -> Any:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    delta = part.delta if isinstance(part, ApproximateRelease) else 0.0
    parameters = common.DifferentialPrivacyParameters(part.epsilon, delta)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=interval)


@_pld.register
def _(part: PoissonGaussian, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(
        part.noise_multiplier, value_discretization_interval=interval, sampling_prob=part.rate
    )
    if part.steps < 64:
        return one.self_compose(part.steps)
    # dp-accounting raises the size of a sparse distribution to the power of the steps, as an exact integer: a second
    # of work at a million steps. Two steps first make it dense.
    many = one.self_compose(2, tail_mass_truncation=0.0).self_compose(part.steps // 2)
    return many.compose(one) if part.steps % 2 else many


def _refusal(analysis: str, part: Event) -> ValueError:
    return ValueError(f"the analysis {analysis!r} does not cover {type(part).__name__}")


_ANALYSES = {"tightest": _tightest, "rdp": _renyi, "pld": _loss_distribution, "unsampled": _unsampled}


def _bound_of(analysis: str) -> Callable[[Sequence[Event], Adjacency, float, _Precision], float]:
    if analysis not in _ANALYSES:
        raise ValueError(f"unknown analysis {analysis!r}: use {', '.join(_ANALYSES)}")
    return _ANALYSES[analysis]
