"""What "Differentially Private Federated Learning with Laplacian Smoothing" would take: rounds, step sizes and errors.

The error bounds of Theorems 4 to 6 hold for any noise. Only the numbers of rounds rest on Theorem 1 and its side
conditions, which are checked.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privet.checks import count, nonnegative, positive, probability
from privet.denoise.spectrum import effective_dimension
from privet.plans.prescriptions.base import approximate, at_least_one
from privet.privacy.analyses.subsampling_lemmas import DP_FED_LS_UNIFORM
from privet.privacy.budget import BudgetLike

_LOGITS = range(-600, 601)  # hundredths: splits from 0.002 to 0.998


@dataclass(frozen=True)
class FederatedProblem:
    """Constants of a federated problem, in the norms of the paper: of A for weights, and of A^-1 for gradients.

    Parameters
    ----------
    n_clients, clients_per_round, local_steps, dimension : int
        Numbers N of clients, S of clients in a round (without replacement), K of local steps, and d of weights.
    lipschitz : float
        Bound L on the Euclidean norm of a client's stochastic gradient, so that the clip eta_l K L has no effect.
    smoothness : float
        Smoothness beta of all clients' losses.
    smoothing : float
        Strength sigma of the Laplacian smoothing.
    dissimilarity : float
        G: the mean over clients of the squared gradient exceeds ``dissimilarity_factor**2`` times the squared mean
        gradient by at most G^2. It is 0 for identically distributed clients.
    dissimilarity_factor : float
        B, at least 1.
    gradient_std : float
        Bound on the standard deviation of a client's stochastic gradient, 0 for full local batches.
    global_step : float or None
        The server's step size eta_g, at least 1; sqrt(S) by default, as Theorem 3 assumes.
    """

    n_clients: int
    clients_per_round: int
    local_steps: int
    dimension: int
    lipschitz: float
    smoothness: float
    smoothing: float = 0.0
    dissimilarity: float = 0.0
    dissimilarity_factor: float = 1.0
    gradient_std: float = 0.0
    global_step: float | None = None

    def __post_init__(self) -> None:
        count("clients_per_round", self.clients_per_round, at_most=count("n_clients", self.n_clients))
        count("local_steps", self.local_steps)
        count("dimension", self.dimension)
        positive("lipschitz", self.lipschitz)
        positive("smoothness", self.smoothness)
        for name in ("smoothing", "dissimilarity", "gradient_std"):
            nonnegative(name, getattr(self, name))
        if self.dissimilarity_factor < 1 or self.server_step < 1:
            raise ValueError(
                "Theorems 4 to 6 need dissimilarity_factor >= 1 and global_step >= 1, got "
                f"{self.dissimilarity_factor:g} and {self.server_step:g}. Increase the smaller of them."
            )

    @property
    def server_step(self) -> float:
        """The server's step size eta_g."""
        return math.sqrt(self.clients_per_round) if self.global_step is None else self.global_step

    @property
    def effective_dimension(self) -> float:
        """The trace of the smoothing operator, which replaces d."""
        return effective_dimension(self.dimension, self.smoothing)

    @property
    def largest_step(self) -> float:
        """The largest eta_l eta_g of the theorems, Lambda_min^2/(8 K beta (1 + B^2))."""
        smallest_eigenvalue = 1 / (1 + 4 * self.smoothing)
        slope = 8 * self.local_steps * self.smoothness * (1 + self.dissimilarity_factor**2)
        return smallest_eigenvalue**2 / slope

    def variance(self, noise_multiplier: float) -> float:
        """Return H of the theorems, at noise on the sum of updates of ``noise_multiplier`` times the clip."""
        s, k = self.clients_per_round, self.local_steps
        return (
            (1 / (self.server_step**2 * k) + 1 / (s * k)) * self.gradient_std**2
            + 4 / s * (1 - s / self.n_clients) * self.dissimilarity**2
            + (self.lipschitz * nonnegative("noise_multiplier", noise_multiplier) / s) ** 2 * self.effective_dimension
        )

    @property
    def drift(self) -> float:
        """The term (1 + 4 sigma)^2 beta G^2 of the local models' divergence."""
        return (1 + 4 * self.smoothing) ** 2 * self.smoothness * self.dissimilarity**2


