"""The minimisers of many parties at once, by Newton's method on all of them together.

A party minimises  mean loss over its n rows + (alpha/2) ||w||^2 + <tilt, w>. Outside of the span of its rows, w is
-tilt/alpha. Inside, it has as many coordinates as the span has dimensions, at most n. With one record per party, this
leaves one scalar equation per party, on the line of its row.

``privet.solvers.base.minimise`` finds the same points one by one, with a certificate that includes floating-point
rounding. The tests compare the two. Here the computed gradients are checked against the same tolerances.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives import GeneralisedLinear, Huber, Logistic

Floats = NDArray[np.float64]

_MOST_STEPS, _MOST_HALVINGS = 200, 60
_CHUNK = 4_000_000  # number of entries that are processed at a time


def minimisers(
    objective: GeneralisedLinear,
    X: Any,
    y: NDArray[Any],
    parties: int,
    *,
    alpha: float,
    tolerance: float,
    tilts: Floats | None = None,
) -> Floats:
    """Return one minimiser per row, for ``parties`` parties with consecutive rows of the sparse matrix X."""
    n, d = X.shape[0] // parties, X.shape[1]
    if n * parties != X.shape[0]:
        raise ValueError(f"{X.shape[0]} rows cannot be divided evenly among {parties} parties")
    found = np.empty((parties, d))
    at_once = max(1, _CHUNK // (n * d))
    for start in range(0, parties, at_once):
        some = slice(start, min(start + at_once, parties))
        rows = X[some.start * n : some.stop * n].toarray().reshape(-1, n, d)
        targets = y[some.start * n : some.stop * n].reshape(-1, n)
        tilt = np.zeros((len(rows), d)) if tilts is None else tilts[some]
        found[some] = _of_some(objective, rows, targets, alpha, tolerance, tilt)
    return found


def _of_some(
    objective: GeneralisedLinear, rows: Floats, targets: Floats, alpha: float, tolerance: float, tilt: Floats
) -> Floats:
    if rows.shape[1] >= rows.shape[2]:
        return _newton(objective, rows, targets, alpha, tolerance, tilt)
    basis, triangle = np.linalg.qr(rows.transpose(0, 2, 1))  # rows = triangle' basis'
    inside = np.einsum("pdr,pd->pr", basis, tilt)
    found = _newton(objective, triangle.transpose(0, 2, 1), targets, alpha, tolerance, inside)
    outside = -(tilt - np.einsum("pdr,pr->pd", basis, inside)) / alpha
    return outside + np.einsum("pdr,pr->pd", basis, found)


def _newton(
    objective: GeneralisedLinear, rows: Floats, targets: Floats, alpha: float, tolerance: float, tilt: Floats
) -> Floats:
    """Return the result of damped Newton steps for all parties together. Converged parties are left out."""
    n, r = rows.shape[1:]
    weights = np.zeros((len(rows), r))
    left = np.arange(len(rows))
    for _ in range(_MOST_STEPS):
        some = _Objective(objective, rows[left], targets[left], alpha, tilt[left])
        gradients, scores = some.gradients(weights[left])
        is_far = np.linalg.norm(gradients, axis=1) > tolerance
        if not is_far.any():
            return weights
        left = left[is_far]
        some = _Objective(objective, rows[left], targets[left], alpha, tilt[left])
        gradients, scores = gradients[is_far], scores[is_far]
        bends = curvatures(objective, scores, targets[left])
        hessians = np.matmul(some.rows.transpose(0, 2, 1), bends[:, :, None] * some.rows) / n
        hessians[:, range(r), range(r)] += alpha
        steps = np.linalg.solve(hessians, gradients[:, :, None])[:, :, 0]
        weights[left] = _descended(some, weights[left], steps, gradients)
    raise RuntimeError(f"{len(left)} parties' minimisers did not settle: use a larger tolerance or alpha")


class _Objective:
    """The objectives of some parties, each evaluated at one point."""

    def __init__(self, objective: GeneralisedLinear, rows: Floats, targets: Floats, alpha: float, tilt: Floats) -> None:
        self.objective, self.rows, self.targets, self.alpha, self.tilt = objective, rows, targets, alpha, tilt

    def scores(self, weights: Floats) -> Floats:
        return np.asarray(np.matmul(self.rows, weights[:, :, None])[:, :, 0])

    def values(self, weights: Floats) -> Floats:
        losses = self.objective.loss(self.scores(weights), self.targets).mean(axis=1)
        return np.asarray(losses + np.einsum("pr,pr->p", self.alpha / 2 * weights + self.tilt, weights))

    def gradients(self, weights: Floats) -> tuple[Floats, Floats]:
        scores = self.scores(weights)
        residuals = self.objective.residuals(scores, self.targets)
        means = np.matmul(residuals[:, None, :], self.rows)[:, 0] / self.rows.shape[1]
        return means + self.alpha * weights + self.tilt, scores


def _descended(some: _Objective, weights: Floats, steps: Floats, gradients: Floats) -> Floats:
    """Return each party's next point. A step is halved until it lowers the objective enough."""
    values = some.values(weights)
    slopes = np.einsum("pr,pr->p", gradients, steps)
    sizes = np.ones(len(weights))
    for _ in range(_MOST_HALVINGS):
        moved = weights - sizes[:, None] * steps
        # Near the minimum, values differ by less than their rounding.
        is_high = some.values(moved) > values - 1e-4 * sizes * slopes + 1e-14 * np.abs(values)
        if not is_high.any():
            break
        sizes[is_high] /= 2
    return moved


def curvatures(objective: GeneralisedLinear, scores: Floats, targets: Floats) -> Floats:
    """Return the second derivatives of the losses with respect to the scores."""
    residuals = objective.residuals(scores, targets)
    if isinstance(objective, Logistic):
        chances = residuals + targets
        return np.asarray(chances * (1 - chances))
    if isinstance(objective, Huber):
        return np.asarray(np.abs(residuals) < objective.threshold, dtype=np.float64)
    raise TypeError(f"the curvature of {type(objective).__name__} losses is not known here")
