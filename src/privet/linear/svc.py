"""Private linear support vector classification."""

from collections.abc import Sequence
from typing import Any

from privet.linear.classification import PrivateClassifier
from privet.objectives import GeneralisedLinear, SmoothedHinge


class PrivateLinearSVC(PrivateClassifier):
    """Linear support vector machine for two classes, with differential privacy for each record (replace-one).

    Minimises the mean smoothed hinge loss plus (alpha/2) ||w||^2 over rows scaled into a public ball.

    Parameters
    ----------
    epsilon, delta, alpha, feature_norm, fit_intercept, intercept_scaling, smoothing, clip_norm, max_iter, classes, \
random_state, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : str, default="auto"
        {methods}
        ``auto`` chooses one of them from public numbers alone.
    hinge_width : float, default=0.5
        Half the width of the parabola that smooths the corner of the hinge at a margin of 1 (Chaudhuri, Monteleoni and
        Sarwate, "Differentially Private Empirical Risk Minimization"). A wider parabola is smoother, which allows
        longer steps.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
    intercept_ : array of shape (1,)
    classes_, guarantee_, method_, method_reason_, n_iter_
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from privet import PrivateLinearSVC, PublicScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = PublicScaler(lower=0, upper=[40, 50, 250, 2500] + [1] * 26).fit_transform(X)
    >>> PrivateLinearSVC(epsilon=2.0, feature_norm=3.0, classes=[0, 1]).fit(X, y).guarantee_.epsilon <= 2.0
    True
    """

    _loss = SmoothedHinge

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        method: str = "auto",
        alpha: float = 1e-4,
        feature_norm: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.2,
        smoothing: float = 0.0,
        clip_norm: float | None = None,
        hinge_width: float = 0.5,
        max_iter: int | None = None,
        classes: Sequence[Any] | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.alpha = alpha
        self.feature_norm = feature_norm
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.smoothing = smoothing
        self.clip_norm = clip_norm
        self.hinge_width = hinge_width
        self.max_iter = max_iter
        self.classes = classes
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        super()._objective(n_classes)
        return SmoothedHinge(self.hinge_width)
