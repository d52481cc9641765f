"""Private models of few features, of many: sparse logistic regression and sparse least squares."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from privet.linear.classification import PrivateClassifier
from privet.linear.regression import PrivateRegressor
from privet.linear.sparse_model import SparseModel
from privet.objectives import GeneralisedLinear, Squared, TamedLogistic


class PrivateSparseLogisticRegression(SparseModel, PrivateClassifier):
    """Logistic regression that keeps few features of many, with differential privacy for each record (replace-one).

    Noise grows with the number of features that are kept and with the logarithm of how many there are, so that tens of
    thousands of columns, as of text, are in reach. Two classes. Sparse matrices stay sparse.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget, above zero.
    delta : float or None, default=None
        None means 1/n^1.1. Pure epsilon, delta = 0, is not offered.
    n_nonzero : int or None, default=None
        How many features keep a weight. None chooses n mu q / (16 log(2 d)), mu being the Gaussian privacy parameter of
        the budget, d the number of features and q = min(1, sqrt(3/d) feature_norm / entry_bound): about as many as
        noise lets be told from the others.
    method : {"auto", "peeling", "hard_threshold", "frank_wolfe", "two_stage", "knowledge_transfer"}, default="auto"
        ``peeling``: features are chosen privately, then the gradient of those alone is measured, in a few rounds.
        ``hard_threshold``: DP-IGHT, noise on the gradients of all features, of which the largest weights are kept.
        ``frank_wolfe``: one feature a step is chosen privately, none is measured. ``two_stage``: blocks of records vote
        on the features, then noise in the objective. ``knowledge_transfer``: a teacher's scores of public rows get
        noise, and a sparse student learns from them; it needs ``X_public``. ``auto`` takes ``peeling``.
    feature_norm : float, default=1.0
        Public bound on the l2 norm of a row. Longer rows are scaled down. Choose it without looking at the data.
    entry_bound : float or None, default=None
        Public bound on the absolute value of an entry. Larger ones are clipped. Noise of ``peeling`` grows with it: set
        it where entries are much smaller than whole rows. None takes ``feature_norm``.
    fit_intercept : bool, default=True
        The intercept is none of the ``n_nonzero``.
    intercept_scaling : float, default=1.0
        The intercept is the weight of a constant column of this times feature_norm / sqrt(n_features), the size of an
        entry of a row that is spread evenly, but at most ``entry_bound``.
    alpha : float, default=1e-4
        Strength of the l2 penalty on the mean loss; ``two_stage`` and ``knowledge_transfer`` raise it to a public value
        that the budget calls for.
    max_iter : int or None, default=None
        Number of rounds (``peeling``) or of steps; None chooses from n, d, n_nonzero and budget.
    classes, random_state, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
        Sparse after :meth:`sparsify`.
    intercept_ : array of shape (1,)
    n_nonzero_ : int
        How many features were kept.
    classes_, guarantee_, method_, method_reason_, n_iter_
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Notes
    -----
    The loss is :class:`~privet.objectives.TamedLogistic`: its minimiser is that of the logistic loss (the log-odds),
    and one record moves its gradient half as far.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from privet import PrivateSparseLogisticRegression
    >>> X = sparse.random_array((5000, 2000), density=0.02, rng=0, format="csr")  # entries in [0, 1]
    >>> y = np.asarray(X[:, [0]].sum(axis=1) > 0).ravel()
    >>> model = PrivateSparseLogisticRegression(2.0, n_nonzero=5, feature_norm=5.0, entry_bound=1.0).fit(X, y)
    >>> model.get_support().sum()
    np.int64(5)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        n_nonzero: int | None = None,
        method: str = "auto",
        feature_norm: float = 1.0,
        entry_bound: float | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        alpha: float = 1e-4,
        max_iter: int | None = None,
        classes: Sequence[Any] | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero = n_nonzero
        self.method = method
        self.feature_norm = feature_norm
        self.entry_bound = entry_bound
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.alpha = alpha
        self.max_iter = max_iter
        self.classes = classes
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        if n_classes > 2:
            raise ValueError(
                "Only binary classification is supported. "
                f"y has {n_classes} classes: use PrivateLogisticRegression, whose loss has a form for several"
            )
        return TamedLogistic()

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, columns in the order of ``classes_``."""
        scores = self.decision_function(X)
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithm of :meth:`predict_proba`, finite however sure the model is."""
        scores = self.decision_function(X)
        return np.column_stack([log_expit(-scores), log_expit(scores)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class PrivateSparseRegression(SparseModel, PrivateRegressor):
    """Least squares that keeps few features of many, with differential privacy for each record (replace-one).

    Parameters
    ----------
    epsilon, delta, n_nonzero, method, feature_norm, entry_bound, fit_intercept, alpha, max_iter, random_state, verbose
        As for :class:`PrivateSparseLogisticRegression`.
    target_bound : float, default=1.0
        Public bound on the size of the target. Larger ones are clipped to it, and predictions too. Noise grows with
        it: centre the target at a public value first. Residuals are clipped to 0.6 of it in the first round, and to
        less in later ones, as they fall.
    intercept_scaling : float, default=1.0
        As for :class:`PrivateSparseLogisticRegression`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Sparse, of shape (1, n_features), after :meth:`sparsify`.
    intercept_ : array of shape (1,)
    n_nonzero_, guarantee_, method_, method_reason_, n_iter_
        As for :class:`PrivateSparseLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from privet import PrivateSparseRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 1000))
    >>> y = X[:, 3] - X[:, 7]
    >>> model = PrivateSparseRegression(2.0, n_nonzero=2, feature_norm=20.0, entry_bound=1.0, target_bound=2.0)
    >>> model.fit(X, y).get_support(indices=True)
    array([3, 7])
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        n_nonzero: int | None = None,
        method: str = "auto",
        feature_norm: float = 1.0,
        entry_bound: float | None = None,
        target_bound: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        alpha: float = 1e-4,
        max_iter: int | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero = n_nonzero
        self.method = method
        self.feature_norm = feature_norm
        self.entry_bound = entry_bound
        self.target_bound = target_bound
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.alpha = alpha
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self) -> GeneralisedLinear:
        return Squared()
