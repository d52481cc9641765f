"""From a budget to the least noise that is certified to keep within it. Calibration never overshoots."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from privet.privacy.accounting import bound_of, merged
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import LEAST_NOISE, MOST_NOISE, Event
from privet.privacy.gaussian import gdp_mu
from privet.privacy.loss_distribution import COARSE, FINE, MIDDLE, Precision
from privet.privacy.unsampled import is_gaussian


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
    bound = bound_of(analysis)
    one, two = (merged(family(z), adjacency) for z in (1.0, 2.0))
    if analysis in {"tightest", "unsampled"} and is_gaussian(one) and is_gaussian(two):
        mu = one[0].mu
        if mu > 0 and two[0].mu == mu / 2:
            return mu / gdp_mu(budget)

    def certified(precision: Precision) -> Callable[[float], float]:
        return lambda z: bound(merged(family(z), adjacency), adjacency, budget.delta, precision)

    guess = _Guess(1.0, slope=-1.0)
    for precision, window in ((COARSE, (0.80, 1.20)), (MIDDLE, (0.90, 1.10)), (FINE, (0.992, 1.0))):
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
