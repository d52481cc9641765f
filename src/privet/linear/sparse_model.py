"""What sparse estimators share: how many features, bounds on entries, training, and the support."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from privet.checks import count, within
from privet.linear.base import PrivateLinearModel
from privet.linear.regression import PrivateRegressor
from privet.linear.sparse_rows import bounded_entries, in_the_ball
from privet.linear.sparse_training import (
    SPARSE_METHODS,
    SparseTask,
    choose_sparse_method,
    default_n_nonzero,
)
from privet.objectives import L2, BoundedRows, GeneralisedLinear
from privet.objectives.rows import LARGEST_NORM, SMALLEST_NORM
from privet.privacy import Assumption, Budget, NoiseSource, enforced, gdp_mu
from privet.privacy.budget import default_delta
from privet.progress import progress_bar
from privet.solvers import Problem, Release
from privet.solvers.knowledge_transfer import PublicFeatures

_LEAST_MU = 1e-60  # squares of noisy gradients are to stay finite


class SparseModel(PrivateLinearModel):
    """Base of the sparse estimators, beside that of classifiers or regressors."""

    _methods = tuple(SPARSE_METHODS)

    def _check_method(self) -> None:
        choose_sparse_method(self.method, is_pure=self.delta == 0)
        if self.n_nonzero is not None:
            count("n_nonzero", self.n_nonzero)
        if self.entry_bound is not None:
            within("entry_bound", self.entry_bound, SMALLEST_NORM, LARGEST_NORM)

    def _check_public(self, X: Any, y: Any, encode: Any) -> tuple[Any, Any] | None:
        """Return public rows, checked, or None if none were given. Their targets have no use."""
        if y is not None:
            raise ValueError("y_public is not used: public rows are labelled by a private model; leave it out")
        uses = [name for name, method in SPARSE_METHODS.items() if method.uses_public]
        chosen = choose_sparse_method(self.method, is_pure=False).method
        if X is None:
            if chosen in uses:
                raise ValueError(f"method={chosen!r} learns from public rows: give X_public to fit")
            return None
        if chosen not in uses:
            others = f": use method={' or '.join(map(repr, uses))}" if uses else ""
            raise ValueError(f"method={self.method!r} would leave X_public unused{others or ': leave it out'}")
        return self._validated(X, reset=False), None

    @property
    def _largest_entry(self) -> float:
        """The bound on entries that is in force: none is larger than its row."""
        return float(self.feature_norm if self.entry_bound is None else min(self.entry_bound, self.feature_norm))

    def _intercept_column(self) -> float:
        """Return the constant column: no entry may be larger, and all steps suffer where it outweighs the features."""
        typical = self.feature_norm / math.sqrt(self.n_features_in_)
        return float(min(self.intercept_scaling * typical, self._largest_entry) * bool(self.fit_intercept))

    def _train(
        self,
        X: Any,
        targets: NDArray[Any],
        objective: GeneralisedLinear,
        public: tuple[Assumption, ...],
        *,
        scale: float = 1.0,
        worth: float = 1.0,
        known: tuple[Any, Any] | None = None,
    ) -> Release:
        """Choose method and number of features, run the solver, and keep the guarantee."""
        n, n_features = X.shape
        budget = Budget(self.epsilon, default_delta(n) if self.delta is None else self.delta)
        choice = choose_sparse_method(self.method, is_pure=budget.is_pure)
        if gdp_mu(budget) < _LEAST_MU:
            raise ValueError(f"the noise of so small a budget ({budget}) is beyond floating point: raise epsilon")
        if self.n_nonzero is not None and self.n_nonzero > n_features:
            raise ValueError(f"n_nonzero = {self.n_nonzero} features cannot be kept of {n_features}")
        affordable = default_n_nonzero(budget, n, n_features, self.feature_norm / self._largest_entry)
        self.n_nonzero_ = affordable if self.n_nonzero is None else int(self.n_nonzero)
        column = self._intercept_column()
        others = None
        if known is not None:
            others = PublicFeatures(in_the_ball(self._bounded(known[0]), self.feature_norm), column)
        with progress_bar(type(self).__name__, is_shown=bool(self.verbose)) as progress:
            task = SparseTask(
                Problem(objective, L2(self.alpha), BoundedRows(self._bounded(X), self.feature_norm, column), targets),
                budget,
                NoiseSource(self.random_state, purpose=self._purpose()),
                n_nonzero=self.n_nonzero_,
                entry_bound=self._largest_entry,
                scale=scale,
                worth=worth,
                max_iter=self.max_iter,
                public=others,
                progress=progress,
            )
            release = SPARSE_METHODS[choice.method].train(task)
        bounds = [f"rows of norm above feature_norm = {self.feature_norm:g} are scaled down to it, each by itself"]
        if self.entry_bound is not None:
            bounds.append(f"entries beyond entry_bound = {self.entry_bound:g} are clipped to it, each by itself")
        self.guarantee_ = release.guarantee.assuming(*map(enforced, bounds), *public)
        self.method_ = choice.method
        kept = "asked for" if self.n_nonzero is not None else "from n, their number, the bounds and the budget"
        reasons = [choice.reason, f"{self.n_nonzero_} of {n_features} features ({kept})", release.trace.get("remark")]
        self.method_reason_ = "; ".join(filter(None, reasons))
        self.n_iter_ = int(release.trace.get("steps", 1))
        return release

    def _bounded(self, X: Any) -> Any:
        return bounded_entries(X, self.feature_norm, self.entry_bound)

    def _scores(self, X: Any) -> NDArray[Any]:
        """Return the scores of rows, as one column."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        rows = BoundedRows(self._bounded(X), self.feature_norm)
        return np.asarray(rows.scores(self._coefficients().T) + self.intercept_, dtype=X.dtype)

    # --------------------------------------------------------------------------------------------------- the support

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """Return which features have a weight: a mask of shape (n_features,), or their places."""
        check_is_fitted(self)
        mask: NDArray[np.bool_] = self._coefficients()[0] != 0
        return np.flatnonzero(mask) if indices else mask

    def sparsify(self) -> "SparseModel":
        """Turn ``coef_`` into a sparse array of shape (1, n_features); :meth:`densify` turns it back."""
        check_is_fitted(self)
        self.coef_ = sparse.csr_array(self._coefficients())
        return self

    def densify(self) -> "SparseModel":
        """Turn ``coef_`` into a dense array, as it is after a fit."""
        check_is_fitted(self)
        coefficients = self._coefficients()
        self.coef_ = coefficients[0] if isinstance(self, PrivateRegressor) else coefficients
        return self
