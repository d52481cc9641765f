"""Method ``knowledge_transfer``: a private teacher scores public rows, and a sparse student learns from the scores."""

import math
from dataclasses import replace

from privet.linear.methods._base import Task, method
from privet.linear.methods._sparse import bounded_problem
from privet.plans import OutputPlan
from privet.privacy import gdp_mu
from privet.solvers import Release
from privet.solvers.knowledge_transfer import knowledge_transfer, transfer_stability

_STUDENT_STEPS = 100
_LABEL_NOISE = 0.25  # noise that a student's scores may keep, in units of the scale


@method(
    "knowledge_transfer",
    summary="a teacher's scores of public rows, from which a sparse student learns",
    is_sparse=True,
    uses_public=True,
    needs_public=True,
)
def train(task: Task) -> Release:
    """Let a convex teacher score public rows, add noise to the scores, and fit a sparse student to them."""
    assert task.public_rows is not None
    public, problem = task.public_rows, bounded_problem(task)
    # A student of s features averages the noise of m scores, to about sqrt(s log(2 d) / m) of it.
    averaged = math.sqrt(task.n_nonzero * math.log(2 * problem.rows.n_features) / public.rows.n)
    moved = 2 * problem.lipschitz / problem.rows.n * public.operator_norm * min(averaged, 1.0)
    problem = bounded_problem(task, alpha=moved / (gdp_mu(task.budget) * _LABEL_NOISE * task.scale))
    plan = OutputPlan.for_budget(task.budget, stability=transfer_stability(problem, public))
    steps = task.max_iter or _STUDENT_STEPS
    release = knowledge_transfer(problem, task.run(plan), features=public, n_nonzero=task.n_nonzero, steps=steps)
    remark = f"the teacher's alpha is {problem.strong_convexity:.3g}, computed from public numbers and public rows"
    return replace(release, trace={**release.trace, "remark": remark})
