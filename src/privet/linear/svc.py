"""The private linear support vector machine."""

from collections.abc import Mapping, Sequence
from typing import Any

from privet.checks import choice
from privet.linear.classification import PrivateClassifier
from privet.objectives import GaussianHinge, GeneralisedLinear, SmoothedHinge
from privet.privacy.ledger.spending import LedgerLike

HINGES: dict[str, type[SmoothedHinge | GaussianHinge]] = {"parabola": SmoothedHinge, "gaussian": GaussianHinge}
"""The losses of :class:`PrivateLinearSVC`."""


class PrivateLinearSVC(PrivateClassifier):
    """Linear support vector machine for two classes, with differential privacy for each record (replace-one).

    Minimises the mean smoothed hinge loss plus (alpha/2) ||w||^2 over rows scaled into a public ball.

    Parameters
    ----------
    epsilon, delta, alpha, feature_norm, fit_intercept, intercept_scaling, smoothing, clip_norm, secret, \
batch_size, noise_multiplier, tpr, max_iter, classes, class_weight, random_state, ledger, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.
    method : str, default="auto"
        {methods}
        ``auto`` chooses one of them from public numbers alone.
    loss : {"parabola", "gaussian"}, default="parabola"
        How the corner of the hinge at a margin of 1 is smoothed: by a parabola (Chaudhuri, Monteleoni and Sarwate,
        "Differentially Private Empirical Risk Minimization"), or by convolving the hinge with a Gaussian ("Privacy
        Amplification by Iteration", section 5.5).
    hinge_width : float, default=0.5
        Half the width of the parabola, or the standard deviation of the Gaussian. A wider one is smoother, which allows
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
        secret: str | None = None,
        batch_size: int | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
        loss: str = "parabola",
        hinge_width: float = 0.5,
        max_iter: int | None = None,
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
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
        self.secret = secret
        self.batch_size = batch_size
        self.noise_multiplier = noise_multiplier
        self.tpr = tpr
        self.loss = loss
        self.hinge_width = hinge_width
        self.max_iter = max_iter
        self.classes = classes
        self.class_weight = class_weight
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _check_settings(self) -> None:
        choice("loss", self.loss, HINGES)
        super()._check_settings()

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        super()._objective(n_classes)
        return HINGES[self.loss](self.hinge_width)
