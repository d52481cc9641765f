"""Warnings for old names that still work. Each warning gives the new name."""

import warnings
from typing import Any


def renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that ``old`` is deprecated and ``new`` replaces it. The warning points at the caller's caller."""
    warnings.warn(f"{old} is deprecated. Use {new} instead.", DeprecationWarning, stacklevel=stacklevel)


def renamed_argument(function: str, old: str, value: Any, new: str, new_value: Any, *, default: Any = None) -> Any:
    """Return the value of an argument that may have been given under its old name.

    Raises ``TypeError`` if both names were given.
    """
    if value is None:
        return new_value
    if new_value is not default:
        raise TypeError(f"{function}() got both {new!r} and its deprecated name {old!r}. Give only {new!r}.")
    renamed(f"The argument {old!r} of {function}()", repr(new), stacklevel=4)
    return value
