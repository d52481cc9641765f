"""What "Privacy Amplification by Iteration" would take: step sizes, noise and excess loss of noisy passes (PNSGD).

Noise is calibrated exactly, in place of the paper's ``sqrt(2 log(1.25/delta))/epsilon``, which is larger and not valid
for every epsilon. All bounds are on the expected excess of the *population* loss of n independent records, and
rest on weights that stay within a ball of radius R.
"""

import math
from dataclasses import dataclass, replace

from privet.checks import count, positive
from privet.plans.contraction import Descent
from privet.plans.gradient import GradientPlan
from privet.plans.prescriptions.base import approximate
from privet.plans.samplers import FixedOrder
from privet.privacy.analyses.gaussian import gdp_mu
from privet.privacy.budget import BudgetLike
from privet.privacy.events import Secret


@dataclass(frozen=True)
class NoisyPass:
    """Prescription of one noisy pass over the records, one record per step.

    Attributes
    ----------
    step_size : float
        Size of every step.
    noise : float
        Standard deviation of the noise that is added to each coordinate of a record's gradient.
    excess : float
        Bound on the expected excess of the population loss.
    """

    step_size: float
    noise: float
    excess: float


def local_pass(n: int, dimension: int, budget: BudgetLike, *, lipschitz: float, radius: float) -> NoisyPass:
    """Return the prescription of Theorem 29 for Stop-PNSGD, whose budget holds against whoever sees any state.

    With ``sigma = 2 L/mu`` for the budget's mu: steps of size ``2 R/sqrt(n (L^2 + d sigma^2))``, and an excess of at
    most ``4 R sqrt((L^2 + d sigma^2)/n)``. No smoothness is needed.

    Parameters
    ----------
    n, dimension : int
        Number of records, and number d of weights.
    budget : Budget, or (epsilon, delta)
        The local budget. Delta must be positive.
    lipschitz, radius : float
        Bound L on the gradient of one record, and radius R of the ball.
    """
    budget = approximate(budget, "Theorem 29", n)
    noise = 2 * positive("lipschitz", lipschitz) / gdp_mu(budget)
    return _pass(count("n", n), dimension, lipschitz, radius, noise, 2.0, 4.0)


def skipping_pass(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    lipschitz: float,
    smoothness: float,
    radius: float,
    n_public: int = 0,
) -> NoisyPass:
    """Return the prescription of Theorem 30 for Skip-PNSGD, or of Corollary 31 if the last records are public.

    Steps have the size ``sqrt(8) R/sqrt(n (L^2 + d sigma^2))``, and the excess is at most
    ``4 sqrt(2) R sqrt((L^2 + d sigma^2)/n)``. With m public records at the end, ``sigma = 2 L/(mu sqrt(m + 1))`` gives
    every private record the budget's mu. Without any, the last record has the budget, and record t has
    ``mu/sqrt(n - t + 1)``.

    Parameters
    ----------
    n, dimension : int
        Number of records, including public ones, and number d of weights.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    lipschitz, smoothness, radius : float
        Bounds L on the gradient and beta on the curvature of one record's loss, and radius R of the ball.
    n_public : int
        Number m of public records, which the pass uses last.

    Raises
    ------
    ValueError
        If the steps exceed 2/beta, beyond which they are not contractive.

    Notes
    -----
    Corollary 31 prints noise that is too small by a factor of up to sqrt(2): ``2 L sqrt(log(1.25/delta)/m)/epsilon``.
    """
    budget = approximate(budget, "Theorem 30", n)
    count("n_public", n_public, at_least=0, at_most=count("n", n) - 1)
    noise = 2 * positive("lipschitz", lipschitz) / (gdp_mu(budget) * math.sqrt(n_public + 1))
    taken = _pass(n, dimension, lipschitz, radius, noise, math.sqrt(8), 4 * math.sqrt(2))
    _check_contraction(taken.step_size, smoothness)
    return taken


def several_tasks(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    tasks: int,
    lipschitz: float,
    smoothness: float,
    radius: float,
) -> NoisyPass:
    """Return the prescription of Theorem 32: as many runs of Stop-PNSGD as ``tasks``, on the same records.

    ``q = max(2 k log(n)/n, 2 log(1/delta))``, ``sigma = 4 L sqrt(q log(1/delta))/epsilon``, steps of size
    ``4 R/sqrt(n (L^2 + d sigma^2))``, and an excess of at most ``4 R sqrt((L^2 + d sigma^2)/n)`` in every task.

    Parameters
    ----------
    n, dimension : int
        Number of records, at least 3, and number d of weights.
    budget : Budget, or (epsilon, delta)
        The budget of all tasks together, with epsilon below 1 and delta between 0 and 1/2.
    tasks : int
        Number k of tasks.
    lipschitz, smoothness, radius : float
        As in :func:`skipping_pass`.

    Raises
    ------
    ValueError
        If the budget is out of range or the steps exceed 2/beta.

    Notes
    -----
    The theorem rests on Theorem 26, which is false for n = 1 and has no proof for n = 2. A plan with ``RandomStop(n)``
    and ``tasks=k`` needs less noise for the same budget.
    """
    budget = approximate(budget, "Theorem 32", n)
    count("n", n, at_least=3)
    if not (budget.epsilon < 1 and budget.delta < 0.5):
        raise ValueError(
            f"Theorem 32 needs epsilon < 1 and delta < 1/2, got epsilon = {budget.epsilon:g} and delta = "
            f"{budget.delta:g}. GradientPlan.for_budget(..., tasks=k) calibrates the noise without such limits."
        )
    log_delta = -math.log(budget.delta)
    shared = max(2 * count("tasks", tasks) * math.log(n) / n, 2 * log_delta)
    noise = 4 * positive("lipschitz", lipschitz) * math.sqrt(shared * log_delta) / budget.epsilon
    taken = _pass(n, dimension, lipschitz, radius, noise, 4.0, 4.0)
    _check_contraction(taken.step_size, smoothness)
    return taken


