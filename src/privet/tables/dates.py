"""Columns of dates with public bounds, and reading cells as dates.

A date counts as a number of days. The time of day is ignored, and so is a time zone: a date is the one that is written.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import BoundedFeature
from privet.tables.cells import LEVEL, REFUSE, check_name, is_mark
from privet.tables.errors import TableError, show
from privet.tables.faults import Cells, Fault, by_value
from privet.tables.hints import date_hint

if TYPE_CHECKING:
    import pandas as pd

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_TIME = r"(?:(?:T| +)\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)? *(?:Z|[+-]\d{2}:?\d{2})?)?"
_UNMISTAKABLE = (
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})" + _TIME),
    re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})" + _TIME),
)
_PROBES = (datetime.date(2011, 12, 31), datetime.date(2012, 11, 7))


@dataclass(frozen=True)
class Date(BoundedFeature):
    """A feature of dates, clipped to public bounds, counted in days and mapped linearly to [-1, 1].

    Parameters
    ----------
    name : str
    low, high : datetime.date or str
        Public bounds: the first and the last day. A text is a date such as ``"2019-01-31"``.
    format : str or None
        How the dates of the table are written, in the notation of :meth:`datetime.datetime.strptime`, such as
        ``"%d/%m/%Y"``. By default, dates are read that cannot be mistaken: 2019-01-31 and 31.1.2019, with or without a
        time of day. Columns that hold dates or timestamps instead of texts need no format.
    missing : "refuse", "level", datetime.date or str
        What missing cells are: an error; a level of their own, encoded as 0 with an indicator column; or a public
        constant between the bounds.
    """

    name: str
    low: datetime.date
    high: datetime.date
    format: str | None = None
    missing: datetime.date | str = REFUSE

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in ("low", "high"):
            bound = getattr(self, key)
            day = to_date(bound)
            if day is None:
                raise TableError(
                    f"Column {self.name!r}: the {key} bound {show(bound)} is not a date. Write it as in 2019-01-31."
                )
            object.__setattr__(self, key, day)
        if not self.low < self.high:
            raise TableError(
                f"Column {self.name!r}: the low bound {self.low} must be before the high bound {self.high}."
            )
        self._check_format()
        if self.missing not in (REFUSE, LEVEL):
            day = to_date(self.missing)
            if day is None or not self.low <= day <= self.high:
                raise TableError(
                    f"Column {self.name!r}: missing = {show(self.missing)} is not possible. Use {REFUSE!r}, {LEVEL!r} "
                    f"or a date between the bounds {self.low} and {self.high}."
                )
            object.__setattr__(self, "missing", day)

    def _check_format(self) -> None:
        """Raise TableError unless the format determines the day, and the century if it has years of two digits."""
        if self.format is None:
            return
        try:
            read = [_strptime(f"{probe:{self.format}}", self.format) for probe in _PROBES]
        except (TypeError, ValueError):
            read = []
        if read != list(_PROBES):
            raise TableError(
                f"Column {self.name!r}: the format {show(self.format)} does not determine a date. Write it with %d for "
                "the day, %m for the month and %Y for the year, as in %d/%m/%Y."
            )
        if "%y" in self.format and not 1969 <= self.low.year <= self.high.year <= 2068:
            raise TableError(
                f"Column {self.name!r}: with %y, years of two digits mean 1969 to 2068, and the bounds {self.low} and "
                f"{self.high} are not within these years. Write the years of the table with four digits, and use %Y."
            )

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds as numbers of days."""
        return days(self.low), days(self.high)

    @property
    def constant(self) -> float | None:
        """The number of days that stands for missing cells, if they count as a constant."""
        return None if isinstance(self.missing, str) else days(self.missing)

    def read(self, column: pd.Series) -> Cells[NDArray[np.float64]]:
        """Return the cells as numbers of days since 1970, with NaN for those that are missing or at fault."""
        import pandas as pd

        if isinstance(column.dtype, pd.ArrowDtype):
            column = column.astype(object)
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            stamps = column.dt.tz_localize(None).to_numpy("datetime64[D]")
            counts: NDArray[np.float64] = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64).astype(np.float64))
            return Cells(counts, np.isnan(counts))
        codes, distinct = pd.factorize(column)  # a date is read once, however often it occurs
        cells = list(distinct)
        found = [np.nan if is_mark(cell) else self._read(cell) for cell in cells]
        places = np.array([*(np.nan if day is None else day for day in found), np.nan])
        bad = np.array([*(day is None for day in found), False])
        values = places[codes]
        faults: tuple[Fault, ...] = ()
        if bad.any():
            unreadable = [(code, rows) for code, rows in by_value(codes) if bad[code]]
            faults = tuple([self._unreadable(cells[code], rows) for code, rows in unreadable])
        return Cells(values, np.isnan(values) & ~bad[codes], faults)

    def hint(self, cell: object) -> str:
        """Return what may have been meant by a cell that is not a date."""
        return date_hint(cell)

    def _read(self, cell: object) -> float | None:
        """Return a cell as a number of days, or None if it is not a date in the declared format."""
        if not isinstance(cell, str) or self.format is None:
            day = to_date(cell)
        else:
            try:
                day = _strptime(cell.strip(), self.format)
            except ValueError:
                day = None
        return None if day is None else days(day)

    def _unreadable(self, cell: object, rows: NDArray[np.int64]) -> Fault:
        if self.format is not None:
            cause = f"{show(cell)} is not a date in the declared format {self.format}"
            return Fault(self.name, cause, "Correct it, or change the format.", rows, value=cell)
        cause = f"{show(cell)} is not a date that can be read without a format"
        remedy = (
            "Declare how dates are written, as in "
            f'{{ bounds = [{self.low}, {self.high}], format = "%d/%m/%Y" }}, or write dates as 2019-01-31.'
        )
        return Fault(self.name, cause, remedy, rows, value=cell)


def to_date(value: Any) -> datetime.date | None:
    """Return the day of a date, a timestamp, or a text that cannot be mistaken; None for anything else."""
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    if not isinstance(value, str):
        return None
    for pattern in _UNMISTAKABLE:
        if match := pattern.fullmatch(value.strip()):
            try:
                return datetime.date(*(int(match[part]) for part in ("year", "month", "day")))
            except ValueError:  # such as 2019-02-30
                return None
    return None


def days(day: datetime.date) -> float:
    """Return the number of days since 1970."""
    return float(day.toordinal() - _EPOCH)


def _strptime(text: str, form: str) -> datetime.date:
    return datetime.datetime.strptime(text, form).date()
