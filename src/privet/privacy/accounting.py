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
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from privet.checks import delta_value
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import (
    LEAST_NOISE,
    MOST_NOISE,
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
    adjacency = Adjacency(adjacency)
    return _bound_of(analysis)(_merged(event, adjacency), adjacency, delta_value(delta), _FINE)


def calibrate(
    family: Callable[[float], Event], adjacency: Adjacency, budget: Budget, *, analysis: str = "tightest"
) -> float:
    """Return a noise multiplier whose epsilon lies in (0.99, 1.0] of the budget's, never above it.

    Parameters
    ----------
    family : callable
        From a noise multiplier z to the event it would make; epsilon must fall as z grows.
    adjacency, budget
        The target. Pure budgets have no Gaussian noise and are refused.
    analysis : str
        As for :func:`epsilon`.

    Notes
    -----
    Where the release is Gaussian with a mu that falls as 1/z, the multiplier is exact. Elsewhere the search runs on
    ever finer accountants, the last of which certifies; the returned multiplier has been
    certified by the very function that :func:`epsilon` calls.
    """
    if budget.is_pure:
        raise ValueError("Gaussian noise gives no pure epsilon guarantee: set delta > 0, or use a K-norm method")
    bound = _bound_of(analysis)
    one, two = (_merged(family(z), adjacency) for z in (1.0, 2.0))
    if analysis in {"tightest", "unsampled"} and _is_gaussian(one) and _is_gaussian(two):
        mu = one[0].mu
        if mu > 0 and two[0].mu == mu / 2:
            return mu / gdp_mu(budget)

    def certified(precision: _Precision) -> Callable[[float], float]:
        return lambda z: bound(_merged(family(z), adjacency), adjacency, budget.delta, precision)

    guess = _Guess(1.0, slope=-1.0)
    for precision, window in ((_COARSE, (0.80, 1.20)), (_MIDDLE, (0.90, 1.10)), (_FINE, (0.992, 1.0))):
        guess = _search(certified(precision), budget.epsilon, guess, window)
    return guess.noise_multiplier


@dataclass(frozen=True)
class _Guess:
    """A noise multiplier, and the slope of log epsilon against its logarithm nearby."""

    noise_multiplier: float
    slope: float


@dataclass(frozen=True)
class _Point:
    """Logarithms of a noise multiplier and its epsilon."""

    x: float
    y: float


def _search(epsilon_of: Callable[[float], float], target: float, start: _Guess, window: tuple[float, float]) -> _Guess:
    """Find z with epsilon_of(z)/target in (window], by secant steps in log-log kept inside a bracket."""
    aim = math.log(target * (0.4 * window[0] + 0.6 * window[1]))
    low: _Point | None = None  # too much epsilon
    high: _Point | None = None  # too little
    x, slope = math.log(start.noise_multiplier), start.slope
    for _ in range(80):
        y = _log(epsilon_of(math.exp(x)))
        if low and high and math.isfinite(low.y) and math.isfinite(high.y):
            slope = min((low.y - high.y) / (low.x - high.x), -0.1)
        if target * window[0] < math.exp(min(y, 700.0)) <= target * window[1]:
            return _Guess(math.exp(x), slope)
        low, high = (_Point(x, y), high) if y > aim else (low, _Point(x, y))
        if high is not None and high.x <= math.log(LEAST_NOISE):
            raise ValueError(
                f"epsilon = {target:g} needs (almost) no noise: it is enormous, or delta is at least the chance that a "
                "unit is ever sampled, which permits publishing whole records. Choose delta well below 1/n"
            )
        if low is not None and low.x >= math.log(MOST_NOISE):
            raise ValueError(f"no noise multiplier up to {MOST_NOISE:g} reaches epsilon = {target:g}")
        x = min(max(_next_x(low, high, aim, slope), math.log(LEAST_NOISE)), math.log(MOST_NOISE))
    raise RuntimeError(f"calibration to epsilon = {target:g} did not settle; please report the plan")


def _next_x(low: _Point | None, high: _Point | None, aim: float, slope: float) -> float:
    """Return where to look next: along the slope while one side is open, then inside the bracket."""
    if low is None or high is None:
        end = low or high
        assert end is not None
        step = min(max(abs((end.y - aim) / slope), 0.005), 2.0)
        return end.x + step if low else end.x - step
    if not (math.isfinite(low.y) and math.isfinite(high.y)) or low.y - high.y > 3.0:
        return (low.x + high.x) / 2
    x = low.x + (high.x - low.x) * (low.y - aim) / (low.y - high.y)
    margin = 0.05 * (high.x - low.x)  # never cling to an end of the bracket
    return min(max(x, low.x + margin), high.x - margin)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


# --------------------------------------------------------------------------------------------- which analysis


@dataclass(frozen=True)
class _Precision:
    """How fine a grid the privacy loss distributions are rounded to."""

    cells_per_deviation: float
    most_cells: int


_FINE = _Precision(cells_per_deviation=16.0, most_cells=30_000)
_MIDDLE = _Precision(cells_per_deviation=6.0, most_cells=8_000)
_COARSE = _Precision(cells_per_deviation=2.0, most_cells=2_000)


def _merged(event: Event, adjacency: Adjacency) -> tuple[Event, ...]:
    """Return the elementary events, with all that is Gaussian without sampling merged into one, exactly."""
    gaussians, others = [], []
    for part in leaves(event):
        if adjacency not in part.adjacencies:
            names = " or ".join(sorted(part.adjacencies))
            raise ValueError(f"{type(part).__name__} is accounted for under {names} adjacency, not {adjacency}")
        if isinstance(part, GaussianRelease) or _takes_everybody(part):
            gaussians.append(_unsampled_mu(part, adjacency))
        else:
            others.append(part)
    return (GaussianRelease(math.hypot(*gaussians)), *others) if gaussians else tuple(others)


def _takes_everybody(part: Event) -> bool:
    if isinstance(part, PoissonGaussian):
        return part.rate == 1
    return isinstance(part, FixedSizeGaussian) and part.size == part.n


def _is_gaussian(parts: Sequence[Event]) -> TypeGuard[tuple[GaussianRelease]]:
    return len(parts) == 1 and isinstance(parts[0], GaussianRelease)


def _tightest(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: _Precision) -> float:
    """Return the best of the bounds that cover the events; each of them is valid."""
    plain = _unsampled(parts, adjacency, delta, precision)
    if delta == 0 or plain == 0 or _is_gaussian(parts):
        return plain
    if delta >= _chance_of_contact(parts):
        return 0.0
    is_fixed_size = any(isinstance(part, FixedSizeGaussian) for part in parts)
    if is_fixed_size or delta < _fourier_floor(parts) or _largest_loss(parts) > _LARGEST_LOSS:
        return min(plain, _renyi(parts, adjacency, delta, precision))
    return min(plain, _loss_distribution(parts, adjacency, delta, precision))


def _chance_of_contact(parts: Sequence[Event]) -> float:
    """Return the chance that a unit is ever in a Poisson batch: without contact, neighbours are the same."""
    if not all(isinstance(part, PoissonGaussian) for part in parts):
        return 1.0
    missed = sum(part.steps * math.log1p(-part.rate) for part in parts if isinstance(part, PoissonGaussian))
    return -math.expm1(missed)


def _fourier_rounding(parts: Sequence[Event]) -> float:
    """Return how much mass the rounding of an FFT, raised to the power of the steps, may misplace.

    The coefficients err by about 2e-15 relative, so their powers by 2e-15 steps, and by Parseval the composed
    distribution by that times its own Euclidean norm, below 0.05 for the grids used here. This allows for more.
    """
    steps = sum(part.steps for part in parts if isinstance(part, PoissonGaussian))
    return 1e-14 + 1e-16 * steps


def _fourier_floor(parts: Sequence[Event]) -> float:
    """Return the delta below which that rounding would cost more than a percent of delta."""
    return 100 * _fourier_rounding(parts)


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
    """Add Renyi divergences up, and convert: Canonne, Kamath and Steinke 2020, Proposition 12, at the best order."""
    room = delta - sum(part.delta for part in parts if isinstance(part, ApproximateRelease))
    if room <= 0:
        return math.inf
    orders = np.asarray(ORDERS, dtype=np.float64)
    total = sum((_rdp(part, adjacency, orders) for part in parts), start=np.zeros_like(orders))
    converted = total + np.log1p(-1 / orders) - (math.log(room) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(converted)))


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
    accountant.compose(dp_accounting.PoissonSampledDpEvent(part.rate, gaussian))
    # Tiny divergences are differences of numbers near 1 and may come out negative: allow for their rounding.
    one_step = np.maximum(accountant.rdp, 0.0) + 1e-14 * orders / (orders - 1)
    return part.steps * np.asarray(one_step, dtype=np.float64)


