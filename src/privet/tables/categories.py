"""Columns of categories with public levels, and reading cells as levels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import missing_faults
from privet.tables.cells import LEVEL, MISSING, REFUSE, check_name, is_mark, spelling
from privet.tables.errors import TableError, listing, show
from privet.tables.faults import Cells, Fault, by_value, raise_first
from privet.tables.hints import level_hint

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Categorical:
    """A feature with declared public levels, one-hot encoded.

    Levels are compared as texts: 1, 1.0 and "1" are the same level, "01" is another one.

    Parameters
    ----------
    name : str
    levels : tuple of str
        The public levels.
    missing : "refuse", "level" or str
        What missing cells are: an error; a level of their own, "(missing)", which follows the others; or one of the
        declared levels.
    """

    name: str
    levels: tuple[str, ...]
    missing: str = REFUSE

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "levels", check_levels(self.name, self.levels))
        if self.missing in (REFUSE, LEVEL):
            check_levels(self.name, self.encoded_levels)
            return
        declared = {spelling(level): level for level in self.levels}
        if spelling(self.missing) not in declared:
            raise TableError(
                f"Column {self.name!r}: missing = {show(self.missing)} is not possible. Use {REFUSE!r}, {LEVEL!r} or "
                f"one of the declared levels {listing(self.levels)}."
            )
        object.__setattr__(self, "missing", declared[spelling(self.missing)])

    @property
    def encoded_levels(self) -> tuple[str, ...]:
        """The declared levels and, if missing cells are a level of their own, "(missing)"."""
        return (*self.levels, MISSING) if self.missing == LEVEL else self.levels

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns, one per level."""
        return tuple([f"{self.name}={level}" for level in self.encoded_levels])

    def read(self, column: pd.Series) -> Cells[NDArray[np.int64]]:
        """Return the position of each cell among the levels, with -1 for cells that are missing or at fault."""
        return level_codes(column, self.name, self.levels)

    def faults(self, column: pd.Series) -> tuple[Fault, ...]:
        """Return everything that keeps the column from being encoded."""
        return self._faults(self.read(column))

    def _faults(self, cells: Cells[NDArray[np.int64]]) -> tuple[Fault, ...]:
        return (*cells.faults, *missing_faults(self.name, self.missing, cells.absent))

    def hint(self, cell: object) -> str:
        """Return what may have been meant by a cell that is not a declared level."""
        return level_hint(cell, self.levels)

    def encode(self, column: pd.Series) -> NDArray[np.float64]:
        """Return the encoded cells, with one column per level."""
        cells = self.read(column)
        raise_first(self._faults(cells))
        codes = cells.values
        if self.missing != REFUSE:
            codes[codes < 0] = self.encoded_levels.index(MISSING if self.missing == LEVEL else self.missing)
        encoded = np.zeros((len(codes), len(self.encoded_levels)))
        encoded[np.arange(len(codes)), codes] = 1.0
        return encoded


def check_levels(name: str, levels: object) -> tuple[str, ...]:
    """Return the levels of a column as texts. There must be at least two, all different and none empty."""
    if not isinstance(levels, list | tuple):
        raise TableError(f"Column {name!r}: the levels {show(levels)} are not a list of names.")
    texts: list[str] = []
    seen: set[str] = set()
    for level in levels:
        if not isinstance(level, str | int | float | np.generic):
            raise TableError(f"Column {name!r}: the levels {show(levels)} are not a list of names.")
        text = level.strip() if isinstance(level, str) else spelling(level)
        if not text:
            raise TableError(
                f"Column {name!r} declares an empty level. Empty cells are missing values: declare what they count as "
                f'with missing = "{LEVEL}".'
            )
        if spelling(text) in seen:
            raise TableError(f"Column {name!r} declares the level {show(text)} more than once. Keep one of them.")
        texts.append(text)
        seen.add(spelling(text))
    if len(texts) < 2:
        raise TableError(f"Column {name!r} needs at least two levels, not {len(texts)}.")
    return tuple(texts)


def level_codes(column: pd.Series, name: str, levels: Sequence[str]) -> Cells[NDArray[np.int64]]:
    """Return the position of each cell among the declared levels, and -1 for cells that are missing or at fault."""
    position = dict(zip(map(spelling, levels), range(len(levels)), strict=True))
    codes, texts = distinct_levels(column, known=position)
    absent = codes < 0
    faults: list[Fault] = []
    if not position.keys() >= set(texts):
        for code, rows in by_value(codes):
            if code >= 0 and texts[code] not in position:
                cause = f"level {show(texts[code])} is not declared (declared: {listing(levels)})"
                faults.append(Fault(name, cause, "Declare it or correct the table.", rows, value=texts[code]))
    places = np.array([*(position.get(text, -1) for text in texts), -1], dtype=np.int64)
    return Cells(places[codes], absent, tuple(faults))


def distinct_levels(column: pd.Series, known: Collection[str] = ()) -> tuple[NDArray[np.int64], list[str]]:
    """Return the distinct levels of a column as texts, and the position of each cell among them.

    The position of a missing cell is -1. A text that marks a missing cell is a level if it is one of those ``known``.
    """
    import pandas as pd

    if column.dtype == object and pd.api.types.infer_dtype(column) != "string":
        column = column.map(spelling, na_action="ignore")  # before factorize, for which True equals 1
    codes, values = pd.factorize(column)
    texts: dict[str, int] = {}
    place = []
    for text in map(spelling, values):
        is_missing = is_mark(text) and text not in known
        place.append(-1 if is_missing else texts.setdefault(text, len(texts)))
    return np.array([*place, -1], dtype=np.int64)[codes], list(texts)
