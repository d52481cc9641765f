"""A logistic loss with half the Lipschitz constant."""

import numpy as np

from privet.objectives.glm import BinaryLoss, Floats


class TamedLogistic(BinaryLoss):
    """A loss with the same minimiser as the logistic loss, whose residuals are at most 1/2 instead of 1.

    The residual is the logistic residual sigmoid(s) - y divided by 2 max(sigmoid(s), 1 - sigmoid(s)). The divisor
    depends on the score alone, so the expected residual vanishes at the log-odds, where that of the logistic loss does.
    (Clipping the logistic residual to 1/2 instead would make scores up to twice too large.) One record moves a sum half
    as far, so half the noise is enough.

    As a function of the margin z = (2y - 1) s the loss is (1 - z)/2 for z < 0 and exp(-z)/2 for z >= 0: convex,
    1/2-Lipschitz and 1/2-smooth.
    """

    residual_bound = 0.5
    curvature_bound = 0.5
    is_one_sided = True

    @property
    def start_curvature(self) -> float:
        """1/4, as for the logistic loss: the mean of the second derivatives on the two sides of zero, 1/2 and 0."""
        return 0.25

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        margins = scores * (2.0 * targets - 1)
        return np.asarray((np.exp(-np.maximum(margins, 0)) - np.minimum(margins, 0)) / 2)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return -(2y - 1) min(1, exp(-z))/2."""
        signs = 1 - 2.0 * targets
        residuals = np.asarray(np.minimum(scores * signs, 0))
        np.exp(residuals, out=residuals)
        residuals *= signs / 2
        return residuals
