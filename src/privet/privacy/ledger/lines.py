"""The lines of a ledger's time line: entries, and limits."""

from dataclasses import dataclass, field

from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import Guarantee


@dataclass(frozen=True)
class Entry:
    """A release that was booked.

    Parameters
    ----------
    label : str
        What was released, in the words of whoever booked it.
    time : str
        When it was booked, in universal time. The order of entries does not depend on it, so a clock that is set back
        does no harm.
    guarantee : Guarantee
        What it cost.
    id : str
        A random name of this entry.
    run : str or None
        The run that the entry pays for. A run that is resumed is booked once.
    """

    label: str
    time: str
    guarantee: Guarantee
    id: str = field(default="", compare=False)
    run: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LimitChange:
    """A limit that was set, and that holds until the next one.

    Parameters
    ----------
    label, time, id : str
        As for an :class:`Entry`.
    limit : Budget
        The most that all entries together may spend.
    """

    label: str
    time: str
    limit: Budget
    id: str = field(default="", compare=False)


Line = Entry | LimitChange
