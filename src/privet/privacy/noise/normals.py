"""Standard normal numbers, drawn exactly: floating-point approximations now, and all further digits on request.

The low ten bits of a random word choose a share of the :mod:`~privet.privacy.noise.ziggurat`. If it is a rectangle, the
other bits are the first 54 binary digits of a place in it, and the draw is approximated by the word, read as a signed
number, times a constant of the rectangle. Nothing is rejected, so numpy computes all draws in a few passes. The other
three shares, one draw in 341, are the area outside the rectangles. Those draws are made last, all together, by
rejection. Where floating-point arithmetic cannot decide whether a proposal is accepted, exact arithmetic does.

Each approximation lies within :data:`ERROR` of the ideal draw, which is a real number. Its digits beyond the known bits
are drawn when a decision depends on them (:mod:`~privet.privacy.noise.reals`).
"""

import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.privacy.noise.bits import CHUNK, Keystream, Words
from privet.privacy.noise.reals import LazyReal, LazyUniform, LinearDraw, TailDraw
from privet.privacy.noise.ziggurat import CHOICE_BITS, SHARES, Vector, ziggurat

ERROR = 2.0**-47  # bound on the distance between an approximation and its ideal draw
FARTHEST = 16  # farther draws, one in 10^57, have no approximation, so that everything about them is decided exactly
PIECE = 1 << 18  # numbers that are drawn at a time: their approximations and words fit into the cache

_SMALL = 1 << 10  # requests up to this size are served from a pool of numbers that were drawn in advance
_POOLS = 1 << 12, 1 << 16  # sizes of the first pool and of the largest
_CLOSE = 2.0**-36  # distance to the density, or to the level, within which exact arithmetic decides
_FEW_DIGITS = 2.0**-12  # smaller uniform numbers of the tail get 64 further bits, for a precise logarithm


@dataclass(frozen=True)
class _Outside:
    """Draws from outside the rectangles: their positions among all draws, their boxes (or the tail) and places."""

    positions: NDArray[np.int64]
    boxes: NDArray[np.int64]
    places: NDArray[np.uint64]
    refined: dict[int, LazyUniform]  # places of which more than 64 bits are known


class Normals:
    """Independent standard normal numbers.

    They are approximated in float64: :meth:`spend`. Each approximation, divided by ``scale``, lies within :data:`ERROR`
    of the ideal draw, or is NaN if the draw lies beyond :data:`FARTHEST`.

    Attributes
    ----------
    stream : NormalStream
        Where the draws come from.
    scale : float
        A public factor of the approximations. Multiplying many draws is faster while they are made than afterwards.
    is_far : bool
        Whether there may be an approximation that is NaN.
    """

    __slots__ = ("_first", "_is_spent", "_outside", "_values", "_words", "is_far", "scale", "stream")

    def __init__(
        self,
        values: Vector,
        words: Words,
        outside: _Outside,
        stream: "NormalStream",
        scale: float,
        is_far: bool,
        first: int = 0,
    ) -> None:
        self.stream = stream
        self.scale = scale
        self.is_far = is_far
        self._values = values
        self._words = words
        self._outside = outside
        self._first = first  # position of the first number among those that ``outside`` counts
        self._is_spent = False

    def __len__(self) -> int:
        return int(self._values.size)

    def __reduce__(self) -> Any:
        raise TypeError("draws cannot be copied, because each may be used only once")

    def part(self, start: int, size: int) -> "Normals":
        """Return some consecutive numbers."""
        part, first = slice(start, start + size), self._first + start
        return Normals(
            self._values[part], self._words[part], self._outside, self.stream, self.scale, self.is_far, first
        )

    def spend(self) -> Vector:
        """Return the approximations times ``scale``, in an array that may be overwritten. Raise on a second call."""
        if self._is_spent:
            raise RuntimeError("draws can be used only once, because noise that two releases share can be subtracted")
        self._is_spent = True
        return self._values

    def spend_filled(self) -> Vector:
        """Return the approximations times ``scale``, with those beyond :data:`FARTHEST` computed exactly."""
        values = self.spend()
        for position in np.flatnonzero(np.isnan(values)).tolist():
            low, high = self.real(position).bounds()
            values[position] = self.scale * float((low + high) / 2)
        return values

    def real(self, position: int) -> LazyReal:
        """Return one of the numbers as a real number whose digits are drawn as needed. Ask for each number once."""
        table, word = ziggurat(), int(self._words[position])
        share = word & SHARES - 1
        if share < table.boxes:
            half = Fraction(float(table.edges[share]))
            # The place in (-half, half) has 54 known bits, the sign first, as in two's complement.
            return LinearDraw(-half, 2 * half, LazyUniform((word >> 10) + (1 << 53), 54, self.stream.more))
        which = int(np.searchsorted(self._outside.positions, self._first + position))
        box, sign = int(self._outside.boxes[which]), -1 if word < 0 else 1
        place = self._outside.refined.get(which) or LazyUniform(int(self._outside.places[which]), 64, self.stream.more)
        if box == table.boxes:
            return TailDraw(sign, Fraction(float(table.edges[0])), place)
        return LinearDraw(sign * Fraction(float(table.edges[box + 1])), sign * table.width(box), place)


