"""The hinge loss with a rounded corner."""

from typing import Self

import numpy as np

from privet.checks import positive
from privet.objectives.glm import BinaryLoss, Floats


class SmoothedHinge(BinaryLoss):
    """The hinge loss max(0, 1 - z) of the margin z = (2y - 1) s, y in {0, 1}, with its corner rounded off.

    With h the ``width``, the loss is (1 + h - z)^2 / (4h) for z from 1 - h to 1 + h, 0 above and 1 - z below. It is the
    loss of the private support vector machine of "Differentially Private Empirical Risk Minimization" (Chaudhuri,
    Monteleoni, Sarwate, 2011): convex, 1-Lipschitz and 1/(2h)-smooth in the score.
    """

    residual_bound = 1.0
    is_one_sided = True

    def __init__(self, width: float = 0.5) -> None:
        self.width = positive("width", width)
        self.curvature_bound = 1 / (2 * self.width)

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return a narrow corner, the default one, and one that is so wide that it includes a margin of zero."""
        return cls(0.05), cls(), cls(2.0)

    @property
    def start_residual_bound(self) -> float:
        """1, or less if the corner is so wide that it includes a margin of zero."""
        return min(1.0, (1 + self.width) / (2 * self.width))

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        reach = self._reach(scores, targets)
        slopes = self._slopes(reach)
        return np.asarray(slopes * (reach - self.width * slopes))  # covers all three branches

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return -(2y - 1) times a slope between 0 and 1."""
        residuals = self._slopes(self._reach(scores, targets))
        residuals *= 1 - 2.0 * targets
        return residuals

    def _reach(self, scores: Floats, targets: Floats) -> Floats:
        """Return 1 + h - z, the distance of each margin below the margins with zero loss."""
        reach = np.asarray(scores * (1 - 2.0 * targets))
        reach += 1 + self.width
        return reach

    def _slopes(self, reach: Floats) -> Floats:
        """Return minus the derivative of the loss with respect to the margin."""
        slopes = np.clip(reach, 0, 2 * self.width)
        slopes /= 2 * self.width
        return slopes
