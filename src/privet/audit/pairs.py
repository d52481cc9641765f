"""Worst-case neighbouring tables, on which mechanisms reveal most.

Random tables hide bugs, because one record among many changes little. In these tables, one record has the largest
allowed influence in a direction in which no other record has any, and its counterpart has the opposite influence.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive

Floats = NDArray[np.float64]
Table = tuple[Floats, NDArray[Any]]


@dataclass(frozen=True)
class Pair:
    """Two tables that differ in one record. Each is a pair of rows and targets."""

    first: Table
    second: Table
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


CLASSIFICATION = (label_flip, opposite_row, outlier, last_record, extreme_row)
REGRESSION = (target_flip,)


def _zeros(n: int, d: int) -> Floats:
    return np.zeros((count("n", n, at_least=2), count("d", d)))


def _labels(n: int, first: int) -> NDArray[Any]:
    """Return labels of both classes with a given first label. The others do not matter, because their rows are zero."""
    labels = np.arange(n) % 2
    labels[0] = first
    return labels
