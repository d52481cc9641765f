"""Noisy gradient descent on rows that were centred first, at a small part of the budget.

Rows that share a large mean make one direction far steeper than all others, and the step that this direction allows is
too short for the rest. A noisy mean costs one release of dimension d; the descent then needs a fraction of the steps.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives import BoundedRows
from privet.plans.centred import CentredPlan
from privet.privacy.guarantee import enforced
from privet.privacy.noise import NoiseSource
from privet.solvers.noisy_gradient import check_run, noisy_gradient_descent
from privet.solvers.problem import Problem
from privet.solvers.release import Release


def centred_gradient_descent(
    problem: Problem, plan: CentredPlan, *, delta: float, source: NoiseSource, **options: Any
) -> Release:
    """Release a noisy mean of the rows, centre them on it, and descend.

    ``options`` are those of :func:`~privet.solvers.noisy_gradient.noisy_gradient_descent`. The weights returned are
    those of the rows as they were: the intercept takes the centre back. The problem needs a constant column.

    Formal guarantees
    -----------------
    The plan's. The centre is released, so it is a public vector to the descent, whose gradients are clipped anew.
    """
    rows = problem.rows
    if plan.mean.clip_norm < rows.weight_in_total:
        raise ValueError(f"rows are bounded by {rows.weight_in_total:.6g}, the plan covers {plan.mean.clip_norm:.6g}")
    bounds = (
        enforced(f"each row has l2 norm at most {plan.mean.clip_norm:.6g}"),
        enforced(f"each record's gradient is clipped to l2 norm {plan.descent.clip_norm:.6g}"),
    )
    if not rows.intercept:
        raise ValueError("rows can be centred only beside a constant column: fit an intercept")
    plan.mean.divisor(rows.n)
    checked = {name: options[name] for name in ("step_size", "momentum", "averaged") if name in options}
    check_run(rows.n, plan.descent, delta=delta, **checked)
    guarantee = plan.guarantee(delta, bounds=bounds)
    for step in plan.mean.run(rows.n, source):  # one
        centre = step.noisy(rows.total()) / plan.mean.divisor(rows.n)
    centred = replace(problem, rows=rows.centred(centre))
    release = noisy_gradient_descent(centred, plan.descent, delta=delta, source=source, **options)
    trace = dict(release.trace)
    if "iterates" in trace:
        trace["iterates"] = [_uncentred(weights, rows, centre) for weights in trace["iterates"]]
    weights = _uncentred(release.weights, rows, centre)
    return Release(weights, guarantee.assuming(source.assumption()), trace)


def _uncentred(weights: NDArray[Any], rows: BoundedRows, centre: NDArray[np.float64]) -> NDArray[Any]:
    """Return weights of the rows themselves: <w, x - c> + b v = <w, x> + b (v - <w, c>/b)."""
    result = weights.copy()
    result[rows.n_features] -= centre @ weights[: rows.n_features] / rows.intercept
    return result
