"""A certified upper bound on the largest singular value of a matrix. Iterative methods alone give lower bounds."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

# The smaller of the Gram matrices X X' and X' X is computed if it has at most this many rows. It then takes up to
# 128 MB, and a second matrix of the same size is needed for its Cholesky factor.
LARGEST_GRAM = 4000

_UNIT_ROUNDOFF = 2.0**-53
_ITERATIONS = 40  # of the power method
_SMALLEST = 1e-200  # the power method stops when an entry of its vector falls below this


def operator_norm(X: Any) -> float:
    """Return a certified upper bound on max |X v| / |v|.

    Parameters
    ----------
    X : array or CSR matrix of shape (m, d)
        All entries must be finite. A sparse matrix stays sparse. Only its Gram matrix, if small, is stored densely.

    Returns
    -------
    float
        An upper bound on the norm that allows for rounding errors. If min(m, d) is at most :data:`LARGEST_GRAM`, it
        exceeds the norm by about 0.5 %. For larger matrices it bounds the norm of the matrix of absolute values
        instead, which is equal to the norm of X if no entry is negative, and larger otherwise.

    Formal guarantees
    -----------------
    Both the Frobenius norm and the following bound are upper bounds, and the smaller one is returned. Each is increased
    to allow for rounding errors, where u = 2^-53 is the unit roundoff.

    - Small matrices: let G be the smaller of X X' and X' X, with k rows. If the Cholesky factorisation of c^2 I - G
      succeeds, then c^2 I - G is positive definite, and therefore norm <= c. The factor that is computed for a matrix M
      is the exact factor of a matrix M + E with |E| <= u (k + 1) trace(M), up to higher orders of u (Higham, "Accuracy
      and Stability of Numerical Algorithms", Theorem 10.3). The error of the computed G is at most u (m + d) |X|_F^2.
    - Large matrices: let A be the matrix of absolute values of X. If A' A v <= r v in every entry for some v > 0, then
      norm^2 <= r (Collatz and Wielandt). This holds for every v > 0, and the power method finds one with a small r. It
      starts from v = 1, for which sqrt(r) is at most sqrt(|X|_1 |X|_inf).
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
    """Return the bound of Collatz and Wielandt for a matrix without negative entries, including rounding errors.

    Each vector v of the power method gives the bound max_i (A'A v)_i / v_i on the squared norm. The least one is used.
    """
    v, least = np.ones(A.shape[1]), math.inf
    for _ in range(_ITERATIONS):
        image = A.T @ (A @ v)
        least = min(least, float(np.max(image / v)))
        image = np.where(image > 0, image, v)  # a column of zeros allows any positive entry
        v = image / np.max(image)
        if v.min() < _SMALLEST:
            break
    # All terms are nonnegative, so the relative error of a sum is at most its number of terms times the unit roundoff.
    return math.sqrt(least * (1 + 4 * _UNIT_ROUNDOFF * (sum(A.shape) + 8)))


def _by_factor(X: Any, frobenius: float) -> float:
    """Return a number c for which c^2 I - G has a Cholesky factor, increased to allow for rounding errors.

    The search starts from an estimate of the largest eigenvalue of G and increases c^2 by 1 % until a factor is found.
    """
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
    """Return an estimate of the largest eigenvalue. A bad estimate makes the search slower, but not the bound wrong."""
    if len(G) < 50:
        return float(linalg.eigvalsh(G)[-1])
    start = G[:, np.argmax(np.diag(G))]
    return float(eigsh(G, k=1, v0=start, tol=1e-3, return_eigenvectors=False)[0])
