"""Poisson sampling: each unit independently."""

from collections.abc import Iterator
from dataclasses import dataclass

from privet.checks import probability
from privet.plans.samplers.base import Batch, FullBatch, Sampler, keep
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, PoissonGaussian
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True)
class Poisson(Sampler):
    """In each step, each unit independently with probability ``rate``. Batches vary in size and may be empty."""

    rate: float

    name = "Poisson"
    adjacencies = (Adjacency.ADD_OR_REMOVE,)

    def __post_init__(self) -> None:
        keep(self, rate=probability("rate", self.rate))

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield one Poisson sample per step."""
        for _ in range(steps):
            yield source.poisson_batch(n, self.rate)

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the Poisson-sampled Gaussian; at rate 1 there is no sampling and the composition is exact."""
        if self.rate == 1:
            return FullBatch().event(noise_multiplier, steps, adjacency)
        return PoissonGaussian(noise_multiplier, self.rate, steps)

    def nominal_size(self, n: int) -> float:
        """Return the expected batch size for a public number ``n`` of units."""
        return self.rate * n

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        return f"each step takes every unit independently with probability {self.rate:.6g}"