@_rdp.register
def _(part: FixedSizeGaussian, adjacency: Adjacency, orders: Floats) -> Floats:
    sigma = part.noise_multiplier / adjacency.factor
    unsampled = orders / (2 * sigma**2)
    if _takes_everybody(part):
        return part.steps * unsampled
    return part.steps * np.minimum(fixed_size_rdp(sigma, part.size / part.n, orders), unsampled)


# ----------------------------------------------------------------------------------- privacy loss distributions


# dp-accounting exponentiates losses; beyond this a float overflows.
_LARGEST_LOSS = 600.0
_FINEST_GRID = 1e-9


def _loss_distribution(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: _Precision) -> float:
    """Compose privacy loss distributions on one grid, rounded up."""
    for part in parts:
        if not isinstance(part, GaussianRelease | PureRelease | ApproximateRelease | PoissonGaussian):
            raise _refusal("pld", part)
    room = delta - _fourier_rounding(parts)
    if room <= 0 or _largest_loss(parts) > _LARGEST_LOSS:
        return math.inf
    if not any(_spread(part)[0] > 0 for part in parts):  # nothing released, but for chances of publishing all
        return _unsampled(parts, adjacency, delta, precision)
    interval = _interval(parts, precision)
    total: Any = None
    for part in parts:
        distribution = _pld(part, interval)
        total = distribution if total is None else total.compose(distribution)
    return float(total.get_epsilon_for_delta(room))


