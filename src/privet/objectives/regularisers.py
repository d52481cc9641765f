"""Regularisers: functions of the weights alone, which cost no privacy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import nonnegative


@dataclass(frozen=True)
class L2:
    """(alpha/2) ||w||^2, on all weights, the intercept's included: alpha-strongly convex and alpha-smooth."""

    alpha: float

    def __post_init__(self) -> None:
        nonnegative("alpha", self.alpha)

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient."""
        return self.alpha

    @property
    def strong_convexity(self) -> float:
        """Modulus of strong convexity."""
        return self.alpha

    def value(self, weights: NDArray[Any]) -> float:
        """Return the penalty."""
        return self.alpha / 2 * float(np.vdot(weights, weights))

    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return alpha w."""
        return np.asarray(self.alpha * weights)
