"""Auditing with one training run: fair coins decide which canaries are included, and an attack guesses the coins.

The method is that of Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023). One fit replaces
thousands, because every canary is a repetition. The bound is valid for any model, but it is weaker: for Gaussian noise
it stays well below the epsilon that :func:`privet.audit.distinguish` finds. For claims of Gaussian DP,
:mod:`privet.audit.gaussian_guesses` proves more from the same guesses.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from privet.audit.bounds import as_json, binomial_tail, check_confidence, clopper_pearson
from privet.audit.gaussian_guesses import mu_from_guesses
from privet.checks import count, delta_value, nonnegative
from privet.privacy.analyses.gaussian import gdp_epsilon

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

Form = Literal["approximate", "gaussian"]

_COARSENESS = 3  # each number of guesses that is tried is a third of the previous one
_LEAST_GUESSES = 12
_GAUSSIAN_SHARE = 5  # one guess for this many canaries is nearly best at all epsilons and numbers of canaries
_BISECTIONS = 50


@dataclass(frozen=True)
class OneRun:
    """The result of an audit with one run.

    Attributes
    ----------
    lower_bound : float
        With ``confidence``, the training is not (epsilon, delta)-DP for any epsilon below this. For the form
        "gaussian", it is not mu-GDP for any mu whose epsilon at ``delta`` is below this.
    delta, confidence : float
        Delta and confidence of the bound.
    canaries, guesses, correct : int
        Number of canaries, of guesses about their coins, and of correct guesses.
    tried : int
        How many numbers of guesses were tried. The confidence accounts for all of them.
    claimed : float or None
        The epsilon that the model's guarantee states at ``delta``, if there is one.
    name : str
        Name of the audited model.
    form : str
        The kind of guarantee that is bounded, "approximate" or "gaussian".
    """

    lower_bound: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int
    tried: int = 1
    claimed: float | None = None
    name: str = ""
    form: Form = "approximate"

    @property
    def is_violation(self) -> bool:
        """Whether there is a claim and it is refuted."""
        return self.claimed is not None and self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if self.claimed is None:
            return f"epsilon is at least {self.lower_bound:.4g} (delta {self.delta:.3g}); nothing is claimed"
        if not self.is_violation:
            return "consistent"
        stated = f"{self.claimed:.4g} is claimed (delta {self.delta:.3g})"
        return f"VIOLATION: epsilon is above {self.lower_bound:.4g}, {stated}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return as_json(self)

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        claim = "nothing" if self.claimed is None else f"epsilon {self.claimed:.4g} at delta {self.delta:.3g}"
        return (
            f"{name}{self.verdict}\n  claimed: {claim}\n"
            f"  measured: epsilon at least {self.lower_bound:.4g}, confidence {self.confidence:.4g}, one run"
            f"{', if the training is Gaussian-DP' if self.form == 'gaussian' else ''}\n"
            f"  {self.correct:,} of {self.guesses:,} guesses were right ({self.correct / self.guesses:.1%}), with "
            f"{self.canaries:,} canaries; {self.tried} choices of the number of guesses were tried, and this is the "
            "best"
        )


def p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of at least ``correct`` correct guesses if the training is (epsilon, delta)-DP.

    Formal guarantees
    -----------------
    Let m independent fair coins decide about one record each, and let the training be (epsilon, delta)-DP with respect
    to flipping any one coin. An attacker who sees the result and guesses r of the coins has at least v >= 1 of them
    right with a probability of at most

        F + (m delta / v) F (1 - F) / P[W = v],    F = P[W >= v],    W ~ Binomial(r, e^epsilon / (1 + e^epsilon)).

    For delta = 0 this is Theorem 5.2 of Steinke, Nasr and Jagielski, attained by randomised response. Their term for
    delta, 2 m delta max_i P[v - i <= W < v] / i, treats failures as independent of the other guesses. A mechanism that
    fails only where one more correct guess decides exceeds their term for small v. For large v their term is several
    times too large. The term above is exact.

    Proof: averaged over all renamings of the coins and of their sides, the probability of a set of guesses depends only
    on the number k of correct ones. Let P_k be the probability of k correct guesses and N_k = P_k / C(r, k). Privacy
    means that N_k = e^epsilon N_{k-1} + x_k - y_k with x, y >= 0 and sum_k C(r-1, k-1) x_k <= delta m/r. If this is
    solved upwards from N_0 and normalised, P[V >= v] - F is linear in x - y with non-negative coefficients, so y = 0 is
    optimal. One unit of the sum contributes at most (r/j) F_max(j,v) (1 - F_min(j,v)) / P[W = j] with F_j = P[W >= j],
    for some j. The distribution of W is log-concave, so this is largest at j = v.
    """
    if not 0 <= correct <= count("guesses", guesses) <= count("canaries", canaries):
        raise ValueError(
            f"The numbers must satisfy 0 <= correct <= guesses <= canaries, got {correct}, {guesses} and {canaries}."
        )
    chance = float(expit(nonnegative("epsilon", epsilon)))
    tail = binomial_tail(correct, guesses, chance)
    if delta_value(delta) == 0 or correct == 0:
        return tail
    # F (1 - F) / P[W = v] as a sum of quotients of masses on the side of v where masses fall. These do not underflow.
    odds = math.exp(min(epsilon, 700.0))
    if correct >= guesses * chance:
        above = np.arange(correct, guesses)
        spread = (1 + float(np.cumprod((guesses - above) / (above + 1) * odds).sum())) * (1 - tail)
    else:
        below = np.arange(correct, 0, -1.0)
        spread = float(np.cumprod(below / (guesses - below + 1) / odds).sum()) * tail
    return min(1.0, tail + canaries * delta / correct * spread)


