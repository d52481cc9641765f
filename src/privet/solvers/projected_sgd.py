"""Projected noisy gradient steps whose iterates stay hidden: PNSGD and its variants.

Algorithms 1 and 2 of "Privacy Amplification by Iteration". The sampler determines which of them runs. ``FixedOrder`` is
PNSGD and, with several passes, PNMSGD. ``RandomStop`` and ``RandomSkip`` are Stop-PNSGD and Skip-PNSGD. Public records
at the end are Corollary 31. ``FullBatch`` is noisy gradient descent, whose privacy loss stops growing on strongly
convex problems, and ``FixedOrder`` with batches is its cyclic form. Several tasks on one dataset (Theorem 32) are
several calls with the same ``Run``.
"""

import math
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from privet.objectives import BoundedRows
from privet.plans import Descent, FixedOrder, GradientPlan
from privet.plans.samplers import Batch
from privet.privacy.events import Secret
from privet.privacy.guarantees.guarantee import assumed, enforced
from privet.solvers.base.hidden_steps import Rounding, rounding_of
from privet.solvers.base.interface import Problem, Release, Run, gradients_bounded_by

_LARGEST_COPY = 2**31  # bytes of rows that may be kept a second time, in the order in which they are visited
_PUBLIC_RIDGE = 0.1  # divided by the square root of the number of public records, in units of the smoothness


def projected_sgd(
    problem: Problem,
    run: Run[GradientPlan],
    *,
    public: Problem | None = None,
    start: NDArray[Any] | None = None,
) -> Release:
    """Take the steps of ``plan.descent`` and release only the last iterate.

    Parameters
    ----------
    problem : Problem
        A convex and smooth objective with constants no worse than the plan's.
    run : Run of a GradientPlan
        The plan is made with ``release="last"``. Progress is not reported where the number of steps is a secret.
    public : Problem or None
        The same problem over the public records that the plan visits, if any. None takes them to be the last records
        of ``problem``.
    start : array or None
        The starting point, which must not depend on the private records. None starts from the minimiser over the
        ``public`` records, or from zero.

    Formal guarantees
    -----------------
    The guarantee is that of the plan. Each step projects w onto the ball and then maps it to w - eta (mean gradient)
    plus noise: a Lipschitz map followed by Gaussian noise. Replacing a record moves the map by at most 2 eta clip_norm
    / divisor, and only in the steps that visit the record. Gradients are clipped only for losses of one score, whose
    clipped gradients are again those of a convex loss; the regulariser is added after clipping. Noisy iterates are
    rounded to a grid, and this and all other rounding stays within what the plan charges for it
    (:func:`~privet.solvers.base.hidden_steps.rounding_of`). The trace contains public facts only, and no secret of the
    sampler.
    """
    plan = run.plan
    n = problem.rows.n + (0 if public is None else public.rows.n)
    descent = check_last_iterate(problem, plan, n=n)
    if public is not None:
        check_last_iterate(public, plan, n=n)
        order = plan.sampler
        if not isinstance(order, FixedOrder) or (order.n, order.public) != (problem.rows.n, public.rows.n):
            raise ValueError(
                f"the data has {problem.rows.n} private and {public.rows.n} public records: the plan's sampler must be "
                f"a FixedOrder({problem.rows.n}, public={public.rows.n}), or one with a secret, not {order!r}"
            )
    bound = gradients_bounded_by(plan.clip_norm)
    guarantee = run.guarantee(bound=bound, contracts=enforced(descent.in_words()))
    rounding = rounding_of([problem] if public is None else [problem, public], plan, n)
    if plan.sampler.secret is not Secret.NOTHING:
        run = replace(run, progress=None)
    steps = HiddenSteps(problem, run, rounding, public=public)
    weights = steps.take(rounding.projected(_first(problem, public, start)))
    if start is not None:
        guarantee = guarantee.assuming(assumed("the starting point does not depend on the private records"))
    trace = {"steps": plan.steps, "step_size": max(descent.step_sizes), "clip_norm": plan.clip_norm}
    noise = {"noise_std": plan.noise_std / plan.divisor(n)}
    return Release(weights, guarantee, trace | noise)


class HiddenSteps:
    """The noisy projected steps of a run, which may be taken in several parts.

    Parts matter where other steps come in between: in a relay, the steps of other owners. A part starts from any
    weights and continues where the last part ended, with the next batch of the same order.

    Parameters
    ----------
    problem : Problem
        A problem that :func:`check_last_iterate` accepts for the plan.
    run : Run of a GradientPlan
        Batches and noise are drawn from it, for one run in all.
    rounding : Rounding
        That of the whole descent, of which these may be only some steps.
    public : Problem or None
        As in :func:`projected_sgd`.
    """

    def __init__(
        self, problem: Problem, run: Run[GradientPlan], rounding: Rounding, *, public: Problem | None = None
    ) -> None:
        plan, descent = run.plan, run.plan.descent
        assert descent is not None
        n = problem.rows.n + (0 if public is None else public.rows.n)
        self._regulariser, self._rounding, self._divisor = problem.regulariser, rounding, plan.divisor(n)
        self._batches = _Batches(problem, public, plan)
        sizes = cycle(zip(descent.step_sizes, rounding.grids, strict=True))
        self._steps = enumerate(zip(run.steps(n, release="last"), sizes, strict=False))

    def take(self, weights: NDArray[Any], at_most: int | None = None) -> NDArray[Any]:
        """Return the weights after the next steps: ``at_most`` of them, or all that are left."""
        for done, (step, (size, grid)) in islice(self._steps, at_most):
            total = self._batches.gradient_sum(weights, step.batch, done)
            moved = weights - size * (total / self._divisor + self._regulariser.gradient(weights))
            # Noise is added to the next point, not to the sum. The rounded point is then a function of an ideal noisy
            # point alone, while a step along a rounded sum would carry over digits of the hidden point from which it
            # was made.
            weights = self._rounding.projected(step.noisy(moved, scale=size / self._divisor, grid=grid))
        return weights


