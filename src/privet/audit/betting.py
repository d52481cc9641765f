"""A lower bound on the Gaussian-DP parameter mu from scores of runs, by betting against smaller values of mu.

The bound holds in finite samples and for every score. It needs neither a normal approximation nor an estimate of the
spread, so a score that takes few values, or the same value in all runs on one dataset, is treated correctly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privet.audit.bounds import mus_from_counts

Floats = NDArray[np.float64]

_QUANTILES = np.linspace(0.02, 0.98, 25)  # places of the thresholds among the scores
_WIDEST = 1.0  # thresholds further from the middle, in standard deviations, would add more variance than information
_STEEPEST = 1.5  # largest absolute log-slope: beyond it, one run of the first dataset could lose the whole stake
_LEAST_MU, _LARGEST_MU = 0.1, 5.0  # limits of the mu for which a bet is designed, not of the bound
_MOST = 0.9  # of the stake that could lose everything in one pair of runs
_CAUTION = 0.99  # confidence with which ways to bet are compared, because the best of many is partly luck
_CAUTIOUS_ERRORS = float(ndtri(_CAUTION))
_CLEARLY = 1.3  # a single threshold is preferred to all of them only if it promises this much more
_UNREACHABLE = 20.0  # no number of runs proves such a mu
_TINY = 1e-9
_BISECTIONS = 30


@dataclass(frozen=True, eq=False)
class Bet:
    """A bet that the two datasets can be told apart better than mu permits, by one pair of runs at a time.

    The gain from a pair with scores x (first dataset) and y (second) is sum_k w_k (1[y > c_k] - e^(eps_k) 1[x > c_k]).

    Attributes
    ----------
    thresholds, weights, log_slopes : array
        The c_k, the w_k >= 0 and the eps_k, which may be negative.
    stake : float
        The share of the capital that is bet.

    Formal guarantees
    -----------------
    mu-GDP is equivalent to P[y in S] - e^eps P[x in S] <= Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) for all sets S
    and all real eps (Dong, Roth and Su, "Gaussian Differential Privacy", Corollary 2.13; a negative eps is the
    inequality of the opposite order). So the expected gain is at most the sum of these limits, :meth:`allowed`.
    """

    thresholds: Floats
    weights: Floats
    log_slopes: Floats
    stake: float

    def gains(self, firsts: Floats, seconds: Floats) -> Floats:
        """Return the gain from each pair of runs. Runs without a counterpart are ignored."""
        pairs = min(len(firsts), len(seconds))
        won = (seconds[:pairs, None] > self.thresholds) @ self.weights
        lost = (firsts[:pairs, None] > self.thresholds) @ (self.weights * np.exp(self.log_slopes))
        return np.asarray(won - lost)

    def allowed(self, mu: float) -> float:
        """Return the largest expected gain that is possible under mu-GDP. It increases with mu."""
        return float(self.weights @ _hockey_stick(self.log_slopes, mu))


def mu_from_bets(bets: Sequence[tuple[Bet, Floats]], confidence: float) -> float:
    """Return a lower bound on mu from bets and their gains, or 0 if nothing is proved.

    Formal guarantees
    -----------------
    If the runs of each bet are independent of what it was designed on, and the release is mu-GDP, the capital that
    starts at 1 and is multiplied by 1 + stake (gain - allowed(mu)) for each pair is a non-negative supermartingale. By
    Ville's inequality it ever reaches 1 / (1 - confidence) with a probability of at most 1 - confidence. The bound is
    the largest mu at which it does. The factors decrease in mu, so the bound exceeds the true mu only if the capital at
    the true mu reaches that value. Later bets may be designed on the runs of earlier ones.
    """
    goal = -math.log1p(-confidence)

    def refutes(mu: float) -> bool:
        factors = [np.log1p(bet.stake * (gains - bet.allowed(mu))) for bet, gains in bets]
        return bool(np.cumsum(np.concatenate(factors)).max(initial=0.0) >= goal)

    if not refutes(0.0):
        return 0.0
    low, high = 0.0, _UNREACHABLE
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low


def design_bet(firsts: Floats, seconds: Floats, rounds: int, confidence: float) -> Bet:
    """Return a bet for ``rounds`` further pairs of runs, chosen by scores of the two datasets that are known already.

    Runs on the second dataset are expected to score higher. The thresholds are quantiles of the scores. The slope at
    each is that of the trade-off curve through its error rates. The weights are those that are best for two normal
    distributions, or a single threshold if it promises clearly more. The choice affects only the power.
    """
    thresholds = np.unique(np.quantile(np.concatenate([firsts, seconds]), _QUANTILES, method="lower"))
    above = (seconds[:, None] > thresholds).astype(np.float64), (firsts[:, None] > thresholds).astype(np.float64)
    hits, alarms = ((flags.sum(axis=0) + 0.5) / (len(flags) + 1) for flags in above)
    places = -(ndtri(hits) + ndtri(alarms)) / 2  # in standard deviations from the middle
    informative = hits * (1 - hits) + alarms * (1 - alarms)
    mu = float(np.clip(np.average(ndtri(hits) - ndtri(alarms), weights=informative), _LEAST_MU, _LARGEST_MU))
    slopes = np.clip(mu * places, -_STEEPEST, _STEEPEST)
    is_near = np.abs(places) <= min(_WIDEST, _STEEPEST / mu)
    widths = np.gradient(places) if len(places) > 1 else np.ones(1)
    weights = np.exp(-slopes / 2) * np.where(is_near | ~is_near.any(), widths, 0.0)
    counts = [flags.sum(axis=0) for flags in above]
    proofs = mus_from_counts(counts[0], counts[1], len(seconds), len(firsts), _CAUTION)
    if max(proofs) > _CLEARLY * _promise(Bet(thresholds, weights, slopes, 0.0), firsts, seconds):
        weights = np.where(np.arange(len(proofs)) == np.argmax(proofs), 1.0, 0.0)
    losses = weights * np.exp(slopes)
    # With these weights all thresholds are one pair of scores, whose variances are those of what is won and lost. The
    # smoothing keeps the stake moderate if the known scores happen to be equal.
    variance = sum(
        float(np.var(flags @ part)) + float(np.square(part).sum()) / (len(flags) + 1)
        for flags, part in zip(above, (weights, losses), strict=True)
    )
    best = math.sqrt(-2 * math.log1p(-confidence) / (max(rounds, 1) * variance))
    return Bet(thresholds, weights, slopes, min(best, _MOST / float((weights + losses).sum())))


def _promise(bet: Bet, firsts: Floats, seconds: Floats) -> float:
    """Return the mu that the known scores seem to prove with a bet. This is a guess, by a normal approximation."""
    gains = bet.gains(firsts, seconds)
    target = float(gains.mean()) - _CAUTIOUS_ERRORS * float(gains.std()) / math.sqrt(len(gains))
    low, high = 0.0, _UNREACHABLE
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if bet.allowed(middle) <= target else (low, middle)
    return low


def _hockey_stick(log_slopes: Floats, mu: float) -> Floats:
    """Return the largest P[y in S] - e^eps P[x in S] under mu-GDP, for each eps."""
    mu = max(mu, _TINY)  # avoids a division by 0, and allows slightly more, never less
    return np.asarray(ndtr(mu / 2 - log_slopes / mu) - np.exp(log_slopes) * ndtr(-mu / 2 - log_slopes / mu))
