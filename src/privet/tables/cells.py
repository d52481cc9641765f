"""Cells of any kind of column: which of them are missing, how a level is spelled, and what may name a column.

Error messages name rows and values of the table. They are meant for the owner of the table and are not covered by a
guarantee, so they must not be published. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from privet.tables.errors import TableError, did_you_mean, listing, show

if TYPE_CHECKING:
    import pandas as pd

MARKS = frozenset({"", "na", "n/a", "nan", "nat", "<na>", "null", "none"})
"""Texts that mark a missing cell, in lower case. A level that is declared with such a name is not missing."""

REFUSE, LEVEL = "refuse", "level"
"""What to do with the missing cells of a feature, unless a public constant stands for them."""

MISSING = "(missing)"
"""The name of the level of missing cells."""


def check_name(name: object) -> None:
    """Raise TableError unless ``name`` can name a column."""
    if not isinstance(name, str) or not name.strip():
        raise TableError(f"{show(name)} is not a column name. Use a non-empty text.")


def spelling(value: object) -> str:
    """Return the canonical text of a level: "1" for 1.0 and "1.0", "True" for "true". The text "01" is kept."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    return match[1] if (match := re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)) else text


def is_mark(cell: object) -> bool:
    """Return whether a cell marks a missing value."""
    return str(cell).strip().lower() in MARKS


def columns_of(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[pd.Series]:
    """Yield the columns of these names. Each must exist exactly once."""
    if len(frame) == 0:
        raise TableError("The table is empty: it has no rows.")
    positions = positions_of(list(map(str, frame.columns)), names)
    return (frame.iloc[:, positions[name]] for name in names)


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return the column of that name, which must exist exactly once."""
    return next(columns_of(frame, [name]))


def positions_of(names: Sequence[str], wanted: Iterable[str]) -> dict[str, int]:
    """Return the positions of the wanted names, each of which must occur exactly once among the names of a table."""
    counts = Counter(names)
    positions = {name: position for position, name in enumerate(names)}
    for name in wanted:
        if counts[name] > 1:
            raise TableError(f"The table has {counts[name]} columns named {name!r}. Rename all but one.")
        if name not in positions:
            raise _no_column(name, names)
    return positions


def _no_column(name: str, names: Sequence[str]) -> TableError:
    hint = did_you_mean(name, names) or f"It has {listing(names)}."
    return TableError(f"The table has no column {name!r}. {hint}")
