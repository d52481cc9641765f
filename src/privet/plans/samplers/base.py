"""The interface of samplers, which draw the batches of a run and return their event; and full batches.

One class does both, so that the sampling that runs is the sampling that is accounted for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.checks import count
from privet.plans.contraction import ROUNDING, Descent
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, GaussianRelease, LastIterate, Secret
from privet.privacy.guarantees.guarantee import Assumption, Unit, assumed
from privet.privacy.noise.source import NoiseSource

Batch = NDArray[np.int64] | slice
"""Which units take part in a step: their indices, or a slice of them."""

ALL = slice(None)


class Sampler(ABC):
    """A way of choosing the units of each step.

    Attributes
    ----------
    name : str
        Name of the sampler in tables.
    adjacencies : tuple of Adjacency
        The notions of neighbouring datasets under which the sampler is accounted for. The first is the default.
    secret : Secret
        What the sampler draws and does not publish.
    public : int
        How many units at the end of the data need no protection.
    relies_on_row_order : bool
        Whether the batch of a unit depends on the unit's position in the data. The position must then not depend on
        what the units contain: in a sorted table, replacing one unit moves others to other positions, and thereby to
        other batches.
    """

    name: ClassVar[str]
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.REPLACE_ONE,)
    secret: ClassVar[Secret] = Secret.NOTHING
    public: int = 0

    @property
    def implied_steps(self) -> int | None:
        """The number of steps if the sampler determines it, else None."""
        return None

    @property
    def expected_n(self) -> int | None:
        """The number of units that the data must have if the sampler determines it, else None."""
        return None

    def check_n(self, n: int) -> None:
        """Raise unless the data has the number of units that the sampler was made for."""
        if self.expected_n not in (None, n):
            raise ValueError(f"the plan was made for n = {self.expected_n} units, the data has {n}")

    def checked_steps(self, steps: int | None, *, at_least: int = 1) -> int:
        """Return the number of steps of a plan: the given one, or the one that the sampler implies."""
        implied = self.implied_steps
        if implied is None:
            if steps is None:
                raise ValueError(f"{self!r} needs a number of steps")
            return count("steps", steps, at_least=at_least)
        if steps not in (None, implied):
            raise ValueError(f"{self!r} makes {implied} steps, not {steps}: leave steps out")
        return implied

    def truncated(self, steps: int) -> "Sampler":
        """Return the sampler of the first ``steps`` steps alone.

        The guarantee of a run that ended early is that of ``plan.truncated(steps)``.
        """
        return self

    @abstractmethod
    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the ``steps`` batches of a run over ``n`` units."""

    @abstractmethod
    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the event of ``steps`` noisy sums; the noise multiplier is relative to one unit's bound."""

    def last_iterate(self, noise_multiplier: float, steps: int, descent: Descent, reach: float | None) -> LastIterate:
        """Return the event of releasing nothing but the last iterate of a descent.

        ``reach`` is the diameter of the domain, if there is one, divided by how far one unit can move a step of size 1.
        """
        raise ValueError(
            f"amplification by iteration is established for full batches and fixed orders, not for {self!r}: use "
            'FullBatch, FixedOrder, RandomStop, RandomSkip or SecretOrder, or release="all"'
        )

    @abstractmethod
    def nominal_size(self, n: int) -> float:
        """Return the expected batch size for a public number ``n`` of units."""

    @property
    def batch_share(self) -> float:
        """The expected share of the protected units that a batch takes."""
        n = 1 if self.expected_n is None else self.expected_n - self.public
        return self.nominal_size(n) / n

    @property
    def relies_on_row_order(self) -> bool:
        """Whether the batch of a unit depends on the unit's position in the data."""
        return False

    def conditions(self, unit: Unit) -> tuple[Assumption, ...]:
        """Return what the accounting of the batches assumes about the data."""
        conditions: tuple[Assumption, ...] = ()
        if self.public:
            conditions += (
                assumed(f"the {self.public} public {unit}s need no protection and do not depend on the private ones"),
            )
        if self.relies_on_row_order:
            conditions += (
                assumed(
                    f"the order of the {unit}s does not depend on their content; for example, they are not sorted by "
                    "one of their values"
                ),
            )
        return conditions

    @abstractmethod
    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""


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
            rounding=ROUNDING,
        )

    def nominal_size(self, n: int) -> float:
        """Return ``n``."""
        return float(n)

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        return "every step uses every unit"


def common_adjacency(adjacency: Adjacency | None, *samplers: Sampler) -> Adjacency:
    """Return the adjacency of a plan with these samplers: the given one, or the first that all of them support."""
    shared = list(samplers[0].adjacencies)
    for other in samplers[1:]:
        shared = [each for each in shared if each in other.adjacencies]
    names = " and ".join(dict.fromkeys(map(repr, samplers)))
    if not shared:
        raise ValueError(f"{names} are accounted for under no common adjacency")
    if adjacency is None:
        return shared[0]
    if Adjacency(adjacency) not in shared:
        verb = "is" if len(samplers) == 1 else "are"
        raise ValueError(f"{names} {verb} accounted for under {' or '.join(shared)} adjacency, not {adjacency}")
    return Adjacency(adjacency)


def keep(sampler: Sampler, **checked: float) -> None:
    """Store checked fields of a frozen sampler as plain Python numbers."""
    for name, value in checked.items():
        object.__setattr__(sampler, name, value)
