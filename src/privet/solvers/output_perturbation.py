"""Output perturbation: gradient descent without noise, then noise on the result.

Algorithm 1 of "Efficient Private ERM for Smooth Objectives", with the tight sensitivity of
:class:`~privet.plans.DescentStability` and the least noise for it.
"""

import math

from privet.plans import DescentStability, OutputPlan
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release, Run


def output_perturbation(problem: Problem, run: Run[OutputPlan]) -> Release:
    """Run the descent that the plan bounds, then add its noise.

    Formal guarantees
    -----------------
    The plan's, for a convex problem with the constants of the plan's :class:`DescentStability`; a mismatch raises an
    error. Only the noisy result is released, not the iterates.
    """
    plan, stability = run.plan, run.plan.stability
    if not isinstance(stability, DescentStability):
        raise TypeError(f"output_perturbation runs a DescentStability plan, not {type(stability).__name__}")
    if descent_stability(problem, stability.step_size, stability.steps, stability.lipschitz) != stability:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    bound = enforced(f"rows and gradients are bounded, so that {stability.in_words()}")
    guarantee = run.guarantee(bound=bound, released="the final weights, with noise added once")
    weights = problem.start()
    for done in range(1, stability.steps + 1):
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, stability.lipschitz)
        gradient = total / stability.n + problem.regulariser.gradient(weights)
        weights = weights - stability.step_size * gradient
        run.report(done, stability.steps)
    trace = {"steps": stability.steps, "step_size": stability.step_size}
    return Release(plan.noisy(weights, run.source), guarantee, trace)


def descent_stability(
    problem: Problem, step_size: float, steps: int, clip_norm: float | None = None
) -> DescentStability:
    """Return the stability of ``steps`` gradient steps on ``problem``, with gradients clipped to ``clip_norm``.

    Raise if the clip is below the problem's own bound and clipped gradients are not those of a convex loss, because
    steps along such gradients may move apart.
    """
    lipschitz = problem.lipschitz if clip_norm is None else min(clip_norm, problem.lipschitz)
    if lipschitz < problem.lipschitz and not problem.objective.clips_to_convex:
        raise ValueError(
            f"{type(problem.objective).__name__} has several scores per record, so its clipped gradients are not those "
            "of a convex loss, and a descent along them is not stable: leave the clip out, or add noise in every step"
        )
    if not math.isfinite(lipschitz):
        raise ValueError(f"{type(problem.objective).__name__} has unbounded gradients: give a clip_norm")
    return DescentStability(
        n=problem.rows.n,
        lipschitz=lipschitz,
        smoothness=problem.smoothness,
        strong_convexity=problem.strong_convexity,
        step_size=step_size,
        steps=steps,
        first_lipschitz=min(problem.objective.start_residual_bound * problem.rows.norm_bound, lipschitz),
    )
