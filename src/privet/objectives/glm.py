"""Generalised linear models: losses of the scores ``rows @ weights``.

The gradient of one record's loss is the outer product of its row and the derivative of the loss by the scores, here
called its *residual*. So its norm is |residual| times the norm of the row, the sum over records is one matrix product,
and clipping costs no per-record gradient.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives.rows import BoundedRows

Floats = NDArray[Any]

_TINY = 1e-150


class GeneralisedLinear(ABC):
    """A convex loss of the scores.

    Subclasses give the loss, its derivative by the scores, and its constants. Scores and residuals are float64, of
    shape (n,) or (n, outputs); neither method changes its arguments, and both take any finite scores.

    Attributes
    ----------
    residual_bound : float
        Largest norm of the derivative; infinite for a loss that can only be trained clipped.
    curvature_bound : float
        Largest eigenvalue of the second derivative.
    """

    residual_bound: float
    curvature_bound: float

    @abstractmethod
    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""

    @abstractmethod
    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of each record's loss by its scores."""

    def check_targets(self, targets: Floats) -> None:
        """Raise on targets for which the constants do not hold: the noise would be too small for them."""
        if not np.isfinite(targets).all():
            raise ValueError("targets must be finite numbers")

    @abstractmethod
    def start(self, dimension: int) -> Floats:
        """Return the zero weights."""

    @property
    def start_residual_bound(self) -> float:
        """Largest norm of a residual at scores of zero: that of the first step of a descent from zero weights."""
        return self.residual_bound

    @property
    def start_curvature(self) -> float:
        """What to expect of the second derivative at scores of zero, for the length of a first step: no bound."""
        return self.curvature_bound

    @property
    def clips_to_convex(self) -> bool:
        """Whether clipped gradients are again those of a convex loss, no less smooth than this one.

        So it is for one score a record. Its residual grows with the score, so cut off at -c and c it still does, and
        nowhere faster: it is the derivative of the loss continued by straight lines of slope -c and c, as Huber does
        with the square. The vectors of several scores, shortened, are in general no loss's gradients.
        """
        return self.start(1).ndim == 1

    def lipschitz(self, row_norm: float) -> float:
        """Return a bound on the gradient of one record's loss, for rows of norm at most ``row_norm``."""
        return self.residual_bound * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return a Lipschitz constant of the gradient of one record's loss, for such rows."""
        return self.curvature_bound * row_norm**2

    def mean_loss(self, weights: Floats, rows: BoundedRows, targets: Floats) -> float:
        """Return the average loss, infinite where it exceeds the largest float. Not private."""
        with np.errstate(over="ignore"):
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
    largest = rows.residual_limits(clip_norm)
    if residuals.ndim == 1:
        return np.clip(residuals, -largest, largest)  # a product would lose digits where the factor underflows
    sizes = np.sqrt(np.einsum("ij,ij->i", residuals, residuals)) + _TINY  # as squares underflow
    return np.asarray(residuals * (largest / np.maximum(sizes, largest))[:, None])
