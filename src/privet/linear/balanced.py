"""Training with balanced classes: noisy numbers of records per class, then a method with the weights that follow."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.linear.methods import Method, Task
from privet.objectives import BalancedClasses
from privet.plans.class_counts import COUNTS_SHARE, ClassCounts
from privet.privacy import Budget, Guarantee, compose
from privet.privacy.analyses.gaussian import shared_budget
from privet.privacy.events import ApproximateRelease
from privet.solvers import Release

_FRACTIONS = (1 - 1e-9, 0.999, 0.99, 0.97, 0.95, 0.9, 0.8, 0.6)
"""Fractions of what the counts leave, tried in this order. Gaussian and pure releases fit with the first one."""
_BLACK_BOX_DELTA = 0.5  # share of delta of a training of which only epsilon and delta are known


class _Planned(Exception):  # noqa: N818  # it is no error
    """Ends a method before it draws anything, with the guarantee of what it would release."""

    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee = guarantee


def train_balanced(method: Method, task: Task) -> tuple[Release, NDArray[np.float64]]:
    """Release noisy counts, train with the weights that follow, and return the release with the weights.

    Parameters
    ----------
    method : Method
    task : Task
        Its loss is a :class:`~privet.objectives.BalancedClasses` with weights of 1.

    Formal guarantees
    -----------------
    The adaptive composition of the counts and the training, computed from their events. The plan of the training is
    made before the counts are drawn, from the constants of the loss, which are the same for all weights. Its event is
    therefore the same for all counts, which is checked before the training draws anything. The total is passed to
    ``task.before_training`` before the counts are drawn.
    """
    loss = task.problem.objective
    assert isinstance(loss, BalancedClasses)
    counts, share, planned = _plan(method, task, len(loss.weights))
    before = counts.guarantee()

    def total(training: Guarantee) -> Guarantee:
        return compose([before, training], task.budget.delta)

    if task.before_training is not None:
        task.before_training(total(planned))
    weights = counts.weights(task.problem.targets.astype(np.int64), task.source)
    problem = replace(task.problem, objective=BalancedClasses(loss.objective, weights.tolist()))
    public = task.public_records
    public = None if public is None else replace(public, objective=problem.objective)

    def check(found: Guarantee) -> None:
        if found.event != planned.event:
            raise RuntimeError(
                f"What method={method.name!r} releases is not what it announced before the classes were counted, so "
                "that its composition with the counts is not covered. Please report this as a bug."
            )

    release = method.train(replace(task, problem=problem, public_records=public, budget=share, before_training=check))
    check(release.guarantee)  # A method of several runs might announce only the first of them.
    return replace(release, guarantee=total(release.guarantee)), weights


def _plan(method: Method, task: Task, n_classes: int) -> tuple[ClassCounts, Budget, Guarantee]:
    """Return the counts, the budget of the training, and its guarantee, which together stay within the budget."""
    whole = task.budget
    for fraction in _FRACTIONS:
        share = shared_budget(whole, (1 - COUNTS_SHARE) * fraction)
        planned = _planned(method, replace(task, budget=share))
        if any(isinstance(leaf, ApproximateRelease) for leaf in planned.event.leaves()):
            share = shared_budget(Budget(whole.epsilon, _BLACK_BOX_DELTA * whole.delta), (1 - COUNTS_SHARE) * fraction)
            planned = _planned(method, replace(task, budget=share))
        counts = ClassCounts.for_budget(whole, n_classes, planned.adjacency)
        if compose([counts.guarantee(), planned], whole.delta).epsilon <= whole.epsilon:
            return counts, share, planned
    raise ValueError(
        f"class_weight='balanced' is not supported by method={method.name!r} with this budget, because its training "
        "and the noisy counts together would exceed the budget. Use another method, or a dictionary of public weights."
    )


def _planned(method: Method, task: Task) -> Guarantee:
    """Return the guarantee of what a method would release. Nothing is drawn."""

    def stop(guarantee: Guarantee) -> None:
        raise _Planned(guarantee)

    try:
        method.train(replace(task, before_training=stop, progress=None))
    except _Planned as found:
        return found.guarantee
    raise RuntimeError(f"method={method.name!r} did not announce its guarantee. Please report this as a bug.")
