"""Recursive momentum: DP-SRM, which measures gradients once and then mostly how they change.

Algorithm 4 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), with the
sensitivity and the accounting of :class:`~privet.plans.recursive.RecursivePlan` in the place of its Theorem 4.5.1.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privet.checks import positive
from privet.objectives.glm import clipped
from privet.plans.recursive import RecursivePlan
from privet.plans.step import Step
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.problem import Problem
from privet.solvers.base.release import Release
from privet.solvers.base.run import Run


def recursive_momentum(
    problem: Problem,
    run: Run[RecursivePlan],
    *,
    step_size: float | None = None,
    max_move: float | None = None,
    output: Literal["last", "random"] = "last",
    keep_iterates: bool = False,
) -> Release:
    """Descend along a private estimate of the gradient that remembers.

    With C1, C2 and g the plan's ``clip_norm``, ``difference_norm`` and ``refresh``, step t draws a batch B, computes
    each record's gradient at this point and at the one before, and keeps

        v_t = noisy(sum over B of g clip(g_t, C1) + (1 - g) clip(g_t - g_(t-1), C2)) / |B| + (1 - g) v_(t-1),

    where |B| stands for a public constant. The regulariser is no secret: its exact gradient is added to v_t after the
    fact, and takes part in neither the clip nor the recursion, so v_t tracks the gradient of the data term alone.

    Parameters
    ----------
    problem : Problem
        What to minimise; it need not be convex.
    run : Run of a RecursivePlan
        Batches, clips, noise and number of steps.
    step_size : float or None
        The largest eta of a step. None takes 1/L, L being the smoothness of the regularised objective.
    max_move : float or None
        How far a step may move the weights: eta = min(step_size, max_move / |direction|). None takes C2 over the
        smoothness of the loss, so that no difference of gradients is longer than C2 and its clip is idle (the paper's
        zeta/(n0 L), with zeta/n0 = C2). Infinity leaves all to the clip. Privacy does not depend on it.
    output : {"last", "random"}
        The weights after the last step, or uniformly one of the ``plan.steps`` points at which gradients were taken, as
        in the paper, whose Theorem 4.5.4 is about that one.
    keep_iterates : bool
        Whether ``trace["iterates"]`` holds the weights after each step; they are all covered by the guarantee.

    Formal guarantees
    -----------------
    The plan's (in the place of Theorem 4.5.1 of the dissertation, whose noise has misprints): each step sees the data
    only through one noisy sum, whose summands have norm at most C1 in the first step and g C1 + (1 - g) C2 later, by
    clipping. All else is post-processing, so all estimates and iterates are covered, and any may be the output.
    """
    plan = run.plan
    if output not in {"last", "random"}:
        raise ValueError(f"output must be 'last' or 'random', got {output!r}")
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
    weights = result = problem.start()
    before: NDArray[Any] | None = None
    estimate = np.zeros_like(weights)
    iterates: list[NDArray[Any]] = []
    for done, step in enumerate(run.steps(n), start=1):
        noisy = step.noisy(_total(problem, plan, step, weights, before))
        estimate = noisy / divisor + (1 - plan.refresh) * estimate
        direction = estimate + problem.regulariser.gradient(weights)
        before, weights = weights, weights - _eta(direction, step_size, max_move) * direction
        divisor = later_divisor
        if done == chosen:
            result = weights
        if keep_iterates:
            iterates.append(weights)
    trace: dict[str, Any] = {"steps": plan.steps, "step_size": step_size, "max_move": max_move, "output": output}
    if keep_iterates:
        trace["iterates"] = iterates
    return Release(result, guarantee, trace)


def _total(
    problem: Problem, plan: RecursivePlan, step: Step, weights: NDArray[Any], before: NDArray[Any] | None
) -> NDArray[Any]:
    """Return the sum of the batch's contributions: gradients in the first step, then mixed with their changes.

    Gradients at two points of one record are multiples of its row (one multiple a class), so that mixing and clipping
    happen on residuals, and a single product with the rows makes the sum.
    """
    objective, rows, targets = problem.objective, problem.rows.take(step.batch), problem.targets[step.batch]
    residuals = objective.residuals(rows.scores(weights), targets)
    mixed = objective.bounded(residuals, rows, plan.clip_norm)
    if before is not None:
        changes = residuals - objective.residuals(rows.scores(before), targets)
        # Not ``bounded``: that knows how long a gradient can be, and two gradients can differ by twice as much.
        mixed = plan.refresh * mixed + (1 - plan.refresh) * clipped(changes, rows, plan.difference_norm)
    return rows.combine(mixed)


def _eta(direction: NDArray[Any], step_size: float, max_move: float) -> float:
    length = float(np.linalg.norm(direction))
    return step_size if step_size * length <= max_move else max_move / length


def _pace(
    problem: Problem, plan: RecursivePlan, step_size: float | None, max_move: float | None
) -> tuple[float, float]:
    """Return the step size and the largest move, checked, with defaults from the constants of the problem."""
    if step_size is None:
        step_size = 1 / _curvature("step_size", problem.smoothness)
    if max_move is None:
        max_move = plan.difference_norm / _curvature(
            "max_move", problem.objective.smoothness(problem.rows.largest_norm)
        )
    return positive("step_size", step_size), max_move if max_move == math.inf else positive("max_move", max_move)


def _curvature(name: str, smoothness: float) -> float:
    if not 0 < smoothness < math.inf:
        raise ValueError(f"a smoothness of {smoothness:g} suggests no {name}: give one")
    return smoothness
