"""What plans and protocols ask of a law of integer noise, so that neither needs to know which law it is."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.privacy.events import Event
from privet.privacy.noise.normals import NormalStream

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """The randomness of a source of noise.

    Parameters
    ----------
    words : callable
        ``words(size)`` returns independent words of 64 random bits.
    integers : callable
        ``integers(low, high, shape)`` returns independent integers below ``high``, all equally likely.
    normals : callable
        Returns a stream of ideal normal numbers.
    """

    words: Callable[[int], NDArray[np.uint64]]
    integers: Callable[..., Integers]
    normals: Callable[[], NormalStream]


@dataclass(frozen=True)
class Bits:
    """Independent bits with one probability, each multiplied by a weight of its own.

    Parameters
    ----------
    weights : tuple of int
        One per bit. They may be negative.
    ones, digits : int
        A bit is 1 with probability ones / 2^digits. ``ones`` is odd, so no smaller number of digits would do.
    """

    weights: tuple[int, ...]
    ones: int = 1
    digits: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.ones < 1 << self.digits or not self.ones % 2:
            raise ValueError(
                f"the probability of a bit must be ones / 2^digits, with ones odd and between 0 and 2^digits, got "
                f"{self.ones} / 2^{self.digits}"
            )


@dataclass(frozen=True)
class Recipe:
    """Noise as a sum of weighted bits, from which several parties can draw it together.

    Parameters
    ----------
    bits : tuple of Bits
        The bits of one coordinate.
    reset : int or None
        With probability 2^-reset, a uniformly random element of the whole field is added as well. None for never.
    """

    bits: tuple[Bits, ...]
    reset: int | None = None

    @property
    def bits_drawn(self) -> int:
        """Number of fair bits that one draw takes."""
        return sum(len(each.weights) * each.digits for each in self.bits) + (self.reset or 0)


class NoiseLaw(ABC):
    """A distribution of integer noise whose cost in privacy is known exactly."""

    kind: ClassVar[str]
    """The name of the noise in audits."""
    is_pure: ClassVar[bool] = True
    """Whether the law gives pure epsilon, so that its tails need no treatment of their own."""

    @property
    @abstractmethod
    def std(self) -> float:
        """Standard deviation of a coordinate."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """Bound on the absolute value of a coordinate. If it can be exceeded, the probability is below 2^-39."""

    @property
    def offset(self) -> int:
        """What is subtracted from the sum of the bits of :meth:`recipe`."""
        return 0

    @abstractmethod
    def cost(self, dimension: int, tail: float) -> float:
        """Return what one unit of l2 distance costs at most, as mu of Gaussian DP or, for a pure law, as epsilon.

        ``tail`` is the probability per coordinate that the analysis may treat separately. Pure laws need none.
        """

    @abstractmethod
    def event(self, shift: float, dimension: int, steps: int, tail: float) -> Event:
        """Return what ``steps`` sums release, each of which moves by at most ``shift`` in l2 norm."""

    @abstractmethod
    def description(self) -> str:
        """Return how the noise is drawn, in words that follow "noise on that lattice: "."""

    @abstractmethod
    def draw(self, size: int, draws: Draws) -> Integers:
        """Return ``size`` integers, drawn by this process. Sums with them are modulo 2^64."""

    def recipe(self) -> Recipe:
        """Return how several parties draw one coordinate together."""
        raise ValueError(f"{type(self).__name__} cannot be drawn jointly. Make the plan for jointly drawn noise.")
