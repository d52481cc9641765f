"""Noisy gradient descent on rows that are centred first, which takes a small part of the budget.

If rows have a large common mean, the objective is far steeper in one direction than in all others, and the step size
that this direction allows is too small for the others. A noisy mean costs one release of dimension d, and the descent
then needs far fewer steps.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives import BoundedRows
from privet.plans import CentredPlan, GradientPlan
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.problem import Problem
from privet.solvers.base.release import Release
from privet.solvers.base.run import Run
from privet.solvers.noisy_gradient import check_run, noisy_gradient_descent
from privet.solvers.projected_sgd import check_last_iterate, projected_sgd


def centred_gradient_descent(problem: Problem, run: Run[CentredPlan], **options: Any) -> Release:
    """Release a noisy mean of the rows, centre them on it, and descend.

    ``options`` are those of :func:`~privet.solvers.noisy_gradient.noisy_gradient_descent`, or of
    :func:`~privet.solvers.projected_sgd.projected_sgd` for a plan that releases only the last iterate. In the latter
    case, rows that become longer by centring are scaled down, which preserves the smoothness that the plan relies on.
    The returned weights are for the original rows: the intercept absorbs the centre. The problem therefore needs an
    intercept.

    Formal guarantees
    -----------------
    The plan's. The centre is released, so the descent may use it as a public vector. Gradients are clipped after
    centring.
    """
    rows, plan, source = problem.rows, run.plan, run.source
    if plan.mean.clip_norm < rows.weight_in_total:
        raise ValueError(f"rows are bounded by {rows.weight_in_total:.6g}, the plan covers {plan.mean.clip_norm:.6g}")
    if not rows.intercept:
        raise ValueError("rows can be centred only if the model has an intercept: set an intercept")
    plan.mean.divisor(rows.n)
    is_last = plan.gradients.release == "last"
    _check(problem, plan.gradients, options)
    bounds = (
        enforced(f"each row has l2 norm at most {plan.mean.clip_norm:.6g}"),
        enforced(f"each record's gradient is clipped to l2 norm {plan.gradients.clip_norm:.6g}"),
    )
    contracts = None if plan.gradients.descent is None else enforced(plan.gradients.descent.in_words())
    guarantee = run.guarantee(bounds=bounds, contracts=contracts)
    for step in plan.mean.run(rows.n, source):  # one step
        centre = _in_ball(step.noisy(rows.total()) / plan.mean.divisor(rows.n), rows.row_norm)
    row_norm = rows.row_norm if is_last else None
    if options.get("public") is not None:
        public = options["public"]
        options["public"] = replace(public, rows=public.rows.centred(centre, row_norm))
    centred = replace(problem, rows=rows.centred(centre, row_norm))
    solve = projected_sgd if is_last else noisy_gradient_descent
    gradients = plan.gradients
    if gradients.delta != guarantee.delta:
        gradients = replace(gradients, delta=guarantee.delta)
    release = solve(centred, Run(gradients, source, run.progress), **options)
    trace = dict(release.trace)
    if "iterates" in trace:
        trace["iterates"] = [_uncentred(weights, rows, centre) for weights in trace["iterates"]]
    weights = _uncentred(release.weights, rows, centre)
    return Release(weights, guarantee, trace)


def _check(problem: Problem, descent: GradientPlan, options: Mapping[str, Any]) -> None:
    """Raise if the plan or the options do not fit, before any noise is drawn."""
    if descent.release == "last":
        public = options.get("public")
        n = problem.rows.n + (0 if public is None else public.rows.n)
        # Centred rows have a larger allowance for rounding, which is the same for every centre in the ball.
        anywhere = np.zeros(problem.rows.n_features)
        anywhere[0] = problem.rows.row_norm
        for part in filter(None, (problem, public)):
            centred = part.rows.centred(anywhere, problem.rows.row_norm)
            check_last_iterate(replace(part, rows=centred), descent, n=n)
        return
    checked = {name: options[name] for name in ("step_size", "momentum", "averaged") if name in options}
    check_run(problem.rows.n, descent, **checked)


def _in_ball(centre: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return the centre projected onto the ball that contains the mean of the rows."""
    largest = float(np.abs(centre).max())
    if largest == 0:
        return centre
    length = largest * float(np.linalg.norm(centre / largest))  # squares of huge noise overflow
    return centre if length <= radius else np.asarray(centre / length * radius)


def _uncentred(weights: NDArray[Any], rows: BoundedRows, centre: NDArray[np.float64]) -> NDArray[Any]:
    """Return weights for the original rows: <w, x - c> + b v = <w, x> + b (v - <w, c>/b)."""
    result = weights.copy()
    result[rows.n_features] -= centre @ weights[: rows.n_features] / rows.intercept
    return result
