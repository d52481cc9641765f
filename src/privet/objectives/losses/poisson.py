"""The Poisson loss of counts."""

import math
from typing import Self

import numpy as np

from privet.checks import positive
from privet.objectives.glm import Floats, GeneralisedLinear
from privet.objectives.losses.huber import Huber

_SHARE = 0.25  # of the bound on counts, which is one unit of a residual


class Poisson(GeneralisedLinear):
    """(exp(s) - y s) / u for counts y of at most ``bound``, where u is a quarter of the bound.

    Above s = log(bound), exp(s) is continued by a parabola, so that the loss is smooth. It has unbounded gradients, so
    that training must clip them.
    """

    residual_bound = math.inf

    def __init__(self, bound: float) -> None:
        self.bound = positive("bound", bound)
        self.unit = _SHARE * self.bound
        self.curvature_bound = 1 / _SHARE

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return the loss of few and of many events."""
        return cls(2.0), cls(100.0)

    def with_bounded_gradient(self, target_bound: float) -> Huber:
        """Return Huber's loss with the default threshold for targets of at most ``target_bound``."""
        return Huber.for_targets(target_bound)

    @property
    def start_curvature(self) -> float:
        """That of an expected count of an eighth of the bound."""
        return 0.125 / _SHARE

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = np.maximum(scores - math.log(self.bound), 0)
            expected = np.exp(scores - beyond) + self.bound * (beyond + beyond * beyond / 2)
            return np.asarray((expected - targets * scores) / self.unit)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return (exp(s) - y) / u, where exp(s) is linear above log(bound)."""
        with np.errstate(over="ignore"):
            beyond = np.maximum(scores - math.log(self.bound), 0)
            return np.asarray((np.exp(scores - beyond) + self.bound * beyond - targets) / self.unit)
