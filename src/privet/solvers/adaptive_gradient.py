"""Adaptive gradient descent, DP-AGD: a private line search that also detects gradients that are too noisy to use.

Algorithm 1 of Lee and Kifer, "Concentrated Differentially Private Gradient Descent with Adaptive per-Iteration Privacy
Budget". There are two differences, both of which need less noise for the same guarantee. The budget is accounted for in
Gaussian rather than in concentrated differential privacy. The choice of a step pays for how much a record's loss varies
*between* the candidates, which lie on one short segment, not for how large the loss is.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.objectives.summation import total_of
from privet.plans.adaptive import AdaptivePlan, Purse, selection_epsilon
from privet.privacy.guarantees.guarantee import Guarantee, enforced
from privet.solvers.base.interface import Problem, Release, Run

_STRETCH = 1.1  # longest candidate of a period, relative to the longest step chosen in the previous period
_SHORTEST = 1e-6  # least length of the longest candidate, as a share of max_step


def adaptive_gradient_descent(
    problem: Problem,
    run: Run[AdaptivePlan],
    *,
    clip_norm: float | None = None,
    loss_clip: float | None = None,
    expected_steps: int = 60,
    growth: float = 0.1,
    candidates: int = 20,
    max_step: float | None = None,
    period: int = 10,
    keep_iterates: bool = False,
) -> Release:
    """Descend along noisy gradients with privately chosen steps, until the budget of the plan is spent.

    Parameters
    ----------
    problem : Problem
        The objective and the data.
    run : Run of an AdaptivePlan
        The budget. Progress is reported as the percentage of the budget that is spent.
    clip_norm : float or None
        Bound on one record's gradient. None takes the bound that follows from bounded rows.
    loss_clip : float or None
        Losses are clipped to [0, loss_clip] before steps are compared. None does not clip: the slope of the loss
        already bounds its change between two candidates. A smaller clip reduces the noise, but the choice then ignores
        the effect on records with large losses.
    expected_steps : int
        The number of steps if the first gradient of each step is good enough. Half of the budget pays for this many
        gradients, and half for this many choices. There are never more than twice as many rounds.
    growth : float
        By how much the price of a gradient grows when the step 0 is chosen: gamma in the paper.
    candidates : int
        How many positive step sizes are compared.
    max_step : float or None
        The longest step along a gradient scaled to norm 1. None takes 2 divided by the bound on rows, which moves no
        score by more than 2.
    period : int
        After this many steps the longest candidate is reset to 1.1 times the longest step chosen meanwhile, and at
        most ``max_step``: tau in the paper.
    keep_iterates : bool
        Whether the trace contains the weights after every step.

    Formal guarantees
    -----------------
    The guarantee is that of the plan. The data is used only through the plan's purse: in noisy sums of gradients, each
    of norm at most ``clip_norm`` (clipped, or bounded by the rows), and in choices among sums of losses, to which one
    record contributes numbers clipped to an interval of public width. The regulariser is the same on neighbours.
    Everything else is post-processing: averages, steps, and when to refine a gradient or stop. All iterates are
    covered.
    """
    n = count("the number of records", problem.rows.n)
    bound = _gradient_bound(problem, clip_norm)
    search = _LineSearch(problem, loss_clip, candidates, max_step, period)
    expected_steps, growth = count("expected_steps", expected_steps), positive("growth", growth)
    guarantee, plan = _guarantee(run, bound), run.plan

    weights = problem.start()
    iterates, paid = [weights], list[float]()
    # Slightly less than the share, so that rounding does not prevent the last step.
    gradient_mu = choice_mu = plan.mu * math.sqrt((1 - 1e-9) / (2 * expected_steps))
    gradient, price = None, gradient_mu
    total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, bound)
    with plan.open(run.source) as purse:
        while purse.affords(price, choice_mu):
            fresh = purse.noisy(total, bound, price)
            paid.append(price)
            gradient = fresh if gradient is None else (gradient + growth * fresh) / (1 + growth)
            direction = _unit(gradient / n + problem.regulariser.gradient(weights))
            step = search.choose(purse, weights, direction, choice_mu)
            if step == 0:  # staying is best: the gradient is too noisy, so measure the same one again
                price, gradient_mu = gradient_mu * math.sqrt(growth), gradient_mu * math.sqrt(1 + growth)
            else:
                weights = weights - step * direction
                if keep_iterates:
                    iterates.append(weights)
                gradient, price = None, gradient_mu
                total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, bound)
            run.report(int(100 * (1 - (purse.left / plan.mu) ** 2)), 100)
    run.report(100, 100)
    trace: dict[str, Any] = {
        "steps": len(search.taken),
        "step_sizes": tuple(search.taken),
        "rounds": len(paid),
        "gradient_mu": math.hypot(*paid),
        "choice_mu": choice_mu * math.sqrt(len(paid)),
    }
    if keep_iterates:
        trace["iterates"] = tuple(iterates)
    return Release(weights, guarantee, trace)


class _LineSearch:
    """The candidates for the next step, and their private comparison."""

    def __init__(
        self, problem: Problem, loss_clip: float | None, candidates: int, max_step: float | None, period: int
    ) -> None:
        self._problem = problem
        self._loss_clip = math.inf if loss_clip is None else positive("loss_clip", loss_clip)
        self._limit = positive("max_step", 2 / problem.rows.norm_bound if max_step is None else max_step)
        self._period = count("period", period)
        self._steps = np.linspace(0, self._limit, count("candidates", candidates) + 1)
        self.taken: list[float] = []
        if not math.isfinite(self._width):
            name = type(problem.objective).__name__
            raise ValueError(
                f"the slope of {name} losses is not bounded: set loss_clip to bound how much losses differ"
            )

    @property
    def _width(self) -> float:
        """How much the loss of one record can vary over all candidates, after clipping."""
        return float(min(self._loss_clip, self._problem.lipschitz * self._steps[-1]))

    def choose(self, purse: Purse, weights: NDArray[Any], direction: NDArray[Any], mu: float) -> float:
        """Return the length of the next step, or 0 for no step, at the price ``mu``."""
        rows = self._problem.rows
        penalties = rows.n * self._penalties(weights, direction)
        # Room for the rounding of the sums of losses, and of adding the penalties.
        bound = self._width / 2 * (1 + rows.rounding) + 2.0**-52 * float(np.max(np.abs(penalties)))
        sums = self._loss_sums(weights, direction) + penalties
        chosen = purse.noisy_min(sums, bound, selection_epsilon(mu))
        step = float(self._steps[chosen])
        if chosen > 0:
            self._take(step)
        return step

    def _take(self, step: float) -> None:
        self.taken.append(step)
        if len(self.taken) % self._period == 0:
            longest = np.clip(_STRETCH * max(self.taken[-self._period :]), _SHORTEST * self._limit, self._limit)
            self._steps = np.linspace(0, longest, len(self._steps))

    def _penalties(self, weights: NDArray[Any], direction: NDArray[Any]) -> NDArray[np.float64]:
        """Return the change of the regulariser for each candidate, which is the same on neighbours."""
        regulariser = self._problem.regulariser
        values = [regulariser.value(weights - step * direction) for step in self._steps]
        return np.array(values) - regulariser.value(weights)

    def _loss_sums(self, weights: NDArray[Any], direction: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of losses for each candidate, up to a constant that is the same for all candidates.

        From each record's losses a middle is subtracted, which is half of the clip or the loss half way along the
        segment, and they are clipped to half of the width around it. Because the loss is Lipschitz, this clip removes
        only rounding errors; it makes the bound certain.
        """
        rows = self._problem.rows
        start, along = rows.scores(weights), rows.scores(direction)  # scores are linear: two products are enough
        width = self._width
        middle = self._losses(start, along, self._steps[-1] / 2) if width < self._loss_clip else width / 2
        sums = []
        for step in self._steps:
            parts = np.clip(self._losses(start, along, step) - middle, -width / 2, width / 2)
            sums.append(total_of(parts))
        return np.array(sums)

    def _losses(self, start: NDArray[Any], along: NDArray[Any], step: float) -> NDArray[Any]:
        losses = self._problem.objective.loss(start - step * along, self._problem.targets)
        return np.asarray(np.clip(losses, 0, self._loss_clip))


def _gradient_bound(problem: Problem, clip_norm: float | None) -> float:
    if clip_norm is not None:
        return min(positive("clip_norm", clip_norm), problem.lipschitz)
    if not math.isfinite(problem.lipschitz):
        raise ValueError("the gradients of this loss are not bounded: set clip_norm")
    return problem.lipschitz


def _guarantee(run: Run[AdaptivePlan], bound: float) -> Guarantee:
    clips = enforced(
        f"each record's gradient has l2 norm at most {bound:.6g}, by bounded rows or by clipping; its losses vary "
        "between the candidates for a step by at most a public width, by clipping"
    )
    released = "every noisy gradient, every chosen step, all iterates and the final weights"
    return run.guarantee(bound=clips, released=released)


def _unit(vector: NDArray[Any]) -> NDArray[Any]:
    """Return the vector scaled to norm 1, without overflow; a zero vector is returned unchanged."""
    largest = float(np.max(np.abs(vector)))
    if largest == 0:
        return vector
    scaled = vector / largest
    return np.asarray(scaled / np.linalg.norm(scaled))
