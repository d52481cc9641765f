"""Accounting by privacy loss distributions.

Koskela, Jalko and Honkela 2020; the discretisation, an upper bound, is that of Doroshenko et al. 2022, "Connect the
Dots". dp-accounting does the work; here its grid is chosen, the rounding of its Fourier transform is paid for, and the
pairs that it lacks (:mod:`~privet.privacy.analyses.loss_masses`) are supplied.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from privet.privacy.analyses.loss_masses import LossMasses, fixed_size_losses, mixture_losses
from privet.privacy.analyses.unsampled import not_covered, unsampled_epsilon
from privet.privacy.budget import Adjacency
from privet.privacy.events import (
    ApproximateRelease,
    Event,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    PoissonGaussian,
    PureRelease,
)
from privet.privacy.iteration import mixture


@dataclass(frozen=True)
class Precision:
    """How fine a grid the privacy loss distributions are rounded to."""

    cells_per_deviation: float
    most_cells: int


FINE = Precision(cells_per_deviation=16.0, most_cells=16_000)
MIDDLE = Precision(cells_per_deviation=6.0, most_cells=6_000)
COARSE = Precision(cells_per_deviation=2.0, most_cells=2_000)


# dp-accounting exponentiates losses; beyond this a float overflows.
LARGEST_LOSS = 600.0
_FINEST_GRID = 1e-9


def loss_distribution_epsilon(
    parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: Precision
) -> float:
    """Compose privacy loss distributions on one grid, rounded up."""
    room = delta - fourier_rounding(parts)
    if room <= 0 or largest_loss(parts) > LARGEST_LOSS:
        return math.inf
    if not any(_spread(part)[0] > 0 for part in parts):  # nothing released, but for chances of publishing all
        return unsampled_epsilon(parts, adjacency, delta)
    interval = _interval(parts, precision)
    total: Any = None
    try:
        for part in parts:
            distribution = _pld(part, interval)
            total = distribution if total is None else total.compose(distribution)
        with np.errstate(over="ignore"):  # an infinite epsilon is an answer
            return float(total.get_epsilon_for_delta(room))
    except OverflowError:  # losses in the hundreds: no bound from here
        return math.inf


def _interval(parts: Sequence[Event], precision: Precision) -> float:
    """Return the width h of the grid for the privacy loss.

    Rounding the loss of one step, of standard deviation s, to the grid adds variance of about h min(h, s). The widest
    grid is taken on which this adds up to a small share of the total variance, so that a small release beside a large
    one does not force a fine grid on both. Pure losses are rounded up, by up to h each. Where rare large losses
    dominate, all this would be needlessly fine, so the number of cells a step is limited.
    """
    spreads = [_spread(part) for part in parts]
    variance = sum(steps * s**2 for s, steps in spreads)
    allowed = variance / precision.cells_per_deviation**2
    low, high = 0.0, math.sqrt(variance)
    for _ in range(60):
        h = (low + high) / 2
        low, high = (h, high) if sum(steps * h * min(h, s) for s, steps in spreads) <= allowed else (low, h)
    width = low
    rounded_up = [part for part in parts if isinstance(part, PureRelease | ApproximateRelease)]
    if rounded_up:
        width = min(width, 0.16 / precision.cells_per_deviation * math.sqrt(variance) / len(rounded_up))
    return max(width, largest_loss(parts) / precision.most_cells, _FINEST_GRID)


def _spread(part: Event) -> tuple[float, int]:
    """Return the standard deviation of the loss of one step, about, and the number of steps."""
    if isinstance(part, PoissonGaussian | FixedSizeGaussian):
        sigma = _relative_noise(part)
        return min(part.rate * math.sqrt(math.expm1(min(1 / sigma**2, 600.0))), 1 / sigma), part.steps
    if isinstance(part, GaussianRelease):
        return part.mu, 1
    if isinstance(part, LastIterate):
        mus, chances = mixture(part)
        return math.sqrt(chances @ mus**2), part.runs
    if isinstance(part, PureRelease | ApproximateRelease):
        return part.epsilon, 1
    raise not_covered("pld", part)


def largest_loss(parts: Sequence[Event]) -> float:
    """Return a loss that one step hardly ever exceeds: ten standard deviations of the noise out."""
    losses = [0.0]
    for part in parts:
        if isinstance(part, PoissonGaussian | FixedSizeGaussian):
            sigma = _relative_noise(part)
            exponent = (1 + 20 * sigma) / (2 * sigma**2)
            losses.append(math.log1p(part.rate * math.expm1(exponent)) if exponent < LARGEST_LOSS else exponent)
        elif isinstance(part, GaussianRelease | LastIterate):
            mu = part.mu if isinstance(part, GaussianRelease) else float(mixture(part)[0].max())
            losses.append(mu**2 / 2 + 10 * mu)
        elif isinstance(part, PureRelease | ApproximateRelease):
            losses.append(part.epsilon)
    return max(losses)


def _relative_noise(part: PoissonGaussian | FixedSizeGaussian) -> float:
    """Return the noise over what one neighbour may change: C by coming or going, 2C by replacement."""
    return part.noise_multiplier / (Adjacency.REPLACE_ONE.factor if isinstance(part, FixedSizeGaussian) else 1)


@singledispatch
def _pld(part: Event, interval: float) -> Any:
    """Return the privacy loss distribution of one event, rounded pessimistically."""
    raise not_covered("pld", part)


@_pld.register
def _(part: GaussianRelease, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if part.mu == 0:
        return pld.identity(value_discretization_interval=interval)
    return pld.from_gaussian_mechanism(1 / part.mu, value_discretization_interval=interval)


@_pld.register(PureRelease)
@_pld.register(ApproximateRelease)
def _(part: PureRelease | ApproximateRelease, interval: float) -> Any:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    delta = part.delta if isinstance(part, ApproximateRelease) else 0.0
    parameters = common.DifferentialPrivacyParameters(part.epsilon, delta)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=interval)


@_pld.register
def _(part: PoissonGaussian, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(
        part.noise_multiplier, value_discretization_interval=interval, sampling_prob=part.rate
    )
    return _repeated(one, part.steps)


@_pld.register
def _(part: FixedSizeGaussian, interval: float) -> Any:
    losses = fixed_size_losses(_relative_noise(part), part.rate, interval)
    return _repeated(_distribution(losses, interval), part.steps)


@_pld.register
def _(part: LastIterate, interval: float) -> Any:
    return _repeated(_distribution(mixture_losses(*mixture(part), interval), interval), part.runs)


def _distribution(losses: LossMasses, interval: float) -> Any:
    """Hand a law of losses to dp-accounting."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(interval, losses.lowest, losses.probabilities, losses.infinite, pessimistic_estimate=True)
    )


def _repeated(one: Any, steps: int) -> Any:
    """Return the distribution of that many steps."""
    if steps < 64:
        return one.self_compose(steps)
    # dp-accounting raises the size of a sparse distribution to the power of the steps, as an exact integer: a second
    # of work at a million steps. Two steps first make it dense.
    many = one.self_compose(2, tail_mass_truncation=0.0).self_compose(steps // 2)
    return many.compose(one) if steps % 2 else many


def fourier_rounding(parts: Sequence[Event]) -> float:
    """Return how much mass the rounding of an FFT, raised to the power of the steps, may misplace.

    The coefficients err by about 2e-15 relative, so their powers by 2e-15 steps, and by Parseval the composed
    distribution by that times its own Euclidean norm, below 0.05 for the grids used here. This allows for more.
    """
    steps = sum(part.steps for part in parts if isinstance(part, PoissonGaussian | FixedSizeGaussian))
    steps += sum(part.runs for part in parts if isinstance(part, LastIterate))
    return 1e-14 + 4e-16 * steps


def fourier_floor(parts: Sequence[Event]) -> float:
    """Return the delta below which that rounding would cost more than a few percent of delta."""
    return 30 * fourier_rounding(parts)
