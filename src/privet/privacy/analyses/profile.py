"""The privacy profile: the smallest delta that is certified at an epsilon, by the analyses of the accountant."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privet.checks import nonnegative
from privet.privacy.analyses.accounting import gaussians_and_other, merged, without_errors
from privet.privacy.analyses.gaussian import averaged_deltas
from privet.privacy.analyses.loss_distribution import (
    FINE,
    LARGEST_LOSS,
    Precision,
    fourier_floor,
    loss_distribution_deltas,
)
from privet.privacy.analyses.renyi import renyi_deltas
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event

Floats = NDArray[np.float64]

_MARGIN = 1 + 1e-9  # exceeds the relative rounding error of all formulas


def delta(event: Event, adjacency: Adjacency, epsilon: float) -> float:
    """Return the smallest delta that is certified for ``event`` at ``epsilon``.

    Parameters
    ----------
    event : Event
        What was released.
    adjacency : Adjacency
        Which datasets are neighbours. An event that is not analysed under this adjacency raises an error.
    epsilon : float
        At least 0.

    Formal guarantees
    -----------------
    The release is (epsilon, delta)-DP under ``adjacency``, with the returned delta. It is 1 where nothing is promised.
    """
    adjacency = Adjacency(adjacency)
    exact, error = without_errors(merged(event, adjacency))
    at = np.array([nonnegative("epsilon", epsilon)])
    cost = error * (1 + math.exp(min(at[0], LARGEST_LOSS)))  # of the approximation: accounting.merged_epsilon
    return min(float(exact_deltas(exact, adjacency, at)[0]) + cost, 1.0)


def exact_deltas(parts: Sequence[Event], adjacency: Adjacency, epsilons: Floats, precision: Precision = FINE) -> Floats:
    """Return the delta at each of the ascending epsilons, for merged events without approximation errors.

    Each of the analyses gives a valid bound, so their minimum is one.
    """
    if not all(part.has_noise for part in parts):
        return np.ones_like(epsilons)
    found = _unsampled_deltas(parts, adjacency, epsilons)
    if not parts or (len(parts) == 1 and parts[0].gaussian_mu(adjacency) is not None):
        return np.minimum(found, 1.0)
    if (closed := _closed_form_deltas(parts, adjacency, epsilons)) is not None:
        found = np.minimum(found, closed * _MARGIN)
    else:
        by_losses = loss_distribution_deltas(parts, epsilons, precision)
        found = np.minimum(found, by_losses * _MARGIN)
        # Where rounding errors of a Fourier transform matter, and where there is no loss distribution.
        open_ = (by_losses < fourier_floor(parts)) | (by_losses >= 1.0)
        if np.any(open_):
            found[open_] = np.minimum(found[open_], renyi_deltas(parts, adjacency, epsilons[open_]) * _MARGIN)
    # A unit that is never used is not revealed.
    contact = -math.expm1(sum(part.log_chance_of_no_contact() for part in parts))
    return np.minimum(found, min(contact * _MARGIN, 1.0))


def _unsampled_deltas(parts: Sequence[Event], adjacency: Adjacency, epsilons: Floats) -> Floats:
    """Return deltas that ignore sampling and secrets.

    Black boxes are together no worse than one randomised response outside a rare event. In the presence of Gaussian
    releases, they lower the epsilon that is left to these.
    """
    bounds = [part.unsampled(adjacency) for part in parts]
    mu = math.hypot(*(bound.mu for bound in bounds), 0.0)
    total, rare = sum(bound.epsilon for bound in bounds), min(sum(bound.delta for bound in bounds), 1.0)
    left = epsilons - total
    if mu == 0:
        response = np.where(left < 0, -np.expm1(np.minimum(left, 0.0)) / (1 + math.exp(-total)), 0.0)
        return np.asarray(np.minimum(rare + (1 - rare) * response * _MARGIN, 1.0))
    gaussian = averaged_deltas(np.array([mu]), np.ones(1), np.maximum(left, 0.0)) * _MARGIN + rare
    return np.where(left >= 0, np.minimum(gaussian, 1.0), 1.0)


def _closed_form_deltas(parts: Sequence[Event], adjacency: Adjacency, epsilons: Floats) -> Floats | None:
    """Return the deltas of one event, alone or together with Gaussian releases, by its own formula, or None."""
    mu, others = gaussians_and_other(parts, adjacency)
    return others[0].closed_form_deltas(epsilons, mu) if len(others) == 1 else None
