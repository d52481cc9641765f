"""Public bounds of columns, which are declared without looking at the data and enforced by clipping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Outside this range, widths overflow or underflow.
_LARGEST, _NARROWEST = 1e300, 1e-290


@dataclass(frozen=True)
class Bounds:
    """The bounds to which the entries of each column are clipped.

    Parameters
    ----------
    lower, upper : array of shape (d,)
        Finite, at most 1e300 in absolute value, with ``lower < upper`` in every column.
    """

    lower: Floats
    upper: Floats

    @classmethod
    def declared(cls, lower: Any, upper: Any, names: Sequence[Any]) -> "Bounds":
        """Return the bounds of the named columns from any of the accepted forms.

        Parameters
        ----------
        lower, upper : float, sequence of floats, or mapping (a dict, a Series) from the name of a column
        names : sequence
            The names of the columns in order, or 0, 1, ... if they have no names.
        """
        below, above = _by_column("lower", lower, names), _by_column("upper", upper, names)
        narrow = above - below < _NARROWEST
        if narrow.any():
            j = int(np.argmax(narrow))
            raise ValueError(
                f"lower must be below upper, got {below[j]:g} and {above[j]:g} for column {names[j]!r}."
                + (" A column with equal bounds is constant: leave it out." if below[j] == above[j] else "")
            )
        return cls(below, above)

    @property
    def middle(self) -> Floats:
        """The middle of each column's bounds."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Floats:
        """Half the width of each column's bounds."""
        return (self.upper - self.lower) / 2

    @property
    def hold_zero(self) -> NDArray[np.bool_]:
        """Which columns have bounds that include zero."""
        return (self.lower <= 0) & (self.upper >= 0)

    def clip(self, X: Any, columns: Any = slice(None)) -> Floats:
        """Return entries of the given columns, clipped to their bounds, in float64."""
        return np.clip(np.asarray(X, dtype=np.float64), self.lower[columns], self.upper[columns])

    def unit(self, X: Any, columns: Any = slice(None)) -> Floats:
        """Return entries of the given columns, clipped to their bounds and mapped from these to [-1, 1]."""
        clipped = self.clip(X, columns)
        clipped -= self.middle[columns]
        clipped /= self.half[columns]
        return np.clip(clipped, -1.0, 1.0, out=clipped)  # the division may have rounded up


def _by_column(which: str, given: Any, names: Sequence[Any]) -> Floats:
    """Return one bound per column."""
    if hasattr(given, "keys") and hasattr(given, "items"):
        given = _in_order(which, given, names)
    values = np.asarray(given)
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{which} must be a number, one number per column, or a mapping from column names to numbers.")
    if values.ndim == 0:
        values = np.full(len(names), values)
    if values.shape != (len(names),):
        size = f"{len(values)}" if values.ndim == 1 else f"an array of {values.ndim} dimensions"
        raise ValueError(
            f"{which} must be one number, or one number per column. There are {len(names)} columns, got {size}."
        )
    values = values.astype(np.float64)
    usable = np.abs(values) <= _LARGEST  # False for NaN
    if not usable.all():
        j = int(np.argmin(usable))
        raise ValueError(
            f"{which} must be finite and at most {_LARGEST:g} in absolute value, got {values[j]:g} for column "
            f"{names[j]!r}"
        )
    return values


def _in_order(which: str, given: Any, names: Sequence[Any]) -> list[Any]:
    """Return the values of a mapping in the order of the columns."""
    pairs = list(given.items())
    known = dict(pairs)
    if len(known) < len(pairs):
        raise ValueError(f"{which} names a column twice. Keep one bound per column.")
    unknown = [key for key in known if key not in set(names)]
    if unknown:
        raise ValueError(f"{which} names {unknown[0]!r}, which is not a column. The columns are {_listed(names)}.")
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"{which} has no bound for column {missing[0]!r}. Declare one for every column.")
    return [known[name] for name in names]


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (", ..." if len(names) > 8 else "")
