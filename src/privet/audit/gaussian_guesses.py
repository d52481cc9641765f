"""What correct guesses in one run prove about the Gaussian-DP parameter mu.

The method is that of Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2025). It uses the
whole trade-off curve of a claim instead of a single epsilon and delta.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privet.audit.bounds import check_confidence
from privet.checks import count

Floats = NDArray[np.float64]

_LARGEST_MU = 16.0
_GRID = 33  # values of mu that are tried at once, in each of the following rounds
_ROUNDS = 4
_ROUNDING = 1e-9  # far more than the rounding errors of the recursion


def least_total(chance: Floats, correct: int, guesses: int, canaries: int, least: Callable[[Floats], Floats]) -> Floats:
    """Return the smallest total probability that a ``chance`` of at least ``correct`` correct guesses implies.

    If it is above 1, no training that satisfies the trade-off curve reaches this chance. ``least(x)`` is the curve: an
    event with probability x on one of two neighbouring datasets has at least this probability on the other. It must be
    increasing and convex.

    Formal guarantees
    -----------------
    Let m independent fair coins decide about one record each, let the training satisfy the trade-off curve with respect
    to flipping any one coin, and let an attacker who sees the result guess r of the coins. Let p_i be the probability
    of i correct guesses. For a random coin and a set T of numbers, the event "the guess about this coin is right, and i
    guesses are right for an i in T" has probability sum_T (i/m) p_i. On the neighbouring dataset, with this coin
    flipped, the same results of the training mean "the guess about this coin is wrong, and i - 1 guesses are right",
    which has probability sum_T ((r - i + 1)/m) p_(i-1). By the trade-off curve, and by Jensen's inequality for the
    average over coins and their sides,

        sum_T ((r - i + 1)/m) p_(i-1) >= least(sum_T (i/m) p_i).

    For T = {v, ..., r}, let S_v = P[at least v are right] and Q_v = sum_(i >= v) ((i - v)/m) p_i. The inequality is

        S_(v-1) >= (m / (r - v + 1)) (least(Q_v + (v/m) S_v) + Q_(v-1)),    Q_(v-1) = Q_v + S_v / m.

    Both right-hand sides increase in S_v and Q_v, so the recursion from S_c = ``chance`` and Q_c = 0, with equality or
    S_(v-1) = S_v, whichever is larger, gives the smallest possible S_0.
    """
    total, excess = np.asarray(chance, dtype=np.float64), np.zeros_like(chance)
    for v in range(correct, 0, -1):
        right = np.minimum(excess + v / canaries * total, 1.0)
        excess = excess + total / canaries
        total = np.maximum(total, canaries / (guesses - v + 1) * (least(right) + excess))
        if (total > 1 + _ROUNDING).all():
            break
    return total


def mu_from_guesses(correct: int, guesses: int, canaries: int, confidence: float) -> float:
    """Return a lower bound on the mu of the training, or 0 if nothing is proved.

    Formal guarantees
    -----------------
    If the training is mu-GDP with respect to flipping any one coin, the returned value exceeds mu with a probability of
    at most 1 - confidence. All mu are rejected for which at least ``correct`` correct guesses have a probability below
    1 - confidence by :func:`least_total`. They are those below the returned value, because the smallest total decreases
    in mu.
    """
    if not 0 <= correct <= count("guesses", guesses) <= count("canaries", canaries):
        raise ValueError(
            f"The numbers must satisfy 0 <= correct <= guesses <= canaries, got {correct}, {guesses} and {canaries}."
        )
    level = 1 - check_confidence(confidence)
    low, high = 0.0, _LARGEST_MU
    for _ in range(_ROUNDS):
        mus = np.linspace(low, high, _GRID)
        totals = least_total(np.full(_GRID, level), correct, guesses, canaries, partial(_least, mus=mus))
        refuted = np.flatnonzero(totals > 1 + _ROUNDING)
        if not refuted.size:
            return low
        last = int(refuted[-1])
        low, high = float(mus[last]), float(mus[min(last + 1, _GRID - 1)])
    return low


def _least(x: Floats, mus: Floats) -> Floats:
    """Return the smallest probability on one dataset of an event with probability x on the other, under mu-GDP."""
    return np.asarray(ndtr(ndtri(x) - mus))
