"""How far a gradient that is computed in floating point may be from the exact one, for every dataset.

Formal guarantees
-----------------
The bounds depend on public numbers only (docs/proofs.md, section 8). They assume that sums and products are rounded as
in IEEE 754, and that numpy and scipy compute the exponentials and error functions of losses with errors of at most 32
units in the last place.
"""

import numpy as np

from privet.solvers.base.interface import Problem

UNIT_ROUNDOFF = 2.0**-53

_ROUNDINGS_OF_A_RESIDUAL = 64  # besides one per score of the record


def rounding_besides_sums(problem: Problem, lipschitz: float, weights_norm: float, ridge: float = 0.0) -> float:
    """Return a bound on the error of a computed mean gradient, except for that of the sum over records.

    Parameters
    ----------
    problem : Problem
        The objective.
    lipschitz : float
        Bound on the gradient of one record's loss, perhaps after clipping.
    weights_norm : float
        Bound on the norm of the weights at which the gradient is computed.
    ridge : float
        Strength of an additional ridge penalty.

    Notes
    -----
    The score of a row of d entries errs by at most (d + 8) roundoffs times the norms of the row and the weights. This
    changes a residual by up to the curvature times as much, as does the rounding of margins near 1. The residual itself
    is rounded relative to its bound, before it is clipped. Division by the number of records, the gradients of
    penalties and the final additions take at most 8 roundings.
    """
    rows, start = problem.rows, problem.start()
    n_scores = start.size // max(rows.dimension, 1)
    slope_at_start = float(np.linalg.norm(problem.regulariser.gradient(start)))
    curvature = problem.objective.curvature_bound * rows.norm_bound
    penalty = problem.regulariser.smoothness + ridge
    largest = max(lipschitz, problem.lipschitz) if problem.objective.has_bounded_gradient else lipschitz
    in_residuals = (_ROUNDINGS_OF_A_RESIDUAL + n_scores + 8) * largest
    in_scores = curvature * ((rows.dimension + 8) * rows.reach * weights_norm + 8)
    in_penalties = 16 * penalty * weights_norm + 8 * slope_at_start
    return 1.01 * UNIT_ROUNDOFF * (in_residuals + in_scores + in_penalties)