def epsilon_from_guesses(correct: int, guesses: int, canaries: int, delta: float, confidence: float) -> float:
    """Return a lower bound on the epsilon of the training at ``delta``, or 0 if nothing is proved.

    Formal guarantees
    -----------------
    Every epsilon at which :func:`p_value` is at most 1 - confidence is a lower bound of the true epsilon, even if the
    p-value is not monotone in epsilon. A wrong bound requires that v reaches the smallest v that refutes some epsilon
    above the true one, and the probability of that is at most 1 - confidence. So bisection may stop at any of them.
    """
    level = 1 - check_confidence(confidence)
    if p_value(correct, guesses, canaries, 0.0, delta) > level:
        return 0.0
    low, high = 0.0, float(logit(clopper_pearson(correct, guesses, confidence)[0]))  # the bound for delta = 0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if p_value(correct, guesses, canaries, middle, delta) <= level:
            low = middle
        else:
            high = middle
    return low


def one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | tuple[int, int] | None = None,
    claimed: float | None = None,
    name: str = "",
    form: Form = "approximate",
) -> OneRun:
    """Guess from their scores which canaries were included, and return the lower bound on epsilon that this proves.

    Parameters
    ----------
    scores : array
        One score per canary, higher for canaries that look as if they were included. Scores may depend on the model in
        any way, but on the coins only through the model.
    included : array of bool
        The coins, drawn fairly and independently before training, as :func:`privet.audit.canaries.canaries` does.
    delta : float
        Delta of the guarantee.
    confidence : float
        Confidence of the bound.
    guesses : int, pair of int or None
        Number of guesses: half of them "in" for the highest scores and half "out" for the lowest. A pair gives the two
        numbers. No guess is made about the other canaries, because guesses near the middle are poor. None tries all
        canaries (split where the scores separate best), a third of them, a ninth, and so on. Each is tested with its
        share of 1 - confidence. For the form "gaussian", None guesses a fifth of the coins.
    claimed : float or None
        The epsilon that is claimed at ``delta``.
    name : str
        Name of the audited model, for the report.
    form : {"approximate", "gaussian"}
        "approximate" bounds the epsilon of an (epsilon, delta) guarantee. "gaussian" bounds the mu of a Gaussian-DP
        guarantee, and from it the epsilon at ``delta``, which is larger. It refutes claims of Gaussian DP only.

    Formal guarantees
    -----------------
    If the training is (epsilon, delta)-DP with respect to flipping any one coin, ``lower_bound`` exceeds epsilon with a
    probability of at most 1 - confidence. This follows from :func:`p_value` and a union bound over the numbers of
    guesses. For the form "gaussian" the condition is that the training is mu-GDP with respect to flipping any one coin,
    and epsilon is that of mu at ``delta``. It follows from :func:`privet.audit.gaussian_guesses.mu_from_guesses`.
    """
    if form not in ("approximate", "gaussian"):
        raise ValueError(f"form must be 'approximate' or 'gaussian', got {form!r}.")
    if form == "gaussian" and delta_value(delta) == 0:
        raise ValueError("form='gaussian' needs a positive delta, because Gaussian DP gives no epsilon at delta 0.")
    values, bits = _checked(scores, included)
    m = len(bits)
    order = np.argsort(-values, kind="stable")  # ties are broken by position, which is independent of the coins
    if guesses is None and form == "gaussian":
        guesses = max(1, m // _GAUSSIAN_SHARE)
    splits = _splits(values[order], guesses)
    each = 1 - (1 - check_confidence(confidence)) / len(splits)
    hits = bits[order]
    best: tuple[float, int, int] | None = None
    for ins, outs in splits:
        correct = int(hits[:ins].sum()) + outs - int(hits[m - outs :].sum())
        if form == "gaussian":
            bound = gdp_epsilon(mu_from_guesses(correct, ins + outs, m, each), delta)
        else:
            bound = epsilon_from_guesses(correct, ins + outs, m, delta, each)
        if best is None or bound > best[0]:
            best = bound, ins + outs, correct
    assert best is not None
    claim = None if claimed is None else float(claimed)
    return OneRun(best[0], float(delta), float(confidence), m, best[1], best[2], len(splits), claim, name, form)


def _splits(ordered: Floats, guesses: int | tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return the numbers of "in" and "out" guesses to try. They may depend on the scores, but not on the coins."""
    m = len(ordered)
    if isinstance(guesses, tuple):
        ins, outs = (count("guesses", part, at_least=0) for part in guesses)
        if not 0 < ins + outs <= m:
            raise ValueError(f"guesses must be between 1 and the number of canaries, {m}, got {ins} + {outs}.")
        return [(ins, outs)]
    if guesses is not None:
        if count("guesses", guesses) > m:
            raise ValueError(f"guesses must be at most the number of canaries, {m}, got {guesses}.")
        return [(guesses - guesses // 2, guesses // 2)]
    ins, total = _cut(ordered), m // _COARSENESS
    splits = [(ins, m - ins)]
    while total >= _LEAST_GUESSES:
        splits.append((total - total // 2, total // 2))
        total //= _COARSENESS
    return splits


def _cut(ordered: Floats) -> int:
    """Return the number of "in" guesses if all coins are guessed: where the sorted scores separate best.

    Fair coins include m/2 canaries, up to a few times sqrt(m)/2. Only splits in this range are considered, and none
    between equal scores. The best one has the largest variance between the two groups (Otsu).
    """
    m = len(ordered)
    reach = math.ceil(2 * math.sqrt(m))
    cuts = np.arange(max(1, m // 2 - reach), min(m - 1, m // 2 + reach) + 1)
    cuts = cuts[ordered[cuts - 1] > ordered[cuts]]
    if not cuts.size:
        return m - m // 2
    scaled = ordered / np.abs(ordered).max()
    excess = np.cumsum(scaled - scaled.mean())[cuts - 1]
    return int(cuts[np.argmax(excess**2 / (cuts * (m - cuts)))])


def _checked(scores: ArrayLike, included: ArrayLike) -> tuple[Floats, Bits]:
    values, bits = np.asarray(scores, dtype=np.float64), np.asarray(included)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"scores must be a list of at least one number, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite, but some are NaN or infinite.")
    if bits.dtype != np.bool_ or bits.shape != values.shape:
        raise ValueError(f"included must contain one bool per score, {values.size} in total.")
    return values, bits
