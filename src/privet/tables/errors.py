"""The error that all functions for tables raise, and how its messages show values: short, and on one line."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class TableError(ValueError):
    """A table, or the description of a table, that cannot be used. The message names the cause and the remedy."""


class FileError(TableError):
    """A file that cannot be read. The message is completed with the path by the function that opened the file."""


def cut(text: str, width: int = 60) -> str:
    """Return the text, shortened to at most ``width`` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def show(value: object) -> str:
    """Return the representation of a value for a message, shortened."""
    return cut(repr(value))


def marked(rows: NDArray[np.int64], kind: str) -> str:
    """Return how many rows there are and which is the first, as in "2 missing values, the first in row 7"."""
    return f"{len(rows):,} {kind} value{'' if len(rows) == 1 else 's'}, the first in row {rows[0] + 1}"


def listing(names: Sequence[str], glue: str = ", ") -> str:
    """Return the first twelve names for a message, and the number of the others."""
    return glue.join(map(show, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
