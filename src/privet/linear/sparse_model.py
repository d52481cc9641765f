"""What the sparse estimators share: the number of features, bounds on entries, and the support."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from privet.linear.base import PrivateLinearModel, Targets
from privet.linear.methods._sparse import default_n_nonzero
from privet.linear.sparse_rows import bounded_entries, scaled_to_norm
from privet.objectives import BoundedRows
from privet.privacy import Budget, Guarantee, enforced, gdp_mu
from privet.solvers import Problem, Release
from privet.solvers.knowledge_transfer import PublicFeatures

_LEAST_MU = 1e-60  # below it, squares of noisy gradients overflow


class SparseModel(PrivateLinearModel):
    """Base of the sparse estimators, used together with that of classifiers or regressors."""

    _is_sparse = True

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """Return which features have a weight, as a mask of shape (n_features,) or as indices."""
        check_is_fitted(self)
        mask: NDArray[np.bool_] = self._coefficients()[0] != 0
        return np.flatnonzero(mask) if indices else mask

    def sparsify(self) -> "SparseModel":
        """Turn ``coef_`` into a sparse array of shape (1, n_features). :meth:`densify` turns it back."""
        check_is_fitted(self)
        self.coef_ = sparse.csr_array(self._coefficients())
        return self

    def densify(self) -> "SparseModel":
        """Turn ``coef_`` into a dense array, as it is after a fit."""
        check_is_fitted(self)
        coefficients = self._coefficients()
        self.coef_ = coefficients if hasattr(self, "classes_") else coefficients[0]
        return self

    def _train(
        self,
        X: Any,
        targets: Targets,
        public_records: tuple[Any, ...] | None,
        before_training: Callable[[Guarantee], object] | None,
    ) -> Release:
        if self.entry_bound is not None:
            bound = f"entry_bound = {self.entry_bound:g}"
            clipped = f"each entry whose absolute value exceeds {bound} is clipped to that value"
            targets = replace(targets, conditions=(*targets.conditions, enforced(clipped)))
        release = super()._train(X, targets, public_records, before_training)
        kept = "chosen from n, d, the bounds and the budget" if self.n_nonzero is None else "asked for"
        self.method_reason_ += f"; {self.n_nonzero_} of {X.shape[1]} features ({kept})"
        return release

    def _task_settings(
        self, problem: Problem, budget: Budget, public_records: tuple[Any, Any] | None
    ) -> dict[str, Any]:
        n, n_features = problem.rows.n, problem.rows.n_features
        if gdp_mu(budget) < _LEAST_MU:
            raise ValueError(f"The noise for the budget {budget} exceeds the range of floating point. Raise epsilon.")
        if self.n_nonzero is not None and self.n_nonzero > n_features:
            raise ValueError(f"n_nonzero={self.n_nonzero} is more than the {n_features} features of X. Lower it.")
        affordable = default_n_nonzero(budget, n, n_features, self.feature_norm / self._largest_entry)
        self.n_nonzero_ = affordable if self.n_nonzero is None else int(self.n_nonzero)
        public = None
        if public_records is not None:
            bounded = bounded_entries(public_records[0], self.feature_norm, self.entry_bound)
            public = PublicFeatures(scaled_to_norm(bounded, self.feature_norm), self._intercept_column())
        return {
            "n_nonzero": self.n_nonzero_,
            "entry_bound": self._largest_entry,
            "public_rows": public,
            "teacher": self.teacher,
        }

    def _checked_public(self, X: Any, y: Any) -> tuple[Any, Any] | None:
        """Return public rows and None in place of targets, because a private model labels public rows."""
        if y is not None:
            raise ValueError("y_public is not used, because a private model labels the public rows. Leave it out.")
        if X is not None:
            self._check_public_use()
            return self._validated(X, reset=False), None
        if self.method != "auto" and self.offered_methods()[self.method].needs_public:
            raise ValueError(f"method={self.method!r} learns from public rows. Give X_public to fit.")
        return None

    @property
    def _largest_entry(self) -> float:
        """The bound on entries that is in force. No entry is larger than the norm of its row."""
        return float(self.feature_norm if self.entry_bound is None else min(self.entry_bound, self.feature_norm))

    def _intercept_column(self) -> float:
        """Return the constant column, about as large as a typical entry: a larger one would shorten all steps."""
        typical = self.feature_norm / math.sqrt(self.n_features_in_)
        return float(min(self.intercept_scaling * typical, self._largest_entry) * bool(self.fit_intercept))

    def _share_of_long_rows(self, X: Any, rows: BoundedRows) -> float:
        return BoundedRows(X, self.feature_norm).share_above(2 * self.feature_norm)  # before entries are clipped

    def _bounded_rows(self, X: Any, intercept: float = 0.0) -> BoundedRows:
        return BoundedRows(bounded_entries(X, self.feature_norm, self.entry_bound), self.feature_norm, intercept)
