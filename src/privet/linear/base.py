"""What all linear estimators share: parameter checks, the choice of a method, fitting and scores."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from privet import cautions, names
from privet.checks import choice, positive
from privet.estimators import EstimatorChecks, SavedEstimator, ShownEstimator
from privet.linear.method_choice import MethodChoice
from privet.linear.methods import Method, Task, described, named, usual_budget
from privet.linear.methods.knowledge_transfer import TEACHERS
from privet.linear.several_targets import SeveralTargets, has_several_columns, per_target
from privet.linear.usefulness import warn_of_noise
from privet.objectives import L2, BoundedRows, GeneralisedLinear
from privet.privacy import (
    Adjacency,
    Assumption,
    AttackRate,
    Budget,
    Guarantee,
    NoiseMultiplier,
    NoiseSource,
    enforced,
)
from privet.privacy.analyses.gaussian import rate_budget
from privet.privacy.budget import default_delta
from privet.privacy.ledger.spending import LedgerLike, book_spending
from privet.progress import progress_bar
from privet.solvers import Problem, Release
from privet.solvers.base.interface import FEATURE_NOISE

_CHECKS = names.PARAMETERS | {"teacher": partial(choice, choices=("auto", *TEACHERS))}


@dataclass(frozen=True)
class Targets:
    """Encoded targets, the loss that fits them, and what the guarantee says about them.

    Parameters
    ----------
    values : array of shape (n,)
    objective : GeneralisedLinear
    conditions : tuple of Assumption
    scale, worth : float
        As for :class:`~privet.linear.methods.Task`.
    others : tuple of arrays
        Encoded targets of further tasks, with the same loss.
    """

    values: NDArray[Any]
    objective: GeneralisedLinear
    conditions: tuple[Assumption, ...] = ()
    scale: float = 1.0
    worth: float = 1.0
    others: tuple[NDArray[Any], ...] = ()


class PrivateLinearModel(SeveralTargets, MethodChoice, EstimatorChecks, SavedEstimator, ShownEstimator, BaseEstimator):
    """Base of the linear estimators. Subclasses declare their parameters and their loss, and encode targets.

    In the docstring of a subclass, ``{methods}`` stands for the descriptions of the methods that it offers, and
    ``{clip_norm}`` for the names of those that use this setting; likewise for the other settings.
    """

    ledger: LedgerLike | None
    before_training: Callable[[Guarantee], object] | None = None
    """Called by ``fit`` with the guarantee before it is booked. It is not a parameter and is not saved."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "{methods}" in (cls.__doc__ or ""):
            cls.__doc__ = described(str(cls.__doc__), cls.offered_methods().values())

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> Targets:
        """Return the targets encoded for training. Raise ValueError if they cannot be."""

    @abstractmethod
    def _public_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the targets of public records, encoded in the same way as those of :meth:`_targets`."""

    # ------------------------------------------------------------------------------------------------ training

    def fit(self, X: Any, y: Any, X_public: Any = None, y_public: Any = None, **refused: Any) -> Self:
        """Fit the model, or one model per column of a two-dimensional y. Each call spends the budget once.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix of shape (n, n_features)
        y : array of shape (n,), or array or DataFrame of shape (n, n_outputs)
            Labels for a classifier, numbers for a regressor. Several columns are several tasks on the same rows: each
            has its own model, and ``guarantee_`` covers all of them together.
        X_public, y_public
            Records that need no protection, for methods that can learn from them.

        Returns
        -------
        The fitted estimator.
        """
        for name, value in refused.items():
            if name != "sample_weight":
                raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
            if value is not None:
                raise ValueError(
                    "sample_weight is not supported: a record of weight w would move the result w times as far as the "
                    "noise hides. Leave it out, so that every record counts the same."
                )
        with self._fitting(), cautions.once():
            self._check_settings()
            if has_several_columns(y):
                self._fit_columns(X, y, X_public, y_public)
                return self
            X, y = self._validated(X, y, reset=True)
            targets = self._targets(y)
            public = self._checked_public(X_public, y_public)
            self._keep_weights(self._train(X, targets, public, self._book).weights.astype(X.dtype))
        return self

    def _book(self, guarantee: Guarantee) -> None:
        """Book a fit, just before any noise is drawn for it."""
        if self.before_training is not None:
            self.before_training(guarantee)
        book_spending(guarantee, f"fit of {type(self).__name__}", ledgers=[self.ledger])

    def _check_settings(self) -> None:
        """Raise ValueError for an impossible setting, before the data is touched."""
        given = [name for name in ("epsilon", "noise_multiplier", "tpr") if self._is_set(name)]
        given = [name for name in given if getattr(self, name) is not None]
        if len(given) > 1:
            one, other = (f"{name}={getattr(self, name)!r}" for name in given[:2])
            raise ValueError(
                f"{one} and {other} cannot be given together, because each determines the other. Leave one of them out."
            )
        has_noise = self._is_set("noise_multiplier") or self._is_set("tpr")
        for name, default in self._default_settings().items():
            value, may_be_none = getattr(self, name), default is None or (has_noise and name == "epsilon")
            if name in _CHECKS and not (value is None and may_be_none):
                _CHECKS[name](name, value)
        # What auto will choose depends on the number of classes. With several classes fewer settings are refused.
        self._applicable_methods(is_pure=self.delta == 0, has_one_score=self.method != "auto")

    def _checked_public(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]] | None:
        """Return public rows and encoded targets, or None if there are none."""
        if X is None and y is None:
            return None
        if X is None or y is None:
            raise ValueError("X_public and y_public go together. Give both, or neither.")
        self._check_public_use()
        X, y = self._validated(X, y, reset=False)
        return X, self._public_targets(y)

    def _check_public_use(self) -> None:
        """Raise ValueError if the method does not learn from public data."""
        users = [each for each in self.offered_methods().values() if each.uses_public]
        if self.method not in {each.name for each in users}:
            remedy = f"Use {named(users)}, or leave the public data out." if users else "Leave it out."
            raise ValueError(f"method={self.method!r} does not learn from public data. {remedy}")

    def _train(
        self,
        X: Any,
        targets: Targets,
        public_records: tuple[Any, ...] | None,
        before_training: Callable[[Guarantee], object] | None,
    ) -> Release:
        """Choose a method and run it. Keep the guarantee, and return the weights, features first."""
        scaled = f"each row whose norm exceeds feature_norm = {self.feature_norm:g} is scaled down to that norm"
        conditions = (enforced(scaled), *targets.conditions)
        rows = self._bounded_rows(X, self._intercept_column())
        delta = default_delta(rows.n) if self.delta is None else self.delta
        noise = NoiseMultiplier(self.noise_multiplier, delta) if self._is_set("noise_multiplier") else None
        rate = AttackRate(self.tpr[0], self.tpr[1], delta) if self.tpr is not None else None
        if noise is not None:
            budget = usual_budget(noise, 1 + len(targets.others))
        else:
            budget = Budget(self.epsilon, delta) if rate is None else rate_budget(rate)
        if rate is not None and self._asked is None:
            conditions += (_calibrated_to(rate),)
        problem = Problem(targets.objective, L2(self.alpha), rows, targets.values)
        # The purpose gives each model, method and budget different noise for the same seed.
        purpose = f"{type(self).__name__} {self.method} {self.epsilon!r} {self.delta!r}{self._purpose}"
        purpose += "" if noise is None else f" noise {noise.multiplier!r}"
        purpose += "" if rate is None else f" rate {rate.fpr!r} {rate.tpr!r}"

        def told(found: Guarantee) -> None:
            if rate is not None:
                _check_rate(rate, found)
            if before_training is not None:
                before_training(found.assuming(*conditions))

        with progress_bar(type(self).__name__) if self.verbose else nullcontext() as progress:
            task = Task(
                problem,
                budget,
                NoiseSource(self.random_state, purpose=purpose),
                scale=targets.scale,
                worth=targets.worth,
                noise=noise,
                rate=rate,
                others=tuple(replace(problem, targets=values) for values in targets.others),
                max_iter=self.max_iter,
                progress=progress,
                before_training=told,
                **self._task_settings(problem, budget, public_records),
            )
            method, reason = self._choose_method(task)
            self._warn(X, task, method)
            release = self._run_method(method, task)
        self.guarantee_: Guarantee = release.guarantee.assuming(*conditions)
        if noise is not None:  # What it costs depends on the steps that the method chose.
            cautions.about_budget(self.guarantee_.epsilon, delta, rows.n)
        if self.guarantee_.adjacency is Adjacency.REPLACE_ONE:  # otherwise, the number of records is private
            self.n_records_ = rows.n
        self.method_ = method.name
        self.method_reason_ = "; ".join(filter(None, [reason, release.trace.get("remark")]))
        self.n_iter_ = int(release.trace.get("steps", 1))
        self.noise_std_: float | None = release.trace.get(FEATURE_NOISE)
        return release

    def _run_method(self, method: Method, task: Task) -> Release:
        """Train by a method. Estimators that release something before the training do it here."""
        return method.train(task)

    def _warn(self, X: Any, task: Task, method: Method) -> None:
        """Give the warnings of this fit. They change nothing, and the guarantee does not cover those about rows."""
        n, asked = task.problem.rows.n, self._asked or task.budget
        if task.noise is None:
            cautions.about_budget(asked.epsilon, asked.delta, n)
            able = [each for each in self.offered_methods().values() if each.is_pure or not task.budget.is_pure]
            warn_of_noise(task, method, able, asked.epsilon)
        if not self._is_set("feature_norm"):
            cautions.about_rows("feature_norm", self._share_of_long_rows(X, task.problem.rows))

    def _share_of_long_rows(self, X: Any, rows: BoundedRows) -> float:
        """Return the share of the rows that are more than twice as long as ``feature_norm``. This is not private."""
        return rows.share_above(2 * self.feature_norm)

    def _task_settings(
        self, problem: Problem, budget: Budget, public_records: tuple[Any, ...] | None
    ) -> dict[str, Any]:
        """Return the fields of the task that come from settings of this kind of estimator."""
        public: Problem | None = None
        other_public: tuple[Problem, ...] = ()
        if public_records is not None:
            X, targets, *others = public_records
            public = replace(problem, rows=self._bounded_rows(X, self._intercept_column()), targets=targets)
            other_public = tuple(replace(public, targets=values) for values in others)
        settings = {name: getattr(self, name) for name in ("clip_norm", "smoothing", "secret", "batch_size")}
        return settings | {"public_records": public, "other_public": other_public}

    def _bounded_rows(self, X: Any, intercept: float = 0.0) -> BoundedRows:
        """Return the rows as training and prediction see them, scaled down to ``feature_norm``."""
        return BoundedRows(X, self.feature_norm, intercept)

    def _intercept_column(self) -> float:
        """Return the value of the constant column whose weight is the intercept, or 0 if there is no intercept."""
        return float(self.feature_norm * self.intercept_scaling * bool(self.fit_intercept))

    def _keep_weights(self, weights: NDArray[Any]) -> None:
        """Set ``coef_`` and ``intercept_`` from weights whose last row belongs to the constant column."""
        columns = weights.reshape(weights.shape[0], -1).T
        self.intercept_ = np.zeros(columns.shape[0], dtype=columns.dtype)
        if self.fit_intercept:
            columns, self.intercept_ = columns[:, :-1], columns[:, -1] * self._intercept_column()
        self.coef_: Any = columns.copy() if hasattr(self, "classes_") else columns[0].copy()

    def adopt(self, release: Release, n_features: int, n_classes: int | None) -> None:
        """Take over weights that were trained elsewhere, features first, and their guarantee."""
        if release.weights.shape[0] != n_features + bool(self.fit_intercept):
            raise ValueError(f"weights for {n_features} features and the intercept, got {release.weights.shape}")
        self.n_features_in_ = n_features
        if n_classes is not None:
            self.classes_ = np.arange(n_classes)
        self._keep_weights(release.weights)
        self.guarantee_ = release.guarantee
        self.n_iter_ = int(release.trace.get("steps", 1))
        self.noise_std_ = release.trace.get(FEATURE_NOISE)

    # ---------------------------------------------------------------------------------------------- prediction

    def _coefficients(self) -> NDArray[Any]:
        """Return the coefficients, one row per output."""
        return self.coef_.toarray() if sparse.issparse(self.coef_) else np.atleast_2d(self.coef_)

    def _scores(self, X: Any) -> NDArray[Any]:
        """Return the scores of rows, one column per output."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        scores = self._bounded_rows(X).scores(self._coefficients().T)
        return np.asarray(scores + self.intercept_, dtype=X.dtype)

    @property
    def partial_fit(self) -> Any:
        """Not supported. Reading it raises AttributeError with the reason."""
        raise AttributeError(
            f"{type(self).__name__} has no partial_fit: each call would be another release and spend the whole "
            "budget again. Fit all records at once."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # privacy noise, unless random_state is set
        return tags

    @per_target(list)
    def _check_learned(self) -> None:
        super()._check_learned()
        if not isinstance(self.guarantee_, Guarantee):
            raise ValueError(f"a {type(self).__name__} must have a guarantee")
        coefficients = self._coefficients()
        if not np.isfinite(np.column_stack([coefficients, self.intercept_])).all():
            raise ValueError("its weights are not finite")
        if (std := getattr(self, "noise_std_", None)) is not None:
            positive("noise_std_", std)
        if coefficients.shape[1] != self.n_features_in_:
            raise ValueError(f"it has {coefficients.shape[1]} weights for {self.n_features_in_} features")


def _calibrated_to(rate: AttackRate) -> Assumption:
    found = f"attacks with {100 * rate.fpr:g} % false alarms find at most {100 * rate.tpr:g} %"
    return enforced(f"calibrated, by itself, so that {found}")


def _check_rate(rate: AttackRate, found: Guarantee) -> None:
    """Raise ValueError if attacks can do better against what is about to be released."""
    if (reached := found.tpr(rate.fpr)) > rate.tpr:
        raise ValueError(
            f"The noise of this method cannot be calibrated to {rate}: at that false-positive rate, an attack could "
            f"have a true-positive rate of {reached:.4g}. Use method='gradient', or give epsilon in place of tpr."
        )
