"""Method ``output``: a short descent without noise, then noise on its result.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

import math

from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import record_clip
from privet.plans import OutputPlan
from privet.privacy import Budget, gdp_mu
from privet.solvers import Release, output_perturbation
from privet.solvers.output_perturbation import descent_stability

_TOLERATED_NOISE = 1.2  # norm of the noise in the weights, in units of the scale of weights
_FEWEST_STEPS, _MOST_STEPS = 3, 400


@method(
    "output",
    summary="the result of a short descent",
    is_pure=True,
    uses=("clip_norm",),
    auto_rank=3,
    auto_reason="delta = 0: noise on the result has a pure form for every loss",
)
def train(task: Task) -> Release:
    """Train without noise for a few steps, then add noise once."""
    problem = task.problem
    step_size = 1.8 / problem.smoothness
    lipschitz = record_clip(problem, task.scale, math.inf, task.clip_norm)
    steps = task.max_iter or output_steps(
        task.share,
        lipschitz=lipschitz,
        n=problem.rows.n,
        n_weights=problem.start().size,
        step_size=step_size,
        scale=task.worth / problem.rows.row_norm,
    )
    stability = descent_stability(problem, step_size, steps, lipschitz)
    return task.solve(output_perturbation, OutputPlan.for_budget(task.budget, stability=stability, tasks=task.tasks))


def output_steps(budget: Budget, *, lipschitz: float, n: int, n_weights: int, step_size: float, scale: float) -> int:
    """Return the number of steps at which the noise that is added at the end reaches a tolerated size.

    The noise that T steps need has a norm of about T * step_size * 2 * lipschitz * sqrt(n_weights) / (n mu). ``scale``
    is the scale of the weights: that of the scores divided by the norm of rows.
    """
    # K-norm noise has a standard deviation of sqrt(d+1) sensitivity/epsilon per coordinate, which gives this mu.
    mu = budget.epsilon / math.sqrt(n_weights + 1) if budget.is_pure else gdp_mu(budget)
    noise_per_step = step_size * 2 * lipschitz * math.sqrt(n_weights) / (n * mu)
    return int(min(max(_TOLERATED_NOISE * scale / noise_per_step, _FEWEST_STEPS), _MOST_STEPS))
