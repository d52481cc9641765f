"""The private additive regressor, for numbers and for counts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from privet.checks import choice
from privet.linear.additive import PrivateAdditiveModel
from privet.linear.base import Targets
from privet.linear.regression import finite_numbers
from privet.names import ADDITIVE_LOSSES
from privet.objectives import GeneralisedLinear, Huber, Poisson, Squared
from privet.privacy import enforced
from privet.privacy.ledger.spending import LedgerLike

_WORTH = 1.0
"""The deviation of a score that noise may cause, in standard deviations of the target, or in logarithms of counts."""
_THRESHOLD = 1.0
"""The error beyond which the Huber loss is linear, in standard deviations of the target."""


class PrivateAdditiveRegressor(RegressorMixin, PrivateAdditiveModel):
    """Regressor that predicts a sum of curves, with differential privacy for each record, under replace-one adjacency.

    Parameters
    ----------
    epsilon, delta, bounds, levels, pairs, monotone, clip_norm, noise_multiplier, tpr, max_iter, random_state, ledger, \
verbose
        As for :class:`~privet.linear.PrivateAdditiveClassifier`.
    loss : {"squared", "huber", "poisson"}, default="squared"
        ``squared`` predicts means, with clipped gradients. ``huber`` limits the influence of large errors further.
        ``poisson`` is for counts: the sum of the curves is the logarithm of the expected count.
    target_bounds : pair, default=(-1.0, 1.0)
        Public bounds of the target. Targets and predictions are clipped to them. For counts, the lower one must not be
        negative.

    Attributes
    ----------
    shapes_, intercept_, guarantee_, n_iter_, n_records_, clip_norm_
        As for :class:`~privet.linear.PrivateAdditiveClassifier`. Curves are in the units of the target, for counts in
        those of their logarithm.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from privet import PrivateAdditiveRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = PrivateAdditiveRegressor(epsilon=2.0, bounds=(-0.2, 0.2), target_bounds=(0, 350)).fit(X, y)
    >>> model.guarantee_.epsilon <= 2.0
    True
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        loss: str = "squared",
        bounds: Any = (-1.0, 1.0),
        levels: Any = None,
        target_bounds: tuple[float, float] = (-1.0, 1.0),
        pairs: Any = None,
        monotone: Any = None,
        clip_norm: float | None = None,
        noise_multiplier: float | None = None,
        tpr: tuple[float, float] | None = None,
        max_iter: int | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.bounds = bounds
        self.levels = levels
        self.target_bounds = target_bounds
        self.pairs = pairs
        self.monotone = monotone
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.tpr = tpr
        self.max_iter = max_iter
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _check_settings(self) -> None:
        super()._check_settings()
        choice("loss", self.loss, ADDITIVE_LOSSES)
        try:
            low, high = (float(end) for end in self.target_bounds)
        except (TypeError, ValueError) as error:
            raise ValueError(f"target_bounds must be a pair (low, high), got {self.target_bounds!r}.") from error
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"target_bounds must be finite, with low < high, got {self.target_bounds!r}.")
        if self.loss == "poisson" and low < 0:
            raise ValueError(f"Counts cannot be negative, but target_bounds starts at {low:g}. Use (0, {high:g}).")

    def _targets(self, y: NDArray[Any]) -> Targets:
        low, high = map(float, self.target_bounds)
        numbers = np.clip(finite_numbers(y), low, high)
        condition = enforced(f"each target is clipped to [{low:.12g}, {high:.12g}]")
        if self.loss == "poisson":
            return Targets(numbers, Poisson(high), (condition,), worth=_WORTH)
        objective: GeneralisedLinear = Squared() if self.loss == "squared" else Huber(_THRESHOLD)
        half = high / 2 - low / 2
        values = np.clip((numbers - (low / 2 + high / 2)) / half, -1, 1)
        return Targets(values, objective, (condition,), scale=half, worth=_WORTH)

    def _standardises(self) -> bool:
        return self.loss != "poisson"

    def _keep(self, release: Any, targets: Targets) -> None:
        super()._keep(release, targets)
        if self.loss != "poisson":
            low, high = map(float, self.target_bounds)
            self.intercept_ = self.intercept_ + (low / 2 + high / 2)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted number of each row, clipped to the bounds of the target."""
        scores = self._scores(X)
        low, high = map(float, self.target_bounds)
        if self.loss == "poisson":
            scores = np.exp(np.minimum(scores, np.log(high)))
        return np.asarray(np.clip(scores, low, high))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on the few dozen rows of scikit-learn's checks, noise dominates
        return tags
