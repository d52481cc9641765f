"""Norms and products of the rows of dense and sparse matrices.

Fast matrix products round a row in a way that depends on its place: the last rows of a matrix are often computed by
other instructions. Where this would let one record change the numbers of others, rows are computed one by one here.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[Any]

_ROWS_COPIED = 4096  # number of rows at a time of a matrix that is not stored row by row


def stored_once(X: Any) -> Any:
    """Return a CSR matrix in which every entry is stored once. A bound on stored values would miss repeated entries."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    if not np.isfinite(X.data).all():
        raise ValueError(
            "Entries that the sparse matrix stores more than once add up to infinity. Store each entry once."
        )
    return X


def row_norms(X: Any) -> NDArray[np.float64]:
    """Return the Euclidean norms of rows in float64, also for entries near the largest float."""
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            squares = sparse.csr_array((X.data * X.data, X.indices, X.indptr), shape=X.shape).sum(axis=1)
        else:
            squares = _squares(X)
    norms: NDArray[np.float64] = np.sqrt(np.asarray(squares, dtype=np.float64).ravel())
    for place in np.flatnonzero(~np.isfinite(norms)):  # rare: their squares overflowed
        row = X[[place]].data if sparse.issparse(X) else X[place]
        largest = float(np.max(np.abs(row)))
        norms[place] = largest * float(np.linalg.norm(row / largest))
    return norms


def _squares(X: NDArray[Any]) -> NDArray[Any]:
    """Return the squared norm of each row of a dense matrix, the same number wherever the row stands."""
    if X.flags.c_contiguous:
        return _by_row("ij,ij->i", X, X)
    squares = np.empty(len(X))
    for start in range(0, len(X), _ROWS_COPIED):  # along columns, the last rows would be rounded differently
        part = np.ascontiguousarray(X[start : start + _ROWS_COPIED])
        squares[start : start + len(part)] = _by_row("ij,ij->i", part, part)
    return squares


def _by_row(products: str, X: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return one number per row by einsum, which would add up a long row differently if it were the only one."""
    if len(X) != 1:
        return np.asarray(np.einsum(products, X, other))
    X, other = np.repeat(X, 2, axis=0), np.repeat(other, 2, axis=0) if other.ndim > 1 else other
    return np.asarray(np.einsum(products, X, other))[:1]


def products(X: Any, weights: Floats) -> Floats:
    """Return X @ weights, where several outputs are stored one after the other, which is faster for few outputs."""
    if weights.ndim == 1 or sparse.issparse(X):
        return np.asarray(X @ weights)
    return np.asarray((weights.T @ X.T).T)


def products_alone(X: Any, weights: Floats) -> Floats:
    """Return X @ weights, where the product of each row is the same number wherever the row stands."""
    if weights.shape[:1] != X.shape[1:]:
        raise ValueError(f"rows of {X.shape[1]} entries cannot be multiplied by an array of shape {weights.shape}")
    if sparse.issparse(X):
        return np.asarray(X @ weights)  # row by row
    products = np.empty((len(X), *weights.shape[1:]))
    columns = [(products, weights)] if weights.ndim == 1 else zip(products.T, weights.T.copy(), strict=True)
    for result, column in columns:
        for start in range(0, len(X), _ROWS_COPIED):
            part = np.ascontiguousarray(X[start : start + _ROWS_COPIED])
            result[start : start + len(part)] = _by_row("ij,j->i", part, column)
    return products


def divided(X: Any, norms: NDArray[np.float64], huge: NDArray[np.bool_], limit: float) -> Any:
    """Return a copy in which the huge rows are scaled to norm ``limit``, so that their products do not overflow."""
    # The division comes first, because the factor limit / norm may underflow.
    if sparse.issparse(X):
        X = X.copy()
        stored = np.repeat(huge, np.diff(X.indptr))
        X.data[stored] = X.data[stored] / np.repeat(norms, np.diff(X.indptr))[stored] * limit
        return X
    X = X.copy(order="K")
    X[huge] = X[huge] / norms[huge, None] * limit
    return X
