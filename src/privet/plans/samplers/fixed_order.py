"""Batches in a fixed order, the same in every pass: the order of the data, or one that is drawn."""

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
    """The ``n`` units in one order, in batches of ``size``, ``passes`` times.

    A unit takes part in one batch per pass. If the order of the units does not depend on their content, then given the
    past all other steps are the same on neighbouring datasets. The privacy loss is therefore that of ``passes``
    Gaussian releases, not of all steps (docs/proofs.md, section 3).

    Guarantees list this condition on the order as *assumed*. It fails for a table that is sorted by a column: replacing
    one record shifts all rows between its old and its new place, so that up to every batch changes. With
    ``shuffled=True`` no such condition is needed.

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
    shuffled : bool
        Whether each run draws a uniformly random order of the private units and keeps it secret. Otherwise the order
        is that of the data. The accounting is the same for both.
    """

    n: int
    passes: int = 1
    size: int = 1
    public: int = 0
    stop: int | None = None
    shuffled: bool = False

    name = "fixed order"

    def __post_init__(self) -> None:
        keep(self, passes=count("passes", self.passes), size=count("size", self.size), n=count("n", self.n))
        keep(self, public=count("public", self.public, at_least=0))
        if self.size > self.n:
            raise ValueError(f"a batch of size {self.size} cannot be taken from n = {self.n} units")
        if self.stop is not None and count("stop", self.stop) > self.passes * self.batches_per_pass:
            raise ValueError(
                f"stop = {self.stop} exceeds the {self.passes * self.batches_per_pass} batches of all passes"
            )

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        for rare in ("stop", "shuffled"):
            if not shown.get(rare):
                shown.pop(rare, None)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def batches_per_pass(self) -> int:
        """The number of batches after which the same batches come again."""
        return -(-self.n // self.size) - (-self.public // self.size)

    @property
    def implied_steps(self) -> int:
        """The number of batches of all passes, or up to the stop."""
        return self.passes * self.batches_per_pass if self.stop is None else self.stop

    @property
    def expected_n(self) -> int:
        """The number of all units, including the public ones."""
        return self.n + self.public

    def truncated(self, steps: int) -> "FixedOrder":
        """Return the same order, ending after ``steps`` batches."""
        passes, remainder = divmod(steps, self.batches_per_pass)
        is_whole = remainder == 0 and 1 <= passes <= self.passes
        return replace(self, passes=passes, stop=None) if is_whole else replace(self, stop=steps)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield slices of the data, or of the drawn order as arrays, pass after pass. Public units are not shuffled."""
        self.check_n(n)
        order = source.permutation(self.n) if self.shuffled else None
        for batch in islice((batch for _ in range(self.passes) for batch in self._pass()), self.stop):
            # A batch keeps the drawn order. If it were sorted, the rounding of its sum could depend on other batches.
            yield batch if order is None or batch.start >= self.n else order[batch]

    def _pass(self) -> Iterator[slice]:
        """Yield the slices of one pass. No batch mixes private and public units."""
        for start, end in ((0, self.n), (self.n, self.n + self.public)):
            for first in range(start, end, self.size):
                yield slice(first, min(first + self.size, end))

    def event(self, noise_multiplier: float, steps: int, adjacency: Adjacency) -> Event:
        """Return the composition of one Gaussian release per pass that was begun."""
        passes = -(-self.implied_steps // self.batches_per_pass)
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
            shuffled=self.shuffled,
            rounding=ROUNDING,
        )

    @property
    def relies_on_row_order(self) -> bool:
        """Whether a pass takes several batches by position in the data."""
        return self.size < self.n and not self.shuffled

    def nominal_size(self, n: int) -> float:
        """Return the batch size; a shorter last batch is divided by it too."""
        return float(self.size)

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        passes = "once" if self.passes == 1 else f"{self.passes} times"
        public = f", {self.public} public ones at the end" if self.public else ""
        stop = "" if self.stop is None else f", up to step {self.stop}"
        order = "one uniformly random order that is kept secret" if self.shuffled else "a fixed public order"
        return f"units are visited {passes} in {order}, {self.size} per step{public}{stop}"
