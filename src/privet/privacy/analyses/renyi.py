"""Accounting by Renyi divergences: batches of fixed size, and deltas too small for a Fourier transform.

For batches of fixed size (:mod:`privet.privacy.analyses.fixed_size`) the bound is, **per order, the minimum with the
unsampled one**. That is valid because divergences are jointly quasi-convex: a uniformly random batch is a mixture of
pairs none of which is worse than the unsampled pair.
"""

import math
from collections.abc import Sequence
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privet.privacy.analyses.fixed_size import fixed_size_rdp
from privet.privacy.analyses.unsampled import not_covered, takes_everybody
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

Floats = NDArray[np.float64]

# The bound for batches of fixed size is proved for integers.
ORDERS = (*range(2, 257), 320, 384, 512, 768, 1024, 1536, 2048, 4096)


def renyi_epsilon(parts: Sequence[Event], adjacency: Adjacency, delta: float) -> float:
    """Add Renyi divergences up, and convert: Canonne, Kamath and Steinke 2020, Proposition 12, at the best order."""
    room = delta - sum(part.delta for part in parts if isinstance(part, ApproximateRelease))
    if room <= 0:
        return math.inf
    orders = np.asarray(ORDERS, dtype=np.float64)
    total = sum((rdp(part, adjacency, orders) for part in parts), start=np.zeros_like(orders))
    converted = total + np.log1p(-1 / orders) - (math.log(room) + np.log(orders)) / (orders - 1)
    best = float(np.min(converted))
    return max(0.0, best) if not math.isnan(best) else math.inf


@singledispatch
def rdp(part: Event, adjacency: Adjacency, orders: Floats) -> Floats:
    """Return the Renyi divergence bound of one event at each order."""
    raise not_covered("rdp", part)


@rdp.register
def _(part: GaussianRelease, adjacency: Adjacency, orders: Floats) -> Floats:
    return orders * (part.mu**2 / 2)


@rdp.register(PureRelease)
@rdp.register(ApproximateRelease)
def _(part: PureRelease | ApproximateRelease, adjacency: Adjacency, orders: Floats) -> Floats:
    # Randomised response is the worst epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015); its divergence, exactly.
    # An (epsilon, delta) release is one up to an event of probability delta, which renyi_epsilon takes off the target.
    log_p, log_q = -np.logaddexp(0.0, -part.epsilon), -np.logaddexp(0.0, part.epsilon)
    one = orders * log_p + (1 - orders) * log_q
    other = orders * log_q + (1 - orders) * log_p
    return np.asarray(np.logaddexp(one, other) / (orders - 1), dtype=np.float64)


@rdp.register
def _(part: PoissonGaussian, adjacency: Adjacency, orders: Floats) -> Floats:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    # RdpAccountant reads a multiplier relative to the sensitivity of its relation, PLD always relative to C. Under
    # add-or-remove, the only adjacency of this event, the two agree.
    accountant = RdpAccountant([int(order) for order in orders], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(part.noise_multiplier / adjacency.factor)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(part.rate, gaussian))
    # Tiny divergences are differences of numbers near 1 and may come out negative: allow for their rounding.
    one_step = np.maximum(accountant.rdp, 0.0) + 1e-14 * orders / (orders - 1)
    return part.steps * np.asarray(one_step, dtype=np.float64)


@rdp.register
def _(part: FixedSizeGaussian, adjacency: Adjacency, orders: Floats) -> Floats:
    sigma = part.noise_multiplier / adjacency.factor
    unsampled = orders / (2 * sigma**2)
    if takes_everybody(part):
        return part.steps * unsampled
    return part.steps * np.minimum(fixed_size_rdp(sigma, part.rate, orders), unsampled)


@rdp.register
def _(part: LastIterate, adjacency: Adjacency, orders: Floats) -> Floats:
    """Average the moments over the secret: "Privacy Amplification by Iteration", Lemma 25, without its slack."""
    mus, chances = mixture(part)
    moments = (orders * (orders - 1))[:, None] * mus**2 / 2
    return part.runs * np.asarray(logsumexp(moments, b=chances, axis=1) / (orders - 1), dtype=np.float64)
