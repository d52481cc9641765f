"""Auditing with one training run: many canaries, each put in or kept out by a fair coin, and a guess about each coin.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023). One fit takes the place of thousands:
the canaries are the repetitions. The price is power. A bound found so is valid whatever the model does, but where it
adds Gaussian noise it stays well below the epsilon that :func:`privet.audit.distinguish` finds.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit, logit

from privet.audit.bounds import binomial_tail, clopper_pearson
from privet.checks import count, delta_value, nonnegative, positive
from privet.privacy import Adjacency, NoiseSource

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]
Counterpart = Literal["opposite", "zero", "nothing"]

_COARSENESS = 3  # each number of guesses that is tried is a third of the one before
_LEAST_GUESSES = 12
_BISECTIONS = 50


@dataclass(frozen=True)
class OneRun:
    """What one run showed.

    Attributes
    ----------
    lower_bound : float
        The training is not (epsilon, delta)-DP for any epsilon below this, with ``confidence``.
    delta, confidence : float
    canaries, guesses, correct : int
        How many canaries there were, how many of their coins were guessed, and how many of those rightly.
    tried : int
        Numbers of guesses that were tried; the confidence pays for all of them.
    claimed : float or None
        The epsilon that the model's guarantee states at ``delta``.
    name : str
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

    @property
    def is_violation(self) -> bool:
        """Whether the claim, if there is one, is refuted."""
        return self.claimed is not None and self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        if self.claimed is None:
            return f"epsilon is at least {self.lower_bound:.4g} (delta {self.delta:.3g}); nothing is claimed"
        if not self.is_violation:
            return "consistent"
        stated = f"{self.claimed:.4g} is claimed (delta {self.delta:.3g})"
        return f"VIOLATION: epsilon is above {self.lower_bound:.4g}, {stated}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        fields = {name: value if value != math.inf else None for name, value in asdict(self).items()}
        return fields | {"verdict": self.verdict, "is_violation": self.is_violation}

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        claim = "nothing" if self.claimed is None else f"epsilon {self.claimed:.4g} at delta {self.delta:.3g}"
        return (
            f"{name}{self.verdict}\n  claimed: {claim}\n"
            f"  measured: epsilon at least {self.lower_bound:.4g}, confidence {self.confidence:.4g}, one run\n"
            f"  {self.correct:,} of {self.guesses:,} guesses about {self.canaries:,} canaries were right "
            f"({self.correct / self.guesses:.1%}; best of {self.tried} numbers of guesses)"
        )


