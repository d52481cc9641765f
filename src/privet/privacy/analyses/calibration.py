"""Calibration: the least noise that keeps an event within a budget."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from privet.privacy.analyses.accounting import gaussian_mu, merged, merged_epsilon
from privet.privacy.analyses.gaussian import gdp_mu
from privet.privacy.analyses.loss_distribution import COARSE, FINE, MIDDLE, Precision
from privet.privacy.analyses.trade_off import trade_off
from privet.privacy.budget import Adjacency, AttackRate, Budget, BudgetOrNoise, NoiseMultiplier
from privet.privacy.events.base import LEAST_NOISE, MOST_NOISE, Event

_SENSIBLE_EPSILON, _SENSIBLE_MU = 100.0, 12.0
_FROM_RATE = 0.992  # the least share of a true-positive rate that calibration ends at


def calibrate(
    family: Callable[[float], Event],
    adjacency: Adjacency,
    budget: BudgetOrNoise,
    *,
    analysis: str = "tightest",
    smallest: float = 1.0,
) -> float:
    """Return a noise multiplier whose epsilon is never above the budget's, and above 0.99 of it.

    If a :class:`~privet.privacy.NoiseMultiplier` is given in place of a budget, return its multiplier. If an
    :class:`~privet.privacy.AttackRate` is given, return a noise multiplier at which no attack has a larger
    true-positive rate, and some attack may have 0.99 of it.

    The one exception: where the certified epsilon jumps between analyses, the safe side of the jump is returned.

    Parameters
    ----------
    family : callable
        Maps a noise multiplier z to the event. Epsilon must decrease as z grows.
    adjacency, budget
        The target. A pure budget raises an error, because Gaussian noise cannot meet it.
    analysis : str
        As for :func:`~privet.privacy.analyses.accounting.epsilon`. An attack rate takes ``tightest`` or ``unsampled``.
    smallest : float
        The smallest noise multiplier of the event, divided by z. It stays in the range of the accountants.

    Notes
    -----
    If the release is Gaussian with a mu proportional to 1/z, the multiplier is exact. Otherwise the search uses
    accountants of increasing precision, and the returned multiplier has been certified by the function that
    :func:`~privet.privacy.analyses.accounting.epsilon` calls.
    """
    if budget.delta == 0:
        raise ValueError("Gaussian noise gives no pure epsilon guarantee: set delta > 0, or use a K-norm method")
    if isinstance(budget, NoiseMultiplier):
        return budget.multiplier
    if smallest != 1:
        return _calibrated(lambda z: family(z / smallest), adjacency, budget, analysis) / smallest
    return _calibrated(family, adjacency, budget, analysis)


def _calibrated(
    family: Callable[[float], Event], adjacency: Adjacency, budget: Budget | AttackRate, analysis: str
) -> float:
    """Return the noise multiplier for a budget, above 0."""
    one, two = gaussian_mu(family(1.0), adjacency), gaussian_mu(family(2.0), adjacency)
    if analysis in {"tightest", "unsampled"} and one and two == one / 2:
        if isinstance(budget, AttackRate):
            multiplier, is_sensible = one / budget.mu, budget.mu <= _SENSIBLE_MU
        else:
            multiplier, is_sensible = one / gdp_mu(budget), budget.epsilon <= _SENSIBLE_EPSILON
        # A hidden iterate may need next to no noise, but a budget that needs no noise at all is an error.
        return max(multiplier, LEAST_NOISE) if is_sensible else multiplier
    goal = _goal_of_rate(budget, analysis) if isinstance(budget, AttackRate) else _goal_of_budget(budget, analysis)
    guess = _Guess(1.0, slope=-1.0)
    for precision, window in ((COARSE, (0.80, 1.20)), (MIDDLE, (0.90, 1.10)), (FINE, (goal.least, 1.0))):

        def measured(z: float, precision: Precision = precision) -> float:
            return goal.measure(family(z), adjacency, precision)

        guess = _search(measured, goal.target, guess, window, goal.name)
    return guess.noise_multiplier


@dataclass(frozen=True)
class _Goal:
    """What calibration aims at: a measure of an event, its target, and the least share of it to end at."""

    measure: Callable[[Event, Adjacency, Precision], float]
    target: float
    least: float
    name: str


def _goal_of_budget(budget: Budget, analysis: str) -> _Goal:
    """Return the goal of an epsilon."""

    def measure(event: Event, adjacency: Adjacency, precision: Precision) -> float:
        parts = merged(event, adjacency)
        return merged_epsilon(parts, adjacency, budget.delta, analysis=analysis, precision=precision)

    return _Goal(measure, budget.epsilon, 0.9905, f"epsilon = {budget.epsilon:g}")


def _goal_of_rate(rate: AttackRate, analysis: str) -> _Goal:
    """Return the goal of a true-positive rate, measured by the mu of the Gaussian release that has the same rate.

    In contrast to the rate itself, that mu falls to 0 as noise grows, about in inverse proportion.
    """
    if analysis not in {"tightest", "unsampled"}:
        raise ValueError(f"analysis={analysis!r} gives no true-positive rates. Use 'tightest', or give an epsilon.")

    def measure(event: Event, adjacency: Adjacency, precision: Precision) -> float:
        if analysis == "unsampled":
            return math.hypot(*(part.unsampled(adjacency).mu for part in merged(event, adjacency)))
        found = trade_off(event, adjacency, precision).tpr(np.array([rate.fpr]))
        return float(ndtri(found[0]) - ndtri(rate.fpr)) if found[0] < 1 else math.inf

    nearly = rate.tpr * _FROM_RATE
    least = AttackRate(rate.fpr, nearly).mu / rate.mu if nearly > rate.fpr * 1.01 else 0.0
    return _Goal(measure, rate.mu, max(least, 0.9905), str(rate))


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


def _search(
    epsilon_of: Callable[[float], float],
    target: float,
    start: _Guess,
    window: tuple[float, float],
    goal: str = "the target",
) -> _Guess:
    """Return a z with epsilon_of(z) / target in the window, by secant steps on logarithmic scales in a bracket."""
    aim = math.log(target * (0.4 * window[0] + 0.6 * window[1]))
    points: list[_Point] = []
    x, slope = math.log(start.noise_multiplier), start.slope
    for turn in range(80):
        value = epsilon_of(math.exp(x))
        points.append(_Point(x, _log(value)))
        slope = _local_slope(points, aim, slope)
        if target * window[0] < value <= target * window[1]:
            return _Guess(math.exp(x), slope)
        low = max((p.x for p in points if p.y > aim), default=-math.inf)  # too little noise
        high = min((p.x for p in points if p.y <= aim), default=math.inf)  # enough noise
        if high <= math.log(LEAST_NOISE):
            raise ValueError(
                f"{goal} needs (almost) no noise: it is enormous, or delta is at least the probability "
                "that a unit is ever sampled, which permits publishing whole records. Choose delta well below 1/n."
            )
        if low >= math.log(MOST_NOISE):
            raise ValueError(f"no noise multiplier up to {MOST_NOISE:g} reaches {goal}")
        if high - low < 1e-7:  # epsilon jumps over the window, where the tightest analysis changes
            safe = min(p.x for p in points if p.y < math.log(target) - 1e-12)
            return _Guess(math.exp(safe), slope)
        x = _next_x(_nearest(points, aim)[0], aim, slope, low, high)
        if (turn % 4 == 3 or turn > 20) and math.isfinite(low) and math.isfinite(high):
            x = (low + high) / 2  # plateaus and cliffs mislead any slope, but the bracket always shrinks
        x = min(max(x, math.log(LEAST_NOISE)), math.log(MOST_NOISE))
    raise RuntimeError(f"calibration to {goal} did not converge. Please report this plan as a bug.")


def _nearest(points: list[_Point], aim: float) -> list[_Point]:
    return sorted(points, key=lambda point: abs(point.y - aim))


def _local_slope(points: list[_Point], aim: float, slope: float) -> float:
    """Return the slope between the two points nearest to the aim if they are near each other, else ``slope``."""
    if len(points) < 2:
        return slope
    one, other = _nearest(points, aim)[:2]
    if one.x == other.x or not abs(one.y - other.y) < 3.0:
        return slope
    return min((one.y - other.y) / (one.x - other.x), -0.1)


def _next_x(best: _Point, aim: float, slope: float, low: float, high: float) -> float:
    """Return where the line through the best point meets the aim, or the middle of the bracket if that is outside."""
    step = (aim - best.y) / slope if math.isfinite(best.y) else math.copysign(2.0, best.y)
    x = best.x + math.copysign(min(max(abs(step), 0.002), 2.0), step)
    if low < x < high:
        return x
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return low + 1.0 if math.isfinite(low) else high - 1.0


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf  # log(inf) is inf
