"""What "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in Privacy-Preserving ERM" would take.

The utility bounds come from the paper's proofs, which give all constants for a given noise. They hold for any noise, so
the functions calibrate it with the accountant: the side conditions of the paper's Theorem 2 usually fail.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from privet.checks import count, nonnegative, positive
from privet.denoise.spectrum import beta, gamma
from privet.plans.gradient import GradientPlan
from privet.plans.prescriptions.base import approximate, at_least_one
from privet.plans.samplers import FixedSize
from privet.privacy.budget import Budget, BudgetLike


@dataclass(frozen=True)
class SmoothedDescent:
    """Prescription of DP-LSSGD: batches without replacement, Laplacian smoothing, and constant steps 1/sqrt(T).

    Attributes
    ----------
    n, batch_size, dimension : int
    budget : Budget
    lipschitz : float
        Bound G on the gradient of one record.
    steps : int
        The number T of steps.
    start : float
        Error that remains from the start, before it is divided by sqrt(T).
    noise_weight : float
        Error per unit of variance of the noise on the mean gradient, before it is divided by sqrt(T).
    """

    n: int
    batch_size: int
    dimension: int
    budget: Budget
    lipschitz: float
    steps: int
    start: float
    noise_weight: float

    @property
    def step_size(self) -> float:
        """The size of every step, 1/sqrt(T)."""
        return 1 / math.sqrt(self.steps)

    @cached_property
    def plan(self) -> GradientPlan:
        """Sampling, bound and noise, calibrated by the accountant."""
        sampler = FixedSize(self.batch_size, self.n)
        return GradientPlan.for_budget(self.budget, sampler=sampler, steps=self.steps, clip_norm=self.lipschitz)

    def error_at(self, noise: float) -> float:
        """Return the utility bound if the mean gradient has noise of this standard deviation per coordinate."""
        return (self.start + self.noise_weight * nonnegative("noise", noise) ** 2) / math.sqrt(self.steps)

    @property
    def error(self) -> float:
        """The utility bound at the noise of ``plan``."""
        return self.error_at(self.plan.noise_std / self.batch_size)


def smoothed_descent(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    batch_size: int,
    lipschitz: float,
    smoothness: float,
    distance: float,
    smoothing: float = 0.0,
    constant: float = 1.0,
) -> SmoothedDescent:
    """Return the prescription of Theorem 4 for a convex objective.

    ``T = constant (D + G^2/b) n^2 eps^2/(gamma d G^2 log(1/delta))`` steps of size 1/sqrt(T). The average of the
    iterates has an expected excess of at most ``3/2 (D + G^2/b + gamma d noise^2)/sqrt(T)``. ``smoothing=0`` is DP-SGD.

    Parameters
    ----------
    n, dimension : int
        Number of records, and number d of weights.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    batch_size : int
        Size b of a batch, drawn without replacement.
    lipschitz, smoothness : float
        Bounds G on the gradient of one record and L on the curvature of the objective.
    distance : float
        Bound on ``||w0 - w*||`` in the norm of A = I - smoothing * Laplacian. It lies between 1 and
        sqrt(1 + 4 smoothing) times the Euclidean distance from the start to the minimiser, and D is its square.
    smoothing : float
        Strength sigma of the Laplacian smoothing. Its effective dimension is gamma d.
    constant : float
        C_1 of the theorem.

    Raises
    ------
    ValueError
        If steps of 1/sqrt(T) exceed 1/(2 L), which the proof needs and the theorem does not say.

    Notes
    -----
    The theorem states T without gamma; the proof has it.
    """
    budget = approximate(budget, "Theorem 4", n)
    factor = gamma(count("dimension", dimension), nonnegative("smoothing", smoothing))
    start = positive("distance", distance) ** 2 + lipschitz**2 / count("batch_size", batch_size, at_most=n)
    steps = _steps(start, factor * dimension, n, budget, lipschitz, constant)
    _check_step(steps, 2 * positive("smoothness", smoothness), "Theorem 4", "1/(2 smoothness)")
    return SmoothedDescent(n, batch_size, dimension, budget, lipschitz, steps, 1.5 * start, 1.5 * factor * dimension)


def smoothed_nonconvex_descent(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    batch_size: int,
    lipschitz: float,
    smoothness: float,
    gap: float,
    smoothing: float = 0.0,
    constant: float = 1.0,
) -> SmoothedDescent:
    """Return the prescription of Theorem 7, which needs no convexity.

    ``T = constant (2 gap + L G^2/b) n^2 eps^2/(L beta d G^2 log(1/delta))`` steps of size 1/sqrt(T). A uniformly drawn
    iterate has an expected squared gradient, in the norm of A^-1, of at most
    ``(2 gap + L G^2/b + L beta d noise^2)/sqrt(T)``. In the Euclidean norm it is at most 1 + 4 smoothing times that.

    Parameters
    ----------
    n, dimension, budget, batch_size, lipschitz, smoothness, smoothing, constant
        As in :func:`smoothed_descent`.
    gap : float
        Bound on how far the objective at the start is above its minimum.

    Raises
    ------
    ValueError
        If steps of 1/sqrt(T) exceed 1/L, which the proof needs.

    Notes
    -----
    The theorem claims the bound for the average of the iterates. Without convexity, its proof gives it for an iterate
    that is drawn uniformly.
    """
    budget = approximate(budget, "Theorem 7", n)
    factor = beta(count("dimension", dimension), nonnegative("smoothing", smoothing))
    positive("smoothness", smoothness)
    start = 2 * positive("gap", gap) + smoothness * lipschitz**2 / count("batch_size", batch_size, at_most=n)
    weight = smoothness * factor * dimension
    steps = _steps(start, weight, n, budget, lipschitz, constant)
    _check_step(steps, smoothness, "Theorem 7", "1/smoothness")
    return SmoothedDescent(n, batch_size, dimension, budget, lipschitz, steps, start, weight)


def _steps(start: float, weight: float, n: int, budget: Budget, lipschitz: float, constant: float) -> int:
    """Return the T that balances the error of the start and that of noise with variance proportional to T."""
    variance = positive("lipschitz", lipschitz) ** 2 * -math.log(budget.delta) / (count("n", n) * budget.epsilon) ** 2
    return at_least_one(positive("constant", constant) * start / (weight * variance))


def _check_step(steps: int, least_root: float, theorem: str, limit: str) -> None:
    if math.sqrt(steps) < least_root:
        raise ValueError(
            f"{theorem} does not hold for {steps} steps: their size 1/sqrt(T) = {1 / math.sqrt(steps):.4g} exceeds "
            f"{limit} = {1 / least_root:.4g}. It needs more records, a larger budget, or losses of smaller smoothness."
        )
