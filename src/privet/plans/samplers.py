"""How a step chooses its units: the batches it draws, and the event that ``steps`` of them make.

The two stand side by side in one class, so that the sampling that runs is the sampling that is accounted for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, probability
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, FixedSizeGaussian, GaussianRelease, PoissonGaussian
from privet.privacy.noise import NoiseSource

Batch = NDArray[np.int64] | slice

ALL = slice(None)


class Sampler(ABC):
    """A way of choosing batches.

    A sampler answers for four things: the adjacencies under which it is accounted for (the first is the default), the
    number of steps if it implies one, the batches, and the event.
    """

    adjacencies: tuple[Adjacency, ...] = (Adjacency.REPLACE_ONE,)

    @property
    def implied_steps(self) -> int | None:
        """The number of steps, where the sampler leaves no choice."""
        return None

    @abstractmethod
    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the ``steps`` batches of a run over ``n`` units."""

    @abstractmethod
    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the event of ``steps`` noisy sums; the noise multiplier is relative to one unit's bound."""

    @abstractmethod
    def nominal_size(self, n: int) -> float:
        """Return the expected batch size for a public number ``n`` of units."""

    @abstractmethod
    def in_words(self) -> str:
        """Return how batches are drawn, for the guarantee."""


@dataclass(frozen=True)
class FullBatch(Sampler):
    """Every unit in every step."""

    adjacencies = (Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield everything, every time, without a copy."""
        for _ in range(steps):
            yield ALL

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the exact composition of ``steps`` Gaussian releases."""
        return GaussianRelease(adjacency.factor * math.sqrt(steps) / noise_multiplier)

    def nominal_size(self, n: int) -> float:
        """Return n."""
        return float(n)

    def in_words(self) -> str:
        """Say so."""
        return "every step uses every unit"


@dataclass(frozen=True)
class Poisson(Sampler):
    """Each unit independently with probability ``rate``, anew in each step. Batches vary in size and may be empty."""

    rate: float

    adjacencies = (Adjacency.ADD_OR_REMOVE,)

    def __post_init__(self) -> None:
        _keep(self, rate=probability("rate", self.rate))

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield Poisson batches."""
        for _ in range(steps):
            yield source.poisson_batch(n, self.rate)

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the Poisson-sampled Gaussian; at rate 1 there is no sampling and the composition is exact."""
        if self.rate == 1:
            return FullBatch().event(noise_multiplier, steps, adjacency)
        return PoissonGaussian(noise_multiplier, self.rate, steps)

    def nominal_size(self, n: int) -> float:
        """Return the expected size at the public n."""
        return self.rate * n

    def in_words(self) -> str:
        """Say so."""
        return f"each step takes every unit independently with probability {self.rate:.6g}"


@dataclass(frozen=True)
class FixedSize(Sampler):
    """A uniformly random set of ``size`` of the ``n`` units, without replacement, anew in each step."""

    size: int
    n: int

    def __post_init__(self) -> None:
        _keep(self, size=count("size", self.size), n=count("n", self.n))
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be drawn from n = {self.n} units without replacement")

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield batches of exactly ``size`` units."""
        _same_n(self.n, n)
        for _ in range(steps):
            yield source.fixed_batch(n, self.size)

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the Gaussian sampled without replacement; at size n there is no sampling."""
        if self.size == self.n:
            return FullBatch().event(noise_multiplier, steps, adjacency)
        return FixedSizeGaussian(noise_multiplier, self.n, self.size, steps)

    def nominal_size(self, n: int) -> float:
        """Return the batch size, which is public."""
        return float(self.size)

    def in_words(self) -> str:
        """Say so."""
        return f"each step takes a uniformly random batch of {self.size} of {self.n} units, without replacement"


@dataclass(frozen=True)
class OneUniform(FixedSize):
    """One uniformly random unit of ``n`` in each step."""

    size: int = field(default=1, init=False, repr=False)
    n: int


@dataclass(frozen=True)
class FixedOrder(Sampler):
    """The ``n`` units in their given order, ``size`` at a time, ``passes`` times over.

    The order is public and independent of the data's values. One unit takes part in one batch a pass, and given the
    past all other steps are the same on neighbours, so the loss is that of ``passes`` Gaussian releases, not of all
    steps.
    """

    n: int
    passes: int = 1
    size: int = 1

    def __post_init__(self) -> None:
        _keep(self, passes=count("passes", self.passes), size=count("size", self.size), n=count("n", self.n))
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be taken from n = {self.n} units")

    @property
    def implied_steps(self) -> int:
        """The number of batches of all passes."""
        return self.passes * math.ceil(self.n / self.size)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield consecutive slices, pass after pass."""
        _same_n(self.n, n)
        for _ in range(self.passes):
            for start in range(0, n, self.size):
                yield slice(start, min(start + self.size, n))

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the composition of one Gaussian release a pass."""
        return GaussianRelease(adjacency.factor * math.sqrt(self.passes) / noise_multiplier)

    def nominal_size(self, n: int) -> float:
        """Return the batch size; a shorter last batch is divided by it too."""
        return float(self.size)

    def in_words(self) -> str:
        """Say so."""
        passes = "once" if self.passes == 1 else f"{self.passes} times"
        return f"units are visited {passes} in a fixed public order, {self.size} a step"


def _keep(sampler: Sampler, **checked: float) -> None:
    """Store checked fields of a frozen sampler as plain Python numbers."""
    for name, value in checked.items():
        object.__setattr__(sampler, name, value)


def _same_n(planned: int, actual: int) -> None:
    if planned != actual:
        raise ValueError(f"the plan was made for n = {planned} units, the data has {actual}")
