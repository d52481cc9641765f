"""The largest singular value of a matrix, bounded from above for certain: what iterations find is a lower bound."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

LARGEST_GRAM = 4000  # rows or columns, whichever are fewer, of a matrix whose Gram matrix is formed: 128 MB, twice

_UNIT_ROUNDOFF = 2.0**-53
_TURNS = 40  # of the power method
_SMALLEST = 1e-200  # entries of its vector that are still told from zero


def operator_norm(X: Any) -> float:
    """Return a certified upper bound on max |X v| / |v|.

    Parameters
    ----------
    X : array or CSR matrix of shape (m, d)
        Finite. A sparse matrix is never densified, but the Gram matrix of its shorter side is, where that is small.

    Returns
    -------
    float
        Above the norm, rounding included: by half a percent where min(m, d) is at most :data:`LARGEST_GRAM`. For larger
        matrices about the norm of |X|, the absolute values: the same for a matrix without negative entries.

    Formal guarantees
    -----------------
    The Frobenius norm, or what is less, with room for rounding errors:

    - where G = X X' (or X' X) is small: a Cholesky factor of c^2 I - G exists, which proves norm <= c. That of a matrix
      M of size k, computed in floating point, is the exact one of M + E with |E| <= u (k + 1) trace(M) and a little
      (Higham, "Accuracy and Stability of Numerical Algorithms", Theorem 10.3), and the computed G errs by at most
      u (m + d) |X|_F^2;
    - elsewhere, Collatz and Wielandt: |X|' |X| v <= r v, entry by entry, for some v > 0 implies norm^2 <= r. It holds
      for any v; the power method only finds a good one, and v = 1 gives no more than sqrt(|X|_1 |X|_inf).
    """
    stored = X.data if sparse.issparse(X) else X
    largest = float(np.max(np.abs(stored), initial=0.0))
    if not math.isfinite(largest):
        raise ValueError("the matrix holds NaN or infinity")
    if largest == 0:
        return 0.0
    scale = math.ldexp(1.0, math.frexp(largest)[1])
    X = X.astype(np.float64) / scale  # exactly; squares neither overflow nor vanish
    frobenius = float(np.linalg.norm(X.data if sparse.issparse(X) else X)) * (1 + _UNIT_ROUNDOFF * (stored.size + 8))
    other = _by_factor(X, frobenius) if min(X.shape) <= LARGEST_GRAM else _collatz_wielandt(abs(X))
    return float(min(frobenius, other) * scale)


def _collatz_wielandt(A: Any) -> float:
    """Return the root of the least max_i (A'A v)_i / v_i along the power method, for a matrix A >= 0."""
    v, least = np.ones(A.shape[1]), math.inf
    for _ in range(_TURNS):
        image = A.T @ (A @ v)
        least = min(least, float(np.max(image / v)))
        image = np.where(image > 0, image, v)  # a column of zeros: whatever is there will do
        v = image / np.max(image)
        if v.min() < _SMALLEST:
            break
    # Sums of nonnegative numbers: relative errors of m, d and a few roundoffs.
    return math.sqrt(least * (1 + 4 * _UNIT_ROUNDOFF * (sum(A.shape) + 8)))


def _by_factor(X: Any, frobenius: float) -> float:
    """Return the least c on a grid of 1 % for which c^2 I - G has a Cholesky factor, with room for rounding."""
    gram = X @ X.T if X.shape[0] <= X.shape[1] else X.T @ X
    G: NDArray[Any] = gram.toarray() if sparse.issparse(gram) else np.asarray(gram)
    k, in_gram = len(G), 2 * _UNIT_ROUNDOFF * (sum(X.shape) + 8) * frobenius**2
    square = max(_largest_eigenvalue(G), float(np.max(np.diag(G)))) + in_gram
    while True:
        square *= 1.01
        shifted = -G
        shifted[np.diag_indices(k)] += square
        try:
            linalg.cholesky(shifted.T, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        return math.sqrt(square * (1 + 4 * _UNIT_ROUNDOFF * k * (k + 2)) + in_gram)


def _largest_eigenvalue(G: NDArray[Any]) -> float:
    """Return about the largest eigenvalue: nothing rests on it but the time that is taken."""
    if len(G) < 50:
        return float(linalg.eigvalsh(G)[-1])
    start = G[:, np.argmax(np.diag(G))]
    return float(eigsh(G, k=1, v0=start, tol=1e-3, return_eigenvectors=False)[0])
