"""Many normal variates at once, from random words: a ziggurat whose rectangles all lie under the density.

The area under the density is cut into 1024 equal shares. As many as possible, 1021, are rectangles: symmetric about 0,
stacked from the axis upwards, each as wide as the density permits. The low ten bits of a word choose a share. If it is
a rectangle, the draw is the word, read as a signed number, times a constant of the rectangle. Nothing is rejected, so
numpy computes all draws in a few passes. The other three shares, one draw in 341, represent the area outside the
rectangles: corners, a cap in the middle and the tails. Those draws are made last, all together, by rejection.

The law is that of a normal number up to the rounding of float64: places in a rectangle are 2^-53 of its half-width
apart, the uniforms of the rejection have 53 bits, and the tails end at 9.4 standard deviations, beyond which a normal
number lies with a probability below 1e-20.

References
----------
McFarland, "A modified ziggurat algorithm for generating exponentially and normally distributed pseudorandom numbers",
Journal of Statistical Computation and Simulation, 2016.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Words = NDArray[np.int64]

SHARES = 1 << 10
CHUNK = 1 << 14  # words per call: few calls, and buffers that fit into the cache


def fill_normals(result: NDArray[Any], std: float, fill_words: Callable[[Words], None]) -> None:
    """Fill a flat array with independent N(0, std^2) draws, made in float64 and rounded to its type.

    Parameters
    ----------
    result : array of float32 or float64
        The array to fill.
    std : float
        The standard deviation.
    fill_words : callable
        Fills an array of at most ``CHUNK`` words with random bits.
    """
    table = ziggurat()
    size = min(CHUNK, result.size)
    words, shares, draws = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    places, signs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, result.size, CHUNK):
        piece = result[start : start + CHUNK]
        words, shares, draws = words[: piece.size], shares[: piece.size], draws[: piece.size]
        fill_words(words)
        np.bitwise_and(words, SHARES - 1, out=shares)
        np.take(table.units, shares, out=draws, mode="clip")
        np.multiply(draws, words, out=draws)  # the low bits move a draw by less than the spacing of draws
        np.multiply(draws, std, out=piece, casting="same_kind")
        outside = np.flatnonzero(shares >= table.inner.size)
        places.append(outside + start)
        signs.append(words[outside])
    left = np.concatenate(places)
    result[left] = std * np.copysign(table.outside(left.size, fill_words), np.concatenate(signs))


@dataclass(frozen=True)
class Ziggurat:
    """Rectangles under exp(-x^2/2), the widest first, and boxes that cover the rest of the area, on the right side.

    Attributes
    ----------
    edge : float
        Half the width of the widest rectangle, where the tail begins.
    units : array
        For each share the half-width of its rectangle over 2^63, or 0 if the share has no rectangle.
    tops : array
        Upper edge of each rectangle.
    inner, widths, heights : array
        The box over the end of each rectangle: it begins where the next rectangle ends, and reaches up to the density
        there.
    chances : array
        Probability that a trial of :meth:`outside` falls into one of the boxes up to this one; last, for the tail, 1.
    """

    edge: float
    units: Vector
    tops: Vector
    inner: Vector
    widths: Vector
    heights: Vector
    chances: Vector

    def outside(self, size: int, fill_words: Callable[[Words], None]) -> Vector:
        """Return positive draws from the part of the density outside the rectangles.

        A trial is a uniform point of the boxes, kept if it lies under the density, or a point of the tail, by
        Marsaglia's method: x = sqrt(edge^2 - 2 log u), whose density is too high by a factor x / edge. More than half
        of all trials are kept.
        """
        kept: list[Vector] = [np.empty(0)]
        while size > 0:
            trials = min(2 * size + 16, CHUNK)
            choice, place, level = (_uniforms(trials, fill_words) for _ in range(3))
            box = np.searchsorted(self.chances, choice, side="right")
            is_tail = box == self.inner.size
            box[is_tail] = 0
            x = np.where(
                is_tail,
                np.sqrt(self.edge**2 - 2.0 * np.log1p(-place)),
                self.inner[box] + self.widths[box] * place,
            )
            is_kept = np.where(
                is_tail, level * x < self.edge, self.tops[box] + self.heights[box] * level < np.exp(-0.5 * x * x)
            )
            kept.append(x[is_kept][:size])
            size -= kept[-1].size
        return np.concatenate(kept)


def _uniforms(size: int, fill_words: Callable[[Words], None]) -> Vector:
    """Return uniformly random multiples of 2^-53 in [0, 1)."""
    words = np.empty(size, np.int64)
    fill_words(words)
    return (words.view(np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@lru_cache(maxsize=1)
def ziggurat() -> Ziggurat:
    """Return the tables of the ziggurat.

    A rectangle of half-width x on top of another that reaches up to y has its upper corners on the density if
    y + share / x = exp(-x^2/2). Iterating x = sqrt(-2 log(y + share / x)) from above finds x, until no rectangle fits.
    """
    share = math.sqrt(math.pi / 2) / SHARES  # of the area on the right side
    half_widths: list[float] = []
    tops = [0.0]
    x, before = 5.0, math.inf
    while tops[-1] + share / x < 1.0:
        x, before = math.sqrt(-2.0 * math.log(tops[-1] + share / x)), x
        if x >= before * (1.0 - 1e-15):
            half_widths.append(x)
            tops.append(tops[-1] + share / x)
    edges = np.array([*half_widths, 0.0])
    inner, widths, top = edges[1:], -np.diff(edges), np.array(tops[1:])
    heights = np.exp(-0.5 * inner**2) - top
    areas = np.append(widths * heights, math.exp(-0.5 * edges[0] ** 2) / edges[0])
    units = np.zeros(SHARES)
    units[: len(half_widths)] = edges[:-1] * 2.0**-63
    chances = np.cumsum(areas)
    return Ziggurat(half_widths[0], units, top, inner, widths, heights, chances / chances[-1])
