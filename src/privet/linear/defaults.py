"""Defaults that cost no privacy: chosen from public numbers (n, d, budget, constants), never from the data's values."""

import math
from dataclasses import dataclass

from privet.privacy import Budget, gdp_mu
from privet.privacy.analyses.objective_noise import least_strong_convexity

METHODS = ("gradient", "iteration", "output", "minimiser", "objective")
PURE_METHODS = ("output", "minimiser", "objective")
CLIPPING_METHODS = ("gradient", "iteration", "output")


@dataclass(frozen=True)
class Choice:
    """A method, and why."""

    method: str
    reason: str


def choose_method(method: str, *, is_pure: bool, is_scalar: bool = True) -> Choice:
    """Return the method to run; ``auto`` decides, and an impossible wish is refused.

    ``is_scalar`` says whether the loss is a bounded one of one score a record, as noise in the objective needs it.
    """
    if method == "auto":
        if is_pure and is_scalar:
            return Choice("objective", "delta = 0: of the methods with a pure form, noise in the objective harms least")
        if is_pure:
            return Choice("output", "delta = 0: noise on the result has a pure form, for any loss")
        return Choice("gradient", "delta > 0: noise in every step is forgotten by later steps, noise at the end is not")
    if method not in METHODS:
        raise ValueError(f"method must be auto, {', '.join(METHODS[:-1])} or {METHODS[-1]}, got {method!r}")
    if is_pure and method not in PURE_METHODS:
        raise ValueError(
            f"method={method!r} uses Gaussian noise, which gives no pure epsilon guarantee: set delta > 0, or use "
            f"method={' or '.join(map(repr, PURE_METHODS))}"
        )
    return Choice(method, "asked for")


# ------------------------------------------------------------------------------------------------ noise in every step

CENTRE_SHARE = 0.05  # of the squared Gaussian-DP parameter, for the noisy mean of the rows
AVERAGED = 0.3  # the last iterates, whose average is returned
_STEPS, _MOST_STEPS = 50, 400
_CLIP = 0.4  # of the norm of rows times the scale of scores: the long gradients are few, and noise grows with the clip
_TOLERATED_SCORE_NOISE = 1.5  # of the scale of scores, for a row of full norm
_FINE, _EXACT = 1000.0, 5000.0  # precisions from which more steps pay, and from which clipping no longer does


def precision(budget: Budget, n: int, n_weights: int) -> float:
    """Return how large the sum of n records' gradients can be against its noise in all coordinates, one release."""
    return n * gdp_mu(budget) / math.sqrt(n_weights)


def gradient_steps(precision: float) -> int:
    """Return the number of noisy steps: few, unless noise is no matter and more of them lead closer to the minimum."""
    return int(min(_STEPS * max(1.0, math.sqrt(precision / _FINE)), _MOST_STEPS))


def default_clip(row_norm: float, scale: float, precision: float) -> float:
    """Return the clip of a record's gradient, for scores (and so residuals) of the given scale; infinite for none."""
    return _CLIP * row_norm * scale if precision < _EXACT else math.inf


def longest_step(noise_std: float, steps: int, row_norm: float, scale: float) -> float:
    """Return the step at which the noise of all steps together would reach a tolerated size in the scores.

    ``steps`` noises of ``noise_std`` a coordinate, times the step, times the norm of a row.
    """
    return _TOLERATED_SCORE_NOISE * scale / (noise_std * math.sqrt(steps) * row_norm)


# ------------------------------------------------------------------------------------------------- hidden iterates

BATCHES = 8  # a pass of so many steps costs as much as one full-batch step
_FEWEST_PASSES, _MOST_PASSES = 5, 150
_DECAYING = 0.5  # share of the steps, at the end, over which their sizes fall to zero: an average of a kind


def iteration_passes(
    budget: Budget, *, clip_norm: float, n: int, step_size: float, row_norm: float, scale: float
) -> int:
    """Return how many passes to make: as many as keep the noise of all steps at a tolerated size in the scores.

    Noise of T steps together weighs about T * step_size * 2 * clip_norm / (n mu) in a coordinate, as in a descent whose
    iterates are all released; steps are short, at most 2/smoothness, so that many are needed.
    """
    a_step = step_size * 2 * clip_norm * row_norm / (n * gdp_mu(budget))
    steps = _TOLERATED_SCORE_NOISE * scale / a_step
    return int(min(max(steps / BATCHES, _FEWEST_PASSES), _MOST_PASSES))


def decaying(step_size: float, steps: int) -> tuple[float, ...]:
    """Return step sizes that stay the same for half of the steps, then fall evenly, to nearly nothing at the end."""
    falling = int(_DECAYING * steps)
    return tuple(step_size * min(1.0, (steps - step) / (falling + 1)) for step in range(steps))


# ------------------------------------------------------------------------------------------------ noise on the result

_TOLERATED_NOISE = 1.2  # norm of the noise in the weights, in units of the scale of weights
_FEWEST_STEPS = 3


def output_steps(budget: Budget, *, lipschitz: float, n: int, n_weights: int, step_size: float, scale: float) -> int:
    """Return how many steps the budget is worth where noise comes at the end.

    The noise that T steps of descent need has a norm of about T * step_size * 2 * lipschitz * sqrt(n_weights) / (n mu).
    Descent is stopped where that reaches a tolerated size. ``scale`` is that of weights: of scores over row norms.
    """
    # K-norm noise has a standard deviation of sqrt(d+1) sensitivity/epsilon a coordinate: an equivalent mu.
    mu = budget.epsilon / math.sqrt(n_weights + 1) if budget.is_pure else gdp_mu(budget)
    a_step = step_size * 2 * lipschitz * math.sqrt(n_weights) / (n * mu)
    return int(min(max(_TOLERATED_NOISE * scale / a_step, _FEWEST_STEPS), _MOST_STEPS))


# ----------------------------------------------------------------------------------------------- noise in the objective

_VOLUME_SHARE = 0.25
_WEIGHTS = 16.0  # scores that weights of a usual length give a row of full norm, in units of the scale


def objective_alpha(
    budget: Budget, *, lipschitz: float, smoothness: float, n: int, n_weights: int, scale: float, row_norm: float
) -> float:
    """Return the penalty at which the noise in the objective moves the minimiser by no more than a usual length.

    A tilt of length t moves the minimiser of an alpha-strongly convex objective by at most t / alpha. The curvature of
    one record costs epsilon too, the more the smaller alpha is: it is to take no more than a fourth.
    """
    least = least_strong_convexity(smoothness, n, _VOLUME_SHARE * budget.epsilon)
    if budget.is_pure:
        tilt = n_weights * 2 * lipschitz / budget.epsilon  # the mean of a Gamma(n_weights) radius
    else:
        tilt = math.sqrt(n_weights) * 2 * lipschitz / gdp_mu(budget)
    return max(tilt / (n * _WEIGHTS * scale / row_norm), least)
