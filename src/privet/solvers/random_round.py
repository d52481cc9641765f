"""Stochastic descent that stops after a random number of steps: RRPSGD, for objectives that need not be convex.

Algorithm 2 of "Efficient Private ERM for Smooth Objectives", with noise from the accountant in place of its Theorem 4.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import positive
from privet.objectives import BoundedRows
from privet.plans import GradientPlan
from privet.plans.samplers import Batch
from privet.privacy import Adjacency
from privet.solvers.base.interface import ALL_ITERATES, Problem, Release, Run, gradients_bounded_by

_MOST_KEPT = 20_000_000  # largest number of cached entries, 160 MB
_NEIGHBOURS = 64


def random_round(
    problem: Problem,
    run: Run[GradientPlan],
    *,
    step_size: float | Sequence[float] | NDArray[Any],
) -> Release:
    """Take a random number of noisy steps, at most as many as planned.

    Parameters
    ----------
    problem : Problem
        The objective. It may be non-convex.
    run : Run of a GradientPlan
        The plan determines T_max = ``plan.steps``. The paper uses ``OneUniform(n)`` and T_max = n^2, which is too many
        steps for any dataset large enough for private learning (10^9 at n = 30,000). Here T_max is a parameter, and
        T_max = 10 n takes seconds. Theorem 5 holds for every T_max in place of n^2; only its rate is that of n^2.
    step_size : float or sequence of ``plan.steps`` floats
        One eta, or eta_0, eta_1, ..., all below 2/beta, where beta is the smoothness of the regularised objective.

    Notes
    -----
    The number of steps R is drawn with Pr(R = k + 1) proportional to 2 eta_k - beta eta_k^2, k = 0, ..., T_max - 1. For
    a beta-smooth objective Theorem 5 bounds the expected squared norm of the gradient at this random point. (The proof,
    by Ghadimi and Lan, is for w_(R-1); Algorithm 2, which is implemented here, returns w_R. For a constant eta this
    adds one more step's eta^2 to the bound.)

    Formal guarantees
    -----------------
    The guarantee is that of the plan, for all ``plan.steps`` steps. R does not depend on the data, and given R the run
    is the beginning of a full run. R may therefore be published (it is in the trace), and all iterates are covered. The
    paper's own noise is not used, because the proof of its Theorem 4 understates the sensitivity, which is twice the
    bound on a gradient.
    """
    plan, smoothness = run.plan, problem.smoothness
    etas = _etas(step_size, plan.steps, smoothness)
    n = problem.rows.n
    divisor = plan.divisor(n)
    guarantee = run.guarantee(bound=gradients_bounded_by(plan.clip_norm), released=ALL_ITERATES)
    rounds = 1 + run.source.index(etas * (2 - smoothness * etas))
    weights, records = problem.start(), _Records(problem.rows, alone=plan.adjacency is Adjacency.ADD_OR_REMOVE)
    for step, eta in zip(run.steps(n, at_most=rounds), etas.tolist(), strict=False):
        rows, targets = records.take(step.batch), problem.targets[step.batch]
        total = problem.objective.gradient_sum(weights, rows, targets, plan.clip_norm)
        weights = weights - eta * (step.noisy(total) / divisor + problem.regulariser.gradient(weights))
    trace = {"steps": plan.steps, "rounds": rounds, "step_size": step_size}
    return Release(weights, guarantee, trace)


def _etas(step_size: float | Sequence[float] | NDArray[Any], steps: int, smoothness: float) -> NDArray[np.float64]:
    """Return the size of every planned step, checked."""
    if np.ndim(step_size) == 0:
        etas = np.full(steps, positive("step_size", step_size))  # type: ignore[arg-type]
    else:
        etas = np.asarray(step_size, dtype=np.float64)
        if etas.shape != (steps,):
            raise ValueError(f"step_size must be one number or one for each of {steps} steps, got shape {etas.shape}")
    largest = positive("step_size", float(np.max(etas)))
    positive("step_size", float(np.min(etas)))
    if not largest * smoothness < 2:
        raise ValueError(
            f"a step size of {largest:.6g} is not below 2/smoothness = {2 / smoothness:.6g}, which the distribution "
            "of the random number of steps requires: use smaller steps"
        )
    return etas


class _Records:
    """The rows, batch by batch. Single records are converted to dense rows once, in small blocks, and cached.

    With ``alone``, no row is cached, because a row must have the same score in batches of one and of several rows.
    """

    def __init__(self, rows: BoundedRows, *, alone: bool = False) -> None:
        self._rows, self._alone = rows, alone
        self._keeps = not alone and rows.n * rows.dimension <= _MOST_KEPT
        self._kept: dict[int, _OneRow] = {}

    def take(self, batch: Batch) -> BoundedRows:
        if isinstance(batch, slice) or batch.size != 1 or not self._keeps:
            return self._rows.take(batch, alone=self._alone)
        place = int(batch[0])
        if place not in self._kept:
            start = place - place % _NEIGHBOURS
            part = self._rows.take(slice(start, min(start + _NEIGHBOURS, self._rows.n)))
            written_out = np.ascontiguousarray(part.combine(np.eye(part.n)).T)
            for i, row in enumerate(written_out):
                self._kept[start + i] = _OneRow(row, part.norms()[i : i + 1], part)
        return self._kept[place]


class _OneRow(BoundedRows):
    """One dense bounded row, which computes gradients much faster than a matrix with one row."""

    def __init__(self, row: NDArray[np.float64], norms: NDArray[np.float64], rows: BoundedRows) -> None:
        self._row, self._norms = row, norms
        self.norm_bound, self.rounding, self._limits = rows.norm_bound, rows.rounding, None

    def scores(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return row @ weights, of shape (1,) or (1, k)."""
        return np.asarray(self._row @ weights)[None]

    def combine(self, coefficients: NDArray[Any]) -> NDArray[np.float64]:
        """Return the row times its coefficient, or times one coefficient per output."""
        return np.asarray(np.multiply.outer(self._row, coefficients[0]))

    def parts(self) -> list[tuple[slice, BoundedRows]]:
        """Return the row as one part."""
        return [(slice(None), self)]

    def norms(self) -> NDArray[np.float64]:
        """Return the norm of the row."""
        return self._norms
