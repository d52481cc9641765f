"""What "Efficient Private ERM for Smooth Objectives" would take: output perturbation and RRPSGD.

The paper's constants are replaced where they are loose or wrong: sensitivities are those of
:class:`~privet.plans.DescentStability`, and Gaussian noise is calibrated exactly (the paper's ``sqrt(2 log(2/delta))``
does not hold for every epsilon, as its Theorem 1 says).
"""

import math
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.checks import count, nonnegative, positive, probability
from privet.plans.gradient import GradientPlan
from privet.plans.output import OutputPlan
from privet.plans.prescriptions.base import approximate, at_least_one
from privet.plans.samplers import OneUniform
from privet.plans.stabilities import DescentStability
from privet.privacy.budget import Budget, BudgetLike, as_budget


@dataclass(frozen=True)
class OutputDescent:
    """A descent of ``steps`` steps from zero whose result gets noise once, and its expected excess.

    Parameters
    ----------
    n, dimension : int
        Number of records, and number d of weights.
    budget : Budget
        ``delta=0`` asks for K-norm noise, any other delta for Gaussian noise.
    lipschitz : float
        Bound L on the gradient of one record's loss.
    smoothness, strong_convexity : float
        Constants beta and mu of the objective, including the regulariser.
    radius : float
        Bound D on the norm of the minimiser. It enters the utility bound only, never the guarantee.
    steps : int
    step_size : float
        Below 2/beta, and at most 2/(beta + mu) if mu > 0.
    """

    n: int
    dimension: int
    budget: Budget
    lipschitz: float
    smoothness: float
    strong_convexity: float
    radius: float
    steps: int
    step_size: float

    def __post_init__(self) -> None:
        count("dimension", self.dimension)
        positive("radius", self.radius)
        mu = self.strong_convexity
        if self.stability.step_size * (self.smoothness + mu) > 2 * (1 + 1e-12) or self.step_size >= 2 / self.smoothness:
            raise ValueError(
                f"the utility bound does not cover a step size of {self.step_size:g}. Take a step below 2/smoothness "
                f"= {2 / self.smoothness:g} and of at most 2/(smoothness + strong_convexity) = "
                f"{2 / (self.smoothness + mu):g}."
            )

    @property
    def stability(self) -> DescentStability:
        """How far the result can move when one record is replaced (Lemmas 2 and 3, with tight constants)."""
        return DescentStability(
            self.n, self.lipschitz, self.smoothness, self.strong_convexity, self.step_size, self.steps
        )

    @property
    def plan(self) -> OutputPlan:
        """The descent and its noise."""
        return OutputPlan.for_budget(self.budget, stability=self.stability)

    @property
    def optimisation_error(self) -> float:
        """Bound on the excess of the result before noise (Lemma 5 if mu > 0, Lemma 8 otherwise).

        Lemma 8 is stated for steps of 1/beta. This is Nesterov's bound 2 D^2 / (T eta (2 - beta eta)), which equals it
        there and holds for all steps below 2/beta.
        """
        beta, mu, eta = self.smoothness, self.strong_convexity, self.step_size
        if mu > 0:
            return 0.5 * beta * self.radius**2 * math.exp(-2 * eta * mu * beta * self.steps / (mu + beta))
        return 2 * self.radius**2 / (self.steps * eta * (2 - beta * eta))

    @property
    def noise_error(self) -> float:
        """Expected excess that the noise adds, at most beta/2 times its expected squared norm (Lemmas 6 and 7)."""
        plan, d = self.plan, self.dimension
        return 0.5 * self.smoothness * plan.scale**2 * (d * (d + 1) if plan.is_pure else d)

    @property
    def excess(self) -> float:
        """Bound on the expected excess of the objective over its minimum."""
        return self.optimisation_error + self.noise_error

    def with_steps(self, steps: int) -> "OutputDescent":
        """Return the same descent with another number of steps, for instance to search for a smaller excess."""
        return replace(self, steps=steps)


class OutputProblem(TypedDict):
    """What Theorems 2 and 3 take besides the budget: the fields of :class:`OutputDescent` of the same names."""

    lipschitz: float
    smoothness: float
    radius: float


