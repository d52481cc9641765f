"""Means and second moments of all columns, in one noisy release."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import count
from privet.plans import OutputPlan
from privet.preprocessing.bounds import Bounds, Floats
from privet.privacy import Adjacency, NoiseSource

# Weight of the squares: the largest that does not increase the sensitivity. See MomentStability.
SQUARE_WEIGHT = ((1 + math.sqrt(5)) / 2) ** 2.5 / 2

_UNIT = 1 << 30  # entries are rounded to multiples of 1/_UNIT, so that sums in integers are exact
_MOST_ROWS = 1 << 32  # a sum over this many rows fits into 64 bits
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class MomentStability:
    """Sensitivity of the vector of means of u and w u^2, over columns with u in [-1, 1], when a record is replaced.

    Parameters
    ----------
    n : int
        Number of records.
    n_columns : int
        Number d of columns; the vector has 2d entries.

    Formal guarantees
    -----------------
    One column of one record moves (u, w u^2) by a squared length of t^2 (1 + w^2 s^2), where t = u - u' and
    s = u + u'. All |s| + |t| <= 2 occur, so the largest value is that of g(s) = (2 - s)^2 (1 + w^2 s^2) over
    0 <= s <= 2. If the entry moves from one bound to the other, the square does not change, and g(0) = 4. The condition
    g(s) <= 4 for all s is equivalent to w^2 <= (4 - s)/(s (2 - s)^2) for all s. The right side is smallest at
    s = 3 - sqrt(5), where it is phi^5/4 with the golden ratio phi. With w = phi^(5/2)/2 = 1.665 the squares therefore
    do not increase the sensitivity: the vector of all columns moves by at most 2 sqrt(d)/n, as the means alone do.

    Entries and squares are rounded to multiples of 2^-30 and summed exactly as integers. The rounding of squares adds
    at most 2^-30 to w |u^2 - u'^2|, hence less than a relative 2^-29 to the length, and the last roundings of a mean
    add less than a relative n 2^-50. Both are included in :attr:`sensitivity`.
    """

    n: int
    n_columns: int

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n", self.n)
        count("n_columns", self.n_columns)
        if self.n > _MOST_ROWS:
            raise ValueError(
                f"Sums over more than {_MOST_ROWS} rows do not fit into 64 bits, got {self.n} rows. Use a sample."
            )

    @property
    def sensitivity(self) -> float:
        """Largest l2 distance between the vectors of two neighbouring datasets."""
        rounding = 2.0**-29 + self.n * 2.0**-50
        return 2 * math.sqrt(self.n_columns) / self.n * (1 + rounding)

    def in_words(self) -> str:
        """Return a one-line description of the sensitivity for a guarantee."""
        return (
            f"means and second moments of {self.n_columns} columns, clipped and mapped to [-1, 1], over {self.n} "
            f"records move by at most {self.sensitivity:.4g} when one is replaced"
        )


def moment_vector(X: Any, bounds: Bounds) -> Floats:
    """Return the vector to be released, without noise: the means of u, and the means of u^2 times ``SQUARE_WEIGHT``."""
    sums = _sparse_sums(X, bounds) if sparse.issparse(X) else _dense_sums(X, bounds)
    means: Floats = sums / (X.shape[0] * float(_UNIT))
    means[1] *= SQUARE_WEIGHT
    return means.ravel()


def noisy_moments(X: Any, bounds: Bounds, plan: OutputPlan, source: NoiseSource) -> tuple[Floats, Floats, Floats]:
    """Return noisy means and variances of u, and the standard deviation of the noise in each variance."""
    mean, square = plan.noisy(moment_vector(X, bounds), source).reshape(2, -1)
    mean, square = np.clip(mean, -1.0, 1.0), np.clip(square / SQUARE_WEIGHT, 0.0, 1.0)
    noise = noise_std(plan, 2 * mean.size) * np.hypot(1 / SQUARE_WEIGHT, 2 * mean)
    return mean, square - mean**2, noise


def noise_std(plan: OutputPlan, size: int) -> float:
    """Return the standard deviation of the noise in each of ``size`` entries."""
    # The radius of K-norm noise has the law Gamma(size, scale), with mean square size (size + 1) scale^2.
    return plan.scale * math.sqrt(size + 1) if plan.is_pure else plan.scale


def _dense_sums(X: NDArray[Any], bounds: Bounds) -> NDArray[np.int64]:
    """Return the sums of u and of u^2, in multiples of 1/_UNIT, block by block."""
    n, d = X.shape
    total = np.zeros((2, d), dtype=np.int64)
    step = max(1, _BLOCK_ENTRIES // d)
    for start in range(0, n, step):
        u, square = _rounded(bounds.unit(X[start : start + step]))
        total[0] += u.sum(axis=0)
        total[1] += square.sum(axis=0)
    return total


def _sparse_sums(X: Any, bounds: Bounds) -> NDArray[np.int64]:
    """Return the same sums from CSR rows: the sums if all entries were zero, plus the differences of stored entries."""
    n, d = X.shape
    zeros = np.stack(_rounded(bounds.unit(np.zeros(d))))
    total: NDArray[np.int64] = zeros * n
    for start in range(0, X.nnz, _BLOCK_ENTRIES):
        columns = X.indices[start : start + _BLOCK_ENTRIES]
        stored = _rounded(bounds.unit(X.data[start : start + _BLOCK_ENTRIES], columns))
        for row, values, zero in zip(total, stored, zeros, strict=True):
            np.add.at(row, columns, values - zero[columns])
    return total


def _rounded(u: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return u and u^2 in multiples of 1/_UNIT. The square is that of the rounded entry."""
    grid = np.rint(u * _UNIT)
    return grid.astype(np.int64), np.rint(grid * (grid / _UNIT)).astype(np.int64)
