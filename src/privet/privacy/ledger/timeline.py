"""The time line of a ledger: its lines, each with what is spent and what is left after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from privet.privacy.budget import Budget
from privet.privacy.ledger.lines import Entry, LimitChange, Line
from privet.privacy.ledger.spent import Spent


@dataclass(frozen=True)
class Moment:
    """A line of a ledger, and the state of the ledger after it.

    Parameters
    ----------
    entry : Entry or None
    change : LimitChange or None
        One of the two is the line.
    total : float or None
        The epsilon of all entries up to this one, at most. None for lines whose total was not asked for.
    delta : float
        The delta of the total.
    left : float or None
        How far the total is below the limit that held then. None without a limit.
    """

    entry: Entry | None
    change: LimitChange | None
    total: float | None
    delta: float
    left: float | None

    @property
    def time(self) -> str:
        """When the line was added."""
        line = self.entry or self.change
        assert line is not None
        return line.time


def moments(lines: Sequence[Line], delta: float | None, last: float) -> list[Moment]:
    """Return the time line.

    Parameters
    ----------
    lines : sequence of lines
        All lines, the oldest first.
    delta : float or None
        The delta of the totals. None takes that of the last limit, or else the sum of the deltas of all entries.
    last : float
        How many lines at the end get totals. The total of the last line is exact, and the others are upper bounds that
        are computed fast.
    """
    limits = [line.limit for line in lines if isinstance(line, LimitChange)]
    if delta is None:
        booked = sum(line.guarantee.delta for line in lines if isinstance(line, Entry))
        delta = limits[-1].delta if limits else min(booked, 1.0)
    spent, limit, found = Spent(), None, []
    for number, line in enumerate(lines):
        if isinstance(line, Entry):
            spent.add(line.guarantee)
        else:
            limit = line.limit
        is_last = number == len(lines) - 1
        total = left = None
        if number >= len(lines) - last:
            total = _total(spent, delta, is_last)
            left = _left(spent, limit, delta, total, is_last)
        entry, change = (line, None) if isinstance(line, Entry) else (None, line)
        found.append(Moment(entry, change, total, delta, left))
    return found


def _total(spent: Spent, delta: float, is_exact: bool) -> float:
    if delta >= 1:  # Deltas that add up to 1 promise nothing.
        return float("inf")
    return spent.epsilon(delta) if is_exact else spent.quick_epsilon(delta)


def _left(spent: Spent, limit: Budget | None, delta: float, total: float, is_exact: bool) -> float | None:
    """Return what is left of a limit, which holds at its own delta."""
    if limit is None:
        return None
    at_limit = total if limit.delta == delta else _total(spent, limit.delta, is_exact)
    return max(0.0, limit.epsilon - at_limit)
