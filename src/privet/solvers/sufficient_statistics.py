"""Least squares from noisy second moments: one release of all products of columns and targets.

After AdaSSP, Algorithm 2 of Wang, "Revisiting differentially private linear regression" (2018), with three changes: the
moments are one joint Gaussian release, whose sensitivity is smaller than those of its parts; the smallest eigenvalue is
that of the noisy matrix and costs nothing; and only eigenvalues below the noise are raised, instead of all of them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives import L2, Squared
from privet.objectives.moments import second_moments
from privet.objectives.summation import ROUNDING
from privet.plans import MomentStability, OutputPlan
from privet.plans.stabilities.moments import balanced_target_scale
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run

MOST_COLUMNS = 2000
"""Columns with the constant one, up to which moments are computed. Their number grows with the square."""

_FLOOR = 1.2  # of the root of the number of columns times the noise, below which an eigenvalue is mostly noise

Floats = NDArray[np.float64]


def sufficient_statistics(problem: Problem, run: Run[OutputPlan], *, others: Sequence[NDArray[Any]] = ()) -> Release:
    """Release the sums of all products of columns and targets with noise, and solve the normal equations.

    The noisy matrix may have negative eigenvalues. Those that are smaller than the noise are replaced by the size of
    the noise, and the penalty is added. The trace has the noisy ``moments``, the ``smallest_eigenvalue`` of their
    matrix and the ``floor``, both relative to the number of records, for rows of norm 1.

    Parameters
    ----------
    problem : Problem
        The squared loss and an l2 penalty, with at most :data:`MOST_COLUMNS` columns.
    run : Run of an OutputPlan
        Its stability is made by :func:`moment_stability`.
    others : sequence of arrays
        Further targets of the same rows. The last axis of weights counts targets if there are several.

    Formal guarantees
    -----------------
    The guarantee is that of the plan. It requires a :class:`MomentStability` with the constants of the problem; rows
    are bounded and targets are clipped here. Eigenvalues and weights are computed from the noisy sums and from public
    numbers. The square of the constant column is known exactly, because the number of records is public.
    """
    plan, stability, rows = run.plan, run.plan.stability, problem.rows
    if not isinstance(stability, MomentStability):
        raise TypeError(f"sufficient_statistics runs a MomentStability plan, not {type(stability).__name__}")
    if moment_stability(problem, stability.target_bound, 1 + len(others)) != stability:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    bound = enforced(f"rows are bounded and targets are clipped, so that {stability.in_words()}")
    guarantee = run.guarantee(bound=bound, released=f"{_of(stability.n_targets)}noisy sums of all products of columns")
    columns = np.column_stack([problem.targets, *others]).astype(np.float64)
    targets = np.clip(columns / stability.target_bound, -1.0, 1.0) * stability.target_scale
    noisy = plan.noisy(_as_vector(*second_moments(rows, targets), bool(rows.intercept)), run.source)
    run.report(1, 1)
    matrix, products = _from_vector(noisy, rows.dimension, stability.n_targets)
    if rows.intercept:
        matrix[-1, -1] = rows.n * (rows.intercept / rows.largest_norm) ** 2
    values, vectors = np.linalg.eigh(matrix)
    floor = _FLOOR * plan.scale * math.sqrt(rows.dimension)
    raised = np.maximum(values, floor) + rows.n * problem.strong_convexity / rows.largest_norm**2
    solution = vectors @ ((vectors.T @ products) / stability.target_scale / raised[:, None])
    weights = solution * (stability.target_bound / rows.largest_norm)
    trace = {
        "noise_scale": plan.scale,
        "moments": noisy,
        "smallest_eigenvalue": float(values[0]) / rows.n,
        "floor": floor / rows.n,
    }
    return Release(weights if others else weights[:, 0], guarantee, trace)


def moment_stability(problem: Problem, target_bound: float, n_targets: int = 1) -> MomentStability:
    """Return the stability of the moments of ``problem``, whose targets are clipped to ``target_bound``."""
    loss, rows = problem.objective, problem.rows
    if not isinstance(loss, Squared) or not isinstance(problem.regulariser, L2):
        raise ValueError(
            f"{type(loss).__name__} with {type(problem.regulariser).__name__} is not determined by second moments: "
            "use the squared loss and an l2 penalty, or another method"
        )
    if rows.is_centred:
        raise ValueError("moments of centred rows are not supported: give the rows from which they were made")
    if rows.dimension > MOST_COLUMNS:
        raise ValueError(
            f"The products of {rows.dimension} columns with each other are too many: at most {MOST_COLUMNS} columns "
            "are supported, including the intercept. Use method='gradient'."
        )
    scale = balanced_target_scale(n_targets)
    return MomentStability(rows.n, rows.largest_norm, target_bound, scale, n_targets, rounding=ROUNDING)


def _of(n_targets: int) -> str:
    return "" if n_targets == 1 else f"of {n_targets} tasks: "


def _as_vector(matrix: Floats, products: Floats, has_constant: bool) -> Floats:
    """Return the entries that are released: the upper triangle, off-diagonal entries times sqrt(2), and products.

    The last diagonal entry belongs to the constant column and is public.
    """
    i, j = np.triu_indices(len(matrix))
    triangle = matrix[i, j] * np.where(i == j, 1.0, math.sqrt(2))
    if has_constant:
        triangle[-1] = 0.0
    return np.concatenate([triangle, products.ravel()])


def _from_vector(vector: Floats, dimension: int, n_targets: int) -> tuple[Floats, Floats]:
    """Return the symmetric matrix and the products of a vector of :func:`_as_vector`."""
    i, j = np.triu_indices(dimension)
    triangle, products = np.split(vector, [len(i)])
    matrix = np.empty((dimension, dimension))
    matrix[i, j] = matrix[j, i] = triangle / np.where(i == j, 1.0, math.sqrt(2))
    return matrix, products.reshape(dimension, n_targets)
