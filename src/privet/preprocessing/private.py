# mypy: allow-subclassing-any
"""Scaling by centres and spreads that are estimated from the rows with differential privacy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from privet.checks import count, positive, probability, whole
from privet.plans import OutputPlan
from privet.preprocessing.base import BoundedScaler
from privet.preprocessing.bounds import Bounds, Floats
from privet.preprocessing.moments import MomentStability, noisy_moments
from privet.preprocessing.quantiles import QuantilePlan, quantile_pair
from privet.privacy import Budget, Guarantee, NoiseSource, enforced
from privet.privacy.budget import default_delta
from privet.privacy.ledger.spending import LedgerLike, book_spending

METHODS = ("moments", "quantiles")


class PrivateScaler(BoundedScaler):
    """Centre and scale columns by private estimates, within public bounds. Each fit spends the budget.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget for the centres and scales of all columns together, above zero.
    delta : float or None, default=None
        None means min(1e-6, 0.01/n); 0 asks for pure epsilon.
    lower, upper : float, sequence of floats, or mapping (a dict, a Series) from column names
        Public bounds to which entries are clipped, in ``fit`` and in ``transform``. Choose them without looking at the
        rows. Tighter bounds mean less noise.
    method : {"moments", "quantiles"}, default="moments"
        ``moments``: mean and standard deviation, in one noisy release. The noise is proportional to the width of the
        bounds, so they should not be much wider than the data. ``quantiles``: median and the distance between two
        quantiles, each by the exponential mechanism. Bounds may be generous, but the columns share the budget.
    center : bool, default=True
        Whether to subtract the centres. With False, zeros stay zero. Sparse rows require ``center=False`` and bounds
        that include zero.
    quantiles : pair of float, default=(0.25, 0.75)
        For method ``quantiles``: the levels of two quantiles. The scale is the distance between these quantiles.
    resolution : int, default=65536
        For method ``quantiles``: quantiles are chosen from a public grid that divides the distance between the bounds
        into this number of steps. A finer grid can represent a smaller scale, but needs more records if many entries of
        a column are equal.
    min_scale : float, default=1e-4
        The smallest scale, as a fraction of half the width of the bounds.
    clip_output : float or None, default=None
        Clip transformed entries to [-clip_output, clip_output], in units of the scale. Outliers then cannot make
        ``row_norm_`` larger than clip_output * sqrt(n_features).
    random_state : int or None, default=None
        None draws from a cryptographically secure generator. An integer makes the fit repeatable, and the guarantee
        holds only while it is secret.
    ledger : path, Ledger or None, default=None
        Where each fit is booked before its noise is drawn. It is not saved with the model.

    Attributes
    ----------
    center_, scale_ : array of shape (n_features,)
        The noisy estimates, which ``guarantee_`` covers, so they may be published. An estimated variance that is
        smaller than the standard deviation of its noise is replaced by that standard deviation. If both quantiles of a
        column are equal, as in a constant column, the scale is half the width of the bounds.
    lower_, upper_ : array of shape (n_features,)
        The declared bounds.
    row_norm_ : float
        Bound on the l2 norm of every transformed row. It is computed from ``center_``, ``scale_`` and the bounds, so it
        can be the ``feature_norm`` of a private estimator. With ``clip_output`` it is at most
        clip_output * sqrt(n_features), which is known before the fit.
    guarantee_ : Guarantee
        The guarantee of the fit. Use :func:`~privet.preprocessing.total_guarantee` to add it to the guarantee of a
        model that is fitted to the same rows.
    n_features_in_, feature_names_in_

    Formal guarantees
    -----------------
    Replace-one adjacency; the number of rows is public. The proofs are in
    :class:`~privet.preprocessing.moments.MomentStability` and :class:`~privet.preprocessing.quantiles.QuantilePlan`.
    Quantiles that are estimated in the wrong order are sorted, which does not increase their error (Chernozhukov,
    Fernandez-Val and Galichon, "Quantile and Probability Curves Without Crossing"). This and all other steps after the
    release are post-processing.

    Examples
    --------
    >>> import numpy as np
    >>> from privet.preprocessing import PrivateScaler
    >>> X = np.random.default_rng(0).normal([50, 170], [10, 8], size=(5000, 2))
    >>> scaler = PrivateScaler(0.5, lower=[0, 100], upper=[120, 220]).fit(X)
    >>> bool(abs(scaler.center_[0] - 50) < 3)
    True
    >>> scaler.guarantee_.epsilon <= 0.5
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        lower: Any,
        upper: Any,
        method: str = "moments",
        center: bool = True,
        quantiles: Sequence[float] = (0.25, 0.75),
        resolution: int = 65_536,
        min_scale: float = 1e-4,
        clip_output: float | None = None,
        random_state: int | None = None,
        ledger: LedgerLike | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.lower = lower
        self.upper = upper
        self.method = method
        self.center = center
        self.quantiles = quantiles
        self.resolution = resolution
        self.min_scale = min_scale
        self.clip_output = clip_output
        self.random_state = random_state
        self.ledger = ledger

    def fit(self, X: Any, y: Any = None) -> "PrivateScaler":
        """Estimate centres and scales from ``X`` (array, DataFrame, or CSR if not centred). This spends the budget."""
        with self._fitting():
            self._check_settings()
            X = self._validated(X, reset=True)
            bounds = self._declared(X)
            delta = default_delta(X.shape[0]) if self.delta is None else self.delta
            estimate = self._by_moments if self.method == "moments" else self._by_quantiles
            source = NoiseSource(self.random_state, purpose=f"{self.method} scaler {self.epsilon!r} {self.delta!r}")
            center, scale, self.guarantee_ = estimate(X, bounds, Budget(self.epsilon, delta), source)
        self.lower_, self.upper_ = bounds.lower, bounds.upper
        self.center_ = bounds.middle + bounds.half * center if self.center else np.zeros(X.shape[1])
        self.scale_ = bounds.half * scale
        return self

    def _booked(self, guarantee: Guarantee, X: Any, source: NoiseSource) -> Guarantee:
        """Complete the guarantee of a fit, book it before any noise is drawn, and return it."""
        guarantee = guarantee.assuming(
            source.assumption(),
            enforced("the bounds were declared before the fit"),
            enforced(f"the number of records, {X.shape[0]}, is public and the same for all neighbouring datasets"),
        )
        book_spending(guarantee, f"fit of {type(self).__name__}", ledgers=[self.ledger])
        return guarantee

    def _by_moments(
        self, X: Any, bounds: Bounds, budget: Budget, source: NoiseSource
    ) -> tuple[Floats, Floats, Guarantee]:
        """Return noisy means, noisy standard deviations, and the guarantee.

        Means and deviations refer to columns whose bounds are mapped to [-1, 1].
        """
        plan = OutputPlan.for_budget(budget, stability=MomentStability(*X.shape))
        released = f"noisy means and second moments of {X.shape[1]} columns"
        bound = enforced(plan.stability.in_words())
        guarantee = self._booked(plan.guarantee(bound=bound, released=released), X, source)
        mean, variance, noise = noisy_moments(X, bounds, plan, source)
        scale = np.sqrt(np.clip(variance, np.maximum(noise, self.min_scale**2), 1.0))
        return mean, scale, guarantee

    def _by_quantiles(
        self, X: Any, bounds: Bounds, budget: Budget, source: NoiseSource
    ) -> tuple[Floats, Floats, Guarantee]:
        """Return noisy medians, noisy distances between two quantiles, and the guarantee.

        Medians and distances refer to columns whose bounds are mapped to [-1, 1].
        """
        low, high = quantile_pair(self.quantiles)
        levels = sorted({low, 0.5, high} if self.center else {low, high})
        plan = QuantilePlan.for_budget(budget, n_columns=X.shape[1], quantiles=levels, resolution=self.resolution)
        guarantee = self._booked(plan.guarantee(), X, source)
        found = np.sort(plan.release(X, bounds, source), axis=0)
        spread = found[levels.index(high)] - found[levels.index(low)]
        scale = np.where(spread > 0, np.maximum(spread, self.min_scale), 1.0)
        center = found[levels.index(0.5)] if self.center else np.zeros(X.shape[1])
        return center, scale, guarantee

    def _check_settings(self) -> None:
        """Raise ValueError for an invalid parameter, before the data is used."""
        positive("epsilon", self.epsilon)
        if self.delta is not None:
            Budget(self.epsilon, self.delta)
        if self.method not in METHODS:
            raise ValueError(f"method must be {' or '.join(METHODS)}, got {self.method!r}")
        quantile_pair(self.quantiles)
        count("resolution", self.resolution, at_least=2)
        probability("min_scale", self.min_scale)  # a fraction
        if self.clip_output is not None:
            positive("clip_output", self.clip_output)
        if self.random_state is not None:
            whole("random_state", self.random_state)

    def _check_learned(self) -> None:
        super()._check_learned()
        if not isinstance(self.guarantee_, Guarantee):
            raise ValueError("a PrivateScaler must have a guarantee")

    def _limit(self) -> float:
        return np.inf if self.clip_output is None else float(self.clip_output)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None  # privacy noise
        return tags
