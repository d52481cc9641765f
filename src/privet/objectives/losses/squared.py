"""The squared loss of regression."""

import math

import numpy as np

from privet.objectives.glm import Floats, GeneralisedLinear
from privet.objectives.losses.huber import Huber


class Squared(GeneralisedLinear):
    """u^2 / 2 of the error u = score - target: 1-smooth, but with unbounded gradients, so that training must clip them.

    Clipped gradients are those of Huber losses. The threshold of a record is the clip divided by the norm of its row.
    """

    residual_bound = math.inf
    curvature_bound = 1.0

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record, which is infinite where it exceeds the largest float."""
        with np.errstate(over="ignore"):
            errors = np.asarray(scores - targets)
            errors *= errors
        errors /= 2
        return errors

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return u."""
        with np.errstate(over="ignore"):
            return np.asarray(scores - targets)

    def with_bounded_gradient(self, target_bound: float) -> Huber:
        """Return Huber's loss with the default threshold for targets of at most ``target_bound``."""
        return Huber.for_targets(target_bound)
