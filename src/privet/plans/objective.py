"""Objective perturbation: add a random linear term to the objective, and release its minimiser."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive
from privet.plans.tasks import all_runs, black_box_delta, black_box_share, of_tasks
from privet.privacy.analyses.objective_noise import (
    OUTPUT_SHARE,
    least_strong_convexity,
    objective_epsilon,
    objective_mu,
    volume_loss,
)
from privet.privacy.budget import Adjacency, BudgetLike, as_budget, stated_delta
from privet.privacy.events import ApproximateRelease, Event, PureRelease
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed, enforced
from privet.privacy.noise.release import in_words
from privet.privacy.noise.source import NoiseSource
from privet.privacy.noise.watch import Claim, Tilted

_MOST_NOISE = 1e100  # its square must not overflow
_QUIET = 0.1  # default scale of the noise on the minimiser, relative to the least noise that the linear term causes


@dataclass(frozen=True)
class ObjectivePlan:
    """A random linear term for the objective, and a little noise for the computed minimiser.

    The minimiser of  mean loss + regulariser + (added_alpha/2) ||w||^2 + <b, w>/n  is computed up to a gradient of
    ``tolerance``, and released with noise that covers the error which the tolerance allows.

    Parameters
    ----------
    n : int
        Number of records.
    lipschitz, smoothness : float
        Bound L on the gradient of one record's loss, and Lipschitz constant beta of that gradient, both without the
        regulariser. The loss must be a convex function of one score per record.
    strong_convexity : float
        Strong convexity of the regulariser.
    scale : float
        Standard deviation of a Gaussian b, or scale of a K-norm b with density proportional to exp(-||b||/scale).
    tolerance, output_scale : float
        Largest norm of the gradient at the computed minimiser, and the scale of the noise added to it.
    is_pure : bool
        Whether both noises are K-norm noise, which gives pure epsilon, rather than Gaussian.
    is_one_sided : bool
        Whether a record's gradients at any two weights never point in opposite directions. This holds for losses of a
        margin (logistic, hinge), but not for losses of an error (Huber). Gaussian noise may then be smaller.
    added_alpha : float
        Further strong convexity that is added for privacy only. It is part of what is minimised.
    tasks : int
        How many objectives over the same data are minimised, each with its own noise.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    With m = strong_convexity + added_alpha, one release is (epsilon, delta)-DP under replace-one adjacency, where

        epsilon = log(1 + beta/(n m)) + 2L/scale + 2 tolerance/(m output_scale)         for K-norm noise, delta = 0,
        epsilon = log(1 + beta/(n m)) + e(delta; mu = 2L/scale, 2 tolerance/(m output_scale))  for Gaussian noise,

    with e from :mod:`privet.privacy.analyses.objective_noise`. The first formula sharpens Theorem 9 of
    "Differentially Private Empirical Risk Minimization" (Chaudhuri, Monteleoni, Sarwate, 2011), which has the
    logarithm twice. The second sharpens "Private Convex Empirical Risk Minimization and High-dimensional Regression"
    (Kifer, Smith, Thakurta, 2012). Inexact minimisers are treated as in "Towards Practical Differentially Private
    Convex Optimization" (Iyengar et al., 2019). docs/proofs.md contains the proofs.
    """

    n: int
    lipschitz: float
    smoothness: float
    strong_convexity: float
    scale: float
    tolerance: float
    output_scale: float
    is_pure: bool
    is_one_sided: bool = False
    added_alpha: float = 0.0
    tasks: int = 1
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n", self.n)
        count("tasks", self.tasks)
        for name in ("lipschitz", "scale", "tolerance", "output_scale"):
            positive(name, getattr(self, name))
        for name in ("smoothness", "strong_convexity", "added_alpha"):
            nonnegative(name, getattr(self, name))
        _check_modulus(self.modulus)
        if max(self.scale, self.output_scale) > _MOST_NOISE:
            raise ValueError(
                f"noise of scale {self.scale:g} exceeds the range of floating point: use a larger epsilon or delta"
            )

    @classmethod
    def for_budget(
        cls,
        budget: BudgetLike,
        *,
        n: int,
        lipschitz: float,
        smoothness: float,
        strong_convexity: float,
        is_one_sided: bool = False,
        added_alpha: float = 0.0,
        tolerance: float | None = None,
        tasks: int = 1,
    ) -> "ObjectivePlan":
        """Return the plan with the least noise for ``budget``: K-norm noise if delta is 0, Gaussian otherwise.

        The noise on the result takes the share :data:`~privet.privacy.analyses.objective_noise.OUTPUT_SHARE` of what
        the volume loss leaves. The default tolerance makes that noise a tenth of the least noise that the linear term
        causes in any direction.
        """
        stated = as_budget(budget)
        budget = black_box_share(stated, count("tasks", tasks))
        lipschitz, modulus = positive("lipschitz", lipschitz), strong_convexity + added_alpha
        if budget.epsilon < 1 / _MOST_NOISE:
            raise ValueError(
                f"epsilon = {budget.epsilon:g} needs noise beyond the range of floating point: use a larger epsilon"
            )
        volume = _affordable_volume_loss(budget.epsilon, smoothness, n, modulus)
        if budget.is_pure:
            room = budget.epsilon - volume
            ratio, output_ratio = (1 - OUTPUT_SHARE) * room, OUTPUT_SHARE * room
        else:
            ratio, output_ratio = objective_mu(budget, volume=volume, is_one_sided=is_one_sided)
        scale = 2 * lipschitz / ratio
        if tolerance is None:
            tolerance = _QUIET * scale / (n * (smoothness + modulus)) * modulus * output_ratio / 2
        output_scale = 2 * positive("tolerance", tolerance) / (modulus * output_ratio)
        plan = cls(
            n=n,
            lipschitz=lipschitz,
            smoothness=smoothness,
            strong_convexity=strong_convexity,
            scale=scale,
            tolerance=tolerance,
            output_scale=output_scale,
            is_pure=budget.is_pure,
            is_one_sided=is_one_sided,
            added_alpha=added_alpha,
            tasks=tasks,
            delta=stated.delta,
        )
        while plan.epsilon_at(budget.delta) > budget.epsilon:  # divisions may have rounded down
            plan = replace(plan, scale=plan.scale * (1 + 1e-15), output_scale=plan.output_scale * (1 + 1e-15))
        return plan

    @property
    def modulus(self) -> float:
        """Strong convexity m of the objective that is minimised."""
        return self.strong_convexity + self.added_alpha

    @property
    def volume_loss(self) -> float:
        """The part log(1 + beta/(n m)) of epsilon, which pays for the curvature of one record's loss."""
        return volume_loss(self.smoothness, self.n, self.modulus)

    def epsilon_at(self, delta: float) -> float:
        """Return the epsilon of one release, infinite for Gaussian noise at delta = 0."""
        ratio = 2 * self.lipschitz / self.scale
        output_ratio = 2 * self.tolerance / (self.modulus * self.output_scale)
        if self.is_pure:
            return self.volume_loss + ratio + output_ratio
        if delta == 0:
            return math.inf
        return objective_epsilon(delta, ratio, output_ratio, volume=self.volume_loss, is_one_sided=self.is_one_sided)

    def event_at(self, delta: float) -> Event:
        """Return what is released, in the form that composes: releases with a known epsilon, together at this delta."""
        if self.is_pure:
            return all_runs(PureRelease(self.epsilon_at(0.0)), self.tasks)
        if delta == 0:
            raise ValueError("Gaussian noise gives no pure epsilon guarantee: set delta > 0")
        of_one = black_box_delta(delta, self.tasks)
        return all_runs(ApproximateRelease(self.epsilon_at(of_one), of_one), self.tasks)

    @property
    def event(self) -> Event:
        """What is released, in the form that composes, at the plan's own delta."""
        return self.event_at(stated_delta(None, self.delta))

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = "the minimiser of the randomly tilted objective, with a little noise",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of one release, or of all releases for several tasks.

        The constants are *assumed* unless ``bound`` says that the solver enforces them.
        """
        delta = stated_delta(delta, self.delta)
        law = "l2 K-norm noise of scale" if self.is_pure else "Gaussian noise of std"
        noise = (
            f"a linear term of {law} {self.scale:.6g} is added to the sum of losses, and noise of the same kind and of "
            f"scale {self.output_scale:.3g} to its minimiser, {in_words(self.output_scale, self.is_pure)}"
        )
        words = [enforced(noise, detail=True)]
        if self.added_alpha:
            words.append(
                enforced(f"the objective has an additional penalty of {self.added_alpha:.6g}/2 ||w||^2 for privacy")
            )
        bound = bound or assumed(self.in_words())
        released = of_tasks(released, self.tasks)
        return Guarantee.of(
            self.event_at(delta), self.adjacency, delta, released=released, assumptions=(bound, *words), unit=unit
        )

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states its conditions."""
        side = ", with gradients that never point in opposite directions" if self.is_one_sided else ""
        return (
            f"{self.n} losses, convex in one score each{side}, are {self.lipschitz:.4g}-Lipschitz and "
            f"{self.smoothness:.4g}-smooth, the objective is {self.modulus:.4g}-strongly convex, and it is minimised "
            f"up to a gradient of norm {self.tolerance:.3g}"
        )

    def linear_term(
        self, shape: tuple[int, ...], source: NoiseSource, objective: Tilted | None = None
    ) -> tuple[NDArray[Any], float]:
        """Return the random linear term b, rounded, and a bound on its distance to the ideal term.

        The guarantee rests on a real-valued b, which has a density. Its rounding counts as an error of the minimiser,
        and is covered by the noise that is added to the minimiser. Audits by replay need the ``objective``.
        """
        draw = source.real_k_norm if self.is_pure else source.real_gaussian
        term, error = draw(shape, self.scale, Claim(2 * self.lipschitz, volume=self.volume_loss), objective)
        size = math.prod(shape)
        if not (float(np.linalg.norm(term)) <= self.longest_term(size) and error <= self.largest_error(size)):
            raise RuntimeError(
                "The random linear term is too long for the tolerance of this plan. This has a probability below "
                "1e-300 and does not depend on the data. Check the random number generator."
            )
        return term, error

    def longest_term(self, size: int) -> float:
        """Return a norm that b, with ``size`` entries, exceeds with probability below 1e-300."""
        return self.scale * (2 * size + 1500 if self.is_pure else math.sqrt(size) + 40)

    def largest_error(self, size: int) -> float:
        """Return a distance between b and its rounded value that is exceeded with probability below 1e-300."""
        return 2.0**-44 * self.longest_term(size)

    def noisy(self, result: NDArray[Any], source: NoiseSource) -> NDArray[Any]:
        """Return the computed minimiser with its noise."""
        claim = Claim(2 * self.tolerance / self.modulus)
        if self.is_pure:
            return source.add_k_norm(result, self.output_scale, claim)
        return source.add_gaussian(result, self.output_scale, None, None, claim)


def _check_modulus(modulus: float) -> None:
    if not modulus > 0:
        raise ValueError("objective perturbation needs strong convexity: set alpha or added_alpha above 0")


def _affordable_volume_loss(epsilon: float, smoothness: float, n: int, modulus: float) -> float:
    """Return the volume loss. Raise if it exceeds epsilon, with the alpha that would be enough."""
    _check_modulus(modulus)
    volume = volume_loss(smoothness, n, modulus)
    if volume < epsilon:
        return volume
    least, easy = (least_strong_convexity(smoothness, n, share * epsilon) for share in (1.0, 0.5))
    raise ValueError(
        f"with alpha = {modulus:.4g} the curvature of one record alone costs epsilon = {volume:.4g}, which exceeds "
        f"{epsilon:g}. Any alpha above {least:.6g} works, in the regulariser or as added_alpha; {easy:.6g} leaves half "
        "of epsilon for the noise."
    )
