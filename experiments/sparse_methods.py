"""Shared code of sparse_synthetic.py and sparse_text.py: a sparse linear or logistic model by seven methods.

Nothing here looks at private data to set a parameter: all of them follow from n, d, s, public bounds and spreads, and
from the constants in Settings, which each script fixed by a few trials and states. The guarantee of
every private run is compared with its budget.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paper_knowledge_transfer import PaperTransferStability, paper_knowledge_transfer

from privet.objectives import L2, BoundedRows, Huber, Logistic, Squared, TamedLogistic
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.solvers import (
    Problem,
    PublicFeatures,
    Release,
    Run,
    frank_wolfe,
    hard_threshold,
    knowledge_transfer,
    peeled_threshold,
    student_of,
    transfer_stability,
    two_stage,
    two_stage_plan,
)
from privet.solvers.hard_threshold import SHARES
from privet.solvers.ight import ight

NOT_PRIVATE = "IGHT (not private)"
PEELING = "DP-IGHT, peeling"
BASELINES = ("Frank-Wolfe", "Two stage")
OURS = ("DP-IGHT", PEELING, "DPSL-KT (A)", "DPSL-KT (B)")
METHODS = (NOT_PRIVATE, *BASELINES, *OURS)
PRINTED = "DPSL-KT as printed (no valid guarantee)"


@dataclass(frozen=True)
class Peeling:
    """Rounds of peeling, the share of s that it keeps, and the residual clips. The last clip serves all later rounds.

    ``entries`` is the clip of entries in units of their bound, also for Frank-Wolfe. A smaller clip reduces the noise
    more than it reduces covariances.
    """

    rounds: int
    share: float = 1.0
    clips: tuple[float, ...] = (1.0,)
    entries: float = 1.0
    shares: tuple[float, float, float] = SHARES


@dataclass(frozen=True)
class Walk:
    """Settings of Frank-Wolfe: corners in units of s, l1 radius in units of the public guess, and residual clip."""

    steps: float
    radius: float
    clip: float = 0.7
    entries: float = 1.0


@dataclass(frozen=True)
class Descent:
    """Settings of DP-IGHT: steps, their size times smoothness, and the clip in units of row norm times spread."""

    steps: int
    size: float
    clip: float


@dataclass(frozen=True)
class Votes:
    """Settings of the two stages: blocks in units of sqrt(n), steps before a vote, share of epsilon for the choice.

    ``width`` is the threshold of the Huber loss. ``weights`` is the length of the weights, in units of the public
    guess, at which noise and penalty balance.
    """

    blocks: float
    steps: int = 10
    share: float = 0.8
    width: float = 1.0
    weights: float = 0.3


@dataclass(frozen=True)
class Teacher:
    """Settings of the convex teacher: the noise allowed in a student's scores, and the threshold of the Huber loss."""

    label_noise: float
    width: float = 0.25


@dataclass(frozen=True)
class Settings:
    """Settings fixed by trials. For regressions, clips, widths and noise are in units of the targets' public spread.

    The first three depend on the budget only through n mu / (s log 2d): each entry holds up to its limit.
    """

    peeling: tuple[tuple[float, Peeling], ...]
    walk: tuple[tuple[float, Walk], ...]
    descent: tuple[tuple[float, Descent], ...]
    votes: Votes
    teacher: Teacher


