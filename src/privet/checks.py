"""Checks of arguments, which raise before any budget is spent. Their messages name the argument and its value."""

import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

SMALLEST_NORM, LARGEST_NORM = 1e-10, 1e10
"""Bounds on rows outside this range are refused, because squares would underflow or steps would vanish."""
LARGEST_COUNT = 10**15  # a float can represent every integer up to here
_REMEDIES = {"epsilon": ". Smaller values give more privacy, and 1 is usual."}


def positive(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number above zero, else raise ValueError."""
    number = finite(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {_shown(value)}{_REMEDIES.get(name, '')}")
    return number


def nonnegative(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number of at least zero, else raise ValueError."""
    number = finite(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {_shown(value)}")
    return number


def probability(name: str, value: float) -> float:
    """Return ``value`` as a float if it lies in (0, 1], else raise ValueError."""
    number = finite(name, value)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {_shown(value)}")
    return number


def delta_value(value: float) -> float:
    """Return ``value`` as a float if it is a delta, a number in [0, 1), else raise ValueError."""
    number = finite("delta", value)
    if not 0 <= number < 1:
        raise ValueError(f"delta must lie in [0, 1), got {_shown(value)}")
    return number


def count(name: str, value: int, at_least: int = 1, at_most: float = LARGEST_COUNT) -> int:
    """Return ``value`` as an int if it is a whole number from ``at_least`` to ``at_most``, else raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {_shown(value)}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {_shown(value)}")
    if value > at_most:
        raise ValueError(f"{name} must be at most {at_most:g}, got {_shown(value)}")
    return int(value)


def choice(name: str, value: str, choices: Collection[str]) -> str:
    """Return ``value`` if it is one of ``choices``, else raise ValueError."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {_shown(value)}")
    return value


def whole(name: str, value: int, at_least: int = 0) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``at_least``, without an upper limit."""
    return count(name, value, at_least, math.inf)


def finite(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number, else raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {_shown(value)}")
    return number


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def within(name: str, value: float, least: float, most: float) -> float:
    """Return ``value`` as a float if it lies in [least, most], the range that is supported, else raise ValueError."""
    if not least <= positive(name, value) <= most:
        raise ValueError(f"{name} must lie in [{least:g}, {most:g}], got {value:g}. Use another unit.")
    return float(value)


def rate_pair(name: str, value: Any) -> tuple[float, float]:
    """Return a false-positive and a true-positive rate, if ``value`` is a pair of these, else raise ValueError."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(
            f"{name} must be a pair: a false-positive rate, and the largest true-positive rate that an attack may have "
            f"at it, as in (0.01, 0.05). Got {_shown(value)}."
        )
    fpr, tpr = (
        finite(f"the false-positive rate of {name}", value[0]),
        finite(f"the true-positive rate of {name}", value[1]),
    )
    if not 0 < fpr < tpr * (1 - 1e-6) or tpr >= 1:
        raise ValueError(
            f"{name} must be a false-positive rate and a larger true-positive rate, both between 0 and 1, got "
            f"({fpr:g}, {tpr:g}). Guessing alone has a true-positive rate as large as its false-positive rate."
        )
    return fpr, tpr


def quotient_above(numerator: float, denominator: float) -> float:
    """Return the smallest float that is not below the exact quotient of two positive numbers."""
    return _not_below(numerator / denominator, lambda x: Fraction(x) * Fraction(denominator) >= Fraction(numerator))


@lru_cache(maxsize=1024)  # a run asks for the same products in every step
def product_above(one: float, other: float) -> float:
    """Return the smallest float that is not below the exact product of two positive numbers."""
    return _not_below(one * other, lambda x: Fraction(x) >= Fraction(one) * Fraction(other))


def _not_below(rounded: float, is_enough: Callable[[float], bool]) -> float:
    while math.isfinite(rounded) and not is_enough(rounded):
        rounded = math.nextafter(rounded, math.inf)
    return rounded
