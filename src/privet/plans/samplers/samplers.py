"""How a step chooses its units: the batches it draws, and the event that ``steps`` of them make.

The two stand side by side in one class, so that the sampling that runs is the sampling that is accounted for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, probability
from privet.plans.descent import Descent
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, FixedSizeGaussian, GaussianRelease, LastIterate, PoissonGaussian, Secret
from privet.privacy.noise.source import NoiseSource

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

    @property
    def expected_n(self) -> int | None:
        """The number of rows that the data must have, where the sampler was made for one."""
        return None

    def check_n(self, n: int) -> None:
        """Raise unless the data has the number of rows that the sampler was made for."""
        if self.expected_n not in (None, n):
            raise ValueError(f"the plan was made for n = {self.expected_n} units, the data has {n}")

    @abstractmethod
    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the ``steps`` batches of a run over ``n`` units."""

    @abstractmethod
    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the event of ``steps`` noisy sums; the noise multiplier is relative to one unit's bound."""

    def last_iterate(self, noise_multiplier: float, steps: int, descent: Descent, reach: float | None) -> LastIterate:
        """Return the event of releasing nothing but the last iterate of such steps.

        ``reach`` is the diameter of the domain over what one unit can move a step of size 1, if there is one.
        """
        raise ValueError(
            f"amplification by iteration is established for full batches and fixed orders, not for {self!r}: use "
            'FullBatch, FixedOrder, RandomStop, RandomSkip or SecretOrder, or release="all"'
        )

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

    def last_iterate(self, noise_multiplier: float, steps: int, descent: Descent, reach: float | None) -> LastIterate:
        """Return the event: every unit is visited in every step, so all are alike, as one alone would be."""
        return LastIterate(
            noise_multiplier,
            n=1,
            passes=steps,
            contraction=descent.contraction,
            step_size=descent.step_size,
            diameter=reach,
        )

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

    @property
    def expected_n(self) -> int:
        """The number of units."""
        return self.n

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield batches of exactly ``size`` units."""
        self.check_n(n)
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

    ``public`` more units follow them in the data: they need no protection, and are visited at the end of each pass.
    """

    n: int
    passes: int = 1
    size: int = 1
    public: int = 0

    secret: ClassVar[Secret] = Secret.NOTHING

    def __post_init__(self) -> None:
        _keep(self, passes=count("passes", self.passes), size=count("size", self.size), n=count("n", self.n))
        _keep(self, public=count("public", self.public, at_least=0))
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be taken from n = {self.n} units")

    @property
    def implied_steps(self) -> int:
        """The number of batches of all passes."""
        return self.passes * (-(-self.n // self.size) - (-self.public // self.size))

    @property
    def expected_n(self) -> int:
        """All units, the public ones included."""
        return self.n + self.public

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield consecutive slices, pass after pass."""
        self.check_n(n)
        for _ in range(self.passes):
            yield from self._pass()

    def _pass(self) -> Iterator[slice]:
        """Yield the slices of one pass: no batch mixes private and public units."""
        for start, end in ((0, self.n), (self.n, self.n + self.public)):
            for first in range(start, end, self.size):
                yield slice(first, min(first + self.size, end))

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the composition of one Gaussian release a pass."""
        return GaussianRelease(adjacency.factor * math.sqrt(self.passes) / noise_multiplier)

    def last_iterate(self, noise_multiplier: float, steps: int, descent: Descent, reach: float | None) -> LastIterate:
        """Return the event: units visited late are hidden by fewer noises than those visited early."""
        return LastIterate(
            noise_multiplier,
            n=self.n,
            passes=self.passes,
            size=self.size,
            public=self.public,
            contraction=descent.contraction,
            step_size=descent.step_size,
            diameter=reach,
            secret=self.secret,
        )

    def nominal_size(self, n: int) -> float:
        """Return the batch size; a shorter last batch is divided by it too."""
        return float(self.size)

    def in_words(self) -> str:
        """Say so."""
        passes = "once" if self.passes == 1 else f"{self.passes} times"
        public = f", {self.public} public ones at the end" if self.public else ""
        return f"units are visited {passes} in a fixed public order, {self.size} a step{public}"


def _keep(sampler: Sampler, **checked: float) -> None:
    """Store checked fields of a frozen sampler as plain Python numbers."""
    for name, value in checked.items():
        object.__setattr__(sampler, name, value)
