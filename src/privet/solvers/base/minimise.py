"""The minimiser of a strongly convex problem, without noise, with a certified bound on its gradient.

Privacy arguments about minimisers are made for exact ones, but a program returns inexact ones. The arguments here hold
for every point whose gradient has norm at most a public tolerance, and the program must **always** return such a point:
an exception on some datasets but not on others would distinguish them. The tolerance is therefore compared with the
rounding errors of floating point before any data is used, and the last of the methods below provably converges.
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
from privet.solvers.base.interface import Problem
from privet.solvers.base.rounding import UNIT_ROUNDOFF, rounding_besides_sums

Floats = NDArray[Any]

_ROWS_AT_ONCE = 4096  # larger sums are added pairwise, so that rounding errors do not grow with n
_ROUNDS, _QUASI_NEWTON_STEPS, _SPECTRAL_STEPS = 10, 1000, 100
_TOLERATED_GROWTH = 10.0  # a longer gradient, relative to the shortest one so far, means that a step was too long


def minimise(
    problem: Problem, *, tolerance: float, tilt: Floats | None = None, tilt_error: float = 0.0, ridge: float = 0.0
) -> Floats:
    """Return weights at which the gradient of ``problem`` + <tilt, w> + (ridge/2) ||w||^2 is at most ``tolerance``.

    Parameters
    ----------
    problem : Problem
        Strongly convex, or made so by ``ridge``, with losses of bounded gradients.
    tolerance : float
        At least :func:`least_tolerance`, which depends only on public numbers and on the norm of the tilt. A smaller
        tolerance raises an error.
    tilt, ridge : array or None, float
        A linear term and a ridge penalty to add.
    tilt_error : float
        Distance of ``tilt`` from an ideal linear term that floating point cannot represent.

    Formal guarantees
    -----------------
    The exact gradient at the returned point has norm at most ``tolerance``, because the computed norm plus a bound on
    all rounding errors does not exceed it. This holds for every linear term within ``tilt_error`` of ``tilt``. Such a
    point is found for every dataset (docs/proofs.md, "A certified minimiser").
    """
    target = _Target(problem, problem.start() if tilt is None else tilt, ridge, nonnegative("tilt_error", tilt_error))
    least = least_tolerance(problem, tilt_norm=target.tilt_norm, tilt_error=tilt_error, ridge=ridge)
    if positive("tolerance", tolerance) < least:
        raise ValueError(
            f"a gradient of norm {tolerance:.3g} cannot be certified in floating point. With these constants, rounding "
            f"allows a tolerance of at least {least:.3g}: use such a tolerance, or a larger alpha"
        )
    best = target.at(problem.start())
    for _ in range(_ROUNDS):  # where one method gets stuck, the other usually makes progress
        for quick in (_quasi_newton, _spectral_descent):
            if best.length > tolerance:
                best = min(best, quick(target, best, tolerance), key=_length)
    while best.length > tolerance:  # plain gradient descent is slow but certain to converge
        best = target.at(best.weights - best.gradient / target.smoothness)
    return best.weights


def least_tolerance(
    problem: Problem, *, tilt_norm: float = 0.0, tilt_error: float = 0.0, ridge: float = 0.0, n: int | None = None
) -> float:
    """Return the smallest tolerance that can be certified for every dataset, from public numbers alone.

    ``n`` is the number of rows. None means that of the problem.
    """
    check_minimisable(problem, ridge)
    modulus = problem.strong_convexity + nonnegative("ridge", ridge)
    smoothness = problem.smoothness + ridge
    start = float(np.linalg.norm(problem.regulariser.gradient(problem.start())))
    # Bound on the gradient at zero. A descent from zero, or from a point with a smaller gradient, stays within distance
    # 2 first / modulus of zero.
    first = problem.lipschitz + start + nonnegative("tilt_norm", tilt_norm)
    farthest = 2.01 * first / modulus
    error = _rounding(problem, farthest, tilt_norm, ridge, n) + 4 * UNIT_ROUNDOFF * (smoothness * farthest + first)
    return 4 * error + tilt_error


def check_minimisable(problem: Problem, ridge: float = 0.0) -> None:
    """Raise unless the problem is strongly convex and its losses have bounded gradients."""
    if not math.isfinite(problem.lipschitz):
        raise ValueError(
            f"the gradients of {type(problem.objective).__name__} losses are not bounded, so the influence of a record "
            "on the minimiser is not bounded either: use a Lipschitz loss (Huber for regression)"
        )
    if not problem.is_convex:
        raise ValueError("the regulariser is not convex, so the minimiser may be far from unique or stable: use L2")
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
    tilt_error: float = 0.0

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
        norm = float(np.linalg.norm(gradient)) * (1 + UNIT_ROUNDOFF * (weights.size + 8))
        rounding = _rounding(problem, float(np.linalg.norm(weights)), self.tilt_norm, self.ridge)
        return _Point(weights, gradient, norm + rounding + self.tilt_error)

    def quickly(self, weights: Floats) -> tuple[float, Floats]:
        """Return value and gradient from one pass over the rows, without a bound on rounding errors."""
        problem = self.problem
        scores = problem.rows.scores(weights)
        loss = float(np.mean(problem.objective.loss(scores, problem.targets)))
        total = problem.rows.combine(problem.objective.residuals(scores, problem.targets))
        added = float(np.vdot(self.tilt, weights)) + self.ridge / 2 * float(np.vdot(weights, weights))
        value = loss + problem.regulariser.value(weights) + added
        return value, total / problem.rows.n + self._added_gradient(weights)

    def _added_gradient(self, weights: Floats) -> Floats:
        return np.asarray(self.problem.regulariser.gradient(weights) + self.ridge * weights + self.tilt)


def _rounding(problem: Problem, weights_norm: float, tilt_norm: float, ridge: float, n: int | None = None) -> float:
    """Return how far the computed gradient may be from the exact one (docs/proofs.md, "A certified minimiser").

    The error of a sum of m terms, in any order, is at most m roundoffs times the sum of absolute values.
    """
    rows = problem.rows
    n = rows.n if n is None else n
    n_parts = max(1, -(-n // _ROWS_AT_ONCE))
    roundings = min(n, _ROWS_AT_ONCE) + math.ceil(math.log2(n_parts)) + 8
    in_sums = 1.01 * UNIT_ROUNDOFF * (roundings * problem.objective.residual_bound * rows.reach + 8 * tilt_norm)
    return in_sums + rounding_besides_sums(problem, problem.lipschitz, weights_norm, ridge)


def _quasi_newton(target: _Target, point: _Point, tolerance: float) -> _Point:
    """Return the point where L-BFGS stops, usually the minimiser up to the rounding of values."""
    start = point.weights

    def quickly(flat: Floats) -> tuple[float, Floats]:
        value, gradient = target.quickly(flat.reshape(start.shape))
        return value, gradient.ravel()

    aim = tolerance / (2 * math.sqrt(start.size))
    options = {"maxiter": _QUASI_NEWTON_STEPS, "maxfun": 2 * _QUASI_NEWTON_STEPS, "maxcor": 20, "ftol": 0, "gtol": aim}
    found = minimize(quickly, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return target.at(np.asarray(found.x).reshape(start.shape))


def _spectral_descent(target: _Target, point: _Point, tolerance: float) -> _Point:
    """Return the point with the smallest gradient of a descent with the step sizes of Barzilai and Borwein."""
    best, shortest = point, 1 / target.smoothness
    size = shortest
    for _ in range(_SPECTRAL_STEPS):
        moved = target.at(point.weights - size * point.gradient)
        if size > shortest and not moved.length <= _TOLERATED_GROWTH * best.length:  # the step was too long
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
