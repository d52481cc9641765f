"""Cells of a column to numbers and levels, each by itself, and errors that name the cell.

Messages name rows and values of the table. They are meant for its holder at the keyboard and are covered by no
guarantee: do not publish them. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import TableError, listing, show

if TYPE_CHECKING:
    import pandas as pd

_MISSING = frozenset(
    {"", "na", "n/a", "nan", "nat", "<na>", "null", "none"}
)  # lower case; a declared level wins over these


def spelling(value: object) -> str:
    """Spell a level one way: 1.0 and "1.0" as 1, "true" as True; "01" stays."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    return match[1] if (match := re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)) else text


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return the one column of that name, or say what is there instead."""
    if len(frame) == 0:
        raise TableError("the table is empty: it has no rows")
    names = [str(column) for column in frame.columns]
    if names.count(name) > 1:
        raise TableError(f"the table has {names.count(name)} columns named {name!r}: rename all but one")
    if name in names:
        return frame.iloc[:, names.index(name)]
    folded = {column.lower(): column for column in names}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded)]
    hint = f"did you mean {listing(close, ' or ')}?" if close else f"it has {listing(names)}"
    raise TableError(f"the table has no column {name!r}: {hint}")


def numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    """Return the cells as finite numbers."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    if is_numeric_dtype(column) and not is_complex_dtype(column):
        values: NDArray[np.float64] = column.to_numpy(np.float64, na_value=np.nan)
    else:
        cells = column.to_numpy(object)
        try:
            values = cells.astype(np.float64)  # float() of each cell; pandas' own parser rounds by what else is there
        except (TypeError, ValueError, OverflowError):
            values = _explain_cells(name, cells)
    bad = ~np.isfinite(values)
    if bad.any():
        raise TableError(
            f"column {name!r} has {bad.sum()} missing or infinite values, the first in row {bad.argmax() + 1}: "
            "drop those rows or fill them with a public constant"
        )
    return values


def _explain_cells(name: str, cells: NDArray[np.object_]) -> NDArray[np.float64]:
    """Convert cell by cell, with NaN for a missing one, to name the first that is not a number."""
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        try:
            values[row] = float(cell)
        except (TypeError, ValueError, OverflowError):
            if str(cell).strip().lower() not in _MISSING:
                raise TableError(
                    f"column {name!r}, row {row + 1}: {show(cell)} is not a number: correct it, or declare the "
                    "column's levels instead of bounds"
                ) from None
    return values


def level_codes(column: pd.Series, name: str, levels: Sequence[str]) -> NDArray[np.int64]:
    """Return each cell's position among the declared levels."""
    position = {spelling(level): index for index, level in enumerate(levels)}
    codes, texts = factorize(column)
    refuse_missing(name, codes, texts, position)
    for code, text in enumerate(texts):
        if text not in position:
            raise TableError(
                f"column {name!r}, row {(codes == code).argmax() + 1}: level {show(text)} is not declared "
                f"(declared: {listing(levels)}): declare it or correct the table"
            )
    return np.array([position[text] for text in texts], dtype=np.int64)[codes]


def factorize(column: pd.Series) -> tuple[NDArray[np.intp], list[str]]:
    """Return each cell's position in a list of distinct level texts, or -1 for a missing cell."""
    import pandas as pd

    if column.dtype == object and pd.api.types.infer_dtype(column) != "string":
        column = column.map(spelling, na_action="ignore")  # cell by cell: to factorize, True equals 1
    codes, values = pd.factorize(column)
    spelled, texts = pd.factorize(np.array([spelling(value) for value in values], dtype=object))
    return np.append(spelled, -1)[codes], list(texts)  # -1 picks the appended -1


def refuse_missing(name: str, codes: NDArray[np.intp], texts: Sequence[str], known: Iterable[str]) -> None:
    """Raise on a missing cell, unless its mark is itself a known level."""
    marks = [-1, *(code for code, text in enumerate(texts) if text.lower() in _MISSING and text not in known)]
    missing = np.isin(codes, marks)
    if missing.any():
        raise TableError(
            f"column {name!r} has {missing.sum()} missing values, the first in row {missing.argmax() + 1}: "
            "drop those rows, or name the missing value in the table and declare it as a level"
        )
