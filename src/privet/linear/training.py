"""From a method's name to its plan and solver: how each makes its plan from a budget, and what it runs.

Formal guarantees
-----------------
Everything here is computed from n, dimensions, the budget and public constants. The guarantee is the plan's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from privet.denoise import LaplacianSmoothing
from privet.linear.defaults import (
    AVERAGED,
    BATCHES,
    CENTRE_SHARE,
    decaying,
    default_clip,
    gradient_steps,
    iteration_passes,
    longest_step,
    objective_alpha,
    output_steps,
    precision,
)
from privet.plans import CentredPlan, FixedOrder, FullBatch, GradientPlan, OutputPlan, Plan
from privet.privacy import Budget, NoiseSource
from privet.solvers import (
    AlignedStep,
    Problem,
    Progress,
    Release,
    Run,
    centred_gradient_descent,
    descent_of,
    minimiser_perturbation,
    noisy_gradient_descent,
    objective_perturbation,
    output_perturbation,
    projected_sgd,
)
from privet.solvers.minimiser_perturbation import minimiser_stability
from privet.solvers.objective_perturbation import objective_plan
from privet.solvers.output_perturbation import descent_stability

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Task:
    """A problem, its budget, and what the user set; None leaves the choice to the defaults.

    ``scale`` is the public scale of scores: 1 for classes, the bound of the target for numbers; ``worth`` is the part
    of it that counts: all for classes, where only order matters, a fifth for numbers, where every deviation does.
    ``public`` is the same problem over records that need no protection.
    """

    problem: Problem
    budget: Budget
    source: NoiseSource
    scale: float = 1.0
    worth: float = 1.0
    max_iter: int | None = None
    clip_norm: float | None = None
    smoothing: float = 0.0
    public: Problem | None = None
    progress: Progress | None = None

    def run(self, plan: P) -> Run[P]:
        """Return a run of the plan, with the task's noise source and progress."""
        return Run(plan, self.source, self.progress)

    def clip(self, otherwise: float) -> float:
        """Return the clip of a record's gradient, no larger than the gradient can be."""
        bounded = min(otherwise if self.clip_norm is None else self.clip_norm, self.problem.lipschitz)
        # A square has no bound of its own: it is clipped where a residual exceeds the scale.
        return bounded if math.isfinite(bounded) else self.problem.rows.norm_bound * self.scale


def by_gradient(task: Task) -> Release:
    """Train with noise in every step, on centred rows if there is an intercept to take the centre back."""
    problem, rows = task.problem, task.problem.rows
    reached = precision(task.budget, rows.n, problem.start().size)
    steps = task.max_iter or gradient_steps(reached)
    clip_norm = task.clip(otherwise=default_clip(rows.row_norm, task.scale, reached))
    fields: dict[str, Any] = {"steps": steps, "clip_norm": clip_norm}
    options: dict[str, Any] = {"averaged": AVERAGED}
    if task.smoothing:
        options["denoiser"] = LaplacianSmoothing(task.smoothing)

    def rule(plan: GradientPlan) -> AlignedStep:
        longest = longest_step(plan.noise_std / rows.n, steps, rows.row_norm, task.worth)
        return AlignedStep(first=1.8 / problem.smoothness, longest=longest)

    if rows.intercept:
        centred = CentredPlan.for_budget(task.budget, row_norm=rows.weight_in_total, share=CENTRE_SHARE, **fields)
        return centred_gradient_descent(problem, task.run(centred), step_size=rule(centred.gradients), **options)
    plan = GradientPlan.for_budget(task.budget, sampler=FullBatch(), **fields)
    return noisy_gradient_descent(problem, task.run(plan), step_size=rule(plan), **options)


