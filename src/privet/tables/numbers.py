"""Columns of numbers with public bounds, and reading cells as numbers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import BoundedColumn, BoundedFeature
from privet.tables.cells import LEVEL, REFUSE, check_name, is_mark
from privet.tables.errors import TableError, show
from privet.tables.faults import Cells, Fault, kind_of_cells
from privet.tables.hints import number_hint

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class BoundedNumber(BoundedColumn):
    """A column of numbers, each clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in ("low", "high"):
            number = finite(bound := getattr(self, key))
            if number is None:
                raise TableError(f"Column {self.name!r}: the {key} bound {show(bound)} is not a finite number.")
            object.__setattr__(self, key, number)
        if not self.half_width > 0:
            raise TableError(
                f"Column {self.name!r}: the low bound {self.low} must be below the high bound {self.high}."
            )

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds."""
        return self.low, self.high

    def read(self, column: pd.Series) -> Cells[NDArray[np.float64]]:
        """Return the cells as finite numbers, with NaN for those that are missing or at fault."""
        return numbers(column, self.name)

    def hint(self, cell: object) -> str:
        """Return what may have been meant by a cell that is not a number."""
        return number_hint(cell)


@dataclass(frozen=True)
class Numeric(BoundedFeature, BoundedNumber):
    """A numeric feature, clipped to the public bounds [low, high] and mapped linearly to [-1, 1].

    Parameters
    ----------
    name : str
    low, high : float
        Public bounds.
    missing : "refuse", "level" or float
        What missing cells are: an error; a level of their own, encoded as 0 with an indicator column; or a public
        constant between the bounds.
    """

    missing: float | str = REFUSE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.missing in (REFUSE, LEVEL):
            return
        number = finite(self.missing)
        if number is None or not self.low <= number <= self.high:
            raise TableError(
                f"Column {self.name!r}: missing = {show(self.missing)} is not possible. Use {REFUSE!r}, {LEVEL!r} or a "
                f"number between the bounds {self.low:g} and {self.high:g}."
            )
        object.__setattr__(self, "missing", number)

    @property
    def constant(self) -> float | None:
        """The number that stands for missing cells, if they count as a constant."""
        return None if isinstance(self.missing, str) else self.missing


def finite(value: object) -> float | None:
    """Return a number as a finite float, or None if it is none. Texts and truth values are not numbers."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def numbers(column: pd.Series, name: str) -> Cells[NDArray[np.float64]]:
    """Return the cells as finite numbers, with NaN for those that are missing or at fault."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    faults: tuple[Fault, ...] = ()
    if is_numeric_dtype(column) and not is_complex_dtype(column):
        values: NDArray[np.float64] = column.to_numpy(np.float64, na_value=np.nan)
    else:
        cells = column.to_numpy(object)
        try:
            # This calls float() for each cell. The parser of pandas rounds differently depending on other cells.
            values = cells.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            values, faults = _numbers_one_by_one(name, cells)
    absent = np.isnan(values)
    for fault in faults:
        absent[fault.rows] = False
    infinite = np.isinf(values)
    if infinite.any():
        remedy = "Correct them, or replace them by a bound of the column."
        faults = (*faults, *kind_of_cells(name, "infinite", infinite, remedy))
        values = np.where(infinite, np.nan, values)
    return Cells(values, absent, faults)


def _numbers_one_by_one(name: str, cells: NDArray[np.object_]) -> tuple[NDArray[np.float64], tuple[Fault, ...]]:
    """Convert cell by cell, with NaN for missing cells and for those that are not numbers."""
    values = np.full(len(cells), np.nan)
    bad: dict[str, tuple[object, list[int]]] = {}
    for row, cell in enumerate(cells):
        try:
            values[row] = float(cell)
        except (TypeError, ValueError, OverflowError):
            if not is_mark(cell):
                bad.setdefault(show(cell), (cell, []))[1].append(row)
    return values, tuple([_not_a_number(name, cell, np.array(rows)) for cell, rows in bad.values()])


def _not_a_number(name: str, cell: object, rows: NDArray[np.int64]) -> Fault:
    return Fault(name, f"{show(cell)} is not a number", _remedy(show(cell)), rows, value=cell)


def _remedy(text: str) -> str:
    if re.fullmatch(r"'[+-]?[0-9.]*,[0-9.,]*'", text):
        return 'Correct it, or say what the decimal mark of all numbers of the file is: decimal = "," or "."'
    return "Correct it, or declare the column's levels instead of bounds."
