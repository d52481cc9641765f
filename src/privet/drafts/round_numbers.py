"""Round numbers, which have two significant digits, over the whole range of float64, and round bounds."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_SMALLEST, _LARGEST = -300, 308  # exponents of ten
_MOST = 1.7e308


@cache
def grid() -> Floats:
    """Return zero and all numbers with two significant digits from 1e-300 to 1.7e308, of both signs, in order."""
    texts = (f"{digits}e{power - 1}" for power in range(_SMALLEST, _LARGEST + 1) for digits in range(10, 100))
    positive = np.array([number for number in map(float, texts) if math.isfinite(number)])
    points = np.concatenate([-positive[::-1], [0.0], positive])
    points.flags.writeable = False
    return points


def places_below(values: Floats) -> Places:
    """Return the position in the grid of the largest round number that is not above each value, or of the first one."""
    return np.maximum(np.searchsorted(grid(), values, side="right") - 1, 0)


def places_above(values: Floats) -> Places:
    """Return the position in the grid of the smallest round number that is not below each value, or of the last one."""
    return np.minimum(np.searchsorted(grid(), values, side="left"), len(grid()) - 1)


def rounded_bounds(low: float, high: float) -> tuple[float, float]:
    """Return round numbers around two bounds, the first below the second.

    A low bound above zero becomes zero if that widens the bounds by at most a ninth, because zero is the usual bound.
    The same holds for a high bound below zero.
    """
    low, high = min(low, high), max(low, high)
    below, above = int(places_below(np.array(low))), int(places_above(np.array(high)))
    if below == above and low == high == 0:
        return 0.0, 1.0
    if below == above:
        below, above = max(below - 1, 0), min(above + 1, len(grid()) - 1)
    start, end = float(grid()[below]), float(grid()[above])
    if 0 < start <= end / 10:
        start = 0.0
    if start / 10 <= end < 0:
        end = 0.0
    return start, end


def widened(low: float, high: float) -> tuple[float, float]:
    """Return round numbers around two bounds, with at least a tenth of their distance left on each side.

    Zero is not crossed, so that the bounds of counts and lengths stay nonnegative.
    """
    room = (high / 10 - low / 10) or abs(low) / 10 or 1.0
    start = low - room if low < 0 else max(low - room, 0.0)
    end = high + room if high > 0 else min(high + room, 0.0)
    if 1e-290 < room < 1e290:
        power = 10.0 ** math.floor(math.log10(room))
        step = max(digit * power for digit in (1, 2, 5) if digit * power <= room * (1 + 1e-9))
        start, end = math.floor(start / step) * step, math.ceil(end / step) * step
    start, end = (float(f"{np.clip(bound, -_MOST, _MOST):.12g}") for bound in (start, end))
    return (start, end) if start < end else (start, start + 1.0)
