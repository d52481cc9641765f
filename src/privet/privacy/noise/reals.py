"""Random real numbers of which only as many bits are drawn as a decision needs.

A real number that was drawn at random is known up to an interval: it is a monotone function of a uniform number, of
which some leading bits are known. Whoever has to decide something about the number, for instance to which integer it is
rounded, asks for the interval. If the interval does not decide, :meth:`~LazyReal.refine` draws further bits. The
decision then has exactly the probability that it has for the ideal real number, because unseen bits are drawn as if the
number had been complete from the start. Everything here is exact: fractions, integers, and decimal numbers that are
rounded outwards (:mod:`~privet.privacy.noise.enclosures`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from privet.privacy.noise import enclosures

Interval = tuple[Fraction, Fraction]
MoreBits = Callable[[], int]  # returns 64 random bits as an integer


class LazyUniform:
    """A uniformly random real number in [0, 1], of which the first ``bits`` binary digits are known."""

    def __init__(self, known: int, bits: int, more: MoreBits) -> None:
        self.known, self.bits, self._more = known, bits, more

    def refine(self) -> None:
        """Draw 64 further bits."""
        self.known, self.bits = self.known << 64 | self._more(), self.bits + 64

    def bounds(self) -> Interval:
        """Return an interval that contains the number."""
        return Fraction(self.known, 1 << self.bits), Fraction(self.known + 1, 1 << self.bits)


class LazyReal(Protocol):
    """A random real number, known up to an interval."""

    def refine(self) -> None:
        """Draw further bits."""

    def bounds(self) -> Interval:
        """Return an interval that contains the number."""
        ...


@dataclass
class LinearDraw:
    """The number ``base + slope * place``, for a uniform ``place``."""

    base: Fraction
    slope: Fraction
    place: LazyUniform

    def refine(self) -> None:
        """Draw further bits."""
        self.place.refine()

    def bounds(self) -> Interval:
        """Return an interval that contains the number."""
        ends = [self.base + self.slope * place for place in self.place.bounds()]
        return min(ends), max(ends)


@dataclass
class TailDraw:
    """The number ``sign * sqrt(edge^2 - 2 log(place))``, for a uniform ``place``."""

    sign: int
    edge: Fraction
    place: LazyUniform

    def refine(self) -> None:
        """Draw further bits."""
        self.place.refine()

    def bounds(self) -> Interval:
        """Return an interval that contains the number. It is finite, because bits are drawn until one of them is 1."""
        while self.place.known == 0:
            self.place.refine()
        low, high = self.place.bounds()
        near = square_root(self.edge**2 - 2 * logarithm(high, self.place.bits)[1], self.place.bits)[0]
        far = square_root(self.edge**2 - 2 * logarithm(low, self.place.bits)[0], self.place.bits)[1]
        return (near, far) if self.sign > 0 else (-far, -near)


class LazyNorm:
    """The Euclidean norm of a vector of standard normal numbers."""

    def __init__(self, draws: Sequence[LazyReal]) -> None:
        self._draws = draws
        self._bits = 128
        self._bounds: Interval | None = None

    def refine(self) -> None:
        """Draw further bits of every entry."""
        self._bits += 64
        self._bounds = None
        for draw in self._draws:
            draw.refine()

    def bounds(self) -> Interval:
        """Return an interval that contains the norm."""
        if self._bounds is None:
            intervals = [_absolute(*draw.bounds()) for draw in self._draws]
            low, high = (sum((interval[end] ** 2 for interval in intervals), Fraction(0)) for end in (0, 1))
            self._bounds = square_root(low, self._bits)[0], square_root(high, self._bits)[1]
        return self._bounds


def nearest_integer(shift: Fraction, factor: Fraction, *draws: LazyReal) -> int:
    """Return the integer nearest to ``shift`` plus ``factor`` times the product of the draws.

    The interval of the product decides as soon as both of its ends are rounded to the same integer.
    """
    while True:
        low = high = factor
        for draw in draws:
            ends = [one * other for one in (low, high) for other in draw.bounds()]
            low, high = min(ends), max(ends)
        first, last = (math.floor(shift + end + Fraction(1, 2)) for end in (low, high))
        if first == last:
            return first
        for draw in draws:
            draw.refine()


def exponential(x: Fraction, bits: int) -> Interval:
    """Return bounds of exp(x) that are about 2^-bits apart, for x <= 0."""
    down, up = enclosures.directed(bits)
    return Fraction(enclosures.exp(_decimal(x, down), down)), Fraction(enclosures.exp(_decimal(x, up), up))


def logarithm(x: Fraction, bits: int) -> Interval:
    """Return bounds of log(x) that are about 2^-bits apart, for 0 < x <= 1."""
    if x == 1:
        return Fraction(0), Fraction(0)
    down, up = enclosures.directed(bits)
    return Fraction(enclosures.log(_decimal(x, down), down)), Fraction(enclosures.log(_decimal(x, up), up))


def square_root(x: Fraction, bits: int) -> Interval:
    """Return bounds of the square root of x >= 0, 2^-bits apart."""
    root = math.isqrt((x.numerator << 2 * bits) // x.denominator)
    return Fraction(root, 1 << bits), Fraction(root + 1, 1 << bits)


@lru_cache(maxsize=8)
def pi(bits: int) -> Interval:
    """Return bounds of pi, about 2^-bits apart, by Machin's formula pi = 16 arctan(1/5) - 4 arctan(1/239).

    The terms of the two series are truncated to multiples of 2^-(bits + 64). All that is lost is far below 2^-bits.
    """
    one = 1 << bits + 64
    total = 16 * _arctan_of_inverse(5, one) - 4 * _arctan_of_inverse(239, one)
    middle, width = Fraction(total, one), Fraction(1, 1 << bits)
    return middle - width, middle + width


def _arctan_of_inverse(n: int, one: int) -> int:
    total, power, k = 0, one // n, 1
    while power:
        total += power // k if k % 4 == 1 else -(power // k)
        power, k = power // (n * n), k + 2
    return total


def _decimal(x: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(x.numerator), Decimal(x.denominator))


def _absolute(low: Fraction, high: Fraction) -> Interval:
    """Return bounds of the absolute value of a number between ``low`` and ``high``."""
    return (Fraction(0) if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
