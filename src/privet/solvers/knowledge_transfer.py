"""Knowledge transfer: a teacher learns from private records and scores public rows, a sparse student learns from that.

DPSL-KT, Algorithm 2 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021). Its
teacher is sparse and not private, and how far it can move between neighbours is not what Theorem 3.3.3 says. Two forms
whose guarantees hold: the teacher is private itself, and its scores are free (:func:`student_of`); or it is the
minimiser of a strongly convex objective, whose scores move little, and get noise (:func:`knowledge_transfer`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import count, positive
from privet.objectives import L2, BoundedRows, Squared
from privet.objectives.operator_norm import operator_norm
from privet.objectives.rows import LARGEST_NORM
from privet.plans.output import OutputPlan
from privet.plans.stabilities.transfer import TransferStability
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.minimise import minimise
from privet.solvers.base.problem import Problem
from privet.solvers.base.release import Release
from privet.solvers.base.run import Run
from privet.solvers.base.sparsity import check_support
from privet.solvers.ight import ight
from privet.solvers.minimiser_perturbation import minimiser_stability

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class PublicFeatures:
    """Rows that a teacher scores and a student learns from: public, or synthetic. They owe nothing to private records.

    Parameters
    ----------
    X : array or CSR matrix of shape (m, d), float32 or float64
        Must not be changed afterwards. A sparse matrix is never densified.
    intercept : float
        Value of the constant column, which must be that of the private rows; 0 for none.
    """

    X: Any
    intercept: float = 0.0

    @cached_property
    def rows(self) -> BoundedRows:
        """The rows with their constant column, at their full length."""
        return BoundedRows(self.X, LARGEST_NORM, self.intercept)

    @cached_property
    def operator_norm(self) -> float:
        """Certified bound on |X v| / |v|, constant column included (for which a copy is made). Computed once."""
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
    """Release a teacher's scores of public rows with noise, once, and the sparse weights that fit them.

    Parameters
    ----------
    problem : Problem
        Of the teacher: a convex Lipschitz loss of one score a record, and a strongly convex regulariser.
    run : Run of an OutputPlan
        Of a :class:`~privet.plans.stabilities.transfer.TransferStability`, which :func:`transfer_stability` makes.
    features : PublicFeatures
        What is scored. With the unit matrix, this is a thresholded :func:`minimiser_perturbation`.
    n_nonzero : int
        How many features of the student have a weight. An intercept has one besides.
    steps : int
        At most so many of the student.

    Formal guarantees
    -----------------
    The plan's, for a problem and public rows with the constants of its stability; a mismatch is refused. The teacher is
    certified to have a gradient within the tolerance, so that its scores move by at most the operator norm of the
    public rows times 2L/(n m) + 2 tolerance/m when a record is replaced. The student sees noisy scores and public rows
    only.
    """
    plan, stability = run.plan, run.plan.stability
    check_support(problem, n_nonzero)
    count("steps", steps)
    _check_features(problem, features)
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
    """Return the sparse student of a private teacher, which learns from its scores of public rows.

    Formal guarantees
    -----------------
    The teacher's: its weights are private, and all the rest is post-processing of these and of public rows.
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

    Computed scores err by at most u (d + 8) |X~|_F |w|, and |w| <= (L + tolerance)/m for a penalty (m/2) |w|^2: as the
    minimiser moves by at least that over n, 2 u (d + 8) n |X~|_F more than the operator norm makes room for it.
    """
    _check_features(problem, features)
    if not isinstance(problem.regulariser, L2):
        raise ValueError(f"a teacher has an L2 penalty, not a {type(problem.regulariser).__name__}")
    minimiser, rows = minimiser_stability(problem, tolerance), features.rows
    frobenius = float(np.linalg.norm(rows.norms()))
    rounding = 2 * _UNIT_ROUNDOFF * (rows.dimension + 8) * problem.rows.n * frobenius
    norm = positive("the operator norm of public features", features.operator_norm)
    return TransferStability(minimiser, norm + rounding)


def _check_features(problem: Problem, features: PublicFeatures) -> None:
    own, public = problem.rows, features.rows
    if (public.n_features, public.intercept) != (own.n_features, own.intercept):
        raise ValueError(
            f"public rows of {public.n_features} features and intercept {public.intercept:g} do not fit private ones "
            f"of {own.n_features} and {own.intercept:g}"
        )


def fitted_student(features: PublicFeatures, labels: NDArray[Any], *, n_nonzero: int, steps: int) -> NDArray[Any]:
    """Return sparse weights that fit scores of public rows."""
    return ight(Problem(Squared(), L2(0.0), features.rows, labels), n_nonzero=n_nonzero, steps=steps)
