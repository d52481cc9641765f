"""The errors that functions for tables raise, and how their messages show values: short, and on one line."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TableError(ValueError):
    """A table, or the description of a table, that cannot be used. The message names the cause and the remedy."""


class FileError(TableError):
    """A file that cannot be read. The message is completed with the path by the function that opened the file."""


class SchemaError(TableError):
    """Everything that is wrong with the description of a table.

    Parameters
    ----------
    errors : SchemaErrors
        The errors by column. The message is that of the first one, with the number of the others.
    rest : TableSchema or None
        The schema without the wrong parts, if there is one. ``privet check`` checks the table by it.
    """

    def __init__(self, errors: "SchemaErrors", rest: Any = None) -> None:
        message = str(errors.found[0][1])
        if more := len(errors.found) - 1:
            message += (
                f" (The schema has {more} more problem{'s' if more > 1 else ''}. privet check lists all of them.)"
            )
        super().__init__(message)
        self.errors, self.rest = errors, rest


class SchemaErrors:
    """Collects the errors of a schema, so that all of them can be reported at once.

    ``found`` has pairs of a column, or None for an error of the whole schema, and its error.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str | None, TableError]] = []
        self._messages: set[str] = set()

    @property
    def columns(self) -> set[str | None]:
        """The columns whose declarations are wrong."""
        return {column for column, _ in self.found}

    def add(self, message: str, column: object = None) -> None:
        """Add an error, unless it is known already."""
        if message not in self._messages:
            self._messages.add(message)
            self.found.append((None if column is None else str(column), TableError(message)))

    @contextlib.contextmanager
    def catch(self, column: object = None) -> Iterator[None]:
        """Add the error that the body raises, if any."""
        try:
            yield
        except TableError as error:
            self.add(str(error), column)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a question that names the closest of the known names, in any case of letters, or None."""
    folded = {each.strip().lower(): each for each in known}
    close = [folded[match] for match in difflib.get_close_matches(name.strip().lower(), folded)]
    return f"Did you mean {listing(close, ' or ')}?" if close else None


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
