"""Rows with a bound on every entry: sparse ones stay sparse, and what need not be changed is not copied.

Formal guarantees
-----------------
Each entry is clipped, or each row scaled, by itself: a record changes no other record's row.
"""

from typing import Any

import numpy as np
from scipy import sparse

from privet.objectives.rows import stored_once


def bounded_entries(X: Any, feature_norm: float, entry_bound: float | None) -> Any:
    """Return rows without an entry beyond ``entry_bound``: larger ones are clipped to it, each by itself.

    Without a bound on entries, rows with an entry beyond ``feature_norm`` are scaled down until they have none: their
    directions stay. A sparse matrix stays sparse; what need not be changed is not copied.
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
    # The division comes first: a quotient of two entries is at most 1, whatever their size.
    return _with_values(X, np.where(largest > bound, values / np.maximum(largest, bound) * bound, values))


def in_the_ball(X: Any, row_norm: float) -> Any:
    """Return rows of bounded entries scaled down to the norm, as a matrix."""
    squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
    lengths = np.maximum(np.sqrt(squares), row_norm)
    if not (lengths > row_norm).any():
        return X
    if sparse.issparse(X):
        return _with_values(X, X.data * np.repeat(row_norm / lengths, np.diff(X.indptr)))
    return X * (row_norm / lengths)[:, None]


def _with_values(X: Any, values: Any) -> Any:
    return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape) if sparse.issparse(X) else values
