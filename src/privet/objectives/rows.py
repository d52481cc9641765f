"""The data matrix with its bound: every row inside a public ball, the intercept included, without a copy."""

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[Any]

# Bounds outside this range are refused: squares would underflow, steps would vanish.
SMALLEST_NORM, LARGEST_NORM = 1e-10, 1e10

_HUGE = 1e140  # a longer row is divided before it is multiplied, or its products would overflow
_TINY = 1e-140  # squares of smaller entries may underflow: no row counts as shorter, or its clip would be too lax
_SLACK = 1e-14  # what scaling one row may leave of its excess over the bound
_BLOCK = 65_536  # rows summed at a time
_UNIT_ROUNDOFF = 2.0**-53


def rounding_of_sums(n: int, dimension: int) -> float:
    """Return what sums over n rows may err by, relative to the bound of one row: see :class:`BoundedRows`."""
    return 8 * _UNIT_ROUNDOFF * (n * (_BLOCK + n / _BLOCK) + dimension)


class BoundedRows:
    """Rows scaled down to norm at most ``row_norm``, with a constant column for the intercept.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d), float32 or float64
        Finite. A float64 matrix is not copied (but for rows near the largest float), a float32 one is widened: sums
        in single precision cannot be bounded tightly. A sparse matrix is never densified.
    row_norm : float
        Public bound R. A longer row is multiplied by R over its norm; each row's factor depends on that row alone.
    intercept : float
        Value of the constant column, 0 for none.

    Attributes
    ----------
    row_norm, intercept : float
        As given.
    largest_norm : float
        sqrt(R^2 + intercept^2), above the norm of any row. It tells nothing of n.
    norm_bound : float
        Enforced bound on what one row weighs in a sum: ``largest_norm``, and a little for rounding.
    rounding : float
        That little, relative: the rounding errors of two sums over n rows of contributions bounded by C, in blocks of
        B, are together at most 2 u n (B + n/B) C. docs/proofs.md, section 7, says why four times that. The norm
        of one row of d entries errs by at most u d / 2, relatively.
    """

    def __init__(self, X: Any, row_norm: float, intercept: float = 0.0) -> None:
        X = _canonical(X)
        if not SMALLEST_NORM <= row_norm <= LARGEST_NORM:
            raise ValueError(f"the norm of rows must lie in [{SMALLEST_NORM:g}, {LARGEST_NORM:g}], got {row_norm:g}")
        norms = _row_norms(X)
        if not np.isfinite(norms).all() and not np.isfinite(X.data if sparse.issparse(X) else X).all():
            raise ValueError("rows hold NaN or infinity: drop them, or fill them with a public constant")
        limit = row_norm * (1 - _SLACK)
        huge = norms > _HUGE
        if huge.any():
            X = _divided(X, norms, huge, limit)
            norms = np.where(huge, limit, norms)
        with np.errstate(divide="ignore"):
            factors = np.where(norms > limit, limit / norms, 1.0)
        self._X = X
        shortest = _TINY * (1 + X.shape[1]) ** 0.5
        self._norms: NDArray[np.float64] = np.maximum(np.hypot(norms * factors, intercept), shortest)
        self._norms.flags.writeable = False
        self._factors: Floats | None = factors if (factors < 1).any() else None
        self.intercept = intercept
        self._centre: Floats | None = None
        self._shrinks: Floats | None = None
        self._turned: list[tuple[slice, Any]] | None = None
        self._limits: tuple[float, NDArray[np.float64]] | None = None
        self.row_norm = float(row_norm)
        self.largest_norm = float(np.hypot(row_norm, intercept))
        self.rounding = rounding_of_sums(self.n, self.dimension)
        self.norm_bound = self.largest_norm * (1 + self.rounding)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self._X.shape[0])

    @property
    def dimension(self) -> int:
        """Number of columns, the constant one included."""
        return int(self._X.shape[1]) + (1 if self.intercept else 0)

    @property
    def n_features(self) -> int:
        """Number of columns, the constant one not included."""
        return int(self._X.shape[1])

    @property
    def largest_entry(self) -> float:
        """The largest absolute value of a feature, before rows are scaled down. Not private: for checks.

        For centred rows a bound on it.
        """
        values = self._X.data if sparse.issparse(self._X) else self._X
        largest = max(float(np.max(values, initial=0.0)), -float(np.min(values, initial=0.0)))
        return largest + (0.0 if self._centre is None else float(np.max(np.abs(self._centre), initial=0.0)))

    def scores(self, weights: Floats) -> Floats:
        """Return rows @ weights, of shape (n,) or (n, k)."""
        d = self.n_features
        scores = np.asarray(self._X @ weights[:d])
        if self._factors is not None:
            scores *= _as_column(self._factors, scores.ndim)
        if self._centre is not None:
            scores -= self._centre @ weights[:d]
        if self._shrinks is not None:
            scores *= _as_column(self._shrinks, scores.ndim)
        if self.intercept:
            scores += self.intercept * weights[d]
        return scores

    def combine(self, coefficients: Floats) -> NDArray[np.float64]:
        """Return rows.T @ coefficients, the sum over rows of row times coefficient, block by block."""
        shrunk = scaled = coefficients
        if self._shrinks is not None:
            shrunk = scaled = coefficients * _as_column(self._shrinks, coefficients.ndim)
        if self._factors is not None:
            scaled = shrunk * _as_column(self._factors, coefficients.ndim)
        total = np.zeros((self.dimension, *coefficients.shape[1:]))
        taken_off = np.zeros(coefficients.shape[1:])
        d = self.n_features
        for block, turned in self._turned_blocks():
            total[:d] += turned @ scaled[block]
            if self.intercept:
                total[d] += self.intercept * coefficients[block].sum(axis=0)
            if self._shrinks is not None:
                taken_off += shrunk[block].sum(axis=0)
        if self._centre is not None:
            total[:d] -= np.multiply.outer(
                self._centre, total[d] / self.intercept if self._shrinks is None else taken_off
            )
        return total

    def total(self) -> NDArray[np.float64]:
        """Return the sum of the rows without the constant column; :attr:`weight_in_total` bounds what one adds."""
        return self.combine(np.ones(self.n))[: self.n_features]

    @property
    def weight_in_total(self) -> float:
        """What one row can add to :meth:`total`, rounding included."""
        length = 0.0 if self._centre is None else float(np.linalg.norm(self._centre))
        return (self.row_norm + length) * (1 + self.rounding)

    def centred(self, centre: NDArray[np.float64], row_norm: float | None = None) -> "BoundedRows":
        """Return the rows less ``centre``, a public vector, without a copy: a sparse matrix stays sparse.

        With ``row_norm``, rows that are longer than that after it are scaled down to it, each by itself, so that the
        smoothness of losses does not grow with the length of the centre.

        It takes a constant column: a model of centred rows is one of the rows themselves with another intercept, and
        the column keeps every row's norm, by which contributions are clipped, well above the rounding of differences.
        """
        if self._centre is not None:
            raise ValueError("these rows are centred already: centre the rows that they were made from")
        if not self.intercept:
            raise ValueError("rows can be centred only beside a constant column: fit an intercept")
        length = float(np.linalg.norm(centre))
        rows = copy(self)
        rows._limits = None
        rows._centre = np.array(centre, dtype=np.float64)
        reach = self.row_norm + length
        features = self._norms**2 - self.intercept**2
        inner = np.asarray(self._X @ rows._centre)
        if self._factors is not None:
            inner = inner * self._factors
        # |x|^2 - 2<x,c> + |c|^2 cancels where x is near c: norms are taken to be larger by all that may have been lost.
        lost = 16 * _UNIT_ROUNDOFF * (self.dimension + 8) * (reach**2 + self.intercept**2)
        lengths = np.sqrt(np.maximum(features - 2 * inner + length**2, 0) + lost)
        if row_norm is not None:
            rows._shrinks = np.minimum(1.0, row_norm * (1 - _SLACK) / lengths)
            lengths = lengths * rows._shrinks
            rows.row_norm = float(row_norm)
        rows._norms = np.hypot(lengths, self.intercept)
        rows._norms.flags.writeable = False
        # Sums of x and of the centre are rounded before they are subtracted: the errors are those of longer rows.
        rows.largest_norm = float(np.hypot(reach if row_norm is None else row_norm, self.intercept))
        rows.rounding = self.rounding * 2 * float(np.hypot(reach, self.intercept)) / self.intercept
        rows.norm_bound = rows.largest_norm * (1 + rows.rounding)
        return rows

    @property
    def centred_norm_bound(self) -> float:
        """The ``norm_bound`` of these rows once centred on a point of their ball and scaled back into it."""
        stretch = float(np.hypot(2 * self.row_norm, self.intercept)) / self.intercept
        return self.largest_norm * (1 + 2 * self.rounding * stretch)

    def columns(self, chosen: NDArray[np.int64], row_norm: float) -> "BoundedRows":
        """Return some of the columns, and the constant one: rows of these, scaled down anew to ``row_norm``.

        A row that was scaled down for the sake of all columns may be longer here than it is there.
        """
        if self._centre is not None:
            raise ValueError("these rows are centred: take columns of the rows that they were made from")
        return BoundedRows(self._X[:, chosen], row_norm, self.intercept)

    def norms(self) -> NDArray[np.float64]:
        """Return the norm of each bounded row, the constant column included; rows of next to nothing count as more."""
        return self._norms

    def residual_limits(self, clip_norm: float) -> NDArray[np.float64]:
        """Return how large each row's residual may be for residual times row to have norm at most ``clip_norm``.

        A little less, to make room for rounding. Kept from one step to the next, which asks for the same.
        """
        if self._limits is None or self._limits[0] != clip_norm:
            with np.errstate(over="ignore"):  # short rows and a lax clip: whatever is finite will do
                limits = np.minimum(clip_norm / (1 + self.rounding) / self.norms(), np.finfo(np.float64).max)
            self._limits = clip_norm, limits
        return self._limits[1]

    def take(self, batch: NDArray[np.int64] | slice) -> "BoundedRows":
        """Return the rows of a batch; the whole without a copy."""
        if isinstance(batch, slice) and batch == slice(None):
            return self
        part = copy(self)
        part._turned = part._limits = None
        part._X, part._norms = self._X[batch], self._norms[batch]
        part._factors = None if self._factors is None else self._factors[batch]
        part._shrinks = None if self._shrinks is None else self._shrinks[batch]
        return part

    def _turned_blocks(self) -> list[tuple[slice, Any]]:
        """Return views of consecutive rows, turned; made once, for a sparse one costs as much as a small product."""
        if self._turned is None:
            starts = range(0, self.n, _BLOCK)
            blocks = [slice(start, min(start + _BLOCK, self.n)) for start in starts]
            self._turned = [(block, _view(self._X, block).T) for block in blocks]
        return self._turned


