"""Releases with Gaussian noise and without sampling."""

from dataclasses import dataclass
from typing import Any

from privet.checks import delta_value, nonnegative
from privet.privacy.analyses.loss_distribution import gaussian_distribution
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import LARGEST_MU, Event, Floats, Unsampled


@dataclass(frozen=True)
class GaussianRelease(Event):
    """A release that is exactly mu-Gaussian-DP, for instance T full-batch steps with mu = factor * sqrt(T) / z."""

    mu: float

    def __post_init__(self) -> None:
        self._keep(mu=_checked_mu(self.mu))

    def gaussian_mu(self, adjacency: Adjacency) -> float:
        """Return mu."""
        return self.mu

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return mu: there is no sampling to ignore."""
        return Unsampled(mu=self.mu)

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Return the exact Renyi divergences of two Gaussians."""
        return orders * (self.mu**2 / 2)

    def spread(self) -> float:
        """Return mu, the exact standard deviation of the privacy loss."""
        return self.mu

    def largest_loss(self) -> float:
        """Return the mean of the privacy loss plus ten standard deviations."""
        return self.mu**2 / 2 + 10 * self.mu

    def loss_distribution(self, interval: float) -> Any:
        """Return the loss distribution of the Gaussian mechanism."""
        return gaussian_distribution(self.mu, interval)


@dataclass(frozen=True)
class NearlyGaussian(Event):
    """A release that is, on every dataset, within a total variation ``distance`` of a mu-GDP one.

    Noise on a lattice (:mod:`privet.privacy.noise.lattice`) is of this kind: it differs from a Gaussian in its far
    tails. The accountant replaces the event by the Gaussian release and pays for the distance with a part of delta.
    """

    mu: float
    distance: float

    def __post_init__(self) -> None:
        self._keep(mu=_checked_mu(self.mu), distance=delta_value(self.distance))

    def gaussian_mu(self, adjacency: Adjacency) -> float:
        """Return the mu of the Gaussian release that it is close to."""
        return self.mu

    @property
    def approximation_error(self) -> float:
        """The distance from that Gaussian release."""
        return self.distance


def _checked_mu(value: float) -> float:
    mu = nonnegative("mu", value)
    if mu > LARGEST_MU:
        raise ValueError(f"mu must be at most {LARGEST_MU:g}, got {mu:g}: there is hardly any noise")
    return mu
