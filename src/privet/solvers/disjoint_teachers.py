"""Disjoint teachers: each learns from its own records, and a sparse student fits the noisy mean of their scores.

A form of DPSL-KT (L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning", UCLA 2021) whose
guarantee holds for sparse teachers (docs/errata.md (j)), as in PATE (Papernot et al., "Semi-supervised Knowledge
Transfer for Deep Learning from Private Training Data", 2017).
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.plans.output import OutputPlan
from privet.plans.stabilities.disjoint import DisjointStability
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.rounding import UNIT_ROUNDOFF
from privet.solvers.base.sparsity import check_support
from privet.solvers.ight import ight
from privet.solvers.knowledge_transfer import PublicFeatures, check_features, fitted_student


def disjoint_teachers(
    problem: Problem,
    run: Run[OutputPlan],
    *,
    features: PublicFeatures,
    n_nonzero: int,
    steps: int = 100,
    teacher_steps: int = 10,
) -> Release:
    """Release the noisy mean of the scores that disjoint teachers give public rows, and the student that fits them.

    Parameters
    ----------
    problem : Problem
        The problem of the teachers, with one score per record. The loss need not be bounded, and the teachers, trained
        by :func:`~privet.solvers.ight`, are sparse.
    run : Run of an OutputPlan
        The plan is made for the stability that :func:`disjoint_stability` returns. Progress is reported after each
        teacher and after the student.
    features, n_nonzero, steps
        As for :func:`~privet.solvers.knowledge_transfer`. The teachers keep ``n_nonzero`` features, too.
    teacher_steps : int
        Largest number of steps of each teacher.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, under replace-one adjacency, for public rows with the constants of its
    stability; a mismatch raises an error. Records are divided among the teachers at random, independently of their
    values. A replaced record changes the weights of one of k teachers, which are clipped to norm R, so the mean of the
    scores moves by at most 2R |X~| / k. The student uses only noisy scores and public rows.
    """
    plan, stability, n = run.plan, run.plan.stability, problem.rows.n
    check_support(problem, n_nonzero)
    count("steps", steps)
    count("teacher_steps", teacher_steps)
    check_features(problem, features)
    if not isinstance(stability, DisjointStability):
        raise TypeError(f"disjoint_teachers runs a DisjointStability plan, not {type(stability).__name__}")
    k, radius = stability.teachers, stability.radius
    if disjoint_stability(features, teachers=k, radius=radius) != stability:
        raise ValueError("the plan was made for other public rows: make it with disjoint_stability for these")
    if k > n:
        raise ValueError(f"{n} records cannot be divided among {k} teachers: use fewer teachers")
    released = "the mean of the teachers' scores of public rows, with noise added once, and the student"
    guarantee = run.guarantee(bound=enforced(stability.in_words()), released=released)
    total = problem.start()
    for done, block in enumerate(np.array_split(run.source.permutation(n), k), start=1):
        part = replace(problem, rows=problem.rows.take(block), targets=problem.targets[block])
        total += within_radius(ight(part, n_nonzero=n_nonzero, steps=teacher_steps), radius)
        run.report(done, k + 1)
    labels = plan.noisy(features.rows.scores(total / k), run.source)
    weights = fitted_student(features, labels, n_nonzero=n_nonzero, steps=steps)
    run.report(k + 1, k + 1)
    trace = {"noise_scale": plan.scale, "sensitivity": stability.sensitivity, "teachers": k, "labels": labels}
    return Release(weights, guarantee, trace)


def disjoint_stability(features: PublicFeatures, *, teachers: int, radius: float) -> DisjointStability:
    """Return the stability of the mean of disjoint teachers' scores, from public numbers and public rows.

    The rounding error of the sum of k weight vectors of norm R, and of the scores of their mean, is at most
    u (d + k + 8) |X~|_F R. The bound 2 R |X~| / k holds for exact numbers, so adding u (d + k + 8) k |X~|_F to
    the operator norm would cover the rounding of two tables. Twice that is added.
    """
    count("teachers", teachers)
    rows = features.rows
    frobenius = float(np.linalg.norm(rows.norms()))
    rounding = 2 * UNIT_ROUNDOFF * (rows.dimension + teachers + 8) * teachers * frobenius
    norm = positive("the operator norm of public features", features.operator_norm)
    return DisjointStability(teachers, positive("radius", radius), norm + rounding)


def within_radius(weights: NDArray[Any], radius: float) -> NDArray[Any]:
    """Return weights scaled down to norm at most ``radius``; zero if they are not finite."""
    largest = float(np.max(np.abs(weights), initial=0.0))
    if not np.isfinite(largest):
        return np.zeros_like(weights)
    # The largest entry is divided out first, so that squares cannot overflow.
    norm = largest * float(np.linalg.norm(weights / largest)) if largest > 0 else 0.0
    if norm <= radius * (1 - 1e-12):
        return weights
    # The margin is more than the rounding errors of the norm and of the product.
    return np.asarray(weights / largest * (radius * (1 - 1e-12) * (largest / norm)))
