"""What is public of a problem whose rows are spread over several parties."""

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

    Every row weighs the same, whoever holds it: the released model is one of the pooled data. (The dissertation weighs
    *parties* alike; where all have the same number of rows, that is the same, and elsewhere it needs more noise.)

    Parameters
    ----------
    objective, regulariser
        As of a :class:`~privet.solvers.base.problem.Problem`.
    counts : tuple of int
        Number of rows of each party, in order; 0 for one that brings none. Public: neighbours differ in the *values* of
        one row.
    row_norm, intercept : float
        Public bound on the rows, which each party enforces on its own, and the value of their constant column.
    n_features : int
        Number of columns, the constant one not included.
    """

    objective: GeneralisedLinear
    regulariser: Regulariser
    counts: tuple[int, ...]
    row_norm: float
    intercept: float
    n_features: int

    def __post_init__(self) -> None:
        for each in self.counts:
            count("the number of a party's rows", each, at_least=0)
        if not self.n:
            raise ValueError("no party brings any rows")

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> "JointProblem":
        """Return the public side of parties' problems, which must agree on everything but rows and targets."""
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
                    "parties differ in the bound of rows, the intercept, the columns, the loss or the regulariser"
                )
        counts = tuple(problem.rows.n for problem in problems)
        rows = first.rows
        return cls(first.objective, first.regulariser, counts, rows.row_norm, rows.intercept, rows.n_features)

    def local(self, X: Any, targets: NDArray[Any]) -> Problem:
        """Return one party's side: its rows, bounded, and its targets."""
        return Problem(self.objective, self.regulariser, BoundedRows(X, self.row_norm, self.intercept), targets)

    def of_zeros(self, n: int) -> Problem:
        """Return the problem of a party with n rows of zeros, which take no room: it has the constants of any other."""
        return self.local(sparse.csr_array((n, self.n_features)), np.zeros(n))

    @property
    def n(self) -> int:
        """Number of rows of all parties."""
        return sum(self.counts)

    @property
    def largest_norm(self) -> float:
        """Norm of the longest row, the constant column included."""
        return math.hypot(self.row_norm, self.intercept)

    @property
    def norm_bound(self) -> float:
        """What one row weighs in a party's sum, the rounding of sums included: that of the largest party's."""
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
        """Number of columns, the constant one included."""
        return self.n_features + (1 if self.intercept else 0)

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return int(self.start().size)

    def start(self) -> NDArray[Any]:
        """Return zero weights."""
        return self.objective.start(self.dimension)
