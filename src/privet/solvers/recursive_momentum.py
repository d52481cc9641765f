"""Recursive momentum, DP-SRM: measure gradients once, and then mostly their changes.

Algorithm 4 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), with the
sensitivity and the accounting of :class:`~privet.plans.recursive.RecursivePlan` in place of its Theorem 4.5.1.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privet.checks import positive
from privet.objectives.glm import clipped
from privet.plans.gradient import Step
from privet.plans.recursive import RecursivePlan
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run


def recursive_momentum(
    problem: Problem,
    run: Run[RecursivePlan],
    *,
    step_size: float | None = None,
    max_move: float | None = None,
    output: Literal["last", "random"] = "last",
    averaged: float = 0.0,
    keep_iterates: bool = False,
) -> Release:
    """Descend along a private estimate of the gradient that is updated recursively.

    With C1, C2 and g the plan's ``clip_norm``, ``difference_norm`` and ``refresh``, step t draws a batch B, computes
    each record's gradient at the current and at the previous weights, and updates

        v_t = noisy(sum over B of g clip(g_t, C1) + (1 - g) clip(g_t - g_(t-1), C2)) / |B| + (1 - g) v_(t-1),

    where |B| stands for a public constant. The regulariser is public: its exact gradient is added to v_t afterwards and
    takes part neither in the clip nor in the recursion, so v_t tracks the gradient of the data term alone.

    Parameters
    ----------
    problem : Problem
        The objective and the data. Convexity is not required.
    run : Run of a RecursivePlan
        The plan determines batches, clips, noise and number of steps.
    step_size : float or None
        Largest step size eta. None takes 1/L, where L is the smoothness of the regularised objective.
    max_move : float or None
        How far a step may move the weights: eta = min(step_size, max_move / |direction|). None takes C2 divided by the
        smoothness of the loss, so that no difference of gradients exceeds C2 and the clip has no effect (the paper's
        zeta/(n0 L), with zeta/n0 = C2). With infinity, only the clip limits differences. Privacy does not depend on it.
    output : {"last", "random"}
        The weights after the last step; or a uniformly random one of the ``plan.steps`` points at which gradients were
        computed, as in Theorem 4.5.4 of the paper.
    averaged : float
        With ``output="last"``, the share of the iterates, counted from the end, whose average is returned; 0 returns
        the last iterate.
    keep_iterates : bool
        Whether ``trace["iterates"]`` contains the weights after each step. The guarantee covers all of them.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, in place of Theorem 4.5.1 of the dissertation, whose noise has misprints. Each
    step uses the data only in one noisy sum. Gradients and their differences are clipped, so a summand has norm at most
    C1 in the first step and at most g C1 + (1 - g) C2 in later steps. Everything else is post-processing, so all
    estimates and iterates are covered, and any of them may be the output.
    """
    plan = run.plan
    if output not in {"last", "random"}:
        raise ValueError(f"output must be 'last' or 'random', got {output!r}")
    if not 0 <= averaged <= 1 or (averaged and output == "random"):
        raise ValueError(
            f"averaged must lie in [0, 1], and be 0 with output='random', got {averaged!r} with output={output!r}"
        )
    step_size, max_move = _pace(problem, plan, step_size, max_move)
    n = problem.rows.n
    divisor, later_divisor = plan.first_plan.divisor(n), plan.later_plan.divisor(n)
    guarantee = run.guarantee(
        bound=enforced(
            f"gradients are bounded by {plan.clip_norm:.6g} and their changes clipped to {plan.difference_norm:.6g}: a "
            f"record adds at most {plan.clip_norm:.6g} to the first sum and {plan.contribution_norm:.6g} to a later one"
        ),
        released="every noisy sum, all iterates and the final weights",
    )
    chosen = run.source.index(np.ones(plan.steps)) if output == "random" else plan.steps
    n_tail = max(1, math.ceil(averaged * plan.steps))
    weights = result = problem.start()
    tail = np.zeros_like(weights)
    before: NDArray[Any] | None = None
    estimate = np.zeros_like(weights)
    iterates: list[NDArray[Any]] = []
    for done, step in enumerate(run.steps(n), start=1):
        noisy = step.noisy(_total(problem, plan, step, weights, before))
        estimate = noisy / divisor + (1 - plan.refresh) * estimate
        direction = estimate + problem.regulariser.gradient(weights)
        before, weights = weights, weights - _eta(direction, step_size, max_move) * direction
        divisor = later_divisor
        if done > plan.steps - n_tail:
            tail += weights
        if done == chosen:
            result = weights
        if keep_iterates:
            iterates.append(weights)
    trace: dict[str, Any] = {"steps": plan.steps, "step_size": step_size, "max_move": max_move, "output": output}
    if keep_iterates:
        trace["iterates"] = iterates
    return Release(result if output == "random" else tail / n_tail, guarantee, trace)


def _total(
    problem: Problem, plan: RecursivePlan, step: Step, weights: NDArray[Any], before: NDArray[Any] | None
) -> NDArray[Any]:
    """Return the sum of the batch's contributions: gradients in the first step, then mixed with their changes.

    A record's gradients at two points are multiples of its row (one multiple per class), so residuals are mixed and
    clipped, and a single product with the rows gives the sum.
    """
    objective = problem.objective
    rows, targets = problem.batch(step.batch, plan.adjacency)
    residuals = objective.residuals(rows.scores(weights), targets)
    mixed = objective.bounded(residuals, rows, plan.clip_norm)
    if before is not None:
        changes = residuals - objective.residuals(rows.scores(before), targets)
        # Not ``bounded``, which relies on the bound of a gradient: two gradients can differ by twice as much.
        mixed = plan.refresh * mixed + (1 - plan.refresh) * clipped(changes, rows, plan.difference_norm)
    return rows.combine(mixed)


def _eta(direction: NDArray[Any], step_size: float, max_move: float) -> float:
    with np.errstate(over="ignore"):  # huge noise may have an infinite norm, and the step is then zero
        length = float(np.linalg.norm(direction))
    return step_size if step_size * length <= max_move else max_move / length


def _pace(
    problem: Problem, plan: RecursivePlan, step_size: float | None, max_move: float | None
) -> tuple[float, float]:
    """Return the checked step size and largest move, with defaults from the constants of the problem."""
    if step_size is None:
        step_size = 1 / _curvature("step_size", problem.smoothness)
    if max_move is None:
        max_move = plan.difference_norm / _curvature(
            "max_move", problem.objective.smoothness(problem.rows.largest_norm)
        )
    return positive("step_size", step_size), max_move if max_move == math.inf else positive("max_move", max_move)


def _curvature(name: str, smoothness: float) -> float:
    if not 0 < smoothness < math.inf:
        raise ValueError(f"there is no default {name} for a smoothness of {smoothness:g}: set {name}")
    return smoothness
