"""From a method's name to its plan and solver: how each makes its plan from a budget, and what it runs.

Formal guarantees
-----------------
Everything here is computed from n, dimensions, the budget and public constants. The guarantee is the plan's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privet.denoise import LaplacianSmoothing
from privet.linear.defaults import (
    AVERAGED,
    CENTRE_SHARE,
    default_clip,
    gradient_steps,
    longest_step,
    objective_alpha,
    output_steps,
    precision,
)
from privet.plans import CentredPlan, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import (
    AlignedStep,
    Problem,
    Progress,
    Release,
    centred_gradient_descent,
    minimiser_perturbation,
    noisy_gradient_descent,
    objective_perturbation,
    output_perturbation,
)
from privet.solvers.minimiser_perturbation import minimiser_stability
from privet.solvers.objective_perturbation import objective_plan
from privet.solvers.output_perturbation import descent_stability


@dataclass(frozen=True)
class Task:
    """A problem, its budget, and what the user set; None leaves the choice to the defaults.

    ``scale`` is the public scale of scores: 1 for classes, the bound of the target for numbers; ``worth`` is the part
    of it that counts: all for classes, where only order matters, a fifth for numbers, where every deviation does.
    """

    problem: Problem
    budget: Budget
    source: NoiseSource
    scale: float = 1.0
    worth: float = 1.0
    max_iter: int | None = None
    clip_norm: float | None = None
    smoothing: float = 0.0
    progress: Progress | None = None

    @property
    def common(self) -> dict[str, Any]:
        """What every solver is given."""
        return {"delta": self.budget.delta, "source": self.source, "progress": self.progress}

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
    options: dict[str, Any] = {"averaged": AVERAGED, **task.common}
    if task.smoothing:
        options["denoiser"] = LaplacianSmoothing(task.smoothing)

    def rule(plan: GradientPlan) -> AlignedStep:
        longest = longest_step(plan.noise_std / rows.n, steps, rows.row_norm, task.worth)
        return AlignedStep(first=1.8 / problem.smoothness, longest=longest)

    if rows.intercept:
        centred = CentredPlan.for_budget(task.budget, row_norm=rows.weight_in_total, share=CENTRE_SHARE, **fields)
        return centred_gradient_descent(problem, centred, step_size=rule(centred.descent), **options)
    plan = GradientPlan.for_budget(task.budget, sampler=FullBatch(), **fields)
    return noisy_gradient_descent(problem, plan, step_size=rule(plan), **options)


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
    return output_perturbation(problem, plan, **task.common)


def by_minimiser(task: Task) -> Release:
    """Find the minimum, then add noise once; the noise is that of ``alpha``."""
    plan = OutputPlan.for_budget(task.budget, stability=minimiser_stability(task.problem))
    return minimiser_perturbation(task.problem, plan, **task.common)


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
    return objective_perturbation(problem, plan, **task.common)


TRAINERS: dict[str, Callable[[Task], Release]] = {
    "gradient": by_gradient,
    "output": by_output,
    "minimiser": by_minimiser,
    "objective": by_objective,
}
