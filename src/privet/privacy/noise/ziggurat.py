"""The tables of an exact ziggurat: rectangles under the normal density, and boxes that cover the rest.

Write f(x) = exp(-x^2/2). The area under f is cut into 1024 equal shares, of probability 2^-10 each. As many as possible
are rectangles: symmetric about 0, stacked from the axis upwards, each almost as wide as the density permits. Widths are
floating-point numbers, taken as exact. The height of a rectangle is not stored: it follows from its width and from its
area, which is exactly one share. What matters is that the stack stays under f, so widths are chosen with a margin that
exceeds all rounding errors of the construction. The other shares, together, are the area between the rectangles and f.
Draws from there are made by rejection. The boxes of the proposals have exactly known probabilities, multiples of 2^-62,
and heights that follow from these and are large enough to cover f.

docs/proofs.md, section 26, proves that draws are exactly normal. tests/privacy/test_ziggurat.py checks in exact
arithmetic what the proof requires of the tables.

References
----------
McFarland, "A modified ziggurat algorithm for generating exponentially and normally distributed pseudorandom numbers",
Journal of Statistical Computation and Simulation, 2016.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from privet.privacy.noise.reals import Interval, LazyReal, LazyUniform, exponential, pi, square_root

Vector = NDArray[np.float64]

SHARES = 1 << 10
CHOICE_BITS = 62
_MARGIN = 1e-12  # far above the rounding errors of building the tables
_KAPPA = 2.0 ** (CHOICE_BITS + 7)  # proposals per unit of area under f: the boxes and the tail have less than 2^-7


@dataclass(frozen=True)
class Ziggurat:
    """Rectangles under exp(-x^2/2), the widest first, and boxes that cover the rest of the area, on the right side.

    Attributes
    ----------
    edges : array
        Half the width of each rectangle, and 0. The tail begins at the first. Box j lies between edges j + 1 and j.
    units : array
        For each share the half-width of its rectangle over 2^63, or 0 if the share has no rectangle.
    tops : array
        Height up to which the rectangles are stacked, below each box: approximate. :meth:`top` gives bounds.
    widths, heights : array
        Of each box, approximate.
    choices : array of int
        A random integer below 2^62 proposes the first box whose entry exceeds it. The last entry stands for the tail.
        An integer that no entry exceeds proposes nothing.
    reach : float
        A proposal x in the tail is accepted with probability reach / x: approximate.
    """

    edges: Vector
    units: Vector
    tops: Vector
    widths: Vector
    heights: Vector
    choices: NDArray[np.int64]
    reach: float

    @property
    def boxes(self) -> int:
        """Number of rectangles, and of boxes."""
        return self.tops.size

    def top(self, box: int, bits: int) -> Interval:
        """Return bounds of the height of the stack below a box: the area of a share, times the sum of 1/half-width."""
        least, most = (square_root(end / 2, bits)[side] / SHARES for side, end in enumerate(pi(bits)))
        low, unit = _inverse_sums(bits)[box], Fraction(1, 1 << bits)
        return least * low * unit, most * (low + box + 1) * unit

    def height(self, box: int) -> Fraction:
        """Return the height of a box, exactly: its probability over its width, in proposals per area."""
        return Fraction(self._chance(box)) / (Fraction(_KAPPA) * self.width(box))

    def width(self, box: int) -> Fraction:
        """Return the width of a box, exactly."""
        return Fraction(float(self.edges[box])) - Fraction(float(self.edges[box + 1]))

    def tail_reach(self, bits: int) -> Interval:
        """Return bounds of :attr:`reach`."""
        low, high = exponential(-(Fraction(float(self.edges[0])) ** 2) / 2, bits)
        scale = Fraction(_KAPPA) / self._chance(self.boxes)
        return scale * low, scale * high

    def _chance(self, box: int) -> int:
        """Return the probability that a proposal comes from a box, or from the tail, in units of 2^-62."""
        return int(self.choices[box]) - (int(self.choices[box - 1]) if box else 0)

    def is_under_density(self, box: int, place: LazyUniform, level: LazyUniform) -> bool:
        """Return whether the point of a box at these coordinates lies under the density, drawing bits as needed."""
        inner, width, height = Fraction(float(self.edges[box + 1])), self.width(box), self.height(box)
        while True:
            near, far = (inner + width * end for end in place.bounds())
            low, high = self.top(box, place.bits)
            least, most = level.bounds()
            if most * height + high < exponential(-(far**2) / 2, place.bits)[0]:
                return True
            if least * height + low > exponential(-(near**2) / 2, place.bits)[1]:
                return False
            place.refine()
            level.refine()

    def is_in_reach(self, x: LazyReal, level: LazyUniform) -> bool:
        """Return whether a proposal of the tail is accepted, drawing bits as needed."""
        while True:
            (near, far), (least, most) = x.bounds(), level.bounds()
            low, high = self.tail_reach(level.bits)
            if most * far < low:
                return True
            if least * near > high:
                return False
            x.refine()
            level.refine()


@lru_cache(maxsize=8)
def _inverse_sums(bits: int) -> list[int]:
    """Return the sums of 1/half-width over the rectangles up to each one, rounded down, in units of 2^-bits."""
    edges = [float(edge).as_integer_ratio() for edge in ziggurat().edges[:-1]]
    return list(accumulate((denominator << bits) // numerator for numerator, denominator in edges))


@lru_cache(maxsize=1)
def ziggurat() -> Ziggurat:
    """Return the tables.

    A rectangle of half-width x on top of others that reach up to y has its upper corners under the density if
    y + share / x < exp(-x^2/2). Iterating x = sqrt(-2 log(y + share / x)) from above finds the largest such x, until no
    rectangle fits. The left side is raised by a relative margin.
    """
    share = math.sqrt(math.pi / 2) / SHARES  # of the area on the right side
    half_widths: list[float] = []
    tops = [0.0]
    x, before = 5.0, math.inf
    while (raised := (tops[-1] + share / x) * (1.0 + _MARGIN)) < 1.0:
        x, before = math.sqrt(-2.0 * math.log(raised)), x
        if x >= before * (1.0 - 1e-15):
            half_widths.append(x)
            tops.append(tops[-1] + share / x)
    edges = np.array([*half_widths, 0.0])
    widths, top = -np.diff(edges), np.array(tops[1:])
    covered = (np.exp(-0.5 * edges[1:] ** 2) - top) * (1 + 1e-9) + 1e-12
    areas = [*(widths * covered), math.exp(-0.5 * edges[0] ** 2) / edges[0] * (1 + 1e-9)]
    chances = [int(_KAPPA * area) + 1 for area in areas]
    units = np.zeros(SHARES)
    units[: len(half_widths)] = edges[:-1] * 2.0**-63
    choices = np.array([sum(chances[: box + 1]) for box in range(len(chances))], dtype=np.int64)
    heights = np.array(chances[:-1]) / (_KAPPA * widths)
    return Ziggurat(edges, units, top, widths, heights, choices, _KAPPA * math.exp(-0.5 * edges[0] ** 2) / chances[-1])
