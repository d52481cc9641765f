"""What a cell is: missing, a number, a date or a text. Each cell is read by itself, whatever the others are."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from enum import IntEnum
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.tables.cells import is_mark, spelling
from privet.tables.dates import to_date

if TYPE_CHECKING:
    import pandas as pd


class Kind(IntEnum):
    """The kinds of cells. The last three dates are written with slashes, and may need a declared format."""

    MISSING = 0
    NUMBER = 1
    TEXT = 2
    DATE = 3
    DAY_FIRST = 4
    MONTH_FIRST = 5
    EITHER_FIRST = 6


SLASHED = (Kind.DAY_FIRST, Kind.MONTH_FIRST, Kind.EITHER_FIRST)
FORMATS = {Kind.DAY_FIRST: "%d/%m/%Y", Kind.MONTH_FIRST: "%m/%d/%Y"}
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


class Cell(NamedTuple):
    """A cell: its kind; its value if it is a number, or its year if it is a date; and its text as a level."""

    kind: Kind
    value: float
    level: str


@dataclass(frozen=True)
class Cells:
    """The distinct cells of a column, and how often each occurs.

    Parameters
    ----------
    cells : tuple of Cell
        Two cells that are written differently may be equal as numbers or as levels.
    counts : array of int
    """

    cells: tuple[Cell, ...]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, column: pd.Series) -> Cells:
        """Return the cells of a column."""
        import pandas as pd

        if column.dtype == object and pd.api.types.infer_dtype(column) != "string":
            # Cell by cell: among Python objects, factorize would take True for 1, whichever comes first.
            return cls(tuple(map(recognised, column)), np.ones(len(column), dtype=np.int64))
        codes, distinct = pd.factorize(column, use_na_sentinel=True)
        counts = np.bincount(codes[codes >= 0], minlength=len(distinct))
        absent = int((codes < 0).sum())
        cells = [recognised(cell) for cell in distinct]
        if absent:
            cells, counts = [*cells, _MISSING], np.append(counts, absent)
        return cls(tuple(cells), counts.astype(np.int64))

    def by_kind(self) -> NDArray[np.int64]:
        """Return the number of cells of each kind."""
        found = np.zeros(len(Kind), dtype=np.int64)
        np.add.at(found, np.array([cell.kind for cell in self.cells], dtype=np.int64), self.counts)
        return found

    def levels(self) -> dict[str, int]:
        """Return the number of cells of each level, in alphabetical order. Missing cells have no level."""
        found: dict[str, int] = {}
        for cell, number in zip(self.cells, self.counts.tolist(), strict=True):
            if cell.kind is not Kind.MISSING:
                found[cell.level] = found.get(cell.level, 0) + number
        return dict(sorted(found.items()))

    def values(self, *kinds: Kind) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the values of all cells of these kinds, and how often each occurs."""
        chosen = [place for place, cell in enumerate(self.cells) if cell.kind in kinds]
        values = np.array([self.cells[place].value for place in chosen], dtype=np.float64)
        return values, self.counts[chosen] if chosen else np.empty(0, dtype=np.int64)


_MISSING = Cell(Kind.MISSING, math.nan, "")


def recognised(cell: Any) -> Cell:
    """Return what a cell is.

    A number is what ``float`` reads as a finite number; a truth value is a text. Texts that mark missing cells are
    those of :data:`privet.tables.cells.MARKS`. Dates are read as in :mod:`privet.tables.dates`; dates with slashes are
    told apart by whether the first or the second number can only be a day.
    """
    if isinstance(cell, str):
        return _recognised_text(cell)
    if isinstance(cell, datetime.date) and not is_mark(cell):  # NaT is a date, too
        return Cell(Kind.DATE, float(cell.year), str(cell))
    if isinstance(cell, bool | np.bool_):
        return Cell(Kind.TEXT, math.nan, str(bool(cell)))
    if isinstance(cell, Real) or hasattr(cell, "as_integer_ratio"):
        return _number(cell)
    if cell is None or is_mark(cell):
        return _MISSING
    return Cell(Kind.TEXT, math.nan, _writable(str(cell)))


def _recognised_text(text: str) -> Cell:
    if is_mark(text):
        return _MISSING
    level = _writable(spelling(text))
    found = _number(text)._replace(level=level)
    if found.kind is Kind.NUMBER:
        return found
    if (day := to_date(text)) is not None:
        return Cell(Kind.DATE, float(day.year), level)
    if match := _SLASHES.fullmatch(text.strip()):
        first, second, year = map(int, match.groups())
        kinds = [
            kind
            for kind, (day_of, month_of) in {Kind.DAY_FIRST: (first, second), Kind.MONTH_FIRST: (second, first)}.items()
            if _is_day(year, month_of, day_of)
        ]
        if kinds:
            return Cell(kinds[0] if len(kinds) == 1 else Kind.EITHER_FIRST, float(year), level)
    return found


def _number(cell: Any) -> Cell:
    """Return a number as a cell, or a text if it is not a finite number. Its level is that of the number."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isnan(number) and not isinstance(cell, str):
        return _MISSING
    if not math.isfinite(number):
        return Cell(Kind.TEXT, math.nan, str(number))
    return Cell(Kind.NUMBER, number, spelling(number))


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        datetime.date(year, month, day)
    except ValueError:
        return False
    return True


def _writable(text: str) -> str:
    """Return a text that can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()
