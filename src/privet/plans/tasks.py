"""Several tasks on the same data: one plan is run once per task, and one guarantee covers all runs."""

import math
from fractions import Fraction

from privet.privacy.analyses.accounting import epsilon
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import ApproximateRelease, Composition, Event

BLACK_BOX_DELTA = 0.5
"""Share of delta that the runs of several tasks spend, if only an (epsilon, delta) of each run is known.

The rest is left to their composition.
"""

_TURNS = 60  # of a bisection, which then has the precision of a float


def all_runs(event: Event, tasks: int) -> Event:
    """Return the event of ``tasks`` runs, given that of one run."""
    return event if tasks == 1 else Composition((event,) * tasks)


def of_tasks(released: str, tasks: int) -> str:
    """Return what all runs release, in words."""
    return released if tasks == 1 else f"of {tasks} tasks: {released}"


def black_box_share(budget: Budget, tasks: int) -> Budget:
    """Return the budget of each of ``tasks`` runs that stay within ``budget`` together, whatever they release.

    Formal guarantees
    -----------------
    With delta = 0 the epsilons add up. Otherwise each run gets the delta of :func:`black_box_delta`, and the largest
    epsilon that the accountant certifies for the adaptive composition of all runs.
    """
    if tasks == 1:
        return budget
    if budget.is_pure:
        share = budget.epsilon / tasks
        is_enough = Fraction(share) * tasks <= Fraction(budget.epsilon)  # floats would round the product
        return Budget(share if is_enough else math.nextafter(share, 0.0))
    delta = black_box_delta(budget.delta, tasks)
    low, high = budget.epsilon / tasks * (1 - 1e-9), budget.epsilon
    for _ in range(_TURNS):
        middle = (low + high) / 2
        together = Composition((ApproximateRelease(middle, delta),) * tasks)
        if epsilon(together, Adjacency.REPLACE_ONE, budget.delta) <= budget.epsilon:
            low = middle
        else:
            high = middle
    return Budget(low, delta)


def black_box_delta(delta: float, tasks: int) -> float:
    """Return the delta at which each of ``tasks`` runs is stated, if together they are stated at ``delta``."""
    return delta if tasks == 1 else BLACK_BOX_DELTA * delta / tasks
