"""Private linear regression: least squares with clipped gradients, the Huber loss and the absolute error."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from privet import cautions
from privet.linear.base import PrivateLinearModel, Targets
from privet.linear.several_targets import beside_each_other, per_target
from privet.objectives import GaussianAbsolute, GeneralisedLinear, Huber, Squared
from privet.privacy import enforced
from privet.privacy.ledger.spending import LedgerLike


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Base of the regressors. Subclasses declare the parameters and choose the loss."""

    target_bound: float

    def _objective(self) -> GeneralisedLinear:
        """Return the loss."""
        return self._loss()

    @per_target(beside_each_other)
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted number of each row, clipped to the bounds of the target.

        With several targets, return one column per target.
        """
        bound = float(self.target_bound)
        return np.asarray(np.clip(self._scores(X)[:, 0], -bound, bound))

    def _targets(self, y: NDArray[Any]) -> Targets:
        bound = float(self.target_bound)
        values = self._public_targets(y)
        if not self._is_set("target_bound"):
            cautions.about_targets(float(np.mean(np.abs(y.astype(np.float64)) > bound)))
        condition = enforced(
            f"each target whose absolute value exceeds target_bound = {bound:g} is clipped to that value"
        )
        return Targets(values, self._objective(), (condition,), scale=bound, worth=bound / 5)

    def _public_targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return np.clip(finite_numbers(y), -self.target_bound, self.target_bound)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Classifiers do not set it: scikit-learn's check of the tag expects one array of probabilities, while
        # MultiOutputClassifier, whose conventions they follow, returns a list.
        tags.target_tags.multi_output = not self._is_sparse
        tags.regressor_tags.poor_score = True  # on the few dozen rows of scikit-learn's checks, noise dominates
        return tags


def finite_numbers(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return targets as numbers, or raise ValueError if some are not finite numbers."""
    try:
        if y.dtype.kind in "mM":
            raise TypeError("dates and durations are not numbers")
        numbers = y.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers ({error})") from error
    if not np.isfinite(numbers).all():  # a non-finite target would make every weight non-finite
        raise ValueError("y holds NaN or infinity. Drop such records, or fill them with a public constant.")
    return numbers


class PrivateRidge(PrivateRegressor):
    """Least squares with an l2 penalty and differential privacy for each record, under replace-one adjacency.

    Minimises the mean of (y - score)^2 / 2 plus (alpha/2) ||w||^2 over rows scaled into a public ball. The gradient of
    each record is clipped, because a squared loss does not bound the influence of one record.

    Parameters
    ----------
    epsilon, delta, alpha, feature_norm, fit_intercept, intercept_scaling, smoothing, secret, batch_size, \
noise_multiplier, tpr, random_state, ledger, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : str, default="auto"
        {methods}
        ``auto`` chooses one of them from public numbers alone.
    target_bound : float, default=1.0
        Public bound on the absolute value of the target. Larger targets and predictions are clipped to it. The noise
        grows with it, so subtract a public middle value from the target first.
    clip_norm : float or None, default=None
        Bound to which the gradient of each record is clipped. None chooses a share of ``feature_norm * target_bound``
        by the method, the budget, n and ``alpha``: with ``gradient`` from 0.2, if noise is strong, up to the clip at
        which a residual is ``target_bound``, if noise hardly matters.
    max_iter : int or None, default=None
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Attributes
    ----------
    coef_ : array of shape (n_features,) or (n_outputs, n_features)
    intercept_ : array of shape (1,) or (n_outputs,)
        With several targets, ``n_outputs_`` is their number, and ``target_names_`` has their names if ``y`` was a
        DataFrame.
    guarantee_, method_, method_reason_, n_iter_
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from privet import PrivateRidge
    >>> X, y = load_diabetes(return_X_y=True)  # disease progression is measured on a public scale up to 350
    >>> model = PrivateRidge(epsilon=2.0, feature_norm=0.2, target_bound=175).fit(X, y - 175)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    _loss = Squared

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
        secret: str | None = None,
        batch_size: int | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
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
        self.secret = secret
        self.batch_size = batch_size
        self.noise_multiplier = noise_multiplier
        self.tpr = tpr
        self.max_iter = max_iter
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose


class PrivateHuberRegressor(PrivateRegressor):
    """Linear regression with the Huber loss and differential privacy for each record, under replace-one adjacency.

    Minimises the mean Huber loss plus (alpha/2) ||w||^2 over rows scaled into a public ball. Errors beyond the
    threshold count linearly, so outliers matter less, and the gradient of a record is bounded without clipping.

    Parameters
    ----------
    epsilon, delta, alpha, feature_norm, fit_intercept, intercept_scaling, smoothing, secret, batch_size, \
