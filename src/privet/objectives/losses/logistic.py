"""The logistic loss of two classes."""

import numpy as np
from scipy.special import expit

from privet.objectives.glm import BinaryLoss, Floats


class Logistic(BinaryLoss):
    """log(1 + exp(s)) - y s for y in {0, 1}: convex, 1-Lipschitz and 1/4-smooth in the score s."""

    residual_bound = 1.0
    curvature_bound = 0.25
    is_one_sided = True

    @property
    def start_residual_bound(self) -> float:
        """Value of |sigmoid(0) - y|."""
        return 0.5

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return np.asarray(np.logaddexp(0, scores) - targets * scores)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return sigmoid(s) - y."""
        residuals = np.asarray(expit(scores))
        residuals -= targets
        return residuals
