"""Laplace noise made of biased bits, with pure epsilon, which several parties can draw together.

A geometric number has independent binary digits, and the difference of two of them has a discrete Laplace law. Here
the digits have probabilities that a few fair bits realise exactly, so the noise is

    sum of 2^j (g_j - h_j) for j < m,    P(g_j = 1) = P(h_j = 1) = p_j, a multiple of 2^-k_j,

and with a tiny probability a uniformly random number is added. Sums are released modulo the size of the group in which
they are formed, so no release is possible for one table and impossible for its neighbour.

Epsilon is that of this law, for a shift by one, and not that of an ideal Laplace law (docs/proofs.md, section 31). If R
bounds the ratios of the probabilities of x and x + 2^(j+1) before digit j is added, then

    max(v (1 + R) / (1 - 2v), (1 - 2v) / (v (1 + 1/R))),    v = p_j (1 - p_j),

bounds those of x and x + 2^j after it. The best p_j gives sqrt(R). Errors of the low digits hardly matter, because they
are of second order; those of digit j are divided by 2^j.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

import numpy as np

from privet.checks import count
from privet.privacy.events import Composition, Event, PureRelease
from privet.privacy.noise.law import Bits, Draws, Integers, NoiseLaw, Recipe

RESET = 40
"""A coordinate is replaced by a uniformly random number with probability 2^-40."""
LARGEST_MODULUS = 1 << 64
_MOST_DIGITS = 62  # of a probability, which is compared with words of 64 bits
_WASTE = 0.002  # share of epsilon that the rounding of one probability may cost

Chance = tuple[int, int]
"""The numbers (ones, k) of the probability ones / 2^k."""


@dataclass(frozen=True)
class BinaryLaplace(NoiseLaw):
    """The law of a sum of 2^j (g_j - h_j), and rarely a uniformly random number.

    Parameters
    ----------
    chances : tuple of (int, int)
        For each digit, from the lowest on, the numbers (ones, k) of its probability ones / 2^k.

    Formal guarantees
    -----------------
    In every group of integers modulo a number of at most 2^64, and for every vector of integers, the probabilities of
    any result for two vectors at l1 distance D differ at most by the factor exp(D * :attr:`epsilon`).
    """

    chances: tuple[Chance, ...]

    kind = "Laplace noise"

    def __post_init__(self) -> None:
        count("the number of digits", len(self.chances))
        for ones, digits in self.chances:
            Bits((1,), ones, digits)
            if digits > _MOST_DIGITS or 2 * ones > 1 << digits:
                raise ValueError(
                    f"the probability of a digit must be at most 1/2, and have at most {_MOST_DIGITS} binary places, "
                    f"got {ones} / 2^{digits}"
                )

    @classmethod
    def of_width(cls, levels: int) -> "BinaryLaplace":
        """Return the law of ``levels`` digits with nearly the least epsilon, from few fair bits."""
        return _of_width(count("levels", levels))

    @property
    def epsilon(self) -> float:
        """What a shift by one costs, rounded up."""
        return _logarithm(ratio(self.chances))

    @property
    def std(self) -> float:
        """Standard deviation, not counting the rare uniformly random numbers."""
        return math.sqrt(float(sum(4**level * 2 * _spread(*each) for level, each in enumerate(self.chances))))

    @property
    def reach(self) -> int:
        """Largest absolute value, except with probability 2^-40."""
        return (1 << len(self.chances)) - 1

    def cost(self, dimension: int, tail: float) -> float:
        """Return the epsilon of a shift of length 1, whose l1 norm is up to sqrt(dimension)."""
        return math.sqrt(dimension) * self.epsilon * (1 + 1e-12)

    def event(self, shift: float, dimension: int, steps: int, tail: float) -> Event:
        """Return a pure release per sum."""
        return Composition((PureRelease(self.cost(dimension, tail) * shift),) * steps)

    def description(self) -> str:
        """Return how the noise is drawn."""
        return (
            f"{2 * len(self.chances)} biased bits per coordinate and sum, which make Laplace noise of standard "
            f"deviation {self.std:.6g}, released modulo the size of the field, in which each number is uniformly "
            f"random with probability 2^-{RESET}. Epsilon is that of these bits, including the rounding of their "
            "probabilities, for the l1 norm, which is up to the square root of the dimension times the l2 norm"
        )

    def recipe(self) -> Recipe:
        """Return the biased bits, those with equal probabilities together."""
        ordered = sorted(enumerate(self.chances), key=lambda each: each[1])
        groups = (
            (chance, [level for level, _ in members]) for chance, members in groupby(ordered, key=lambda each: each[1])
        )
        return Recipe(
            tuple(
                Bits(tuple(sign << level for level in levels for sign in (1, -1)), *chance) for chance, levels in groups
            ),
            RESET,
        )

    def draw(self, size: int, draws: Draws) -> Integers:
        """Return independent draws modulo 2^64."""
        drawn = np.zeros(size, dtype=np.int64)
        for level, (ones, digits) in enumerate(self.chances):
            first, second = (draws.words(2 * size) >> np.uint64(64 - digits) < np.uint64(ones)).reshape(2, size)
            drawn += (first.astype(np.int64) - second) << level
        hit = np.flatnonzero(draws.words(size) >> np.uint64(64 - RESET) == 0)
        drawn[hit] = draws.words(hit.size).view(np.int64)
        return drawn


def ratio(chances: Iterable[Chance], modulus: int = LARGEST_MODULUS, reset: int = RESET) -> Fraction:
    """Return an exact bound on the ratio of the probabilities of two neighbouring integers.

    Parameters
    ----------
    chances : iterable of (int, int)
        As in a :class:`BinaryLaplace`.
    modulus : int
        The largest size of the group in which the noise is added.
    reset : int
        A uniformly random element is added with probability 2^-reset.
    """
    rare = Fraction(1, 1 << reset)
    bound = 1 + (1 - rare) * modulus / rare
    for chance in reversed(tuple(chances)):
        bound = _after_digit(bound, _spread(*chance))
    return bound


def _after_digit(bound: Fraction, spread: Fraction) -> Fraction:
    """Return the bound after a digit, given that before it for twice the distance."""
    up = spread * (1 + bound) / (1 - 2 * spread)
    return max(up, bound / up)  # (1 - 2v) / (v (1 + 1/R)) = R (1 - 2v) / (v (1 + R))


def _spread(ones: int, digits: int) -> Fraction:
    """Return the probability that the difference of two bits is 1, or that it is -1."""
    chance = Fraction(ones, 1 << digits)
    return chance * (1 - chance)


def _logarithm(number: Fraction) -> float:
    """Return an upper bound on the logarithm of a number above 1, up to about twelve digits."""
    return math.log1p(float(number - 1)) * (1 + 1e-12)


@lru_cache(maxsize=64)
def _of_width(levels: int) -> BinaryLaplace:
    chances: list[Chance] = []
    bound = ratio(())
    for _ in range(levels):
        chances.append(_cheapest(bound))
        bound = _after_digit(bound, _spread(*chances[-1]))
    return BinaryLaplace(tuple(reversed(chances)))


def _cheapest(bound: Fraction) -> Chance:
    """Return the probability with the fewest binary places that hardly costs more than the best one."""
    best = _logarithm(bound) / 2
    ideal = 1 / (1 + math.exp(best))
    for digits in range(max(1, math.floor(-math.log2(ideal))), _MOST_DIGITS + 1):
        nearest = round(ideal * 2**digits)
        if nearest and _logarithm(_after_digit(bound, _spread(nearest, digits))) <= (1 + _WASTE) * best:
            return nearest, digits  # odd, because half of an even number would have been found before
    raise ValueError("a digit of the noise is too rare for 62 binary places")