noise_multiplier, tpr, random_state, ledger, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : str, default="auto"
        {methods}
        ``auto`` chooses one of them from public numbers alone.
    target_bound : float, default=1.0
        Public bound on the absolute value of the target, as for :class:`PrivateRidge`.
    threshold : float or None, default=None
        Error, in units of the target, beyond which the loss is linear. None means a quarter of ``target_bound``.
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

    _loss = Huber

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
        secret: str | None = None,
        batch_size: int | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
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
        self.secret = secret
        self.batch_size = batch_size
        self.noise_multiplier = noise_multiplier
        self.tpr = tpr
        self.max_iter = max_iter
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _objective(self) -> GeneralisedLinear:
        return Huber.for_targets(self.target_bound, self.threshold)


class PrivateAbsoluteRegressor(PrivateRegressor):
    """Linear regression with the absolute error and differential privacy for each record, under replace-one adjacency.

    Minimises the mean absolute error plus an l2 penalty over rows scaled into a public ball, which predicts medians.
    The corner of the absolute error is smoothed by convolving it with a Gaussian ("Privacy Amplification by Iteration",
    section 5.5), and the gradient of a record is bounded without clipping.

    Parameters
    ----------
    epsilon, delta, feature_norm, fit_intercept, intercept_scaling, smoothing, secret, batch_size, \
noise_multiplier, tpr, random_state, ledger, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : str, default="auto"
        {methods}
        ``auto`` chooses one of them from public numbers alone.
    alpha : float, default=1e-4
        Strength of the l2 penalty (alpha/2) ||w||^2. The loss is ``1.25 * corner_width`` times the absolute error, so
        that its curvature is at most 1, as that of the squared error, and ``alpha`` counts as much as there.
    target_bound : float, default=1.0
        Public bound on the absolute value of the target, as for :class:`PrivateRidge`.
    corner_width : float or None, default=None
        Standard deviation of the Gaussian, in units of the target. Errors of this size and less count about
        quadratically. None means a tenth of ``target_bound``. A larger value allows longer steps.
    clip_norm, max_iter
        As for :class:`PrivateRidge`.

    Attributes
    ----------
    coef_, intercept_, guarantee_, method_, method_reason_, n_iter_
        As for :class:`PrivateRidge`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from privet import PrivateAbsoluteRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = PrivateAbsoluteRegressor(epsilon=2.0, feature_norm=0.2, target_bound=175).fit(X, y - 175)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    _loss = GaussianAbsolute

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        method: str = "auto",
        alpha: float = 1e-4,
        feature_norm: float = 1.0,
        target_bound: float = 1.0,
        corner_width: float | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        smoothing: float = 0.0,
        clip_norm: float | None = None,
        secret: str | None = None,
        batch_size: int | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.alpha = alpha
        self.feature_norm = feature_norm
        self.target_bound = target_bound
        self.corner_width = corner_width
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.smoothing = smoothing
        self.clip_norm = clip_norm
        self.secret = secret
        self.batch_size = batch_size
        self.noise_multiplier = noise_multiplier
        self.tpr = tpr
        self.max_iter = max_iter
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _objective(self) -> GeneralisedLinear:
        return GaussianAbsolute.for_targets(self.target_bound, self.corner_width)
