"""Methods of sparse models: how each makes its plan from a budget, what it runs, and defaults that cost no privacy.

Formal guarantees
-----------------
Everything here is computed from n, dimensions, the budget and public constants. The guarantee is the plan's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from privet.linear.defaults import Choice, default_clip, longest_step, objective_alpha, precision
from privet.objectives import L2, Huber
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.solvers import AlignedStep, Problem, Progress, Release
from privet.solvers.frank_wolfe import frank_wolfe
from privet.solvers.hard_threshold import hard_threshold, peeled_threshold
from privet.solvers.knowledge_transfer import PublicFeatures, knowledge_transfer, transfer_stability
from privet.solvers.sparsity import thresholded
from privet.solvers.two_stage import two_stage


@dataclass(frozen=True)
class SparseTask:
    """A problem, its budget, and what the user set; None leaves the choice to the defaults.

    ``scale`` is the public scale of scores: 1 for classes, the bound of the target for numbers; ``worth`` is the part
    of it that counts. ``public`` are rows that need no protection.
    """

    problem: Problem
    budget: Budget
    source: NoiseSource
    n_nonzero: int
    entry_bound: float
    scale: float = 1.0
    worth: float = 1.0
    max_iter: int | None = None
    public: PublicFeatures | None = None
    progress: Progress | None = None

    @property
    def common(self) -> dict[str, Any]:
        """What every solver is given."""
        return {"delta": self.budget.delta, "source": self.source, "progress": self.progress}

    @property
    def is_bounded(self) -> bool:
        """Whether residuals have a bound of the loss's own, as those of classes have."""
        return math.isfinite(self.problem.objective.residual_bound)

    @property
    def met_norm(self) -> float:
        """The longest part of a row that weights of few features meet, the intercept's column included."""
        rows = self.problem.rows
        return math.hypot(min(rows.row_norm, self.entry_bound * math.sqrt(self.n_nonzero)), rows.intercept)

    @property
    def reached(self) -> float:
        """How well the budget can tell the features that matter from those that do not: see :func:`legibility`."""
        return legibility(self.budget, self.problem.rows.n, self.problem.rows.n_features, self.n_nonzero)


@dataclass(frozen=True)
class Method:
    """A way to train a sparse model, and whether it learns from public rows too."""

    train: Callable[[SparseTask], Release]
    uses_public: bool = False


# ------------------------------------------------------------------------------------------------- how many features

WANTED_LEGIBILITY = 16.0


def legibility(budget: Budget, n: int, n_features: int, n_nonzero: int) -> float:
    """Return n mu / (s log(2 d)): the sums that s features of d are chosen by, against the noise of the choice.

    Where s independent features share the variance of the target, the sum of one is of the order of n / sqrt(s); the
    largest of d noises, at a price of mu / sqrt(s) each, is of the order of sqrt(s) log(2 d) / mu.
    """
    return n * gdp_mu(budget) / (n_nonzero * math.log(2 * n_features))


def default_n_nonzero(budget: Budget, n: int, n_features: int) -> int:
    """Return as many features as the budget can choose among all with a legibility of 16; at least one."""
    affordable = legibility(budget, n, n_features, 1) / WANTED_LEGIBILITY
    return int(max(1, min(n_features, round(min(affordable, n_features)))))


# ------------------------------------------------------------------------------------------------------------- peeling

_FIRST_CLIP, _CLIP_DECAY, _LAST_CLIP = 0.6, 2 / 3, 0.06  # of the bound of the target
_NUMBER_ROUNDS = ((5.0, 1), (8.0, 2), (30.0, 4), (1000.0, 6), (math.inf, 12))  # below this legibility, so many rounds
_CLASS_ROUNDS = ((12.0, 1), (50.0, 2), (1000.0, 3), (math.inf, 6))


def peeling_rounds(reached: float, is_bounded: bool) -> int:
    """Return the number of rounds: each sees the data through more noise the more there are.

    Regressions gain more from later rounds, whose residuals, and so clips and noise, are smaller.
    """
    table = _CLASS_ROUNDS if is_bounded else _NUMBER_ROUNDS
    return next((rounds for limit, rounds in table if reached < limit), table[-1][1])


def residual_clips(rounds: int, scale: float) -> list[float]:
    """Return a regression's residual clips: few targets lie near their bound, and residuals fall as the model fits."""
    return [scale * max(_FIRST_CLIP * _CLIP_DECAY**done, _LAST_CLIP) for done in range(rounds)]


