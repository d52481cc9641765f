"""Integer noise with an exactly known law, made from fair bits only, so that several parties can draw it together.

Inside a multi-party computation fair bits are cheap, while logarithms, roots and cosines are not. So the noise is

    2^b (B - n/2) + sum of K terms (U_k - (2^b - 1)/2),    B ~ Binomial(n, 1/2), U_k uniform on 0, ..., 2^b - 1:

The n *coarse* bits, in steps of 2^b, give the shape of a Gaussian. The K *fine* uniforms of b bits fill the steps.

The privacy of a sum with such noise follows from the law itself, by comparison with a Gaussian in a form that composes
exactly (docs/proofs.md, "Noise on a lattice"). Let F be its distribution function: z(x) = Phi^-1(F(x)) maps it to a
standard normal. If the law is log-concave, the best tests between it and its shift by k are thresholds, so that the two
are at least as hard to distinguish as N(0, 1) and N(max_x z(x) - z(x - k), 1). If no single step of z is longer than c,
shifting each coordinate i by k_i is therefore (c ||k||_2)-Gaussian-DP. Steps grow in the far tails, which are lighter
than those of a Gaussian. There the analysis substitutes geometric tails, which costs their probability in total
variation.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from privet.checks import count, probability
from privet.privacy.events import Event, NearlyGaussian
from privet.privacy.noise import sampling
from privet.privacy.noise.law import Bits, Draws, NoiseLaw, Recipe

Floats = NDArray[np.float64]

_LARGEST_REACH = 1 << 23
# Masses are sums of products of positive numbers, each accurate to some hundred units in the last place.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LatticeLaw(NoiseLaw):
    """The law of 2^bits (B - coarse/2) + sum of ``fine`` centred uniforms of ``bits`` bits.

    Parameters
    ----------
    coarse : int
        Number n of fair bits with a weight of 2^bits each.
    fine : int
        Number K of uniforms. It must be even, so that the noise is integer and centred. Six make the law log-concave as
        far out as it matters; fewer do not.
    bits : int
        Bits b of each uniform.
    """

    coarse: int = 200
    fine: int = 6
    bits: int = 10

    kind = "lattice noise"
    is_pure = False

    def __post_init__(self) -> None:
        count("coarse", self.coarse)
        count("bits", self.bits)
        if count("fine", self.fine) % 2:
            raise ValueError(f"fine must be even, because the noise would not be centred otherwise, got {self.fine}")
        if self.reach > _LARGEST_REACH:
            raise ValueError(
                f"{self!r} is too wide to be tabulated: use fewer coarse bits, or uniforms with fewer bits"
            )

    @property
    def bits_drawn(self) -> int:
        """Number of fair bits that one draw takes."""
        return self.coarse + self.fine * self.bits

    @property
    def reach(self) -> int:
        """Largest absolute value."""
        step = 1 << self.bits
        return (self.coarse * step + self.fine * (step - 1)) // 2

    @property
    def offset(self) -> int:
        """The sum of the weighted bits has this mean."""
        return self.reach

    @property
    def std(self) -> float:
        """Standard deviation."""
        square = 4.0**self.bits
        return math.sqrt(self.coarse * square / 4 + self.fine * (square - 1) / 12)

    def weights(self) -> NDArray[np.int64]:
        """Return the weight of each fair bit. A draw is the sum of the weights of the bits that are 1, minus reach."""
        uniform = np.left_shift(1, np.arange(self.bits, dtype=np.int64))
        return np.concatenate([np.full(self.coarse, 1 << self.bits, dtype=np.int64), np.tile(uniform, self.fine)])

    def masses(self) -> Floats:
        """Return the probability of each value from -reach to reach."""
        return _masses(self)

    def comparison(self, tail: float) -> tuple[float, float]:
        """Return (c, distance): a law within ``distance`` of this one maps to a normal in steps of at most c.

        Only a share ``tail`` of the mass is changed, so ``distance`` <= ``tail`` in total variation, per coordinate.
        """
        return _comparison(self, probability("tail", tail))

    def cost(self, dimension: int, tail: float) -> float:
        """Return the mu of a shift of length 1, for the law without its tails."""
        return self.comparison(tail)[0]

    def event(self, shift: float, dimension: int, steps: int, tail: float) -> Event:
        """Return the Gaussian release of all sums, and its distance in total variation."""
        step, distance = self.comparison(tail)
        return NearlyGaussian(step * shift * math.sqrt(steps), steps * dimension * distance)

    def description(self) -> str:
        """Return how the noise is drawn."""
        return (
            f"{self.coarse} fair bits of 2^{self.bits} and {self.fine} uniform numbers of {self.bits} bits per "
            "coordinate and sum; epsilon is that of this noise, not of a Gaussian"
        )

    def recipe(self) -> Recipe:
        """Return the fair bits with their weights."""
        return Recipe((Bits(tuple(self.weights().tolist())),))

    def draw(self, size: int, draws: Draws) -> NDArray[np.int64]:
        """Return independent draws."""
        step = 1 << self.bits
        coarse = sampling.binomial_half(self.coarse, size, draws.words)
        fine = draws.integers(0, step, (self.fine, size)).sum(axis=0)
        drawn: NDArray[np.int64] = step * coarse + fine - self.reach
        return drawn


def _uniform_sums(law: LatticeLaw) -> Floats:
    """Return the law of the sum of the uniforms: 2^bits values per row, with an empty row before and after."""
    step = 1 << law.bits
    counts: NDArray[Any] = np.ones(1, dtype=object)  # Python integers, which are exact at any size
    for _ in range(law.fine):  # convolving with a uniform is a sum over a moving window
        running = np.cumsum(np.concatenate([counts, np.zeros(step - 1, dtype=object)]))
        counts = running.copy()
        counts[step:] -= running[:-step]
    filled = np.zeros((law.fine + 2) * step)
    filled[step : step + counts.size] = (counts / (1 << law.fine * law.bits)).astype(np.float64)
    return filled.reshape(law.fine + 2, step)


@lru_cache(maxsize=8)
def _masses(law: LatticeLaw) -> Floats:
    fine = _uniform_sums(law)[1:-1]
    chances = np.array([float(math.comb(law.coarse, ones) / (1 << law.coarse)) for ones in range(law.coarse + 1)])
    blocks = np.zeros((law.coarse + law.fine, 1 << law.bits))
    for place, block in enumerate(fine):
        blocks[place : place + law.coarse + 1] += chances[:, None] * block
    masses: Floats = blocks.ravel()[: 2 * law.reach + 1]
    masses.flags.writeable = False
    return masses


@lru_cache(maxsize=64)
def _comparison(law: LatticeLaw, tail: float) -> tuple[float, float]:
    """Bound the steps of z for the law whose outer ``tail`` of the mass is replaced by geometric tails.

    For x >= 0 the step is z(x) - z(x-1) = p(x) / phi(xi) for some xi between the two, hence at most p(x) / phi(z(x)),
    phi falling there. The law is symmetric, so the steps below 0 are the same: z(-x) = -z(x - 1). In a geometric tail,
    p(x) / phi(z(x)) is a multiple of the Mills ratio of z(x), which falls: its first step is its longest.
    """
    upper = _masses(law)[law.reach :]
    survival = np.cumsum(upper[::-1])[::-1]  # P(X >= x), summed from the far end to avoid cancellation
    inside = int(np.searchsorted(-survival, -tail / 2))  # the first x with P(X >= x) <= tail/2
    if inside < 2 or inside + 1 >= survival.size or survival[inside] == 0:
        raise ValueError(f"a tail of {tail:g} contains all of {law!r}, or lies beyond its ends: use another tail")
    _check_log_concave(law, inside)
    steps = _steps(np.log(upper[:inside]), np.log(survival[1 : inside + 1]))
    ratio = survival[inside] / survival[inside - 1]  # of the geometric tail, which starts at x = inside
    if ratio > upper[inside - 1] / upper[inside - 2]:
        raise ValueError(f"{law!r} has tails heavier than geometric beyond {inside}: use more coarse bits")
    first = _steps(np.log(survival[inside] * (1 - ratio)), np.log(survival[inside] * ratio))
    return max(float(steps.max()), float(first)) * (1 + _ROUNDING), 2 * float(survival[inside]) * (1 + _ROUNDING)


def _steps(log_mass: Any, log_survival: Any) -> Any:
    """Return p(x) / phi(z(x)), where a standard normal exceeds z(x) with probability P(X > x)."""
    z = -ndtri_exp(log_survival)
    return np.exp(log_mass + z * z / 2) * math.sqrt(2 * math.pi)


def _check_log_concave(law: LatticeLaw, until: int) -> None:
    """Raise unless p(x)^2 >= p(x-1) p(x+1) for all |x| <= ``until``.

    Within a block of 2^bits values the masses are taken relative to one binomial coefficient: as quotients of
    neighbouring coefficients they are exact to a few units in the last place, far less than 1/std^2, the slack that a
    normal has.
    """
    fine, step = _uniform_sums(law), 1 << law.bits
    before, after = np.roll(fine.ravel(), 1).reshape(fine.shape), np.roll(fine.ravel(), -1).reshape(fine.shape)
    first, last = law.reach // step, (law.reach + until) // step  # the blocks of x = 0 and x = until
    for block in range(first, last + 1):
        # Row i of the uniforms' sum meets the coefficient block + 1 - i: the first row is the empty one.
        chosen = [block + 1 - row for row in range(law.fine + 2)]
        middle = min(max(block - law.fine // 2, 0), law.coarse)
        weights = np.array([_relative_coefficient(law.coarse, ones, middle) for ones in chosen])
        left, here, right = weights @ before, weights @ fine, weights @ after
        place = block * step - law.reach + np.arange(step)
        if np.any((left * right > here * here * (1 - 1e-14)) & (place >= 0) & (place <= until)):
            raise ValueError(
                f"{law!r} is not log-concave up to {until} = {until / law.std:.3g} standard deviations, so it cannot "
                "be compared with a Gaussian there: use more fine uniforms, or more coarse bits"
            )


def _relative_coefficient(n: int, ones: int, middle: int) -> float:
    """Return the binomial coefficient (n over ones) divided by (n over middle)."""
    return math.comb(n, ones) / math.comb(n, middle) if 0 <= ones <= n else 0.0


def rounded_shift(sensitivity: float, scale: float, dimension: int, largest: float) -> float:
    """Return how far a vector moves on the lattice if it moves by ``sensitivity`` before it is scaled and rounded.

    Rounding to the nearest integer adds at most 1 to the change of a coordinate, and the product with ``scale``, of
    size at most ``largest``, one unit roundoff of it on each side.
    """
    per_coordinate = 1 + 2.0**-52 * largest
    return (scale * sensitivity + math.sqrt(dimension) * per_coordinate) * (1 + 1e-12)


def rounded(values: NDArray[Any], scale: float) -> NDArray[np.int64]:
    """Return the nearest lattice point to each scaled value."""
    return np.rint(np.asarray(values, dtype=np.float64) * scale).astype(np.int64)
