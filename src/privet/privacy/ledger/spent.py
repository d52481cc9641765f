"""What the entries of a ledger have spent together: how often each elementary event occurs.

The total of a ledger is computed from these counts, so that the thousandth fit of the same kind is checked as fast as
the first one.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from privet.privacy.analyses import accounting
from privet.privacy.budget import Budget
from privet.privacy.events import Event
from privet.privacy.guarantees.guarantee import Guarantee, check_composable
from privet.privacy.ledger.records import Records


class Spent:
    """The events of all entries that were read so far, each with its number of occurrences.

    Attributes
    ----------
    first : Guarantee or None
        The first guarantee. All others have its adjacency and its unit, since otherwise they would have no total.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.first: Guarantee | None = None
        self._counts: Counter[Event] = Counter()
        self._kinds: dict[str, Mapping[Event, int]] = {}
        self._last = 0
        self._last_id: str | None = None

    def update(self, records: Records) -> None:
        """Read the entries that were added since the last call. If the file is another one, read all of it."""
        if self._last and records.id_of(self._last) != self._last_id:
            self._forget()
        for number, digest in records.booked_after(self._last):
            self._last = number
            if digest is None:
                continue
            if digest not in self._kinds:
                guarantee = records.guarantee(digest)
                self.check_composable(guarantee)
                self.first = self.first or guarantee
                self._kinds[digest] = Counter(guarantee.event.leaves())
            self._counts.update(self._kinds[digest])
        self._last_id = records.id_of(self._last)

    def add(self, guarantee: Guarantee) -> None:
        """Add a guarantee that was read elsewhere."""
        self.check_composable(guarantee)
        self.first = self.first or guarantee
        self._counts.update(guarantee.event.leaves())

    def check_composable(self, guarantee: Guarantee) -> None:
        """Raise unless a guarantee has the adjacency and the unit of the others."""
        if self.first is not None:
            check_composable([self.first, guarantee])

    def allows(self, guarantee: Guarantee, limit: Budget) -> bool:
        """Return whether a further guarantee leaves the total within a limit."""
        bounds = accounting.epsilon_bounds(self._with(guarantee), guarantee.adjacency, limit.delta)
        return any(bound <= limit.epsilon for bound in bounds)

    def epsilon(self, delta: float, further: Guarantee | None = None) -> float:
        """Return the total epsilon, also with a further guarantee."""
        one = self.first or further
        if one is None:
            return 0.0
        counts = self._counts if further is None else self._with(further)
        return accounting.epsilon_of_counts(counts, one.adjacency, delta)

    def quick_epsilon(self, delta: float) -> float:
        """Return a bound on the total epsilon that is computed fast, for one of many lines."""
        if self.first is None:
            return 0.0
        return min(islice(accounting.epsilon_bounds(self._counts, self.first.adjacency, delta), 2))

    def _with(self, guarantee: Guarantee) -> Counter[Event]:
        counts = self._counts.copy()
        counts.update(guarantee.event.leaves())
        return counts
