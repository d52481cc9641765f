"""A teacher of selected features: features are chosen privately, a convex teacher of these scores public rows.

A form of DPSL-KT (L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning", UCLA 2021) whose
guarantee holds (docs/errata.md (j)). The choice is what makes a sparse teacher unstable, so it is made by peeling,
with noise. Given the features, the teacher is the minimiser of a strongly convex objective, which moves little.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.objectives import L2
from privet.plans.adaptive import AdaptivePlan
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.minimise import minimise
from privet.solvers.base.sparsity import check_support, checked_entry_bound, clipped_total
from privet.solvers.knowledge_transfer import PublicFeatures, check_features, fitted_student, transfer_stability
from privet.solvers.minimiser_perturbation import minimiser_stability


def selected_teacher(
    problem: Problem,
    run: Run[AdaptivePlan],
    *,
    features: PublicFeatures,
    n_nonzero: int,
    entry_bound: float,
    score_noise: float | None = None,
    selection_share: float = 0.5,
    steps: int = 100,
) -> Release:
    """Choose features privately, then release a teacher's scores of public rows with noise, and the student.

    Parameters
    ----------
    problem : Problem
        The problem of the teacher: a convex Lipschitz loss of one score per record, and an L2 penalty. Features are
        chosen by the sums of their products with the residuals of the zero model.
    run : Run of an AdaptivePlan
        The budget. Progress is reported after the choice, after the teacher and after the student.
    features, n_nonzero, steps
        As for :func:`~privet.solvers.knowledge_transfer`. The student uses the chosen columns of the public rows.
    entry_bound : float
        Bound on the absolute value of every entry of the rows. A larger entry raises an error. Rows of the chosen
        features are scaled down to norm entry_bound sqrt(n_nonzero) if that is less than the bound on rows.
    score_noise : float or None
        The penalty is raised until the noise in the student's scores has about this standard deviation, at most to the
        curvature of the loss along an average column. None means that it is not raised.
    selection_share : float
        Share of the squared price, mu^2, that the choice takes.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, by adaptive composition, under replace-one adjacency. One record contributes at
    most its residual times its largest entry to each sum from which features are chosen, which is at most
    L0 * entry_bound for residuals of at most L0. The chosen features are then public. The rows of these columns are
    bounded again, each separately, and the teacher is certified, so its scores move by at most the operator norm of the
    chosen columns of the public rows times 2L/(n m) + 2 tolerance/m: half of this is the bound of one record. The
    student uses only noisy scores and public rows.
    """
    plan, source, d = run.plan, run.source, problem.rows.n_features
    check_support(problem, n_nonzero)
    count("steps", steps)
    check_features(problem, features)
    entry_bound = checked_entry_bound(problem, entry_bound)
    if not isinstance(problem.regulariser, L2):
        raise ValueError(f"a teacher needs an L2 penalty, not {type(problem.regulariser).__name__}")
    if not 0 < selection_share < 1:
        raise ValueError(f"selection_share must lie between 0 and 1, got {selection_share!r}")
    if score_noise is not None:
        positive("score_noise", score_noise)
    residual, margin = problem.objective.residual_bound, 1 + problem.rows.rounding
    row_norm = min(problem.rows.row_norm, entry_bound * math.sqrt(n_nonzero))
    minimiser_stability(_restricted(problem, np.arange(n_nonzero), row_norm))  # raises before anything is spent
    bound = enforced(
        f"entries are bounded by {entry_bound:.6g}, residuals by {residual:.6g}, and rows of chosen features by "
        f"{row_norm:.6g}, and the teacher is certified"
    )
    released = "the features chosen, the teacher's scores of public rows with noise, and the student"
    guarantee = run.guarantee(bound=bound, released=released)
    prices = [plan.mu * math.sqrt(share) * (1 - 1e-12) for share in (selection_share, 1 - selection_share)]
    weights = problem.start()
    with plan.open(source) as purse:
        sums = np.abs(clipped_total(problem, weights, residual)[:d])
        chosen = purse.noisy_top(sums, residual * entry_bound * margin, prices[0], n_nonzero)
        run.report(1, 3)
        part, public = _restricted(problem, chosen, row_norm), _columns(features, chosen)
        if score_noise is not None:
            part = _with_penalty(part, public, score_noise * prices[1])
        trace: dict[str, Any] = {"chosen": chosen, "alpha": part.strong_convexity}
        if public.operator_norm > 0:  # otherwise all scores are zero, and so is the student
            stability = transfer_stability(part, public)
            teacher = minimise(part, tolerance=stability.minimiser.tolerance)
            labels = purse.noisy(public.rows.scores(teacher), stability.sensitivity / 2, prices[1])
            run.report(2, 3)
            weights[np.append(chosen, np.arange(d, problem.rows.dimension))] = fitted_student(
                public, labels, n_nonzero=n_nonzero, steps=steps
            )
            trace |= {"labels": labels, "sensitivity": stability.sensitivity}
    run.report(3, 3)
    return Release(weights, guarantee, trace)


def _restricted(problem: Problem, chosen: NDArray[np.int64], row_norm: float) -> Problem:
    return replace(problem, rows=problem.rows.columns(chosen, row_norm))


def _columns(features: PublicFeatures, chosen: NDArray[np.int64]) -> PublicFeatures:
    return PublicFeatures(features.X[:, chosen], features.intercept)


def _with_penalty(problem: Problem, public: PublicFeatures, tolerated: float) -> Problem:
    """Return the problem with a penalty at which a record moves the student's scores by about ``tolerated`` at most."""
    rows = public.rows
    # A student of all columns averages the noise of m scores.
    moved = public.operator_norm * math.sqrt(rows.dimension / rows.n) * 2 * problem.lipschitz / problem.rows.n
    wanted = min(moved / tolerated, problem.objective.start_curvature * public.mean_square)
    return replace(problem, regulariser=L2(max(wanted, problem.strong_convexity)))
