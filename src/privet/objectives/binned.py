"""Rows of an additive model: each record is in one bin per column, and its row consists of the features of its bins.

Scores and sums go through the values of the bins: the sum over records adds one number per record and column, whatever
the number of bins and features. A step therefore costs the same for 8 bins and for 256.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.objectives.curves import Curve, Pair
from privet.objectives.summation import MOST_ROWS, ROUNDING, check_number_of_rows
from privet.objectives.threads import in_threads

Floats = NDArray[np.float64]

_PART = 1 << 16  # rows that one thread works on at a time
_BITS = 22  # coefficients are multiples of 2^-22 of their bound, so that sums of 2^30 of them are exact
_UNIT_ROUNDOFF = 2.0**-53


class BinnedRows:
    """Rows for :class:`~privet.objectives.GeneralisedLinear`, with a constant column for the intercept.

    Parameters
    ----------
    cells : array of shape (n, columns)
        The cell of each record in each column.
    curves : sequence of Curve
        The bins of each column, which depend on the records through noisy counts alone.
    clip_norm : float
        The bound to which gradients will be clipped.
    pairs : sequence of Pair
        Joint terms of two columns.

    Attributes
    ----------
    features : list of arrays
        The features of the bins of each column, scaled such that the mean squared norm of a row is 1 by the noisy
        counts.
    intercept : float
        The value of the constant column.
    norm_bound : float
        A bound on the norm of every row.

    Notes
    -----
    Coefficients are rounded towards zero to multiples of a public power of two. Their sums over the records of each
    bin are then exact in float64, in any order and for any division among threads. What remains are the roundings of
    one product per feature with the exact sums of its bins, which ``rounding`` covers (docs/proofs.md, section 36).
    """

    rounding = ROUNDING

    def __init__(
        self, cells: NDArray[Any], curves: Sequence[Curve], clip_norm: float, pairs: Sequence[Pair] = ()
    ) -> None:
        check_number_of_rows(len(cells))
        self.n = len(cells)
        terms = [*curves, *(pair.curve for pair in pairs)]
        found = [curve.features() for curve in terms]
        squares = [(each * each).sum(axis=1) for each in found]
        typical = math.sqrt(1 + sum(float(c.shares @ square) for c, square in zip(terms, squares, strict=True)))
        self.features = [each / typical for each in found]
        self.intercept = 1 / typical
        self._map = sparse.csr_array(sparse.block_diag(self.features, format="csr"))
        self._back = sparse.csr_array(self._map.T)
        self.n_features = int(self._map.shape[1])
        self.dimension = self.n_features + 1
        squares = [square / typical**2 for square in squares]
        self.largest_norm = math.sqrt(sum(float(square.max()) for square in squares) + self.intercept**2)
        self.norm_bound = self.largest_norm * (1 + ROUNDING)
        self._grid = 2.0 ** (math.ceil(math.log2(clip_norm / self.intercept)) - _BITS)
        self._parts = _membership(cells, curves, pairs)
        squared = self._bin_scores(np.concatenate(squares)) + self.intercept**2
        self._norms = np.sqrt(squared)
        most = max(curve.n_bins for curve in terms)
        if 2.02 * _UNIT_ROUNDOFF * self.n * (most + 16) > ROUNDING:
            raise ValueError(
                f"A column has {most} levels and the table {self.n} rows, for which the rounding errors of sums are "
                f"not bounded. Join levels, or use a sample of the rows (at most {MOST_ROWS})."
            )

    def norms(self) -> Floats:
        """Return the norm of each row."""
        return self._norms

    def residual_limits(self, clip_norm: float) -> Floats:
        """Return the largest residual of each row for which residual times row has norm at most ``clip_norm``.

        The limits are slightly smaller, to leave room for rounding.
        """
        return np.asarray(clip_norm / (1 + ROUNDING) / self._norms)

    def bin_values(self, weights: Floats) -> Floats:
        """Return the value of each bin, column after column."""
        return np.asarray(self._map @ weights[: self.n_features])

    def scores(self, weights: Floats) -> Floats:
        """Return the scores of the rows, of shape (n,) or (n, outputs)."""
        scores = self._bin_scores(self.bin_values(weights))
        scores += self.intercept * weights[self.n_features]
        return scores

    def combine(self, coefficients: Floats) -> Floats:
        """Return the sum over rows of row times coefficient."""
        exact = np.trunc(coefficients / self._grid)

        def counted(item: tuple[slice, Any, Any]) -> Floats:
            place, _, transposed = item
            return np.asarray(transposed @ exact[place])

        by_bin = self._grid * np.sum(in_threads(counted, self._parts), axis=0)
        total = np.empty((self.dimension, *coefficients.shape[1:]))
        total[: self.n_features] = self._back @ by_bin
        total[self.n_features] = self.intercept * self._grid * exact.sum(axis=0)
        return total

    def parts(self) -> "list[tuple[slice, BinnedRows]]":
        """Return all rows as one part: sums over parts of them would not be exact."""
        return [(slice(None), self)]

    def take(self, batch: Any, *, alone: bool = False) -> "BinnedRows":
        """Return these rows. Only full batches are supported."""
        if not (isinstance(batch, slice) and batch == slice(None)):
            raise ValueError("Additive models are trained with full batches only.")
        return self

    def _bin_scores(self, values: Floats) -> Floats:
        found = in_threads(lambda item: np.asarray(item[1] @ values), self._parts)
        return np.concatenate(found)


def bins_of(cells: NDArray[Any], curves: Sequence[Curve], pairs: Sequence[Pair]) -> list[NDArray[np.intp]]:
    """Return the bins of records in each term: the columns, then the pairs."""
    found = [curve.bin_of_cell[cells[:, j]] for j, curve in enumerate(curves)]
    return found + [pair.bins(*(found[j] for j in pair.columns)) for pair in pairs]


def _membership(cells: NDArray[Any], curves: Sequence[Curve], pairs: Sequence[Pair]) -> list[tuple[slice, Any, Any]]:
    """Return parts of the rows, each with the matrix of zeros and ones that says which bins its records are in."""
    sizes = [term.n_bins for term in (*curves, *(pair.curve for pair in pairs))]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ones = np.ones(min(len(cells), _PART) * len(sizes))  # shared by all parts
    parts = []
    for start in range(0, len(cells), _PART):
        place = slice(start, min(start + _PART, len(cells)))
        bins = np.empty((place.stop - start, len(sizes)), dtype=np.int32)
        for j, found in enumerate(bins_of(cells[place], curves, pairs)):
            bins[:, j] = found + starts[j]
        indptr = np.arange(0, bins.size + 1, len(sizes), dtype=np.int32)
        matrix = sparse.csr_array((ones[: bins.size], bins.ravel(), indptr), shape=(len(bins), int(starts[-1])))
        parts.append((place, matrix, matrix.T))
    return parts
