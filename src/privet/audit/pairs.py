"""Neighbouring datasets: worst-case tables, on which mechanisms reveal most, and neighbours of a given dataset.

Random tables hide bugs, because one record among many changes little. In worst-case tables, one record has the largest
allowed influence in a direction in which no other record has any, and its counterpart has the opposite influence.
:func:`neighbours` changes one unit of a given dataset to values at which arithmetic goes wrong most easily.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.privacy import Adjacency

Floats = NDArray[np.float64]
Table = tuple[Floats, NDArray[Any]]


@dataclass(frozen=True)
class Pair:
    """Two datasets that differ in one unit. Most are tables: pairs of rows and targets."""

    first: Any
    second: Any
    name: str

    def __iter__(self) -> Any:
        return iter((self.first, self.second))


def label_flip(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return tables of zeros except for one row of full norm, whose label is 1 in the first table and 0 in the second.

    All other gradients are zero, so this pair attains the sensitivity 2C in every step of a clipped descent.
    """
    X = _zeros(n, d)
    X[0, 0] = positive("row_norm", row_norm)
    return Pair((X, _labels(n, 1)), (X.copy(), _labels(n, 0)), "label flip")


def opposite_row(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return tables with one row of full norm, which has the opposite sign in the second table."""
    X = _zeros(n, d)
    X[0, 0] = positive("row_norm", row_norm)
    return Pair((X, _labels(n, 1)), (0.0 - X, _labels(n, 1)), "opposite row")


def outlier(n: int = 20, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return tables of similar rows with one row of full norm, which points the other way in the second table."""
    X = _zeros(n, d)
    X[:, 0] = positive("row_norm", row_norm) / 10
    X[0, 0] = row_norm
    second = X.copy()
    second[0, 0] = -row_norm
    return Pair((X, np.ones(n, dtype=int)), (second, np.ones(n, dtype=int)), "outlier")


def last_record(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return the label flip with the differing record at the end, where a fixed order hides it least."""
    (X, y), (_, y2) = label_flip(n, d, row_norm)
    return Pair((X[::-1].copy(), y[::-1].copy()), (X[::-1].copy(), y2[::-1].copy()), "last record")


def extreme_row(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return tables with one row far beyond the bound, which has the opposite sign in the second table."""
    X = _zeros(n, d)
    X[0, 0] = 1e6 * positive("row_norm", row_norm)
    return Pair((X, _labels(n, 1)), (0.0 - X, _labels(n, 1)), "extreme row")


def target_flip(n: int = 3, d: int = 2, row_norm: float = 1.0, target_bound: float = 1.0) -> Pair:
    """Return tables with one row of full norm, whose target is the largest in one and the smallest in the other."""
    X = _zeros(n, d)
    X[0, 0] = positive("row_norm", row_norm)
    y = np.zeros(n)
    y[0] = positive("target_bound", target_bound)
    return Pair((X, y), (X.copy(), 0.0 - y), "target flip")


def support_flip(n: int = 1001) -> Pair:
    """Return tables with two features that explain the target equally well, and one record that decides between them.

    Half of the rows are e1 and half are e2, all targets are 1, and the last row is e1 or e2. Sparse estimators that
    keep one feature jump from one to the other.
    """
    X = np.zeros((count("n", n, at_least=3), 2))
    half = (n - 1) // 2
    X[:half, 0] = X[half : n - 1, 1] = X[n - 1, 0] = 1.0
    second = X.copy()
    second[n - 1] = (0.0, 1.0)
    return Pair((X, np.ones(n)), (second, np.ones(n)), "support flip")


def scattered_table(n: int, d: int, row_norm: float = 1.0, target_bound: float | None = None) -> Table:
    """Return a table of rows in many directions, of norms around ``row_norm``, always the same one.

    Targets are the labels 0 and 1 if ``target_bound`` is None, and otherwise numbers between plus and minus the bound.
    """
    rows = np.cos(np.square(np.arange(1.0, _zeros(n, d).size + 1))).reshape(n, d)
    X = positive("row_norm", row_norm) * rows * np.sqrt(2 / d)
    if target_bound is None:
        return X, np.arange(n) % 2
    return X, target_bound * np.sin(np.square(np.arange(1.0, n + 1)))


SUBNORMAL = 5e-324
EXTREMES = {
    "huge numbers": 1e22,
    "tiny numbers": 1e-22,
    "subnormal numbers": SUBNORMAL,
    "negative zeros": -0.0,
    "a copy of another unit": None,
}


def neighbours(data: Any, adjacency: Adjacency = Adjacency.REPLACE_ONE, *, sort: bool = True) -> list[Pair]:
    """Return pairs of a dataset and neighbours of it, one for each way in which a unit can be unusual.

    Parameters
    ----------
    data : dataset
        Rows, as an array, a sparse matrix, a tensor, a DataFrame or a list of units, or a tuple of such parts with
        equal numbers of rows, such as ``(X, y)``; or a ``TensorDataset``.
    adjacency : Adjacency
        Under replace-one, a unit at the beginning, in the middle or at the end is replaced. Under add-or-remove, a unit
        is removed or added.
    sort : bool
        Whether to add a pair of sorted tables. A guarantee may assume that the order of the units means nothing.

    Returns
    -------
    list of Pair
        Units of huge, tiny and subnormal numbers, of negative zeros, and a copy of another unit. Under replace-one, the
        last pair is sorted by the first column of an array, and the replaced unit moves from one end to the other.

    Notes
    -----
    Only floating-point numbers become extreme. Integers, texts, and columns of whole numbers may be labels, of which
    only those in the data are known to be valid. In their place, the unit gets those of another unit.
    """
    whole = _Dataset.of(data)
    everyone = np.arange(whole.n)
    if whole.n < 2:
        raise ValueError(f"A dataset needs at least 2 units to have neighbours, got {whole.n}.")
    places = {"first": 0, "last": whole.n - 1, "middle": whole.n // 2}
    found = []
    if adjacency is Adjacency.ADD_OR_REMOVE:
        for where, place in places.items():
            found.append(Pair(data, whole.take(np.delete(everyone, place)), f"without the {where} unit"))
        for name, value in EXTREMES.items():
            found.append(Pair(data, whole.take(np.append(everyone, 0), whole.n, value), f"one more unit: {name}"))
        return found
    for (name, value), (where, place) in zip(EXTREMES.items(), cycle(places.items()), strict=False):
        order = everyone.copy()
        order[place] = (place + 1) % whole.n
        found.append(Pair(data, whole.take(order, place, value), f"{where} unit replaced: {name}"))
    return found + (whole.sorted_pair() if sort else [])


class _Dataset:
    """The parts of a dataset, each with one row per unit, and how a dataset is made of parts."""

    def __init__(self, parts: list[Any], rebuild: Callable[[list[Any]], Any]) -> None:
        for part in parts:
            if not isinstance(part, list | np.ndarray) and not any(hasattr(part, name) for name in _KINDS):
                raise ValueError(
                    f"Neighbours of a {type(part).__name__} cannot be made. Use arrays, sparse matrices, tensors, "
                    "DataFrames or lists, or make the neighbouring datasets yourself."
                )
        sizes = {part.shape[0] if hasattr(part, "shape") else len(part) for part in parts}
        if len(sizes) != 1:
            raise ValueError(f"The parts of the data have {sorted(sizes)} rows. They must agree.")
        (self.n,) = sizes
        self._parts, self._rebuild = parts, rebuild

    @classmethod
    def of(cls, data: Any) -> "_Dataset":
        if isinstance(data, tuple):
            return cls(list(data), tuple)
        if hasattr(data, "tensors"):  # a TensorDataset of torch
            return cls(list(data.tensors), lambda parts: type(data)(*parts))
        return cls([data], lambda parts: parts[0])

    def take(self, order: NDArray[np.int64], place: int | None = None, value: float | None = None) -> Any:
        """Return a copy of the units in this order. All numbers of the unit at ``place`` are set to ``value``."""
        taken = [_taken(part, order) for part in self._parts]
        return self._rebuild([part if value is None else _with_value(part, place, value) for part in taken])

    def sorted_pair(self) -> list[Pair]:
        """Return the dataset, sorted by its first column, and one in which the first unit has become the last."""
        first = self._parts[0]
        if not isinstance(first, np.ndarray) or first.dtype.kind != "f" or not first.size:
            return []
        column = first.reshape(self.n, -1)[:, 0]
        order = np.argsort(column, kind="stable")
        moved = self.take(np.append(order[1:], order[-1]), self.n - 1, 2 * abs(float(column.max())) + 1)
        return [Pair(self.take(order), moved, "first unit of a sorted table becomes the last")]


_KINDS = ("tocsr", "detach", "iloc")  # sparse matrices, tensors, and tables and columns of pandas


def _taken(part: Any, order: NDArray[np.int64]) -> Any:
    """Return a copy of the units of a part in this order."""
    if isinstance(part, list):
        return [part[unit] for unit in order]
    if hasattr(part, "iloc"):
        return part.iloc[order].reset_index(drop=True)
    return part.tocsr()[order] if hasattr(part, "tocsr") else part[order]


def _with_value(part: Any, place: Any, value: float) -> Any:
    """Return a part, all of whose numbers at a place were set to a value, unless the part may hold labels."""
    if isinstance(part, list):
        part[place] = _filled(part[place], value)
    elif hasattr(part, "columns"):
        for name in part.columns:
            part[name] = _with_value(part[name], place, value)
    elif hasattr(part, "tocsr"):
        rows = part.tolil()
        rows[place] = _filled(part[[place]].toarray(), value)
        return rows.tocsr()
    elif hasattr(part, "iloc"):
        if _is_numeric(part.to_numpy()):
            part.iloc[place] = _filled(part.iloc[place], value)
    elif _is_numeric(np.asarray(part)):
        part[place] = _filled(part[place], value)
    return part


def _is_numeric(values: NDArray[Any]) -> bool:
    """Return whether values are floating-point numbers other than a column of whole numbers, which may be labels."""
    return values.dtype.kind == "f" and (values.ndim > 1 or not np.array_equal(values, np.round(values)))


def _filled(unit: Any, value: float) -> Any:
    """Return a unit with all of its floating-point numbers set to a value, as far as their type can hold it."""
    if isinstance(unit, dict):
        return {key: _filled(each, value) for key, each in unit.items()}
    if isinstance(unit, tuple | list):
        return type(unit)(_filled(each, value) for each in unit)
    if hasattr(unit, "detach"):
        return unit.new_tensor(_filled(np.asarray(unit), value))
    values = np.asarray(unit)
    if values.dtype.kind != "f":
        return unit
    limits = np.finfo(values.dtype)
    number = float(limits.smallest_subnormal) if value == SUBNORMAL else min(value, float(limits.max) / 4)
    return np.full_like(values, number)[()]


CLASSIFICATION = (label_flip, opposite_row, outlier, last_record, extreme_row)
REGRESSION = (target_flip,)


def _zeros(n: int, d: int) -> Floats:
    return np.zeros((count("n", n, at_least=2), count("d", d)))


def _labels(n: int, first: int) -> NDArray[Any]:
    """Return labels of both classes with a given first label. The others do not matter, because their rows are zero."""
    labels = np.arange(n) % 2
    labels[0] = first
    return labels
