"""Columns: numbers with public bounds and categories with public levels, as features and as targets.

Features encode the cells of a column. Targets encode cells and decode predictions.

Error messages name rows and values of the table. They are meant for the owner of the table and are not covered by a
guarantee, so they must not be published. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import TableError, listing, show

if TYPE_CHECKING:
    import pandas as pd

# Texts that mark a missing cell, in lower case. A level that is declared with such a name is not missing.
_MISSING = frozenset({"", "na", "n/a", "nan", "nat", "<na>", "null", "none"})


@dataclass(frozen=True)
class BoundedNumber:
    """A column of numbers, each clipped to the public bounds [low, high] and mapped linearly to [-1, 1].

    The map is computed from halves, because high - low can overflow where high / 2 - low / 2 cannot.
    """

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in ("low", "high"):
            bound = getattr(self, key)
            try:
                number = math.nan if isinstance(bound, bool | str) else float(bound)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if not math.isfinite(number):
                raise TableError(f"Column {self.name!r}: the {key} bound {show(bound)} is not a finite number.")
            object.__setattr__(self, key, number)
        if not self.half_width > 0:
            raise TableError(
                f"Column {self.name!r}: the low bound {self.low} must be below the high bound {self.high}."
            )

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds: the length that encodes to 1."""
        return self.high / 2 - self.low / 2

    def encode(self, column: pd.Series) -> NDArray[np.float64]:
        """Return each cell, clipped to the bounds and mapped to [-1, 1]."""
        values = np.clip(numbers(column, self.name), self.low, self.high)
        share: NDArray[np.float64] = (values / 2 - self.low / 2) / self.half_width
        return 2 * share - 1  # share is never outside [0, 1], because each rounding above preserves order

    def n_clipped(self, column: pd.Series) -> int:
        """Return the number of cells that :meth:`encode` clips. Not private: for the owner of the table."""
        values = numbers(column, self.name)
        return int(((values < self.low) | (values > self.high)).sum())


@dataclass(frozen=True)
class Numeric(BoundedNumber):
    """A numeric feature, clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of the encoded column."""
        return (self.name,)


@dataclass(frozen=True)
class Categorical:
    """A feature with declared public levels, one-hot encoded.

    Levels are compared as texts: 1, 1.0 and "1" are the same level, "01" is another one.
    """

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "levels", check_levels(self.name, self.levels))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns, one per level."""
        return tuple([f"{self.name}={level}" for level in self.levels])


@dataclass(frozen=True)
class Target:
    """The class to predict, with its declared public levels, or with None to read the levels from the data.

    `levels_from_data` is True unless the levels were declared. A guarantee must then list them as assumed public.
    """

    kind: ClassVar[str] = "classes"

    name: str
    levels: tuple[str, ...] | None = None
    levels_from_data: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.levels is None:
            object.__setattr__(self, "levels_from_data", True)
        else:
            object.__setattr__(self, "levels", check_levels(self.name, self.levels))

    def completed(self, column: pd.Series) -> Target:
        """Return this target if its levels are declared, else a target with the levels read from the column."""
        if self.levels is not None:
            return self
        _, texts = distinct_levels(column, self.name)
        if len(texts) < 2:
            raise TableError(f"The target {self.name!r} has only one class, {show(texts[0])}. It needs at least two.")
        return replace(self, levels=tuple(sorted(texts)), levels_from_data=True)

    def encode(self, column: pd.Series) -> NDArray[np.int64]:
        """Return the position of each cell among the levels."""
        levels = self.completed(column).levels
        assert levels is not None
        return level_codes(column, self.name, levels)

    def decode(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the levels at the predicted positions."""
        return np.asarray(np.asarray(self.levels, dtype=object)[predictions])

    def truth(self, column: pd.Series) -> NDArray[Any]:
        """Return the cells as `decode` spells them, to compare predictions with."""
        complete = self.completed(column)
        return complete.decode(complete.encode(column))


@dataclass(frozen=True)
class NumericTarget(BoundedNumber):
    """The number to predict, clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    kind: ClassVar[str] = "number"
    levels: ClassVar[None] = None  # so that all targets have the attribute

    def encode_distance(self, distance: float) -> float:
        """Convert a distance between two values of the target to encoded units."""
        return distance / self.half_width

    def completed(self, column: pd.Series) -> NumericTarget:
        """Return this target: bounds are declared, never read from the data."""
        return self

    def decode(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Map predictions from [-1, 1] back to [low, high]."""
        middle = self.low / 2 + self.high / 2
        with np.errstate(over="ignore"):  # near the largest float, the sum may overflow before it is clipped
            restored: NDArray[np.float64] = np.clip(middle + self.half_width * predictions, self.low, self.high)
        return restored

    def truth(self, column: pd.Series) -> NDArray[Any]:
        """Return the numbers in the cells, without clipping, to compare predictions with."""
        return numbers(column, self.name)


