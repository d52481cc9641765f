"""Adaptive gradient descent, DP-AGD: a private line search that also tells when a gradient was too noisy to use.

Algorithm 1 of Lee and Kifer, "Concentrated Differentially Private Gradient Descent with Adaptive per-Iteration Privacy
Budget". Two things differ, both for less noise under the same guarantee. The budget is kept in Gaussian rather than in
concentrated differential privacy. And the choice of a step pays for how far a record's losses lie apart *between* the
candidates, all on one short segment, and not for how large they are.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.plans.adaptive import AdaptivePlan, Purse, selection_epsilon
from privet.privacy.guarantees.guarantee import Guarantee, enforced
from privet.solvers.base.problem import Problem
from privet.solvers.base.release import Release
from privet.solvers.base.run import Run

_STRETCH = 1.1  # the longest candidate of a period, over the longest step that was chosen in the one before
_SHORTEST = 1e-6  # and the least that it may come to, as a share of max_step
_BLOCK = 65_536  # records summed at a time: BoundedRows.rounding allows for sums in such blocks


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
    """Descend along noisy gradients by privately chosen steps, until the plan is spent.

    Parameters
    ----------
    problem : Problem
        What to minimise.
    run : Run of an AdaptivePlan
        The budget. Progress is reported as the percentage of the budget that is spent.
    clip_norm : float or None
        Bound on one record's gradient. None takes the one that bounded rows imply.
    loss_clip : float or None
        Losses are clipped to [0, loss_clip] before steps are compared by them. None leaves them as they are: what the
        slope of the loss allows between two candidates bounds the comparison by itself. A clip narrower than that
        lessens the noise, and hides from the choice what it does to records with large losses.
    expected_steps : int
        The number of steps if the first gradient is always good enough. Half of the budget buys as many gradients, half
        of it as many choices. There are never more than twice as many rounds.
    growth : float
        By how much the budget of a gradient grows when the choice falls on the step 0: gamma in the paper.
    candidates : int
        How many steps above 0 are compared.
    max_step : float or None
        The longest step, of a gradient scaled to length 1. None takes 2 over the bound on rows, which moves no score by
        more than 2.
    period : int
        The longest candidate is set anew after so many steps, to 1.1 times the longest that was chosen meanwhile (and
        at most ``max_step``): tau in the paper.
    keep_iterates : bool
        Whether the trace holds the weights after every step.

    Formal guarantees
    -----------------
    The plan's. The data is seen only through the plan's purse: by noisy sums of gradients, each of norm at most
    ``clip_norm`` (clipped, or bounded by the rows), and by choices among sums of losses, in which the numbers that one
    record contributes are clipped to an interval of public width. The regulariser is the same on neighbours. Everything
    else is post-processing: averages, steps, when to buy more and when to end; so all iterates are covered.
    """
    n = count("the number of records", problem.rows.n)
    bound = _gradient_bound(problem, clip_norm)
    search = _LineSearch(problem, loss_clip, candidates, max_step, period)
    expected_steps, growth = count("expected_steps", expected_steps), positive("growth", growth)
    guarantee, plan = _guarantee(run, bound), run.plan

    weights = problem.start()
    iterates, paid = [weights], list[float]()
    # A hair less than the share, so that rounding does not cost the last step.
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
            if step == 0:  # going nowhere is best: the gradient was too noisy, so buy more of the same one
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
    """The steps that are compared, and what they are compared by."""

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
            raise ValueError("the slope of this loss is not bounded: set loss_clip, to bound how far losses lie apart")

    @property
    def _width(self) -> float:
        """How far apart the losses of one record may lie on the segment of all candidates, or what is left of them."""
        return float(min(self._loss_clip, self._problem.lipschitz * self._steps[-1]))

    def choose(self, purse: Purse, weights: NDArray[Any], direction: NDArray[Any], mu: float) -> float:
        """Return the length of the step to take, at the price of ``mu``: 0 for none."""
        rows = self._problem.rows
        penalties = rows.n * self._penalties(weights, direction)
        # Room for rounding: of the sums of losses, and of adding the penalties to them.
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
        """Return by how much each candidate changes the regulariser, which is the same on neighbours."""
        regulariser = self._problem.regulariser
        values = [regulariser.value(weights - step * direction) for step in self._steps]
        return np.array(values) - regulariser.value(weights)

    def _loss_sums(self, weights: NDArray[Any], direction: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of the losses for each candidate, up to a number that is the same for all of them.

        That number is a sum too: each record's losses are taken relative to a middle of its own, half of the clip or
        its loss half way along the segment, and clipped to half of the width around it. By the Lipschitz constant the
        latter changes nothing but rounding errors; it makes the bound certain.
        """
        rows = self._problem.rows
        start, along = rows.scores(weights), rows.scores(direction)  # scores are linear: two products serve for all
        width = self._width
        middle = self._losses(start, along, self._steps[-1] / 2) if width < self._loss_clip else width / 2
        sums = []
        for step in self._steps:
            parts = np.clip(self._losses(start, along, step) - middle, -width / 2, width / 2)
            sums.append(np.add.reduceat(parts, np.arange(0, rows.n, _BLOCK)).sum())
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
        f"each record's gradient has l2 norm at most {bound:.6g}, by bounded rows or by clipping; the losses that it "
        "brings to the choice of a step lie within a public width, by clipping"
    )
    released = "every noisy gradient, every chosen step, all iterates and the final weights"
    return run.guarantee(bound=clips, released=released)


def _unit(vector: NDArray[Any]) -> NDArray[Any]:
    """Return the vector at length 1, without overflow; zero stays zero."""
    largest = float(np.max(np.abs(vector)))
    if largest == 0:
        return vector
    scaled = vector / largest
    return np.asarray(scaled / np.linalg.norm(scaled))