def _interval(parts: Sequence[Event], precision: _Precision) -> float:
    """Return the width h of the grid for the privacy loss.

    Rounding the loss of one step, of standard deviation s, to the grid adds variance of about h min(h, s). The widest
    grid is taken on which this adds up to a small share of the total variance, so that a small release beside a large
    one does not force a fine grid on both. Pure losses are rounded up, by up to h each. Where rare large losses
    dominate, all this would be needlessly fine, so the number of cells a step is limited.
    """
    spreads = [_spread(part) for part in parts]
    variance = sum(steps * s**2 for s, steps in spreads)
    allowed = variance / precision.cells_per_deviation**2
    low, high = 0.0, math.sqrt(variance)
    for _ in range(60):
        h = (low + high) / 2
        low, high = (h, high) if sum(steps * h * min(h, s) for s, steps in spreads) <= allowed else (low, h)
    width = low
    rounded_up = [part for part in parts if isinstance(part, PureRelease | ApproximateRelease)]
    if rounded_up:
        width = min(width, 0.16 / precision.cells_per_deviation * math.sqrt(variance) / len(rounded_up))
    return max(width, _largest_loss(parts, one_step=True) / precision.most_cells, _FINEST_GRID)


def _spread(part: Event) -> tuple[float, int]:
    """Return the standard deviation of the loss of one step, about, and the number of steps."""
    if isinstance(part, PoissonGaussian):
        z = part.noise_multiplier
        return min(part.rate * math.sqrt(math.expm1(min(1 / z**2, 600.0))), 1 / z), part.steps
    if isinstance(part, GaussianRelease):
        return part.mu, 1
    if isinstance(part, PureRelease | ApproximateRelease):
        return part.epsilon, 1
    raise _refusal("pld", part)


def _largest_loss(parts: Sequence[Event], one_step: bool = False) -> float:
    """Return a loss that is hardly ever exceeded: ten standard deviations of the noise out."""
    losses = []
    for part in parts:
        if isinstance(part, PoissonGaussian):
            z = part.noise_multiplier
            exponent = (1 + 20 * z) / (2 * z**2)
            amplified = math.log1p(part.rate * math.expm1(exponent)) if exponent < 600 else exponent
            losses.append(amplified if one_step else min(amplified * part.steps, _typical_total(part)))
        elif isinstance(part, GaussianRelease):
            losses.append(part.mu**2 / 2 + 10 * part.mu)
        elif isinstance(part, PureRelease | ApproximateRelease):
            losses.append(part.epsilon)
    return max(losses, default=0.0) if one_step else sum(losses)


def _typical_total(part: PoissonGaussian) -> float:
    """Return ten standard deviations above the mean of the total loss, as of a Gaussian, and one large step."""
    s, steps = _spread(part)
    z = part.noise_multiplier
    exponent = (1 + 20 * z) / (2 * z**2)
    return steps * s**2 / 2 + 10 * s * math.sqrt(steps) + exponent


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
