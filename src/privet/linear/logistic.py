"""Private logistic regression, binary and multinomial."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from privet.linear.classification import PrivateClassifier
from privet.objectives import GeneralisedLinear, Logistic, Multinomial


class ProbabilisticClassifier(PrivateClassifier):
    """Base of the classifiers whose scores are log-odds, or logarithms of probabilities up to a constant."""

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, one column per class in the order of ``classes_``."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithm of :meth:`predict_proba`, which is finite even for probabilities close to 0."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return np.column_stack([log_expit(-scores), log_expit(scores)])


class PrivateLogisticRegression(ProbabilisticClassifier):
    """Logistic regression with differential privacy for each record, under replace-one adjacency.

    Minimises the mean log-loss plus (alpha/2) ||w||^2 over rows scaled into a public ball.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget, above zero.
    delta : float or None, default=None
        None means 1/n^1.1; 0 asks for pure epsilon.
    method : str, default="auto"
        {methods}
        ``auto`` chooses one of them from public numbers alone; ``method_`` and ``method_reason_`` report the choice and
        the reason. ``objective`` supports two classes only. With ``iteration``, records at the beginning of the table
        are protected best (see ``guarantee_.per_record``), and ``fit`` accepts public records.
    alpha : float, default=1e-4
        Strength of the l2 penalty on the mean loss. It applies to all weights, including that of the intercept.
    feature_norm : float, default=1.0
        Public bound on the l2 norm of a row. Longer rows are scaled down. Choose it without looking at the data.
    fit_intercept : bool, default=True
    intercept_scaling : float, default=0.2
        The intercept is the weight of a constant column of value ``feature_norm * intercept_scaling``. A larger value
        lets the intercept change faster, at the cost of more noise on all weights.
    smoothing : float, default=0.0
        Strength sigma of Laplacian smoothing of each noisy gradient (method ``gradient`` only). Smoothing is
        post-processing and costs no privacy. It helps if neighbouring columns have similar weights, as the pixels of
        images do: try 2.
    clip_norm : float or None, default=None
        Bound to which the gradient of each record is clipped (methods ``gradient``, ``iteration`` and ``output``). None
        chooses ``0.4 * feature_norm``, or no clipping if data and budget are so large that noise hardly matters.
    max_iter : int or None, default=None
        Number of steps (methods ``gradient`` and ``output``) or of passes (``iteration``). None chooses it from n, the
        number of weights and the budget.
    classes : sequence or None, default=None
        The class labels, known in advance. None reads them from ``y``; the guarantee then assumes that the set of
        labels is public.
    random_state : int or None, default=None
        None draws from a cryptographically secure generator. An integer makes the fit repeatable, and the guarantee
        then holds only while the integer is secret.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
    intercept_ : array of shape (1,) or (n_classes,)
    classes_ : array
    guarantee_ : Guarantee
        The privacy guarantee of the fitted model, computed from the plan that ran. ``print(model.guarantee_)`` shows
        it.
    method_, method_reason_ : str
    n_iter_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from privet import PrivateLogisticRegression
    >>> X, y = load_digits(return_X_y=True)  # pixels are known to range from 0 to 16
    >>> model = PrivateLogisticRegression(epsilon=2.0, feature_norm=3.0).fit(X / 16 - 0.3, y)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    _loss = Logistic
    _is_binary = False

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
        self.max_iter = max_iter
        self.classes = classes
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        return Logistic() if n_classes == 2 else Multinomial(n_classes)
