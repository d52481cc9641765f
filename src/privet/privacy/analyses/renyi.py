"""Accounting by Renyi divergences, for deltas that are too small for a Fourier transform."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.privacy.budget import Adjacency

if TYPE_CHECKING:
    from privet.privacy.events.base import Event

Floats = NDArray[np.float64]

# The bound for batches of fixed size is proved for integers.
ORDERS = (*range(2, 257), 320, 384, 512, 768, 1024, 1536, 2048, 4096)


def renyi_epsilon(parts: Sequence["Event"], adjacency: Adjacency, delta: float) -> float:
    """Return the epsilon of the added Renyi divergences: Canonne, Kamath and Steinke 2020, Prop. 12, best order."""
    room = delta - sum(part.unsampled(adjacency).delta for part in parts)
    if room <= 0:
        return math.inf
    orders, total = _divergences(tuple(parts), adjacency)
    converted = total + np.log1p(-1 / orders) - (math.log(room) + np.log(orders)) / (orders - 1)
    best = float(np.min(converted))
    return max(0.0, best) if not math.isnan(best) else math.inf


def renyi_deltas(parts: Sequence["Event"], adjacency: Adjacency, epsilons: Floats) -> Floats:
    """Return the delta at each epsilon, by the same conversion as :func:`renyi_epsilon`, at the best order."""
    slack = sum(part.unsampled(adjacency).delta for part in parts)
    orders, total = _divergences(tuple(parts), adjacency)
    logs = (orders - 1) * (total + np.log1p(-1 / orders) - epsilons[:, None]) - np.log(orders)
    return np.asarray(np.exp(np.minimum(np.nan_to_num(np.min(logs, axis=1), nan=0.0), 0.0)) + slack)


@lru_cache(maxsize=8)  # A profile needs them twice: for its largest epsilon, and for its small deltas.
def _divergences(parts: tuple["Event", ...], adjacency: Adjacency) -> tuple[Floats, Floats]:
    """Return the orders, and the Renyi divergence of all parts together at each of them."""
    orders = np.asarray(ORDERS, dtype=np.float64)
    return orders, sum((part.renyi(adjacency, orders) for part in parts), start=np.zeros_like(orders))


def poisson_rdp(sigma: float, rate: float, orders: Floats) -> Floats:
    """Return the Renyi divergence bound of one noisy sum over a Poisson batch, under add-or-remove adjacency.

    ``sigma`` is the noise over the bound of a contribution. dp-accounting's RdpAccountant reads a noise multiplier
    relative to the sensitivity of its neighbouring relation, which under add-or-remove is that bound.
    """
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant([int(order) for order in orders], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)))
    # Tiny divergences are differences of numbers near 1 and may come out negative: allow for their rounding errors.
    return np.asarray(np.maximum(accountant.rdp, 0.0) + 1e-14 * orders / (orders - 1), dtype=np.float64)
