"""The data matrix with a bound on every row, which is enforced by scaling rows down, without a copy of the matrix."""

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import LARGEST_NORM, SMALLEST_NORM
from privet.objectives.matrices import divided, products, products_alone, row_norms, stored_once
from privet.objectives.summation import ROUNDING, PairwiseSum, block_length, check_number_of_rows, sum_error

Floats = NDArray[Any]

_HUGE = 1e140  # rows above this norm are scaled down in the matrix itself, because their products would overflow
_TINY = 1e-140  # squares of smaller entries may underflow, so rows count as at least this long when they are clipped
_UNIT_ROUNDOFF = 2.0**-53
_SMALL_BYTES = 2**26  # a matrix of this size may stay in the cache as a whole
_CACHED_BYTES, _LEAST_ROWS = 2**22, 64  # size of a part of the rows, and the number of rows that even wide parts have
_SPARE_STRETCH = 4.0  # the largest stretch for which shorter blocks can compensate, whatever the number of rows


class BoundedRows:
    """Rows scaled down to norm at most ``row_norm``, with a constant column for the intercept.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d), float32 or float64
        Finite. A float64 matrix is not copied, unless rows are near the largest float. A float32 matrix is converted to
        float64, because sums in single precision cannot be bounded tightly. A sparse matrix is never densified.
    row_norm : float
        Public bound R. A longer row is multiplied by R divided by its norm, a factor that depends on this row alone.
    intercept : float
        Value of the constant column, or 0 for no such column.

    Attributes
    ----------
    n, n_features, dimension : int
        Number of rows, of columns without the constant column, and of columns with it.
    row_norm, intercept : float
        The parameters.
    largest_norm : float
        sqrt(R^2 + intercept^2), an upper bound on the norm of every row. It does not depend on n.
    norm_bound : float
        Enforced bound on the contribution of one row to a sum: ``largest_norm``, with room for rounding.
    rounding : float
        The relative size of this room, a public constant: it depends neither on n nor on the rows. The rounding errors
        of two sums of contributions bounded by C are together at most ``rounding`` * C (docs/proofs.md, section 7).
    """

    def __init__(self, X: Any, row_norm: float, intercept: float = 0.0) -> None:
        if X.dtype not in (np.float32, np.float64):
            raise TypeError(f"rows must be float32 or float64, not {X.dtype}")
        check_number_of_rows(X.shape[0])  # before any copy, which would be as large as the data
        if sparse.issparse(X):
            X = stored_once(sparse.csr_array(X, dtype=np.float64))
        else:
            X = X.astype(np.float64, copy=False)
            if not (X.flags.c_contiguous or X.flags.f_contiguous):  # a copy made for one huge row would be contiguous
                X = np.ascontiguousarray(X)
        if not SMALLEST_NORM <= row_norm <= LARGEST_NORM:
            raise ValueError(f"the norm of rows must lie in [{SMALLEST_NORM:g}, {LARGEST_NORM:g}], got {row_norm:g}")
        norms = row_norms(X)
        if not np.isfinite(norms).all() and not np.isfinite(X.data if sparse.issparse(X) else X).all():
            raise ValueError("The rows contain NaN or infinity. Drop these rows, or fill them with a public constant.")
        limit = row_norm * (1 - _slack(X.shape[1]))
        huge = norms > _HUGE
        if huge.any():
            X = divided(X, norms, huge, limit)
            norms = np.where(huge, limit, norms)
        with np.errstate(divide="ignore"):
            factors = np.where(norms > limit, limit / norms, 1.0)
        self._X = X
        self.n, self.n_features = map(int, X.shape)
        self.dimension = self.n_features + (1 if intercept else 0)
        shortest = _TINY * (1 + X.shape[1]) ** 0.5
        self._norms: NDArray[np.float64] = np.maximum(np.hypot(norms * factors, intercept), shortest)
        self._norms.flags.writeable = False
        self._factors: Floats | None = factors if (factors < 1).any() else None
        self.intercept = intercept
        self._centre: Floats | None = None
        self._shrinks: Floats | None = None
        self._transposed: list[tuple[slice, Any]] | None = None
        self._parts: list[tuple[slice, BoundedRows]] | None = None
        self._limits: tuple[float, NDArray[np.float64]] | None = None
        self._is_alone = False
        self.row_norm = float(row_norm)
        self.largest_norm = float(np.hypot(row_norm, intercept))
        self._stretch = 1.0
        self.rounding = ROUNDING
        self.norm_bound = self.largest_norm * (1 + self.rounding)

    @property
    def matrix(self) -> Any:
        """The rows without the constant column, as an array or a sparse matrix."""
        return self._X

    @property
    def reach(self) -> float:
        """Bound on the norm of the terms that are added for one row: those of the row and, if centred, of the centre.

        Rounding errors of scores and sums are relative to this bound.
        """
        return self.largest_norm if self._centre is None else self._stretch * abs(self.intercept)

    @property
    def is_centred(self) -> bool:
        """Whether a public vector is subtracted from the rows."""
        return self._centre is not None

    @property
    def nbytes(self) -> int:
        """Number of bytes that the entries of the matrix take."""
        stored = self._X.data.nbytes + self._X.indices.nbytes if sparse.issparse(self._X) else self._X.nbytes
        return int(stored)

    @property
    def largest_entry(self) -> float:
        """Largest absolute value of a feature before rows are scaled down; an upper bound on it for centred rows.

        This value is not private. It serves to check a declared bound.
        """
        values = self._X.data if sparse.issparse(self._X) else self._X
        largest = max(float(np.max(values, initial=0.0)), -float(np.min(values, initial=0.0)))
        return largest + (0.0 if self._centre is None else float(np.max(np.abs(self._centre), initial=0.0)))

    def share_above(self, norm: float) -> float:
        """Return the share of the rows that are longer than ``norm``, at least ``row_norm``, before they are scaled.

        This value is not private.
        """
        return 0.0 if self._factors is None else float(np.mean(self._factors < self.row_norm / norm))

    def scores(self, weights: Floats) -> Floats:
        """Return rows @ weights, of shape (n,) or (n, k)."""
        d = self.n_features
        scores = products_alone(self._X, weights[:d]) if self._is_alone else products(self._X, weights[:d])
        by_output = scores.T  # a view with rows last, so that their factors broadcast for one output or several
        if self._factors is not None:
            by_output *= self._factors
        if self._centre is not None:
            scores -= self._centre @ weights[:d]
        if self._shrinks is not None:
            by_output *= self._shrinks
        if self.intercept:
            scores += self.intercept * weights[d]
        return scores

    def combine(self, coefficients: Floats) -> NDArray[np.float64]:
        """Return rows.T @ coefficients, the sum over rows of row times coefficient, computed block by block."""
        shrunk = coefficients if self._shrinks is None else (coefficients.T * self._shrinks).T
        scaled = shrunk if self._factors is None else (shrunk.T * self._factors).T
        features, constants, sum_of_shrunk = PairwiseSum(), PairwiseSum(), PairwiseSum()
        for block, transposed in self._transposed_blocks():
            features.add(products(transposed, scaled[block]))
            if self.intercept:
                constants.add(coefficients[block].sum(axis=0))
            if self._shrinks is not None:
                sum_of_shrunk.add(shrunk[block].sum(axis=0))
        d = self.n_features
        total = np.empty((self.dimension, *coefficients.shape[1:]))
        total[:d] = features.total()
        sum_of_coefficients = constants.total()
        if self.intercept:
            total[d] = self.intercept * sum_of_coefficients
        if self._centre is not None:
            times = sum_of_coefficients if self._shrinks is None else sum_of_shrunk.total()
            total[:d] -= np.multiply.outer(self._centre, times)
        return total

    def total(self) -> NDArray[np.float64]:
        """Return the sum of the rows without the constant column. :attr:`weight_in_total` bounds what one row adds."""
        return self.combine(np.ones(self.n))[: self.n_features]

    @property
    def weight_in_total(self) -> float:
        """Largest norm that one row can add to :meth:`total`, including rounding."""
        if self._centre is None:
            return self.row_norm * (1 + ROUNDING)
        return self.row_norm + float(np.linalg.norm(self._centre)) + ROUNDING * self._stretch * abs(self.intercept)

    def centred(self, centre: NDArray[np.float64], row_norm: float | None = None) -> "BoundedRows":
        """Return the rows minus ``centre``, a public vector, without a copy: a sparse matrix stays sparse.

        With ``row_norm``, each row that is longer than this after the subtraction is scaled down to it, so that the
        smoothness of losses does not grow with the length of the centre.

        Centring needs a constant column. A model of centred rows is then a model of the original rows with another
        intercept, and the column keeps the norm of every row, by which contributions are clipped, well above the
        rounding errors of the subtraction.
        """
        if self._centre is not None:
            raise ValueError("These rows are already centred. Centre the rows from which they were made.")
        if not self.intercept:
            raise ValueError("Rows without a constant column cannot be centred. Fit an intercept.")
        length = float(np.linalg.norm(centre))
        rows = copy(self)
        rows._limits = rows._parts = None
        rows._centre = np.array(centre, dtype=np.float64)
        reach = self.row_norm + length
        features = self._norms**2 - self.intercept**2
        inner = products_alone(self._X, rows._centre)
        if self._factors is not None:
            inner = inner * self._factors
        # |x|^2 - 2<x,c> + |c|^2 suffers from cancellation where x is near c, so the largest possible error is added.
        lost = 16 * _UNIT_ROUNDOFF * (self.dimension + 8) * (reach**2 + self.intercept**2)
        lengths = np.sqrt(np.maximum(features - 2 * inner + length**2, 0) + lost)
        if row_norm is not None:
            rows._shrinks = np.minimum(1.0, row_norm * (1 - _slack(self.n_features)) / lengths)
            lengths = lengths * rows._shrinks
            rows.row_norm = float(row_norm)
        rows._norms = np.hypot(lengths, self.intercept)
        rows._norms.flags.writeable = False
        rows.largest_norm = float(np.hypot(reach if row_norm is None else row_norm, self.intercept))
        # Sums of x and of the centre are rounded before they are subtracted, so their errors are those of longer rows.
        rows._stretch = _stretch(reach, self.intercept)
        rows._transposed = None
        rows.rounding = _rounding(rows._stretch)
        rows.norm_bound = rows.largest_norm * (1 + rows.rounding)
        return rows

    def sum_error(self, n: int, clip_norm: float, residual_bound: float) -> float:
        """Return a bound on the rounding error of one sum over at most ``n`` of these rows, by :meth:`combine`.

        Each row times its coefficient must have norm at most ``clip_norm``, and each coefficient norm at most
        ``residual_bound``. Only public numbers enter the bound, which holds for any order of additions within blocks.
        """
        summand = min(self._stretch * clip_norm, max(clip_norm, residual_bound * self.reach))
        return sum_error(n, block_length(n, self._stretch, self.rounding)) * summand

    @property
    def centred_norm_bound(self) -> float:
        """The ``norm_bound`` that these rows have after centring at a point of their ball and scaling back into it."""
        return self.largest_norm * (1 + _rounding(_stretch(2 * self.row_norm, self.intercept)))

    def columns(self, chosen: NDArray[np.int64], row_norm: float) -> "BoundedRows":
        """Return rows of the chosen columns and the constant column, scaled down from the original to ``row_norm``.

        The chosen part of a row may therefore be longer here than in these rows, which were scaled by their full norm.
        """
        if self._centre is not None:
            raise ValueError(
                "Columns of centred rows cannot be chosen. Choose columns of the rows from which they were made."
            )
        return BoundedRows(self._X[:, chosen], row_norm, self.intercept)

    def norms(self) -> NDArray[np.float64]:
        """Return the norm of each bounded row, including the constant column; for nearly zero rows an upper bound."""
        return self._norms

    def residual_limits(self, clip_norm: float) -> NDArray[np.float64]:
        """Return the largest residual of each row for which residual times row has norm at most ``clip_norm``.

        The limits are slightly smaller, to leave room for rounding. They are cached, because all steps use one clip.
        """
        kept = self._limits  # read once, since another thread may use these rows with another clip
        if kept is None or kept[0] != clip_norm:
            with np.errstate(over="ignore"):  # for short rows the quotient may overflow, and any finite limit will do
                limits = np.minimum(clip_norm / (1 + self.rounding) / self._norms, np.finfo(np.float64).max)
            self._limits = kept = clip_norm, limits
        return kept[1]

    def take(self, batch: NDArray[np.int64] | slice, *, alone: bool = False) -> "BoundedRows":
        """Return the rows of a batch, without a copy of the matrix if the batch is all rows.

        Parameters
        ----------
        batch : array of int, or slice
            Which rows.
        alone : bool
            Whether the score of each row must be the same number in every batch. The rounding errors of a fast matrix
            product depend on the place of a row, and so on how many rows there are.
        """
        is_whole = isinstance(batch, slice) and batch == slice(None)
        if is_whole and self._is_alone == alone:
            return self
        if is_whole:
            self._transposed_blocks()  # for this copy and for those of later steps
        part = copy(self)
        part._is_alone, part._parts = alone, None
        if is_whole:
            return part
        part._transposed = part._limits = None
        part._X, part._norms = self._X[batch], self._norms[batch]
        part.n = int(part._X.shape[0])
        part._factors = None if self._factors is None else self._factors[batch]
        part._shrinks = None if self._shrinks is None else self._shrinks[batch]
        return part

    def parts(self) -> "list[tuple[slice, BoundedRows]]":
        """Return the rows in parts of at most a few megabytes, which are views of a dense matrix stored row by row.

        The scores of a part and the sum over it are best computed one after the other: the second finds the rows in the
        processor's cache. Other matrices, and small ones, are one part. A part is never longer than a block of a sum.
        """
        if self._parts is not None:
            return self._parts
        if sparse.issparse(self._X) or not self._X.flags.c_contiguous or self._X.nbytes <= _SMALL_BYTES:
            return [(slice(None), self)]
        in_cache = max(_LEAST_ROWS, _CACHED_BYTES // max(self._X.itemsize * self.n_features, 1))
        length = min(in_cache, block_length(self.n, self._stretch, self.rounding))
        if length >= self.n:
            return [(slice(None), self)]
        places = [slice(start, min(start + length, self.n)) for start in range(0, self.n, length)]
        self._parts = [(place, self.take(place, alone=self._is_alone)) for place in places]
        return self._parts

    def _transposed_blocks(self) -> list[tuple[slice, Any]]:
        """Return blocks of consecutive rows, transposed. They are kept, as slicing a sparse matrix is not free."""
        if self._transposed is None:
            blocks = []  # assigned when it is complete, since another thread may use these rows
            length = block_length(self.n, self._stretch, self.rounding)
            for start in range(0, self.n, length):
                block = slice(start, min(start + length, self.n))
                part = self._X
                if not sparse.issparse(part):
                    part = part[block]
                else:  # views of the stored entries, which slicing would copy
                    ends = part.indptr[block.start : block.stop + 1]
                    stored = slice(ends[0], ends[-1])
                    shape = (block.stop - block.start, part.shape[1])
                    part = sparse.csr_array((part.data[stored], part.indices[stored], ends - ends[0]), shape=shape)
                blocks.append((block, part.T))
            self._transposed = blocks
        return self._transposed


def _slack(d: int) -> float:
    """Return by how much rows of d entries are scaled further down, so that no rounding makes them exceed the bound."""
    return _UNIT_ROUNDOFF * (d + 64)


def _stretch(reach: float, intercept: float) -> float:
    """Return the largest ratio of the terms added for a centred row, of norm ``reach``, to its clipped contribution."""
    return float(np.hypot(reach, intercept)) / abs(intercept)


def _rounding(stretch: float) -> float:
    """Return the allowance for rounding. Shorter blocks compensate for a small stretch. A large one needs more room."""
    return ROUNDING * max(1.0, stretch / _SPARE_STRETCH)
