"""Releases of which only an epsilon, or an (epsilon, delta), is known."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privet.checks import delta_value, nonnegative, positive
from privet.privacy.analyses.loss_distribution import black_box_distribution
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event, Floats, Unsampled


@dataclass(frozen=True)
class _BlackBox(Event):
    """The answers of an (epsilon, delta) release, which is dominated by randomised response outside a rare event."""

    epsilon: float
    is_black_box: ClassVar[bool] = True

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return the epsilon, which is added up."""
        return Unsampled(epsilon=self.epsilon)

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Return the exact Renyi divergences of randomised response.

        It is the worst epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015). An (epsilon, delta) release is such a
        mechanism outside an event of probability delta, which ``renyi_epsilon`` subtracts from the target.
        """
        log_p, log_q = -np.logaddexp(0.0, -self.epsilon), -np.logaddexp(0.0, self.epsilon)
        one = orders * log_p + (1 - orders) * log_q
        other = orders * log_q + (1 - orders) * log_p
        return np.asarray(np.logaddexp(one, other) / (orders - 1), dtype=np.float64)

    def spread(self) -> float:
        """Return epsilon: the privacy loss is epsilon or -epsilon."""
        return self.epsilon

    def largest_loss(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def loss_distribution(self, interval: float) -> Any:
        """Return the loss distribution of the worst mechanism with these parameters."""
        return black_box_distribution(self.epsilon, self.unsampled(Adjacency.REPLACE_ONE).delta, interval)


@dataclass(frozen=True)
class PureRelease(_BlackBox):
    """A release with pure epsilon-DP, for instance K-norm noise."""

    def __post_init__(self) -> None:
        self._keep(epsilon=positive("epsilon", self.epsilon))


@dataclass(frozen=True)
class ApproximateRelease(_BlackBox):
    """A release of which nothing but its (epsilon, delta) is known."""

    delta: float

    def __post_init__(self) -> None:
        self._keep(epsilon=nonnegative("epsilon", self.epsilon), delta=delta_value(self.delta))

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return epsilon and delta, which are added up."""
        return Unsampled(epsilon=self.epsilon, delta=self.delta)
