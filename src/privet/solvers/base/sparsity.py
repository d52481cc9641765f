"""What solvers of sparse models share: thresholds, and checks before any budget is spent."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.solvers.base.problem import Problem


def thresholded(weights: NDArray[Any], n_nonzero: int, n_features: int) -> NDArray[Any]:
    """Return the weights with all features but the largest set to zero; what follows the features is kept."""
    if n_nonzero >= n_features:
        return weights
    result = weights.copy()
    result[np.argpartition(-np.abs(weights[:n_features]), n_nonzero - 1)[n_nonzero:]] = 0.0
    return result


def check_one_score(problem: Problem) -> None:
    """Raise unless each record has one score."""
    if problem.start().ndim != 1:
        raise ValueError("sparse solvers take models of one score a record: binary classes, or a regression")


def check_support(problem: Problem, n_nonzero: int) -> None:
    """Raise unless so many features can be kept."""
    check_one_score(problem)
    if count("n_nonzero", n_nonzero) > problem.rows.n_features:
        raise ValueError(f"n_nonzero = {n_nonzero} features cannot be kept of {problem.rows.n_features}")


def checked_entry_bound(problem: Problem, entry_bound: float) -> float:
    """Return the bound on entries, which no entry of the table may exceed, or that on whole rows if it is less."""
    count("the number of records", problem.rows.n)
    if problem.rows.largest_entry > positive("entry_bound", entry_bound):
        raise ValueError(f"an entry of the rows exceeds entry_bound = {entry_bound:g}: clip entries to it first")
    return min(entry_bound, problem.rows.row_norm)


def clipped_total(problem: Problem, weights: NDArray[Any], clip: float) -> NDArray[Any]:
    """Return the sum over records of row times residual, residuals clipped to ``clip``."""
    residuals = problem.objective.residuals(problem.rows.scores(weights), problem.targets)
    return problem.rows.combine(np.clip(residuals, -clip, clip))


def rounding_of(shift: NDArray[Any]) -> float:
    """Return how much farther apart two sums may come to lie when the same public numbers are added to both."""
    return 2.0**-52 * float(np.max(np.abs(shift), initial=0.0))


def kept(iterates: list[NDArray[Any]]) -> dict[str, Any]:
    """Return what the trace says of iterates."""
    return {"iterates": iterates} if iterates else {}
