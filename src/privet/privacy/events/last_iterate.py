"""The last iterate of noisy contractive steps over units in a fixed order: privacy amplification by iteration."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from privet.checks import count, delta_value, nonnegative, positive
from privet.privacy.analyses.fixed_order import VisitSchedule, place_mus, worst_place_mu
from privet.privacy.analyses.gaussian import averaged_deltas, averaged_epsilon, gdp_epsilon, gdp_epsilons
from privet.privacy.analyses.loss_distribution import repeated_distribution
from privet.privacy.analyses.loss_masses import coarser, mixture_losses
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event, Floats, GaussianRelease, Unsampled, checked_noise_multiplier

# Steps that contract strongly leave hardly any mu, even at the last place, but their rounding errors remain.
_LEAST_SHARE = 2.0**-13
_MOST_PROFILE_VALUES = 300_000  # computed within about half a second


class Secret(StrEnum):
    """The random choice of a run in a fixed order, which is secret during the run.

    A stop or a skip may be revealed afterwards. An order may be revealed only if it is drawn for data whose own order
    does not depend on its content.
    """

    NOTHING = "nothing"
    STOP = "stop"  # The run ends after a uniformly random number of steps.
    SKIP = "skip"  # The run begins after a uniformly random number of steps, up to half of them.
    ORDER = "order"  # The order of the units is uniformly random, and the same in every pass.


@dataclass(frozen=True)
class LastIterate(Event):
    """Only the last iterate of noisy contractive steps over ``n`` units in a fixed order, ``size`` units per step.

    Parameters
    ----------
    noise_multiplier : float
    n, passes, size : int
        A full-batch descent has ``n = size = 1`` and one pass per step, because all units are treated alike.
    public : int
        Units that need no protection, visited after the others in each pass.
    contraction, step_size : float, or tuple with one number per step
        Lipschitz constants and sizes of the steps. Only the ratios of the sizes, to each other and to ``diameter``,
        matter.
    diameter : float or None
        Diameter of the ball onto which iterates are projected, divided by the most that one unit can change a step of
        size 1.
    secret : Secret
    runs : int
        How many such runs were made, each with its own noise and secrets.
    rounding : float
        What a run in floating-point arithmetic is charged for its rounding errors, as a share of the mu of the worst
        place plus 2^-13 of the mu of a visible step. It is added to the mu of every place: docs/proofs.md, section 16.
        Plans set it, and solvers keep the errors below it. 0 stands for steps in real numbers.
    shuffled : bool
        Whether each run drew a uniformly random order of the units and kept it secret. This changes no epsilon, but a
        unit's position in the data then says nothing about its place in the order.
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
    rounding: float = 0.0
    shuffled: bool = False

    adjacencies: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.REPLACE_ONE})
    is_repeatable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        counts = {name: count(name, getattr(self, name)) for name in ("n", "passes", "size", "runs")}
        counts["public"] = count("public", self.public, at_least=0)
        self._keep(noise_multiplier=checked_noise_multiplier(self.noise_multiplier), **counts)
        self._keep(rounding=nonnegative("rounding", self.rounding))
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be taken from n = {self.n} units")
        if self.diameter is not None:
            self._keep(diameter=positive("diameter", self.diameter))
        object.__setattr__(self, "secret", Secret(self.secret))
        if not isinstance(self.shuffled, bool):
            raise ValueError(f"shuffled must be True or False, got {self.shuffled!r}")
        for name, check in (("contraction", nonnegative), ("step_size", positive)):
            value = getattr(self, name)
            if isinstance(value, Sequence):
                if len(value) != self.steps:
                    raise ValueError(f"{name} needs one number for each of {self.steps} steps, got {len(value)}")
                object.__setattr__(self, name, _checked_all(name, value, check))
            else:
                self._keep(**{name: check(name, value)})
        if np.max(self.contraction) > 1:
            raise ValueError(
                f"contraction must be at most 1, got {np.max(self.contraction):.8g}: expanding steps are not private"
            )
        self._check_secret()

    def _check_secret(self) -> None:
        is_uniform = not isinstance(self.contraction, tuple) and not isinstance(self.step_size, tuple)
        if self.secret in (Secret.STOP, Secret.SKIP) and not is_uniform:
            raise ValueError(f"a secret {self.secret} is analysed for steps of one size only")
        if self.secret in (Secret.STOP, Secret.SKIP) and self.passes > 1:
            raise ValueError(f"a secret {self.secret} is analysed for one pass only, got passes = {self.passes}")
        if self.secret is Secret.STOP and self.public:
            raise ValueError("a secret stop may come before public units are reached: it is analysed for public = 0")

    @property
    def steps(self) -> int:
        """Number of steps of a run."""
        return self.passes * (self.places + -(-self.public // self.size))

    @property
    def places(self) -> int:
        """Number of steps of a pass that visit private units."""
        return -(-self.n // self.size)

    @property
    def repeats(self) -> int:
        """The number of runs."""
        return self.runs

    def repeated(self, times: int) -> "LastIterate":
        """Return the event with ``times`` runs."""
        return replace(self, runs=times)

    def gaussian_mu(self, adjacency: Adjacency) -> float | None:
        """Return the mu of all runs, or None for a secret stop or order.

        A secret skip does not lower the mu, because the last unit is never skipped.
        """
        return self.unsampled(adjacency).mu if self.secret in (Secret.NOTHING, Secret.SKIP) else None

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return a mu for which all runs together are mu-GDP, even if their secrets are known."""
        return Unsampled(mu=self._worst_mu() * math.sqrt(self.runs))

    def closed_form_epsilon(self, delta: float, other_mu: float = 0.0) -> float | None:
        """Return the epsilon of the averaged Gaussian profile of one run, None for several runs."""
        mus, chances = self.mixture()
        return averaged_epsilon(np.hypot(mus, other_mu), chances, delta) if self.runs == 1 else None

    def closed_form_deltas(self, epsilons: Floats, other_mu: float = 0.0) -> Floats | None:
        """Return the averaged Gaussian profile of one run, None for several runs."""
        if self.runs > 1:
            return None
        mus, chances = self.mixture()
        if mus.size * epsilons.size > _MOST_PROFILE_VALUES:
            mus, chances = coarser(mus, chances)
        if other_mu > 0:  # Units that are hidden completely by one release are seen in the other.
            mus, chances = np.append(mus, 0.0), np.append(chances, max(1 - chances.sum(), 0.0))
        return averaged_deltas(np.hypot(mus, other_mu), chances, epsilons)

    def renyi(self, adjacency: Adjacency, orders: Floats) -> Floats:
        """Average the moments over the secret: "Privacy Amplification by Iteration", Lemma 25, without its slack."""
        mus, chances = self.mixture()
        moments = (orders * (orders - 1))[:, None] * mus**2 / 2
        return self.runs * np.asarray(logsumexp(moments, b=chances, axis=1) / (orders - 1), dtype=np.float64)

    def spread(self) -> float:
        """Return the standard deviation of the loss of a run."""
        mus, chances = self.mixture()
        return math.sqrt(chances @ mus**2)

    def largest_loss(self) -> float:
        """Return the privacy loss of a run at ten standard deviations of the noise, for the worst secret choice."""
        mu = float(self.mixture()[0].max())
        return mu**2 / 2 + 10 * mu

    def loss_distribution(self, interval: float) -> Any:
        """Return the loss distribution of all runs."""
        return repeated_distribution(mixture_losses(*self.mixture(), interval), interval, self.runs)

    @property
    def distinguishes_records(self) -> bool:
        """Whether there are several records: those visited early are hidden by more noise."""
        return self.n > 1

    @property
    def is_by_row(self) -> bool:
        """Whether :meth:`record_epsilons` are in the order of the data. A secret order makes all of them equal."""
        return not self.shuffled or self.secret is Secret.ORDER

    def record_epsilons(self, delta: float, other_mu: float = 0.0) -> Floats | None:
        """Return the epsilon of each of the n units, in the order in which they are visited.

        A secret is analysed for one run. Several runs that are shuffled visit the units in different orders.
        """
        delta_value(delta)
        if self.shuffled and self.runs > 1:
            return None
        mus = self.place_mus()
        if self.secret is Secret.NOTHING:
            epsilons = gdp_epsilons(np.hypot(mus * math.sqrt(self.runs), other_mu), delta)
            return np.repeat(epsilons, self.size)[: self.n]
        if self.secret is Secret.ORDER:  # Every unit may have any place.
            epsilon = self.closed_form_epsilon(delta, other_mu)
            return None if epsilon is None else np.full(self.n, epsilon)
        if self.runs > 1 or other_mu > 0:
            return None
        if self.secret is Secret.STOP:
            return np.repeat(_stopped_epsilons(mus, delta), self.size)[: self.n]
        # A unit is skipped with some probability, and is otherwise as exposed as without skips.
        taken = np.minimum(np.arange(1, self.places + 1) / (self.steps // 2 + 1), 1.0)
        seen = [gdp_epsilon(mu, min(delta / share, 1 - 1e-16)) for mu, share in zip(mus, taken, strict=True)]
        return np.repeat(seen, self.size)[: self.n]

    def local(self) -> GaussianRelease | None:
        """Return the Gaussian releases of a person's own steps, one per pass and run, if a step uses one record.

        "Privacy Amplification by Iteration", Lemma 27: given the state before it, a step releases the person's gradient
        with noise. The steps of others do not use the person's record, so that nothing they make of a state that is
        seen reveals more. A secret stop or skip may leave the person out, which depends on no record. (``n = 1`` stands
        for full batches, whose steps use the records of all persons.)
        """
        if self.size > 1 or self.n == 1:
            return None
        # Rounding errors are charged relative to the last step. In a step with less noise they count for more.
        sizes = self.step_size if isinstance(self.step_size, tuple) else (self.step_size,)
        mu = 2 / self.noise_multiplier + self.rounding_mu() * sizes[-1] / min(sizes)
        return GaussianRelease(mu * math.sqrt(self.passes * self.runs))

    def place_mus(self) -> Floats:
        """Return the mu of the units of each place in the order, for one run whose order and length are known."""
        return place_mus(self._schedule()) / self.noise_multiplier + self.rounding_mu()

    def rounding_mu(self) -> float:
        """Return the part of every mu of one run that pays for rounding errors."""
        return self.rounding * (self._ideal_mu() + _LEAST_SHARE * 2 / self.noise_multiplier)

    def mixture(self) -> tuple[Floats, Floats]:
        """Return mus and their probabilities: the profile of one run is at most the average of these profiles.

        Given the secret, the place and the length of the run are known, and divergences of mixtures are at most the
        average of the divergences. With a secret stop the first unit is worst: it is as exposed as any other after as
        many steps, and it is reached most often. With a secret skip the last unit is worst: it is skipped least.
        """
        if self.secret in (Secret.NOTHING, Secret.SKIP):
            return np.array([self._worst_mu()]), np.ones(1)
        mus = self.place_mus()
        return mus, self._place_chances() if self.secret is Secret.ORDER else np.full(mus.size, 1 / mus.size)

    def _worst_mu(self) -> float:
        return self._ideal_mu() + self.rounding_mu()

    def _ideal_mu(self) -> float:
        """Return the mu of the worst place if steps are made in real numbers."""
        return worst_place_mu(self._schedule()) / self.noise_multiplier

    def _schedule(self) -> VisitSchedule:
        length = self.steps // self.passes
        return VisitSchedule(self.places, length, self.passes, self.contraction, self.step_size, self.diameter)

    def _place_chances(self) -> Floats:
        """Return the probability of each place under a random order: the last batch may be smaller."""
        sizes = np.full(self.places, self.size, dtype=np.float64)
        sizes[-1] = self.n - self.size * (self.places - 1)
        return sizes / self.n


def _checked_all(name: str, values: Sequence[float], check: Callable[[str, float], float]) -> tuple[float, ...]:
    """Return the numbers as a tuple. Of plain floats only the extremes are checked, because schedules are long."""
    if all(type(value) is float for value in values) and not any(map(math.isnan, values)):
        check(name, min(values))
        check(name, max(values))
        return tuple(values)
    return tuple(check(name, value) for value in values)


def _stopped_epsilons(mus: Floats, delta: float) -> Floats:
    """Return the epsilon of each place under a secret stop.

    Of many places only some are computed. The others get the larger epsilon of the computed place before them.
    """
    places = mus.size
    tried = np.unique(np.linspace(0, places - 1, min(places, 200)).astype(int))
    # A unit at place p sees k = 1 ... places - p steps from its own on, with mus[places - k].
    found = [averaged_epsilon(*coarser(mus[place:], np.full(places - place, 1 / places)), delta) for place in tried]
    return np.asarray(found)[np.searchsorted(tried, np.arange(places), side="right") - 1]
