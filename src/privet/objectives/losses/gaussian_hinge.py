"""The hinge loss convolved with a Gaussian, in closed form.

"Privacy Amplification by Iteration" (Feldman, Mironov, Talwar, Thakurta, 2018), section 5.5, makes a loss smooth by
convolving it with a Gaussian in all d weights, which costs a factor of sqrt(d) in accuracy. A generalised linear model
has one score per record, so that a convolution in one dimension is enough: E loss(s + width G) is as convex and as
Lipschitz as the loss itself, is smooth, and differs from the loss by at most width times the Lipschitz constant.
"""

import math
from typing import Self

import numpy as np
from scipy.special import ndtr

from privet.checks import positive
from privet.objectives.glm import BinaryLoss, Floats

_PEAK = 1 / math.sqrt(2 * math.pi)  # of the normal density


class GaussianHinge(BinaryLoss):
    """E max(0, 1 - z + width G) of the margin z = (2y - 1) s, y in {0, 1}, where G is a standard normal variable.

    With u = 1 - z this is u Phi(u/width) + width phi(u/width): convex, 1-Lipschitz, 1/(width sqrt(2 pi))-smooth in the
    score, and above the hinge loss by at most width / sqrt(2 pi), at the corner.
    """

    residual_bound = 1.0
    is_one_sided = True

    def __init__(self, width: float = 0.5) -> None:
        self.width = positive("width", width)
        self.curvature_bound = _PEAK / self.width

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return a narrow and a wide convolution."""
        return cls(0.2), cls(2.0)

    @property
    def start_residual_bound(self) -> float:
        """Value of Phi(1/width)."""
        return float(ndtr(1 / self.width))

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        u = 1 - (2.0 * targets - 1) * scores
        with np.errstate(over="ignore"):
            density = _PEAK * np.exp(-((u / self.width) ** 2) / 2)
        return np.asarray(u * ndtr(u / self.width) + self.width * density)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return -(2y - 1) Phi((1 - z)/width)."""
        signs = 2.0 * targets - 1
        return np.asarray(-signs * ndtr((1 - signs * scores) / self.width))
