"""What was released, as data: the small algebra that the accountant walks.

Every noise multiplier here is the standard deviation of the noise divided by the **bound C on one unit's contribution**
to the sum, whatever the adjacency. How far neighbours lie apart, C or 2C, is :attr:`Adjacency.factor`, and it is
applied by the analysis of each event. (dp-accounting has two conventions for this: see
:mod:`privet.privacy.analyses.accounting`.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from privet.checks import count, delta_value, nonnegative, positive, probability
from privet.privacy.budget import Adjacency

# Outside these ranges a release is public or empty for all purposes, and its analysis beyond floating point.
LEAST_NOISE, MOST_NOISE = 1e-3, 1e12
LARGEST_MU = 1e9


@dataclass(frozen=True)
class Event:
    """A private release. Subclasses say which one; :attr:`adjacencies` says where its analysis holds."""

    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset(Adjacency)
    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls) -> None:
        Event.kinds[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary that :func:`event_from_dict` reads back."""
        return {"kind": type(self).__name__, **asdict(self)}

    def _keep(self, **checked: float) -> None:
        """Store checked fields as plain Python numbers."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class GaussianRelease(Event):
    """A release that is exactly mu-Gaussian-DP, for instance T full-batch steps with mu = factor * sqrt(T) / z."""

    mu: float

    def __post_init__(self) -> None:
        self._keep(mu=nonnegative("mu", self.mu))
        if self.mu > LARGEST_MU:
            raise ValueError(f"mu must be at most {LARGEST_MU:g}, got {self.mu:g}: there is hardly any noise")


@dataclass(frozen=True)
class NearlyGaussian(Event):
    """A release that is, on every dataset, within a total variation ``distance`` of one that is mu-Gaussian-DP.

    Noise on a lattice (:mod:`privet.privacy.noise.lattice`) makes one: only its far tails are not a Gaussian's.
    """

    mu: float
    distance: float

    def __post_init__(self) -> None:
        self._keep(mu=nonnegative("mu", self.mu), distance=delta_value(self.distance))
        if self.mu > LARGEST_MU:
            raise ValueError(f"mu must be at most {LARGEST_MU:g}, got {self.mu:g}: there is hardly any noise")


@dataclass(frozen=True)
class PureRelease(Event):
    """A release with pure epsilon-DP, for instance K-norm noise."""

    epsilon: float

    def __post_init__(self) -> None:
        self._keep(epsilon=positive("epsilon", self.epsilon))


@dataclass(frozen=True)
class ApproximateRelease(Event):
    """A release of which nothing is known but its (epsilon, delta)."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self._keep(epsilon=nonnegative("epsilon", self.epsilon), delta=delta_value(self.delta))


@dataclass(frozen=True)
class PoissonGaussian(Event):
    """``steps`` noisy sums, each over a batch that takes every unit independently with probability ``rate``."""

    noise_multiplier: float
    rate: float
    steps: int

    # Under replace-one the worst pair of a composition of Poisson batches is not settled, so it is not claimed here.
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.ADD_OR_REMOVE})

    def __post_init__(self) -> None:
        rate, steps = probability("rate", self.rate), count("steps", self.steps)
        self._keep(noise_multiplier=_noise_multiplier(self.noise_multiplier), rate=rate, steps=steps)


@dataclass(frozen=True)
class FixedSizeGaussian(Event):
    """``steps`` noisy sums, each over a uniformly random batch of ``size`` of the ``n`` units, without replacement."""

    noise_multiplier: float
    n: int
    size: int
    steps: int

    # A batch of fixed size exists only where n is public.
    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.REPLACE_ONE})

    def __post_init__(self) -> None:
        sizes = {"n": count("n", self.n), "size": count("size", self.size), "steps": count("steps", self.steps)}
        self._keep(noise_multiplier=_noise_multiplier(self.noise_multiplier), **sizes)
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be drawn from n = {self.n} units without replacement")

    @property
    def rate(self) -> float:
        """The chance that a given unit is in a given batch."""
        return self.size / self.n


class Secret(StrEnum):
    """What a run in a fixed order leaves to chance. It may be told afterwards: the analysis covers that."""

    NOTHING = "nothing"
    STOP = "stop"  # it ends after a uniformly random number of steps
    SKIP = "skip"  # it begins after a uniformly random number of steps, up to half of them
    ORDER = "order"  # the order of units is uniformly random, the same in every pass


