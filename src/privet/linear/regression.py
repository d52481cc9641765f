"""Private linear regression: least squares with clipped gradients, and Huber's loss."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from privet.checks import within
from privet.linear.base import PrivateLinearModel
from privet.objectives import GeneralisedLinear, Huber, Squared
from privet.privacy import enforced


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Base of the regressors: subclasses declare the parameters and choose the loss."""

    target_bound: float

    @abstractmethod
    def _objective(self) -> GeneralisedLinear:
        """Return the loss."""

    def _check_settings(self) -> None:
        super()._check_settings()
        within("target_bound", self.target_bound, 1e-100, 1e100)

    def fit(self, X: Any, y: Any, X_public: Any = None, y_public: Any = None, **refused: Any) -> "PrivateRegressor":
        """Fit to rows ``X`` (array, DataFrame or sparse) and numbers ``y``; spends the budget once.

        ``X_public`` and ``y_public`` are records that need no protection, for ``method="iteration"``.
        """
        self._refuse(refused)
        with self._fitting():
            self._check_settings()
            X, y = self._validated(X, y, reset=True)
            bound = float(self.target_bound)
            targets = self._clipped(y)
            clipped = enforced(f"targets beyond target_bound = {bound:g} are clipped to it, each by itself")
            known = self._check_public(X_public, y_public, self._clipped)
            release = self._train(
                X, targets, self._objective(), public=(clipped,), scale=bound, worth=bound / 5, known=known
            )
            coefficients, intercepts = self._split(release.weights.astype(X.dtype))
            self.coef_, self.intercept_ = coefficients[0], intercepts
        return self

    def _clipped(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return np.clip(_numbers(y), -self.target_bound, self.target_bound)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted number of each row, within the bounds of the target."""
        bound = float(self.target_bound)
        return np.asarray(np.clip(self._scores(X)[:, 0], -bound, bound))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # scikit-learn's checks fit a few dozen rows; noise drowns them
        return tags


class PrivateRidge(PrivateRegressor):
    """Least squares with an l2 penalty and differential privacy for each record, under replace-one adjacency.

    Minimises the mean of (y - score)^2 / 2 plus (alpha/2) ||w||^2 over rows scaled into a public ball, where the
    gradient of each record is clipped: a squared loss alone has no bound on what one record can do.

    Parameters
    ----------
    epsilon, delta, alpha, feature_norm, fit_intercept, intercept_scaling, smoothing, random_state, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : {"auto", "gradient", "iteration", "output"}, default="auto"
    target_bound : float, default=1.0
        Public bound on the size of the target. Larger ones are clipped to it, and predictions too. Noise grows with
        it: centre the target at a public value first.
    clip_norm : float or None, default=None
        Bound to which the gradient of each record is clipped; None chooses ``0.4 * feature_norm * target_bound``, and
        where data and budget are so large that noise hardly matters the clip at which a residual is ``target_bound``.
    max_iter : int or None, default=None

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : array of shape (1,)
    guarantee_, method_, method_reason_, n_iter_
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from privet import PrivateRidge
    >>> X, y = load_diabetes(return_X_y=True)  # the scale of disease progression runs to 350: a public fact
    >>> model = PrivateRidge(epsilon=2.0, feature_norm=0.2, target_bound=175).fit(X, y - 175)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        method: str = "auto",
        alpha: float = 1e-4,
        feature_norm: float = 1.0,
        target_bound: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        smoothing: float = 0.0,
        clip_norm: float | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.alpha = alpha
        self.feature_norm = feature_norm
        self.target_bound = target_bound
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.smoothing = smoothing
        self.clip_norm = clip_norm
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self) -> GeneralisedLinear:
        return Squared()

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.method in {"minimiser", "objective"}:
            raise ValueError(
                f"method={self.method!r} needs a loss with bounded gradients, which the square is not: use "
                "PrivateHuberRegressor, or method='gradient' or 'output', which clip"
            )


class PrivateHuberRegressor(PrivateRegressor):
    """Linear regression with Huber's loss and differential privacy for each record, under replace-one adjacency.

    Minimises the mean Huber loss plus (alpha/2) ||w||^2 over rows scaled into a public ball. Errors beyond the
    threshold count linearly, so outliers pull less, and a record's gradient is bounded without clipping.

    Parameters
    ----------
    epsilon, delta, alpha, feature_norm, fit_intercept, intercept_scaling, smoothing, random_state, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : {"auto", "gradient", "iteration", "output", "minimiser", "objective"}, default="auto"
    target_bound : float, default=1.0
        Public bound on the size of the target, as for :class:`PrivateRidge`.
    threshold : float or None, default=None
        Error, in units of the target, beyond which the loss is linear; None is a quarter of ``target_bound``.
    clip_norm, max_iter
        As for :class:`PrivateRidge`.

    Attributes
    ----------
    coef_, intercept_, guarantee_, method_, method_reason_, n_iter_
        As for :class:`PrivateRidge`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from privet import PrivateHuberRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = PrivateHuberRegressor(epsilon=2.0, feature_norm=0.2, target_bound=175).fit(X, y - 175)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        method: str = "auto",
        alpha: float = 1e-4,
        feature_norm: float = 1.0,
        target_bound: float = 1.0,
        threshold: float | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        smoothing: float = 0.0,
        clip_norm: float | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.alpha = alpha
        self.feature_norm = feature_norm
        self.target_bound = target_bound
        self.threshold = threshold
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.smoothing = smoothing
        self.clip_norm = clip_norm
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self) -> GeneralisedLinear:
        return Huber.for_targets(self.target_bound, self.threshold)

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.threshold is not None:
            within("threshold", self.threshold, 1e-100, 1e100)


def _numbers(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the targets in float64; one that is no finite number would make every weight one that is none."""
    try:
        if y.dtype.kind in "mM":
            raise TypeError("dates and durations are none")
        numbers = y.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers ({error})") from error
    if not np.isfinite(numbers).all():
        raise ValueError("y holds NaN or infinity: drop such records, or fill them with a public constant")
    return numbers
