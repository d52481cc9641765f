"""Lower bounds on epsilon from counts and scores, each with a stated confidence.

A test that tells two neighbouring datasets apart with few errors refutes every guarantee under which no such test can
exist. The bounds below use this, with the error rates replaced by confidence limits.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, betaincinv, ndtri

from privet.checks import count, delta_value, probability

Floats = NDArray[np.float64]


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return exact lower and upper limits of a probability. Each of the two holds with ``confidence`` by itself."""
    count("trials", trials)
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie between 0 and {trials}, got {successes}.")
    slack = 1 - probability("confidence", confidence)
    low = betaincinv(successes, trials - successes + 1, slack) if successes > 0 else 0.0
    high = betaincinv(successes + 1, trials - successes, 1 - slack) if successes < trials else 1.0
    return float(low), float(high)


@dataclass(frozen=True)
class Rates:
    """How often a test said "second" on runs of the second and of the first dataset, and the numbers of runs."""

    true_positives: int
    false_positives: int
    seconds: int
    firsts: int

    def limits(self, confidence: float) -> tuple[float, float]:
        """Return a lower limit of the true-positive rate and an upper limit of the false-positive rate.

        Both hold together with ``confidence``.
        """
        each = 1 - (1 - confidence) / 2
        low, _ = clopper_pearson(self.true_positives, self.seconds, each)
        _, high = clopper_pearson(self.false_positives, self.firsts, each)
        return low, high

    def turned(self) -> "Rates":
        """Return the rates of the opposite test, with the roles of the two datasets exchanged."""
        return Rates(self.firsts - self.false_positives, self.seconds - self.true_positives, self.firsts, self.seconds)


def epsilon_from_rates(rates: Rates, delta: float, confidence: float) -> float:
    """Return a lower bound on the epsilon of a release at ``delta``, or 0 if nothing is proved.

    Formal guarantees
    -----------------
    (epsilon, delta)-DP requires TPR <= e^epsilon FPR + delta for every test (Kairouz, Oh and Viswanath, "The
    Composition Theorem for Differential Privacy"), and the same with the datasets exchanged. With Clopper-Pearson
    limits of the rates, the returned value is below the smallest such epsilon with at least ``confidence``, for any
    release.
    """
    found = 0.0
    for way in (rates, rates.turned()):
        low, high = way.limits(1 - (1 - confidence) / 2)
        if low > delta_value(delta):
            found = max(found, math.log((low - delta) / high) if high > 0 else math.inf)
    return found


def mu_from_rates(rates: Rates, confidence: float) -> float:
    """Return a lower bound on the Gaussian-DP parameter mu of a release, or 0 if nothing is proved.

    mu-GDP requires Phi^-1(TPR) - Phi^-1(FPR) <= mu for every test. For Gaussian noise this is much stronger than the
    bound at one delta, because error rates of a few tenths, which few runs estimate well, are as informative as tiny
    ones.
    """
    low, high = rates.limits(confidence)
    if not 0 < low < 1 or not 0 < high < 1:
        return 0.0
    return max(0.0, float(ndtri(low) - ndtri(high)))


def mus_from_counts(
    true_positives: Floats, false_positives: Floats, seconds: int, firsts: int, confidence: float
) -> Floats:
    """Return :func:`mu_from_rates` for many tests of the same runs at once. Each bound holds by itself."""
    slack = (1 - confidence) / 2
    hits, alarms = np.asarray(true_positives, dtype=np.float64), np.asarray(false_positives, dtype=np.float64)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), seconds - hits + 1, slack), 0.0)
    high = np.where(alarms < firsts, betaincinv(alarms + 1, np.maximum(firsts - alarms, 1), 1 - slack), 1.0)
    return np.asarray(np.maximum(0.0, ndtri(low) - ndtri(high)))


def standardised_distance(firsts: Floats, seconds: Floats) -> tuple[float, float]:
    """Return an estimate of the distance of two means in units of the smaller spread, and its standard error.

    Both serve to compare scores with each other, and prove nothing: a score that takes few values may show no spread by
    chance. The distance is infinite then. It is negative if runs on the second dataset score lower.
    """
    spread = min(float(np.std(firsts)), float(np.std(seconds)))
    if spread == 0:
        apart = float(np.mean(seconds) - np.mean(firsts))
        return (math.copysign(math.inf, apart), 0.0) if apart else (0.0, 1.0)
    t = float(np.mean(seconds) - np.mean(firsts)) / spread
    variances = (float(np.var(firsts)) / len(firsts) + float(np.var(seconds)) / len(seconds)) / spread**2
    return t, math.sqrt(variances + t**2 / (2 * min(len(firsts), len(seconds))))


def binomial_tail(successes: int, trials: int, chance: float) -> float:
    """Return the probability of at least ``successes`` successes."""
    return 1.0 if successes <= 0 else float(bdtrc(successes - 1, trials, chance))


def check_confidence(confidence: float) -> float:
    """Return a confidence after checking that it lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}.")
    return float(confidence)


def as_json(result: Any) -> dict[str, Any]:
    """Return the fields and the verdict of an audit's result for JSON, which has no infinity: it becomes None."""
    fields = {name: value if value != math.inf else None for name, value in asdict(result).items()}
    return fields | {"verdict": result.verdict, "is_violation": result.is_violation}
