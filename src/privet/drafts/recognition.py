"""What a cell is: missing, a number, a date or a text. Each cell is read by itself, whatever the others are."""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.tables.cells import is_mark, spelling
from privet.tables.dates import to_date
from privet.tables.numerals import EITHER, pointed

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
YEARS = 9999
"""The last year of a date. The first one is 1."""
_CHUNK = 1024
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


class Cell(NamedTuple):
    """A cell: its kind; its value if it is a number, or its year if it is a date; and its text as a level."""

    kind: Kind
    value: float
    level: str


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct cells of a column, and how often each occurs.

    Parameters
    ----------
    raw : array of objects
        The cells. Two cells that are written differently may be equal as numbers or as levels.
    kinds, values, counts : array
        Their kinds and values (see :class:`Cell`), and how often each occurs.
    decimal : str or None
        The mark before the decimals in texts.
    """

    raw: NDArray[np.object_]
    kinds: NDArray[np.int64]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    decimal: str | None = None

    @classmethod
    def of(cls, column: pd.Series, decimal: str | None = None) -> Cells:
        """Return the cells of a column."""
        import pandas as pd

        if column.dtype == object and pd.api.types.infer_dtype(column) != "string":
            # Cell by cell: among Python objects, factorize would take True for 1, whichever comes first.
            return cls._of_objects(column.to_numpy(object), np.ones(len(column), dtype=np.int64), decimal)
        codes, distinct = pd.factorize(column, use_na_sentinel=True)
        counts = np.bincount(codes[codes >= 0], minlength=len(distinct))
        n_missing = int((codes < 0).sum())
        raw = np.empty(len(distinct) + (n_missing > 0), dtype=object)
        raw[: len(distinct)] = np.asarray(distinct, dtype=object)  # and None for missing cells
        return cls._of_objects(raw, np.append(counts, n_missing)[: len(raw)].astype(np.int64), decimal)

    @classmethod
    def _of_objects(cls, raw: NDArray[np.object_], counts: NDArray[np.int64], decimal: str | None) -> Cells:
        chunks = (raw[start : start + _CHUNK] for start in range(0, len(raw), _CHUNK))
        parts = [_kinds_and_values(chunk, decimal) for chunk in chunks]
        kinds = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)])
        values = np.concatenate([np.empty(0), *(part[1] for part in parts)])
        return cls(raw, kinds, values, counts, decimal)

    def by_kind(self) -> NDArray[np.int64]:
        """Return the number of cells of each kind."""
        found = np.zeros(len(Kind), dtype=np.int64)
        np.add.at(found, self.kinds, self.counts)
        return found

    def levels(self, *but: Kind) -> dict[str, int]:
        """Return the number of cells of each level, in alphabetical order, except for missing cells and other kinds."""
        found: dict[str, int] = {}
        chosen = np.flatnonzero(~self._are((Kind.MISSING, *but)))
        for cell, number in zip(self.raw[chosen], self.counts[chosen].tolist(), strict=True):
            level = recognised(cell, self.decimal).level
            found[level] = found.get(level, 0) + number
        return dict(sorted(found.items()))

    def tally(self, *kinds: Kind) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the values of all cells of these kinds, and how often each occurs."""
        chosen = self._are(kinds)
        return self.values[chosen], self.counts[chosen]

    def _are(self, kinds: Sequence[Kind]) -> NDArray[np.bool_]:
        """Return which cells are of some of these kinds. For short columns, np.isin would take ten times as long."""
        is_meant = np.zeros(len(Kind), dtype=bool)
        is_meant[list(kinds)] = True
        return is_meant[self.kinds]


def _kinds_and_values(raw: NDArray[np.object_], decimal: str | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return what :func:`recognised` says of each cell.

    If all cells are numbers, this is one pass of ``float``, unless it depends on the mark what number a text is.
    """
    kinds, values = np.full(len(raw), int(Kind.NUMBER)), np.full(len(raw), np.nan)
    if decimal in (None, EITHER) and all(type(cell) in (str, float, int) for cell in raw):
        with contextlib.suppress(ValueError, OverflowError):
            values = raw.astype(np.float64)
    for place in np.flatnonzero(~np.isfinite(values)):
        kinds[place], values[place], _ = recognised(raw[place], decimal)
    return kinds, values


_MISSING = Cell(Kind.MISSING, math.nan, "")


def recognised(cell: Any, decimal: str | None = None) -> Cell:
    """Return what a cell is.

    A number is what ``float`` reads as a finite number, also with the given decimal mark; a truth value is a text.
    Texts that mark missing cells are those of :data:`privet.tables.cells.MARKS`. Dates are read as in
    :mod:`privet.tables.dates`; dates with slashes are told apart by whether the first or the second number can only be
    a day.
    """
    if isinstance(cell, str):
        return _recognised_text(cell, decimal)
    if isinstance(cell, datetime.date) and not is_mark(cell):  # NaT is a date, too
        return Cell(Kind.DATE, float(min(max(cell.year, 1), YEARS)), str(cell))  # numpy's dates go beyond Python's
    if isinstance(cell, bool | np.bool_):
        return Cell(Kind.TEXT, math.nan, str(bool(cell)))
    if isinstance(cell, Real) or hasattr(cell, "as_integer_ratio"):
        return _number(cell)
    if cell is None or is_mark(cell):
        return _MISSING
    return Cell(Kind.TEXT, math.nan, _writable(str(cell)))


def _recognised_text(text: str, decimal: str | None) -> Cell:
    if is_mark(text):
        return _MISSING
    level = _writable(spelling(text))
    found = _number(pointed(text, decimal))._replace(level=level)
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
