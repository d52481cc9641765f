"""Private linear classifiers: what they share, and logistic regression, binary and multinomial."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from privet.checks import positive
from privet.linear.balanced import train_balanced
from privet.linear.base import PrivateLinearModel, Targets
from privet.linear.methods import Method, Task
from privet.linear.several_targets import beside_each_other, per_target
from privet.objectives import BalancedClasses, ClassWeighted, GeneralisedLinear, Logistic, Multinomial
from privet.privacy import Assumption, assumed, enforced
from privet.privacy.ledger.spending import LedgerLike
from privet.solvers import Release


class EncodedLabels:
    """Mixin of classifiers: labels as numbers, with the classes declared or read from ``y``."""

    classes: Sequence[Any] | None
    class_weight: Mapping[Any, float] | str | None = None
    classes_: NDArray[Any]

    @abstractmethod
    def _objective(self, n_classes: int) -> GeneralisedLinear:
        """Return the loss for a number of classes."""

    @abstractmethod
    def decision_function(self, X: Any) -> Any:
        """Return one score per row for two classes, else one column per class."""

    def _targets(self, y: NDArray[Any]) -> Targets:
        found, codes = _distinct("y", y)
        check_classification_targets(y)
        if self.classes is None:
            if len(found) < 2:
                raise ValueError(f"y has only one class ({found.tolist()[0]!r}), but a classifier needs at least two.")
            condition = assumed("the set of class labels, read from y, is public")
            self.classes_ = found
        else:
            self.classes_, _ = _distinct("classes", np.asarray(self.classes))
            if len(self.classes_) < 2:
                raise ValueError("classes must name at least two labels")
            codes = self._places("y", found, "is not among the declared classes. Declare all labels in classes")[codes]
            condition = enforced("the class labels were declared beforehand")
        # Losses of two classes take numbers, and losses of several classes take indices.
        values = np.asarray(codes, dtype=np.float64 if len(self.classes_) == 2 else np.intp)
        return Targets(values, *self._weighted(self._objective(len(self.classes_)), condition))

    def _weighted(
        self, objective: GeneralisedLinear, *conditions: Assumption
    ) -> tuple[GeneralisedLinear, tuple[Assumption, ...]]:
        """Return the loss with the weights of the classes, and what the guarantee says about them."""
        if self.class_weight is None:
            return objective, conditions
        if isinstance(self.class_weight, str):  # "balanced": all weights are 1 until the noisy counts are drawn.
            return BalancedClasses(objective, [1.0] * len(self.classes_)), conditions
        weights = {key: positive("a class weight", value) for key, value in self.class_weight.items()}
        unknown = [key for key in weights if key not in self.classes_.tolist()]
        if unknown:
            raise ValueError(f"class_weight has the label {unknown[0]!r}, which is not among the classes.")
        of_classes = [weights.get(label, 1.0) for label in self.classes_.tolist()]
        return ClassWeighted(objective, of_classes), (*conditions, assumed("the weights of the classes are public"))

    def _public_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        found, codes = _distinct("y_public", y)
        codes = self._places("y_public", found, "does not occur in y. Declare all labels in classes")[codes]
        return np.asarray(codes, dtype=np.float64 if len(self.classes_) == 2 else np.intp)

    def _places(self, name: str, labels: NDArray[Any], reason: str) -> NDArray[Any]:
        """Return the position of each label among the classes."""
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"{name} has the label {unknown.tolist()[0]!r}, which {reason}.")
        return np.asarray(np.searchsorted(self.classes_, labels))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])


class PrivateClassifier(EncodedLabels, ClassifierMixin, PrivateLinearModel):
    """Base of the classifiers. Subclasses declare the parameters and choose the loss."""

    _is_binary: ClassVar[bool] = True  # whether two classes are all that it supports

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.class_weight is None or isinstance(self.class_weight, Mapping):
            return
        if not (isinstance(self.class_weight, str) and self.class_weight == "balanced"):
            raise ValueError(
                f"class_weight={self.class_weight!r} is not supported. Give 'balanced', whose noisy counts the "
                "budget pays for, or a dictionary of public weights, such as {0: 1.0, 1: 5.0}."
            )
        for name in ("noise_multiplier", "tpr"):
            if self._is_set(name):
                raise ValueError(
                    f"class_weight='balanced' shares a budget between noisy counts and the training, which {name}="
                    f"{getattr(self, name)!r} does not determine. Give epsilon in its place, or a dictionary of public "
                    "weights."
                )

    def _run_method(self, method: Method, task: Task) -> Release:
        if not isinstance(self.class_weight, str):
            return super()._run_method(method, task)
        release, self.class_weight_ = train_balanced(method, task)
        return release

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        if n_classes > 2:
            raise ValueError(
                f"Only binary classification is supported. y has {n_classes} classes. Use PrivateLogisticRegression, "
                "which supports several classes."
            )
        return self._loss()

    @per_target(list)
    def decision_function(self, X: Any) -> Any:
        """Return the scores of rows: that of the second class for two classes, else one column per class.

        With several targets, return a list of such arrays, one per target.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @per_target(beside_each_other)
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of each row, with one column per target if there are several."""
        return super().predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label, or all of whose labels, are predicted correctly."""
        if not self.models_by_target():
            return float(super().score(X, y, sample_weight))
        return float(np.average((np.asarray(y) == self.predict(X)).all(axis=1), weights=sample_weight))

    @per_target(list)
    def _check_learned(self) -> None:
        super()._check_learned()
        n_classes = max(len(self._coefficients()), 2)  # two classes share one row of weights
        if not isinstance(self.classes_, np.ndarray) or self.classes_.shape != (n_classes,):
            raise ValueError(f"it has weights for {n_classes} classes, but not as many labels")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self._is_binary
        tags.classifier_tags.poor_score = True  # on the few dozen rows of scikit-learn's checks, noise dominates
        return tags


