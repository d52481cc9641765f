"""Objective perturbation: add a random linear term to the objective, and minimise it.

Algorithm 2 of "Differentially Private Empirical Risk Minimization" (Chaudhuri, Monteleoni, Sarwate, 2011) for pure
epsilon, Algorithm 1 of "Private Convex Empirical Risk Minimization and High-dimensional Regression" (Kifer, Smith,
Thakurta, 2012) with Gaussian noise, and "Towards Practical Differentially Private Convex Optimization" (Iyengar et al.,
2019) for minimisers that are computed; with the noise of :mod:`privet.privacy.analyses.objective_noise`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.plans.objective import ObjectivePlan
from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import Assumption, enforced
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.minimise import check_minimisable, least_tolerance, minimise


def objective_perturbation(problem: Problem, run: Run[ObjectivePlan]) -> Release:
    """Minimise the objective with the plan's random linear term, and add noise to the minimiser.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, for a convex loss of one score per record and a regulariser with the plan's
    constants. A mismatch raises an error, and so does a tolerance that might be unreachable for some data. The gradient
    at the computed minimiser is certified to be within the tolerance, for the ideal linear term of which the computed
    one is an approximation. Only the noisy minimiser is released, neither the linear term nor the exact minimiser.
    """
    plan = run.plan
    check_objective_plan(problem, plan)
    guarantee = run.guarantee(bound=certified_losses(plan))
    n = problem.rows.n
    term, error = plan.linear_term((problem.start().size,), run.source, Untilted(problem, plan.added_alpha))
    weights = minimise(
        problem, tolerance=plan.tolerance, tilt=term / n, tilt_error=error / n * (1 + 1e-15), ridge=plan.added_alpha
    )
    run.report(1, 1)
    trace = {"tolerance": plan.tolerance, "noise_scale": plan.scale, "output_scale": plan.output_scale}
    return Release(plan.noisy(weights, run.source), guarantee, trace)


@dataclass(frozen=True)
class Untilted:
    """The objective of a problem, as a sum over records, without its random linear term."""

    problem: Problem
    added_alpha: float

    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient of the sum of losses and penalties."""
        problem = self.problem
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, math.inf)
        penalty = problem.regulariser.gradient(weights) + self.added_alpha * weights
        return np.asarray(total + problem.rows.n * penalty)


def objective_plan(
    problem: Problem, budget: Budget, *, added_alpha: float = 0.0, tolerance: float | None = None, tasks: int = 1
) -> ObjectivePlan:
    """Return the plan with the least noise for ``problem``, computed from its public constants only."""
    _check(problem, added_alpha)
    fields = _constants(problem) | {"added_alpha": added_alpha, "tasks": tasks}
    plan = ObjectivePlan.for_budget(budget, **fields, tolerance=tolerance)
    if tolerance is None and plan.tolerance < (least := _least_tolerance(problem, plan)):
        return ObjectivePlan.for_budget(budget, **fields, tolerance=least)
    return plan


def check_objective_plan(problem: Problem, plan: ObjectivePlan) -> None:
    """Raise unless the plan was made for this problem, and its tolerance can be certified."""
    _check(problem, plan.added_alpha)
    if _constants(problem) != {name: getattr(plan, name) for name in _constants(problem)}:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    least = _least_tolerance(problem, plan)
    if plan.tolerance < least:
        raise ValueError(
            f"a gradient of {plan.tolerance:.3g} cannot be certified in floating point: with these constants and this "
            f"noise the least is {least:.3g}. Make the plan with objective_plan, or with a larger tolerance or alpha"
        )


def certified_losses(plan: ObjectivePlan) -> Assumption:
    """Return the condition of the plan's guarantee, which :func:`objective_perturbation` enforces."""
    return enforced(f"rows are bounded and the minimiser is certified: {plan.in_words()}")


def _constants(problem: Problem) -> dict[str, Any]:
    return {
        "n": problem.rows.n,
        "lipschitz": problem.lipschitz,
        "smoothness": problem.objective.smoothness(problem.rows.norm_bound),
        "strong_convexity": problem.strong_convexity,
        "is_one_sided": problem.objective.is_one_sided,
    }


def _check(problem: Problem, added_alpha: float) -> None:
    if problem.start().ndim != 1:
        raise ValueError(
            f"objective perturbation is proved for losses of one score per record, not for "
            f"{type(problem.objective).__name__}: use output or gradient perturbation, or one model per class"
        )
    check_minimisable(problem, added_alpha)


def _least_tolerance(problem: Problem, plan: ObjectivePlan) -> float:
    """Return the tolerance that can be certified for every dataset and practically every linear term."""
    n, size = problem.rows.n, problem.start().size
    longest, error = 1.01 * plan.longest_term(size) / n, 1.01 * plan.largest_error(size) / n
    return least_tolerance(problem, tilt_norm=longest, tilt_error=error, ridge=plan.added_alpha)
