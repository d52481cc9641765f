"""The minimiser of a strongly convex problem, without noise, with a certificate: its gradient is at most so long.

Privacy arguments about minimisers hold for exact ones. What a program returns is inexact, so the argument is made for
every point whose gradient is no longer than a public tolerance, and the program must return such a point **always**:
an exception on some datasets and not on others would tell them apart. Hence the tolerance is held against the rounding
of floating-point numbers before any data is touched, and the last of the methods below provably arrives.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from privet.checks import nonnegative, positive
from privet.solvers.base.problem import Problem

Floats = NDArray[Any]

_UNIT_ROUNDOFF = 2.0**-53
_ROWS_AT_ONCE = 4096  # sums over more rows are added pairwise, so that rounding does not grow with n
_ROUNDS, _QUASI_NEWTON_STEPS, _SPECTRAL_STEPS = 10, 1000, 100
_TOLERATED_GROWTH = 10.0  # of gradients on the way: these steps do not shorten them every time


def minimise(problem: Problem, *, tolerance: float, tilt: Floats | None = None, ridge: float = 0.0) -> Floats:
    """Return weights at which the gradient of ``problem`` + <tilt, w> + (ridge/2) ||w||^2 is at most ``tolerance``.

    Parameters
    ----------
    problem : Problem
        Strongly convex, or made so by ``ridge``, with losses of bounded gradients.
    tolerance : float
        At least :func:`least_tolerance`, which depends on public numbers and on the length of the tilt only; less is
        refused.
    tilt, ridge : array or None, float
        A linear term, and curvature to add.

    Formal guarantees
    -----------------
    The exact gradient at the returned point has norm at most ``tolerance``: the computed norm plus a bound on all its
    rounding errors is. Such a point is found for every dataset (docs/proofs.md, "A certified minimiser").
    """
    target = _Target(problem, problem.start() if tilt is None else tilt, ridge)
    least = least_tolerance(problem, tilt_norm=target.tilt_norm, ridge=ridge)
    if positive("tolerance", tolerance) < least:
        raise ValueError(
            f"a gradient of {tolerance:.3g} cannot be certified in floating point: with these constants the rounding "
            f"of sums allows {least:.3g}. Use a tolerance of at least that, or a larger alpha"
        )
    best = target.at(problem.start())
    for _ in range(_ROUNDS):  # where the line search of one stumbles over a bend, the other walks on, and vice versa
        for quick in (_quasi_newton, _spectral_descent):
            if best.length > tolerance:
                best = min(best, quick(target, best, tolerance), key=_length)
    while best.length > tolerance:  # plain descent: slow and sure
        best = target.at(best.weights - best.gradient / target.smoothness)
    return best.weights


def least_tolerance(problem: Problem, *, tilt_norm: float = 0.0, ridge: float = 0.0) -> float:
    """Return the shortest gradient that can be certified for every dataset, from public numbers alone."""
    check_minimisable(problem, ridge)
    modulus = problem.strong_convexity + nonnegative("ridge", ridge)
    smoothness = problem.smoothness + ridge
    start = float(np.linalg.norm(problem.regulariser.gradient(problem.start())))
    # The gradient at zero; no step of a descent from there, or from a point with a shorter gradient, gets farther away
    # from zero than 2 first / modulus.
    first = problem.lipschitz + start + nonnegative("tilt_norm", tilt_norm)
    farthest = 2.01 * first / modulus
    error = _rounding(problem, farthest, tilt_norm, ridge) + 4 * _UNIT_ROUNDOFF * (smoothness * farthest + first)
    return 4 * error


def check_minimisable(problem: Problem, ridge: float = 0.0) -> None:
    """Raise unless the problem has one minimiser that gradients of bounded records determine."""
    if not math.isfinite(problem.lipschitz):
        raise ValueError(
            f"the gradients of {type(problem.objective).__name__} losses have no bound, so no record's influence on "
            "the minimiser has: use a Lipschitz loss (Huber for regression)"
        )
    if not problem.is_convex:
        raise ValueError("the regulariser is not convex: a minimiser need not be unique, nor move little; use L2")
    if not problem.strong_convexity + ridge > 0:
        raise ValueError(
            "without strong convexity the minimiser can move arbitrarily far: set alpha > 0, or use another method"
        )


@dataclass(frozen=True)
class _Point:
    """Weights, the computed gradient there, and a bound on the norm of the exact one."""

    weights: Floats
    gradient: Floats
    length: float


@dataclass(frozen=True)
class _Target:
    """The function to minimise."""

    problem: Problem
    tilt: Floats
    ridge: float

    @cached_property
    def tilt_norm(self) -> float:
        return float(np.linalg.norm(self.tilt))

    @property
    def smoothness(self) -> float:
        return self.problem.smoothness + self.ridge

    @property
    def strong_convexity(self) -> float:
        return self.problem.strong_convexity + self.ridge

    def at(self, weights: Floats) -> _Point:
        """Return the gradient, summed so that :func:`_rounding` bounds its error."""
        if not np.isfinite(weights).all():
            return _Point(weights, weights, math.inf)
        problem = self.problem
        parts = []
        for start in range(0, problem.rows.n, _ROWS_AT_ONCE):
            some = slice(start, min(start + _ROWS_AT_ONCE, problem.rows.n))
            rows = problem.rows if problem.rows.n <= _ROWS_AT_ONCE else problem.rows.take(some)
            parts.append(problem.objective.gradient_sum(weights, rows, problem.targets[some], problem.lipschitz))
        while len(parts) > 1:
            parts = list(_added_in_pairs(parts))
        gradient = parts[0] / problem.rows.n + self._added_gradient(weights)
        norm = float(np.linalg.norm(gradient)) * (1 + _UNIT_ROUNDOFF * (weights.size + 8))
        rounding = _rounding(problem, float(np.linalg.norm(weights)), self.tilt_norm, self.ridge)
        return _Point(weights, gradient, norm + rounding)

    def quickly(self, weights: Floats) -> tuple[float, Floats]:
        """Return value and gradient from one pass over the rows, without a bound on their rounding."""
        problem = self.problem
        scores = problem.rows.scores(weights)
        loss = float(np.mean(problem.objective.loss(scores, problem.targets)))
        total = problem.rows.combine(problem.objective.residuals(scores, problem.targets))
        added = float(np.vdot(self.tilt, weights)) + self.ridge / 2 * float(np.vdot(weights, weights))
        value = loss + problem.regulariser.value(weights) + added
        return value, total / problem.rows.n + self._added_gradient(weights)

    def _added_gradient(self, weights: Floats) -> Floats:
        return np.asarray(self.problem.regulariser.gradient(weights) + self.ridge * weights + self.tilt)


def _rounding(problem: Problem, weights_norm: float, tilt_norm: float, ridge: float) -> float:
    """Return how far the computed gradient may be from the exact one (docs/proofs.md, "A certified minimiser").

    Sums of m terms, in any order, err by at most m roundoffs relative to the sum of sizes. Twice that, where rows are
    differences from a centre. The evaluation of a loss's derivative is allowed 64 roundoffs and one for each score.
    """
    rows, lipschitz = problem.rows, problem.lipschitz
    n_scores = problem.start().size // rows.dimension
    n_parts = -(-rows.n // _ROWS_AT_ONCE)
    added = 2 * min(rows.n, _ROWS_AT_ONCE) + math.ceil(math.log2(n_parts)) + 64 + n_scores
    curvature = problem.objective.smoothness(rows.norm_bound)
    penalty = problem.regulariser.smoothness + ridge
    start = float(np.linalg.norm(problem.regulariser.gradient(problem.start())))
    in_sums = (added + 8) * lipschitz + 8 * (tilt_norm + start)
    in_scores = (2 * (rows.dimension + 8) * curvature + 16 * penalty) * weights_norm
    return 1.01 * _UNIT_ROUNDOFF * (in_sums + in_scores)


def _quasi_newton(target: _Target, point: _Point, tolerance: float) -> _Point:
    """Return where L-BFGS stops: at the minimiser, up to the rounding of values, in the common case."""
    start = point.weights

    def quickly(flat: Floats) -> tuple[float, Floats]:
        value, gradient = target.quickly(flat.reshape(start.shape))
        return value, gradient.ravel()

    aim = tolerance / (2 * math.sqrt(start.size))
    options = {"maxiter": _QUASI_NEWTON_STEPS, "maxfun": 2 * _QUASI_NEWTON_STEPS, "maxcor": 20, "ftol": 0, "gtol": aim}
    found = minimize(quickly, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return target.at(np.asarray(found.x).reshape(start.shape))


def _spectral_descent(target: _Target, point: _Point, tolerance: float) -> _Point:
    """Return the best point of a descent with the steps of Barzilai and Borwein: by gradients, values being blunt."""
    best, shortest = point, 1 / target.smoothness
    size = shortest
    for _ in range(_SPECTRAL_STEPS):
        moved = target.at(point.weights - size * point.gradient)
        if size > shortest and not moved.length <= _TOLERATED_GROWTH * best.length:  # it left the valley
            size, point = max(size / 8, shortest), best
            continue
        step, change = moved.weights - point.weights, moved.gradient - point.gradient
        along = float(np.vdot(step, change))
        size = float(np.vdot(step, step)) / along if along > 0 else shortest
        size = min(max(size, shortest), 1 / target.strong_convexity)
        point = moved
        best = min(best, point, key=_length)
        if best.length <= tolerance:
            break
    return best


def _length(point: _Point) -> float:
    return point.length


def _added_in_pairs(parts: list[Floats]) -> Iterator[Floats]:
    for place in range(0, len(parts), 2):
        yield parts[place] + parts[place + 1] if place + 1 < len(parts) else parts[place]
