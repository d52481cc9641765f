"""The data matrix with its bound: every row inside a public ball, the intercept included, without a copy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[Any]

# A row longer than this is divided before it is multiplied, or its products would overflow.
_HUGE = {np.dtype(np.float64): 1e140, np.dtype(np.float32): 1e15}
# What the arithmetic of the type may add to the norm of a scaled row.
_SLACK = {np.dtype(np.float64): 1e-14, np.dtype(np.float32): 1e-6}


class BoundedRows:
    """Rows scaled down to norm at most ``row_norm``, with a constant column for the intercept.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d), float32 or float64
        Finite. Not copied, never densified.
    row_norm : float
        Public bound R. A longer row is multiplied by R over its norm; each row's factor depends on that row alone.
    intercept : float
        Value of the constant column, 0 for none.

    Attributes
    ----------
    norm_bound : float
        Enforced bound on the norm of a row with its constant column: sqrt(R^2 + intercept^2).
    """

    def __init__(self, X: Any, row_norm: float, intercept: float = 0.0) -> None:
        norms = _row_norms(X)
        slack = 1 - _SLACK[X.dtype]
        with np.errstate(divide="ignore"):
            factors = np.where(norms > row_norm * slack, row_norm * slack / norms, 1.0)
        huge = norms > _HUGE[X.dtype]
        if huge.any():
            X, factors = _divided(X, factors, huge)
        self._X = X
        self._factors: Floats | None = factors.astype(X.dtype) if (factors < 1).any() else None
        self._intercept = intercept
        self.norm_bound = float(np.hypot(row_norm, intercept))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self._X.shape[0])

    @property
    def dimension(self) -> int:
        """Number of columns, the constant one included."""
        return int(self._X.shape[1]) + (1 if self._intercept else 0)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        dtype: np.dtype[Any] = self._X.dtype
        return dtype

    def scores(self, weights: Floats) -> Floats:
        """Return rows @ weights, of shape (n,) or (n, k)."""
        d = self._X.shape[1]
        scores = np.asarray(self._X @ weights[:d])
        if self._factors is not None:
            scores *= _as_column(self._factors, scores.ndim)
        if self._intercept:
            scores += self._intercept * weights[d]
        return scores

    def combine(self, coefficients: Floats) -> Floats:
        """Return rows.T @ coefficients: the sum over rows of row times coefficient."""
        scaled = coefficients
        if self._factors is not None:
            scaled = coefficients * _as_column(self._factors, coefficients.ndim)
        total = np.asarray(self._X.T @ scaled)
        if self._intercept:
            total = np.concatenate([total, self._intercept * coefficients.sum(axis=0, keepdims=True)])
        return total

    def norms(self) -> Floats:
        """Return the norm of each bounded row, the constant column included."""
        norms = _row_norms(self._X)
        if self._factors is not None:
            norms = norms * self._factors
        return np.hypot(norms, self._intercept)

    def take(self, batch: NDArray[np.int64] | slice) -> "BoundedRows":
        """Return the rows of a batch; the whole without a copy."""
        if isinstance(batch, slice) and batch == slice(None):
            return self
        part = object.__new__(BoundedRows)
        part._X = self._X[batch]
        part._factors = None if self._factors is None else self._factors[batch]
        part._intercept, part.norm_bound = self._intercept, self.norm_bound
        return part


def _row_norms(X: Any) -> NDArray[np.float64]:
    """Return Euclidean norms of rows in float64, right for entries near the largest float too."""
    if sparse.issparse(X):
        data = X.data.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            squares = sparse.csr_array((data * data, X.indices, X.indptr), shape=X.shape).sum(axis=1)
    else:
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    norms = np.sqrt(np.asarray(squares, dtype=np.float64).ravel())
    # Squares below 1e-300 lose digits, but only of rows far inside any ball; above 1e300 they overflow.
    for place in np.flatnonzero(~np.isfinite(norms)):
        row = X[[place]].data if sparse.issparse(X) else X[place]
        largest = float(np.max(np.abs(row)))
        norms[place] = largest * float(np.linalg.norm(row / largest))
    return norms


def _divided(X: Any, factors: NDArray[np.float64], huge: NDArray[np.bool_]) -> tuple[Any, NDArray[np.float64]]:
    """Scale the huge rows in a copy, entry by entry, so that no product overflows."""
    if sparse.issparse(X):
        X = sparse.csr_array(X, copy=True)
        X.data *= np.repeat(np.where(huge, factors, 1.0), np.diff(X.indptr)).astype(X.dtype)
    else:
        X = X.copy()
        X[huge] = (X[huge] * factors[huge, None]).astype(X.dtype)
    return X, np.where(huge, 1.0, factors)


def _as_column(values: Floats, ndim: int) -> Floats:
    return values if ndim == 1 else values[:, None]
