"""Decimal numbers of any precision, rounded outwards, that enclose an exact number between two bounds."""

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import NDArray

Words = Callable[[int], NDArray[np.uint64]]
Indices = NDArray[np.int64]


def directed(bits: int) -> tuple[Context, Context]:
    """Return a context that rounds down and one that rounds up, with thirty digits more than ``bits`` bits have."""
    digits = 3 * bits // 10 + bits // 500 + 30
    down = Context(prec=digits, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
    up = down.copy()
    up.rounding = ROUND_CEILING
    return down, up


def log(value: Decimal, context: Context) -> Decimal:
    """Return a bound on the natural logarithm, on the side to which the context rounds."""
    return _beyond(value.ln(context), context)


def exp(value: Decimal, context: Context) -> Decimal:
    """Return a bound on the exponential function, on the side to which the context rounds."""
    return _beyond(value.exp(context), context)


def _beyond(value: Decimal, context: Context) -> Decimal:
    """Return the neighbour of a number that was rounded to nearest, as ln and exp of decimals are in every context."""
    return value.next_minus(context) if context.rounding == ROUND_FLOOR else value.next_plus(context)
