"""A record of the budget spent on a data set, across runs and processes, and the limit that it must not exceed.

Record a guarantee *before* its noise is drawn: a crash may then waste budget, but never lose track of it.
"""

import os
import uuid
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path

from privet.privacy.budget import Budget, BudgetLike, as_budget
from privet.privacy.guarantees.guarantee import Guarantee, compose
from privet.privacy.ledger import database, text_file
from privet.privacy.ledger.lines import Entry, LimitChange, Line
from privet.privacy.ledger.records import Records, reading, writing
from privet.privacy.ledger.spent import Spent

LIMIT_DELTA = 1e-6
"""The delta of a limit that is given as an epsilon."""


class BudgetExceededError(ValueError):
    """The ledger's limit does not allow this release."""


class Ledger:
    """The record of all releases on one data set, in an SQLite file.

    Any number of processes and threads can use it at once. An entry is on disk before :meth:`spend` returns. A ledger
    in text form, which earlier versions wrote, becomes a database when something is booked; the text file is kept
    beside it, with ``.text`` after its name.

    Parameters
    ----------
    path : path
        The file, which is created by the first :meth:`spend`. Only its owner can read it, because labels may name
        files. It must be on a local disk, because SQLite's log cannot be used on network drives.
    limit : Budget, float, pair (epsilon, delta), or None
        The most that all entries together may spend. A single number is an epsilon at delta = 1e-6. The first
        :meth:`spend` stores it in the file, and from then on it binds everybody. A lower limit replaces the stored one.
        A higher one raises ``ValueError``: use :meth:`set_limit` for that. None keeps the stored limit.
    """

    def __init__(self, path: str | os.PathLike[str], limit: BudgetLike | None = None) -> None:
        self.path = Path(os.path.realpath(path))  # SQLite's log lies beside the file itself, not beside a link to it.
        self._given = None if limit is None else _as_limit(limit)
        self._spent = Spent()

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_given": self._given, "_spent": Spent()}

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    # ------------------------------------------------------------------------------------------------------- booking

    def spend(self, guarantee: Guarantee, label: str = "", *, run: str | None = None) -> Entry:
        """Record a guarantee and return its entry, which is on disk then.

        If this fails, for instance with :class:`BudgetExceededError`, the guarantee is not recorded.

        Parameters
        ----------
        guarantee : Guarantee
            Its epsilon is compared with its event.
        label : str
            What is released, for the time line.
        run : str or None
            The name of a run that can be interrupted and resumed. If it has an entry already, that entry is returned
            and nothing is recorded.
        """
        guarantee = guarantee.recomputed()  # Otherwise the ledger could not be read again.
        self._store_limit()
        entry = Entry(label, _now(), guarantee, uuid.uuid4().hex, run)
        with writing(self.path) as records:
            if run is not None and (earlier := records.of_run(run)) is not None:
                _check_same(earlier, guarantee, self.path.name)
                return earlier
            self._check(records, guarantee, records.limit())
            records.add(entry)
        return entry

    def check(self, guarantee: Guarantee | None = None, *, run: str | None = None) -> None:
        """Raise the error that :meth:`spend` would raise now, for instance if the limit is exceeded. Record nothing.

        Without a guarantee, check only that the ledger can be read, and that the limit is not above the stored one.
        """
        with reading(self.path) as records:
            limit = self._allowed(records.limit())
            if guarantee is None:
                self._spent.update(records)
            elif run is None or records.of_run(run) is None:
                self._check(records, guarantee.recomputed(), limit)

    def begin(self) -> None:
        """Create the file if it does not exist, and store the limit, so that errors occur before the first training."""
        self._store_limit()
        with writing(self.path):
            pass

    def set_limit(self, limit: BudgetLike, reason: str = "") -> LimitChange:
        """Set the limit, also above the stored one. The time line records it with the reason.

        Parameters
        ----------
        limit : Budget, float, or pair (epsilon, delta)
            As for the class. Below what is spent already, nothing more can be booked.
        reason : str
            Who allowed it, and why.
        """
        change = LimitChange(reason, _now(), _as_limit(limit), uuid.uuid4().hex)
        self._given = None
        with writing(self.path) as records:
            records.add(change)
        return change

    def drop_cut_line(self) -> str | None:
        """Remove the last line of a ledger in text form if it is cut off, and return it. Otherwise return None.

        :meth:`spend` returned when the line was complete and on disk. A line that is cut off therefore belongs to a
        release that was not made, if releases are recorded first and the file was damaged by nothing else than a crash.
        """
        try:
            with database.reading(self.path):
                return None
        except database.NotADatabaseError:
            return text_file.drop_cut_line(self.path)

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def limit(self) -> Budget | None:
        """The limit that holds: the stored one, or the given one as long as nothing has been stored."""
        with reading(self.path) as records:
            return self._allowed(records.limit())

    def timeline(self) -> list[Line]:
        """Return all entries and limits, the oldest first.

        The epsilon of every entry is recomputed from its event, which may take a second per kind of entry.
        """
        with reading(self.path) as records:
            return records.lines(check=True)

    def entries(self) -> list[Entry]:
        """Return all entries, the oldest first, or an empty list if the file does not exist. See :meth:`timeline`."""
        return [line for line in self.timeline() if isinstance(line, Entry)]

    def total(self, delta: float | None = None) -> Guarantee | None:
        """Return the guarantee of all entries together, composed from their events, or None if there are no entries."""
        with reading(self.path) as records:
            entries = [line for line in records.lines(check=False) if isinstance(line, Entry)]  # Only events count.
        return compose([entry.guarantee for entry in entries], delta) if entries else None

    # ------------------------------------------------------------------------------------------------------- details

    def _store_limit(self) -> None:
        """Store the given limit, once. It binds everybody even if the entry that follows is refused."""
        if self._given is None:
            return
        with reading(self.path) as records:
            is_stored = records.limit() == self._given
        if not is_stored:
            with writing(self.path) as records:
                allowed = self._allowed(records.limit())
                assert allowed is not None
                if allowed != records.limit():
                    records.add(LimitChange("", _now(), allowed, uuid.uuid4().hex))
        self._given = None

    def _allowed(self, stored: Budget | None) -> Budget | None:
        """Return the limit that holds. Raise if the given one is above the stored one."""
        given = self._given
        if given is None or stored is None:
            return stored if given is None else given
        if given.epsilon > stored.epsilon or given.delta > stored.delta:
            raise ValueError(
                f"{self.path.name}: the limit of epsilon = {given.epsilon:g} at delta = {given.delta:g} would raise "
                f"the stored limit, which is epsilon = {stored.epsilon:g} at delta = {stored.delta:g}. Nothing was "
                "recorded. Leave the limit out to keep the stored one, or raise it with: privet ledger "
                f"{self.path} --set-limit {given.epsilon:g} --limit-delta {given.delta:g}"
            )
        return given

    def _check(self, records: Records, guarantee: Guarantee, limit: Budget | None) -> None:
        """Raise unless the guarantee can be added to what is recorded."""
        name = self.path.name
        self._spent.update(records)
        self._spent.check_composable(guarantee)
        if not guarantee.is_private:
            raise BudgetExceededError(
                f"{name}: this release has no noise, and thus no differential privacy and no finite cost; nothing was "
                "recorded. Add noise, or leave the ledger out and do not publish the result."
            )
        if limit is None or self._spent.allows(guarantee, limit):
            return
        total, before = self._spent.epsilon(limit.delta, guarantee), self._spent.epsilon(limit.delta)
        raise BudgetExceededError(
            f"{name}: this release would bring the total to epsilon = {total:.6g} at delta = {limit.delta:.3g}, above "
            f"the limit of {limit.epsilon:g}; nothing was recorded. Of the limit, {before:.6g} is spent. Spend a "
            "smaller epsilon, state the limit at a larger delta, or raise it with: "
            f"privet ledger {self.path} --set-limit"
        )


def _as_limit(limit: BudgetLike) -> Budget:
    try:
        return as_budget((limit, LIMIT_DELTA) if isinstance(limit, Real) else limit)
    except ValueError as error:
        raise ValueError(f"invalid limit of a ledger: {error}") from error


def _check_same(earlier: Entry, guarantee: Guarantee, name: str) -> None:
    """Raise unless a run that is booked already spends what was booked."""
    before = earlier.guarantee
    if (before.event, before.adjacency, before.unit) != (guarantee.event, guarantee.adjacency, guarantee.unit):
        raise ValueError(
            f"{name}: the run {earlier.run} is booked as {earlier.label!r} with another event. Resume it with the plan "
            "that it was started with; nothing was recorded."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
