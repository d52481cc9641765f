"""Reading tables: from files to data frames, and from the cells of a column to numbers and levels, one by one.

Error messages name rows and values of the table. They are meant for the owner of the table and are not covered by a
guarantee, so they must not be published. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import difflib
import re
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import TableError, cut, listing, show

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")
# Texts that mark a missing cell, in lower case. A level that is declared with such a name is not missing.
_MISSING = frozenset({"", "na", "n/a", "nan", "nat", "<na>", "null", "none"})


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV file (.csv or .tsv, optionally followed by .gz) or a Parquet file (.parquet or .pq).

    The columns of a CSV file stay text, so that a level "01" is not read as 1 and a level "None" not as missing.
    `TableSchema.encode` converts the columns that are declared numeric.
    """
    import pandas as pd

    path = Path(path)
    separator = None
    for ending, mark in _SEPARATORS.items():
        if path.name.lower().endswith(ending):
            separator = mark
    if separator is None and not path.name.lower().endswith(_PARQUET):
        endings = ", ".join((*_SEPARATORS, *_PARQUET))
        raise TableError(f"The format of {path} is not known from its ending. Rename it to end in one of {endings}.")
    if not path.exists():
        raise TableError(f"There is no file {path}. Check the path.")
    try:
        if separator is None:
            frame = pd.read_parquet(path)
        else:
            # The header is read as a row. Otherwise pandas would rename repeated names, and would take the first column
            # for an index if the rows are longer than the header, so that every name moves by one column.
            as_text = {"header": None, "dtype": str, "na_filter": False, "skipinitialspace": True}
            frame = pd.read_csv(path, sep=separator, encoding="utf-8-sig", **as_text)
            header = list(map(str.strip, map(str, frame.iloc[0])))
            frame = frame.iloc[1:].reset_index(drop=True).set_axis(header, axis=1)
    except pd.errors.EmptyDataError:
        raise TableError(f"The file {path} is empty. It needs a header and rows.") from None
    except (OSError, EOFError, ValueError, NotImplementedError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"privet cannot read {path}: {cut(reason, 200)}") from error
    if frame.empty:
        raise TableError(f"The table {path} is empty: it has no rows.")
    return frame


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
