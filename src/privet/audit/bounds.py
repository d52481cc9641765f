"""From counts and scores to what they prove: lower bounds on epsilon, each with a stated confidence.

A test that tells two neighbouring datasets apart with few errors refutes every guarantee under which such a test cannot
exist. The bounds below invert that, with the errors replaced by confidence limits.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, betaincinv, ndtri

from privet.checks import count, delta_value, probability

Floats = NDArray[np.float64]


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return exact one-sided limits of a probability: below the first, or above the second, with chance 1-confidence.

    Each of the two limits holds with ``confidence`` by itself.
    """
    count("trials", trials)
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie between 0 and {trials}, got {successes}")
    slack = 1 - probability("confidence", confidence)
    low = betaincinv(successes, trials - successes + 1, slack) if successes > 0 else 0.0
    high = betaincinv(successes + 1, trials - successes, 1 - slack) if successes < trials else 1.0
    return float(low), float(high)


@dataclass(frozen=True)
class Rates:
    """How a test did: how often it said "second" on runs of the second dataset, and on runs of the first."""

    true_positives: int
    false_positives: int
    seconds: int
    firsts: int

    def limits(self, confidence: float) -> tuple[float, float]:
        """Return a lower limit of the true-positive rate and an upper one of the other, both with ``confidence``."""
        each = 1 - (1 - confidence) / 2
        low, _ = clopper_pearson(self.true_positives, self.seconds, each)
        _, high = clopper_pearson(self.false_positives, self.firsts, each)
        return low, high

    def turned(self) -> "Rates":
        """Return the rates of the test that says "first", with the roles of the datasets exchanged."""
        return Rates(self.firsts - self.false_positives, self.seconds - self.true_positives, self.firsts, self.seconds)


def epsilon_from_rates(rates: Rates, delta: float, confidence: float) -> float:
    """Return an epsilon that the release exceeds, at ``delta``, if it is private at all; 0 if nothing is proved.

    Formal guarantees
    -----------------
    (epsilon, delta)-DP demands TPR <= e^epsilon FPR + delta of every test (Kairouz, Oh and Viswanath, "The Composition
    Theorem for Differential Privacy"), and the same with the datasets exchanged. With Clopper-Pearson limits of the
    rates, the returned value is below the least such epsilon with at least ``confidence``, whatever the release is.
    """
    found = 0.0
    for way in (rates, rates.turned()):
        low, high = way.limits(1 - (1 - confidence) / 2)
        if low > delta_value(delta):
            found = max(found, math.log((low - delta) / high) if high > 0 else math.inf)
    return found


def mu_from_rates(rates: Rates, confidence: float) -> float:
    """Return a mu such that the release is not mu'-GDP for any mu' below it; 0 if nothing is proved.

    mu-GDP demands Phi^-1(TPR) - Phi^-1(FPR) <= mu of every test. For Gaussian noise this is far stronger than the bound
    at one delta: errors of a few tenths, which few runs estimate well, say as much as errors of one in a million.
    """
    low, high = rates.limits(confidence)
    if not 0 < low < 1 or not 0 < high < 1:
        return 0.0
    return max(0.0, float(ndtri(low) - ndtri(high)))


def mu_from_scores(firsts: Floats, seconds: Floats, confidence: float) -> float:
    """Return the same from the distance of the means of a bounded score, in units of its spread.

    Formal guarantees
    -----------------
    For any score f, |E_P f - E_Q f|^2 <= Var_Q(f) chi^2(P, Q) (Hammersley, Chapman and Robbins), and mu-GDP bounds
    chi^2(P, Q) by that of the Gaussian pair, e^(mu^2) - 1. So mu >= sqrt(log(1 + t^2)), t being the distance over the
    smaller spread. t is estimated, with the confidence of the normal approximation: scores should be bounded. Seconds
    are expected to score higher.
    """
    return _mu_from_distance(*standardised_distance(firsts, seconds), confidence)


def standardised_distance(firsts: Floats, seconds: Floats) -> tuple[float, float]:
    """Return the estimate of t, negative where the seconds score less, and its standard error."""
    spread = min(float(np.std(firsts)), float(np.std(seconds)))
    if spread == 0:
        apart = float(np.mean(seconds) - np.mean(firsts))
        return (math.copysign(math.inf, apart), 0.0) if apart else (0.0, 1.0)
    t = float(np.mean(seconds) - np.mean(firsts)) / spread
    variances = (float(np.var(firsts)) / len(firsts) + float(np.var(seconds)) / len(seconds)) / spread**2
    return t, math.sqrt(variances + t**2 / (2 * min(len(firsts), len(seconds))))


def _mu_from_distance(t: float, error: float, confidence: float) -> float:
    if math.isinf(t):
        return math.inf if t > 0 else 0.0
    low = max(0.0, t - float(ndtri(confidence)) * error)
    return math.sqrt(math.log1p(low**2))


def binomial_tail(successes: int, trials: int, chance: float) -> float:
    """Return the chance of at least that many successes."""
    return 1.0 if successes <= 0 else float(bdtrc(successes - 1, trials, chance))
