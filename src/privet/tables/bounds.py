"""Public bounds [low, high] of a number, and the map from there to [-1, 1] and back.

Everything is computed from halves: high - low can overflow where high / 2 - low / 2 cannot.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import TableError, show


def check_bounds(name: str, low: object, high: object) -> tuple[float, float]:
    """Return the bounds of a column as floats, if they are finite and apart."""
    ends = _finite(name, "low", low), _finite(name, "high", high)
    if not half_width(*ends) > 0:
        raise TableError(f"column {name!r}: the low bound {ends[0]} must be below the high bound {ends[1]}")
    return ends


def half_width(low: float, high: float) -> float:
    """Return half the distance between the bounds."""
    return high / 2 - low / 2


def within_bounds(values: NDArray[np.float64], low: float, high: float) -> bool:
    """Whether all numbers lie in [low, high]."""
    return bool(((values >= low) & (values <= high)).all())


def to_unit(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Clip each number into [low, high] and map that linearly to [-1, 1]."""
    share: NDArray[np.float64] = (np.clip(values, low, high) / 2 - low / 2) / half_width(low, high)
    return 2 * share - 1  # share is in [0, 1] exactly: every rounding above keeps order


def from_unit(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Map numbers in [-1, 1] back to [low, high]."""
    middle = low / 2 + high / 2
    restored: NDArray[np.float64] = np.clip(middle + half_width(low, high) * values, low, high)
    return restored


def _finite(name: str, key: str, bound: object) -> float:
    try:
        number = math.nan if isinstance(bound, bool | str) else float(bound)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise TableError(f"column {name!r}: the {key} bound {show(bound)} is not a finite number")
    return number