def by_iteration(task: Task) -> Release:
    """Train with noise in every step, on a few batches in a fixed order, and keep all iterates but the last hidden.

    Public records are visited at the end of each pass, and descent starts from what they alone would teach.
    """
    problem, rows, public = task.problem, task.problem.rows, task.public
    reached = precision(task.budget, rows.n, problem.start().size)
    clip_norm = task.clip(otherwise=default_clip(rows.row_norm, task.scale, reached))
    if not problem.objective.clips_to_convex:
        if task.clip_norm is not None:
            raise ValueError(
                "gradients of several classes do not contract once they are clipped, and method='iteration' rests on "
                "that: leave clip_norm out, or use method='gradient'"
            )
        tables = [rows] if public is None else [rows, public.rows]  # larger tables have larger allowances for rounding
        bounds = [part.centred_norm_bound if part.intercept else part.norm_bound for part in tables]
        clip_norm = problem.objective.lipschitz(max(bounds))
    step_size = 2 / (problem.smoothness + problem.strong_convexity)
    passes = task.max_iter or iteration_passes(
        task.budget, clip_norm=clip_norm, n=rows.n, step_size=step_size, row_norm=rows.row_norm, scale=task.worth
    )
    size = -(-rows.n // BATCHES)
    order = FixedOrder(rows.n, passes, size, 0 if public is None else public.rows.n)
    descent = descent_of(problem, decaying(step_size, order.implied_steps))
    fields: dict[str, Any] = {"sampler": order, "clip_norm": clip_norm, "release": "last", "descent": descent}
    if rows.intercept:
        centred = CentredPlan.for_budget(task.budget, row_norm=rows.weight_in_total, share=CENTRE_SHARE, **fields)
        release, plan = centred_gradient_descent(problem, task.run(centred), public=public), centred.gradients
    else:
        plan = GradientPlan.for_budget(task.budget, **fields)
        release = projected_sgd(problem, task.run(plan), public=public)
    return replace(release, trace={**release.trace, "remark": _amplification(plan, rows.n)})


def _amplification(plan: GradientPlan, n: int) -> str:
    """Return what hiding the iterates saved, and whether a descent that shows them would do better."""
    hidden = plan.event.unsampled(plan.adjacency).mu
    shown = plan.sampler.event(plan.noise_multiplier, plan.steps, plan.adjacency).unsampled(plan.adjacency).mu
    # As many full-batch steps with the same noise on the mean: composed, they cost the square root of their number.
    full_batch = 2 * math.sqrt(plan.steps) / (plan.noise_multiplier * n / plan.divisor(n))
    saved = f"hiding all iterates but the last saves {1 - hidden / shown:.0%} of the noise that these steps would need"
    if full_batch < hidden:
        return (
            f"{saved}; {plan.steps} full-batch steps, all shown, would need {1 - full_batch / hidden:.1%} less noise, "
            f"for {n / plan.divisor(n):.0f} times the work: method='gradient', whose steps may be longer, can be better"
        )
    return f"{saved}, and {1 - hidden / full_batch:.1%} of what as many full-batch steps need: composition is worse"


def by_output(task: Task) -> Release:
    """Train without noise for few steps, then add noise once. A clip keeps it stable only for one score a record."""
    problem = task.problem
    step_size = 1.8 / problem.smoothness
    lipschitz = task.clip(otherwise=math.inf)
    steps = task.max_iter or output_steps(
        task.budget,
        lipschitz=lipschitz,
        n=problem.rows.n,
        n_weights=problem.start().size,
        step_size=step_size,
        scale=task.worth / problem.rows.row_norm,
    )
    plan = OutputPlan.for_budget(task.budget, stability=descent_stability(problem, step_size, steps, lipschitz))
    return output_perturbation(problem, task.run(plan))


def by_minimiser(task: Task) -> Release:
    """Find the minimum, then add noise once; the noise is that of ``alpha``."""
    plan = OutputPlan.for_budget(task.budget, stability=minimiser_stability(task.problem))
    return minimiser_perturbation(task.problem, task.run(plan))


def by_objective(task: Task) -> Release:
    """Tilt the objective by noise, then find its minimum; ``alpha`` is raised to what the budget asks for."""
    problem = task.problem
    wanted = objective_alpha(
        task.budget,
        lipschitz=problem.lipschitz,
        n=problem.rows.n,
        n_weights=problem.start().size,
        scale=task.scale,
        row_norm=problem.rows.row_norm,
        smoothness=problem.objective.smoothness(problem.rows.norm_bound),
    )
    plan = objective_plan(problem, task.budget, added_alpha=max(wanted - problem.strong_convexity, 0.0))
    return objective_perturbation(problem, task.run(plan))


TRAINERS: dict[str, Callable[[Task], Release]] = {
    "gradient": by_gradient,
    "iteration": by_iteration,
    "output": by_output,
    "minimiser": by_minimiser,
    "objective": by_objective,
}
