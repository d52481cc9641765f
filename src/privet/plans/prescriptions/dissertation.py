"""What L. Wang's dissertation "Towards Efficient and Effective Privacy-Preserving Machine Learning" would take.

Chapters 2 to 4: sparse models and DP-SRM (UCLA 2021). Noise is calibrated exactly, in place of the paper's constants,
some of which are too small. The absolute constants C_1, C_2, ... of the theorems are not known. The functions take 1
for them, and the one that decides the number of steps is a parameter.
"""

import math
from dataclasses import dataclass

from privet.checks import count, nonnegative, positive
from privet.plans.prescriptions.base import approximate, at_least_one
from privet.privacy.analyses.gaussian import gdp_mu
from privet.privacy.budget import BudgetLike


@dataclass(frozen=True)
class HardThresholdDescent:
    """Prescription of DP-IGHT: how many steps of which size, keeping how many features, and the error.

    Attributes
    ----------
    steps, step_size
        Number of steps and their size.
    n_nonzero : int
        Number s of features that every step keeps, which is larger than the number of features of the model.
    noise : float
        Standard deviation of the noise on each coordinate of the mean gradient.
    statistical_error, privacy_error : float
        The two terms of the bound on the expected squared distance to the true weights.
    """

    steps: int
    step_size: float
    n_nonzero: int
    noise: float
    statistical_error: float
    privacy_error: float

    @property
    def error(self) -> float:
        """Bound on the expected squared distance to the true weights, up to the constants of the theorem."""
        return self.statistical_error + self.privacy_error


def hard_threshold_descent(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    n_true: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    norm: float,
    gradient_at_truth: float = 0.0,
    constant: float = 1.0,
) -> HardThresholdDescent:
    """Return the prescription of Theorem 2.5.4 for DP-IGHT.

    With kappa = beta/mu and rho of the budget: ``s = kappa^2 s*`` features, steps of size ``1/(beta + mu)``, and
    ``T = constant * kappa * log(rho n^2 mu^2 norm^2 / (kappa^2 G^2 s log d))``.

    Parameters
    ----------
    n, dimension : int
        Number of records and of features, the latter at least 2.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    n_true : int
        Number s* of features with non-zero true weights.
    lipschitz : float
        Bound G on the gradient of one record. Squared losses have none, so there it is the clip.
    smoothness, strong_convexity : float
        Sparse eigenvalues beta and mu of the loss: the largest and smallest curvature along sparse directions.
    norm : float
        Norm of the true weights.
    gradient_at_truth : float
        Largest entry of the gradient at the true weights, which decides the statistical error. The default 0 leaves
        only the error that privacy causes.
    constant : float
        C_3 of the theorem. Its other constants (C_1, C_2, C_4, C_5) are 1 here.

    Notes
    -----
    Theorem 2.5.2 asks for noise of variance T G^2/(n^2 rho), which gives 2 rho-zCDP, not rho. This function uses
    2 T G^2/(n^2 rho) with the rho = mu^2/2 of the exact Gaussian profile. Corollary 2.7.1 restates the number of steps
    for (epsilon, delta) without epsilon, and is not used.
    """
    budget = approximate(budget, "Theorem 2.5.4", n)
    count("n", n)
    count("dimension", dimension, at_least=2)
    count("n_true", n_true, at_most=dimension)
    positive("lipschitz", lipschitz)
    positive("norm", norm)
    nonnegative("gradient_at_truth", gradient_at_truth)
    kappa = condition_number(smoothness, strong_convexity)
    kept = min(math.ceil(kappa**2 * n_true), dimension)
    rho = gdp_mu(budget) ** 2 / 2
    signal = rho * (n * strong_convexity * norm) ** 2 / (kappa**2 * lipschitz**2 * kept * math.log(dimension))
    steps = at_least_one(positive("constant", constant) * kappa * math.log(signal))
    variance = 2 * steps * lipschitz**2 / (n**2 * rho)
    return HardThresholdDescent(
        steps=steps,
        step_size=1 / (smoothness + strong_convexity),
        n_nonzero=kept,
        noise=math.sqrt(variance),
        statistical_error=kappa**2 * n_true / strong_convexity**2 * gradient_at_truth**2,
        # The last factor of the theorem's second term is T/kappa up to constants, so it is T G^2/(n^2 rho) in disguise.
        privacy_error=kappa**2 * n_true * math.log(dimension) / strong_convexity**2 * variance,
    )


def condition_number(smoothness: float, strong_convexity: float) -> float:
    """Return beta/mu, after a check that it is at least 1."""
    if positive("strong_convexity", strong_convexity) > positive("smoothness", smoothness):
        raise ValueError(
            f"strong_convexity = {strong_convexity:g} exceeds smoothness = {smoothness:g}, which is impossible. "
            "Check the units of both."
        )
    return smoothness / strong_convexity
