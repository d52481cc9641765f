"""Distributions of the privacy loss on a grid, for pairs of laws that dp-accounting does not offer.

Both pairs are symmetric: exchanging the two laws does not change the distribution of losses. So a loss -l has e^-l
times the mass of l, and the positive losses determine the rest.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

# Losses beyond this many standard deviations of the noise are treated as infinite.
_REACH = 10.0
# Of a mixture, this many of the largest components are kept, and the others are rounded up to this many levels.
_WIDEST, _LEVELS = 64, 192


@dataclass(frozen=True)
class LossMasses:
    """A distribution of privacy losses: ``probabilities[k]`` at ``(lowest + k) * interval``, and a mass at infinity."""

    lowest: int
    probabilities: Floats
    infinite: float


def fixed_size_losses(sigma: float, rate: float, interval: float) -> LossMasses:
    """Return the privacy losses of one noisy sum over a batch drawn without replacement, rounded pessimistically.

    Renyi bounds for sampling without replacement need up to twice the necessary noise. The profile of one step has a
    tight bound in either direction. Together they are the profile of one explicit pair of laws, which composes as any
    dominating pair does: docs/proofs.md, section 15.

    Parameters
    ----------
    sigma, rate : float
        As for :func:`~privet.privacy.analyses.fixed_size.fixed_size_rdp`.
    interval : float
        Width of the grid.

    Formal guarantees
    -----------------
    With Q = N(0, sigma^2), P = N(1, sigma^2) and M = (1-rate) Q + rate P, which exceeds Q only above 1/2, the pair

        P* = M on {+} x (1/2, inf),  Q on {-} x (1/2, inf),  the rest of the mass on one point,
        Q* = Q on {+} x (1/2, inf),  M on {-} x (1/2, inf),  the same on that point

    dominates the step under replace-one: H_a(P*, Q*) = H_a(M, Q) for a >= 1, which bounds the step's divergence by
    advanced joint convexity (Balle, Barthe and Gaboardi, "Privacy Amplification by Subsampling", Theorem 2) since a
    batch with the one record, with the other and with neither are at most one replacement apart; for a < 1 the same
    holds by symmetry.
    """
    losses = loss_grid(float(np.log1p(rate * np.expm1((1 + 2 * _REACH * sigma) / (2 * sigma**2)))), interval)
    x = 0.5 + sigma**2 * np.log1p(np.expm1(losses) / rate)  # where log(M/Q) takes these values
    above_q = ndtr(-x / sigma)
    return connect_the_dots(losses, (1 - rate) * above_q + rate * ndtr((1 - x) / sigma), above_q)


def mixture_losses(mus: Floats, chances: Floats, interval: float) -> LossMasses:
    """Return the privacy losses of a Gaussian release whose mu is random, and revealed.

    Formal guarantees
    -----------------
    The profile of a release that is mu_k-GDP with chance p_k is at most sum_k p_k delta(epsilon; mu_k), by joint
    convexity. That is the profile of the pair that reveals k as well, which therefore dominates the release.
    """
    mus, chances = coarser(mus, chances)
    if mus.size == 0:
        return LossMasses(-1, np.array([0.0, 1.0, 0.0]), 0.0)
    losses = loss_grid(float(mus.max()) * (float(mus.max()) / 2 + _REACH), interval)
    above_p, above_q = np.zeros_like(losses), np.zeros_like(losses)
    for mu, chance in zip(mus, chances, strict=True):
        above_p += chance * ndtr(mu / 2 - losses / mu)
        above_q += chance * ndtr(-mu / 2 - losses / mu)
    return connect_the_dots(losses, above_p, above_q)


def loss_grid(largest: float, interval: float) -> Floats:
    """Return the grid of losses from 0 to just above ``largest``."""
    return np.asarray(interval * np.arange(int(np.ceil(largest / interval)) + 2))


def connect_the_dots(losses: Floats, above_p: Floats, above_q: Floats) -> LossMasses:
    """Return the masses, given the probability of a loss above each point of a grid from 0 on, under either law.

    Each cell's mass is split over its ends so that its mass under both laws is kept, which only raises divergences
    (Doroshenko et al., "Connect the Dots"; docs/proofs.md, section 15). The rest of the mass is at 0.
    """
    interval = losses[1]
    in_p, in_q = -np.diff(above_p), -np.diff(above_q)
    to_upper = np.clip((in_p - in_q * np.exp(losses[:-1])) / -np.expm1(-interval), 0.0, in_p)
    positive = np.append(in_p - to_upper, 0.0)
    positive[1:] += to_upper
    negative = positive * np.exp(-losses)
    negative[-1] += above_q[-1]  # losses below the grid, rounded up to it
    probabilities = np.concatenate((negative[:0:-1], positive))
    probabilities[losses.size - 1] += negative[0] + max(1 - above_p[0] - above_q[0], 0.0)
    return LossMasses(1 - losses.size, probabilities, float(above_p[-1]))


def coarser(mus: Floats, chances: Floats) -> tuple[Floats, Floats]:
    """Return at most _WIDEST + _LEVELS components, with mus rounded up, which only weakens the claim."""
    order = np.argsort(-mus)
    order = order[mus[order] > 0]  # a mu of 0 reveals nothing
    mus, chances = mus[order], chances[order]
    if mus.size <= _WIDEST + _LEVELS:
        return mus, chances
    levels = np.geomspace(max(mus[-1], mus[_WIDEST] * 1e-6), mus[_WIDEST], _LEVELS)
    levels[-1] = mus[_WIDEST]
    level = np.minimum(np.searchsorted(levels, mus[_WIDEST:]), _LEVELS - 1)
    gathered = np.bincount(level, weights=chances[_WIDEST:], minlength=_LEVELS)
    return np.concatenate((mus[:_WIDEST], levels)), np.concatenate((chances[:_WIDEST], gathered))
