"""Huber's loss of regression."""

from typing import Self

import numpy as np

from privet.checks import positive
from privet.objectives.glm import Floats, GeneralisedLinear

_THRESHOLD_SHARE = 0.25  # the default threshold, as a share of the bound on targets


class Huber(GeneralisedLinear):
    """u^2 / 2 for |u| <= t and t (|u| - t/2) beyond, where u = score - target and t is the ``threshold``.

    Convex, t-Lipschitz and 1-smooth in the score.
    """

    curvature_bound = 1.0

    def __init__(self, threshold: float) -> None:
        self.threshold = positive("threshold", threshold)
        self.residual_bound = self.threshold

    @classmethod
    def for_targets(cls, target_bound: float, threshold: float | None = None) -> "Huber":
        """Return the loss for targets in [-target_bound, target_bound]; by default the threshold is a quarter of it."""
        return cls(_THRESHOLD_SHARE * target_bound if threshold is None else threshold)

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return a small and a large threshold."""
        return cls(0.7), cls(4.0)

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        with np.errstate(over="ignore"):
            sizes = np.abs(scores - targets)
            slopes = np.minimum(sizes, self.threshold)
            return np.asarray(slopes * (sizes - slopes / 2))  # covers both branches

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return u, clipped to [-t, t]."""
        with np.errstate(over="ignore"):
            errors = np.asarray(scores - targets)
        return np.clip(errors, -self.threshold, self.threshold, out=errors)
