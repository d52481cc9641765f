"""Noisy gradient descent on rows that were centred first, at a small part of the budget.

Rows that share a large mean make one direction far steeper than all others, and the step that this direction allows is
too short for the rest. A noisy mean costs one release of dimension d; the descent then needs a fraction of the steps.
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
    :func:`~privet.solvers.projected_sgd.projected_sgd` for a plan that releases the last iterate alone; rows that are
    longer than before once they are centred are then scaled down, which keeps the smoothness that the plan counts on.
    The weights returned are those of the rows as they were: the intercept takes the centre back. The problem needs a
    constant column.

    Formal guarantees
    -----------------
    The plan's. The centre is released, so it is a public vector to the descent, whose gradients are clipped anew.
    """
    rows, plan, source = problem.rows, run.plan, run.source
    if plan.mean.clip_norm < rows.weight_in_total:
        raise ValueError(f"rows are bounded by {rows.weight_in_total:.6g}, the plan covers {plan.mean.clip_norm:.6g}")
    if not rows.intercept:
        raise ValueError("rows can be centred only beside a constant column: fit an intercept")
    plan.mean.divisor(rows.n)
    is_last = plan.gradients.release == "last"
    _check(problem, plan.gradients, options)
    bounds = (
        enforced(f"each row has l2 norm at most {plan.mean.clip_norm:.6g}"),
        enforced(f"each record's gradient is clipped to l2 norm {plan.gradients.clip_norm:.6g}"),
    )
    contracts = None if plan.gradients.descent is None else enforced(plan.gradients.descent.in_words())
    guarantee = run.guarantee(bounds=bounds, contracts=contracts)
    for step in plan.mean.run(rows.n, source):  # one
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
    """Raise on what cannot be run, before any noise is drawn for it."""
    if descent.release == "last":
        public = options.get("public")
        n = problem.rows.n + (0 if public is None else public.rows.n)
        # Once centred, rows have a larger allowance for rounding: any centre in the ball stands for all.
        anywhere = np.zeros(problem.rows.n_features)
        anywhere[0] = problem.rows.row_norm
        for part in filter(None, (problem, public)):
            centred = part.rows.centred(anywhere, problem.rows.row_norm)
            check_last_iterate(replace(part, rows=centred), descent, n=n)
        return
    checked = {name: options[name] for name in ("step_size", "momentum", "averaged") if name in options}
    check_run(problem.rows.n, descent, **checked)


def _in_ball(centre: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return a noisy mean of rows brought back to where their mean must lie."""
    largest = float(np.abs(centre).max())
    if largest == 0:
        return centre
    length = largest * float(np.linalg.norm(centre / largest))  # squares of huge noise overflow
    return centre if length <= radius else np.asarray(centre / length * radius)


def _uncentred(weights: NDArray[Any], rows: BoundedRows, centre: NDArray[np.float64]) -> NDArray[Any]:
    """Return weights of the rows themselves: <w, x - c> + b v = <w, x> + b (v - <w, c>/b)."""
    result = weights.copy()
    result[rows.n_features] -= centre @ weights[: rows.n_features] / rows.intercept
    return result