@dataclass(frozen=True, eq=False)
class Case:
    """Data with its public numbers.

    ``spread`` is that of targets (1 for classes), ``score_spread`` that of scores, ``square`` the mean square of rows
    along a direction, ``length`` and ``radius`` the expected l2 and l1 norms of the weights. All are guesses that do
    not depend on private records.
    """

    X: Any
    y: NDArray[Any]
    is_logistic: bool
    n_nonzero: int
    row_norm: float
    entry_bound: float
    spread: float
    score_spread: float
    square: float
    length: float
    radius: float
    public: PublicFeatures
    settings: Settings
    intercept: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", BoundedRows(self.X, self.row_norm, self.intercept))

    def problem(self, objective: Any = None, alpha: float = 0.0) -> Problem:
        """Return the problem, by default with the plain loss."""
        plain = Logistic() if self.is_logistic else Squared()
        return Problem(objective or plain, L2(alpha), self.rows, self.y)  # type: ignore[attr-defined]

    def bounded(self, width: float, alpha: float = 0.0) -> Problem:
        """Return the problem with a loss of bounded gradients."""
        return self.problem(None if self.is_logistic else Huber(width * self.spread), alpha)

    def chosen(self, table: tuple[tuple[float, Any], ...], budget: Budget) -> Any:
        """Return the entry of a table for this budget."""
        n, d = self.X.shape
        legibility = n * gdp_mu(budget) / (self.n_nonzero * math.log(2 * d))
        return next(entry for limit, entry in table if legibility <= limit)

    def clipped(self, share: float) -> tuple["Case", float]:
        """Return the case with entries clipped to a share of their bound, and the factor by which its weights grow.

        The factor assumes independent columns that are uniform between the bounds: the regression of x on its clipped
        value then has slope E[x clip(x)] / E[clip(x)^2]. Privacy does not depend on this assumption.
        """
        if share == 1:
            return self, 1.0
        bound = share * self.entry_bound
        slope = (share**3 / 3 + share * (1 - share**2) / 2) / (share**3 / 3 + share**2 * (1 - share))
        return replace(self, X=np.clip(self.X, -bound, bound), entry_bound=bound, radius=self.radius * slope), slope

    def first_slope(self, clip: float) -> float:
        """Return the share of a weight that one round from zero finds, for normal scores of the public spread.

        A clip at c deviations keeps P(|z| < c) of a covariance. The logistic curve is flatter away from zero.
        """
        if self.is_logistic:
            return 1 / math.sqrt(1 + math.pi / 8 * self.score_spread**2)
        return math.erf(clip / math.sqrt(2))


def train(method: str, case: Case, budget: Budget, source: NoiseSource) -> NDArray[Any]:
    """Return the weights that a method finds."""
    if method == NOT_PRIVATE:
        return ight(case.problem(), n_nonzero=case.n_nonzero)
    release = _RUNS[method](case, budget, source)
    if method == PRINTED:  # its constants do not keep the budget even under the paper's own condition
        return np.asarray(release.weights)
    if release.guarantee.epsilon > budget.epsilon * (1 + 1e-9) or release.guarantee.delta > budget.delta:
        raise RuntimeError(f"{method} spends {release.guarantee}, more than {budget}")
    return np.asarray(release.weights)


def by_peeling(case: Case, budget: Budget, source: NoiseSource) -> Release:
    chosen: Peeling = case.chosen(case.settings.peeling, budget)
    clips = (chosen.clips + chosen.clips[-1:] * chosen.rounds)[: chosen.rounds]
    case, slope = case.clipped(chosen.entries)
    release = peeled_threshold(
        case.problem(TamedLogistic() if case.is_logistic else None),
        Run(AdaptivePlan.for_budget(budget), source),
        n_nonzero=max(round(chosen.share * case.n_nonzero), 1),
        entry_bound=case.entry_bound,
        residual_clips=[clip * case.spread for clip in clips],
        shares=chosen.shares,
    )
    if chosen.rounds == 1:  # later rounds find what the first one missed
        slope *= case.first_slope(clips[0])
    return replace(release, weights=release.weights / slope)


def by_thresholds(case: Case, budget: Budget, source: NoiseSource) -> Release:
    chosen: Descent = case.chosen(case.settings.descent, budget)
    problem = case.problem()
    clip = min(chosen.clip * problem.rows.norm_bound * case.spread, problem.lipschitz)
    plan = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=chosen.steps, clip_norm=clip)
    size = chosen.size / (case.square * problem.objective.curvature_bound)
    return hard_threshold(problem, Run(plan, source), n_nonzero=case.n_nonzero, step_size=size)


