"""The private additive classifier."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from privet.linear.additive import PrivateAdditiveModel
from privet.linear.classification import EncodedLabels
from privet.objectives import GeneralisedLinear, Logistic, Multinomial
from privet.privacy.ledger.spending import LedgerLike

_TIE = 1e-9


class PrivateAdditiveClassifier(EncodedLabels, ClassifierMixin, PrivateAdditiveModel):
    """Classifier whose score is a sum of curves, with differential privacy for each record (replace-one adjacency).

    The score is the sum of one curve per column of numbers and one effect per level of a category. All curves are
    trained together by noisy gradient descent. Their bins are laid out by noisy counts, which are paid from the same
    budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, above zero. It has no effect if ``noise_multiplier`` or ``tpr`` is given.
    delta : float or None, default=None
        None means min(1e-6, 0.01/n).
    bounds : pair, sequence of pairs or mapping, default=(-1.0, 1.0)
        Public bounds of the columns of numbers: one pair for all, one per column, or a mapping from names or positions
        of columns to pairs. Numbers are clipped to them. Choose them without looking at the data.
    levels : mapping or None, default=None
        The levels of the columns that are categories, by their names or positions.
    pairs : list of pairs or None, default=None
        Columns with a joint term, by their names or positions.
    monotone : mapping or None, default=None
        Columns of numbers whose curves must only rise (+1) or only fall (-1). This is post-processing. It needs two
        classes, and the columns cannot be in ``pairs``.
    clip_norm : float or None, default=None
        Bound to which the gradient of each record is clipped, where the rows of features have a typical norm of 1.
        None chooses it from n and the budget.
    noise_multiplier : float or None, default=None
        Noise in place of ``epsilon``: the standard deviation of the noise on a sum of gradients, divided by
        ``clip_norm``. 0 adds no noise, for comparisons, and ``guarantee_`` then says that there is no privacy.
    tpr : pair of floats or None, default=None
        What attacks may achieve, in place of ``epsilon``: a false-positive rate, and the largest true-positive rate.
    max_iter : int or None, default=None
        Number of steps. None takes 120.
    classes : sequence or None, default=None
        The class labels, known in advance. None reads them from ``y``; the guarantee then assumes that they are public.
    random_state : int or None, default=None
        None draws from a cryptographically secure generator. An integer makes the fit repeatable, and the guarantee
        then holds only while the integer is secret.
    ledger : path, Ledger or None, default=None
        Where each fit is booked before its noise is drawn. It is not saved with the model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    shapes_ : dict of Shape
        The curve of each column with the noise in it, and the joint terms of pairs.
    intercept_ : array
    classes_ : array
    guarantee_ : Guarantee
        The privacy guarantee of the fitted model, computed from the plan that ran.
    n_iter_, n_records_ : int
    clip_norm_ : float
        The clip that was used.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from privet import PrivateAdditiveClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrivateAdditiveClassifier(epsilon=2.0, bounds=(0, 50)).fit(X[:, :1], y)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = (-1.0, 1.0),
        levels: Any = None,
        pairs: Any = None,
        monotone: Any = None,
        clip_norm: float | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        classes: Sequence[Any] | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.levels = levels
        self.pairs = pairs
        self.monotone = monotone
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.tpr = tpr
        self.max_iter = max_iter
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        return Logistic() if n_classes == 2 else Multinomial(n_classes)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the sum of all terms: that of the second class for two classes, else one column per class."""
        return self._scores(X)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, one column per class in the order of ``classes_``.

        Clipped gradients move the scores away from the log-odds: they are balanced where the clipped residuals of the
        classes are, weighted by the true probabilities. This is solved for the true probabilities here, as if every
        row had the typical norm 1 and the descent had converged: the correction is approximate. It uses the clip and
        the scores alone.
        """
        scores = self._scores(X)
        likely = np.column_stack([expit(-scores), expit(scores)]) if scores.ndim == 1 else softmax(scores, axis=1)
        return unclipped(likely, self.clip_norm_, is_binary=scores.ndim == 1)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithm of :meth:`predict_proba`."""
        return np.asarray(np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny)))

    def _check_learned(self) -> None:
        super()._check_learned()
        n_classes = max(len(self.intercept_), 2)
        if not isinstance(self.classes_, np.ndarray) or self.classes_.shape != (n_classes,):
            raise ValueError(f"it has curves for {n_classes} classes, but not as many labels")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on the few dozen rows of scikit-learn's checks, noise dominates
        return tags


def unclipped(likely: NDArray[Any], clip: float, *, is_binary: bool) -> NDArray[Any]:
    """Return the probabilities at which clipped residuals are balanced at the modelled ones.

    The residual of class k is p - e_k, which a clip c shortens by the factor min(1, c / |p - e_k|). The mean over the
    true probabilities q vanishes if q_k is proportional to p_k divided by the factor of class k. This never changes the
    order of the classes, but it makes ties, which a tiny share of the modelled probabilities decides.
    """
    if is_binary:
        lengths = 1 - likely
    else:
        squares = (likely * likely).sum(axis=1, keepdims=True)
        lengths = np.sqrt(np.maximum(squares - 2 * likely + 1, 0))
    found = likely * np.maximum(1, lengths / clip)
    found /= found.sum(axis=1, keepdims=True)
    return np.asarray((1 - _TIE) * found + _TIE * likely)