@dataclass(frozen=True)
class LastIterate(Event):
    """Only the last iterate of noisy contractive steps over ``n`` units in a fixed order, ``size`` a step.

    Parameters
    ----------
    noise_multiplier : float
    n, passes, size : int
        A full-batch descent is one unit, one a step: all units are alike.
    public : int
        Units that need no protection, visited after the others in each pass.
    contraction, step_size : float, or tuple with one number a step
        Lipschitz constants of the steps; their sizes, of which only ratios (and that to ``diameter``) matter.
    diameter : float or None
        Of the ball onto which iterates are projected, over what one unit can move a step of size 1.
    secret : Secret
    runs : int
        How many such runs were made, each with its own noise and secrets.
    """

    noise_multiplier: float
    n: int
    passes: int = 1
    size: int = 1
    public: int = 0
    contraction: float | tuple[float, ...] = 1.0
    step_size: float | tuple[float, ...] = 1.0
    diameter: float | None = None
    secret: Secret = Secret.NOTHING
    runs: int = 1

    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.REPLACE_ONE})

    def __post_init__(self) -> None:
        counts = {name: count(name, getattr(self, name)) for name in ("n", "passes", "size", "runs")}
        counts["public"] = count("public", self.public, at_least=0)
        self._keep(noise_multiplier=_noise_multiplier(self.noise_multiplier), **counts)
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be taken from n = {self.n} units")
        if self.diameter is not None:
            self._keep(diameter=positive("diameter", self.diameter))
        object.__setattr__(self, "secret", Secret(self.secret))
        for name, check in (("contraction", nonnegative), ("step_size", positive)):
            value = getattr(self, name)
            if isinstance(value, Sequence):
                if len(value) != self.steps:
                    raise ValueError(f"{name} needs one number for each of {self.steps} steps, got {len(value)}")
                object.__setattr__(self, name, tuple(check(name, number) for number in value))
            else:
                self._keep(**{name: check(name, value)})
            if name == "contraction" and np.max(getattr(self, name)) > 1:
                raise ValueError("a contraction is at most 1: steps that expand hide nothing")
        is_uniform = not isinstance(self.contraction, tuple) and not isinstance(self.step_size, tuple)
        if self.secret is not Secret.NOTHING and not is_uniform:
            raise ValueError("a secret stop, skip or order is analysed for steps of one size only")
        if self.secret in (Secret.STOP, Secret.SKIP) and self.passes > 1:
            raise ValueError("a secret stop or skip is analysed for one pass")
        if self.secret is Secret.STOP and self.public:
            raise ValueError("a secret stop may come before public units are reached: it takes none")

    @property
    def steps(self) -> int:
        """Number of steps of a run."""
        return self.passes * (self.places + -(-self.public // self.size))

    @property
    def places(self) -> int:
        """Number of steps of a pass that visit private units."""
        return -(-self.n // self.size)


@dataclass(frozen=True)
class Composition(Event):
    """Several releases on the same data, each free to depend on the outcomes of those before it."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, Event):
                raise ValueError(f"a composition holds events, not {event!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary that :func:`event_from_dict` reads back."""
        return {"kind": "Composition", "events": [event.to_dict() for event in self.events]}

    def flat(self) -> tuple[Event, ...]:
        """Return the events that are not compositions themselves."""
        return tuple(leaf for event in self.events for leaf in leaves(event))


def _noise_multiplier(value: float) -> float:
    if not LEAST_NOISE <= positive("noise_multiplier", value) <= MOST_NOISE:
        raise ValueError(f"noise_multiplier must lie in [{LEAST_NOISE:g}, {MOST_NOISE:g}], got {value:g}")
    return float(value)


def leaves(event: Event) -> tuple[Event, ...]:
    """Return the elementary releases of an event."""
    return event.flat() if isinstance(event, Composition) else (event,)


def event_from_dict(fields: Mapping[str, Any]) -> Event:
    """Read an event back from :meth:`Event.to_dict`; an unknown kind is refused by name."""
    if not isinstance(fields, Mapping):
        raise ValueError(f"an event is a JSON object, not {fields!r}")
    values = dict(fields)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in Event.kinds:
        raise ValueError(f"unknown event {kind!r}: known are {', '.join(sorted(Event.kinds))}")
    if kind == "Composition":
        return Composition(tuple(event_from_dict(event) for event in values["events"]))
    return Event.kinds[kind](**values)
