"""Features: numbers with public bounds and categories with public levels, each encoded cell by cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import check_bounds, to_unit
from privet.tables.cells import level_codes, numbers, spelling
from privet.tables.errors import TableError, show

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Numeric:
    """A number, clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_name(self.name)
        for key, bound in zip(("low", "high"), check_bounds(self.name, self.low, self.high), strict=True):
            object.__setattr__(self, key, bound)

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of the one encoded column."""
        return (self.name,)

    def fill(self, block: NDArray[np.float64], column: pd.Series, scale: float) -> None:
        """Write scale times the encoded cells of `column` to `block`, (n, 1)."""
        block[:, 0] = scale * to_unit(numbers(column, self.name), self.low, self.high)


@dataclass(frozen=True)
class Categorical:
    """One of the declared public levels, one-hot. Levels compare by text: 1, 1.0 and "1" agree, "01" differs."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "levels", check_levels(self.name, self.levels))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns, one a level."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def fill(self, block: NDArray[np.float64], column: pd.Series, scale: float) -> None:
        """Write scale at each cell's level to `block`, (n, number of levels), which holds zeros."""
        block[np.arange(len(block)), level_codes(column, self.name, self.levels)] = scale


def by_name(columns: Iterable[Numeric | Categorical]) -> dict[str, Numeric | Categorical]:
    """Return the columns by their names; a name that comes twice is refused."""
    named: dict[str, Numeric | Categorical] = {}
    for column in columns:
        if column.name in named:
            raise TableError(f"column {column.name!r} is declared more than once: keep one declaration")
        named[column.name] = column
    return named


def check_name(name: object) -> None:
    """Raise unless ``name`` can name a column."""
    if not isinstance(name, str) or not name.strip():
        raise TableError(f"{show(name)} is not a column name: give a text that is not empty")


def check_levels(name: str, levels: object) -> tuple[str, ...]:
    """Return the levels of a column as texts: two or more, none empty, none twice."""
    if not isinstance(levels, list | tuple) or not all(isinstance(x, str | int | float | np.generic) for x in levels):
        raise TableError(f"column {name!r}: levels {show(levels)} are not a list of names")
    texts = tuple(level.strip() if isinstance(level, str) else spelling(level) for level in levels)
    if "" in texts:
        raise TableError(f"column {name!r} has an empty level: an empty cell is a missing value, name it in the table")
    if len(texts) < 2:
        raise TableError(f"column {name!r} needs at least two levels, not {len(texts)}")
    for position, text in enumerate(texts):
        if spelling(text) in map(spelling, texts[:position]):
            raise TableError(f"column {name!r} declares the level {show(text)} more than once: keep one")
    return texts