@dataclass(frozen=True)
class FederatedSteps:
    """Step sizes and clip of Theorem 4, 5 or 6, and the bound on the error.

    Attributes
    ----------
    local_step, global_step : float
        Step sizes eta_l of clients and eta_g of the server.
    clip_norm : float
        Clip eta_l K L of a client's update.
    error : float
        Bound on the expected excess of the average of the iterates, or on the expected squared gradient (in the norm of
        A^-1) of a uniformly drawn one.
    """

    local_step: float
    global_step: float
    clip_norm: float
    error: float


def federated_steps(
    problem: FederatedProblem,
    rounds: int,
    noise_multiplier: float,
    *,
    distance: float,
    strong_convexity: float = 0.0,
) -> FederatedSteps:
    """Return step sizes and error of Theorem 5 for convex losses, or of Theorem 4 for strongly convex ones.

    Parameters
    ----------
    problem : FederatedProblem
    rounds : int
        Number T of rounds.
    noise_multiplier : float
        Standard deviation of the noise on the sum of updates, divided by the clip.
    distance : float
        Bound on the distance from the start to the minimiser, in the norm of A.
    strong_convexity : float
        Strong convexity mu of all clients' losses, in the norm of A. It is 0 for Theorem 5.

    Raises
    ------
    ValueError
        If T < 1/(mu eta K), which Theorem 4 needs.
    """
    k, h, drift = problem.local_steps, problem.variance(noise_multiplier), 24 * problem.drift
    d2, mu, most = (
        positive("distance", distance) ** 2,
        nonnegative("strong_convexity", strong_convexity),
        problem.largest_step,
    )
    count("rounds", rounds)
    if mu > 0:
        wanted = 2 * math.log(max(math.e, mu**2 * rounds * d2 / h if h else math.inf)) / (mu * k * rounds)
        eta = min(wanted, most)
        if rounds * mu * eta * k < 1:
            raise ValueError(
                f"Theorem 4 needs at least 1/(strong_convexity eta K) = {1 / (mu * eta * k):.4g} rounds, got {rounds}. "
                "Use more rounds, or strong_convexity=0 for Theorem 5."
            )
        initial = 3 * mu * math.exp(-mu * eta * k * rounds / 2) * d2
    else:
        eta = min(_balance(d2, h, drift, rounds, k), most)
        initial = 2 * d2 / (eta * k * rounds)
    return _steps(problem, eta, initial + 2 * eta * k * h + drift * (eta * k) ** 2)


def federated_nonconvex_steps(
    problem: FederatedProblem, rounds: int, noise_multiplier: float, *, gap: float
) -> FederatedSteps:
    """Return step sizes and error of Theorem 6, which needs no convexity.

    Parameters
    ----------
    problem, rounds, noise_multiplier
        As in :func:`federated_steps`.
    gap : float
        Bound on how far the loss at the start is above its minimum.

    Notes
    -----
    The theorem claims the bound for an average of iterates. Without convexity, its proof gives it for an iterate
    that is drawn uniformly.
    """
    k, beta, drift = problem.local_steps, problem.smoothness, 32 * problem.smoothness * problem.drift
    h, gap = beta * problem.variance(noise_multiplier), positive("gap", gap)
    eta = min(_balance(gap, h, drift, count("rounds", rounds), k), problem.largest_step)
    return _steps(problem, eta, 8 * gap / (eta * k * rounds) + 4 * eta * k * h + drift * (eta * k) ** 2)


