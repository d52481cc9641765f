"""Regularisers: functions of the weights, which cost no privacy. They include the weight of the intercept."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import nonnegative


class Regulariser(ABC):
    """A smooth function of weights of any shape, together with its smoothness and convexity constants."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """Largest m such that the function minus (m/2) ||w||^2 is convex; negative if the function is not convex."""

    @property
    def is_convex(self) -> bool:
        """Whether the function is convex."""
        return self.strong_convexity >= 0

    @abstractmethod
    def value(self, weights: NDArray[Any]) -> float:
        """Return the penalty."""

    @abstractmethod
    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient of the penalty, in the shape of the weights."""


@dataclass(frozen=True)
class L2(Regulariser):
    """(alpha/2) ||w||^2: alpha-strongly convex and alpha-smooth."""

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


@dataclass(frozen=True)
class SaturatingPenalty(Regulariser):
    """strength * sum_j w_j^2 / (1 + w_j^2), which is bounded in each weight and not convex.

    The second derivative in one weight, 2 strength (1 - 3 w^2) / (1 + w^2)^3, is largest at w = 0, where it is
    2 strength, and smallest at w = 1 and -1, where it is -strength/2. This is the penalty of section 4.7 of "Towards
    Efficient and Effective Privacy-Preserving Machine Learning" (Wang, 2021).
    """

    strength: float

    def __post_init__(self) -> None:
        nonnegative("strength", self.strength)

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient."""
        return 2 * self.strength

    @property
    def strong_convexity(self) -> float:
        """Smallest second derivative in one weight, which is negative."""
        return -self.strength / 2

    def value(self, weights: NDArray[Any]) -> float:
        """Return the penalty."""
        sines = weights / np.hypot(1, weights)  # with w as the tangent of an angle, no square overflows
        return self.strength * float(np.vdot(sines, sines))

    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return 2 strength w / (1 + w^2)^2."""
        cosines = 1 / np.hypot(1, weights)
        return np.asarray(2 * self.strength * (weights * cosines) * cosines**3)
