"""l2 K-norm noise on the integers: pure epsilon for the l2 sensitivity of a vector.

The noise is the nearest integer vector to an ideal real vector N with density proportional to exp(-||z||_2 / scale).
For a vector S of integers, S plus the noise is the rounded S + N, so the guarantee of the K-norm mechanism holds in all
bits, modulo 2^64 or not.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from privet.checks import count, positive
from privet.privacy.events import Composition, Event, PureRelease
from privet.privacy.noise.law import Draws, Integers, NoiseLaw
from privet.privacy.noise.normals import ERROR, NormalStream
from privet.privacy.noise.reals import LazyNorm, nearest_integer
from privet.privacy.noise.release import approximate_norm


@dataclass(frozen=True)
class KNormLaw(NoiseLaw):
    """The law of a rounded vector with density proportional to exp(-||z||_2 / scale).

    Parameters
    ----------
    dimension : int
        Length of the vector.
    scale : float
        Its mean length is ``dimension * scale``.
    """

    dimension: int
    scale: float

    kind = "K-norm noise"

    def __post_init__(self) -> None:
        count("dimension", self.dimension)
        positive("scale", self.scale)

    @property
    def std(self) -> float:
        """Standard deviation of a coordinate before it is rounded."""
        return self.scale * math.sqrt(self.dimension + 1)

    @property
    def reach(self) -> int:
        """Length that is exceeded with a probability below 1e-300, because it has a Gamma distribution."""
        return math.ceil(self.scale * (2 * self.dimension + 1500))

    def cost(self, dimension: int, tail: float) -> float:
        """Return the epsilon of a shift of length 1."""
        return 1 / self.scale * (1 + 1e-15)

    def event(self, shift: float, dimension: int, steps: int, tail: float) -> Event:
        """Return a pure release per sum."""
        if dimension != self.dimension:
            raise ValueError(f"this K-norm noise is for vectors of length {self.dimension}, not {dimension}")
        return Composition((PureRelease(self.cost(dimension, tail) * shift),) * steps)

    def description(self) -> str:
        """Return how the noise is drawn."""
        return (
            f"a vector of l2 K-norm noise of scale {self.scale:.6g} (Gamma length, uniform direction), drawn exactly "
            "and rounded to that lattice"
        )

    def draw(self, size: int, draws: Draws) -> Integers:
        """Return as many independent vectors as fit, one after the other."""
        if size % self.dimension:
            raise ValueError(f"{size} numbers are not vectors of length {self.dimension}")
        stream = draws.normals()
        vectors = [integers(self.dimension, self.scale, stream) for _ in range(size // self.dimension)]
        return np.concatenate([np.empty(0, np.int64), *vectors])


def integers(size: int, scale: float, stream: NormalStream) -> Integers:
    """Return an ideal K-norm vector, rounded to integers, modulo 2^64.

    It is ``scale`` times a standard normal vector times the norm of another one that is longer by one entry. Where the
    float64 errors could change the nearest integer, exact arithmetic decides.
    """
    normals, others = stream.take(size), stream.take(size + 1)
    drawn, (norm, norm_error) = normals.spend(), approximate_norm(others.spend())
    longest = float(np.abs(drawn).max(initial=0.0)) + 1  # NaN if a draw has no approximation
    margin = 2 * scale * (norm_error * longest + ERROR * (norm + norm_error))
    exact_norm = cache(lambda: LazyNorm([others.real(position) for position in range(len(others))]))
    real = scale / normals.scale * norm * drawn
    nearest = np.rint(real)
    is_sure = np.abs(real - nearest) < 0.5 - margin - 2.0**-50 * np.abs(real)  # also false for NaN, and beyond 2^49
    result = np.where(is_sure, nearest, 0.0).astype(np.int64)
    for position in np.flatnonzero(~is_sure).tolist():
        whole = nearest_integer(Fraction(0), Fraction(scale), exact_norm(), normals.real(position))
        result[position] = (whole + (1 << 63)) % (1 << 64) - (1 << 63)
    return result
