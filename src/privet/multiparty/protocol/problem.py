"""The public part of a problem whose rows are spread over several parties."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import count
from privet.objectives import BoundedRows, GeneralisedLinear, Regulariser
from privet.objectives.rows import rounding_of_sums
from privet.solvers.base.problem import Problem


@dataclass(frozen=True)
class JointProblem:
    """Minimise the mean loss over the rows of all parties plus a regulariser.

    Every row has the same weight, whichever party holds it, so the released model is one of the pooled data. (The
    dissertation gives every *party* the same weight. This is the same if all have equally many rows, and needs more
    noise otherwise.)

    Parameters
    ----------
    objective, regulariser
        As in a :class:`~privet.solvers.base.problem.Problem`.
    counts : tuple of int
        Number of rows of each party, in order; 0 for a party that brings none. The numbers are public, because
        neighbouring tables differ in the *values* of one row.
    row_norm, intercept : float
        Public bound on the norm of a row, which each party enforces, and the value of the constant column.
    n_features : int
        Number of columns without the constant column.
    """

    objective: GeneralisedLinear
    regulariser: Regulariser
    counts: tuple[int, ...]
    row_norm: float
    intercept: float
    n_features: int

    def __post_init__(self) -> None:
        for each in self.counts:
            count("the number of rows of a party", each, at_least=0)
        if not self.n:
            raise ValueError("No party brings any rows. At least one must.")

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> "JointProblem":
        """Return the public part of the parties' problems, which may differ only in their rows and targets."""
        first = problems[0]
        for other in problems:
            alike = (other.rows.row_norm, other.rows.intercept, other.rows.n_features) == (
                first.rows.row_norm,
                first.rows.intercept,
                first.rows.n_features,
            )
            alike = alike and type(other.objective) is type(first.objective)
            if not alike or vars(other.objective) != vars(first.objective) or other.regulariser != first.regulariser:
                raise ValueError(
                    "The problems of the parties differ in row_norm, intercept, columns, loss or regulariser."
                )
        counts = tuple(problem.rows.n for problem in problems)
        rows = first.rows
        return cls(first.objective, first.regulariser, counts, rows.row_norm, rows.intercept, rows.n_features)

    def local(self, X: Any, targets: NDArray[Any]) -> Problem:
        """Return one party's problem: its bounded rows and its targets."""
        return Problem(self.objective, self.regulariser, BoundedRows(X, self.row_norm, self.intercept), targets)

    def of_zeros(self, n: int) -> Problem:
        """Return the problem of n rows of zeros, which has the constants of any other n rows and needs no memory."""
        return self.local(sparse.csr_array((n, self.n_features)), np.zeros(n))

    @property
    def n(self) -> int:
        """Number of rows of all parties."""
        return sum(self.counts)

    @property
    def largest_norm(self) -> float:
        """Largest norm of a row, including the constant column."""
        return math.hypot(self.row_norm, self.intercept)

    @property
    def norm_bound(self) -> float:
        """Largest norm of a row's contribution to a party's sum, including the floating-point rounding."""
        return self.largest_norm * (1 + rounding_of_sums(max(self.counts), self.dimension))

    @property
    def lipschitz(self) -> float:
        """Bound on the gradient of one record's loss."""
        return self.objective.lipschitz(self.norm_bound)

    @property
    def smoothness(self) -> float:
        """Smoothness of the regularised objective."""
        return self.objective.smoothness(self.largest_norm) + self.regulariser.smoothness

    @property
    def dimension(self) -> int:
        """Number of columns, including the constant column."""
        return self.n_features + (1 if self.intercept else 0)

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return int(self.start().size)

    def start(self) -> NDArray[Any]:
        """Return zero weights."""
        return self.objective.start(self.dimension)
