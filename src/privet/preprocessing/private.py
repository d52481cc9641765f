# mypy: allow-subclassing-any
"""Scaling by centres and spreads that are estimated from the rows, and paid for."""

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

METHODS = ("moments", "quantiles")


class PrivateScaler(BoundedScaler):
    """Centre and scale columns by private estimates, within public bounds. Spends its budget at each fit.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget for the centres and scales of all columns together, above zero.
    delta : float or None, default=None
        None means 1/n^1.1; 0 asks for pure epsilon.
    lower, upper : float, sequence of floats, or mapping (a dict, a Series) from column names
        Public bounds, to which entries are clipped, in ``fit`` and in ``transform``. The tighter, the less noise;
        chosen without looking at the rows.
    method : {"moments", "quantiles"}, default="moments"
        ``moments``: mean and standard deviation, in one noisy release; the noise is in proportion to the bounds, so
        they should be of the size of the data. ``quantiles``: median and the distance between two quantiles, each by
        the exponential mechanism; bounds may be generous, but every column takes its share of the budget.
    center : bool, default=True
        False does not centre, and keeps zeros zero: for sparse rows, with bounds that hold zero.
    quantiles : pair of float, default=(0.25, 0.75)
        Method ``quantiles``: the pair whose distance is the scale.
    resolution : int, default=65536
        Method ``quantiles``: the number of steps of the public grid between the bounds on which quantiles are chosen.
        A finer one finds smaller spreads and, where many entries are equal, needs more records.
    min_scale : float, default=1e-4
        The smallest scale, as a share of half the width of the bounds.
    clip_output : float or None, default=None
        Clip transformed entries to [-clip_output, clip_output], in units of the scale. Outliers then do not make
        ``row_norm_`` large: it is at most clip_output * sqrt(n_features).
    random_state : int or None, default=None
        None draws from a cryptographically secure generator. An integer makes the fit repeatable, and the guarantee
        holds only while it is secret.

    Attributes
    ----------
    center_, scale_ : array of shape (n_features,)
        The noisy estimates. They may be published under ``guarantee_``. A variance below the standard deviation of its
        own noise is not claimed: the scale is that noise's instead. Where the quantiles fell on one place, as those of
        a constant column do, the scale is half the width of the bounds.
    lower_, upper_ : array of shape (n_features,)
        The stated bounds.
    row_norm_ : float
        Every transformed row has an l2 norm of at most this. Computed from ``center_``, ``scale_`` and the bounds, so
        it may serve as the ``feature_norm`` of a private estimator. With ``clip_output`` it is known beforehand to be
        at most clip_output * sqrt(n_features).
    guarantee_ : Guarantee
        What was promised. Add it to the guarantee of what is fitted to the same rows:
        :func:`~privet.preprocessing.total_guarantee`.
    n_features_in_, feature_names_in_

    Formal guarantees
    -----------------
    Replace-one adjacency; the number of rows is public. :class:`~privet.preprocessing.moments.MomentStability` and
    :class:`~privet.preprocessing.quantiles.QuantilePlan` prove the two methods. Estimates of quantiles that come out
    in the wrong order are sorted, which brings them no further from the truth (Chernozhukov, Fernandez-Val and
    Galichon, "Quantile and Probability Curves Without Crossing") and is post-processing, as is all else.

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

    def fit(self, X: Any, y: Any = None) -> "PrivateScaler":
        """Estimate centres and scales from rows ``X`` (array, DataFrame, or CSR if not centred); spends the budget."""
        with self._fitting():
            self._check_settings()
            X = self._validated(X, reset=True)
            bounds = self._declared(X)
            # 1/n^1.1 is below the 1/n at which publishing a random record would be allowed.
            delta = float(max(X.shape[0], 2) ** -1.1) if self.delta is None else self.delta
            estimate = self._by_moments if self.method == "moments" else self._by_quantiles
            source = NoiseSource(self.random_state, purpose=f"{self.method} scaler {self.epsilon!r} {self.delta!r}")
            center, scale, guarantee = estimate(X, bounds, Budget(self.epsilon, delta), source)
        self.lower_, self.upper_ = bounds.lower, bounds.upper
        self.center_ = bounds.middle + bounds.half * center if self.center else np.zeros(X.shape[1])
        self.scale_ = bounds.half * scale
        self.guarantee_: Guarantee = guarantee.assuming(
            source.assumption(),
            enforced("the bounds were declared beforehand"),
            enforced(f"the number of records, {X.shape[0]}, is the same for all neighbours, and public"),
        )
        return self

    def _by_moments(
        self, X: Any, bounds: Bounds, budget: Budget, source: NoiseSource
    ) -> tuple[Floats, Floats, Guarantee]:
        """Return centres and scales, where the bounds are [-1, 1]: noisy means and standard deviations."""
        plan = OutputPlan.for_budget(budget, stability=MomentStability(*X.shape))
        mean, variance, noise = noisy_moments(X, bounds, plan, source)
        scale = np.sqrt(np.clip(variance, np.maximum(noise, self.min_scale**2), 1.0))
        released = f"noisy means and second moments of {X.shape[1]} columns"
        bound = enforced(plan.stability.in_words())
        return mean, scale, plan.guarantee(bound=bound, released=released)

    def _by_quantiles(
        self, X: Any, bounds: Bounds, budget: Budget, source: NoiseSource
    ) -> tuple[Floats, Floats, Guarantee]:
        """Return centres and scales, where the bounds are [-1, 1]: noisy medians, and distances of two quantiles."""
        low, high = quantile_pair(self.quantiles)
        levels = sorted({low, 0.5, high} if self.center else {low, high})
        plan = QuantilePlan.for_budget(budget, n_columns=X.shape[1], quantiles=levels, resolution=self.resolution)
        found = np.sort(plan.release(X, bounds, source), axis=0)
        spread = found[levels.index(high)] - found[levels.index(low)]
        scale = np.where(spread > 0, np.maximum(spread, self.min_scale), 1.0)
        center = found[levels.index(0.5)] if self.center else np.zeros(X.shape[1])
        return center, scale, plan.guarantee()

    def _check_settings(self) -> None:
        """Raise on an impossible setting, before the data is touched."""
        positive("epsilon", self.epsilon)
        if self.delta is not None:
            Budget(self.epsilon, self.delta)
        if self.method not in METHODS:
            raise ValueError(f"method must be {' or '.join(METHODS)}, got {self.method!r}")
        quantile_pair(self.quantiles)
        count("resolution", self.resolution, at_least=2)
        probability("min_scale", self.min_scale)  # a share
        if self.clip_output is not None:
            positive("clip_output", self.clip_output)
        if self.random_state is not None:
            whole("random_state", self.random_state)

    def _limit(self) -> float:
        return np.inf if self.clip_output is None else float(self.clip_output)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None  # privacy noise
        return tags
