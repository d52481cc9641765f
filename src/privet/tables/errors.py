"""The one error of tables, and how it shows values: short, on one line."""

from collections.abc import Sequence


class TableError(ValueError):
    """A table, or the description of one, that cannot be used: one line that names the cause and the remedy."""


def cut(text: str, width: int = 60) -> str:
    """Return the text, cut to a width."""
    return text if len(text) <= width else text[: width - 3] + "..."


def show(value: object) -> str:
    """Return a value as a message shows it."""
    return cut(repr(value))


def listing(names: Sequence[str], glue: str = ", ") -> str:
    """Return the first dozen names as a message lists them."""
    return glue.join(map(show, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
