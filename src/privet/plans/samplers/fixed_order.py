"""Batches in a fixed public order, pass after pass."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice

from privet.checks import count
from privet.plans.contraction import ROUNDING, Descent
from privet.plans.samplers.base import Batch, Sampler, keep
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, GaussianRelease, LastIterate
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True, repr=False)
class FixedOrder(Sampler):
    """The ``n`` units in their given order, in batches of ``size``, ``passes`` times.

    The order is public and does not depend on the data. A unit takes part in one batch per pass, and given the past all
    other steps are the same on neighbouring datasets. The privacy loss is therefore that of ``passes`` Gaussian
    releases, not of all steps.

    Parameters
    ----------
    n : int
        Number of units to protect.
    passes : int
        How many times each unit is visited.
    size : int
        Units per batch.
    public : int
        Number of further units, at the end of the data, that need no protection. They are visited at the end of each
        pass.
    stop : int or None
        Number of batches after which the run ends early. None makes all passes.
    """

    n: int
    passes: int = 1
    size: int = 1
    public: int = 0
    stop: int | None = None

    name = "fixed order"

    def __post_init__(self) -> None:
        keep(self, passes=count("passes", self.passes), size=count("size", self.size), n=count("n", self.n))
        keep(self, public=count("public", self.public, at_least=0))
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be taken from n = {self.n} units")
        if self.stop is not None and count("stop", self.stop) > self.passes * self._batches_per_pass:
            raise ValueError(
                f"stop = {self.stop} exceeds the {self.passes * self._batches_per_pass} batches of all passes"
            )

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.stop is None:
            del shown["stop"]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def _batches_per_pass(self) -> int:
        return -(-self.n // self.size) - (-self.public // self.size)

    @property
    def implied_steps(self) -> int:
        """The number of batches of all passes, or up to the stop."""
        return self.passes * self._batches_per_pass if self.stop is None else self.stop

    @property
    def expected_n(self) -> int:
        """The number of all units, including the public ones."""
        return self.n + self.public

    def truncated(self, steps: int) -> "FixedOrder":
        """Return the same order, ending after ``steps`` batches."""
        return replace(self, stop=None if steps == self.passes * self._batches_per_pass else steps)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield consecutive slices, pass after pass."""
        self.check_n(n)
        yield from islice((batch for _ in range(self.passes) for batch in self._pass()), self.stop)

    def _pass(self) -> Iterator[slice]:
        """Yield the slices of one pass. No batch mixes private and public units."""
        for start, end in ((0, self.n), (self.n, self.n + self.public)):
            for first in range(start, end, self.size):
                yield slice(first, min(first + self.size, end))

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the composition of one Gaussian release per pass that was begun."""
        passes = -(-self.implied_steps // self._batches_per_pass)
        return GaussianRelease(adjacency.factor * math.sqrt(passes) / noise_multiplier)

    def last_iterate(self, noise_multiplier: float, steps: int, descent: Descent, reach: float | None) -> LastIterate:
        """Return the event of the last iterate: units visited late are hidden by fewer noises than earlier ones."""
        if self.stop is not None:
            raise ValueError(
                f"stop = {self.stop} ends the order early, and amplification by iteration is established for whole "
                'passes only. Leave stop out, or use release="all".'
            )
        return LastIterate(
            noise_multiplier,
            n=self.n,
            passes=self.passes,
            size=self.size,
            public=self.public,
            contraction=descent.contraction,
            step_size=descent.step_size,
            diameter=reach,
            secret=self.secret,
            rounding=ROUNDING,
        )

    def nominal_size(self, n: int) -> float:
        """Return the batch size; a shorter last batch is divided by it too."""
        return float(self.size)

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        passes = "once" if self.passes == 1 else f"{self.passes} times"
        public = f", {self.public} public ones at the end" if self.public else ""
        stop = "" if self.stop is None else f", up to step {self.stop}"
        return f"units are visited {passes} in a fixed public order, {self.size} per step{public}{stop}"
