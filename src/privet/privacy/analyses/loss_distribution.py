"""Accounting by privacy loss distributions.

Koskela, Jalko and Honkela 2020; the discretisation, which is an upper bound, is that of Doroshenko et al. 2022,
"Connect the Dots". dp-accounting computes the convolutions. This module chooses the grid, accounts for the rounding
errors of the Fourier transform, and builds the distributions from which events are made; the pairs of laws that
dp-accounting does not offer come from :mod:`~privet.privacy.analyses.loss_masses`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.privacy.analyses.loss_masses import LossMasses
from privet.privacy.budget import Adjacency

if TYPE_CHECKING:
    from privet.privacy.events.base import Event


@dataclass(frozen=True)
class Precision:
    """How fine a grid the privacy loss distributions are rounded to."""

    cells_per_deviation: float
    most_cells: int


FINE = Precision(cells_per_deviation=16.0, most_cells=16_000)
MIDDLE = Precision(cells_per_deviation=6.0, most_cells=6_000)
COARSE = Precision(cells_per_deviation=2.0, most_cells=2_000)


# dp-accounting exponentiates losses, and beyond this loss a float overflows.
LARGEST_LOSS = 600.0
_FINEST_GRID = 1e-9


def loss_distribution_epsilon(
    parts: Sequence["Event"], adjacency: Adjacency, delta: float, precision: Precision
) -> float:
    """Return the epsilon of the composed privacy loss distributions, all rounded up to one grid."""
    room = delta - fourier_rounding(parts)
    if room <= 0 or largest_loss(parts) > LARGEST_LOSS:
        return math.inf
    if not any(
        part.spread() > 0 for part in parts
    ):  # All releases together reveal nothing, except with probability delta.
        return 0.0 if sum(part.unsampled(adjacency).delta for part in parts) <= delta else math.inf
    try:
        total = _composed(tuple(parts), _interval(parts, precision))
        with np.errstate(over="ignore"):  # An infinite epsilon is a valid result.
            return float(total.get_epsilon_for_delta(room))
    except OverflowError:  # Losses in the hundreds: this analysis has no bound.
        return math.inf


def loss_distribution_deltas(
    parts: Sequence["Event"], epsilons: NDArray[np.float64], precision: Precision
) -> NDArray[np.float64]:
    """Return the delta at each of the ascending epsilons: the larger one of both directions, rounded up.

    The deltas are 1 where this analysis has no bound.
    """
    if largest_loss(parts) > LARGEST_LOSS or not any(part.spread() > 0 for part in parts):
        return np.ones_like(epsilons)
    try:
        deltas = _composed(tuple(parts), _interval(parts, precision)).get_delta_for_epsilon(epsilons)
    except OverflowError:
        return np.ones_like(epsilons)
    return np.asarray(np.maximum(deltas, 0.0) + fourier_rounding(parts))


@lru_cache(maxsize=8)  # The epsilon and the whole profile of an event are read from the same distribution.
def _composed(parts: tuple["Event", ...], interval: float) -> Any:
    """Return the privacy loss distribution of all parts together, as a dp-accounting object."""
    total: Any = None
    for part in parts:
        distribution = part.loss_distribution(interval)
        total = distribution if total is None else total.compose(distribution)
    return total


def _interval(parts: Sequence["Event"], precision: Precision) -> float:
    """Return the width h of the grid for the privacy loss.

    Rounding the loss of one step, of standard deviation s, to the grid adds variance of about h min(h, s). The result
    is the widest grid on which this adds up to a small share of the total variance, so that a small release beside a
    large one does not force a fine grid on both. The losses of black boxes are rounded up, by up to h each. Where rare
    large losses dominate, such a grid would be needlessly fine, so the number of cells per step is limited.
    """
    spreads = [(part.spread(), part.repeats) for part in parts]
    variance = sum(steps * s**2 for s, steps in spreads)
    allowed = variance / precision.cells_per_deviation**2
    low, high = 0.0, math.sqrt(variance)
    for _ in range(60):
        h = (low + high) / 2
        low, high = (h, high) if sum(steps * h * min(h, s) for s, steps in spreads) <= allowed else (low, h)
    width = low
    rounded_up = sum(part.repeats for part in parts if part.is_black_box)
    if rounded_up:
        width = min(width, 0.16 / precision.cells_per_deviation * math.sqrt(variance) / rounded_up)
    return max(width, largest_loss(parts) / precision.most_cells, _FINEST_GRID)


def largest_loss(parts: Sequence["Event"]) -> float:
    """Return a privacy loss that one step of any part hardly ever exceeds."""
    return max((part.largest_loss() for part in parts), default=0.0)


def fourier_rounding(parts: Sequence["Event"]) -> float:
    """Return how much probability the rounding of an FFT, raised to the power of the steps, may misplace.

    The coefficients have a relative error of about 2e-15, so their powers have one of 2e-15 times the number of steps.
    By Parseval's identity, the error of the composed distribution is that times its own Euclidean norm, which is below
    0.05 for the grids used here. The returned value is larger than this estimate.
    """
    return 1e-14 + 4e-16 * sum(part.repeats for part in parts if part.is_repeatable)


def fourier_floor(parts: Sequence["Event"]) -> float:
    """Return the delta below which the rounding errors of an FFT would cost more than a few percent of delta."""
    return 30 * fourier_rounding(parts)


def gaussian_distribution(mu: float, interval: float) -> Any:
    """Return the loss distribution of a mu-GDP release."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if mu == 0:
        return pld.identity(value_discretization_interval=interval)
    return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)


def black_box_distribution(epsilon: float, delta: float, times: int, interval: float) -> Any:
    """Return the loss distribution of ``times`` releases, each of them the worst (epsilon, delta)-DP one."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    return _self_composed(pld.from_privacy_parameters(parameters, value_discretization_interval=interval), times)


def poisson_distribution(sigma: float, rate: float, steps: int, interval: float) -> Any:
    """Return the loss distribution of noisy sums over Poisson batches, under add-or-remove adjacency."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=interval, sampling_prob=rate)
    return _self_composed(one, steps)


def repeated_distribution(losses: LossMasses, interval: float, steps: int) -> Any:
    """Return the loss distribution of ``steps`` steps, each with the given losses on the grid."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    masses = (losses.lowest, losses.probabilities, losses.infinite)
    one = pld.PrivacyLossDistribution(pld_pmf.DensePLDPmf(interval, *masses, pessimistic_estimate=True))
    return _self_composed(one, steps)


def _self_composed(one: Any, steps: int) -> Any:
    if steps < 64:
        return one.self_compose(steps)
    # dp-accounting raises the size of a sparse distribution to the power of the steps, as an exact integer, which
    # takes a second at a million steps. Two steps first make the distribution dense.
    many = one.self_compose(2, tail_mass_truncation=0.0).self_compose(steps // 2)
    return many.compose(one) if steps % 2 else many
