"""Generalised linear models: losses of the scores ``rows @ weights``.

The gradient of one record's loss is the outer product of its row and the derivative of the loss by the scores, here
called its *residual*. So its norm is |residual| times the norm of the row, the sum over records is one matrix product,
and clipping costs no per-record gradient.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from privet.objectives.rows import BoundedRows

Floats = NDArray[Any]


class GeneralisedLinear(ABC):
    """A convex loss of the scores.

    Subclasses give the loss, its derivative by the scores, and two constants: ``residual_bound``, the largest norm of
    that derivative, and ``curvature_bound``, the largest eigenvalue of the second derivative.
    """

    residual_bound: ClassVar[float]
    curvature_bound: ClassVar[float]

    @abstractmethod
    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""

    @abstractmethod
    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of each record's loss by its scores."""

    @abstractmethod
    def start(self, dimension: int) -> Floats:
        """Return the zero weights."""

    def lipschitz(self, row_norm: float) -> float:
        """Return a bound on the gradient of one record's loss, for rows of norm at most ``row_norm``."""
        return self.residual_bound * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return a Lipschitz constant of the gradient of one record's loss, for such rows."""
        return self.curvature_bound * row_norm**2

    def mean_loss(self, weights: Floats, rows: BoundedRows, targets: Floats) -> float:
        """Return the average loss. Not private."""
        return float(np.mean(self.loss(rows.scores(weights), targets)))

    def gradient_sum(self, weights: Floats, rows: BoundedRows, targets: Floats, clip_norm: float) -> Floats:
        """Return the sum of the records' gradients, each of norm at most ``clip_norm``.

        Clipping scales the residual of a record by min(1, clip_norm / |gradient|), a little further down to make room
        for the rounding of the sum; it is left out where the rows' bound makes it idle.
        """
        return rows.combine(self.bounded(self.residuals(rows.scores(weights), targets), rows, clip_norm))

    def bounded(self, residuals: Floats, rows: BoundedRows, clip_norm: float) -> Floats:
        """Return residuals scaled down so that no record's ``residual * row`` is longer than ``clip_norm``."""
        if clip_norm >= self.lipschitz(rows.norm_bound):
            return residuals
        return clipped(residuals, rows, clip_norm)


def clipped(residuals: Floats, rows: BoundedRows, clip_norm: float) -> Floats:
    """Return each residual times min(1, clip_norm / (|residual| |row|)), and a little less: room for rounding."""
    sizes = np.abs(residuals) if residuals.ndim == 1 else np.linalg.norm(residuals, axis=1)
    room = clip_norm / (1 + rows.rounding)
    factors = room / np.maximum(sizes * rows.norms(), room)
    return np.asarray(residuals * (factors if residuals.ndim == 1 else factors[:, None]))


class Logistic(GeneralisedLinear):
    """log(1 + exp(s)) - y s for y in {0, 1}: convex, 1-Lipschitz and 1/4-smooth in the score."""

    residual_bound = 1.0
    curvature_bound = 0.25

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return np.asarray(np.logaddexp(0, scores) - targets * scores)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return sigmoid(s) - y."""
        return np.asarray(expit(scores) - targets)

    def start(self, dimension: int) -> Floats:
        """Return one zero vector."""
        return np.zeros(dimension)


class Multinomial(GeneralisedLinear):
    """logsumexp(s) - s_y over ``n_classes`` scores.

    The residual softmax(s) - e_y has norm below sqrt(2), attained in the limit where another class is certain; the
    second derivative diag(p) - p p' has eigenvalues of at most 1/2.
    """

    residual_bound = float(np.sqrt(2))
    curvature_bound = 0.5

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return np.asarray(logsumexp(scores, axis=1) - np.take_along_axis(scores, targets[:, None], axis=1)[:, 0])

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return softmax(s) - e_y."""
        residuals = np.asarray(softmax(scores, axis=1))
        residuals[np.arange(len(targets)), targets] -= 1
        return residuals

    def start(self, dimension: int) -> Floats:
        """Return one zero vector a class."""
        return np.zeros((dimension, self.n_classes))
