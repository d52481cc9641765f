"""Method ``iteration``: noisy descent over batches in a secret order, of which only the last iterate is released.

Formal guarantees
-----------------
Privacy amplification by iteration, as stated by the plan. All defaults are computed from n, dimensions, the budget and
public constants.
"""

import math
from dataclasses import replace
from typing import Any

from privet.linear.methods._base import Task, method
from privet.linear.methods.gradient import CENTRE_SHARE, TOLERATED_SCORE_NOISE, record_clip
from privet.plans import CentredPlan, FixedOrder, GradientPlan, RandomSkip, RandomStop, SecretOrder
from privet.privacy import Budget, gdp_mu
from privet.solvers import Release, centred_gradient_descent, descent_of, projected_sgd

SECRETS: dict[str, type[FixedOrder]] = {str(kind.secret): kind for kind in (SecretOrder, RandomStop, RandomSkip)}
"""The samplers by the values of the parameter ``secret``: what a run keeps secret, besides its iterates."""

BATCHES = 8  # one pass of this many steps costs as much as one full-batch step
_FEWEST_PASSES, _MOST_PASSES = 5, 150
_MOST_BATCHES = 2000  # of one pass
_ONE_PASS_NOISE = 0.5  # tolerated in the scores after one pass, whose steps do not become shorter towards the end
_DECAYING = 0.5  # share of the steps, at the end, over which their sizes fall to zero, which averages the iterates


@method(
    "iteration",
    summary="the gradient of each batch; records are shuffled into batches once, and only the weights after the last "
    "step are released",
    uses=("clip_norm", "secret", "noise_multiplier", "tpr"),
    uses_public=True,
)
def train(task: Task) -> Release:
    """Train with noise in every step on a few random batches, and release only the last iterate.

    Records are dealt into batches at random, once, and every pass visits the batches in the same order.

    Public records are visited at the end of each pass, and the descent starts from the model that they alone give.
    """
    problem, rows = task.problem, task.problem.rows
    clip_norm = _clip(task)
    step_size = 2 / (problem.smoothness + problem.strong_convexity)
    order = _order(task, step_size * 2 * clip_norm * rows.row_norm / (rows.n * gdp_mu(task.share)))
    # A secret stop or skip is analysed for steps of one size.
    is_one_pass = isinstance(order, RandomStop | RandomSkip)
    descent = descent_of(problem, step_size if is_one_pass else decaying(step_size, order.implied_steps))
    fields: dict[str, Any] = {"sampler": order, "clip_norm": clip_norm, "tasks": task.tasks}
    fields |= {"release": "last", "descent": descent}
    if rows.intercept:
        centred = CentredPlan.for_budget(
            task.noise_or_budget, row_norm=rows.weight_in_total, share=CENTRE_SHARE, **fields
        )
        release, plan = task.solve(centred_gradient_descent, centred), centred.gradients
    else:
        plan = GradientPlan.for_budget(task.noise_or_budget, **fields)
        release = task.solve(projected_sgd, plan)
    return replace(release, trace={**release.trace, "remark": _amplification(plan, rows.n)})


def _clip(task: Task) -> float:
    """Return the clip of a record's gradient. Softmax gradients are not clipped, but bounded by the loss."""
    problem, rows = task.problem, task.problem.rows
    if problem.objective.clips_to_convex:
        return record_clip(task)
    if task.clip_norm is not None:
        raise ValueError(
            f"method='iteration' cannot clip gradients of several classes (clip_norm={task.clip_norm:g}), because "
            "clipped steps of a softmax do not contract, and the guarantee rests on contraction. Leave clip_norm out, "
            "or use method='gradient'."
        )
    return problem.objective.lipschitz(rows.centred_norm_bound if rows.intercept else rows.norm_bound)


