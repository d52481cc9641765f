"""Rows that are centred at a noisy mean, and weights and penalties seen from the original rows.

If rows have a large common mean, the objective is far steeper in one direction than in all others, and the step size
that this direction allows is too small for the others. A noisy mean, to centre the rows, costs one release of
dimension d, which is a small part of the budget, and the descent then needs far fewer steps.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives import BoundedRows, Regulariser
from privet.plans import GradientPlan
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem


def check_centrable(rows: BoundedRows, mean: GradientPlan) -> None:
    """Raise unless a plan for the noisy mean fits the rows, and the model has an intercept to absorb the centre."""
    if mean.clip_norm < rows.weight_in_total:
        raise ValueError(f"rows are bounded by {rows.weight_in_total:.6g}, the plan covers {mean.clip_norm:.6g}")
    if not rows.intercept:
        raise ValueError("rows can be centred only if the model has an intercept: set an intercept")
    mean.divisor(rows.n)


def noisy_centre(rows: BoundedRows, plan: GradientPlan, source: NoiseSource) -> NDArray[np.float64]:
    """Return a noisy mean of the rows, projected onto the ball that contains the mean."""
    (total,) = (step.noisy(rows.total()) for step in plan.run(rows.n, source))
    return _in_ball(total / plan.divisor(rows.n), rows.row_norm)


def centred_anywhere(problem: Problem, radius: float, row_norm: float) -> Problem:
    """Return the problem with rows centred at a point of norm ``radius`` and scaled down to ``row_norm``.

    The constants of centred rows, which include a larger allowance for rounding, are largest for a centre at the edge
    of the ball in which it lies. A plan that is made for this problem therefore holds for every centre in the ball.
    """
    edge = np.zeros(problem.rows.n_features)
    edge[0] = radius
    return replace(problem, rows=problem.rows.centred(edge, row_norm))


def uncentred(weights: NDArray[Any], rows: BoundedRows, centre: NDArray[np.float64]) -> NDArray[Any]:
    """Return the weights that give the original rows the scores that ``weights`` give the centred rows.

    Let w be the weights of the features, v the weight of the constant column, b the value of that column, and c the
    centre. Then <w, x - c> + b v = <w, x> + b (v - <w, c>/b), so only the weight of the constant column changes.
    """
    result = weights.copy()
    result[rows.n_features] -= centre @ weights[: rows.n_features] / rows.intercept
    return result


@dataclass(frozen=True, eq=False)
class UncentredPenalty(Regulariser):
    """The penalty on the weights of the original rows, as a function of the weights of the centred rows.

    Without it, centring would change the objective: the weight of the constant column is penalised, too, and centring
    shifts that weight. It is for descents that release all iterates, whose privacy does not depend on its constants.
    """

    penalty: Regulariser
    rows: BoundedRows
    centre: NDArray[np.float64]

    @property
    def smoothness(self) -> float:
        """Upper bound on the Lipschitz constant of the gradient."""
        shift = float(np.linalg.norm(self.centre)) / abs(self.rows.intercept)
        return self.penalty.smoothness * (1 + shift) ** 2

    @property
    def strong_convexity(self) -> float:
        """Lower bound on the strong convexity, which is 0 for a convex penalty."""
        return min(self.penalty.strong_convexity, 0.0)

    def value(self, weights: NDArray[Any]) -> float:
        """Return the penalty."""
        return self.penalty.value(uncentred(weights, self.rows, self.centre))

    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient of the penalty, by the chain rule."""
        gradient = self.penalty.gradient(uncentred(weights, self.rows, self.centre))
        d = self.rows.n_features
        gradient[:d] -= np.multiply.outer(self.centre, gradient[d] / self.rows.intercept)
        return gradient


def _in_ball(centre: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return the centre projected onto the ball that contains the mean of the rows."""
    largest = float(np.abs(centre).max())
    if largest == 0:
        return centre
    length = largest * float(np.linalg.norm(centre / largest))  # squares of huge noise overflow
    return centre if length <= radius else np.asarray(centre / length * radius)
