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
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from privet import cautions
from privet.linear.methods import Method, Task
from privet.privacy import Budget, gdp_epsilon, gdp_mu
from privet.privacy.budget import default_delta

OF_CLASSES, OF_NUMBERS = 0.4, 0.805
"""The largest share of the loss of the zero model that the excess of a useful model has."""
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
