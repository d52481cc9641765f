"""A certified upper bound on the largest singular value of a matrix. Iterative methods only give lower bounds."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

LARGEST_GRAM = 4000  # the Gram matrix of the shorter side is formed up to this size, where it takes 128 MB, twice

_UNIT_ROUNDOFF = 2.0**-53
_ITERATIONS = 40  # of the power method
_SMALLEST = 1e-200  # the power method stops when an entry of its vector falls below this


def operator_norm(X: Any) -> float:
    """Return a certified upper bound on max |X v| / |v|.

    Parameters
    ----------
    X : array or CSR matrix of shape (m, d)
        Finite. A sparse matrix is never densified, but the Gram matrix of its shorter side is, if that is small.

    Returns
    -------
    float
        An upper bound on the norm, including rounding. It is half a percent too large if min(m, d) is at most
        :data:`LARGEST_GRAM`. For larger matrices it is close to the norm of the matrix of absolute values, which is the
        same norm if no entry is negative.

    Formal guarantees
    -----------------
    The result is the smaller of the Frobenius norm and one of two bounds, each with room for rounding errors:

    - If G = X X' (or X' X) is small, a Cholesky factor of c^2 I - G exists, which proves norm <= c. The factor of a
      matrix M of size k, computed in floating point, is the exact factor of M + E with |E| <= u (k + 1) trace(M), up
      to higher orders (Higham, "Accuracy and Stability of Numerical Algorithms", Theorem 10.3), and the computed G
      errs by at most u (m + d) |X|_F^2.
    - Otherwise the bound of Collatz and Wielandt: if |X|' |X| v <= r v, entry by entry, for some v > 0, then
      norm^2 <= r. This holds for any v. The power method finds a good one, and v = 1 gives at most
      sqrt(|X|_1 |X|_inf).
    """
    stored = X.data if sparse.issparse(X) else X
    largest = float(np.max(np.abs(stored), initial=0.0))
    if not math.isfinite(largest):
        raise ValueError("The matrix contains NaN or infinity.")
    if largest == 0:
        return 0.0
    scale = math.ldexp(1.0, math.frexp(largest)[1])
    X = X.astype(np.float64) / scale  # exact, and squares neither overflow nor underflow
    frobenius = float(np.linalg.norm(X.data if sparse.issparse(X) else X)) * (1 + _UNIT_ROUNDOFF * (stored.size + 8))
    other = _by_factor(X, frobenius) if min(X.shape) <= LARGEST_GRAM else _collatz_wielandt(abs(X))
    return float(min(frobenius, other) * scale)


def _collatz_wielandt(A: Any) -> float:
    """Return the square root of the smallest max_i (A'A v)_i / v_i in the power method, for a matrix A >= 0."""
    v, least = np.ones(A.shape[1]), math.inf
    for _ in range(_ITERATIONS):
        image = A.T @ (A @ v)
        least = min(least, float(np.max(image / v)))
        image = np.where(image > 0, image, v)  # for a column of zeros any positive entry will do
        v = image / np.max(image)
        if v.min() < _SMALLEST:
            break
    # All sums are of nonnegative numbers, so their relative errors are at most m, d and a few roundoffs.
    return math.sqrt(least * (1 + 4 * _UNIT_ROUNDOFF * (sum(A.shape) + 8)))


def _by_factor(X: Any, frobenius: float) -> float:
    """Return the smallest c, in steps of 1 % of c^2, for which c^2 I - G has a Cholesky factor; rounding included."""
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
    """Return an estimate of the largest eigenvalue. The bound does not rely on it, only the time to find it."""
    if len(G) < 50:
        return float(linalg.eigvalsh(G)[-1])
    start = G[:, np.argmax(np.diag(G))]
    return float(eigsh(G, k=1, v0=start, tol=1e-3, return_eigenvectors=False)[0])
