"""Method ``knowledge_transfer``: a private teacher scores public rows, and a sparse student learns from the scores.

Formal guarantees
-----------------
The guarantee is that of the plan of the teacher. The teacher and all of its settings are chosen from n, dimensions, the
budget, public constants and public rows.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from privet.checks import positive
from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import bounded_problem, from_noisy_mean
from privet.linear.methods.hard_threshold import descend
from privet.plans import AdaptivePlan, OutputPlan
from privet.privacy import gdp_mu
from privet.solvers import (
    Problem,
    PublicFeatures,
    Release,
    disjoint_stability,
    disjoint_teachers,
    knowledge_transfer,
    selected_teacher,
    student_of,
    transfer_stability,
)

_STUDENT_STEPS = 100
# In units of the scale, for classes and for numbers: noise in the student's scores that the penalty of a teacher of all
# features, or of selected ones, allows; and the spread of scores to which the weights of disjoint teachers are clipped.
_NOISE_OF_ALL, _NOISE_OF_SELECTED, _SPREAD = (0.1, 0.035), (0.05, 0.015), (1.5, 0.35)
_SELECTION_SHARE = 0.6  # of the squared Gaussian-DP parameter: wrong features do more harm than inaccurate weights
_RECORDS = 4.0  # of a disjoint teacher, in units of s log(2 d), the number from which s features of d can be found
_LARGEST_SPREAD = 0.5  # of the scores of a regression, in units of the bound on the target
_SLIGHT_PENALTY = 1.0  # of the curvature: a teacher of all features with a larger penalty finds correlations only


@method(
    "knowledge_transfer",
    summary="a teacher's scores of public rows, from which a sparse student learns",
    is_sparse=True,
    uses=("teacher", "tpr"),
    uses_public=True,
    needs_public=True,
)
def train(task: Task) -> Release:
    """Let a teacher score public rows, and fit a sparse student to the scores."""
    positive("the operator norm of X_public", _public(task).operator_norm)
    name = _chosen_teacher(task) if task.teacher == "auto" else task.teacher
    release = from_noisy_mean(task, lambda rest: _plausible(TEACHERS[name](rest), rest))
    reason = "chosen from public numbers and rows" if task.teacher == "auto" else "asked for"
    return replace(release, trace={**release.trace, "remark": f"teacher {name!r} ({reason})"})


def _chosen_teacher(task: Task) -> str:
    """Return the teacher whose student has the smaller error, as far as public numbers tell.

    Noise on the scores of a teacher of all features grows with the norm of whole rows. If it is so slight that the
    penalty that hides a record is small, and public rows are at least as many as columns, this teacher finds features
    despite correlations between them. Otherwise it is better to select features first, which needs less noise. The
    other two are never chosen: 'disjoint' was never better than 'selected' (docs/sparse_models.md), and the student of
    a private teacher only repeats that teacher, which method='hard_threshold' trains without public rows.
    """
    public, problem = _public(task), bounded_problem(task)
    slight = _SLIGHT_PENALTY * problem.objective.start_curvature * public.mean_square
    is_enough = public.rows.n >= public.rows.dimension
    return "convex" if is_enough and _penalty_of_all(task, problem) <= slight else "selected"


def _of_private_teacher(task: Task) -> Release:
    return student_of(descend(task), _public(task), n_nonzero=task.n_nonzero, steps=_STUDENT_STEPS)


def _of_convex_teacher(task: Task) -> Release:
    public, problem = _public(task), bounded_problem(task)
    problem = bounded_problem(task, alpha=_penalty_of_all(task, problem))
    plan = OutputPlan.for_budget(task.budget, stability=transfer_stability(problem, public))
    steps = task.max_iter or _STUDENT_STEPS
    release = knowledge_transfer(problem, task.run(plan), features=public, n_nonzero=task.n_nonzero, steps=steps)
    return _unshrunk(release, public, problem, problem.strong_convexity)


def _of_disjoint_teachers(task: Task) -> Release:
    public, n = _public(task), task.problem.rows.n
    records = _RECORDS * task.n_nonzero * math.log(2 * public.rows.n_features)
    # Weights w of features of mean square q give scores of spread |w| sqrt(q).
    radius = _in_scale(_SPREAD, task) / math.sqrt(public.mean_square)
    stability = disjoint_stability(public, teachers=max(1, int(n / records)), radius=radius)
    plan = OutputPlan.for_budget(task.budget, stability=stability)
    steps = task.max_iter or _STUDENT_STEPS
    return disjoint_teachers(task.problem, task.run(plan), features=public, n_nonzero=task.n_nonzero, steps=steps)


def _of_selected_teacher(task: Task) -> Release:
    public, problem = _public(task), bounded_problem(task)
    release = selected_teacher(
        problem,
        task.run(AdaptivePlan.for_budget(task.budget)),
        features=public,
        n_nonzero=task.n_nonzero,
        entry_bound=task.entry_bound,
        score_noise=_in_scale(_NOISE_OF_SELECTED, task),
        selection_share=_SELECTION_SHARE,
        steps=task.max_iter or _STUDENT_STEPS,
    )
    return _unshrunk(release, public, problem, release.trace["alpha"])


TEACHERS: dict[str, Callable[[Task], Release]] = {
    "hard_threshold": _of_private_teacher,
    "convex": _of_convex_teacher,
    "disjoint": _of_disjoint_teachers,
    "selected": _of_selected_teacher,
}
"""Forms of DPSL-KT whose guarantees hold (docs/errata.md (j), A to D), by the names of their teachers."""


def _penalty_of_all(task: Task, problem: Problem) -> float:
    """Return the penalty at which the noise in the scores of a student of all features is tolerable."""
    public = _public(task)
    # A student of s features averages the noise of m scores, to about sqrt(s log(2 d) / m) of it.
    averaged = math.sqrt(task.n_nonzero * math.log(2 * problem.rows.n_features) / public.rows.n)
    moved = 2 * problem.lipschitz / problem.rows.n * public.operator_norm * min(averaged, 1.0)
    return moved / (gdp_mu(task.budget) * _in_scale(_NOISE_OF_ALL, task))


def _unshrunk(release: Release, public: PublicFeatures, problem: Problem, alpha: float) -> Release:
    """Return the release with weights divided by the share that a penalty leaves of them, along the student's scores.

    This uses public rows and the released weights only. Where the rows have the same mean square in all directions, a
    penalty alpha leaves the share c / (c + alpha) of the weights, for a loss of curvature c along them.
    """
    weights = release.weights
    along = public.rows.scores(weights)
    square = float(along @ along) / public.rows.n
    if square == 0:
        return release
    curvature = problem.objective.start_curvature * square / float(weights @ weights)
    return replace(release, weights=weights * (1 + alpha / curvature))


def _plausible(release: Release, task: Task) -> Release:
    """Return the release with weights of a regression scaled down if their scores of public rows exceed the targets.

    This uses public rows and the released weights only. Where noise dominates, it limits the harm.
    """
    public = _public(task)
    spread = float(np.linalg.norm(public.rows.scores(release.weights))) / math.sqrt(public.rows.n)
    if task.has_bounded_loss or spread <= _LARGEST_SPREAD * task.scale:
        return release
    return replace(release, weights=release.weights * (_LARGEST_SPREAD * task.scale / spread))


def _in_scale(shares: tuple[float, float], task: Task) -> float:
    return shares[not task.has_bounded_loss] * task.scale


def _public(task: Task) -> PublicFeatures:
    assert task.public_rows is not None
    return task.public_rows
