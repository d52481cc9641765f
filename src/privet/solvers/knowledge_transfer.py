"""Knowledge transfer: a teacher trained on private records scores public rows, and a sparse student fits the scores.

DPSL-KT, Algorithm 2 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021). Its
teacher is sparse and not private, and it can move further between neighbours than Theorem 3.3.3 says
(docs/errata.md (j)). There are four forms whose guarantees hold:

- the teacher is private itself, and its scores cost nothing (:func:`student_of`);
- the teacher is the minimiser of a strongly convex objective, whose scores move little, and noise is added to them
  (:func:`knowledge_transfer`);
- many teachers learn from disjoint records, and noise is added to the mean of their scores
  (:func:`~privet.solvers.disjoint_teachers`);
- features are chosen privately, and a convex teacher of these scores public rows
  (:func:`~privet.solvers.selected_teacher`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import LARGEST_NORM, count, positive
from privet.objectives import L2, BoundedRows, Squared
from privet.objectives.operator_norm import operator_norm
from privet.plans.output import OutputPlan
from privet.plans.stabilities.transfer import TransferStability
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.minimise import minimise
from privet.solvers.base.sparsity import check_support
from privet.solvers.ight import ight
from privet.solvers.minimiser_perturbation import minimiser_stability

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class PublicFeatures:
    """Public or synthetic rows that a teacher scores and a student learns from.

    They must not depend on private records.

    Parameters
    ----------
    X : array or CSR matrix of shape (m, d), float32 or float64
        The rows, which must not be changed afterwards. A sparse matrix is never densified.
    intercept : float
        Value of the constant column, the same as for the private rows; 0 for no such column.
    """

    X: Any
    intercept: float = 0.0

    @cached_property
    def rows(self) -> BoundedRows:
        """The rows with their constant column, not scaled down."""
        return BoundedRows(self.X, LARGEST_NORM, self.intercept)

    @cached_property
    def mean_square(self) -> float:
        """Mean square of an entry, including the constant column."""
        return float(np.mean(self.rows.norms() ** 2)) / self.rows.dimension

    @cached_property
    def operator_norm(self) -> float:
        """Certified bound on |X v| / |v|, computed once. With a constant column, this makes a copy of X."""
        if not self.intercept:
            return operator_norm(self.X)
        column = np.full((self.X.shape[0], 1), self.intercept)
        if sparse.issparse(self.X):
            return operator_norm(sparse.hstack([self.X, sparse.csr_array(column)], format="csr"))
        return operator_norm(np.hstack([self.X, column]))


def knowledge_transfer(
    problem: Problem,
    run: Run[OutputPlan],
    *,
    features: PublicFeatures,
    n_nonzero: int,
    steps: int = 100,
) -> Release:
    """Release a teacher's scores of public rows, with noise added once, and the sparse weights that fit them.

    Parameters
    ----------
    problem : Problem
        The problem of the teacher: a convex Lipschitz loss of one score per record, and a strongly convex regulariser.
    run : Run of an OutputPlan
        The plan is made for the stability that :func:`transfer_stability` returns. Progress is reported after the
        teacher and after the student.
    features : PublicFeatures
        The rows to score. With the unit matrix, this is :func:`minimiser_perturbation` with a threshold.
    n_nonzero : int
        How many features of the student have a weight, not counting an intercept.
    steps : int
        Largest number of steps of the student.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, for a problem and public rows with the constants of its stability; a mismatch
    raises an error. The gradient at the teacher is certified to be within the tolerance, so its scores move by at most
    the operator norm of the public rows times 2L/(n m) + 2 tolerance/m when a record is replaced. The student uses only
    noisy scores and public rows.
    """
    plan, stability = run.plan, run.plan.stability
    check_support(problem, n_nonzero)
    count("steps", steps)
    check_features(problem, features)
    if not isinstance(stability, TransferStability):
        raise TypeError(f"knowledge_transfer runs a TransferStability plan, not {type(stability).__name__}")
    if transfer_stability(problem, features, stability.minimiser.tolerance) != stability:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    bound = enforced(f"rows are bounded and the teacher is certified, so that {stability.in_words()}")
    released = "the teacher's scores of public rows, with noise added once, and the student that learnt from them"
    guarantee = run.guarantee(bound=bound, released=released)
    teacher = minimise(problem, tolerance=stability.minimiser.tolerance)
    labels = plan.noisy(features.rows.scores(teacher), run.source)
    run.report(1, 2)
    weights = fitted_student(features, labels, n_nonzero=n_nonzero, steps=steps)
    run.report(2, 2)
    trace = {"noise_scale": plan.scale, "sensitivity": stability.sensitivity, "labels": labels}
    return Release(weights, guarantee, trace)


def student_of(teacher: Release, features: PublicFeatures, *, n_nonzero: int, steps: int = 100) -> Release:
    """Return the sparse student of a private teacher, which is trained on the teacher's scores of public rows.

    Formal guarantees
    -----------------
    The teacher's: its weights are private, and everything else is post-processing of them and of public rows.
    """
    if teacher.weights.shape != (features.rows.dimension,):
        raise ValueError(f"weights of shape {teacher.weights.shape} do not score {features.rows.dimension} columns")
    labels = features.rows.scores(teacher.weights)
    return Release(
        fitted_student(features, labels, n_nonzero=n_nonzero, steps=steps),
        teacher.guarantee,
        {"labels": labels, **teacher.trace},
    )


def transfer_stability(problem: Problem, features: PublicFeatures, tolerance: float | None = None) -> TransferStability:
    """Return the stability of a convex teacher's scores, from public numbers and public rows.

    The rounding error of scores is at most u (d + 8) |X~|_F |w|, and |w| <= (L + tolerance)/m for a penalty
    (m/2) |w|^2. The bound on the minimiser is at least 2/n times that, so adding 2 u (d + 8) n |X~|_F to the operator
    norm covers the rounding.
    """
    check_features(problem, features)
    if not isinstance(problem.regulariser, L2):
        raise ValueError(f"a teacher needs an L2 penalty, not {type(problem.regulariser).__name__}")
    minimiser, rows = minimiser_stability(problem, tolerance), features.rows
    frobenius = float(np.linalg.norm(rows.norms()))
    rounding = 2 * _UNIT_ROUNDOFF * (rows.dimension + 8) * problem.rows.n * frobenius
    norm = positive("the operator norm of public features", features.operator_norm)
    return TransferStability(minimiser, norm + rounding)


def check_features(problem: Problem, features: PublicFeatures) -> None:
    """Raise unless public rows have the columns of the private rows."""
    own, public = problem.rows, features.rows
    if (public.n_features, public.intercept) != (own.n_features, own.intercept):
        raise ValueError(
            f"public rows with {public.n_features} features and intercept {public.intercept:g} do not match private "
            f"rows with {own.n_features} features and intercept {own.intercept:g}"
        )


def fitted_student(features: PublicFeatures, labels: NDArray[Any], *, n_nonzero: int, steps: int) -> NDArray[Any]:
    """Return sparse weights that fit scores of public rows."""
    return ight(Problem(Squared(), L2(0.0), features.rows, labels), n_nonzero=n_nonzero, steps=steps)