def by_peeling(task: SparseTask) -> Release:
    """Choose features privately, then measure the gradient of those alone, in a few rounds."""
    rounds = task.max_iter or peeling_rounds(task.reached, task.is_bounded)
    bound = task.problem.objective.residual_bound
    return peeled_threshold(
        task.problem,
        AdaptivePlan.for_budget(task.budget),
        n_nonzero=task.n_nonzero,
        entry_bound=task.entry_bound,
        residual_clips=[bound] * rounds if task.is_bounded else residual_clips(rounds, task.scale),
        **task.common,
    )


# ------------------------------------------------------------------------------------------------------ hard thresholds

_THRESHOLD_STEPS = 10


def by_hard_threshold(task: SparseTask) -> Release:
    """Descend along noisy gradients of all features, and keep the largest weights after each step."""
    problem, rows = task.problem, task.problem.rows
    reached = precision(task.budget, rows.n, rows.dimension)
    clip = min(default_clip(rows.row_norm, task.scale, reached), problem.lipschitz)
    steps = task.max_iter or _THRESHOLD_STEPS
    plan = GradientPlan.for_budget(
        task.budget,
        sampler=FullBatch(),
        steps=steps,
        clip_norm=clip if math.isfinite(clip) else rows.norm_bound * task.scale,
    )
    # What is kept are the largest weights, and so the largest noises.
    largest = math.sqrt(2 * math.log(2 * rows.n_features)) * plan.noise_std / rows.n
    rule = AlignedStep(
        first=1 / (problem.objective.curvature_bound * task.met_norm**2 + problem.regulariser.smoothness),
        longest=longest_step(largest, steps, task.met_norm, task.worth),
    )
    return hard_threshold(problem, plan, n_nonzero=task.n_nonzero, step_size=rule, **task.common)


# --------------------------------------------------------------------------------------------------------- Frank-Wolfe

_CLASS_SCORES, _NUMBER_SCORES = 2.0, 0.5  # sizes of scores to reach for, in units of the scale


def by_frank_wolfe(task: SparseTask) -> Release:
    """Walk towards privately chosen corners of an l1 ball, as many as there may be features."""
    rows, d = task.problem.rows, task.problem.rows.n_features
    scores = (_CLASS_SCORES if task.is_bounded else _NUMBER_SCORES) * task.scale
    largest = max(task.entry_bound, rows.intercept)
    release = frank_wolfe(
        task.problem,
        AdaptivePlan.for_budget(task.budget),
        l1_radius=math.sqrt(task.n_nonzero) * scores / largest,
        steps=task.max_iter or task.n_nonzero,
        entry_bound=task.entry_bound,
        residual_clip=task.problem.objective.residual_bound if task.is_bounded else _FIRST_CLIP * task.scale,
        **task.common,
    )
    return replace(release, weights=thresholded(release.weights, task.n_nonzero, d))


# ------------------------------------------------------------------------------------------------- methods of a minimum

_HUBER_SHARE = 0.25  # of the bound of the target: losses with a minimum to perturb have bounded gradients
_LABEL_NOISE = 0.25  # that a student's scores may keep, in units of the scale


def _bounded_problem(task: SparseTask, alpha: float = 0.0) -> Problem:
    """Return the problem with a loss of bounded gradients, and a penalty of at least ``alpha``."""
    objective = task.problem.objective if task.is_bounded else Huber(_HUBER_SHARE * task.scale)
    return replace(task.problem, objective=objective, regulariser=L2(max(task.problem.strong_convexity, alpha)))


def by_two_stage(task: SparseTask) -> Release:
    """Let blocks of records vote on the features, then tilt the objective of the chosen ones by noise."""
    problem, rows = _bounded_problem(task), task.problem.rows
    length = task.met_norm * (1 + rows.rounding)
    wanted = objective_alpha(
        Budget(task.budget.epsilon / 2, task.budget.delta / 2),
        lipschitz=problem.objective.lipschitz(length),
        smoothness=problem.objective.smoothness(length),
        n=rows.n,
        n_weights=task.n_nonzero + rows.dimension - rows.n_features,
        scale=task.scale,
        row_norm=task.met_norm,
    )
    return two_stage(
        problem,
        task.budget,
        n_nonzero=task.n_nonzero,
        entry_bound=task.entry_bound,
        vote_steps=task.max_iter or 1,
        added_alpha=max(wanted - problem.strong_convexity, 0.0),
        source=task.source,
        progress=task.progress,
    )


