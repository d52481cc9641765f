# mypy: allow-subclassing-any
"""Scaling by public bounds, which costs no privacy."""

from typing import Any

import numpy as np

from privet.preprocessing.base import BoundedScaler


class PublicScaler(BoundedScaler):
    """Clip each column to bounds that are public knowledge, and map the bounds to [-1, 1]. This costs no privacy.

    Parameters
    ----------
    lower, upper : float, sequence of floats, or mapping (a dict, a Series) from column names
        Bounds on the entries of each column that are known without the data: from a code book, from physics, from the
        range of an instrument. Bounds that were computed from the private rows, such as their minimum and maximum,
        invalidate every guarantee that follows.
    center : bool, default=True
        True maps the bounds of each column to -1 and 1. With False, a column whose bounds include zero is only divided
        by the larger absolute value of its bounds, so that zeros stay zero. All other columns are mapped to [0, 1].
        Sparse rows require ``center=False`` and bounds that include zero.

    Attributes
    ----------
    center_, scale_, lower_, upper_ : array of shape (n_features,)
        Computed from the declared bounds alone.
    row_norm_ : float
        Bound on the l2 norm of every transformed row: sqrt(n_features) with ``center=True``. It is a public number and
        can be the ``feature_norm`` of a private estimator. It is a worst case, and a smaller public guess of the usual
        norm is often better: longer rows are then scaled down, and there is less noise.
    guarantee_ : None
        Nothing about the rows is learned or released. A fitted step whose ``guarantee_`` is None costs nothing, see
        :func:`~privet.preprocessing.total_guarantee`.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from privet.preprocessing import PublicScaler
    >>> PublicScaler(lower=[0, 10], upper=[120, 60]).fit_transform([[30.0, 85.0], [60.0, 35.0]])
    array([[-0.5,  1. ],
           [ 0. ,  0. ]])
    """

    def __init__(self, lower: Any, upper: Any, center: bool = True) -> None:
        self.lower = lower
        self.upper = upper
        self.center = center

    def fit(self, X: Any, y: Any = None) -> "PublicScaler":
        """Match the bounds with the columns of ``X``. The entries of ``X`` are not used."""
        with self._fitting():
            X = self._validated(X, reset=True)
            bounds = self._declared(X)
        self.lower_, self.upper_ = bounds.lower, bounds.upper
        if self.center:
            self.center_, self.scale_ = bounds.middle, bounds.half
        else:
            self.center_ = np.where(bounds.hold_zero, 0.0, bounds.lower)
            self.scale_ = np.where(bounds.hold_zero, np.maximum(-bounds.lower, bounds.upper), 2 * bounds.half)
        self.guarantee_ = None
        return self

    def _check_learned(self) -> None:
        super()._check_learned()
        if self.guarantee_ is not None:
            raise ValueError("a PublicScaler releases nothing and has no guarantee")

    def _limit(self) -> float:
        return 1.0  # the map stays within [-1, 1] up to rounding
