"""Private logistic regression, binary and multinomial."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from privet.linear.base import PrivateLinearModel
from privet.objectives import BoundedRows, GeneralisedLinear, Logistic, Multinomial
from privet.privacy import Assumption, assumed, enforced


class PrivateLogisticRegression(ClassifierMixin, PrivateLinearModel):
    """Logistic regression with differential privacy for each record, under replace-one adjacency.

    Minimises the mean log-loss plus (alpha/2) ||w||^2 over rows scaled into a public ball.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget, above zero.
    delta : float or None, default=None
        None means 1/n^1.1; 0 asks for pure epsilon.
    method : {"auto", "output", "gradient"}, default="auto"
        ``output``: gradient descent, then noise once. ``gradient``: noise in every step. ``auto`` chooses from public
        numbers alone; ``method_`` and ``method_reason_`` say what and why.
    alpha : float, default=1e-4
        Strength of the l2 penalty on the mean loss, on all weights, the intercept's included.
    feature_norm : float, default=1.0
        Public bound on the l2 norm of a row. Longer rows are scaled down. Choose it without looking at the data.
    fit_intercept : bool, default=True
    intercept_scaling : float, default=0.5
        The intercept is the weight of a constant column of value ``feature_norm * intercept_scaling``. A larger value
        lets it move faster and costs noise on all weights.
    smoothing : float, default=0.0
        Strength sigma of Laplacian smoothing of each noisy gradient (method ``gradient`` only): post-processing, no
        privacy cost. It helps where neighbouring columns have similar weights.
    max_iter : int or None, default=None
        Number of steps; None chooses from n, the number of weights and the budget.
    classes : sequence or None, default=None
        The class labels, known in advance. None reads them from ``y``; the guarantee then assumes that the set of
        labels is public.
    random_state : int or None, default=None
        None draws from a cryptographically secure generator. An integer makes the fit repeatable, and the guarantee
        holds only while it is secret.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
    intercept_ : array of shape (1,) or (n_classes,)
    classes_ : array
    guarantee_ : Guarantee
        What was promised, computed from the plan that ran. ``print(model.guarantee_)`` reads it out.
    method_, method_reason_ : str
    n_iter_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from privet import PrivateLogisticRegression
    >>> X, y = load_digits(return_X_y=True)  # pixels run from 0 to 16: a public fact
    >>> model = PrivateLogisticRegression(epsilon=2.0, feature_norm=3.0).fit(X / 16 - 0.3, y)
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
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        smoothing: float = 0.0,
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
        self.max_iter = max_iter
        self.classes = classes
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "PrivateLogisticRegression":
        """Fit to rows ``X`` (array, DataFrame or sparse) and labels ``y``; spends the budget once."""
        self._forget()
        try:
            self._check_settings()
            X, y = self._validated(X, y, reset=True)
            self.classes_, codes, labels_are = self._encode(y)
            objective, targets = _objective(len(self.classes_), codes)
            release = self._train(X, targets, objective, public=(labels_are,))
            self.coef_, self.intercept_ = self._split(release.weights.astype(X.dtype))
        except BaseException:
            self._forget()
            raise
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return scores: one for the second class in the binary case, else one a class."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        # Rows are scaled into the ball as they were in training; here that is no more than consistency.
        scores = BoundedRows(X, self.feature_norm).scores(self.coef_.T) + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores, dtype=X.dtype)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, columns in the order of ``classes_``."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithm of :meth:`predict_proba`, finite however sure the model is."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return np.column_stack([log_expit(-scores), log_expit(scores)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest label of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _encode(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], Assumption]:
        """Return the classes, each label's place among them, and what the guarantee says of them."""
        found, codes = _distinct("y", y)
        check_classification_targets(y)
        if self.classes is None:
            if len(found) < 2:
                raise ValueError(f"y has one class only ({found[0]!r}): a classifier needs at least two")
            return found, codes, assumed("the set of class labels, read from y, is public")
        declared, _ = _distinct("classes", np.asarray(self.classes))
        if len(declared) < 2:
            raise ValueError("classes must name at least two labels")
        unknown = np.setdiff1d(found, declared)
        if len(unknown):
            raise ValueError(f"y has the label {unknown[0]!r}, which is not among the declared classes")
        return declared, np.searchsorted(declared, found)[codes], enforced("the class labels were declared beforehand")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # privacy noise, unless random_state is set
        tags.classifier_tags.poor_score = True  # scikit-learn's checks fit a few dozen rows; noise drowns them
        return tags


def _distinct(name: str, labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sorted distinct labels and each label's place among them."""
    if labels.ndim != 1:
        raise ValueError(f"{name} must be a plain list of labels, not an array of {labels.ndim} dimensions")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} has a label that is not a number (NaN)")
    try:
        found, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"{name} mixes kinds of labels that cannot be ordered ({error})") from error
    return found, codes


def _objective(n_classes: int, codes: NDArray[Any]) -> tuple[GeneralisedLinear, NDArray[Any]]:
    """Return the loss for that many classes, and the targets in the form it takes."""
    if n_classes == 2:
        return Logistic(), codes.astype(np.float64)
    return Multinomial(n_classes), codes
