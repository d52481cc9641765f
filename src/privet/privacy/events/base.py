"""The questions that an analysis may ask of a private release; compositions; and Gaussian releases without sampling.

Every noise multiplier is the standard deviation of the noise divided by the **bound C on one unit's contribution** to
the sum, under every adjacency. :attr:`Adjacency.factor` says how far neighbouring sums lie apart, C or 2C, and each
event applies it in its answers. (dp-accounting has two conventions for this: see
:mod:`privet.privacy.analyses.accounting`.)
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privet.checks import delta_value, nonnegative, positive
from privet.privacy.analyses.loss_distribution import gaussian_distribution
from privet.privacy.budget import Adjacency

Floats = NDArray[np.float64]

# Outside these ranges a release is practically public or practically empty, and floating point cannot analyse it.
LEAST_NOISE, MOST_NOISE = 1e-3, 1e12
LARGEST_MU = 1e9


class Unsampled(NamedTuple):
    """A bound without amplification: the release is a mu-GDP release together with an (epsilon, delta)-DP one."""

    mu: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0


@dataclass(frozen=True)
class Event:
    """A private release.

    A subclass is a frozen dataclass. It overrides the class attributes and methods below with its own answers; the
    analyses ask nothing else. The default of a method is either an answer that is safe for every event, or an error
    that names the analysis and the event.

    Attributes
    ----------
    adjacencies : frozenset of Adjacency
        The adjacencies under which the answers hold.
    is_repeatable : bool
        Whether :meth:`repeated` works, so that equal events are merged into one.
    is_black_box : bool
        Whether nothing but an (epsilon, delta) is known. The privacy losses of such events are rounded up.
    has_noise : bool
        Whether the release has noise. Without it, epsilon is infinite.
    kinds : dict
        All events by name. A subclass whose name begins with an underscore is a base class and not registered.
    """

    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset(Adjacency)
    is_repeatable: ClassVar[bool] = False
    is_black_box: ClassVar[bool] = False
    has_noise: ClassVar[bool] = True
    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            Event.kinds[cls.__name__] = cls

    def leaves(self) -> tuple["Event", ...]:
        """Return the elementary releases that this event consists of."""
        return (self,)

    @property
    def repeats(self) -> int:
        """The number of identical, independent parts of the event, such as the steps of a training."""
        return 1

    def repeated(self, times: int) -> "Event":
        """Return the event that consists of ``times`` such parts. Needed where ``is_repeatable``."""
        raise self.not_covered("repeated")

    @property
    def approximation_error(self) -> float:
        """A bound on the total variation distance between what ran and what the other answers describe."""
        return 0.0

    def gaussian_mu(self, adjacency: Adjacency) -> float | None:
        """Return the mu of an event that is exactly mu-GDP up to its approximation error, None for other events."""
        return None

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return a bound that ignores random sampling and secret orders, for all parts of the event together."""
        raise self.not_covered("unsampled")

    def log_chance_of_no_contact(self) -> float:
        """Return the logarithm of the probability that a given unit is never used. By default every unit is used."""
        return -np.inf

    def closed_form_epsilon(self, delta: float, other_mu: float = 0.0) -> float | None:
        """Return the epsilon of this event by a formula that is tighter than the analyses, or None.

        ``other_mu`` is the mu of all Gaussian releases that were made in addition to this event.
        """
        return None

    def closed_form_deltas(self, epsilons: Floats, other_mu: float = 0.0) -> Floats | None:
        """Return the delta of this event at each epsilon, where :meth:`closed_form_epsilon` has an answer, or None."""
        return None

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Return a bound on the Renyi divergence at each order; for a black box, outside an event of chance delta."""
        raise self.not_covered("rdp")

    def spread(self) -> float:
        """Return the approximate standard deviation of the privacy loss of one part."""
        raise self.not_covered("pld")

    def largest_loss(self) -> float:
        """Return a privacy loss that one part hardly ever exceeds: the loss at ten standard deviations of the noise."""
        raise self.not_covered("pld")

    def loss_distribution(self, interval: float) -> Any:
        """Return the privacy loss distribution of all parts as a dp-accounting object, rounded up to the grid."""
        raise self.not_covered("pld")

    @property
    def distinguishes_records(self) -> bool:
        """Whether the guarantee differs from record to record."""
        return False

    @property
    def is_by_row(self) -> bool:
        """Whether :meth:`record_epsilons` are in the order of the data."""
        return True

    def record_epsilons(self, delta: float, other_mu: float = 0.0) -> Floats | None:
        """Return the epsilon of each record, or None where it is not known.

        ``other_mu`` is the mu of all Gaussian releases that were made from the same records in addition to this event.
        """
        return None

    def local(self) -> "Event | None":
        """Return what is revealed to whoever sees the state after every step, if each person makes their own step.

        None if the event does not consist of such steps, each of which uses the record of one person.
        """
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary that :func:`event_from_dict` reads back."""
        return {"kind": type(self).__name__, **asdict(self)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the event with the fields of :meth:`to_dict`, without the kind."""
        return cls(**fields)

    def not_covered(self, analysis: str) -> ValueError:
        """Return the error for an analysis that has no bound for this event."""
        return ValueError(f"the analysis {analysis!r} does not cover {type(self).__name__}")

    def _keep(self, **checked: float) -> None:
        """Store checked fields as plain Python numbers."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Composition(Event):
    """Several releases on the same data, each of which may depend on the outcomes of the earlier ones.

    The accountant analyses its :meth:`leaves`, so a composition itself answers no other question.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, Event):
                raise ValueError(f"a composition must consist of events, got {event!r}")

    def leaves(self) -> tuple[Event, ...]:
        """Return the elementary releases of all parts, in order."""
        found: list[Event] = []
        for event in self.events:
            found += event.leaves()
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary that :func:`event_from_dict` reads back."""
        events = []
        for event in self.events:
            events.append(event.to_dict())
        return {"kind": "Composition", "events": events}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the composition with the fields of :meth:`to_dict`."""
        return cls(tuple(event_from_dict(event) for event in fields["events"]))


@dataclass(frozen=True)
class GaussianRelease(Event):
    """A release that is exactly mu-Gaussian-DP, for instance T full-batch steps with mu = factor * sqrt(T) / z."""

    mu: float

    def __post_init__(self) -> None:
        mu = nonnegative("mu", self.mu)
        if mu > LARGEST_MU:
            raise ValueError(f"mu must be at most {LARGEST_MU:g}, got {mu:g}: there is hardly any noise")
        object.__setattr__(self, "mu", mu)

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
        self._keep(mu=GaussianRelease(self.mu).mu, distance=delta_value(self.distance))

    def gaussian_mu(self, adjacency: Adjacency) -> float:
        """Return the mu of the Gaussian release that it is close to."""
        return self.mu

    @property
    def approximation_error(self) -> float:
        """The distance from that Gaussian release."""
        return self.distance


def event_from_dict(fields: Mapping[str, Any]) -> Event:
    """Read an event back from :meth:`Event.to_dict`. Raise ValueError if its kind is unknown."""
    if not isinstance(fields, Mapping):
        raise ValueError(f"an event must be a JSON object, got {fields!r}")
    values = dict(fields)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in Event.kinds:
        raise ValueError(f"unknown event {kind!r}: known are {', '.join(sorted(Event.kinds))}")
    return Event.kinds[kind].from_fields(values)


def checked_noise_multiplier(value: float) -> float:
    """Return ``value`` as a float if it is a noise multiplier that can be analysed, else raise ValueError."""
    if not LEAST_NOISE <= positive("noise_multiplier", value) <= MOST_NOISE:
        raise ValueError(f"noise_multiplier must lie in [{LEAST_NOISE:g}, {MOST_NOISE:g}], got {value:g}")
    return float(value)
