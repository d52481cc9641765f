"""Generalised linear models: losses of the scores ``rows @ weights``.

The gradient of one record's loss is the outer product of its row and the derivative of the loss with respect to its
scores, here called its *residual*. Its norm is therefore |residual| times the norm of the row, the sum over records is
one matrix product, and clipping needs no per-record gradients.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privet.objectives.rows import BoundedRows
from privet.objectives.summation import sum_over

Floats = NDArray[Any]

_TINY = 1e-150


class GeneralisedLinear(ABC):
    """A convex loss of the scores, together with the constants that privacy analyses rely on.

    Subclasses define the loss, its derivative with respect to the scores, and the constants below. Scores and residuals
    are float64, of shape (n,) or (n, outputs). Neither method changes its arguments, and both accept any finite scores.

    Attributes
    ----------
    residual_bound : float
        Largest norm of a residual. It is infinite for a loss that must be clipped in training.
    curvature_bound : float
        Largest eigenvalue of the second derivative with respect to the scores.
    has_bounded_gradient : bool
        Whether gradients are bounded on bounded rows, by ``residual_bound``. Otherwise training must clip them.
    is_one_sided : bool
        Whether the residual of a record has the same sign at all scores, so that its gradients never point in opposite
        directions. This is declared by each class and not inherited, because a subclass may change the residuals.
    predicts_classes : bool
        Whether targets are class numbers rather than real numbers.
    largest_weight : float
        By how much the loss of a record may be multiplied. Default clipping norms are multiplied by it.
    """

    residual_bound: float
    curvature_bound: float
    has_bounded_gradient: bool = True
    is_one_sided: bool = False
    predicts_classes: bool = False
    largest_weight: float = 1.0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "is_one_sided" not in vars(cls):
            cls.is_one_sided = False
        if "residual_bound" in vars(cls):
            cls.has_bounded_gradient = math.isfinite(cls.residual_bound)

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return instances on which tests check the declared constants; one per interesting choice of parameters."""
        return (cls(),)

    @abstractmethod
    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""

    @abstractmethod
    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of each record's loss with respect to its scores."""

    def check_targets(self, targets: Floats) -> None:
        """Raise ValueError for targets for which the constants do not hold, because the noise would be too small."""
        if not np.isfinite(targets).all():
            raise ValueError("targets must be finite numbers")

    def start(self, dimension: int) -> Floats:
        """Return zero weights, in the shape that the loss needs for rows of this dimension."""
        return np.zeros(dimension)

    def with_bounded_gradient(self, target_bound: float) -> "GeneralisedLinear":
        """Return this loss if its gradients are bounded, else its closest relative with bounded gradients.

        Parameters
        ----------
        target_bound : float
            Public bound on the absolute value of the targets.
        """
        if not self.has_bounded_gradient:
            raise TypeError(f"{type(self).__name__} has no variant with bounded gradients")
        return self

    @property
    def start_residual_bound(self) -> float:
        """Largest norm of a residual at scores of zero, where a descent from zero weights starts."""
        return self.residual_bound

    @property
    def start_curvature(self) -> float:
        """Typical second derivative at scores of zero, for the length of the first step. It need not be a bound."""
        return self.curvature_bound

    @property
    def clips_to_convex(self) -> bool:
        """Whether clipped gradients are the gradients of another convex loss that is at least as smooth.

        This holds for losses of one score per record. The residual is a nondecreasing function of the score, and so is
        the residual clipped to [-c, c], with no steeper slope: it is the derivative of the loss continued by straight
        lines of slope -c and c, as Huber's loss continues the square. For several scores per record, shortened residual
        vectors are in general not the gradient of any loss.
        """
        return self.start(1).ndim == 1

    def lipschitz(self, row_norm: float) -> float:
        """Return a bound on the norm of the gradient of one record's loss, for rows of norm at most ``row_norm``."""
        return self.residual_bound * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return a Lipschitz constant of the gradient of one record's loss, for rows of norm at most ``row_norm``."""
        return self.curvature_bound * row_norm**2

    def mean_loss(self, weights: Floats, rows: BoundedRows, targets: Floats) -> float:
        """Return the average loss, or infinity if it exceeds the largest float. This value is not private."""
        with np.errstate(over="ignore"):
            return float(np.mean(self.loss(rows.scores(weights), targets)))

    def gradient_sum(self, weights: Floats, rows: BoundedRows, targets: Floats, clip_norm: float) -> Floats:
        """Return the sum of the records' gradients, each clipped to norm ``clip_norm``.

        Clipping scales the residual of a record by min(1, clip_norm / |gradient|), and slightly further to leave room
        for the rounding of the sum. It is skipped if the bound on the rows already implies the clip.
        """

        def sum_of(place: slice, part: BoundedRows) -> Floats:
            residuals = self.residuals(part.scores(weights), targets[place])
            return part.combine(self.bounded(residuals, part, clip_norm))

        return np.asarray(sum_over(rows.parts(), lambda part: sum_of(*part)))

    def bounded(self, residuals: Floats, rows: BoundedRows, clip_norm: float) -> Floats:
        """Return the residuals, scaled down where ``residual * row`` has a norm above ``clip_norm``."""
        if clip_norm >= self.lipschitz(rows.norm_bound):
            return residuals
        return clipped(residuals, rows, clip_norm)


class BinaryLoss(GeneralisedLinear):
    """A loss of one score per record for two classes, with targets 0 and 1."""

    predicts_classes = True

    def check_targets(self, targets: Floats) -> None:
        """Raise ValueError unless all targets are 0 or 1: for other targets the constants do not hold."""
        if not np.isin(targets, (0, 1)).all():
            raise ValueError(f"targets of {type(self).__name__} losses must be 0 or 1")


def clipped(residuals: Floats, rows: BoundedRows, clip_norm: float) -> Floats:
    """Return each residual times min(1, clip_norm / (|residual| |row|)), slightly less to leave room for rounding."""
    largest = rows.residual_limits(clip_norm)
    if residuals.ndim == 1:
        return np.clip(residuals, -largest, largest)  # a product would lose digits where the factor underflows
    squares = np.zeros(len(residuals))
    for column in residuals.T:  # unlike a product of matrices, this rounds every record in the same way
        squares += column * column
    sizes = np.sqrt(squares) + _TINY  # squares may underflow to zero
    return np.asarray(residuals * (largest / np.maximum(sizes, largest))[:, None])
