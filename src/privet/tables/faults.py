"""Cells that cannot be used: encoding raises an error for the first kind of them, and a check of the table lists all.

Faults name rows and values of the table. They are meant for the owner of the table and are not covered by a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import TableError, marked, show

Values = TypeVar("Values", bound=NDArray[Any])


@dataclass(frozen=True)
class Fault:
    """Cells of one column that cannot be used for the same reason, in order of their rows.

    Parameters
    ----------
    column : str
    cause : str
        What is wrong. For one bad value a clause, as in ``"'abc' is not a number"``; for cells of a kind the name of
        the kind, such as ``"missing"``.
    remedy : str
        What to do about it, in whole sentences.
    rows : ndarray of int
        Positions of the cells, counted from 0.
    is_kind : bool
        Whether the cause names a kind of cells instead of one value.
    of : str
        What the column is, at the beginning of the message.
    value : object
        The bad value that the cause shows, if it shows one.
    """

    column: str
    cause: str
    remedy: str
    rows: NDArray[np.int64]
    is_kind: bool = False
    of: str = "Column"
    value: object = None

    @property
    def claim(self) -> str:
        """The cause without the bad value, which is the same for all values that are wrong in the same way."""
        return self.cause if self.is_kind else " ".join(self.cause.replace(show(self.value), "", 1).split())

    def __str__(self) -> str:
        if self.is_kind:
            return f"{self.of} {self.column!r} has {marked(self.rows, self.cause)}. {self.remedy}"
        more = f" (and {len(self.rows) - 1:,} more with this value)" if len(self.rows) > 1 else ""
        return f"{self.of} {self.column!r}, row {self.rows[0] + 1}{more}: {self.cause}. {self.remedy}"


@dataclass(frozen=True)
class Cells(Generic[Values]):
    """What the cells of a column say. A cell that is missing or at fault has a placeholder among the values.

    ``absent`` says which cells are missing. Cells at fault are not missing.
    """

    values: Values
    absent: NDArray[np.bool_]
    faults: tuple[Fault, ...] = ()

    def sound(self) -> Values:
        """Return the values if no cell is at fault, and raise TableError otherwise."""
        raise_first(self.faults)
        return self.values


def raise_first(faults: tuple[Fault, ...]) -> None:
    """Raise TableError for the first fault, if there is one."""
    if faults:
        raise TableError(str(faults[0]))


def kind_of_cells(
    column: str, kind: str, cells: NDArray[np.bool_], remedy: str, of: str = "Column"
) -> tuple[Fault, ...]:
    """Return the fault of all marked cells, or none if no cell is marked."""
    rows = np.flatnonzero(cells)
    return (Fault(column, kind, remedy, rows, is_kind=True, of=of),) if len(rows) else ()


def by_value(codes: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each code that occurs, with the rows that have it, in the order of their first rows."""
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    groups = dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True))
    yield from sorted(groups.items(), key=lambda group: int(group[1][0]))
