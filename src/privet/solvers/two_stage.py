"""Two stages: blocks of records vote on the features, and a private model is fitted to the chosen features.

Kifer, Smith and Thakurta, "Private Convex Empirical Risk Minimization and High-dimensional Regression" (2012):
sample-and-aggregate for the support, then objective perturbation on it.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.plans.adaptive import AdaptivePlan
from privet.plans.objective import ObjectivePlan
from privet.plans.two_stage import TwoStagePlan
from privet.privacy.analyses.accounting import epsilon as epsilon_of
from privet.privacy.budget import Budget
from privet.privacy.events import Composition
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.sparsity import check_support
from privet.solvers.ight import ight
from privet.solvers.objective_perturbation import (
    certified_losses,
    check_objective_plan,
    objective_perturbation,
    objective_plan,
)

_HALVINGS = 12  # number of bisections in the search for the epsilon of the second stage


def two_stage(
    problem: Problem,
    run: Run[TwoStagePlan],
    *,
    n_nonzero: int,
    blocks: int | None = None,
    vote_steps: int = 1,
    entry_bound: float | None = None,
) -> Release:
    """Choose features by the noisy votes of blocks of records, then fit these by objective perturbation.

    Parameters
    ----------
    problem : Problem
        A convex Lipschitz loss of one score per record, and a strongly convex regulariser.
    run : Run of a TwoStagePlan
        The plan is made by :func:`two_stage_plan`, with the same ``n_nonzero`` and ``entry_bound``. Progress is
        reported after each stage.
    n_nonzero : int
        How many features are chosen, and for how many each block votes, not counting an intercept.
    blocks : int or None
        Number of blocks. None takes the square root of the number of records.
    vote_steps : int
        How many steps of (non-private) iterative hard thresholding a block makes. It then votes for the features with
        nonzero weights. With one step, these are the features with the largest correlation with the targets.
    entry_bound : float or None
        Bound on the absolute value of entries. Rows of the chosen features are scaled down to norm
        entry_bound sqrt(n_nonzero) if that is less than the bound on rows. Privacy does not depend on whether the
        entries satisfy it, but accuracy does.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, under replace-one adjacency. Records are divided into blocks at random,
    independently of their values. A replaced record is in one block and may change all votes of that block, but each
    feature gets at most one vote from a block. Every count therefore moves by at most 1, up or down, which corresponds
    to a bound of 1/2 on one record's contribution in :meth:`~privet.plans.adaptive.Purse.noisy_top`. Given the
    features, the second stage is objective perturbation of rows that are bounded again, each separately. Its plan is
    computed from public constants before anything is spent, and the accountant composes the two events.
    """
    check_support(problem, n_nonzero)
    number = count("the number of records", problem.rows.n)
    blocks = round(math.sqrt(number)) if blocks is None else count("blocks", blocks)
    if blocks > number:
        raise ValueError(f"{number} records cannot be divided into {blocks} blocks")
    count("vote_steps", vote_steps)
    selection, fit, source = run.plan.selection, run.plan.fit, run.source
    check_objective_plan(_any_features(problem, n_nonzero, entry_bound), fit)
    one_vote = enforced(f"each of {blocks} blocks of records has at most one vote for a feature")
    guarantee = run.guarantee(bounds=(one_vote, certified_losses(fit)))

    counts = _votes(problem, source.permutation(number), blocks, n_nonzero, vote_steps)
    with selection.open(source) as purse:
        chosen = purse.noisy_top(counts, 0.5, selection.mu, n_nonzero)
    run.report(1, 2)
    row_norm = _row_norm(problem, n_nonzero, entry_bound)
    fitted = objective_perturbation(_restricted(problem, chosen, row_norm), Run(fit, source, before_training=None))
    run.report(2, 2)
    weights = problem.start()
    weights[np.append(chosen, np.arange(problem.rows.n_features, problem.rows.dimension))] = fitted.weights
    trace = {"chosen": chosen, "blocks": blocks, "selection_mu": selection.mu, **fitted.trace}
    return Release(weights, guarantee, trace)


def two_stage_plan(
    problem: Problem,
    budget: Budget,
    *,
    n_nonzero: int,
    entry_bound: float | None = None,
    selection_share: float = 0.5,
    added_alpha: float = 0.0,
) -> TwoStagePlan:
    """Return the plan of :func:`two_stage` for a budget, made of the problem's public constants only.

    Parameters
    ----------
    problem, n_nonzero, entry_bound
        As for :func:`two_stage`.
    budget : Budget
        Of both stages together, with a delta above 0.
    selection_share : float
        The approximate share of epsilon that the choice takes.
    added_alpha : float
        Further strong convexity for the sake of privacy, as in :class:`~privet.plans.ObjectivePlan`.
    """
    check_support(problem, n_nonzero)
    count("the number of records", problem.rows.n)
    anybody = _any_features(problem, n_nonzero, entry_bound)
    return TwoStagePlan(*_plans(anybody, budget, selection_share, added_alpha), delta=budget.delta)


def _row_norm(problem: Problem, n_nonzero: int, entry_bound: float | None) -> float:
    """Return the bound on rows of the chosen features."""
    if entry_bound is None:
        return problem.rows.row_norm
    return min(problem.rows.row_norm, positive("entry_bound", entry_bound) * math.sqrt(n_nonzero))


def _any_features(problem: Problem, n_nonzero: int, entry_bound: float | None) -> Problem:
    """Return the problem of the second stage with some features: a plan uses only constants that all choices share."""
    return _restricted(problem, np.arange(n_nonzero), _row_norm(problem, n_nonzero, entry_bound))


def _restricted(problem: Problem, chosen: NDArray[np.int64], row_norm: float) -> Problem:
    return replace(problem, rows=problem.rows.columns(chosen, row_norm))


def _plans(problem: Problem, budget: Budget, share: float, added_alpha: float) -> tuple[AdaptivePlan, ObjectivePlan]:
    """Return the plan of the choice, and the plan of the second stage with the largest epsilon that still fits."""
    if budget.is_pure:
        raise ValueError("the choice of features is accounted for in Gaussian DP, which needs delta: set delta > 0")
    if not 0 < share < 1:
        raise ValueError(f"selection_share must lie between 0 and 1, got {share!r}")
    half = budget.delta / 2
    selection = AdaptivePlan.for_budget(Budget(share * budget.epsilon, half))

    def planned(epsilon: float) -> tuple[ObjectivePlan, bool]:
        plan = objective_plan(problem, Budget(epsilon, half), added_alpha=added_alpha)
        both = Composition((selection.event, plan.event_at(half)))
        return plan, epsilon_of(both, selection.adjacency, budget.delta) <= budget.epsilon

    low, high = (1 - share) * budget.epsilon * (1 - 1e-9), budget.epsilon
    best, is_within = planned(low)
    if not is_within:  # cannot happen: epsilons and deltas that add up to the budget stay within it
        raise RuntimeError(f"calibration to {budget} did not converge. Please report this as a bug.")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        plan, is_within = planned(middle)
        low, high = (middle, high) if is_within else (low, middle)
        best = plan if is_within else best
    return selection, best


def _votes(problem: Problem, order: NDArray[np.int64], blocks: int, n_nonzero: int, steps: int) -> NDArray[np.float64]:
    """Return how many blocks voted for each feature. Not private without noise."""
    d = problem.rows.n_features
    counts = np.zeros(d)
    for block in np.array_split(order, blocks):
        part = replace(problem, rows=problem.rows.take(block), targets=problem.targets[block])
        counts[np.flatnonzero(ight(part, n_nonzero=n_nonzero, steps=steps)[:d])] += 1
    return counts
