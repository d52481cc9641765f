"""The logistic loss of several classes."""

from typing import Self

import numpy as np

from privet.checks import count
from privet.objectives.glm import Floats, GeneralisedLinear


class Multinomial(GeneralisedLinear):
    """logsumexp(s) - s_y over ``n_classes`` scores per record; targets are 0 to n_classes - 1.

    The residual softmax(s) - e_y has norm below sqrt(2), which it approaches where another class is almost certain. The
    second derivative diag(p) - p p' has eigenvalues of at most 1/2.
    """

    residual_bound = float(np.sqrt(2))
    curvature_bound = 0.5
    predicts_classes = True

    def __init__(self, n_classes: int) -> None:
        self.n_classes = count("n_classes", n_classes, at_least=2)

    @classmethod
    def examples(cls) -> "tuple[Self, ...]":
        """Return the loss for two and for four classes."""
        return cls(2), cls(4)

    @property
    def start_residual_bound(self) -> float:
        """Norm of softmax(0) - e_y."""
        return float(np.sqrt(1 - 1 / self.n_classes))

    def check_targets(self, targets: Floats) -> None:
        """Raise ValueError unless all targets are whole numbers from 0 to n_classes - 1."""
        if targets.dtype.kind not in "iu" or not ((targets >= 0) & (targets < self.n_classes)).all():
            raise ValueError(f"targets of Multinomial losses must be whole numbers from 0 to {self.n_classes - 1}")

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        below = _below_top(scores)
        missed = below[targets, np.arange(len(targets))]
        np.exp(below, out=below)
        return np.asarray(np.log(_sums(below)) - missed)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return softmax(s) - e_y."""
        residuals = _below_top(scores)
        np.exp(residuals, out=residuals)
        residuals /= _sums(residuals)
        residuals[targets, np.arange(len(targets))] -= 1
        return residuals.T

    def start(self, dimension: int) -> Floats:
        """Return one zero vector per class."""
        return np.zeros((dimension, self.n_classes))


def _sums(by_class: Floats) -> Floats:
    """Return the sum over classes for each record, the same number for one record as among many others."""
    total = np.array(by_class[0])
    for values in by_class[1:]:  # numpy's sum along the first axis adds in another order if there is one record only
        total += values
    return total


def _below_top(scores: Floats) -> Floats:
    """Return each score minus the largest score of its record, one row per class: numpy is faster along long rows."""
    below = scores.T.copy(order="C")
    with np.errstate(over="ignore"):  # a difference may overflow to -inf, and exp(-inf) is 0
        below -= below.max(axis=0)
    return below