class ProbabilisticClassifier(PrivateClassifier):
    """Base of the classifiers whose scores are log-odds, or logarithms of probabilities up to a constant."""

    @per_target(list)
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities, one column per class in the order of ``classes_``.

        With several targets, return a list of such arrays, one per target.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores), expit(scores)])

    @per_target(list)
    def predict_log_proba(self, X: Any) -> Any:
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
    epsilon : float or None, default=1.0
        Privacy budget, above zero. It has no effect if ``noise_multiplier`` or ``tpr`` is given, and may
        then be None.
    delta : float or None, default=None
        None means min(1e-6, 0.01/n); 0 asks for pure epsilon.
    method : str, default="auto"
        {methods}
        ``auto`` takes the one whose result is expected to be the least above the minimum of the objective, by public
        numbers alone; ``method_`` and ``method_reason_`` report the choice and these expectations. ``objective``
        supports two classes only. With ``iteration``, records are visited in a secret random order, those that are
        visited first are protected best (see ``guarantee_.per_record``), and ``fit`` accepts public records.
    alpha : float, default=1e-4
        Strength of the l2 penalty on the mean loss. It applies to all weights, including that of the intercept.
    feature_norm : float, default=1.0
        Public bound on the l2 norm of a row. Longer rows are scaled down. Choose it without looking at the data.
    fit_intercept : bool, default=True
    intercept_scaling : float, default=0.2
        The intercept is the weight of a constant column of value ``feature_norm * intercept_scaling``. A larger value
        lets the intercept change faster, at the cost of more noise on all weights.
    smoothing : float, default=0.0
        Strength sigma of Laplacian smoothing of each noisy gradient ({smoothing}). Smoothing is post-processing and
        costs no privacy. It helps if neighbouring columns have similar weights, as the pixels of images do: try 2.
    clip_norm : float or None, default=None
        Bound to which the gradient of each record is clipped ({clip_norm}).
        None chooses a share of ``feature_norm`` by the method, the budget, n and ``alpha``: with ``gradient`` from 0.2,
        if noise is strong, up to no clipping, if noise hardly matters.
    secret : {"order", "stop", "skip"} or None, default=None
        What ``iteration`` keeps secret besides all iterates but the last, and what its accounting makes use of: the
        order of the records; after how many of the steps it stops; or how many it skips. See docs/last_iterate.md for
        when each of them is worth it.
    batch_size : int or None, default=None
        Number of records in each random batch ({batch_size}). None chooses it from public numbers.
    noise_multiplier : float or None, default=None
        Noise in place of ``epsilon`` ({noise_multiplier}): the standard deviation of the noise on a sum of gradients,
        divided by the bound on one record's part in it, which is ``clip_norm``. ``guarantee_`` states the epsilon that
        results. The noisy mean of the rows gets the share of the noise that it has for a budget. 0 adds no noise, for
        comparisons, and ``guarantee_`` then says that there is no privacy.
    tpr : pair of floats or None, default=None
        What attacks may achieve, in place of ``epsilon`` ({tpr}): a false-positive rate, and the largest true-positive
        rate that any attack may have at it. With ``(0.01, 0.05)``, an attack that wrongly claims to find 1 % of the
        records that were not used can find at most 5 % of those that were. The noise is the least that ensures it, and
        ``guarantee_`` states the epsilon that results at ``delta``.
    max_iter : int or None, default=None
        Number of steps (``adaptive``: the expected number; ``random_round``: the largest) or of passes (``iteration``;
        with a secret stop or skip there is one pass, and this is its number of batches). None chooses it from n, the
        number of weights and the budget.
    classes : sequence or None, default=None
        The class labels, known in advance; for a two-dimensional ``y``, those of all columns, or one sequence per
        column. None reads them from ``y``; the guarantee then assumes that the set of labels is public.
    class_weight : dict, "balanced" or None, default=None
        Public, constant weights of classes, by label. The loss of a record is multiplied by the weight of its class,
        before any clipping. Where nothing is clipped, the noise grows by the largest weight. Labels that are not named
        have weight 1. Weights that were computed from the private labels void the guarantee.
        ``"balanced"`` computes weights from noisy numbers of records per class, for which it spends 4 % of the budget.
        The rarest class has weight 1, and a class that is r times as frequent has weight 1/r, at least 0.01. These are
        scikit-learn's weights up to a common factor, relative to which ``alpha`` counts.
    random_state : int or None, default=None
        None draws from a cryptographically secure generator. An integer makes the fit repeatable, and the guarantee
        then holds only while the integer is secret.
    ledger : path, Ledger or None, default=None
        Where each fit is booked before its noise is drawn. It is not saved with the model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
    intercept_ : array of shape (1,) or (n_classes,)
    classes_ : array
        With several targets, ``coef_``, ``intercept_`` and ``classes_`` are lists with one array per target,
        ``n_outputs_`` is their number, and ``target_names_`` has their names if ``y`` was a DataFrame.
    class_weight_ : array of shape (n_classes,)
        With ``class_weight="balanced"``, the weights that were used. ``guarantee_`` covers them.
    guarantee_ : Guarantee
        The privacy guarantee of the fitted model, computed from the plan that ran. ``print(model.guarantee_)`` shows
        it.
    method_, method_reason_ : str
    n_iter_ : int
    n_records_ : int
        Number of records that were trained on. It is missing if the guarantee treats it as private.
    noise_std_ : float or None
        Standard deviation of the noise in each coefficient, where the method makes it known, as ``output`` does.

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
        secret: str | None = None,
        batch_size: int | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
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
        self.max_iter = max_iter
        self.classes = classes
        self.class_weight = class_weight
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        return Logistic() if n_classes == 2 else Multinomial(n_classes)


def _distinct(name: str, labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sorted distinct labels, and the position of each label among them."""
    if labels.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got an array of {labels.ndim} dimensions")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} has a label that is not a number (NaN)")
    try:
        found, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"{name} mixes kinds of labels that cannot be ordered ({error})") from error
    return found, codes
