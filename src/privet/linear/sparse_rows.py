"""Rows with a bound on every entry. Sparse rows stay sparse, and rows within their bounds are not copied.

Formal guarantees
-----------------
Each entry is clipped, and each row scaled, independently of the others, so a record affects only its own row.
"""

from typing import Any

import numpy as np
from scipy import sparse

from privet.objectives.matrices import stored_once


def bounded_entries(X: Any, feature_norm: float, entry_bound: float | None) -> Any:
    """Return the rows with each entry clipped to ``entry_bound``.

    If ``entry_bound`` is None, rows with an entry beyond ``feature_norm`` are scaled down instead, which keeps their
    direction. A sparse matrix stays sparse, and rows within their bounds are not copied.
    """
    if sparse.issparse(X):
        X = stored_once(sparse.csr_array(X, dtype=np.float64))
        values = X.data
    else:
        X = values = np.asarray(X, dtype=np.float64)
    bound = feature_norm if entry_bound is None else entry_bound
    if max(np.max(values, initial=0.0), -np.min(values, initial=0.0)) <= bound:
        return X
    if entry_bound is not None:
        return _with_values(X, np.clip(values, -bound, bound))
    if sparse.issparse(X):
        largest = np.repeat(abs(X).max(axis=1).toarray(), np.diff(X.indptr))
    else:
        largest = np.abs(X).max(axis=1, keepdims=True)
    # Divide first: the quotient of two entries is at most 1, so it cannot overflow.
    return _with_values(X, np.where(largest > bound, values / np.maximum(largest, bound) * bound, values))


def scaled_to_norm(X: Any, row_norm: float) -> Any:
    """Return the rows of a matrix, scaled down where their l2 norm exceeds ``row_norm``."""
    squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
    lengths = np.maximum(np.sqrt(squares), row_norm)
    if not (lengths > row_norm).any():
        return X
    if sparse.issparse(X):
        return _with_values(X, X.data * np.repeat(row_norm / lengths, np.diff(X.indptr)))
    return X * (row_norm / lengths)[:, None]


def _with_values(X: Any, values: Any) -> Any:
    return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape) if sparse.issparse(X) else values
