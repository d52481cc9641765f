"""What chapter 6 of L. Wang's dissertation (UCLA 2021) would take: output and gradient perturbation by several parties.

Noise is calibrated exactly. The paper's own constants are wrong for output perturbation and for large epsilon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privet.checks import count, nonnegative, positive
from privet.plans.prescriptions.base import approximate, at_least_one
from privet.plans.prescriptions.dissertation import condition_number
from privet.privacy.analyses.gaussian import gaussian_sigma, gdp_mu
from privet.privacy.budget import BudgetLike, as_budget


@dataclass(frozen=True)
class JointDescent:
    """Prescription of gradient perturbation by several parties.

    Attributes
    ----------
    steps : int
    step_size : float
    noise : float
        Standard deviation of the noise on each coordinate of the mean of the parties' mean gradients.
    excess : float
        Bound on the expected excess of the joint objective.
    """

    steps: int
    step_size: float
    noise: float
    excess: float


def joint_descent(
    sizes: Sequence[int],
    dimension: int,
    budget: BudgetLike,
    *,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    gap: float,
    constant: float = 1.0,
) -> JointDescent:
    """Return the prescription of Theorems 6.3.4 and 6.3.6.

    ``T = constant kappa log(m^2 n^2 eps^2/(d G^2 log(1/delta)))`` steps of size 1/L, with noise of standard deviation
    ``2 G sqrt(T)/(m n mu)``, where n is the number of records of the smallest party, kappa = L/lambda, and mu is that
    of the budget. The excess is at most ``(1 - 1/kappa)^T gap + d noise^2/(2 lambda)``.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each of m parties.
    dimension : int
        Number d of weights.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    lipschitz : float
        Bound G on the gradient of one record's loss.
    smoothness, strong_convexity : float
        Constants L and lambda of the joint objective, including the penalty.
    gap : float
        Bound on how far the objective at the start is above its minimum.
    constant : float
        The constant that the theorem hides. Its T has no kappa, which a number of steps of this kind needs.

    Notes
    -----
    The noise of Theorem 6.3.4, ``sqrt(8 T log(1/delta)) G/(m n eps)``, is larger for the usual budgets, and too small
    beyond an epsilon of about 8.
    """
    budget = approximate(budget, "Theorem 6.3.4", sum(sizes))
    kappa = condition_number(smoothness, strong_convexity)
    records = len(sizes) * _smallest(sizes)
    signal = (records * budget.epsilon / positive("lipschitz", lipschitz)) ** 2
    signal /= count("dimension", dimension) * -math.log(budget.delta)
    steps = at_least_one(positive("constant", constant) * kappa * math.log(signal))
    noise = 2 * lipschitz * math.sqrt(steps) / (records * gdp_mu(budget))
    start = (1 - 1 / kappa) ** steps * positive("gap", gap)
    return JointDescent(steps, 1 / smoothness, noise, start + dimension * noise**2 / (2 * strong_convexity))


def joint_output_excess(
    sizes: Sequence[int],
    dimension: int,
    budget: BudgetLike,
    *,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    spread: float | None = None,
) -> float:
    """Return the bound on the expected excess of output perturbation by several parties (Theorem 6.3.2, corrected).

    The parties add noise to the mean of their minimisers, which moves by at most ``2 G/(m n lambda)``. The excess is at
    most ``L/2 (spread^2 + E||noise||^2)``.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each of m parties. The smallest is n.
    dimension : int
        Number d of weights.
    budget : Budget, or (epsilon, delta)
        ``delta=0`` asks for K-norm noise, any other delta for Gaussian noise.
    lipschitz : float
        Bound G on the gradient of one record's loss.
    smoothness, strong_convexity : float
        Constants L and lambda of the joint objective, including the penalty.
    spread : float or None
        Bound on the distance between the mean of the parties' minimisers and the minimiser of the joint objective. None
        takes ``2 G (m - 1)/(m lambda)``, which holds for all data.

    Notes
    -----
    Theorem 6.3.2 rests on Theorem 6.5.3, which bounds the spread by ``G (m - 1)/(n lambda)``. Its proof divides the
    sum of a party's gradients by the number of its records twice. If the parties' data differ, the spread does not
    shrink with n.
    """
    budget = as_budget(budget, sum(sizes))
    condition_number(smoothness, strong_convexity)
    m, d = len(sizes), count("dimension", dimension)
    sensitivity = 2 * positive("lipschitz", lipschitz) / (m * _smallest(sizes) * strong_convexity)
    apart = 2 * lipschitz * (m - 1) / (m * strong_convexity) if spread is None else nonnegative("spread", spread)
    if budget.is_pure:
        squared_noise = d * (d + 1) * (sensitivity / budget.epsilon) ** 2
    else:
        squared_noise = d * gaussian_sigma(sensitivity, budget) ** 2
    return smoothness / 2 * (apart**2 + squared_noise)


def _smallest(sizes: Sequence[int]) -> int:
    if not sizes:
        raise ValueError("sizes must hold the number of records of at least one party, got none")
    return min(count("sizes", size) for size in sizes)
