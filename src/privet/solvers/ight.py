"""Iterative gradient hard thresholding without noise. NOT PRIVATE: for public data, noisy labels and baselines.

Algorithm 3 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), with the
steps of Blumensath and Davies, "Normalized Iterative Hard Thresholding" (2010), if no step size is given.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive
from privet.solvers.base.interface import Problem
from privet.solvers.base.sparsity import check_support, thresholded

_HALVINGS = 100


def ight(
    problem: Problem,
    *,
    n_nonzero: int,
    steps: int = 100,
    step_size: float | None = None,
    tolerance: float = 1e-9,
) -> NDArray[Any]:
    """Return sparse weights, by gradient steps that each keep only the largest weights. Not private.

    Parameters
    ----------
    problem : Problem
        The objective, with one score per record. Gradients are not clipped.
    n_nonzero : int
        How many features keep a weight, not counting an intercept.
    steps : int
        Largest number of steps.
    step_size : float or None
        A constant. None takes the best step along the gradient of the features with nonzero weights (or, if all weights
        are zero, with the largest gradients), halved until the objective is certain to decrease.
    tolerance : float
        The descent ends when a step changes the weights by less than this share of their norm.
    """
    check_support(problem, n_nonzero)
    count("steps", steps)
    nonnegative("tolerance", tolerance)
    size = None if step_size is None else positive("step_size", step_size)
    weights, d = problem.start(), problem.rows.n_features
    for _ in range(steps):
        gradient = _gradient(problem, weights)
        if step_size is None:
            size = _long_step(problem, weights, gradient, n_nonzero) or size
        if size is None:  # the gradient is zero
            break
        moved = thresholded(weights - size * gradient, n_nonzero, d)
        change = float(np.linalg.norm(moved - weights))
        weights = moved
        if change <= tolerance * float(np.linalg.norm(weights)):
            break
    return weights


def _gradient(problem: Problem, weights: NDArray[Any]) -> NDArray[Any]:
    residuals = problem.objective.residuals(problem.rows.scores(weights), problem.targets)
    return np.asarray(problem.rows.combine(residuals) / problem.rows.n + problem.regulariser.gradient(weights))


def _long_step(problem: Problem, weights: NDArray[Any], gradient: NDArray[Any], n_nonzero: int) -> float | None:
    """Return a long step that does not increase the objective, or None if no feature in use has a gradient.

    A thresholded step of size a minimises <gradient, change> + |change|^2 / (2a) over sparse points, so this value is
    at most 0. The objective increases by at most <gradient, change> + curvature(change)/2.
    """
    d = problem.rows.n_features
    used = thresholded(gradient, n_nonzero, d) if not weights[:d].any() else np.where(weights, gradient, 0.0)
    used[d:] = gradient[d:]
    bend = _curvature(problem, used)
    if bend == 0:
        return None
    size = float(used @ used) / bend
    for _ in range(_HALVINGS):
        change = thresholded(weights - size * gradient, n_nonzero, d) - weights
        if size * _curvature(problem, change) <= float(change @ change) * (1 + 1e-9):
            break
        size /= 2
    return size


def _curvature(problem: Problem, direction: NDArray[Any]) -> float:
    """Return a bound on the second derivative of the objective along a direction."""
    along = problem.rows.scores(direction)
    loss = problem.objective.curvature_bound * float(along @ along) / problem.rows.n
    return loss + problem.regulariser.smoothness * float(direction @ direction)
