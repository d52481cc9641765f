"""What attacks can achieve: the largest true-positive rate at each false-positive rate.

An attack sees what was released and decides between two neighbouring datasets. It raises a false alarm with its
false-positive rate a, and it finds the other dataset with its true-positive rate. An (epsilon, delta) guarantee bounds
the latter by two lines (Wasserman and Zhou, "A Statistical Framework for Differential Privacy", Theorem 2.4):

    tpr <= e^epsilon a + delta    and    tpr <= 1 - e^-epsilon (1 - a - delta).                                 (1)

Each certified (epsilon, delta) gives two such lines, so the minimum of finitely many of them is a valid bound. The
minimum of all of them is the exact trade-off curve of the profile (Dong, Roth and Su, "Gaussian Differential Privacy",
Proposition 2.12). Reflecting the plane at the line a + tpr = 1 exchanges the two kinds of lines. The proofs are in
docs/proofs.md, section 35.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privet.privacy.analyses.accounting import merged, merged_epsilon, unsampled_epsilon, without_errors
from privet.privacy.analyses.loss_distribution import FINE, LARGEST_LOSS, Precision, fourier_floor
from privet.privacy.analyses.profile import exact_deltas
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event

Floats = NDArray[np.float64]

_MARGIN = 1 + 1e-10  # exceeds the relative rounding error of normal probabilities and quantiles
_TAIL = 1e-15  # The lines reach up to the epsilon at which delta is this small,
_SMALL = 1e-9  # or as small as a Fourier transform can tell, if that is less than this.
_LEAST_DRAWN = 1e-12  # false-positive rate up to which corners are close to each other
_LINES = 40  # per cell of the loss distribution, spaced evenly from 0, and as many geometrically


@lru_cache(maxsize=256)
def trade_off(event: Event, adjacency: Adjacency, precision: Precision = FINE) -> "TradeOff":
    """Return the trade-off curve of an event under an adjacency, which is computed when it is first used."""
    exact, error = without_errors(merged(event, adjacency))
    mu = exact[0].gaussian_mu(adjacency) if len(exact) == 1 else None
    return TradeOff(tuple(exact), adjacency, mu if exact else 0.0, error, precision)


@dataclass(frozen=True, eq=False)
class TradeOff:
    """An upper bound on the true-positive rate of every attack, in either direction between two neighbours.

    Parameters
    ----------
    parts : tuple of Event
        The merged events, without approximation errors.
    adjacency : Adjacency
    gaussian_mu : float or None
        The mu of parts that are exactly mu-GDP.
    error : float
        The total variation distance between what ran and what ``parts`` describe.
    precision : Precision
        How fine the grids of losses and epsilons are. The bound holds with any.
    """

    parts: tuple[Event, ...]
    adjacency: Adjacency
    gaussian_mu: float | None
    error: float
    precision: Precision = FINE

    def tpr(self, fpr: Floats) -> Floats:
        """Return the bound at false-positive rates in [0, 1], rounded up.

        An attack has rates that differ by at most ``error`` from its rates against what ``parts`` describe.
        """
        described = np.minimum(fpr + self.error, 1.0)
        if self.gaussian_mu is not None:
            found = ndtr(ndtri(described) + self.gaussian_mu)
        else:
            found = np.interp(described, *_corners(*self._lines))
        return np.asarray(np.minimum(found * _MARGIN + self.error, 1.0))

    @property
    def advantage(self) -> float:
        """The largest difference of the true-positive and the false-positive rate, which is delta at epsilon = 0."""
        if self.gaussian_mu is not None:
            described = 2 * float(ndtr(self.gaussian_mu / 2)) - 1
        else:
            fpr, tpr = _corners(*self._lines)
            described = float(np.max(tpr - fpr))
        return min(described * _MARGIN + 1e-15 + 2 * self.error, 1.0)

    def mu(self, slack: float) -> float:
        """Return the smallest mu, rounded up, for which ``tpr(a) <= Phi(Phi^-1(a) + mu) + slack`` at all rates a.

        The right-hand side is concave, so it is above a polygon if it is above its corners. Infinite if there is none.
        """
        if self.gaussian_mu is not None and not self.error:
            return self.gaussian_mu
        fpr, tpr = self.polygon()
        needed = tpr - slack
        counts = (needed > 0) & (fpr < 1)
        if not np.any(counts):
            return 0.0
        return max(float(np.max(ndtri(needed[counts]) - ndtri(fpr[counts]))), 0.0) * _MARGIN

    def polygon(self, points: int | None = None) -> tuple[Floats, Floats]:
        """Return false-positive and true-positive rates between which straight lines are a valid bound, too.

        There are about as many corners as ``points``, and by default all of them.
        """
        slopes, deltas = self._lines
        if points is not None and slopes.size > max(points // 2, 2):
            # Evenly by the normal quantile of the rate at which a line becomes the smallest one.
            places = ndtri(np.maximum(_crossings(slopes, deltas), _LEAST_DRAWN))
            chosen = np.searchsorted(places, np.linspace(places[0], places[-1], max(points // 2, 2) - 1))
            chosen = np.unique(np.append(chosen, slopes.size - 1))
            slopes, deltas = slopes[chosen], deltas[chosen]
        fpr, tpr = _corners(slopes, deltas)
        if not self.error:
            return fpr, tpr
        # The graph moves by the error to the left and upwards, and is cut off at the axis and at 1.
        top = np.interp(min(1 - self.error, math.nextafter(1.0, 0.0)), tpr, fpr) - self.error
        start = np.interp(self.error, fpr, tpr) + self.error
        inside = (fpr > self.error) & (fpr - self.error < top)
        left = np.concatenate(([0.0], fpr[inside] - self.error, [max(top, 0.0), 1.0]))
        up = np.concatenate(([min(start, 1.0)], np.minimum(tpr[inside] + self.error, 1.0), [1.0, 1.0]))
        return left, up

    @cached_property
    def _lines(self) -> tuple[Floats, Floats]:
        """Slopes e^epsilon, descending, and deltas of the lines (1) of the first kind that count."""
        rare = sum(part.unsampled(self.adjacency).delta for part in self.parts)
        finite = [LARGEST_LOSS]
        if rare < 1:
            # Renyi divergences reach further than a Fourier transform, but take longer.
            floor = fourier_floor(self.parts)
            tail = min(rare + (1.01 * floor if floor < _SMALL else _TAIL), 1 - 1e-16)
            finite.append(
                merged_epsilon(self.parts, self.adjacency, tail, analysis="tightest", precision=self.precision)
            )
        top = min(finite)
        # The lines of black boxes alone start where delta has reached its smallest value.
        plain = unsampled_epsilon(self.parts, self.adjacency, rare) if self.parts else 0.0
        plain = plain if plain < LARGEST_LOSS else top
        number = int(_LINES * self.precision.cells_per_deviation)
        even, geometric = np.linspace(0.0, top, number), np.geomspace(1e-6, 1.0, number) * top
        epsilons = np.unique(np.concatenate((even, geometric, [plain])))
        return _lower_hull(np.exp(epsilons), exact_deltas(self.parts, self.adjacency, epsilons, self.precision))


def checked_rates(name: str, rates: float | Floats) -> Floats:
    """Return rates as an array if all of them lie in [0, 1], else raise ValueError."""
    array = np.asarray(rates)
    if array.dtype.kind not in "iuf" or not np.all((array >= 0) & (array <= 1)):  # NaN is refused, too
        raise ValueError(f"{name} must lie in [0, 1], got {rates!r}")
    return array.astype(np.float64)


def _lower_hull(slopes: Floats, deltas: Floats) -> tuple[Floats, Floats]:
    """Return the lines that are the smallest one somewhere, by descending slope, given all by ascending slope.

    As a function of e^epsilon, the exact profile is convex. So these lines, the lower convex hull of the given points,
    are a bound that is as good as all lines.
    """
    kept: list[tuple[float, float]] = []
    starts: list[float] = []  # the false-positive rates from which each line is the smallest one
    for slope, delta in zip(slopes[::-1].tolist(), deltas[::-1].tolist(), strict=True):
        start = 0.0
        while kept:
            start = (delta - kept[-1][1]) / (kept[-1][0] - slope)
            if start > starts[-1]:
                break
            kept.pop()
            starts.pop()
            start = 0.0
        kept.append((slope, delta))
        starts.append(start)
    found = np.array(kept)
    return found[:, 0], found[:, 1]


def _crossings(slopes: Floats, deltas: Floats) -> Floats:
    """Return the false-positive rate from which each line is the smallest one."""
    return np.append(0.0, np.diff(deltas) / -np.diff(slopes))


def _corners(slopes: Floats, deltas: Floats) -> tuple[Floats, Floats]:
    """Return the corners of the smaller one of the lines and of their reflections at a + tpr = 1."""
    at_axis = (1 - deltas) / (1 + slopes)  # where a line meets its reflection
    starts = _crossings(slopes, deltas)
    before = starts < at_axis
    fpr, tpr = starts[before], (slopes * starts + deltas)[before]
    last = int(np.flatnonzero(before)[-1]) if np.any(before) else 0
    middle = at_axis[last]
    return (
        np.concatenate((fpr, [middle], 1 - tpr[::-1], [1.0])),
        np.concatenate((tpr, [1 - middle], 1 - fpr[::-1], [1.0])),
    )
