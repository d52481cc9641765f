"""Releases of which only an epsilon, or an (epsilon, delta), is known."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from privet.checks import count, delta_value, nonnegative, positive
from privet.privacy.analyses.loss_distribution import black_box_distribution
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event, Floats, Unsampled


@dataclass(frozen=True)
class _BlackBox(Event):
    """The answers of (epsilon, delta) releases, which are dominated by randomised response outside a rare event.

    ``times`` such releases are one event, so that thousands of them in a ledger compose as fast as one.
    """

    epsilon: float
    is_black_box: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = True

    @property
    @abstractmethod
    def repeats(self) -> int:
        """The number of releases."""

    @property
    def rare(self) -> float:
        """The delta of one release."""
        return 0.0

    def repeated(self, times: int) -> Self:
        """Return the event of ``times`` releases."""
        return replace(self, times=times)  # type: ignore[call-arg]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary. A single release is written as versions without ``times`` did."""
        fields = super().to_dict()
        if self.repeats == 1:
            del fields["times"]
        return fields

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return epsilon and delta, which are added up."""
        return Unsampled(epsilon=self.repeats * self.epsilon, delta=self.repeats * self.rare)

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Return the exact Renyi divergences of randomised response.

        It is the worst epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015). An (epsilon, delta) release is such a
        mechanism outside an event of probability delta, which ``renyi_epsilon`` subtracts from the target.
        """
        log_p, log_q = -np.logaddexp(0.0, -self.epsilon), -np.logaddexp(0.0, self.epsilon)
        one = orders * log_p + (1 - orders) * log_q
        other = orders * log_q + (1 - orders) * log_p
        return np.asarray(self.repeats * np.logaddexp(one, other) / (orders - 1), dtype=np.float64)

    def spread(self) -> float:
        """Return epsilon: the privacy loss is epsilon or -epsilon."""
        return self.epsilon

    def largest_loss(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def loss_distribution(self, interval: float) -> Any:
        """Return the loss distribution of the worst mechanism with these parameters."""
        return black_box_distribution(self.epsilon, self.rare, self.repeats, interval)


@dataclass(frozen=True)
class PureRelease(_BlackBox):
    """Releases with pure epsilon-DP, for instance K-norm noise."""

    times: int = 1

    def __post_init__(self) -> None:
        self._keep(epsilon=positive("epsilon", self.epsilon), times=count("times", self.times))

    @property
    def repeats(self) -> int:
        """The number of releases."""
        return self.times


@dataclass(frozen=True)
class ApproximateRelease(_BlackBox):
    """Releases of which nothing but the (epsilon, delta) of each is known."""

    delta: float
    times: int = 1

    def __post_init__(self) -> None:
        self._keep(epsilon=nonnegative("epsilon", self.epsilon), delta=delta_value(self.delta))
        self._keep(times=count("times", self.times))

    @property
    def repeats(self) -> int:
        """The number of releases."""
        return self.times

    @property
    def rare(self) -> float:
        """The delta of one release."""
        return self.delta
