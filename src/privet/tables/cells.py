"""Conversion of the cells of a column to numbers and levels, one cell at a time.

Error messages name rows and values of the table. They are meant for the owner of the table and are not covered by a
guarantee, so they must not be published. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import TableError, listing, show

if TYPE_CHECKING:
    import pandas as pd

# Texts that mark a missing cell, in lower case. A level that is declared with such a name is not missing.
_MISSING = frozenset({"", "na", "n/a", "nan", "nat", "<na>", "null", "none"})


def spelling(value: object) -> str:
    """Return the canonical text of a level: "1" for 1.0 and "1.0", "True" for "true". The text "01" is kept."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    return match[1] if (match := re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)) else text


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return the column of that name, which must exist exactly once."""
    if len(frame) == 0:
        raise TableError("The table is empty: it has no rows.")
    names = list(map(str, frame.columns))
    if names.count(name) > 1:
        raise TableError(f"The table has {names.count(name)} columns named {name!r}. Rename all but one.")
    if name in names:
        return frame.iloc[:, names.index(name)]
    folded = {column.lower(): column for column in names}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded)]
    hint = f"did you mean {listing(close, ' or ')}?" if close else f"it has {listing(names)}"
    raise TableError(f"The table has no column {name!r}: {hint}")


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
