"""The public description of the columns of an additive model: bounds or levels, and the cell of each record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives.curves import CELLS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AdditiveColumn:
    """A column of numbers between public bounds, or of declared levels.

    Parameters
    ----------
    name : str
    bounds : pair of float, or None for levels
    levels : tuple, or None for numbers
    """

    name: str
    bounds: tuple[float, float] | None = None
    levels: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.levels is not None:
            if len(self.levels) < 2 or len({*map(str, self.levels)}) < len(self.levels):
                raise ValueError(f"Column {self.name!r} needs at least two levels, all different: {self.levels!r}.")
            return
        assert self.bounds is not None
        low, high = self.bounds
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"Column {self.name!r} needs bounds low < high, got {self.bounds!r}.")

    @property
    def n_cells(self) -> int | None:
        """Number of levels, or None for numbers."""
        return None if self.levels is None else len(self.levels)

    def cells(self, values: Any) -> NDArray[np.int32]:
        """Return the cell of each entry. Numbers are clipped to the bounds first."""
        if self.levels is not None:
            return self._codes(values)
        try:
            numbers = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            remedy = "Encode it as numbers, or declare its levels."
            raise ValueError(f"The column {self.name!r} of X cannot be read as numbers ({error}). {remedy}") from error
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"The column {self.name!r} of X contains NaN or infinity. Drop such rows, or fill them with a public "
                "constant."
            )
        assert self.bounds is not None
        low, high = self.bounds
        share = (np.clip(numbers, low, high) / 2 - low / 2) / (high / 2 - low / 2)
        return np.minimum((share * CELLS).astype(np.int32), CELLS - 1)

    def edges(self) -> Floats:
        """Return the ends of the cells of a number."""
        assert self.bounds is not None
        return np.asarray(np.linspace(*self.bounds, CELLS + 1))

    def _codes(self, values: Any) -> NDArray[np.int32]:
        assert self.levels is not None
        place = {str(level): code for code, level in enumerate(self.levels)}
        whole = {_as_whole(text): code for text, code in place.items()}
        if hasattr(values, "categories"):  # a Categorical of pandas, whose cells need not be compared
            found, inverse = np.append(np.asarray(values.categories, dtype=str), "nan"), np.asarray(values.codes)
        else:
            found, inverse = np.unique(np.asarray(values).astype(str), return_inverse=True)
        codes = np.array([place.get(text, whole.get(_as_whole(text), -1)) for text in found.tolist()], dtype=np.int32)
        cells = np.asarray(codes[inverse.ravel()])
        if (cells < 0).any():  # categories that no row has need not be declared
            unknown = str(found[inverse.ravel()[int(np.argmax(cells < 0))]])
            raise ValueError(
                f"The column {self.name!r} of X has the level {unknown!r}, which is not among the declared "
                "levels. Declare it, or correct the row."
            )
        return cells


def _as_whole(text: str) -> str:
    """Return how a whole number that numpy spells as a float, such as 3.0, is spelled as a level."""
    return text.removesuffix(".0")


def described(names: Sequence[str], bounds: Any, levels: Any) -> list[AdditiveColumn]:
    """Return the columns with these names, by the ``bounds`` and ``levels`` of an estimator."""
    of_levels = dict(_by_name(names, levels, "levels"))
    numbers = [name for name in names if name not in of_levels]
    if isinstance(bounds, Mapping):
        given = dict(_by_name(names, bounds, "bounds"))
        missing = [name for name in numbers if name not in given]
        if missing:
            raise ValueError(f"bounds has no entry for the column {missing[0]!r}. Declare its bounds or its levels.")
        of_numbers = [_pair(given[name]) for name in numbers]
    elif np.ndim(bounds) < 2:
        of_numbers = [_pair(bounds)] * len(numbers)
    else:
        of_numbers = [_pair(each) for each in bounds]
        if len(of_numbers) != len(numbers):
            raise ValueError(f"bounds has {len(of_numbers)} pairs, but X has {len(numbers)} columns without levels.")
    found = dict(zip(numbers, of_numbers, strict=True))
    return [
        AdditiveColumn(name, levels=tuple(of_levels[name]))
        if name in of_levels
        else AdditiveColumn(name, bounds=found[name])
        for name in names
    ]


def _by_name(names: Sequence[str], given: Any, what: str) -> list[tuple[str, Any]]:
    """Return the entries of a mapping by the names of columns. A key may also be the position of a column."""
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{what} must be a mapping from columns, got {given!r}.")
    found = []
    for key, value in (given or {}).items():
        name = key if key in names else names[key] if isinstance(key, int) and 0 <= key < len(names) else None
        if name is None:
            raise ValueError(f"{what} has an entry for {key!r}, which is not a column of X.")
        found.append((name, value))
    return found


def position(names: Sequence[str], key: Any, what: str) -> int:
    """Return the position of a column that is given by its name or its position."""
    ((name, _),) = _by_name(names, {key: None}, what)
    return list(names).index(name)


def group_names(fields: Mapping[str, Any], groups: NDArray[Any]) -> list[str]:
    """Return the names of groups of the bins of a curve that an estimator stores, for the bins of a pair."""
    found = []
    for group in range(int(groups.max()) + 1):
        bins = np.flatnonzero(groups == group)
        if "edges" in fields:
            found.append(f"{fields['edges'][bins[0]]:.4g} to {fields['edges'][bins[-1] + 1]:.4g}")
        else:
            found.append(fields["levels"][bins[0]] if len(bins) == 1 else "others")
    return found


def _pair(bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds must be a pair (low, high) per column, got {bounds!r}.") from error
    return low, high