def by_walk(case: Case, budget: Budget, source: NoiseSource) -> Release:
    chosen: Walk = case.chosen(case.settings.walk, budget)
    case, slope = case.clipped(chosen.entries)
    release = frank_wolfe(
        case.problem(TamedLogistic() if case.is_logistic else None),
        Run(AdaptivePlan.for_budget(budget), source),
        l1_radius=chosen.radius * case.radius,
        steps=max(round(chosen.steps * case.n_nonzero), 1),
        entry_bound=case.entry_bound,
        residual_clip=chosen.clip * case.spread,
    )
    return replace(release, weights=release.weights / slope)


def by_two_stages(case: Case, budget: Budget, source: NoiseSource) -> Release:
    votes = case.settings.votes
    problem = case.bounded(votes.width)
    n, length = problem.rows.n, min(case.row_norm, case.entry_bound * math.sqrt(case.n_nonzero)) + case.intercept
    half = gdp_mu(Budget(budget.epsilon / 2, budget.delta / 2))
    tilt = math.sqrt(case.n_nonzero) * 2 * problem.objective.lipschitz(length) / (n * half)
    least = 4 * problem.objective.smoothness(length) / (n * budget.epsilon)
    features: dict[str, Any] = {"n_nonzero": case.n_nonzero, "entry_bound": case.entry_bound}
    added_alpha = max(tilt / (votes.weights * case.length), least)
    plan = two_stage_plan(problem, budget, selection_share=votes.share, added_alpha=added_alpha, **features)
    blocks = max(round(votes.blocks * math.sqrt(n)), 1)
    return two_stage(problem, Run(plan, source), blocks=blocks, vote_steps=votes.steps, **features)


def by_private_teacher(case: Case, budget: Budget, source: NoiseSource) -> Release:
    return student_of(by_thresholds(case, budget, source), case.public, n_nonzero=case.n_nonzero)


def by_convex_teacher(case: Case, budget: Budget, source: NoiseSource) -> Release:
    public, teacher = case.public, case.settings.teacher
    problem = case.bounded(teacher.width)
    # A student of s features averages the noise of m scores, which leaves about sqrt(s log(2 d) / m) of it.
    averaged = math.sqrt(case.n_nonzero * math.log(2 * problem.rows.n_features) / public.rows.n)
    moved = 2 * problem.lipschitz / problem.rows.n * public.operator_norm * min(averaged, 1.0)
    problem = case.bounded(teacher.width, moved / (gdp_mu(budget) * teacher.label_noise * case.spread))
    plan = OutputPlan.for_budget(budget, stability=transfer_stability(problem, public))
    return knowledge_transfer(problem, Run(plan, source), features=public, n_nonzero=case.n_nonzero)


def by_printed_transfer(case: Case, budget: Budget, source: NoiseSource) -> Release:
    """Run DPSL-KT as the paper prints it, with its Theorem 3.3.3 at lambda = 0. Its guarantee is not valid.

    gamma = 1 bounds the entries of a record's gradient, for residuals of at most 1 and entries of at most 1. mu is the
    curvature of the expected loss in this design.
    """
    problem, public = case.problem(), case.public
    slope = 1 / 4 / math.sqrt(1 + math.pi / 8 * case.score_spread**2) if case.is_logistic else 1.0
    stability = PaperTransferStability(
        n=problem.rows.n,
        n_public=public.rows.n,
        n_nonzero=case.n_nonzero,
        gradient_bound=1.0,
        alpha=slope * case.square,
        covariance_norm=case.square,
    )
    plan = OutputPlan(stability, stability.scale(budget), is_pure=False, delta=budget.delta)
    run = Run(plan, source)
    kept: dict[str, Any] = {"features": public, "n_nonzero": case.n_nonzero, "curvature": stability.alpha}
    return paper_knowledge_transfer(problem, run, **kept)


_RUNS = {
    PRINTED: by_printed_transfer,
    PEELING: by_peeling,
    "DP-IGHT": by_thresholds,
    "Frank-Wolfe": by_walk,
    "Two stage": by_two_stages,
    "DPSL-KT (A)": by_private_teacher,
    "DPSL-KT (B)": by_convex_teacher,
}
