"""Losses with corners, made smooth: their convolution with a Gaussian in the score, in closed form.

"Privacy Amplification by Iteration", section 5.5, convolves a loss with a Gaussian in all d weights, which costs a
factor of sqrt(d) in accuracy. A generalised linear model has one score a record, and one dimension is enough:
E loss(s + width G) is as convex and as Lipschitz as the loss itself, smooth, and off by no more than width times the
Lipschitz constant.
"""

import math

import numpy as np
from scipy.special import erf, ndtr

from privet.checks import positive
from privet.objectives.classification import BinaryLoss
from privet.objectives.glm import Floats, GeneralisedLinear

_PEAK = 1 / math.sqrt(2 * math.pi)  # of the normal density


class GaussianHinge(BinaryLoss):
    """E max(0, 1 - z + width G) of the margin z = (2y - 1) s, y in {0, 1}, G a standard normal.

    u Phi(u/width) + width phi(u/width) with u = 1 - z: convex, 1-Lipschitz, 1/(width sqrt(2 pi))-smooth in the score,
    and above the hinge loss by at most width / sqrt(2 pi), at the corner.
    """

    residual_bound = 1.0

    def __init__(self, width: float = 0.5) -> None:
        self.width = positive("width", width)
        self.curvature_bound = _PEAK / self.width

    @property
    def start_residual_bound(self) -> float:
        """Phi(1/width)."""
        return float(ndtr(1 / self.width))

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        u = 1 - (2.0 * targets - 1) * scores
        return np.asarray(u * ndtr(u / self.width) + self.width * _density(u / self.width))

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return -(2y - 1) Phi((1 - z)/width)."""
        signs = 2.0 * targets - 1
        return np.asarray(-signs * ndtr((1 - signs * scores) / self.width))


class GaussianAbsolute(GeneralisedLinear):
    """E |u + width G| of the error u = score - target, G a standard normal.

    u (2 Phi(u/width) - 1) + 2 width phi(u/width): convex, 1-Lipschitz, 2/(width sqrt(2 pi))-smooth in the score, and
    above |u| by at most 2 width / sqrt(2 pi), at 0.
    """

    residual_bound = 1.0

    def __init__(self, width: float) -> None:
        self.width = positive("width", width)
        self.curvature_bound = 2 * _PEAK / self.width

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        u = scores - targets
        return np.asarray(u * _balance(u / self.width) + 2 * self.width * _density(u / self.width))

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return 2 Phi(u/width) - 1."""
        return _balance((scores - targets) / self.width)

    def start(self, dimension: int) -> Floats:
        """Return one zero vector."""
        return np.zeros(dimension)


def _density(x: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(_PEAK * np.exp(-x * x / 2))


def _balance(x: Floats) -> Floats:
    """Return 2 Phi(x) - 1, without cancellation near 0."""
    return np.asarray(erf(x / math.sqrt(2)))
