"""Losses of classifiers. Targets are 0 or 1, or for several classes 0 to n_classes - 1."""

import numpy as np
from scipy.special import expit

from privet.checks import count, positive
from privet.objectives.glm import Floats, GeneralisedLinear


class BinaryLoss(GeneralisedLinear):
    """A loss of one score for two classes: constants, and with them the noise, hold for targets 0 and 1 only."""

    def check_targets(self, targets: Floats) -> None:
        """Raise unless all are 0 or 1."""
        if not np.isin(targets, (0, 1)).all():
            raise ValueError(f"targets of {type(self).__name__} losses must be 0 or 1")

    def start(self, dimension: int) -> Floats:
        """Return one zero vector."""
        return np.zeros(dimension)


class Logistic(BinaryLoss):
    """log(1 + exp(s)) - y s for y in {0, 1}: convex, 1-Lipschitz and 1/4-smooth in the score."""

    residual_bound = 1.0
    curvature_bound = 0.25

    @property
    def start_residual_bound(self) -> float:
        """|sigmoid(0) - y|."""
        return 0.5

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return np.asarray(np.logaddexp(0, scores) - targets * scores)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return sigmoid(s) - y."""
        residuals = np.asarray(expit(scores))
        residuals -= targets
        return residuals


class TamedLogistic(BinaryLoss):
    """A loss with the minimiser of the logistic one, whose residuals lie within 1/2 in the place of 1.

    The logistic residual sigmoid(s) - y, divided by 2 max(sigmoid(s), 1 - sigmoid(s)). The divisor depends on the score
    alone, so that the expected residual is zero where the logistic one is: at the log-odds. (A residual that is clipped
    to 1/2 is not: scores come out up to twice too large.) One record moves a sum half as far, and so does the noise.

    Of the margin z = (2y - 1) s it is (1 - z)/2 below zero, exp(-z)/2 above: convex, 1/2-Lipschitz and 1/2-smooth.
    """

    residual_bound = 0.5
    curvature_bound = 0.5

    @property
    def start_curvature(self) -> float:
        """1/4, as of the logistic loss: on one side of zero the second derivative is 1/2, on the other 0."""
        return 0.25

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        margins = scores * (2.0 * targets - 1)
        return np.asarray((np.exp(-np.maximum(margins, 0)) - np.minimum(margins, 0)) / 2)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return -(2y - 1) times the slope, between 0 and 1/2."""
        signs = 1 - 2.0 * targets
        residuals = np.asarray(np.minimum(scores * signs, 0))
        np.exp(residuals, out=residuals)
        residuals *= signs / 2
        return residuals


class SmoothedHinge(BinaryLoss):
    """The hinge loss max(0, 1 - z) of the margin z = (2y - 1) s, y in {0, 1}, with its corner rounded off.

    (1 + h - z)^2 / (4h) for z from 1 - h to 1 + h, where h is the ``width``; 0 above and 1 - z below. It is the loss of
    the private support vector machine of "Differentially Private Empirical Risk Minimization" (Chaudhuri, Monteleoni,
    Sarwate, 2011): convex, 1-Lipschitz and 1/(2h)-smooth in the score.
    """

    residual_bound = 1.0

    def __init__(self, width: float = 0.5) -> None:
        self.width = positive("width", width)
        self.curvature_bound = 1 / (2 * self.width)

    @property
    def start_residual_bound(self) -> float:
        """1, or less for a corner so wide that it reaches a margin of zero."""
        return min(1.0, (1 + self.width) / (2 * self.width))

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        reach = self._reach(scores, targets)
        slopes = self._slopes(reach)
        return np.asarray(slopes * (reach - self.width * slopes))  # all three branches at once

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return -(2y - 1) times the slope, between 0 and 1."""
        residuals = self._slopes(self._reach(scores, targets))
        residuals *= 1 - 2.0 * targets
        return residuals

    def _reach(self, scores: Floats, targets: Floats) -> Floats:
        """Return 1 + h - z: how far a margin lies below those without a loss."""
        reach = np.asarray(scores * (1 - 2.0 * targets))
        reach += 1 + self.width
        return reach

    def _slopes(self, reach: Floats) -> Floats:
        """Return minus the derivative by the margin."""
        slopes = np.clip(reach, 0, 2 * self.width)
        slopes /= 2 * self.width
        return slopes


class Multinomial(GeneralisedLinear):
    """logsumexp(s) - s_y over ``n_classes`` scores.

    The residual softmax(s) - e_y has norm below sqrt(2), attained in the limit where another class is certain; the
    second derivative diag(p) - p p' has eigenvalues of at most 1/2.
    """

    residual_bound = float(np.sqrt(2))
    curvature_bound = 0.5

    def __init__(self, n_classes: int) -> None:
        self.n_classes = count("n_classes", n_classes, at_least=2)

    @property
    def start_residual_bound(self) -> float:
        """|1/K - e_y|."""
        return float(np.sqrt(1 - 1 / self.n_classes))

    def check_targets(self, targets: Floats) -> None:
        """Raise unless all are whole numbers from 0 to n_classes - 1."""
        if targets.dtype.kind not in "iu" or not ((targets >= 0) & (targets < self.n_classes)).all():
            raise ValueError(f"targets of Multinomial losses must be whole numbers from 0 to {self.n_classes - 1}")

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        below = _below_top(scores)
        missed = below[targets, np.arange(len(targets))]
        np.exp(below, out=below)
        return np.asarray(np.log(below.sum(axis=0)) - missed)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return softmax(s) - e_y."""
        residuals = _below_top(scores)
        np.exp(residuals, out=residuals)
        residuals /= residuals.sum(axis=0)
        residuals[targets, np.arange(len(targets))] -= 1
        return residuals.T

    def start(self, dimension: int) -> Floats:
        """Return one zero vector a class."""
        return np.zeros((dimension, self.n_classes))


def _below_top(scores: Floats) -> Floats:
    """Return each score less the record's largest, class by class: numpy is twice as fast along long rows."""
    below = scores.T.copy(order="C")
    with np.errstate(over="ignore"):  # a difference may pass the largest float, and exp(-inf) is 0
        below -= below.max(axis=0)
    return below