def _canonical(X: Any) -> Any:
    """Return the matrix in float64, every entry stored once."""
    if X.dtype not in (np.float32, np.float64):
        raise TypeError(f"rows must be float32 or float64, not {X.dtype}")
    if not sparse.issparse(X):
        return X.astype(np.float64, copy=False)
    X = sparse.csr_array(X, dtype=np.float64)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        if not np.isfinite(X.data).all():
            raise ValueError("entries that a sparse matrix stores twice add up to infinity")
    return X


def _view(X: Any, block: slice) -> Any:
    if not sparse.issparse(X):
        return X[block]
    ends = X.indptr[block.start : block.stop + 1]
    stored = slice(ends[0], ends[-1])
    shape = (block.stop - block.start, X.shape[1])
    return sparse.csr_array((X.data[stored], X.indices[stored], ends - ends[0]), shape=shape)


def _row_norms(X: Any) -> NDArray[np.float64]:
    """Return Euclidean norms of rows in float64, right for entries near the largest float too."""
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            squares = sparse.csr_array((X.data * X.data, X.indices, X.indptr), shape=X.shape).sum(axis=1)
        else:
            squares = np.einsum("ij,ij->i", X, X)
    norms: NDArray[np.float64] = np.sqrt(np.asarray(squares, dtype=np.float64).ravel())
    for place in np.flatnonzero(~np.isfinite(norms)):  # rare: the squares overflowed
        row = X[[place]].data if sparse.issparse(X) else X[place]
        largest = float(np.max(np.abs(row)))
        norms[place] = largest * float(np.linalg.norm(row / largest))
    return norms


def _divided(X: Any, norms: NDArray[np.float64], huge: NDArray[np.bool_], limit: float) -> Any:
    """Return a copy with the huge rows scaled to norm ``limit``, entry by entry, so that no product overflows."""
    # The division comes first: the factor limit / norm alone would lose digits where it underflows.
    if sparse.issparse(X):
        X = X.copy()
        stored = np.repeat(huge, np.diff(X.indptr))
        X.data[stored] = X.data[stored] / np.repeat(norms, np.diff(X.indptr))[stored] * limit
        return X
    X = X.copy(order="K")
    X[huge] = X[huge] / norms[huge, None] * limit
    return X


def _as_column(values: Floats, ndim: int) -> Floats:
    return values if ndim == 1 else values[:, None]