def output_descent(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    strong_convexity: float = 0.0,
    constant: float = 1.0,
    **problem: Unpack[OutputProblem],
) -> OutputDescent:
    """Return steps and step size of Theorem 2 if ``strong_convexity`` is positive, and of Theorem 3 otherwise.

    Theorem 2: step size 1/(mu + beta) and ``constant * (mu^2 + beta^2)/(mu beta) * log(mu^2 n^2 eps^2 D^2/(L^2 s))``
    steps. Theorem 3: step size 1/beta and ``constant * (beta^2 n^2 eps^2 D^2/(L^2 s))^(1/3)`` steps. Here s is d^2 for
    delta = 0 and ``d log(1/delta)`` otherwise.

    Parameters
    ----------
    n, dimension : int
        Number of records, and number d of weights.
    budget : Budget, or (epsilon, delta)
    strong_convexity : float
        The constant mu of the objective.
    constant : float
        The constant that the paper hides in Theta. With 1, the optimisation error of Theorem 2 is at most the order of
        its noise, because (mu + beta)^2 <= 2 (mu^2 + beta^2).
    **problem : OutputProblem
        ``lipschitz``, ``smoothness`` and ``radius``.

    Notes
    -----
    The number of steps is at least 1 and never more than :data:`~privet.checks.LARGEST_COUNT`. The theorems assume that
    the minimiser has a norm of at most ``radius``. Nothing enforces this, so it is an assumption about the data on
    which only the utility bound rests.
    """
    budget = as_budget(budget, n)
    count("n", n)
    count("dimension", dimension)
    mu, constant = nonnegative("strong_convexity", strong_convexity), positive("constant", constant)
    lipschitz, beta = positive("lipschitz", problem["lipschitz"]), positive("smoothness", problem["smoothness"])
    radius = positive("radius", problem["radius"])
    spread = dimension**2 if budget.is_pure else dimension * -math.log(budget.delta)
    ratio = (n * budget.epsilon * radius / lipschitz) ** 2 / spread
    if mu > 0:
        steps = constant * (mu**2 + beta**2) / (mu * beta) * math.log(mu**2 * ratio)
        step_size = 1 / (mu + beta)
    else:
        steps, step_size = constant * (beta**2 * ratio) ** (1 / 3), 1 / beta
    return OutputDescent(n, dimension, budget, lipschitz, beta, mu, radius, at_least_one(steps), step_size)


@dataclass(frozen=True)
class RandomRound:
    """Prescription of RRPSGD: the size of all steps, the noise, and the law of the number of steps.

    Attributes
    ----------
    most_steps : int
        Largest number of steps, n^2 in the paper. Every number is equally likely, because all steps have one size.
    step_size, noise : float
        Size of a step, and standard deviation of the noise on the gradient of the drawn record.
    squared_gradient : float
        Bound on the expected squared norm of the gradient at the result.
    excess : float or None
        Bound on the expected excess of a convex objective, if ``distance`` was given.
    dimension, lipschitz, smoothness, gap
        The constants for which the prescription was made.
    """

    most_steps: int
    step_size: float
    noise: float
    squared_gradient: float
    excess: float | None
    dimension: int
    lipschitz: float
    smoothness: float
    gap: float

    def likely_squared_gradient(self, failure: float) -> float:
        """Return a bound on the squared gradient that holds except with probability ``failure`` (Theorem 6).

        The probability is over noise and sampled records, and the squared norm is averaged over the number of steps.
        The bound adds up inequalities (1) to (5) of the proof, with Azuma's inequality for (3). The noise in (4) is
        multiplied by a vector that is known before, so this sum needs no factor of the dimension as in the paper.

        Parameters
        ----------
        failure : float
            The probability gamma, in (0, 1].
        """
        n, eta, beta, big = self.most_steps + 1, self.step_size, self.smoothness, self.lipschitz
        log = math.log(3 / probability("failure", failure))
        deviation = math.sqrt(2 * n * log)
        sampling = 2 * (eta - beta * eta**2) * big**2 * deviation + 2 * beta * eta**2 * n * big**2
        cross = (eta + beta * eta**2) * big * self.noise * deviation
        d = self.dimension * n
        chi = beta / 2 * (self.noise * eta) ** 2 * (d + 2 * math.sqrt(d * log) + 2 * log)
        return (self.gap + sampling + cross + chi) / (self.most_steps * (eta - beta / 2 * eta**2))


