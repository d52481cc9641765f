"""Whether a budget can give a useful linear model, by public numbers alone: n, the weights, the budget and the bounds.

The expected excess of a method (see :class:`~privet.linear.methods.Method`) is compared with the loss of the zero
model, which guesses. Trials with epsilon 0.1, 1 and 4, delta 0 and its default, and 100 to 10,000 rows of six tables
of classes (a9a, bank, credit, ijcnn1, wine colour, MNIST) and two of numbers (wine quality, bike hours) gave, as means
of three fits on other rows:

=======================  ==========================  =====================================
share of the zero loss   area under the ROC curve    R² (numbers)
=======================  ==========================  =====================================
below 0.05               0.53 to 0.99, median 0.80   0.23 to 0.40
0.05 to 0.2              0.47 to 0.99, median 0.59   0.23 to 0.38
0.2 to 0.4               0.51 to 0.72, median 0.61   0.16 to 0.35
0.4 to 0.8               0.47 to 0.57                0.03 to 0.22
above 0.8                0.47 to 0.59                at most 0.01
=======================  ==========================  =====================================

The highest shares of useful models (an area of at least 0.65, an R² of at least 0.1) are 0.35 and 0.80. Tables that
are hard to learn from may need ten times more records than the warning asks for: it is given only if no table of this
size can be expected to do.

An additive model has no expectation of its excess. The stronger the noise, the shorter its steps, so the length of a
step relative to that without noise says how far its curves can move. Trials with epsilon 0.1, 0.5, 1 and 4 and 100 to
10,000 rows of the six tables of benchmarks/additive_tables.py gave, as means of three fits on other rows, areas of at
most 0.632 for shares up to 0.0073, and up to 0.76 from 0.012; and an R² of at most 0.03 for shares up to 0.056, and up
to 0.29 from 0.076.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from privet import cautions
from privet.linear.methods import Method, Task
from privet.privacy import Budget, gdp_epsilon, gdp_mu
from privet.privacy.budget import default_delta

OF_CLASSES, OF_NUMBERS = 0.4, 0.805
"""The largest share of the loss of the zero model that the excess of a useful model has."""
_STEP_OF_CLASSES, _STEP_OF_NUMBERS = 0.01, 0.06
"""The least length of a step of a useful additive model, relative to that without noise."""
_MOST, _HALVINGS, _STEP = 1e5, 5, 1.05


def warn_of_noise(task: Task, chosen: Method, rivals: Iterable[Method], asked_epsilon: float) -> None:
    """Warn if the noise is expected to hide what can be learned, and say which epsilon or n would do.

    Parameters
    ----------
    task : Task
    chosen : Method
        The method that will run. If it has no expectation of its own, the best of ``rivals`` counts.
    rivals : iterable of Method
    asked_epsilon : float
        The epsilon that the user asked for, of which the task may have a share.
    """
    if cautions.is_silent("noise"):
        return
    methods = [chosen] if chosen.excess else [each for each in rivals if each.excess]
    tolerated = (OF_CLASSES if task.problem.objective.predicts_classes else OF_NUMBERS) * loss_of_guessing(task)

    def is_enough(factor: float, delta: float = task.budget.delta) -> bool:
        stronger = replace(task, budget=_stronger(replace(task.budget, delta=delta), factor))
        return min(each.excess(stronger) for each in methods if each.excess) <= tolerated

    if not methods or is_enough(1.0):
        return
    low, high = 1.0, 2.0
    while not is_enough(high):
        if high > _MOST:
            cautions.about_noise(None, None)
            return
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    epsilon = asked_epsilon * _stronger(task.budget, high).epsilon / task.budget.epsilon
    n, records = task.problem.rows.n, high
    if task.budget.delta == default_delta(n):  # More records then have a smaller delta.
        while records <= _MOST and not is_enough(records, default_delta(math.ceil(records * n))):
            records *= _STEP
    cautions.about_noise(
        epsilon if epsilon <= cautions.LARGEST_EPSILON else None, records * n if records <= _MOST else None
    )


def warn_of_short_steps(
    share_of_step: Callable[[float, Budget], float], n: int, budget: Budget, *, predicts_classes: bool
) -> None:
    """Warn if the noise makes the steps of an additive model so short that it can hardly learn anything.

    ``share_of_step(n, budget)`` is the length of a step relative to that without noise.
    """
    least = _STEP_OF_CLASSES if predicts_classes else _STEP_OF_NUMBERS
    if cautions.is_silent("noise") or share_of_step(n, budget) >= least:
        return
    stronger, records = 1.0, 1.0
    while stronger <= _MOST and share_of_step(n, _stronger(budget, stronger)) < least:
        stronger *= _STEP
    is_default = budget.delta == default_delta(n)  # more records then have a smaller delta
    while records <= _MOST:
        delta = default_delta(math.ceil(records * n)) if is_default else budget.delta
        if share_of_step(records * n, replace(budget, delta=delta)) >= least:
            break
        records *= _STEP
    epsilon = _stronger(budget, stronger).epsilon if stronger <= _MOST else math.inf
    cautions.about_noise(
        epsilon if epsilon <= cautions.LARGEST_EPSILON else None,
        records * n if records <= _MOST else None,
        basis="n and the budget",
    )


def loss_of_guessing(task: Task) -> float:
    """Return the loss of the zero model: of any class, or of a number that is off by the deviation that matters."""
    objective = task.problem.objective
    target = np.zeros(1, dtype=np.intp) if objective.predicts_classes else np.array([task.worth])
    return float(objective.loss(np.zeros_like(objective.start(1)), target)[0])


def _stronger(budget: Budget, factor: float) -> Budget:
    """Return the budget whose noise is ``factor`` times smaller. As many times more records have the same effect."""
    if budget.is_pure:
        return Budget(budget.epsilon * factor)
    return Budget(gdp_epsilon(factor * gdp_mu(budget), budget.delta), budget.delta)
