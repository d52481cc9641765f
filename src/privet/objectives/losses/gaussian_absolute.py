"""The absolute error convolved with a Gaussian, in closed form: see :mod:`privet.objectives.losses.gaussian_hinge`."""

import math
from typing import Self

import numpy as np
from scipy.special import erf

from privet.checks import positive
from privet.objectives.glm import Floats, GeneralisedLinear

_PEAK = 1 / math.sqrt(2 * math.pi)  # of the normal density
_WIDTH_SHARE = 0.1  # the default width, as a share of the bound on targets


class GaussianAbsolute(GeneralisedLinear):
    """slope E |u + width G| of the error u = score - target, where G is a standard normal variable.

    With slope 1 this is u (2 Phi(u/width) - 1) + 2 width phi(u/width): convex, 1-Lipschitz, 2/(width sqrt(2 pi))-smooth
    in the score, and above |u| by at most 2 width / sqrt(2 pi), at 0.
    """

    def __init__(self, width: float, slope: float = 1.0) -> None:
        self.width, self.slope = positive("width", width), positive("slope", slope)
        self.residual_bound = self.slope
        self.curvature_bound = self.slope * 2 * _PEAK / self.width

    @classmethod
    def for_targets(cls, target_bound: float, width: float | None = None) -> Self:
        """Return the loss for targets in [-target_bound, target_bound]; by default the width is a tenth of it.

        Its slope makes it 1-smooth, as the squared and the Huber loss are, so that an l2 penalty has the same meaning.
        """
        width = _WIDTH_SHARE * target_bound if width is None else width
        return cls(width, slope=width / (2 * _PEAK))

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return a narrow and a wide convolution, and one with another slope."""
        return cls(0.2), cls(2.0), cls.for_targets(3.0)

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        u = scores - targets
        with np.errstate(over="ignore"):
            density = _PEAK * np.exp(-((u / self.width) ** 2) / 2)
        return np.asarray(self.slope * (u * _sign_probability(u / self.width) + 2 * self.width * density))

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return slope (2 Phi(u/width) - 1)."""
        return np.asarray(self.slope * _sign_probability((scores - targets) / self.width))


def _sign_probability(x: Floats) -> Floats:
    """Return 2 Phi(x) - 1, the probability that |G| < x with the sign of x, without cancellation near 0."""
    return np.asarray(erf(x / math.sqrt(2)))
