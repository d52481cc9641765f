"""What Gaussian noise on sums over random batches has in common, however the batches are drawn."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from privet.privacy.analyses.loss_distribution import LARGEST_LOSS
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event, Unsampled


@dataclass(frozen=True)
class _SampledGaussian(Event):
    """``steps`` noisy sums, each over a random batch. It is analysed under one adjacency only."""

    noise_multiplier: float

    is_repeatable: ClassVar[bool] = True

    @property
    @abstractmethod
    def inclusion_probability(self) -> float:
        """The probability that a given unit is in a given batch."""

    @property
    @abstractmethod
    def relative_noise(self) -> float:
        """The standard deviation of the noise over the distance of neighbouring sums."""

    @property
    @abstractmethod
    def repeats(self) -> int:
        """The number of steps."""

    def repeated(self, times: int) -> Self:
        """Return the event with ``times`` steps."""
        return replace(self, steps=times)  # type: ignore[call-arg]

    def gaussian_mu(self, adjacency: Adjacency) -> float | None:
        """Return the mu of all steps if every batch consists of all units, else None."""
        return self.unsampled(adjacency).mu if self.inclusion_probability == 1 else None

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return the mu of all steps if each of them used every unit."""
        return Unsampled(mu=adjacency.factor * math.sqrt(self.repeats) / self.noise_multiplier)

    def log_chance_of_no_contact(self) -> float:
        """Return the logarithm of the probability that a unit is in no batch."""
        q = self.inclusion_probability
        return self.repeats * math.log1p(-q) if q < 1 else -math.inf

    def spread(self) -> float:
        """Return the standard deviation of the loss of a step, at most that of an unsampled step."""
        sigma = self.relative_noise
        return min(self.inclusion_probability * math.sqrt(math.expm1(min(1 / sigma**2, 600.0))), 1 / sigma)

    def largest_loss(self) -> float:
        """Return the privacy loss of a step at ten standard deviations of the noise."""
        sigma = self.relative_noise
        exponent = (1 + 20 * sigma) / (2 * sigma**2)
        if exponent >= LARGEST_LOSS:
            return exponent
        return math.log1p(self.inclusion_probability * math.expm1(exponent))