def by_knowledge_transfer(task: SparseTask) -> Release:
    """Let a convex teacher score public rows, add noise to the scores, and fit a sparse student to them."""
    assert task.public is not None
    public, problem = task.public, _bounded_problem(task)
    # A student of s features averages the noise of m scores: to about sqrt(s log(2 d) / m) of it.
    averaged = math.sqrt(task.n_nonzero * math.log(2 * problem.rows.n_features) / public.rows.n)
    moved = 2 * problem.lipschitz / problem.rows.n * public.operator_norm * min(averaged, 1.0)
    alpha = moved / (gdp_mu(task.budget) * _LABEL_NOISE * task.scale)
    problem = _bounded_problem(task, alpha)
    plan = OutputPlan.for_budget(task.budget, stability=transfer_stability(problem, public))
    release = knowledge_transfer(
        problem, plan, features=public, n_nonzero=task.n_nonzero, steps=task.max_iter or 100, **task.common
    )
    remark = f"the teacher's alpha is {problem.strong_convexity:.3g}, from public numbers and public rows"
    return replace(release, trace={**release.trace, "remark": remark})


SPARSE_METHODS: dict[str, Method] = {
    "peeling": Method(by_peeling),
    "hard_threshold": Method(by_hard_threshold),
    "frank_wolfe": Method(by_frank_wolfe),
    "two_stage": Method(by_two_stage),
    "knowledge_transfer": Method(by_knowledge_transfer, uses_public=True),
}


def choose_sparse_method(method: str, *, is_pure: bool) -> Choice:
    """Return the method to run; ``auto`` decides, and an impossible wish is refused."""
    names = list(SPARSE_METHODS)
    if method != "auto" and method not in SPARSE_METHODS:
        raise ValueError(f"method must be auto, {', '.join(names[:-1])} or {names[-1]}, got {method!r}")
    if is_pure:
        raise ValueError(
            f"delta = 0 asks for pure epsilon, but method={method!r} adds Gaussian noise, which gives no pure epsilon "
            "guarantee: set delta > 0, or leave it out for 1/n^1.1"
        )
    if method == "auto":
        return Choice("peeling", "noise on the features that are kept, and on their choice, is less than noise on all")
    return Choice(method, "asked for")


# --------------------------------------------------------------------------------------------------- bounds on entries


def bounded_entries(X: Any, feature_norm: float, entry_bound: float | None) -> Any:
    """Return rows without an entry beyond ``entry_bound``: larger ones are clipped to it, each by itself.

    Without a bound on entries, rows with an entry beyond ``feature_norm`` are scaled down until they have none: their
    directions stay. A sparse matrix stays sparse; what need not be changed is not copied.
    """
    if sparse.issparse(X):
        X = sparse.csr_array(X, dtype=np.float64)
        if not X.has_canonical_format:  # an entry that is stored in pieces is bounded as a whole
            X = X.copy()
            X.sum_duplicates()
        values = X.data
    else:
        X = values = np.asarray(X, dtype=np.float64)
    bound = feature_norm if entry_bound is None else entry_bound
    if max(np.max(values, initial=0.0), -np.min(values, initial=0.0)) <= bound:
        return X
    if entry_bound is not None:
        return _with_values(X, np.clip(values, -bound, bound))
    if sparse.issparse(X):
        largest = np.repeat(abs(X).max(axis=1).toarray(), np.diff(X.indptr))
    else:
        largest = np.abs(X).max(axis=1, keepdims=True)
    # The division comes first: a quotient of two entries is at most 1, whatever their size.
    return _with_values(X, np.where(largest > bound, values / np.maximum(largest, bound) * bound, values))


def in_the_ball(X: Any, row_norm: float) -> Any:
    """Return rows of bounded entries scaled down to the norm, as a matrix."""
    squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
    lengths = np.maximum(np.sqrt(squares), row_norm)
    if not (lengths > row_norm).any():
        return X
    if sparse.issparse(X):
        return _with_values(X, X.data * np.repeat(row_norm / lengths, np.diff(X.indptr)))
    return X * (row_norm / lengths)[:, None]


def _with_values(X: Any, values: Any) -> Any:
    return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape) if sparse.issparse(X) else values