def largest_useful_rounds(
    n_clients: int, clients_per_round: int, budget: BudgetLike, *, lipschitz: float, split: float | None = None
) -> int:
    """Return the number of rounds of Theorem 3, beyond which the error of the noise exceeds the others.

    ``T = eps^2 N^2/(C_0 L^2 S log(1/delta))`` with ``C_0 = (14/split) (1 + 1/(1 - split))``.

    Parameters
    ----------
    n_clients, clients_per_round : int
        Numbers N of clients and S of clients in a round.
    budget : Budget, or (epsilon, delta)
        With epsilon <= log(1/delta), which the theorem needs.
    lipschitz : float
        Bound L on the gradient of a client. The theorem's T is in units in which the other errors are about 1.
    split : float or None
        The share lambda of epsilon. None takes 2 - sqrt(2), which gives the smallest C_0, 14 (1 + sqrt(2))^2 = 81.6.
    """
    budget = approximate(budget, "Theorem 3", n_clients)
    share = 2 - math.sqrt(2) if split is None else probability("split", split)
    log_delta = -math.log(budget.delta)
    if share == 1 or budget.epsilon > log_delta:
        raise ValueError(
            f"Theorem 3 needs split < 1 and epsilon <= log(1/delta), got split = {share:g}, epsilon = "
            f"{budget.epsilon:g} and log(1/delta) = {log_delta:.4g}. Use a smaller split, epsilon or delta."
        )
    factor = 14 / share * (1 + 1 / (1 - share))
    clients = count("clients_per_round", clients_per_round, at_most=count("n_clients", n_clients))
    scale = factor * positive("lipschitz", lipschitz) ** 2 * clients * log_delta
    return at_least_one((budget.epsilon * n_clients) ** 2 / scale)


def rounds_within(rate: float, noise_multiplier: float, budget: BudgetLike) -> int:
    """Return the largest number of rounds at a fixed noise that Corollary 1 (Appendix D) certifies, 0 if none.

    ``T <= split eps^2 nu^2/(14 tau^2 (log(1/delta)/(1 - split) + eps))``, at the best split for which both
    conditions of Theorem 1 hold, with the order rounded up as its proof needs. The accountant allows more rounds.

    Parameters
    ----------
    rate : float
        Share tau of clients in a round, drawn without replacement.
    noise_multiplier : float
        Noise nu on the sum of updates, divided by the clip.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.

    Notes
    -----
    The corollary prints the noise floor as nu >= 8/3. Condition (D.3) is nu^2 >= 8/3.
    """
    budget = approximate(budget, "Corollary 1")
    nu = positive("noise_multiplier", noise_multiplier) / 2  # relative to the replace-one sensitivity
    probability("rate", rate)
    best = 0
    for share in (1 / (1 + math.exp(-logit / 100)) for logit in _LOGITS):
        order = 1 + math.ceil(-math.log(budget.delta) / ((1 - share) * budget.epsilon))
        if max(DP_FED_LS_UNIFORM.misses(order, rate, nu)) <= 0:
            spent = DP_FED_LS_UNIFORM.rdp(order, rate, nu)
            left = budget.epsilon + math.log(budget.delta) / (order - 1)
            best = max(best, math.floor(left / spent))
    return best


def smoothing_risk(signal: ArrayLike, noise: float, smoothing: float) -> tuple[float, float]:
    """Return bias and variance of Laplacian smoothing of a signal with added noise (Proposition 1).

    Their sum is the expected squared distance between the smoothed noisy signal and the signal.

    Parameters
    ----------
    signal : array-like of shape (d,)
        The signal. It must be public, because the result depends on it.
    noise : float
        Standard deviation of the noise in each coordinate.
    smoothing : float
        Strength sigma of the smoothing.
    """
    values = np.asarray(signal, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError(f"signal must be a vector of finite numbers, got shape {values.shape}")
    frequencies = 2 * np.pi * np.arange(values.size) / values.size
    bent = nonnegative("smoothing", smoothing) * 2 * (1 - np.cos(frequencies))
    power = np.abs(np.fft.fft(values)) ** 2 / values.size
    bias = np.sum((bent / (1 + bent)) ** 2 * power)
    return float(bias), float(nonnegative("noise", noise) ** 2 * np.sum((1 + bent) ** -2.0))


def _balance(start: float, variance: float, drift: float, rounds: int, local_steps: int) -> float:
    """Return the step that balances the error of the start with that of variance and drift."""
    by_variance = math.sqrt(start / (variance * rounds)) if variance else math.inf
    by_drift = (start / (drift * rounds)) ** (1 / 3) if drift else math.inf
    return min(by_variance, by_drift) / local_steps


def _steps(problem: FederatedProblem, eta: float, error: float) -> FederatedSteps:
    local = eta / problem.server_step
    return FederatedSteps(local, problem.server_step, local * problem.local_steps * problem.lipschitz, error)
