"""Neighbouring tables on which mechanisms give most away.

Random tables hide bugs: one record among many changes little. Here one record pulls as hard as its bound allows, in a
direction in which no other does, and its counterpart pulls the other way.
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
    """Two tables, rows and targets each, that differ in one record."""

    first: Table
    second: Table
    name: str

    def __iter__(self) -> Any:
        return iter((self.first, self.second))


def label_flip(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return one row of full norm among rows of zeros, labelled 1 or 0: its gradient turns round, nothing else moves.

    The pair that attains 2C in every step of a clipped descent: all other gradients are zero.
    """
    X = _zeros(n, d)
    X[0, 0] = positive("row_norm", row_norm)
    return Pair((X, _labels(n, 1)), (X.copy(), _labels(n, 0)), "label flip")


def opposite_row(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return one row of full norm, and its opposite, with one label."""
    X = _zeros(n, d)
    X[0, 0] = positive("row_norm", row_norm)
    return Pair((X, _labels(n, 1)), (-X, _labels(n, 1)), "opposite row")


def outlier(n: int = 20, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return a row of full norm, in line with the gradient of all the others, against one that pulls the other way."""
    X = _zeros(n, d)
    X[:, 0] = positive("row_norm", row_norm) / 10
    X[0, 0] = row_norm
    second = X.copy()
    second[0, 0] = -row_norm
    return Pair((X, np.ones(n, dtype=int)), (second, np.ones(n, dtype=int)), "outlier")


def last_record(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return the label flip at the end of the table: in a fixed order the last record is hidden least."""
    (X, y), (_, y2) = label_flip(n, d, row_norm)
    return Pair((X[::-1].copy(), y[::-1].copy()), (X[::-1].copy(), y2[::-1].copy()), "last record")


def extreme_row(n: int = 3, d: int = 2, row_norm: float = 1.0) -> Pair:
    """Return a row beyond all bounds, and its opposite: what clipping and scaling are for."""
    X = _zeros(n, d)
    X[0, 0] = 1e6 * positive("row_norm", row_norm)
    return Pair((X, _labels(n, 1)), (-X, _labels(n, 1)), "extreme row")


def target_flip(n: int = 3, d: int = 2, row_norm: float = 1.0, target_bound: float = 1.0) -> Pair:
    """Return one row of full norm with the largest and the least target: for regressions."""
    X = _zeros(n, d)
    X[0, 0] = positive("row_norm", row_norm)
    y = np.zeros(n)
    y[0] = positive("target_bound", target_bound)
    return Pair((X, y), (X.copy(), -y), "target flip")


def support_flip(n: int = 1001) -> Pair:
    """Return two features that explain the target equally well, and one record that decides between them.

    The pair on which sparse estimators that keep one feature jump from one to the other: half of the rows are e1, half
    e2, all targets 1, and the last row is e1 or e2.
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
    """Return labels of both classes, the first record's given: the others do not matter, their rows are zeros."""
    labels = np.arange(n) % 2
    labels[0] = first
    return labels
