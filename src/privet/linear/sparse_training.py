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

from privet.linear.defaults import Choice, default_clip, longest_step, objective_alpha, precision
from privet.objectives import L2, Shifted
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Budget, Guarantee, NoiseSource, compose, enforced, gdp_mu
from privet.solvers import AlignedStep, Problem, Progress, Release
from privet.solvers.base.sparsity import thresholded
from privet.solvers.frank_wolfe import frank_wolfe
from privet.solvers.hard_threshold import hard_threshold, peeled_threshold
from privet.solvers.knowledge_transfer import PublicFeatures, knowledge_transfer, transfer_stability
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
        return self.problem.objective.has_bounded_gradient

    @property
    def met_norm(self) -> float:
        """The longest part of a row that weights of few features meet, the intercept's column included."""
        rows = self.problem.rows
        return math.hypot(min(rows.row_norm, self.entry_bound * math.sqrt(self.n_nonzero)), rows.intercept)

    @property
    def reached(self) -> float:
        """How well the budget can tell the features that matter from those that do not: see :func:`legibility`."""
        rows = self.problem.rows
        return legibility(self.budget, rows.n, rows.n_features, self.n_nonzero, rows.row_norm / self.entry_bound)


@dataclass(frozen=True)
class Method:
    """A way to train a sparse model, and whether it learns from public rows too."""

    train: Callable[[SparseTask], Release]
    uses_public: bool = False


# ------------------------------------------------------------------------------------------------- how many features

WANTED_LEGIBILITY = 16.0


def legibility(budget: Budget, n: int, n_features: int, n_nonzero: int, norm_in_entries: float) -> float:
    """Return n mu q / (s log(2 d)): the sums that s features of d are chosen by, against the noise of the choice.

    Where s independent features share the variance of the target, the sum of one is of the order of n q / sqrt(s)
    largest entries; the largest of d noises, at a price of mu / sqrt(s) each, is of the order of sqrt(s) log(2 d) / mu
    of them. q = min(1, sqrt(3/d) R/e) is the root mean square of a feature over rows of norm R that are spread evenly,
    against that of entries spread evenly up to their bound e; ``norm_in_entries`` is R/e.
    """
    spread = min(1.0, math.sqrt(3 / n_features) * norm_in_entries)
    return n * gdp_mu(budget) * spread / (n_nonzero * math.log(2 * n_features))


def default_n_nonzero(budget: Budget, n: int, n_features: int, norm_in_entries: float) -> int:
    """Return as many features as the budget can choose among all with a legibility of 16; at least one."""
    affordable = legibility(budget, n, n_features, 1, norm_in_entries) / WANTED_LEGIBILITY
    return int(max(1, min(n_features, round(min(affordable, n_features)))))


# ------------------------------------------------------------------------------------------------------------- peeling

_FIRST_CLIP, _CLIP_DECAY, _LAST_CLIP = 0.6, 2 / 3, 0.06  # of the bound of the target
_MEAN_SHARE = 0.02  # of the squared price, for the mean of the targets
_RAREST = 0.02  # class that counts as such
_NUMBER_ROUNDS = ((5.0, 1), (8.0, 2), (30.0, 4), (1000.0, 6), (math.inf, 12))  # below this legibility, so many rounds
_CLASS_ROUNDS = ((15.0, 1), (40.0, 2), (100.0, 4), (1000.0, 6), (math.inf, 12))


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
    """Choose features privately, then measure the gradient of those alone, in a few rounds.

    With an intercept, a noisy mean of the targets comes first, and scores start there: features are chosen by their
    correlation with residuals, and where these have a mean, the largest features look like the best.
    """
    problem, mu = task.problem, gdp_mu(task.budget)
    rounds = task.max_iter or peeling_rounds(task.reached, task.is_bounded)
    bound = problem.objective.residual_bound
    options: dict[str, Any] = {
        "n_nonzero": task.n_nonzero,
        "entry_bound": task.entry_bound,
        "residual_clips": [bound] * rounds if task.is_bounded else residual_clips(rounds, task.scale),
        **task.common,
    }
    if not problem.rows.intercept:
        return peeled_threshold(problem, AdaptivePlan(mu), **options)
    first, rest = (AdaptivePlan(mu * math.sqrt(share) * (1 - 1e-12)) for share in (_MEAN_SHARE, 1 - _MEAN_SHARE))
    offset, guarantee = _noisy_start(task, first)
    shifted = replace(problem, objective=Shifted(problem.objective, offset))
    release = peeled_threshold(shifted, rest, **options)
    weights = release.weights.copy()
    weights[-1] += offset / problem.rows.intercept
    return replace(release, weights=weights, guarantee=compose([guarantee, release.guarantee], task.budget.delta))


def _noisy_start(task: SparseTask, plan: AdaptivePlan) -> tuple[float, Guarantee]:
    """Return the score of the noisy mean of the targets, which are 0 and 1 or within the scale of 0."""
    targets, n = task.problem.targets, task.problem.rows.n
    low, half = (0.0, 0.5) if task.is_bounded else (-task.scale, task.scale)
    margin = 1 + task.problem.rows.rounding
    with plan.open(task.source) as purse:
        # Targets less the middle of their interval lie within half of its width.
        total = purse.noisy(np.array([(targets - (low + half)).sum()]), half * margin, plan.mu)
    share = min(max(float(total[0]) / (2 * half * n) + 0.5, _RAREST), 1 - _RAREST)
    offset = math.log(share / (1 - share)) if task.is_bounded else low + 2 * half * share
    bound = enforced(f"targets lie within an interval of width {2 * half:g}")
    return offset, plan.guarantee(task.budget.delta, bound=bound, released="a noisy mean of the targets")


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

_LABEL_NOISE = 0.25  # that a student's scores may keep, in units of the scale


def _bounded_problem(task: SparseTask, alpha: float = 0.0) -> Problem:
    """Return the problem with a loss of bounded gradients, and a penalty of at least ``alpha``."""
    objective = task.problem.objective.with_bounded_gradient(task.scale)
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
