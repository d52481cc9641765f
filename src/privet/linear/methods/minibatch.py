"""Method ``minibatch``: DP-LSSGD, descent along noisy gradients of random batches, with steps that shrink as a/t.

Algorithm 1 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in Privacy-Preserving ERM", with the step
sizes of its experiments and an average of iterates as in its Theorem 4. Batches have a fixed size, and the noise comes
from the accountant. ``smoothing`` is the paper's sigma.

Formal guarantees
-----------------
The guarantee is that of the plan. All defaults are computed from n, dimensions, the budget and public constants.
"""

from collections.abc import Callable
from typing import Any

from privet.denoise import LaplacianSmoothing
from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import CENTRE_SHARE, centred_smoothness, precision, record_clip
from privet.plans import CentredPlan, FixedSize, GradientPlan
from privet.solvers import (
    AlignedStep,
    DecayingStep,
    Release,
    ShortestStep,
    centred_gradient_descent,
    noisy_gradient_descent,
)

_BATCHES = 16  # of this share of the records, random batches need hardly more noise than full ones
_SMALLEST_BATCH = 128
_STEPS_PER_PRECISION, _FEWEST_STEPS, _MOST_STEPS = 0.4, 15, 300
# Size of the first step, and the largest a, in units of 1/smoothness: the worst case is far steeper than most data.
_FIRST, _LARGEST = 16.0, 1000.0
_AVERAGED = 0.2  # the share of the iterates, at the end, whose average is returned: later ones are better


@method(
    "minibatch",
    summary="the gradient of a random batch in every step, on rows centred at a noisy mean",
    uses=("clip_norm", "smoothing", "batch_size", "noise_multiplier", "tpr"),
)
def train(task: Task) -> Release:
    """Train with noise in every step on random batches. Rows are centred as for ``gradient``.

    The noise of one step of size a moves the score of a row of full norm by about as much as matters. Steps are shorter
    than a/t only while successive noisy gradients point in opposite directions.
    """
    problem, rows = task.problem, task.problem.rows
    reached = precision(task.share, rows.n, problem.start().size)
    fields: dict[str, Any] = {
        "sampler": random_batches(task, default_batch_size(rows.n)),
        "steps": task.max_iter or minibatch_steps(reached),
        "clip_norm": record_clip(task),
        "tasks": task.tasks,
    }
    plan: CentredPlan | GradientPlan
    smoothness = centred_smoothness(problem)
    if smoothness is not None:
        plan = CentredPlan.for_budget(task.noise_or_budget, row_norm=rows.weight_in_total, share=CENTRE_SHARE, **fields)
        solver: Callable[..., Release] = centred_gradient_descent
        gradients = plan.gradients
    else:
        plan = gradients = GradientPlan.for_budget(task.noise_or_budget, **fields)
        solver = noisy_gradient_descent
    noise_in_score = gradients.noise_std / gradients.divisor(rows.n) * rows.row_norm
    smoothness = smoothness or problem.smoothness
    largest = _LARGEST / smoothness
    a = min(task.worth / noise_in_score, largest) if noise_in_score else largest
    aligned = AlignedStep(first=min(a, _FIRST / smoothness), longest=a)
    denoiser = LaplacianSmoothing(task.smoothing) if task.smoothing else None
    step_size = ShortestStep((DecayingStep(a), aligned))
    return task.solve(solver, plan, step_size=step_size, averaged=_AVERAGED, denoiser=denoiser)


def random_batches(task: Task, default: int) -> FixedSize:
    """Return the sampler of batches of ``batch_size`` records, or of ``default`` records if it is None."""
    n, size = task.problem.rows.n, task.batch_size or default
    if size > n:
        raise ValueError(f"batch_size = {size} exceeds the number of records, {n}. Set a smaller one, or leave it out.")
    return FixedSize(size, n)


def default_batch_size(n: int) -> int:
    """Return the number of records per batch: a sixteenth of all, and at least 128 if there are as many."""
    return max(-(-n // _BATCHES), min(_SMALLEST_BATCH, n))


def minibatch_steps(precision: float) -> int:
    """Return the number of steps. With less noise, more steps can be told from noise."""
    return int(min(max(_STEPS_PER_PRECISION * precision, _FEWEST_STEPS), _MOST_STEPS))
