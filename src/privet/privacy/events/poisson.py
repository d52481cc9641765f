"""Gaussian noise on sums over Poisson batches."""

from dataclasses import dataclass
from typing import Any, ClassVar

from privet.checks import count, probability
from privet.privacy.analyses.loss_distribution import poisson_distribution
from privet.privacy.analyses.renyi import poisson_rdp
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Floats, checked_noise_multiplier
from privet.privacy.events.sampled import _SampledGaussian


@dataclass(frozen=True)
class PoissonGaussian(_SampledGaussian):
    """``steps`` noisy sums, each over a batch that contains every unit independently with probability ``rate``."""

    rate: float
    steps: int

    # Under replace-one adjacency the worst pair of a composition of Poisson batches is unknown: nothing is claimed.
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.ADD_OR_REMOVE})

    def __post_init__(self) -> None:
        rate, steps = probability("rate", self.rate), count("steps", self.steps)
        self._keep(noise_multiplier=checked_noise_multiplier(self.noise_multiplier), rate=rate, steps=steps)

    @property
    def inclusion_probability(self) -> float:
        """The rate."""
        return self.rate

    @property
    def relative_noise(self) -> float:
        """The noise multiplier: adding or removing a unit moves a sum by up to C."""
        return self.noise_multiplier

    @property
    def repeats(self) -> int:
        """The number of steps."""
        return self.steps

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Return the divergences of all steps, computed by dp-accounting."""
        return self.steps * poisson_rdp(self.relative_noise, self.rate, orders)

    def loss_distribution(self, interval: float) -> Any:
        """Return the loss distribution of all steps."""
        return poisson_distribution(self.noise_multiplier, self.rate, self.steps, interval)
