"""What solvers of sparse models share: thresholds, and checks that run before any budget is spent."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.solvers.base.interface import Problem


def thresholded(weights: NDArray[Any], n_nonzero: int, n_features: int) -> NDArray[Any]:
    """Return the weights with all but the ``n_nonzero`` largest features set to zero; an intercept is kept."""
    if n_nonzero >= n_features:
        return weights
    result = weights.copy()
    result[np.argpartition(-np.abs(weights[:n_features]), n_nonzero - 1)[n_nonzero:]] = 0.0
    return result


def check_one_score(problem: Problem) -> None:
    """Raise unless the model has one score per record."""
    if problem.start().ndim != 1:
        raise ValueError("sparse solvers need models with one score per record: binary classes or a regression")


def check_support(problem: Problem, n_nonzero: int) -> None:
    """Raise unless the model has one score per record and at least ``n_nonzero`` features."""
    check_one_score(problem)
    if count("n_nonzero", n_nonzero) > problem.rows.n_features:
        raise ValueError(f"n_nonzero = {n_nonzero} features cannot be kept of {problem.rows.n_features}")


def checked_entry_bound(problem: Problem, entry_bound: float) -> float:
    """Return the bound on entries, or the bound on rows if it is smaller. Raise if an entry exceeds it."""
    count("the number of records", problem.rows.n)
    if problem.rows.largest_entry > positive("entry_bound", entry_bound):
        raise ValueError(f"an entry of the rows exceeds entry_bound = {entry_bound:g}: clip entries to it first")
    return min(entry_bound, problem.rows.row_norm)


def clipped_total(problem: Problem, weights: NDArray[Any], clip: float) -> NDArray[Any]:
    """Return the sum over records of row times residual, with residuals clipped to ``clip``."""
    residuals = problem.objective.residuals(problem.rows.scores(weights), problem.targets)
    return problem.rows.combine(np.clip(residuals, -clip, clip))


def rounding_of(shift: NDArray[Any]) -> float:
    """Return how much rounding can increase the distance of two sums when ``shift`` is added to both."""
    return 2.0**-52 * float(np.max(np.abs(shift), initial=0.0))


def kept(iterates: list[NDArray[Any]]) -> dict[str, Any]:
    """Return the entry of the trace for iterates, if there are any."""
    return {"iterates": iterates} if iterates else {}
