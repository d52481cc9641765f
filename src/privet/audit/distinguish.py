"""The distinguishing game: run a mechanism many times on two neighbouring datasets, and try to tell the outputs apart.

The success of the attack refutes every guarantee under which no attack could be as successful. The attack (a direction
and a threshold) is chosen on some of the runs and measured on others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.audit.betting import design_bet, mu_from_bets
from privet.audit.bounds import (
    Rates,
    as_json,
    check_confidence,
    epsilon_from_rates,
    mus_from_counts,
    standardised_distance,
)
from privet.checks import count
from privet.privacy import Guarantee, NoiseSource
from privet.privacy.analyses.accounting import gaussian_mu
from privet.privacy.analyses.gaussian import gdp_epsilon

Floats = NDArray[np.float64]
Mechanism = Callable[[Any, NoiseSource], ArrayLike]
"""``mechanism(dataset, source)`` makes one run and returns what is released, as numbers."""

# Deltas, besides the claimed one, at which a claim that is not Gaussian is tested.
_DELTAS = (0.3, 0.2, 0.1, 0.05, 0.02, 0.005)
_CLIP = 4.0  # standard deviations: scores are clipped, so that the choice of an attack does not rest on outliers
_LEAST_RUNS = 100
_LEAST_TRAINING = 25  # runs from which the first attack of a Gaussian claim is learned, if there are enough
_RUNS_PER_COLUMN = 20  # from this number on, covariances are estimated well enough
_RIDGE = 1e-6
_CAUTION = 0.99  # confidence with which thresholds are compared, because the best of many is partly luck


@dataclass(frozen=True)
class Distinguished:
    """The result of a distinguishing game.

    Attributes
    ----------
    claimed, delta : float
        The epsilon that the guarantee states at ``delta``. This is not always the delta of the guarantee, because
        another delta may be more informative.
    lower_bound : float
        With ``confidence``, the release is not (epsilon, delta)-DP for any epsilon below this.
    confidence : float
        Confidence of the bound.
    runs : int
        Number of runs per dataset.
    form : str
        The statistic that gave the bound.
    true_positive_rate, false_positive_rate : float
        Measured error rates of the attack.
    name : str
        Name of the audit.
    """

    claimed: float
    delta: float
    lower_bound: float
    confidence: float
    runs: int
    form: str
    true_positive_rate: float
    false_positive_rate: float
    name: str = ""

    @property
    def is_violation(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if not self.is_violation:
            return "consistent"
        return (
            f"VIOLATION: epsilon is above {self.lower_bound:.4g}, and {self.claimed:.4g} is claimed, at delta "
            f"{self.delta:.3g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return as_json(self)

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return (
            f"{name}{self.verdict}\n  claimed: epsilon {self.claimed:.4g} at delta {self.delta:.3g}\n"
            f"  measured: epsilon at least {self.lower_bound:.4g}, confidence {self.confidence:.4g}, by {self.form}, "
            f'{self.runs:,} runs per dataset\n  the attack guesses "second dataset" in {self.true_positive_rate:.1%} '
            "of the "
            f"runs on the second dataset, and in {self.false_positive_rate:.1%} of the runs on the first dataset"
        )


def distinguish(
    mechanism: Mechanism,
    first: Any,
    second: Any,
    *,
    guarantee: Guarantee,
    runs: int = 2000,
    confidence: float = 0.95,
    source: NoiseSource | None = None,
    progress: Callable[[int, int], None] | None = None,
    name: str = "",
) -> Distinguished:
    """Run a mechanism on two neighbouring datasets and compare how well its outputs can be told apart with a guarantee.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, source)`` returns what is released: an array of numbers whose size is the same in all runs.
    first, second
        Two datasets that are neighbours under the guarantee's adjacency. Worst-case pairs show most; see
        :mod:`privet.audit.pairs`.
    guarantee : Guarantee
        The claim. If its event is Gaussian, the whole trade-off curve is tested instead of a single delta.
    runs : int
        Number of runs per dataset.
    confidence : float
        Confidence of the lower bound. For a family of k audits, use 1 - (1 - confidence)/k for each.
    source : NoiseSource or None
        None uses a secure source. A seeded source makes the audit repeatable.
    progress : callable or None
        Called with the number of finished runs and the total number.

    Formal guarantees
    -----------------
    If the mechanism satisfies the guarantee, ``is_violation`` is true with a probability of at most 1 - confidence.
    This holds for any number of runs and whatever is released. "consistent" is not a proof, because another pair of
    datasets or another attack may show more.
    """
    if count("runs", runs) < _LEAST_RUNS:
        raise ValueError(f"An audit needs at least {_LEAST_RUNS} runs per dataset, got {runs}.")
    source = source or NoiseSource()
    outputs: list[list[Floats]] = [[], []]
    for done in range(runs):  # alternating, so that a drift of the machine affects both datasets equally
        for place, dataset in enumerate((first, second)):
            outputs[place].append(np.asarray(mechanism(dataset, source), dtype=np.float64).ravel())
        if progress is not None:
            progress(done + 1, runs)
    firsts, seconds = (np.array(rows) for rows in outputs)
    return from_outputs(firsts, seconds, guarantee=guarantee, confidence=confidence, name=name)


def from_outputs(
    firsts: ArrayLike, seconds: ArrayLike, *, guarantee: Guarantee, confidence: float = 0.95, name: str = ""
) -> Distinguished:
    """Return the result of a game from outputs that exist already, one row per run. See :func:`distinguish`."""
    check_confidence(confidence)
    first, second = _checked(firsts), _checked(seconds)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"Runs on the first dataset release {first.shape[1]} numbers, but runs on the second release "
            f"{second.shape[1]}. All runs must release the same number."
        )
    (attack_firsts, held_firsts), (attack_seconds, held_seconds) = _cut(first, [2]), _cut(second, [2])
    score = _attack(attack_firsts, attack_seconds)
    trained = _Scored(score(attack_firsts), score(attack_seconds))
    held = _Scored(score(held_firsts), score(held_seconds))
    rates = held.rates(trained.best_threshold())
    common: dict[str, Any] = {
        "confidence": confidence,
        "runs": len(first),
        "true_positive_rate": rates.true_positives / rates.seconds,
        "false_positive_rate": rates.false_positives / rates.firsts,
        "name": name,
    }
    if gaussian_mu(guarantee.event, guarantee.adjacency) is not None:
        bound = gdp_epsilon(_mu_by_betting(first, second, confidence), guarantee.delta)
        return Distinguished(guarantee.epsilon, guarantee.delta, bound, form="betting (Gaussian DP)", **common)
    delta = _most_telling_delta(guarantee, trained)
    cut = trained.best_threshold(delta)
    rates = held.rates(cut)
    common |= {
        "true_positive_rate": rates.true_positives / rates.seconds,
        "false_positive_rate": rates.false_positives / rates.firsts,
    }
    claimed = guarantee.epsilon if delta == guarantee.delta else guarantee.epsilon_at(delta)
    bound = epsilon_from_rates(rates, delta, confidence)
    return Distinguished(claimed, delta, bound, form="error rates (Clopper-Pearson)", **common)


def _checked(outputs: ArrayLike) -> Floats:
    array = np.asarray(outputs, dtype=np.float64)
    array = array.reshape(len(array), -1) if array.size else array.reshape(0, 0)
    if len(array) < _LEAST_RUNS or array.shape[1] == 0:
        raise ValueError(f"An audit needs at least {_LEAST_RUNS} runs per dataset, and at least one released number.")
    if not np.isfinite(array).all():
        raise ValueError("A run released NaN or infinity.")
    return array


def _cut(outputs: Floats, parts: list[int]) -> list[Floats]:
    """Return the outputs cut at the given fractions of their length, each of them one over an integer."""
    return np.split(outputs, [len(outputs) // part for part in parts])


def _mu_by_betting(firsts: Floats, seconds: Floats, confidence: float) -> float:
    """Return a lower bound on mu. Each part of the runs is bet on with the attack that the runs before it suggest.

    The parts double in length, so that all runs but the first eighth count.
    """
    enough = min(len(firsts), len(seconds)) >= 8 * _LEAST_TRAINING
    parts = [8, 4, 2] if enough else [4, 2]
    pieces = list(zip(_cut(firsts, parts), _cut(seconds, parts), strict=True))
    rounds = sum(min(map(len, piece)) for piece in pieces[1:])
    bets = []
    for place, (first, second) in enumerate(pieces[1:], 1):
        known = [np.concatenate(part) for part in zip(*pieces[:place], strict=True)]
        score = _attack(*known)
        bet = design_bet(score(known[0]), score(known[1]), rounds, confidence)
        bets.append((bet, bet.gains(score(first), score(second))))
    return mu_from_bets(bets, confidence)


@dataclass(frozen=True)
class _Scored:
    """Scores of runs on the two datasets. A higher score looks more like the second dataset."""

    firsts: Floats
    seconds: Floats

    def rates(self, threshold: float) -> Rates:
        positives = int(np.sum(self.seconds > threshold)), int(np.sum(self.firsts > threshold))
        return Rates(*positives, len(self.seconds), len(self.firsts))

    def best_threshold(self, delta: float | None = None) -> float:
        """Return the threshold with the largest lower bound: on mu, or on epsilon if ``delta`` is given."""
        edge = 0.05 if delta is None else 0.003
        places = np.quantile(np.concatenate([self.firsts, self.seconds]), np.linspace(edge, 1 - edge, 100))
        if delta is None:
            hits, alarms = (np.sum(scores[:, None] > places, axis=0) for scores in (self.seconds, self.firsts))
            proofs = mus_from_counts(hits, alarms, len(self.seconds), len(self.firsts), _CAUTION)
            return float(places[np.argmax(proofs)])
        return float(max(places, key=lambda place: epsilon_from_rates(self.rates(place), delta, _CAUTION)))


def _attack(firsts: Floats, seconds: Floats) -> Callable[[Floats], Floats]:
    """Return the score that separates the two groups of outputs best.

    Linear scores are Fisher's, with the variances of the coordinates and, if there are enough runs, also with their
    covariances, which capture noise that coordinates share. If the means agree but the spreads do not, as for noise
    that depends on the data, the distance from the centre is the better score.
    """
    middle, scale = _middle(firsts, seconds)
    apart = (seconds.mean(axis=0) - firsts.mean(axis=0)) / scale
    directions = [apart / scale]
    if 1 < len(apart) * _RUNS_PER_COLUMN <= len(firsts):
        within = np.concatenate([firsts - firsts.mean(axis=0), seconds - seconds.mean(axis=0)]) / scale
        covariance = within.T @ within / len(within) + _RIDGE * np.eye(len(apart))
        directions.append(np.linalg.solve(covariance, apart) / scale)

    def linear(direction: Floats) -> Callable[[Floats], Floats]:
        return lambda outputs: np.asarray((outputs - middle) @ direction)

    def spread(outputs: Floats) -> Floats:
        return np.asarray((((outputs - middle) / scale) ** 2).sum(axis=1))

    best: Callable[[Floats], Floats] = linear(directions[0])
    most = -1.0
    for score in (*map(linear, directions), spread, lambda outputs: -spread(outputs)):
        clipped = _bounded(score, firsts, seconds)
        distance, error = standardised_distance(clipped(firsts), clipped(seconds))
        is_right_way = clipped(seconds).mean() >= clipped(firsts).mean()
        if is_right_way and distance - error > most:
            best, most = clipped, distance - error
    return best


def _middle(firsts: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    scale = np.sqrt((firsts.var(axis=0) + seconds.var(axis=0)) / 2)
    # A constant coordinate that differs between the datasets reveals everything. A tiny spread avoids dividing by 0.
    return (firsts.mean(axis=0) + seconds.mean(axis=0)) / 2, np.maximum(scale, 1e-12 * (1 + np.abs(firsts).max()))


def _bounded(score: Callable[[Floats], Floats], firsts: Floats, seconds: Floats) -> Callable[[Floats], Floats]:
    """Return the score, clipped to a few standard deviations around its median."""
    pooled = np.concatenate([score(firsts), score(seconds)])
    low, high = np.median(pooled) - _CLIP * pooled.std(), np.median(pooled) + _CLIP * pooled.std()
    return lambda outputs: np.clip(score(outputs), low, high)


def _most_telling_delta(guarantee: Guarantee, trained: _Scored) -> float:
    """Return the delta, among the claimed one and a few large ones, at which the attack exceeds the claim most."""
    if guarantee.delta == 0:
        return 0.0

    def gain(delta: float) -> float:
        claimed = guarantee.epsilon if delta == guarantee.delta else guarantee.epsilon_at(delta)
        return epsilon_from_rates(trained.rates(trained.best_threshold(delta)), delta, _CAUTION) - claimed

    gains = {delta: gain(delta) for delta in (guarantee.delta, *_DELTAS)}
    best = max(gains, key=lambda delta: gains[delta])
    return best if gains[best] > 0 else guarantee.delta


def summary(audits: Mapping[str, Distinguished]) -> str:
    """Return a text with one line per audit."""
    width = max(map(len, audits), default=0)
    return "\n".join(
        f"{name:<{width}}  claimed {audit.claimed:<8.4g} measured {audit.lower_bound:<8.4g} {audit.verdict}"
        for name, audit in audits.items()
    )
