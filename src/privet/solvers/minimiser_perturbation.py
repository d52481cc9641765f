"""Output perturbation of the minimiser: minimise to a certified accuracy, then add noise once.

Algorithm 1 of "Differentially Private Empirical Risk Minimization" (Chaudhuri, Monteleoni, Sarwate, 2011), for any
convex loss, with pure or Gaussian noise, and for minimisers that are computed approximately.
"""

from privet.plans.output import OutputPlan
from privet.plans.stabilities.minimiser import MinimiserStability, default_tolerance
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import FEATURE_NOISE, Problem, Release, Run
from privet.solvers.base.minimise import check_minimisable, least_tolerance, minimise


def minimiser_perturbation(problem: Problem, run: Run[OutputPlan]) -> Release:
    """Minimise up to the tolerance that the plan allows, then add its noise.

    Formal guarantees
    -----------------
    The guarantee is that of the plan, for a problem with the constants of the plan's :class:`MinimiserStability`. A
    mismatch raises an error, and so does a tolerance that might be unreachable for some data. The gradient at the
    computed minimiser is certified to be within the tolerance. Only the noisy result is released.
    """
    plan, stability = run.plan, run.plan.stability
    if not isinstance(stability, MinimiserStability):
        raise TypeError(f"minimiser_perturbation runs a MinimiserStability plan, not {type(stability).__name__}")
    check_minimisable(problem)
    if minimiser_stability(problem, stability.tolerance) != stability:
        raise ValueError("the plan was made for other data or constants than this problem's: make it from the problem")
    bound = enforced(f"rows are bounded and the minimiser is certified, so that {stability.in_words()}")
    guarantee = run.guarantee(bound=bound, released="the minimiser, with noise added once")
    weights = minimise(problem, tolerance=stability.tolerance)
    run.report(1, 1)
    noise = {FEATURE_NOISE: plan.noise_std(weights.size)}
    trace = {"tolerance": stability.tolerance, "noise_scale": plan.scale, **noise}
    return Release(plan.noisy(weights, run.source), guarantee, trace)


def minimiser_stability(problem: Problem, tolerance: float | None = None) -> MinimiserStability:
    """Return the stability of the minimiser of ``problem``.

    The default tolerance depends on public numbers only. It adds about 1 % to the sensitivity, or more if a better
    accuracy cannot be certified in floating point.
    """
    check_minimisable(problem)
    n, lipschitz = problem.rows.n, problem.lipschitz
    if tolerance is None:
        tolerance = max(default_tolerance(n, lipschitz), least_tolerance(problem))
    return MinimiserStability(n, lipschitz, problem.strong_convexity, tolerance)
