# mypy: allow-subclassing-any
"""What all scalers share: validation of rows, clipping to bounds, the affine map, and a bound on transformed rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privet.estimators import EstimatorChecks, SavedEstimator
from privet.objectives.matrices import stored_once
from privet.preprocessing.bounds import Bounds


class BoundedScaler(EstimatorChecks, SavedEstimator, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of the scalers: ``(clip(x, lower_, upper_) - center_) / scale_``, column by column.

    Subclasses declare the parameters ``lower``, ``upper`` and ``center``, and learn ``center_`` and ``scale_``.
    """

    def transform(self, X: Any) -> Any:
        """Return the rows, clipped and scaled. Sparse rows stay sparse."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        bounds, limit = Bounds(self.lower_, self.upper_), self._limit()
        if sparse.issparse(X):
            self._check_zeros(bounds)
            columns = X.indices
            data = bounds.clip(X.data, columns) / self.scale_[columns]
            return _with_data(X, np.clip(data, -limit, limit, out=data))
        scaled = bounds.clip(X)
        scaled -= self.center_
        scaled /= self.scale_
        return np.clip(scaled, -limit, limit, out=scaled).astype(X.dtype, copy=False)

    def inverse_transform(self, X: Any) -> Any:
        """Undo the scaling. Values that were clipped remain clipped."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        if sparse.issparse(X):
            self._check_zeros(Bounds(self.lower_, self.upper_))
            return _with_data(X, X.data * self.scale_[X.indices])
        return (X * self.scale_ + self.center_).astype(X.dtype, copy=False)

    @property
    def row_norm_(self) -> float:
        """Bound on the l2 norm of every transformed row, known without the rows. It can be used as ``feature_norm``."""
        check_is_fitted(self)
        furthest = np.maximum(np.abs(self.lower_ - self.center_), np.abs(self.upper_ - self.center_))
        return float(np.linalg.norm(np.minimum(furthest / self.scale_, self._limit())))

    def _limit(self) -> float:
        """Return the largest absolute value of transformed entries, to which they are clipped."""
        return np.inf

    def _validated(self, *data: Any, reset: bool, **checks: Any) -> Any:
        """Return validated rows, dense or CSR, with each entry of sparse rows stored once."""
        if self.center and any(map(sparse.issparse, data)):
            raise ValueError(
                f"{type(self).__name__} with center=True does not accept sparse rows, because subtracting a centre "
                "from every zero would make them dense. Pass center=False, or X.toarray() if it fits into memory."
            )
        rows = super()._validated(*data, reset=reset, **checks)
        return stored_once(rows) if sparse.issparse(rows) else rows

    def _declared(self, X: Any) -> Bounds:
        """Return the declared bounds of these columns, which must include zero for sparse rows."""
        bounds = Bounds.declared(self.lower, self.upper, self._names())
        if sparse.issparse(X):
            self._check_zeros(bounds)
        return bounds

    def _check_zeros(self, bounds: Bounds) -> None:
        """Raise unless the zeros of sparse rows stay zero."""
        moved = ~bounds.hold_zero | (getattr(self, "center_", 0.0) != 0)
        if moved.any():
            j = int(np.argmax(moved))
            raise ValueError(
                "Sparse rows need bounds that include zero, and no centre, because their zeros must stay zero. Column "
                f"{self._names()[j]!r} has bounds [{bounds.lower[j]:g}, {bounds.upper[j]:g}]."
            )

    def _check_learned(self) -> None:
        """Raise if the attributes that were read from a file do not fit together."""
        super()._check_learned()
        learned = np.stack([self.lower_, self.upper_, self.center_, self.scale_])
        if learned.shape != (4, self.n_features_in_) or not np.isfinite(learned).all():
            raise ValueError(f"its bounds, centres and scales are not {self.n_features_in_} finite numbers each")
        if not ((self.lower_ < self.upper_) & (self.scale_ > 0)).all():
            raise ValueError("its bounds are not in order, or its scales are not positive")

    def _names(self) -> list[Any]:
        """Return the names of the columns, or their numbers if they have no names."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.center
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _with_data(X: Any, data: NDArray[Any]) -> Any:
    """Return a sparse matrix with the same sparsity pattern and type, and other entries."""
    result = X.copy()
    result.data = data.astype(X.dtype, copy=False)
    return result
