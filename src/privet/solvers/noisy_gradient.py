"""Noisy gradient descent: DP-GD, DP-SGD, DP-LSSGD with smoothing, and heavy-ball momentum; on rows or on centred rows.

Algorithm 1 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in Privacy-Preserving ERM",
with noise from the accountant in place of its Theorem 2.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.denoise import Denoiser
from privet.plans import CentredPlan, GradientPlan
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.centring import UncentredPenalty, centred_anywhere, check_centrable, noisy_centre, uncentred
from privet.solvers.base.hidden_steps import rounding_of
from privet.solvers.base.interface import (
    ALL_ITERATES,
    Problem,
    Release,
    Run,
    StepSize,
    as_step_size,
    gradients_bounded_by,
)
from privet.solvers.projected_sgd import check_last_iterate, projected_sgd


def noisy_gradient_descent(
    problem: Problem,
    run: Run[GradientPlan],
    *,
    step_size: float | StepSize,
    denoiser: Denoiser | None = None,
    momentum: float = 0.0,
    averaged: float = 0.0,
    keep_iterates: bool = False,
) -> Release:
    """Descend along noisy sums of bounded gradients.

    Parameters
    ----------
    problem : Problem
        The objective, which need not be convex.
    run : Run of a GradientPlan
        The plan determines batches, clip, noise and number of steps.
    step_size : float or StepSize
        A constant, or a rule that uses noisy gradients only.
    denoiser : Denoiser or None
        Applied to each noisy gradient, separately for each class and without the intercept. An example is
        :class:`~privet.denoise.LaplacianSmoothing`.
    momentum : float
        Share of the previous direction that is kept (heavy ball), in [0, 1).
    averaged : float
        Share of the iterates, counted from the end, whose average is returned; 0 returns the last iterate.
    keep_iterates : bool
        Whether the trace contains every iterate. The guarantee covers all of them.

    Formal guarantees
    -----------------
    The guarantee is that of the plan: each step sees the data only through one noisy sum whose summands have norm at
    most ``plan.clip_norm`` (clipped, or bounded by the rows). The regulariser, the denoiser, momentum, the step and the
    average are post-processing, so all iterates are covered. The sum is divided by a public constant
    (:meth:`GradientPlan.divisor`).
    """
    plan = run.plan
    check_run(problem.rows.n, plan, step_size=step_size, momentum=momentum, averaged=averaged)
    rule, n = as_step_size(step_size), problem.rows.n
    divisor = plan.divisor(n)
    guarantee = run.guarantee(bound=gradients_bounded_by(plan.clip_norm), released=ALL_ITERATES)
    noise_std = plan.noise_std / divisor
    choose = rule.start(noise_std)
    weights = problem.start()
    direction, tail = np.zeros_like(weights), np.zeros_like(weights)
    n_tail = max(1, math.ceil(averaged * plan.steps))
    iterates = []
    for done, step in enumerate(run.steps(n), start=1):
        rows, targets = problem.batch(step.batch, plan.adjacency)
        total = problem.objective.gradient_sum(weights, rows, targets, plan.clip_norm)
        gradient = step.noisy(total) / divisor + problem.regulariser.gradient(weights)
        size = choose(gradient)
        if denoiser is not None:
            gradient = _denoised(gradient, problem.rows.n_features, denoiser, noise_std)
        direction = momentum * direction + gradient
        weights = weights - size * direction
        if done > plan.steps - n_tail:
            tail += weights
        if keep_iterates:
            iterates.append(weights)
    trace: dict[str, Any] = {
        "steps": plan.steps,
        "step_size": size,
        "clip_norm": plan.clip_norm,
        "noise_std": noise_std,
    }
    if keep_iterates:
        trace["iterates"] = iterates
    return Release(tail / n_tail, guarantee, trace)


def check_run(
    n: int,
    plan: GradientPlan,
    *,
    step_size: float | StepSize,
    momentum: float = 0.0,
    averaged: float = 0.0,
    **others: Any,
) -> None:
    """Raise if the plan or the options do not fit, before any noise is drawn. ``others`` fit every plan."""
    as_step_size(step_size)
    if not (0 <= momentum < 1 and 0 <= averaged <= 1):
        raise ValueError(f"momentum must lie in [0, 1) and averaged in [0, 1], got {momentum!r} and {averaged!r}")
    plan.divisor(n)
    plan.sampler.check_n(n)
    if plan.release != "all":
        raise ValueError(
            'this plan accounts for release="last", where all iterates but the last are hidden: use projected_sgd. '
            "Averages, momentum and step sizes that depend on gradients reveal more than the last iterate."
        )


def _denoised(gradient: NDArray[Any], n_features: int, denoiser: Denoiser, noise_std: float) -> NDArray[Any]:
    """Return the gradient with the features of each class denoised separately. An intercept is left unchanged."""
    result = gradient.copy()
    features = result.reshape(result.shape[0], -1)[:n_features]
    features[:] = np.column_stack(denoiser([column.copy() for column in features.T], noise_std))
    return result


def centred_gradient_descent(problem: Problem, run: Run[CentredPlan], **options: Any) -> Release:
    """Release a noisy mean of the rows, centre them on it, and descend.

    ``options`` are those of :func:`noisy_gradient_descent`, or of :func:`~privet.solvers.projected_sgd.projected_sgd`
    for a plan that releases only the last iterate. In the latter case, rows that become longer by centring are scaled
    down, which preserves the smoothness that the plan relies on. The returned weights are for the original rows: the
    intercept absorbs the centre. The problem therefore needs an intercept.

    Formal guarantees
    -----------------
    The guarantee is that of the plan. The centre is part of the release, so the descent may use it like a public
    vector. Several tasks share the centre, which is released in the first run. Gradients are clipped after centring.
    """
    rows, plan, source = problem.rows, run.plan, run.source
    check_centrable(rows, plan.mean)
    is_last = plan.gradients.release == "last"
    if is_last:
        _check_centred(problem, options.get("public"), plan.gradients)
    else:
        check_run(rows.n, plan.gradients, **options)
    bounds = (
        enforced(f"each row has l2 norm at most {rows.row_norm:.6g}"),
        enforced(f"each record's gradient is clipped to l2 norm {plan.gradients.clip_norm:.6g}"),
    )
    contracts = None if plan.gradients.descent is None else enforced(plan.gradients.descent.in_words())
    guarantee = run.guarantee(bounds=bounds, contracts=contracts)
    centre = run.shared("centre", lambda: noisy_centre(rows, plan.mean, source))
    row_norm = rows.row_norm if is_last else None
    if options.get("public") is not None:
        public = options["public"]
        options["public"] = replace(public, rows=public.rows.centred(centre, row_norm))
    centred = replace(problem, rows=rows.centred(centre, row_norm))
    if not is_last:  # the contraction of hidden steps is proved for a penalty on the weights of the centred rows
        centred = replace(centred, regulariser=UncentredPenalty(problem.regulariser, rows, centre))
    solve = projected_sgd if is_last else noisy_gradient_descent
    gradients = plan.gradients
    if gradients.delta != guarantee.delta:
        gradients = replace(gradients, delta=guarantee.delta)
    release = solve(centred, Run(gradients, source, run.progress, None), **options)
    trace = dict(release.trace)
    if "iterates" in trace:
        trace["iterates"] = [uncentred(weights, rows, centre) for weights in trace["iterates"]]
    weights = uncentred(release.weights, rows, centre)
    return Release(weights, guarantee, trace)


def _check_centred(problem: Problem, public: Problem | None, descent: GradientPlan) -> None:
    """Raise if a plan for the last iterate does not fit the centred problem, before any noise is drawn."""
    n = problem.rows.n + (0 if public is None else public.rows.n)
    radius = problem.rows.row_norm
    parts = [centred_anywhere(part, radius, radius) for part in filter(None, (problem, public))]
    for part in parts:
        check_last_iterate(part, descent, n=n)
    rounding_of(parts, descent, n)