def p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest chance of so many correct guesses, if the training is (epsilon, delta)-DP.

    Formal guarantees
    -----------------
    Let m fair coins decide, each by itself, about one record each, and let the training be (epsilon, delta)-DP when any
    one coin is turned over. Whoever sees the result and guesses r of the coins has v >= 1 or more of them right with a
    chance of at most

        F + (m delta / v) F (1 - F) / P[W = v],    F = P[W >= v],    W ~ Binomial(r, e^epsilon / (1 + e^epsilon)).

    For delta = 0 this is Theorem 5.2 of Steinke, Nasr and Jagielski, attained by randomised response. Their term for
    delta, 2 m delta max_i P[v - i <= W < v] / i, takes failures to be independent of how the other guesses fared. A
    mechanism may fail just where that decides, and exceeds it for small v; for large v it is several times too large.
    The term above is exact. Proof: averaged over renamings of the coins and of their sides, the chance of guesses
    depends on the number k of right ones alone; let P_k be that of k right ones, and N_k = P_k / C(r, k). Privacy says
    N_k = e^epsilon N_{k-1} + x_k - y_k with x, y >= 0 and sum_k C(r-1, k-1) x_k <= delta m/r. Solved from N_0 up and
    normalised, P[V >= v] - F is linear in x - y with coefficients of at least 0, so y = 0 is best, and the most that a
    unit of the sum buys is (r/j) F_max(j,v) (1 - F_min(j,v)) / P[W = j], F_j = P[W >= j], at some j. The law of W is
    log-concave, which makes that largest at j = v.
    """
    if not 0 <= correct <= count("guesses", guesses) <= count("canaries", canaries):
        raise ValueError(f"need 0 <= correct <= guesses <= canaries, got {correct}, {guesses}, {canaries}")
    chance = float(expit(nonnegative("epsilon", epsilon)))
    tail = binomial_tail(correct, guesses, chance)
    if delta_value(delta) == 0 or correct == 0:
        return tail
    # F (1 - F) / P[W = v], by the side of v on which the masses fall: quotients of masses, which do not underflow.
    odds = math.exp(min(epsilon, 700.0))
    if correct >= guesses * chance:
        above = np.arange(correct, guesses)
        spread = (1 + float(np.cumprod((guesses - above) / (above + 1) * odds).sum())) * (1 - tail)
    else:
        below = np.arange(correct, 0, -1.0)
        spread = float(np.cumprod(below / (guesses - below + 1) / odds).sum()) * tail
    return min(1.0, tail + canaries * delta / correct * spread)


def epsilon_from_guesses(correct: int, guesses: int, canaries: int, delta: float, confidence: float) -> float:
    """Return an epsilon that the training exceeds, at ``delta``, with ``confidence``; 0 if nothing is proved.

    Formal guarantees
    -----------------
    Every epsilon at which :func:`p_value` is at most 1 - confidence bounds the true one from below, even where the
    p-value is not monotone: all of them together are refuted only if v reaches the least v that refutes any epsilon
    above the true one, and that has a chance of at most 1 - confidence. So bisection may stop at any of them.
    """
    level = 1 - _confidence(confidence)
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
) -> OneRun:
    """Guess which canaries were in from their scores, and return what the right guesses prove about epsilon.

    Parameters
    ----------
    scores : array
        One a canary, higher for those that look as if they were in. They may depend on the model in any way, and on
        the coins through the model alone.
    included : array of bool
        The coins: drawn fairly and independently before training. :func:`canaries` does so.
    delta : float
        Of the guarantee.
    confidence : float
        With which the bound holds.
    guesses : int, pair of int or None
        How many to guess: that many in all, half of them "in" for the highest scores and half "out" for the lowest; or
        how many of each. The others are left aside, as guesses near the middle are poor. None tries all canaries (cut
        where the scores part best), a third of them, a ninth, and so on, and pays for the choice: each is tested with
        its part of 1 - confidence.
    claimed : float or None
        The epsilon that is claimed at ``delta``.
    name : str
        For the report.

    Formal guarantees
    -----------------
    If the training is (epsilon, delta)-DP whichever coin is turned, ``lower_bound`` exceeds epsilon with a chance of at
    most 1 - confidence: :func:`p_value`, and a union bound over the numbers of guesses.
    """
    values, bits = _checked(scores, included)
    m = len(bits)
    order = np.argsort(-values, kind="stable")  # ties by place, which knows nothing of the coins
    splits = _splits(values[order], guesses)
    each = 1 - (1 - _confidence(confidence)) / len(splits)
    hits = bits[order]
    best: tuple[float, int, int] | None = None
    for ins, outs in splits:
        correct = int(hits[:ins].sum()) + outs - int(hits[m - outs :].sum())
        bound = epsilon_from_guesses(correct, ins + outs, m, delta, each)
        if best is None or bound > best[0]:
            best = bound, ins + outs, correct
    assert best is not None
    claim = None if claimed is None else float(claimed)
    return OneRun(best[0], float(delta), float(confidence), m, best[1], best[2], len(splits), claim, name)


def _splits(ordered: Floats, guesses: int | tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return the numbers of guesses to try, of "in" and of "out". Scores may say which, the coins must not."""
    m = len(ordered)
    if isinstance(guesses, tuple):
        ins, outs = (count("guesses", part, at_least=0) for part in guesses)
        if not 0 < ins + outs <= m:
            raise ValueError(f"guesses must be between 1 and the number of canaries, {m}, got {ins} + {outs}")
        return [(ins, outs)]
    if guesses is not None:
        if count("guesses", guesses) > m:
            raise ValueError(f"guesses must be at most the number of canaries, {m}, got {guesses}")
        return [(guesses - guesses // 2, guesses // 2)]
    ins, total = _cut(ordered), m // _COARSENESS
    splits = [(ins, m - ins)]
    while total >= _LEAST_GUESSES:
        splits.append((total - total // 2, total // 2))
        total //= _COARSENESS
    return splits


def _cut(ordered: Floats) -> int:
    """Return how many of the falling scores to guess "in" if all are guessed: where they part into two groups best.

    Fair coins put m/2 in, give or take a few times sqrt(m)/2: only such cuts are looked at, by their variance between
    the two groups (Otsu), and never one between equal scores.
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
        raise ValueError(f"scores must be a list of at least one number, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite: some are NaN or infinite")
    if bits.dtype != np.bool_ or bits.shape != values.shape:
        raise ValueError(f"included must hold one True or False for each of the {values.size} scores")
    return values, bits


def _confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    return float(confidence)


# ---------------------------------------------------------------------------------------- canaries for linear models


@dataclass(frozen=True, eq=False)
class Canaries:
    """Rows of full norm at right angles, each with a column of its own, and the coin that puts each in or not.

    No row stands in another's way: what a model learned of a canary shows in the weight of its column, and in no other.
    Rows that share columns would blur each other's traces, which is what limits an audit in one run.

    Attributes
    ----------
    rows : sparse array
    labels, other_labels : array
        The canary's label, and the one that its opposite has.
    included : array of bool
        The coins.
    counterpart : str
        What stands in the place of a canary that is not in; see :func:`canaries`.
    """

    rows: Any
    labels: NDArray[Any]
    other_labels: NDArray[Any]
    included: Bits
    counterpart: Counterpart

    def table(self) -> tuple[Any, NDArray[Any]]:
        """Return the rows and labels to train on, as the coins fell."""
        if self.counterpart == "nothing":
            return self.rows[np.flatnonzero(self.included)], self.labels[self.included]
        if self.counterpart == "opposite":
            return self.rows, np.where(self.included, self.labels, self.other_labels)
        return sparse.csr_array(sparse.diags_array(self.included.astype(np.float64)) @ self.rows), self.labels

    def scores(self, coefficients: Floats, classes: Sequence[Any] | None = None) -> Floats:
        """Return how far each canary pulled the weights of its column its way: <coefficients, row> for its label.

        ``classes`` are those of the rows of ``coefficients``; None for a regression.
        """
        pulls = np.asarray(self.rows @ np.atleast_2d(coefficients).T)
        if classes is None:
            return np.asarray(pulls[:, 0] * np.sign(self.labels - self.other_labels))
        order = np.asarray(classes)
        if len(order) == 2 and pulls.shape[1] == 1:
            pulls = np.column_stack([-pulls, pulls])
        own = pulls[self.labels[:, None] == order]
        if self.counterpart == "opposite":
            return np.asarray(own - pulls[self.other_labels[:, None] == order])
        return np.asarray(own - pulls.mean(axis=1))


def canaries(
    number: int,
    *,
    norm: float = 1.0,
    labels: ArrayLike = (0, 1),
    counterpart: Counterpart = "opposite",
    source: NoiseSource | None = None,
) -> Canaries:
    """Return the canaries on which a linear model of bounded rows gives most away, and toss their coins.

    Parameters
    ----------
    number : int
        How many; each takes a column of its own.
    norm : float
        The length of every row: the bound that the model scales rows down to.
    labels : array
        At least two, given in turn; for a regression the least and the largest target.
    counterpart : {"opposite", "zero", "nothing"}
        What stands in the place of a canary whose coin says out. Under replace-one adjacency something must, as the
        number of records is public: its row with another label, which pulls the other way and shows twice as much; or a
        row of zeros, which does not pull, for the plain question of whether it was in. Under add-or-remove adjacency
        nothing does: an exchange would be two steps, and cost 2 epsilon.
    source : NoiseSource or None
        Tosses the coins; a seeded one makes the audit repeatable. Never the source of the model's noise.
    """
    if counterpart not in ("opposite", "zero", "nothing"):
        raise ValueError(f"counterpart must be 'opposite', 'zero' or 'nothing', got {counterpart!r}")
    number, kinds = count("number", number), np.asarray(labels)
    if kinds.ndim != 1 or len(np.unique(kinds)) != len(kinds) or len(kinds) < 2:
        raise ValueError("canaries need at least two different labels")
    included = np.zeros(number, dtype=bool)
    included[(source or NoiseSource()).poisson_batch(number, 0.5)] = True
    places = np.arange(number) % len(kinds)
    rows = sparse.csr_array(sparse.eye_array(number) * positive("norm", norm))
    return Canaries(rows, kinds[places], kinds[(places + 1) % len(kinds)], included, counterpart)


def one_run_linear(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    number: int = 1000,
    counterpart: Counterpart = "opposite",
    norm: float | None = None,
    delta: float | None = None,
    claimed: float | None = None,
    confidence: float = 0.95,
    guesses: int | tuple[int, int] | None = None,
    source: NoiseSource | None = None,
    name: str = "",
) -> OneRun:
    """Put canaries into a table, fit a linear estimator to it once, and return what their traces prove.

    Parameters
    ----------
    estimator
        Of scikit-learn's kind, with ``coef_`` after fitting; a copy of it is fitted. It may be private or not.
    X, y
        A table to hide the canaries in, array, DataFrame of numbers or sparse. Each canary adds a row and a column.
    number, counterpart, source
        Of the canaries; see :func:`canaries`.
    norm : float or None
        Their length: by default the estimator's ``feature_norm``, else 1.
    delta, claimed : float or None
        By default those of the fitted model's ``guarantee_``; with ``delta`` given, its epsilon there. A model without
        a guarantee needs ``delta``.
    confidence, guesses, name
        See :func:`one_run`.

    Formal guarantees
    -----------------
    Those of :func:`one_run`, for the epsilon of the estimator as set and the number of records of the enlarged table:
    a guarantee holds on every table, on this one too. A coin turned over replaces one record, so that a replace-one
    epsilon covers it; ``counterpart`` must suit the guarantee's adjacency, and is refused where it does not.
    """
    from sklearn.base import clone, is_classifier

    table = _sparse(X)
    targets = np.asarray(y)
    if targets.shape != table.shape[:1]:
        raise ValueError(
            f"X and y must be of one length, got {table.shape[0]} rows and labels of shape {targets.shape}"
        )
    bound = float(getattr(estimator, "target_bound", 1.0))
    is_classification = bool(is_classifier(estimator))
    planted = canaries(
        number,
        norm=float(getattr(estimator, "feature_norm", 1.0)) if norm is None else norm,
        labels=np.unique(targets) if is_classification else np.array([-bound, bound]),
        counterpart=counterpart,
        source=source,
    )
    rows, labels = planted.table()
    enlarged = sparse.csr_array(sparse.block_diag([table, rows], format="csr"))
    model = clone(estimator).fit(enlarged, np.concatenate([targets, labels]))
    guarantee = getattr(model, "guarantee_", None)
    if guarantee is not None:
        _check_adjacency(guarantee.adjacency, counterpart)
        if claimed is None:
            claimed = guarantee.epsilon if delta is None else guarantee.epsilon_at(delta)
        delta = guarantee.delta if delta is None else delta
    if delta is None:
        raise ValueError(f"{type(model).__name__} states no guarantee: give the delta at which to bound epsilon")
    if not hasattr(model, "coef_"):
        raise TypeError(f"{type(model).__name__} has no coef_: score its canaries yourself, and call one_run")
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))[:, table.shape[1] :]
    scores = planted.scores(weights, model.classes_ if is_classification else None)
    return one_run(
        scores,
        planted.included,
        delta=delta,
        confidence=confidence,
        guesses=guesses,
        claimed=claimed,
        name=name or type(estimator).__name__,
    )


def _check_adjacency(adjacency: Adjacency, counterpart: Counterpart) -> None:
    if (adjacency is Adjacency.REPLACE_ONE) == (counterpart == "nothing"):
        right = "'opposite' or 'zero'" if counterpart == "nothing" else "'nothing'"
        raise ValueError(
            f"the guarantee is for {adjacency} adjacency, which turning over a coin with counterpart={counterpart!r} "
            f"is not: use counterpart={right}"
        )


def _sparse(X: Any) -> Any:
    table = sparse.csr_array(X if sparse.issparse(X) else np.asarray(X, dtype=np.float64))
    if table.ndim != 2 or not np.isfinite(table.data).all():
        raise ValueError("X must be a table of finite numbers")
    return table
