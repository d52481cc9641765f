"""Defaults that cost no privacy: chosen from public numbers (n, d, budget, constants), never from the data's values."""

import math
from dataclasses import dataclass

from privet.privacy import Budget, gdp_mu

METHODS = ("output", "gradient")


@dataclass(frozen=True)
class Choice:
    """A method, and why."""

    method: str
    reason: str


def choose_method(method: str, *, is_pure: bool) -> Choice:
    """Return the method to run; ``auto`` decides, and an impossible wish is refused."""
    if method == "auto":
        if is_pure:
            return Choice("output", "delta = 0: only output perturbation has noise for pure epsilon")
        return Choice("gradient", "delta > 0: noise in every step is forgotten by later steps, noise at the end is not")
    if method not in METHODS:
        raise ValueError(f"method must be auto, {' or '.join(METHODS)}, got {method!r}")
    if is_pure and method == "gradient":
        raise ValueError(
            "method='gradient' uses Gaussian noise, which gives no pure epsilon guarantee: set delta > 0, or use "
            "method='output'"
        )
    return Choice(method, "asked for")


def default_delta(n: int) -> float:
    """Return 1/n^1.1, below the 1/n at which publishing a random record would be allowed."""
    return float(max(n, 2) ** -1.1)


# How large the noise in the weights may grow before descent stops, and the fewest steps worth taking. Noise in every
# step is damped by the steps that follow, noise on the result is not.
_TOLERATED_NOISE = {"gradient": 1.5, "output": 0.4}
_FEWEST_STEPS = {"gradient": 10, "output": 3}
_MOST_STEPS = 400


def default_steps(method: str, budget: Budget, *, lipschitz: float, n: int, n_weights: int, step_size: float) -> int:
    """Return how many steps the budget is worth.

    Noise of T steps, in the weights, has a norm of about T * step_size * 2 * lipschitz * sqrt(n_weights) / (n * mu),
    for noise in each step and for noise at the end alike (before curvature damps it). Descent is stopped where that
    reaches a tolerated size, a fraction of the usual distance between weights that matter.
    """
    # K-norm noise has a standard deviation of sqrt(d+1) sensitivity/epsilon a coordinate: an equivalent mu.
    mu = budget.epsilon / math.sqrt(n_weights + 1) if budget.is_pure else gdp_mu(budget)
    a_step = step_size * 2 * lipschitz * math.sqrt(n_weights) / (n * mu)
    worth = _TOLERATED_NOISE[method] / a_step
    return int(min(max(worth, _FEWEST_STEPS[method]), _MOST_STEPS))
