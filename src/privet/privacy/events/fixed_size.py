"""Gaussian noise on sums over batches of a fixed size, drawn without replacement."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privet.checks import count
from privet.privacy.analyses.fixed_size import fixed_size_rdp
from privet.privacy.analyses.loss_distribution import repeated_distribution
from privet.privacy.analyses.loss_masses import fixed_size_losses
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Floats, checked_noise_multiplier
from privet.privacy.events.sampled import _SampledGaussian


@dataclass(frozen=True)
class FixedSizeGaussian(_SampledGaussian):
    """``steps`` noisy sums, each over a uniformly random batch of ``size`` of the ``n`` units, without replacement."""

    n: int
    size: int
    steps: int

    # A batch of fixed size exists only where n is public.
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.REPLACE_ONE})

    def __post_init__(self) -> None:
        sizes = {"n": count("n", self.n), "size": count("size", self.size), "steps": count("steps", self.steps)}
        self._keep(noise_multiplier=checked_noise_multiplier(self.noise_multiplier), **sizes)
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be drawn from n = {self.n} units without replacement")

    @property
    def rate(self) -> float:
        """The probability that a given unit is in a given batch."""
        return self.size / self.n

    @property
    def inclusion_probability(self) -> float:
        """The batch size over n."""
        return self.rate

    @property
    def relative_noise(self) -> float:
        """Half the noise multiplier: replacing a unit moves a sum by up to 2C."""
        return self.noise_multiplier / Adjacency.REPLACE_ONE.factor

    @property
    def repeats(self) -> int:
        """The number of steps."""
        return self.steps

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Return, for each order, the smaller of the amplified and the unsampled divergence of all steps.

        The minimum is valid because divergences are jointly quasi-convex: a uniformly random batch is a mixture of
        pairs none of which is worse than the unsampled pair (docs/proofs.md, section 2).
        """
        sigma = self.relative_noise
        unsampled = orders / (2 * sigma**2)
        if self.size == self.n:
            return self.steps * unsampled
        return self.steps * np.minimum(fixed_size_rdp(sigma, self.rate, orders), unsampled)

    def loss_distribution(self, interval: float) -> Any:
        """Return the loss distribution of all steps."""
        return repeated_distribution(fixed_size_losses(self.relative_noise, self.rate, interval), interval, self.steps)