def by_name(columns: Iterable[Numeric | Categorical]) -> dict[str, Numeric | Categorical]:
    """Return the columns by their names, which must be different."""
    named: dict[str, Numeric | Categorical] = {}
    for column in columns:
        if column.name in named:
            raise TableError(f"Column {column.name!r} is declared more than once. Keep one declaration.")
        named[column.name] = column
    return named


def check_name(name: object) -> None:
    """Raise TableError unless ``name`` can name a column."""
    if not isinstance(name, str) or not name.strip():
        raise TableError(f"{show(name)} is not a column name. Use a non-empty text.")


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
                f"Column {name!r} declares an empty level. Empty cells are missing values: name them in the table."
            )
        if spelling(text) in seen:
            raise TableError(f"Column {name!r} declares the level {show(text)} more than once. Keep one of them.")
        texts.append(text)
        seen.add(spelling(text))
    if len(texts) < 2:
        raise TableError(f"Column {name!r} needs at least two levels, not {len(texts)}.")
    return tuple(texts)


def spelling(value: object) -> str:
    """Return the canonical text of a level: "1" for 1.0 and "1.0", "True" for "true". The text "01" is kept."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    return match[1] if (match := re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)) else text


def numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    """Return the cells as finite numbers."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    if is_numeric_dtype(column) and not is_complex_dtype(column):
        values: NDArray[np.float64] = column.to_numpy(np.float64, na_value=np.nan)
    else:
        cells = column.to_numpy(object)
        try:
            # This calls float() for each cell. The parser of pandas rounds differently depending on other cells.
            values = cells.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            values = _numbers_one_by_one(name, cells)
    bad = ~np.isfinite(values)
    if bad.any():
        raise TableError(
            f"Column {name!r} has {bad.sum()} missing or infinite values, the first in row {bad.argmax() + 1}. "
            "Drop those rows or fill them with a public constant."
        )
    return values


def _numbers_one_by_one(name: str, cells: NDArray[np.object_]) -> NDArray[np.float64]:
    """Convert cell by cell, with NaN for missing cells, and raise for the first cell that is not a number."""
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        try:
            values[row] = float(cell)
        except (TypeError, ValueError, OverflowError):
            if str(cell).strip().lower() not in _MISSING:
                raise TableError(
                    f"Column {name!r}, row {row + 1}: {show(cell)} is not a number. Correct it, or declare the "
                    "column's levels instead of bounds."
                ) from None
    return values


def level_codes(column: pd.Series, name: str, levels: Sequence[str]) -> NDArray[np.int64]:
    """Return the position of each cell among the declared levels."""
    position = dict(zip(map(spelling, levels), range(len(levels)), strict=True))
    codes, texts = distinct_levels(column, name, known=position)
    for code, text in enumerate(texts):
        if text not in position:
            raise TableError(
                f"Column {name!r}, row {(codes == code).argmax() + 1}: level {show(text)} is not declared (declared: "
                f"{listing(levels)}). Declare it or correct the table."
            )
    return np.array(list(map(position.__getitem__, texts)), dtype=np.int64)[codes]


def distinct_levels(column: pd.Series, name: str, known: Collection[str] = ()) -> tuple[NDArray[np.intp], list[str]]:
    """Return the distinct levels of a column as texts, and the position of each cell among them.

    A missing cell is an error, unless the text that marks it is one of the ``known`` levels.
    """
    import pandas as pd

    if column.dtype == object and pd.api.types.infer_dtype(column) != "string":
        column = column.map(spelling, na_action="ignore")  # before factorize, for which True equals 1
    codes, values = pd.factorize(column)
    spelled, texts = pd.factorize(np.array(list(map(spelling, values)), dtype=object))
    codes = np.append(spelled, -1)[codes]  # the code -1 of a missing cell selects the appended -1
    marks = [-1]
    for code, text in enumerate(texts):
        if text.lower() in _MISSING and text not in known:
            marks.append(code)
    missing = np.isin(codes, marks)
    if missing.any():
        raise TableError(
            f"Column {name!r} has {missing.sum()} missing values, the first in row {missing.argmax() + 1}. Drop those "
            "rows, or give the missing value a name in the table and declare it as a level."
        )
    return codes, list(texts)
