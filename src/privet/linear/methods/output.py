"""Method ``output``: a descent without noise, then noise on its result.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from privet.linear.methods._base import Task, method
from privet.linear.methods._expectation import (
    bound_of,
    excess_of_noise,
    noise_of_mean,
    usual_length,
)
from privet.linear.methods.gradient import CENTRE_SHARE
from privet.plans import CentredOutputPlan, OutputPlan
from privet.plans.stabilities.descent import sum_of_powers
from privet.solvers import Release, centred_output_perturbation, output_perturbation
from privet.solvers.output_perturbation import centred_stability, descent_stability

_FEWEST_STEPS, _MOST_STEPS = 3, 3000
_STEP_GROWTH = 1.05  # ratio of the numbers of steps that are compared
_CENTRED_NORM = 0.7  # of the norm of rows: most rows are closer to their mean, and shorter rows allow longer steps
_CLIP = 0.37  # of the bound on gradients of centred rows: long gradients are rare, and noise grows with the clip
_CENTRED = 0.35  # usual excess of noise on the weights of centred rows, relative to that of other rows
_MEASURED = 2.0  # for centred rows, the measured excess is about twice what the formula gives
_SAFE = 0.95  # of the longest step that does not expand


@dataclass(frozen=True)
class OutputDescent:
    """A descent, and how far its noisy result is expected to be above the minimum."""

    centred_norm: float | None
    lipschitz: float
    step_size: float
    steps: int
    excess: float


@method(
    "output",
    summary="the result of a short descent, on rows centred at a noisy mean if delta > 0",
    is_pure=True,
    uses=("clip_norm", "tpr"),
    excess=lambda task: _measured(best_descent(task)),
)
def train(task: Task) -> Release:
    """Train without noise for some steps, then add noise once."""
    problem, best = task.problem, best_descent(task)
    constants = best.step_size, best.steps, best.lipschitz
    if best.centred_norm is None:
        plan = OutputPlan.for_budget(task.budget, stability=descent_stability(problem, *constants), tasks=task.tasks)
        return task.solve(output_perturbation, plan)
    centred = CentredOutputPlan.for_budget(
        task.budget,
        stability=centred_stability(problem, best.centred_norm, *constants),
        row_norm=problem.rows.weight_in_total,
        centred_norm=best.centred_norm,
        share=CENTRE_SHARE,
        tasks=task.tasks,
    )
    return task.solve(centred_output_perturbation, centred)


def best_descent(task: Task) -> OutputDescent:
    """Return the descent of least expected excess."""
    return min(_descents(task), key=lambda descent: descent.excess)


def _measured(descent: OutputDescent) -> float:
    return descent.excess if descent.centred_norm is None else _MEASURED * descent.excess


def _descents(task: Task) -> Iterator[OutputDescent]:
    """Yield descents with all numbers of steps, on centred rows and on others.

    Centring allows a smaller clip, but then the penalty is on the weights of the centred rows, which changes the
    objective. It therefore pays off only if the penalty is weak.
    """
    problem, rows, whole = task.problem, task.problem.rows, bound_of(task)
    yield from _by_steps(task, problem.smoothness, min(task.clip_norm or whole, whole))
    if rows.intercept and not task.budget.is_pure:
        clips = problem.objective.clips_to_convex
        clip_norm = task.clip_norm or (_CLIP * rows.row_norm * task.residual_scale if clips else whole)
        centred_norm = _CENTRED_NORM * rows.row_norm
        of_loss = problem.objective.smoothness(math.hypot(centred_norm, rows.intercept))
        smoothness = of_loss + problem.regulariser.smoothness
        yield from _by_steps(task, smoothness, min(clip_norm, whole), centred_norm)


def _by_steps(
    task: Task, smoothness: float, lipschitz: float, centred_norm: float | None = None
) -> Iterator[OutputDescent]:
    """Yield descents with the given constants, for numbers of steps on a grid.

    After time t = steps * step_size, a descent on a convex objective is about D^2/(2t) above the minimum, and if the
    objective is strongly convex, D shrinks by the contraction of a step.
    """
    problem, alpha = task.problem, task.problem.strong_convexity
    step_size = _SAFE * 2 / (smoothness + alpha)
    contraction = max(1 - step_size * alpha, abs(1 - step_size * smoothness))
    x, length = noise_of_mean(problem, task.share, lipschitz), usual_length(task)
    steps = float(task.max_iter or _FEWEST_STEPS)
    while steps <= max(_MOST_STEPS, task.max_iter or 0):
        left = length**2 / (2 * step_size * int(steps)) * contraction ** (2 * int(steps))
        excess = left + excess_of_noise(task, x * step_size * sum_of_powers(contraction, int(steps)))
        if centred_norm is not None:
            excess = left + _CENTRED * (excess - left) + alpha / 2 * length**2
        yield OutputDescent(centred_norm, lipschitz, step_size, int(steps), excess)
        if task.max_iter:
            return
        steps *= _STEP_GROWTH
