"""What several sparse methods share: how many features a budget can distinguish, a bounded problem, a noisy start."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from privet.linear.methods._base import Task
from privet.objectives import L2, Shifted
from privet.objectives.summation import total_of
from privet.plans import AdaptivePlan
from privet.privacy import Assumption, Budget, Guarantee, compose, enforced, gdp_mu
from privet.privacy.analyses.gaussian import gdp_epsilon
from privet.solvers import Problem, Release

FIRST_CLIP = 0.6  # clip of the first residuals, as a share of the bound on the target
_WANTED_LEGIBILITY = 16.0
_MEAN_SHARE = 0.02  # of the squared Gaussian-DP parameter, for the mean of the targets
_RAREST = 0.02  # smallest share of a class that the start takes into account


def legibility(budget: Budget, n: int, n_features: int, n_nonzero: int, norm_in_entries: float) -> float:
    """Return n mu q / (s log(2 d)): the sums by which s features of d are chosen, relative to the noise of the choice.

    If s independent features share the variance of the target, the sum of one feature is of the order of n q / sqrt(s)
    largest entries. The largest of d noises, each at a price of mu / sqrt(s), is of the order of sqrt(s) log(2 d) / mu
    largest entries. q = min(1, sqrt(3/d) R/e) is the root mean square of a feature over rows of norm R that are spread
    evenly, relative to that of entries spread evenly up to their bound e. ``norm_in_entries`` is R/e.
    """
    spread = min(1.0, math.sqrt(3 / n_features) * norm_in_entries)
    return n * gdp_mu(budget) * spread / (n_nonzero * math.log(2 * n_features))


def default_n_nonzero(budget: Budget, n: int, n_features: int, norm_in_entries: float) -> int:
    """Return the number of features, at least one, that the budget can choose among all with a legibility of 16."""
    affordable = legibility(budget, n, n_features, 1, norm_in_entries) / _WANTED_LEGIBILITY
    return int(max(1, min(n_features, round(min(affordable, n_features)))))


def bounded_problem(task: Task, alpha: float = 0.0) -> Problem:
    """Return the problem with a bounded loss and a penalty of at least ``alpha``.

    Methods that perturb a minimum need bounded gradients, so the Huber loss replaces the squared loss.
    """
    objective = task.problem.objective.with_bounded_gradient(task.scale)
    return replace(task.problem, objective=objective, regulariser=L2(max(task.problem.strong_convexity, alpha)))


def from_noisy_mean(task: Task, train: Callable[[Task], Release]) -> Release:
    """Release a noisy mean of the targets, then train with scores that start there. Without an intercept, only train.

    Features are chosen by their correlation with residuals, and if residuals have a mean, the largest features look
    like the best.

    Formal guarantees
    -----------------
    The two releases compose to at most the budget in Gaussian DP, so ``train`` must be Gaussian-DP for its budget. The
    sum of their guarantees is computed from both events, and is within the budget that ``before_training`` was told.
    """
    rows, delta, mu = task.problem.rows, task.budget.delta, gdp_mu(task.budget)
    first, rest = (mu * math.sqrt(share) * (1 - 1e-9) for share in (_MEAN_SHARE, 1 - _MEAN_SHARE))
    epsilon = gdp_epsilon(rest, delta)
    if not rows.intercept or epsilon == 0:  # nearly all of such a budget is its delta, and it is not divided
        return train(task)
    both = AdaptivePlan(mu, delta=delta).guarantee(bound=_bounded_targets(task))  # raises if mu is out of range
    if task.before_training is not None:
        task.before_training(both)
    offset, guarantee = _noisy_start(task, AdaptivePlan(first, delta=delta))
    shifted = replace(task.problem, objective=Shifted(task.problem.objective, offset))
    release = train(replace(task, problem=shifted, budget=Budget(epsilon, delta), before_training=None))
    weights = release.weights.copy()
    weights[-1] += offset / rows.intercept
    return replace(release, weights=weights, guarantee=compose([guarantee, release.guarantee], delta))


def _noisy_start(task: Task, plan: AdaptivePlan) -> tuple[float, Guarantee]:
    """Return the score of the noisy mean of the targets, which are 0 and 1, or at most ``task.scale`` in size."""
    targets, n = task.problem.targets, task.problem.rows.n
    low, half = _interval(task)
    margin = 1 + task.problem.rows.rounding
    with plan.open(task.source) as purse:
        # Targets minus the middle of their interval are at most half of its width in size.
        total = purse.noisy(np.array([total_of(targets - (low + half))]), half * margin, plan.mu)
    share = min(max(float(total[0]) / (2 * half * n) + 0.5, _RAREST), 1 - _RAREST)
    offset = math.log(share / (1 - share)) if task.has_bounded_loss else low + 2 * half * share
    return offset, plan.guarantee(bound=_bounded_targets(task), released="a noisy mean of the targets")


def _interval(task: Task) -> tuple[float, float]:
    """Return the lower end and half of the width of the interval that holds all targets."""
    return (0.0, 0.5) if task.has_bounded_loss else (-task.scale, task.scale)


def _bounded_targets(task: Task) -> Assumption:
    return enforced(f"targets lie in an interval of width {2 * _interval(task)[1]:g}")
