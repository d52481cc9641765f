"""Losses of regressions, functions of the error u = score - target."""

import math

import numpy as np

from privet.checks import positive
from privet.objectives.glm import Floats, GeneralisedLinear


class Squared(GeneralisedLinear):
    """u^2 / 2: 1-smooth in the score, but with gradients beyond any bound, so that it can only be trained clipped.

    Clipped, its gradients are those of Huber losses, each record's threshold being the clip over the norm of its row.
    """

    residual_bound = math.inf
    curvature_bound = 1.0

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record, infinite where it exceeds the largest float."""
        with np.errstate(over="ignore"):
            errors = _errors(scores, targets)
            errors *= errors
        errors /= 2
        return errors

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return u."""
        return _errors(scores, targets)

    def start(self, dimension: int) -> Floats:
        """Return one zero vector."""
        return np.zeros(dimension)


class Huber(GeneralisedLinear):
    """u^2 / 2 for |u| <= t, t (|u| - t/2) beyond, t being the ``threshold``: convex, t-Lipschitz and 1-smooth."""

    curvature_bound = 1.0

    def __init__(self, threshold: float) -> None:
        self.threshold = positive("threshold", threshold)
        self.residual_bound = self.threshold

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        sizes = np.abs(_errors(scores, targets))
        slopes = np.minimum(sizes, self.threshold)
        with np.errstate(over="ignore"):
            return np.asarray(slopes * (sizes - slopes / 2))  # both branches at once

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return u, cut off at -t and t."""
        errors = _errors(scores, targets)
        return np.clip(errors, -self.threshold, self.threshold, out=errors)

    def start(self, dimension: int) -> Floats:
        """Return one zero vector."""
        return np.zeros(dimension)


def _errors(scores: Floats, targets: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(scores - targets)
