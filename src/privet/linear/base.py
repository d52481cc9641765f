"""What all linear estimators share: checks of settings, the choice of method, and training."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from privet.checks import count, nonnegative, positive, whole, within
from privet.estimators import EstimatorChecks
from privet.linear.defaults import CLIPPING_METHODS, METHODS, choose_method
from privet.linear.training import TRAINERS, Task
from privet.objectives import L2, BoundedRows, GeneralisedLinear
from privet.objectives.rows import LARGEST_NORM, SMALLEST_NORM
from privet.privacy import Assumption, Budget, Guarantee, NoiseSource, enforced
from privet.privacy.budget import default_delta
from privet.progress import progress_bar
from privet.saving import SavedEstimator
from privet.solvers import Problem, Release


class PrivateLinearModel(EstimatorChecks, SavedEstimator, BaseEstimator):
    """Base of the linear estimators.

    Subclasses declare the parameters, choose an objective and call :meth:`_train`.
    """

    _methods: ClassVar[Collection[str]] = METHODS

    # ------------------------------------------------------------------------------------------------ training

    def _check_settings(self) -> None:
        """Raise on an impossible setting, before the data is touched."""
        positive("epsilon", self.epsilon)
        if self.delta is not None:
            Budget(self.epsilon, self.delta)
        within("feature_norm", self.feature_norm, SMALLEST_NORM, LARGEST_NORM)
        within("intercept_scaling", self.intercept_scaling, 1e-6, 1e6)
        nonnegative("alpha", self.alpha)
        if self.max_iter is not None:
            count("max_iter", self.max_iter)
        if self.random_state is not None:
            whole("random_state", self.random_state)
        self._check_method()

    def _check_method(self) -> None:
        """Raise on a method that is not offered, or on settings that do not fit it."""
        nonnegative("smoothing", self.smoothing)
        if self.clip_norm is not None:
            within("clip_norm", self.clip_norm, 1e-100, 1e100)
        choose_method(self.method, is_pure=self.delta == 0)
        if self.method != "auto":
            self._check_fit_of(self.method)
        elif self.delta == 0:
            self._check_fit_of("output")  # the most that auto would offer

    def _check_fit_of(self, method: str) -> None:
        """Raise on settings that a method cannot honour."""
        if self.smoothing and method != "gradient":
            raise ValueError(f"smoothing acts on noisy gradients, which method={method!r} has none of: set smoothing=0")
        if self.clip_norm is not None and method not in CLIPPING_METHODS:
            raise ValueError(f"method={method!r} does not clip gradients: leave clip_norm out")

    def _purpose(self) -> str:
        """Return what the noise is for: one seed gives other noise to another model, method or budget."""
        return f"{type(self).__name__} {self.method} {self.epsilon!r} {self.delta!r}"

    def _train(
        self,
        X: Any,
        targets: NDArray[Any],
        objective: GeneralisedLinear,
        public: tuple[Assumption, ...],
        *,
        scale: float = 1.0,
        worth: float = 1.0,
        known: tuple[Any, NDArray[Any]] | None = None,
    ) -> Release:
        """Choose a method, run its solver, and keep the guarantee; return the weights, features first.

        ``known`` are rows and targets that need no protection.
        """
        intercept = self._intercept_column()
        rows = BoundedRows(X, self.feature_norm, intercept)
        budget = Budget(self.epsilon, default_delta(rows.n) if self.delta is None else self.delta)
        problem = Problem(objective, L2(self.alpha), rows, targets)
        others = known and replace(problem, rows=BoundedRows(known[0], self.feature_norm, intercept), targets=known[1])
        is_scalar = objective.clips_to_convex and objective.has_bounded_gradient
        choice = choose_method(self.method, is_pure=budget.is_pure, is_scalar=is_scalar)
        self._check_fit_of(choice.method)
        with progress_bar(type(self).__name__, is_shown=bool(self.verbose)) as progress:
            task = Task(
                problem,
                budget,
                NoiseSource(self.random_state, purpose=self._purpose()),
                scale=scale,
                worth=worth,
                max_iter=self.max_iter,
                clip_norm=self.clip_norm,
                smoothing=self.smoothing,
                public=others,
                progress=progress,
            )
            release = TRAINERS[choice.method](task)
        scaled = enforced(
            f"rows of norm above feature_norm = {self.feature_norm:g} are scaled down to it, each by itself"
        )
        self.guarantee_: Guarantee = release.guarantee.assuming(scaled, *public)
        self.method_ = choice.method
        self.method_reason_ = "; ".join([choice.reason, *filter(None, [release.trace.get("remark")])])
        self.n_iter_ = int(release.trace.get("steps", 1))
        return release

    def _adopted(self, release: Release, n_features: int, n_classes: int | None) -> "PrivateLinearModel":
        """Take over weights that were trained elsewhere, in the order of this model's own."""
        if release.weights.shape[0] != n_features + bool(self.fit_intercept):
            raise ValueError(f"weights for {n_features} features and the intercept, got {release.weights.shape}")
        coefficients, self.intercept_ = self._split(release.weights)
        self.n_features_in_ = n_features
        if n_classes is None:
            self.coef_ = coefficients[0]
        else:
            self.coef_, self.classes_ = coefficients, np.arange(n_classes)
        self.guarantee_ = release.guarantee
        self.n_iter_ = int(release.trace.get("steps", 1))
        return self

    def _intercept_column(self) -> float:
        """Return the value of the constant column whose weight is the intercept; 0 for none."""
        return float(self.feature_norm * self.intercept_scaling * bool(self.fit_intercept))

    def _coefficients(self) -> NDArray[Any]:
        """Return the coefficients, one row an output."""
        return self.coef_.toarray() if sparse.issparse(self.coef_) else np.atleast_2d(self.coef_)

    def _split(self, weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return coefficients of shape (k, d) and intercepts of shape (k,)."""
        columns = weights.reshape(weights.shape[0], -1).T
        if not self.fit_intercept:
            return columns.copy(), np.zeros(columns.shape[0], dtype=columns.dtype)
        return columns[:, :-1].copy(), columns[:, -1] * self._intercept_column()

    def _scores(self, X: Any) -> NDArray[Any]:
        """Return the scores of rows, one column an output."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        # Rows are scaled into the ball as they were in training; here that is no more than consistency.
        scores = BoundedRows(X, self.feature_norm).scores(self._coefficients().T)
        return np.asarray(scores + self.intercept_, dtype=X.dtype)

    @property
    def partial_fit(self) -> Any:
        """Not offered, with the reason."""
        raise AttributeError(
            f"{type(self).__name__} has no partial_fit: each call would be a release of its own and spend the whole "
            "budget again; fit all records at once"
        )

    def _check_public(
        self, X: Any, y: Any, encode: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> tuple[Any, NDArray[Any]] | None:
        """Return public rows and targets, checked and encoded, or None if none were given."""
        if X is None and y is None:
            return None
        if X is None or y is None:
            raise ValueError("X_public and y_public go together: give both, or neither")
        if self.method != "iteration":
            raise ValueError(
                f"public records are used by method='iteration' only, which visits them last; method={self.method!r} "
                "would leave them unused"
            )
        X, y = self._validated(X, y, reset=False)
        return X, encode(y)

    @staticmethod
    def _refuse(options: Mapping[str, Any]) -> None:
        """Raise on arguments of fit that would change what one record can do."""
        for name, value in options.items():
            if name != "sample_weight":
                raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
            if value is not None:
                raise ValueError(
                    "sample_weight is refused: a record of weight w moves the result w times as far as noise hides; "
                    "leave it out, and let every record count the same"
                )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # privacy noise, unless random_state is set
        return tags

    def _check_learned(self) -> None:
        super()._check_learned()
        coefficients = self._coefficients()
        if not np.isfinite(np.column_stack([coefficients, self.intercept_])).all():
            raise ValueError("its weights are not finite")
        if coefficients.shape[1] != self.n_features_in_:
            raise ValueError(f"it has {coefficients.shape[1]} weights for {self.n_features_in_} features")
