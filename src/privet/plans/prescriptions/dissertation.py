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


@dataclass(frozen=True)
class RecursiveMomentum:
    """Prescription of DP-SRM.

    Attributes
    ----------
    n, dimension : int
    lipschitz, smoothness, gap : float
        The constants for which the prescription was made.
    steps, first_batch_size, batch_size : int
        Numbers T of steps, b_0 of records in the first batch, and b of records in later ones.
    accuracy : float
        The norm zeta of the gradient that is aimed at. A step moves the weights by at most zeta/(n_0 L).
    momentum : float
        The parameter gamma.
    shortening : float
        The parameter n_0. Steps have the size min(zeta/(n_0 L ||v||), 1/(2 n_0 L)).
    """

    n: int
    dimension: int
    lipschitz: float
    smoothness: float
    gap: float
    steps: int
    first_batch_size: int
    batch_size: int
    accuracy: float
    momentum: float
    shortening: float

    @property
    def difference_bound(self) -> float:
        """Bound zeta/n_0 on how far one record's gradient moves in a step, the C_2 of a plan."""
        return self.accuracy / self.shortening

    def gradient_norm(self, first_noise: float, noise: float) -> float:
        """Return the bound on the expected norm of the gradient at a uniformly drawn iterate.

        It is ``4 n_0 L gap/(T zeta) + e/zeta + 2 zeta + sqrt(e)``, where e bounds the mean squared error of the
        estimators (Section 4.6.2).

        Parameters
        ----------
        first_noise, noise : float
            Standard deviations of the noise on the first and on later estimators, per coordinate.
        """
        zeta, share, big = self.accuracy, self.momentum, self.lipschitz**2
        error = (
            2 * ((1 - share) * self.difference_bound) ** 2 / (share * self.batch_size)
            + 2 * share * big / self.batch_size
            + big / (self.steps * share * self.first_batch_size)
            + self.dimension * (self.steps * noise**2 + first_noise**2) / (self.steps * share)
        )
        start = 4 * self.shortening * self.smoothness * self.gap / (self.steps * zeta)
        return start + error / zeta + 2 * zeta + math.sqrt(error)


def recursive_momentum(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    lipschitz: float,
    smoothness: float,
    gap: float,
    shortening: float = 1.0,
    constant: float = 1.0,
) -> RecursiveMomentum:
    """Return the prescription of Theorem 4.5.4 for DP-SRM, which needs no convexity.

    ``zeta = constant sqrt(G) (L gap d log(1/delta))^(1/4)/sqrt(n eps)``, ``T = L gap/zeta^2``,
    ``gamma = zeta/(n_0 G)``, ``b_0 = G^3/(zeta L gap)`` and ``b = G/(n_0 zeta)``. Batches have at most n records.

    Parameters
    ----------
    n, dimension : int
        Number of records, and number d of weights.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    lipschitz, smoothness : float
        Bounds G on the gradient and L on the curvature of one record's loss.
    gap : float
        Bound on how far the objective at the start is above its minimum.
    shortening : float
        The parameter n_0, by which all steps are shortened.
    constant : float
        C_2 of the theorem; its other constants are 1 here.

    Raises
    ------
    ValueError
        If zeta exceeds G, where the theorem says nothing.

    Notes
    -----
    The theorem takes n_0 = L gap/zeta. The first term of its own bound is then 4 L gap, whatever n is, so its rate does
    not follow. With n_0 = 1 it does, at batches of about G/zeta records instead of a constant number. Its formulas are
    stated for G = 1; here they have the units that they need for other G.
    """
    budget = approximate(budget, "Theorem 4.5.4", n)
    count("n", n)
    big, steepness = positive("lipschitz", lipschitz), positive("smoothness", smoothness) * positive("gap", gap)
    spread = math.sqrt(steepness * count("dimension", dimension) * -math.log(budget.delta))
    zeta = positive("constant", constant) * math.sqrt(big * spread / (n * budget.epsilon))
    shortened = positive("shortening", shortening)
    if zeta > big * min(1.0, shortened):
        raise ValueError(
            f"Theorem 4.5.4 aims at a gradient norm of {zeta:.4g}, which every point has, because gradients are "
            f"bounded by {big:g}. It needs more records, a larger budget, or fewer weights."
        )
    return RecursiveMomentum(
        n,
        dimension,
        big,
        smoothness,
        gap,
        steps=at_least_one(steepness / zeta**2),
        first_batch_size=min(at_least_one(big**3 / (zeta * steepness)), n),
        batch_size=min(at_least_one(big / (shortened * zeta)), n),
        accuracy=zeta,
        momentum=zeta / (shortened * big),
        shortening=shortened,
    )


def transfer_penalty(
    n: int, dimension: int, budget: BudgetLike, *, n_true: int, gradient_bound: float, constant: float = 1.0
) -> float:
    """Return the l2 penalty of Theorem 3.3.5 for the teacher of DPSL-KT.

    ``lambda^2 = constant gamma sqrt(s* log(d) log(1/delta))/(n eps)``.

    Parameters
    ----------
    n, dimension : int
        Number of records and of features, the latter at least 2.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    n_true : int
        Number s* of features with non-zero true weights.
    gradient_bound : float
        Bound gamma on the entries of one record's gradient at the teacher.
    constant : float
        C_5 of the theorem.

    Notes
    -----
    The paper's privacy proof (Theorem 3.3.3) is wrong, so its noise is not offered. The penalty is useful for
    ``method="knowledge_transfer"``, whose noise comes from other arguments.
    """
    budget = approximate(budget, "Theorem 3.3.5", n)
    count("n", n)
    count("n_true", n_true, at_most=count("dimension", dimension, at_least=2))
    spread = math.sqrt(n_true * math.log(dimension) * -math.log(budget.delta))
    scale = positive("constant", constant) * positive("gradient_bound", gradient_bound)
    return math.sqrt(scale * spread / (n * budget.epsilon))