class NormalStream:
    """A stream of exactly normal numbers, made from random bits. Threads may share it."""

    def __init__(self, bits: Keystream) -> None:
        self._bits = bits
        self._pool = self._draw(0)
        self._taken = 0  # numbers of the pool that were returned
        self._lock = threading.Lock()

    def take(self, size: int, scale: float = 1.0) -> Normals:
        """Return the next numbers of the stream, and multiply them by ``scale`` if that is faster now than later.

        Small requests are served from a pool. If too little of it is left, the rest is discarded.
        """
        if size > _SMALL:
            return self._draw(size, scale)
        with self._lock:
            if self._taken + size > len(self._pool):
                self._pool, self._taken = self._draw(min(max(4 * len(self._pool), _POOLS[0]), _POOLS[1])), 0
            self._taken += size
            return self._pool.part(self._taken - size, size)

    def more(self) -> int:
        """Return 64 random bits."""
        return int(self._bits.words(1)[0])

    def _draw(self, size: int, scale: float = 1.0) -> Normals:
        table = ziggurat()
        units = table.units * scale
        values, words = np.empty(size), np.empty(size, np.int64)
        shares = np.empty(min(size, CHUNK), np.int64)
        found = [np.empty(0, np.int64)]
        for start in range(0, size, CHUNK):
            drawn, value = words[start : start + CHUNK], values[start : start + CHUNK]
            share = shares[: drawn.size]
            self._bits.fill(drawn)
            np.bitwise_and(drawn, SHARES - 1, out=share)
            np.take(units, share, out=value, mode="clip")
            np.multiply(value, drawn, out=value)  # the low ten bits stand for digits that are not drawn yet
            found.append(np.flatnonzero(share >= table.boxes) + start)
        positions = np.concatenate(found)
        distances, outside = self._draw_outside(positions)
        values[positions] = np.copysign(scale * distances, words[positions])
        return Normals(values, words, outside, self, scale, bool(np.isnan(distances).any()))

    def _draw_outside(self, positions: NDArray[np.int64]) -> tuple[Vector, _Outside]:
        """Return the absolute values of as many draws from outside the rectangles as there are positions."""
        left = positions.size
        values, boxes, places = [np.empty(0)], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        refined: dict[int, LazyUniform] = {}
        while left > 0:
            value, box, place, known = self._trials(min(2 * left + 16, CHUNK))
            refined |= {positions.size - left + which: uniform for which, uniform in known.items() if which < left}
            values.append(value[:left])
            boxes.append(box[:left])
            places.append(place[:left])
            left -= values[-1].size
        return np.concatenate(values), _Outside(positions, np.concatenate(boxes), np.concatenate(places), refined)

    def _trials(self, size: int) -> tuple[Vector, NDArray[np.int64], NDArray[np.uint64], dict[int, LazyUniform]]:
        """Propose points outside the rectangles, and return those that are accepted.

        A proposal is a uniform point of a box, accepted if it lies under the density; or a point of the tail by
        Marsaglia's method, x = sqrt(edge^2 - 2 log u), accepted with a probability proportional to 1/x; or nothing.
        """
        table = ziggurat()
        choice, place, level = self._bits.words(3 * size).reshape(3, size)
        box = np.searchsorted(table.choices, (choice >> np.uint64(64 - CHOICE_BITS)).astype(np.int64), side="right")
        is_proposed = box <= table.boxes
        box, place, level = box[is_proposed], place[is_proposed], level[is_proposed]
        is_tail = box == table.boxes
        u, v = (np.maximum(uniform * 2.0**-64, 2.0**-64) for uniform in (place, level))
        inside = np.where(is_tail, 0, box)
        x = np.where(
            is_tail,
            np.sqrt(table.edges[0] ** 2 - 2.0 * np.log(u)),
            table.edges[inside + 1] + table.widths[inside] * u,
        )
        # How far the point lies below the density, or the level below the one that the tail accepts.
        room = np.where(
            is_tail, table.reach - v * x, np.exp(-0.5 * x * x) - table.tops[inside] - table.heights[inside] * v
        )
        is_accepted = room > 0
        known: dict[int, LazyUniform] = {}
        for which in np.flatnonzero((np.abs(room) < _CLOSE) | (is_tail & (u < _FEW_DIGITS))):
            uniform = LazyUniform(int(place[which]), 64, self.more)
            x[which], is_accepted[which] = _decided(
                int(box[which]), uniform, LazyUniform(int(level[which]), 64, self.more)
            )
            known[int(which)] = uniform
        kept = np.flatnonzero(is_accepted)
        ranks = {int(which): rank for rank, which in enumerate(kept)} if known else {}
        known = {ranks[which]: uniform for which, uniform in known.items() if which in ranks}
        return x[kept], box[kept], place[kept], known


def _decided(box: int, place: LazyUniform, level: LazyUniform) -> tuple[float, bool]:
    """Return a proposal and whether it is accepted, in exact arithmetic and with as many bits as that takes."""
    table = ziggurat()
    if box < table.boxes:
        is_accepted = table.is_under_density(box, place, level)
        draw: LazyReal = LinearDraw(Fraction(float(table.edges[box + 1])), table.width(box), place)
    else:
        while place.known.bit_length() < 64:
            place.refine()
        draw = TailDraw(1, Fraction(float(table.edges[0])), place)
        is_accepted = table.is_in_reach(draw, level)
    low, high = draw.bounds()
    return float((low + high) / 2) if high < FARTHEST else math.nan, is_accepted