class _Batches:
    """The rows and targets of batches, private or public, and the sums of their gradients.

    Rows of a shuffled batch are gathered, which takes longer than a step. They are therefore kept for later passes,
    unless the table is so large that a copy of it might not fit into memory.
    """

    def __init__(self, problem: Problem, public: Problem | None, plan: GradientPlan) -> None:
        self._problem, self._public, self._plan = problem, public, plan
        order = plan.sampler if isinstance(plan.sampler, FixedOrder) else None
        self._first_public = problem.rows.n if order is None else order.n
        self._period = 0  # after how many steps the same batch comes again, if it is kept for that
        if order is not None and order.passes > 1 and problem.rows.nbytes <= _LARGEST_COPY:
            self._period = order.batches_per_pass
        self._kept: dict[int, tuple[BoundedRows, NDArray[Any]]] = {}

    def gradient_sum(self, weights: NDArray[Any], batch: Batch, step: int) -> NDArray[Any]:
        """Return the sum of the gradients of the batch of a step. A public batch is scaled up to the planned size.

        This amounts to dividing a public batch by its own size, which is allowed because it needs no protection.
        """
        plan, objective = self._plan, self._problem.objective
        if isinstance(batch, slice) and batch.start is not None and batch.start >= self._first_public:
            rows, targets = self._public_batch(batch)
            return objective.gradient_sum(weights, rows, targets, plan.clip_norm) * (plan.divisor(rows.n) / rows.n)
        if isinstance(batch, slice) or not self._period:
            rows, targets = _taken(self._problem, batch)
        else:
            place = step % self._period
            if place not in self._kept:
                self._kept[place] = _taken(self._problem, batch)
            rows, targets = self._kept[place]
        return objective.gradient_sum(weights, rows, targets, plan.clip_norm)

    def _public_batch(self, batch: slice) -> tuple[BoundedRows, NDArray[Any]]:
        """Return public rows and their targets, which may be the last rows of the problem itself."""
        if self._public is None:
            return _taken(self._problem, batch)
        return _taken(self._public, slice(batch.start - self._first_public, batch.stop - self._first_public))


def _taken(problem: Problem, batch: Batch) -> tuple[BoundedRows, NDArray[Any]]:
    return problem.rows.take(batch), problem.targets[batch]


def _first(problem: Problem, public: Problem | None, start: NDArray[Any] | None) -> NDArray[Any]:
    """Return the starting point: the given one, the regularised minimiser over public records, or zero."""
    if start is not None:
        first = np.array(start, dtype=np.float64)
        if first.shape != problem.start().shape or not np.isfinite(first).all():
            raise ValueError(
                f"start must contain finite numbers in shape {problem.start().shape}, got shape {first.shape}"
            )
        return first
    if public is None:
        return problem.start()
    ridge = _PUBLIC_RIDGE * public.smoothness / math.sqrt(public.rows.n)

    def both(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        weights = flat.reshape(problem.start().shape)
        total = public.objective.gradient_sum(weights, public.rows, public.targets, math.inf)
        gradient = total / public.rows.n + public.regulariser.gradient(weights) + ridge * weights
        return public.value(weights) + ridge / 2 * float(np.vdot(weights, weights)), gradient.ravel()

    found = minimize(both, problem.start().ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x).reshape(problem.start().shape)


def descent_of(
    problem: Problem, step_size: float | tuple[float, ...] | None = None, diameter: float | None = None
) -> Descent:
    """Return a descent with the constants of ``problem``. The default step size is the one that contracts most."""
    if step_size is None:
        step_size = 2 / (problem.smoothness + problem.strong_convexity)
    return Descent(step_size, problem.smoothness, problem.strong_convexity, diameter)


def check_last_iterate(problem: Problem, plan: GradientPlan, n: int | None = None) -> Descent:
    """Return the plan's descent. Raise unless amplification by iteration holds for the plan on this problem."""
    if plan.descent is None:
        raise ValueError('projected_sgd releases only the last iterate: make the plan with release="last"')
    descent = plan.descent
    if not problem.is_convex:
        raise ValueError("amplification by iteration needs a convex objective: use a convex regulariser")
    if plan.clip_norm < problem.lipschitz and not problem.objective.clips_to_convex:
        raise ValueError(
            f"gradient steps of {type(problem.objective).__name__} losses, which have several scores per record, do "
            f"not contract after clipping: set clip_norm to at least {problem.lipschitz:.6g}, or release all iterates"
        )
    slack = 1 + 2.0**-50  # for the rounding of the constants, which section 16 of docs/proofs.md accounts for
    if problem.smoothness > descent.smoothness * slack or problem.strong_convexity * slack < descent.strong_convexity:
        raise ValueError(
            f"the plan is for an objective that is {descent.smoothness:.6g}-smooth and {descent.strong_convexity:.6g}-"
            f"strongly convex; this one is {problem.smoothness:.6g}-smooth and {problem.strong_convexity:.6g}-strongly "
            "convex. Make the plan with descent_of(problem)"
        )
    n = problem.rows.n if n is None else n
    plan.sampler.check_n(n)
    if plan.public_n not in (None, n):
        raise ValueError(f"the plan was made for n = {plan.public_n} records, the data has {n}")
    return descent
