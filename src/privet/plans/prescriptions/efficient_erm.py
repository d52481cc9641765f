"""What "Efficient Private ERM for Smooth Objectives" would take: output perturbation and RRPSGD.

The paper's constants are replaced where they are loose or wrong: sensitivities are those of
:class:`~privet.plans.DescentStability`, and Gaussian noise is calibrated exactly (the paper's ``sqrt(2 log(2/delta))``
does not hold for every epsilon, as its Theorem 1 says).
"""

import math
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from privet.checks import count, nonnegative, positive
from privet.plans.output import OutputPlan
from privet.plans.prescriptions.base import at_least_one
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