def noisy_pass_plan(
    budget: BudgetLike,
    *,
    sampler: FixedOrder,
    clip_norm: float,
    dimension: int,
    smoothness: float,
    radius: float,
    strong_convexity: float = 0.0,
    tasks: int = 1,
) -> GradientPlan:
    """Return a plan for ``projected_sgd`` with the theorems' step size: one noisy pass within a ball.

    The size is ``a R/sqrt(T (L^2 + d sigma^2/b^2))`` for T steps on batches of b records, where a is 2 for
    ``FixedOrder`` and ``RandomStop`` (Theorems 28 and 29), sqrt(8) for ``RandomSkip`` (Theorem 30, and Corollary 31
    with public records), and 4 for several tasks (Theorem 32). The theorems have b = 1.

    Parameters
    ----------
    budget : Budget, or (epsilon, delta)
        Budget of the last iterate, of all tasks together. What holds for whoever sees every state is ``local`` in the
        guarantee of the plan.
    sampler : FixedOrder, RandomStop, RandomSkip or SecretOrder
        The pass.
    clip_norm, smoothness, strong_convexity : float
        Bound L on the gradient of one record, and constants of the objective, which includes the regulariser.
    dimension : int
        Number d of weights.
    radius : float
        Radius R of the ball around zero onto which iterates are projected.
    tasks : int
        Number of runs on the same records.

    Raises
    ------
    ValueError
        If there are several passes, for which the paper has no step size, or if steps exceed 2/smoothness.
    """
    if sampler.passes > 1:
        raise ValueError(
            f"the paper prescribes step sizes for one pass, got passes = {sampler.passes}. Use one pass, or choose the "
            "step size yourself: GradientPlan.for_budget(..., descent=Descent(step_size, smoothness))"
        )
    # Steps that do not contract need the most noise, and the noise that they need does not depend on their size.
    slow = Descent(1 / positive("smoothness", smoothness), smoothness)
    draft = GradientPlan.for_budget(
        budget, sampler=sampler, clip_norm=clip_norm, release="last", descent=slow, tasks=tasks
    )
    factor = 4.0 if tasks > 1 else math.sqrt(8) if sampler.secret is Secret.SKIP else 2.0
    noise = draft.noise_std / sampler.size
    step_size = _pass(draft.steps, dimension, clip_norm, radius, noise, factor, 4.0).step_size
    _check_contraction(step_size, smoothness)
    return replace(draft, descent=Descent(step_size, smoothness, strong_convexity, 2 * radius))


def many_passes_noise(n: int, budget: BudgetLike, *, lipschitz: float, passes: int | None = None) -> float:
    """Return the noise of PNMSGD, many passes in one fixed order, of which only the last iterate is released.

    Theorem 35 makes n passes and asks for ``5 L sqrt(log(1/delta))/epsilon``. This is the least noise that its argument
    gives: ``sigma = (2 L/mu) sqrt((E - 1)/n + 1)`` for E passes and the budget's mu, decided by the last record.

    Parameters
    ----------
    n : int
        Number of records.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    lipschitz : float
        Bound L on the gradient of one record.
    passes : int or None
        Number E of passes, n by default.
    """
    budget = approximate(budget, "Theorem 35", n)
    passes = n if passes is None else count("passes", passes)
    return 2 * positive("lipschitz", lipschitz) * math.sqrt((passes - 1) / count("n", n) + 1) / gdp_mu(budget)


def smoothing_width(step_size: float, lipschitz: float) -> float:
    """Return the least width of Gaussian smoothing at which steps are contractive for a non-smooth loss.

    A loss with Lipschitz constant L that is convolved with Gaussian noise of standard deviation lambda is
    L/lambda-smooth and moves by at most ``L lambda sqrt(d)``, or ``L lambda`` for a linear model with rows of norm 1
    (Theorem 33). Steps of size eta need ``lambda >= eta L/2``. Corollary 34 takes ``R eps/(2 sqrt(n log(1/delta)))``,
    which is a bound on this for the step size of Theorem 30.

    Parameters
    ----------
    step_size, lipschitz : float
        Size eta of the steps, and Lipschitz constant L of the loss.
    """
    return positive("step_size", step_size) * positive("lipschitz", lipschitz) / 2


def _pass(
    n: int, dimension: int, lipschitz: float, radius: float, noise: float, step_factor: float, excess_factor: float
) -> NoisyPass:
    """Return the pass with step and excess in units of R/(G sqrt(n)) and R G/sqrt(n), G^2 = L^2 + d noise^2."""
    spread = math.hypot(positive("lipschitz", lipschitz), math.sqrt(count("dimension", dimension)) * noise)
    positive("radius", radius)
    root = math.sqrt(n)
    return NoisyPass(step_factor * radius / (spread * root), noise, excess_factor * radius * spread / root)


def _check_contraction(step_size: float, smoothness: float) -> None:
    if step_size > 2 / positive("smoothness", smoothness):
        raise ValueError(
            f"the prescribed step size {step_size:.4g} exceeds 2/smoothness = {2 / smoothness:.4g}, so that steps are "
            "not contractive and nothing amplifies. Use a smaller radius, more records, or a smoother loss."
        )
