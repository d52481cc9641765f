"""Private sparse models, which use few of many features: logistic regression and least squares."""

from collections.abc import Sequence
from typing import Any

from privet.linear.classification import ProbabilisticClassifier
from privet.linear.regression import PrivateRegressor
from privet.linear.sparse_model import SparseModel
from privet.objectives import Squared, TamedLogistic
from privet.privacy.ledger.spending import LedgerLike


class PrivateSparseLogisticRegression(SparseModel, ProbabilisticClassifier):
    """Logistic regression that keeps few of many features, with differential privacy for each record (replace-one).

    The noise grows with the number of features that are kept and with the logarithm of the number of all features, so
    tables with tens of thousands of columns, such as text, are feasible. Two classes only. Sparse matrices stay sparse.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget, above zero.
    delta : float or None, default=None
        None means min(1e-6, 0.01/n). Pure epsilon (delta = 0) is not supported.
    n_nonzero : int or None, default=None
        Number of features that keep a weight. None chooses n mu q / (16 log(2 d)), where mu is the Gaussian privacy
        parameter of the budget, d the number of features, and q = min(1, sqrt(3/d) feature_norm / entry_bound): about
        as many features as can be distinguished from the others despite the noise.
    method : str, default="auto"
        {methods}
        ``auto`` takes ``peeling``. ``knowledge_transfer`` needs ``X_public`` in ``fit``.
    feature_norm : float, default=1.0
        Public bound on the l2 norm of a row. Longer rows are scaled down. Choose it without looking at the data.
    entry_bound : float or None, default=None
        Public bound on the absolute value of an entry. Larger entries are clipped. The noise of ``peeling`` grows with
        it, so set it if entries are much smaller than the norm of a row. None means ``feature_norm``.
    fit_intercept : bool, default=True
        The intercept does not count towards ``n_nonzero``.
    intercept_scaling : float, default=1.0
        The intercept is the weight of a constant column of value ``intercept_scaling * feature_norm /
        sqrt(n_features)``, or ``entry_bound`` if that is smaller.
    alpha : float, default=1e-4
        Strength of the l2 penalty on the mean loss. ``two_stage`` and ``knowledge_transfer`` raise it to a public value
        that the budget requires.
    teacher : str, default="auto"
        For ``knowledge_transfer``. ``selected``: features are chosen privately, and noise is added to the scores of a
        teacher of these. ``convex``: noise is added to the scores of a teacher of all features. ``disjoint``: noise is
        added to the mean score of many teachers, each of which learns from its own records. ``hard_threshold``: the
        teacher is trained by that method. ``auto`` takes ``convex`` where that needs only a small penalty, which
        follows from public numbers and public rows, and ``selected`` otherwise.
    tpr : pair of floats or None, default=None
        As for :class:`~privet.linear.PrivateLogisticRegression`. ``two_stage`` does not support it.
    max_iter : int or None, default=None
        Number of rounds (``peeling``) or of steps. None chooses it from n, d, n_nonzero and the budget.
    classes, random_state, ledger, verbose
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
        Sparse after :meth:`sparsify`.
    intercept_ : array of shape (1,)
    n_nonzero_ : int
        The number of features that may keep a weight.
    classes_, guarantee_, method_, method_reason_, n_iter_
        As for :class:`~privet.linear.PrivateLogisticRegression`.

    Notes
    -----
    The loss is :class:`~privet.objectives.TamedLogistic`. Its minimiser is that of the logistic loss (the log-odds),
    and one record changes its gradient half as much.

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

    _loss = TamedLogistic

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
        teacher: str = "auto",
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        classes: Sequence[Any] | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
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
        self.teacher = teacher
        self.tpr = tpr
        self.max_iter = max_iter
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose


class PrivateSparseRegression(SparseModel, PrivateRegressor):
    """Least squares that keeps few of many features, with differential privacy for each record (replace-one).

    Parameters
    ----------
    epsilon, delta, n_nonzero, method, feature_norm, entry_bound, fit_intercept, intercept_scaling, alpha, teacher, \
tpr, max_iter, random_state, ledger, verbose
        As for :class:`PrivateSparseLogisticRegression`.
    target_bound : float, default=1.0
        Public bound on the absolute value of the target, as for :class:`~privet.linear.PrivateRidge`. Residuals are
        clipped to 0.6 of it in the first round, and to less in later rounds, in which they are smaller.

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

    _loss = Squared

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
        teacher: str = "auto",
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
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
        self.teacher = teacher
        self.tpr = tpr
        self.max_iter = max_iter
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose
