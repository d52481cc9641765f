"""Full batches: every unit in every step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from privet.plans.contraction import Descent
from privet.plans.samplers.base import ALL, Batch, Sampler
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, GaussianRelease, LastIterate
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True)
class FullBatch(Sampler):
    """Every unit in every step."""

    name = "full batch"
    adjacencies = (Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield a slice of all units in every step, which makes no copy."""
        for _ in range(steps):
            yield ALL

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the exact composition of ``steps`` Gaussian releases."""
        return GaussianRelease(adjacency.factor * math.sqrt(steps) / noise_multiplier)

    def last_iterate(self, noise_multiplier: float, steps: int, descent: Descent, reach: float | None) -> LastIterate:
        """Return the event of the last iterate: all units are visited in every step, so one unit stands for all."""
        return LastIterate(
            noise_multiplier,
            n=1,
            passes=steps,
            contraction=descent.contraction,
            step_size=descent.step_size,
            diameter=reach,
        )

    def nominal_size(self, n: int) -> float:
        """Return ``n``."""
        return float(n)

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        return "every step uses every unit"
