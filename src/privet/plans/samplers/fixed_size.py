"""Batches of a fixed size, drawn without replacement."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from privet.checks import count
from privet.plans.samplers.base import Batch, FullBatch, Sampler, keep
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, FixedSizeGaussian
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True)
class FixedSize(Sampler):
    """In each step a new, uniformly random set of ``size`` of the ``n`` units, without replacement."""

    size: int
    n: int

    name = "fixed size"

    def __post_init__(self) -> None:
        keep(self, size=count("size", self.size), n=count("n", self.n))
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
        """Return a phrase for the guarantee that says how batches are drawn."""
        return f"each step takes a uniformly random batch of {self.size} of {self.n} units, without replacement"


@dataclass(frozen=True)
class OneUniform(FixedSize):
    """One uniformly random unit of ``n`` in each step."""

    size: int = field(default=1, init=False, repr=False)
    n: int

    name = "one uniform unit"