def random_round(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    lipschitz: float,
    smoothness: float,
    gap: float,
    distance: float | None = None,
    most_steps: int | None = None,
) -> RandomRound:
    """Return the prescription of Theorem 5 for RRPSGD, which needs no convexity.

    Steps have the size ``min(1/beta, D_F/(sigma sqrt(N)))`` with ``D_F = sqrt(2 gap/beta)``,
    ``sigma^2 = 4 L^2 + d noise^2`` and at most N = n^2 steps.

    Parameters
    ----------
    n, dimension : int
        Number of records, and number d of weights.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    lipschitz, smoothness : float
        Bounds L on the gradient and beta on the curvature of one record's loss.
    gap : float
        Bound on how far the objective at the start is above its minimum.
    distance : float or None
        Bound on the distance from the start to the minimiser. Give it for a convex objective: the step size is then
        ``min(1/beta, distance/(sigma sqrt(N)))``, and the excess of the objective is bounded as well.
    most_steps : int or None
        Another N than n^2. The theorem holds for every N.

    Notes
    -----
    The noise is that of an accountant for N single uniform draws, in place of that of Theorem 4, whose proof
    understates the sensitivity. The theorem averages over w_0, ..., w_(N-1), while the algorithm returns one of
    w_1, ..., w_N. The bounds here count the additional step.
    """
    budget = approximate(budget, "Theorem 5", n)
    count("n", n)
    count("dimension", dimension)
    beta, gap = positive("smoothness", smoothness), positive("gap", gap)
    most = n**2 if most_steps is None else most_steps
    plan = GradientPlan.for_budget(budget, sampler=OneUniform(n), steps=count("most_steps", most), clip_norm=lipschitz)
    sigma = math.sqrt(4 * lipschitz**2 + dimension * plan.noise_std**2)
    start = math.sqrt(2 * gap / beta) if distance is None else positive("distance", distance)
    step_size = min(1 / beta, start / (sigma * math.sqrt(most)))
    spent, gained = sigma**2 * (most + 1) * step_size**2, most * (2 * step_size - beta * step_size**2)
    excess = None if distance is None else (distance**2 + spent) / gained
    squared_gradient = beta * (2 * gap / beta + spent) / gained
    constants = (dimension, lipschitz, beta, gap)
    return RandomRound(most, step_size, plan.noise_std, squared_gradient, excess, *constants)


def stopping_law(step_sizes: ArrayLike, smoothness: float) -> NDArray[np.float64]:
    """Return the law of the number R of steps of RRPSGD (Theorem 5).

    ``Pr(R = k + 1)`` is proportional to ``2 eta_k - beta eta_k^2``.

    Parameters
    ----------
    step_sizes : array-like of floats
        The sizes eta_0, eta_1, ... of all steps that can be taken, all below 2/beta.
    smoothness : float
        The constant beta of the objective.
    """
    etas = np.asarray(step_sizes, dtype=np.float64)
    beta = positive("smoothness", smoothness)
    if etas.ndim != 1 or etas.size == 0 or not (np.all(etas > 0) and np.all(etas < 2 / beta)):
        raise ValueError(
            f"step_sizes must be a list of numbers between 0 and 2/smoothness = {2 / beta:g}, because longer steps "
            "would have a negative probability. Take smaller steps."
        )
    shares = etas * (2 - beta * etas)
    return np.asarray(shares / shares.sum())


def generalisation_penalty(
    n: int, dimension: int, epsilon: float, *, lipschitz: float, smoothness: float, radius: float, failure: float
) -> float:
    """Return the l2 penalty mu that the remark after Theorem 3 adds to a convex loss to bound its excess risk.

    ``mu = sqrt(2 L sqrt(beta d)/(n eps failure))/R``, which balances the penalty ``mu R^2/2`` and the excess risk
    ``L sqrt(beta d)/(n eps mu failure)`` of the strongly convex case, both without the factors that the paper hides.
    The paper prints mu without the radius R.

    Parameters
    ----------
    n, dimension : int
    epsilon : float
    lipschitz, smoothness, radius : float
        Constants L and beta of the loss, and the radius R of a ball around zero that contains the best weights.
    failure : float
        Probability with which the bound on the excess risk may fail (the paper's gamma).
    """
    error = positive("lipschitz", lipschitz) * math.sqrt(
        positive("smoothness", smoothness) * count("dimension", dimension)
    )
    scale = count("n", n) * positive("epsilon", epsilon) * probability("failure", failure)
    return math.sqrt(2 * error / scale) / positive("radius", radius)
