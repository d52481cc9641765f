"""The absolute error convolved with a Gaussian, in closed form: see :mod:`privet.objectives.losses.gaussian_hinge`."""

import math
from typing import Self

import numpy as np
from scipy.special import erf

from privet.checks import positive
from privet.objectives.glm import Floats, GeneralisedLinear

_PEAK = 1 / math.sqrt(2 * math.pi)  # of the normal density


class GaussianAbsolute(GeneralisedLinear):
    """E |u + width G| of the error u = score - target, where G is a standard normal variable.

    u (2 Phi(u/width) - 1) + 2 width phi(u/width): convex, 1-Lipschitz, 2/(width sqrt(2 pi))-smooth in the score, and
    above |u| by at most 2 width / sqrt(2 pi), at 0.
    """

    residual_bound = 1.0

    def __init__(self, width: float) -> None:
        self.width = positive("width", width)
        self.curvature_bound = 2 * _PEAK / self.width

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return a narrow and a wide convolution."""
        return cls(0.2), cls(2.0)

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        u = scores - targets
        with np.errstate(over="ignore"):
            density = _PEAK * np.exp(-((u / self.width) ** 2) / 2)
        return np.asarray(u * _sign_probability(u / self.width) + 2 * self.width * density)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return 2 Phi(u/width) - 1."""
        return _sign_probability((scores - targets) / self.width)


def _sign_probability(x: Floats) -> Floats:
    """Return 2 Phi(x) - 1, the probability that |G| < x with the sign of x, without cancellation near 0."""
    return np.asarray(erf(x / math.sqrt(2)))