def _amplification(plan: GradientPlan, n: int) -> str:
    """Return how much noise hiding the iterates saved, and whether a descent that releases them would do better."""
    if not plan.has_noise:
        return ""
    hidden = _mu(plan) / math.sqrt(plan.tasks)  # of one run
    shown = plan.sampler.event(plan.noise_multiplier, plan.steps, plan.adjacency).unsampled(plan.adjacency).mu
    # As many full-batch steps with the same noise on the mean: their composition costs the square root of their number.
    full_batch = 2 * math.sqrt(plan.steps) / (plan.noise_multiplier * n / plan.divisor(n))
    share = max(1 - hidden / shown, 0.0)
    saved = f"hiding all iterates but the last saves {share:.0%} of the noise that these steps would need"
    if full_batch < hidden:
        return (
            f"{saved}; {plan.steps} full-batch steps, all released, would need {1 - full_batch / hidden:.1%} less "
            f"noise for {n / plan.divisor(n):.0f} times the work, so method='gradient' can be better"
        )
    return f"{saved}, and {1 - hidden / full_batch:.1%} of the noise of as many full-batch steps"


def _mu(plan: GradientPlan) -> float:
    """Return the mu of all runs of a plan, or of a Gaussian release with the same epsilon if a secret matters."""
    mu = plan.event.gaussian_mu(plan.adjacency)
    epsilon = 0.0 if mu is not None else plan.guarantee().epsilon
    if mu is None and epsilon > 0 and plan.delta:
        mu = gdp_mu(Budget(epsilon, plan.delta))
    return plan.event.unsampled(plan.adjacency).mu if mu is None else mu


def _order(task: Task, noise_per_step: float) -> FixedOrder:
    """Return how records are visited: several passes over a few batches, or one pass with a secret stop or skip.

    The order is drawn, because that of a user's table may depend on its content, as in a sorted table.
    """
    n, n_public = task.problem.rows.n, 0 if task.public_records is None else task.public_records.rows.n
    if task.secret not in (RandomStop.secret, RandomSkip.secret):
        passes = task.max_iter or iteration_passes(noise_per_step, task.worth)
        size = -(-n // BATCHES)
        if task.secret == SecretOrder.secret:
            return SecretOrder(n, passes, size, n_public)
        return FixedOrder(n, passes, size, n_public, shuffled=True)
    if task.secret == RandomStop.secret and n_public:
        raise ValueError(
            "secret='stop' cannot learn from public records, because it may stop before it reaches them. Use "
            "secret='skip' or 'order', or leave the public records out."
        )
    batches = min(task.max_iter or one_pass_batches(noise_per_step, task.worth), n)
    return SECRETS[task.secret](n, size=-(-n // batches), public=n_public, shuffled=True)


def iteration_passes(noise_per_step: float, scale: float) -> int:
    """Return the number of passes that keeps the noise of all steps together at a tolerated size in the scores.

    ``noise_per_step`` is step_size * 2 * clip_norm * row_norm / (n mu). The noise of T steps adds up to about T times
    that, as in a descent that releases all iterates. Steps are short, at most 2/smoothness, so many of them are needed.
    """
    steps = TOLERATED_SCORE_NOISE * scale / noise_per_step
    return int(min(max(steps / BATCHES, _FEWEST_PASSES), _MOST_PASSES))


def one_pass_batches(noise_per_step: float, scale: float) -> int:
    """Return the number of batches of a single pass that keeps the noise of its steps at a tolerated size.

    A batch of one in T records gets T times the noise of a full batch, and the noises of T steps add up to sqrt(T)
    times that: T^(3/2) times ``noise_per_step``.
    """
    batches = (_ONE_PASS_NOISE * scale / noise_per_step) ** (2 / 3)
    return int(min(max(batches, BATCHES), _MOST_BATCHES))


def decaying(step_size: float, steps: int) -> tuple[float, ...]:
    """Return step sizes that are constant for the first half of the steps, then fall linearly to almost zero."""
    falling = int(_DECAYING * steps)
    return tuple(step_size * min(1.0, (steps - step) / (falling + 1)) for step in range(steps))
