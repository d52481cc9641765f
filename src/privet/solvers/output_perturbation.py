"""Output perturbation: gradient descent without noise, then noise on the result; on rows or on centred rows.

Algorithm 1 of "Efficient Private ERM for Smooth Objectives", with the tight sensitivity of
:class:`~privet.plans.DescentStability` and the least noise for it.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.plans import CentredOutputPlan, DescentStability, OutputPlan
from privet.plans.stabilities.descent import sum_of_powers
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.centring import centred_anywhere, check_centrable, noisy_centre, uncentred
from privet.solvers.base.interface import FEATURE_NOISE, Problem, Progress, Release, Run
from privet.solvers.base.rounding import UNIT_ROUNDOFF, rounding_besides_sums


def output_perturbation(problem: Problem, run: Run[OutputPlan]) -> Release:
    """Run the descent that the plan bounds, then add its noise.

    Formal guarantees
    -----------------
    The guarantee is that of the plan. It requires a convex problem with the constants of the plan's
    :class:`DescentStability`, which include the rounding errors of every step, and other constants raise an error. Only
    the noisy result is released, not the iterates.
    """
    plan, stability = run.plan, run.plan.stability
    if not isinstance(stability, DescentStability):
        raise TypeError(f"output_perturbation runs a DescentStability plan, not {type(stability).__name__}")
    if descent_stability(problem, stability.step_size, stability.steps, stability.lipschitz) != stability:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    bound = enforced(f"rows and gradients are bounded, so that {stability.in_words()}")
    guarantee = run.guarantee(bound=bound, released="the final weights, with noise added once")
    weights = plan.noisy(_descended(problem, stability, run.report), run.source)
    return Release(weights, guarantee, _trace(stability, plan, weights.size))


def centred_output_perturbation(problem: Problem, run: Run[CentredOutputPlan]) -> Release:
    """Release a noisy mean of the rows, centre them on it, run the descent that the plan bounds, and add its noise.

    Centred rows are scaled down to the norm that the plan states, which bounds the smoothness of the objective. The
    penalty is on the weights of the centred rows. The returned weights are for the original rows: the intercept absorbs
    the centre. The problem therefore needs an intercept.

    Formal guarantees
    -----------------
    The guarantee is that of the plan. The centre is part of the release, so the descent may use it like a public
    vector, and the constants of the plan's stability must be those of :func:`centred_stability`, which hold for every
    centre. Several tasks share the centre, which is released in the first run.
    """
    rows, plan, stability = problem.rows, run.plan, run.plan.output.stability
    check_centrable(rows, plan.mean)
    if not isinstance(stability, DescentStability):
        raise TypeError(f"centred_output_perturbation runs a DescentStability plan, not {type(stability).__name__}")
    constants = stability.step_size, stability.steps, stability.lipschitz
    if centred_stability(problem, plan.centred_norm, *constants) != stability:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    bounds = (
        enforced(f"each row has l2 norm at most {rows.row_norm:.6g}"),
        enforced(f"centred rows and gradients are bounded, so that {stability.in_words()}"),
    )
    guarantee = run.guarantee(bounds=bounds)
    centre = run.shared("centre", lambda: noisy_centre(rows, plan.mean, run.source))
    centred = replace(problem, rows=rows.centred(centre, plan.centred_norm))
    weights = plan.output.noisy(_descended(centred, stability, run.report), run.source)
    return Release(uncentred(weights, rows, centre), guarantee, _trace(stability, plan.output, weights.size))


def _descended(problem: Problem, stability: DescentStability, report: Progress) -> NDArray[Any]:
    """Return the weights after the steps that ``stability`` bounds. They must get noise before they are released."""
    weights = problem.start()
    for done in range(1, stability.steps + 1):
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, stability.lipschitz)
        gradient = total / stability.n + problem.regulariser.gradient(weights)
        weights = weights - stability.step_size * gradient
        report(done, stability.steps)
    return weights


def _trace(stability: DescentStability, plan: OutputPlan, dimension: int) -> dict[str, Any]:
    noise = {FEATURE_NOISE: plan.noise_std(dimension)}
    return {"steps": stability.steps, "step_size": stability.step_size, **noise}


def centred_stability(
    problem: Problem, centred_norm: float, step_size: float, steps: int, clip_norm: float | None = None
) -> DescentStability:
    """Return the stability of gradient steps on rows that are centred at any point of their ball.

    Parameters
    ----------
    problem : Problem
    centred_norm : float
        Norm to which centred rows are scaled down.
    step_size, steps, clip_norm
        As for :func:`descent_stability`.
    """
    anywhere = centred_anywhere(problem, problem.rows.row_norm, centred_norm)
    return descent_stability(anywhere, step_size, steps, clip_norm)


def descent_stability(
    problem: Problem, step_size: float, steps: int, clip_norm: float | None = None
) -> DescentStability:
    """Return the stability of ``steps`` gradient steps on ``problem``, with gradients clipped to ``clip_norm``.

    Raise ValueError if clipping would shorten gradients of a loss with several scores per record. The clipped gradients
    of such a loss are not gradients of any convex function, and the stability is proved only for convex functions.
    """
    lipschitz = problem.lipschitz if clip_norm is None else min(clip_norm, problem.lipschitz)
    if lipschitz < problem.lipschitz and not problem.objective.clips_to_convex:
        raise ValueError(
            f"clip_norm = {lipschitz:.6g} is too small for {type(problem.objective).__name__}, a loss with several "
            f"scores per record whose gradients have norms up to {problem.lipschitz:.6g}: clipped gradients of such a "
            "loss are not those of a convex loss, so noise on the result alone would not hide a record. Leave "
            "clip_norm out, or "
            'add noise in every step, which is method="gradient" of an estimator.'
        )
    if not math.isfinite(lipschitz):
        raise ValueError(f"{type(problem.objective).__name__} has unbounded gradients: give a clip_norm")
    exact = DescentStability(
        n=problem.rows.n,
        lipschitz=lipschitz,
        smoothness=problem.smoothness,
        strong_convexity=problem.strong_convexity,
        step_size=step_size,
        steps=steps,
        first_lipschitz=min(problem.objective.start_residual_bound * problem.rows.norm_bound, lipschitz),
    )
    return replace(exact, rounding=_rounding_of_a_step(problem, exact))


def _rounding_of_a_step(problem: Problem, stability: DescentStability) -> float:
    """Return how far the computed result of a step may be from the exact one (docs/proofs.md, section 1).

    The rounding of sums over records is not included, because the bound on rows already has room for it.
    """
    slope_at_start = float(np.linalg.norm(problem.regulariser.gradient(problem.start())))
    longest_step = stability.step_size * (stability.lipschitz + slope_at_start)
    farthest = 1.01 * longest_step * sum_of_powers(stability.contraction, stability.steps)
    in_gradient = rounding_besides_sums(problem, stability.lipschitz, farthest)
    # The step size times the gradient, and the new weights, are rounded as well.
    rounding = stability.step_size * in_gradient + 4 * UNIT_ROUNDOFF * (farthest + longest_step)
    if rounding > 0.01 * longest_step:  # else the weights stay within the distance of 1.01 times that of exact ones
        raise ValueError(
            f"The rounding errors of {stability.steps} steps cannot be bounded: each may move the weights by "
            f"{rounding:.3g}, with steps of at most {longest_step:.3g}. Use fewer steps, or a larger alpha."
        )
    return rounding
