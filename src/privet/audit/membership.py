"""Membership attacks: tell the rows that a model learned from apart from those that it did not.

The threshold attack of Yeom et al., "Privacy Risk in Machine Learning" (2018), needs one model; the likelihood-ratio
attack of Carlini et al., "Membership Inference Attacks From First Principles" (2022), trains others like it and is far
sharper. Both measure what leaks of these rows from this model. Neither bounds epsilon, which speaks of the worst rows:
that is what :mod:`privet.audit.distinguish` and :mod:`privet.audit.one_run` are for.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, logsumexp, ndtri

from privet.checks import count, probability
from privet.privacy import NoiseSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]
Score = Callable[[Any, Any, NDArray[Any]], ArrayLike]
"""A fitted model, rows and labels in; a number a row out."""

_SHOWN_RATES = (0.001, 0.01, 0.1)
_LEAST_SHADOWS = 4  # two with each row and two without: one alone shows no spread
_SHARED_BELOW = 64  # Carlini et al.: with fewer shadows a spread of each row's own is mostly error
_LEAST_SPREAD = 1e-9
_LEAST_PROBABILITY = 1e-12  # less would be an outlier that spoils the fit of a normal law


@dataclass(frozen=True, eq=False)
class Membership:
    """How well an attack tells members from others.

    Attributes
    ----------
    fpr, tpr : array
        The steps of the ROC curve, from (0, 0) to (1, 1): the share of non-members taken for members, and of members.
    auc : float
        The area under the curve: the chance that a member looks more like one than a non-member does. 0.5 is guessing.
    auc_interval : tuple of float
        Confidence limits of the area.
    confidence : float
    n_in, n_out : int
        Members and non-members.
    attack : str
    """

    fpr: Floats
    tpr: Floats
    auc: float
    auc_interval: tuple[float, float]
    confidence: float
    n_in: int
    n_out: int
    attack: str = "threshold"

    @classmethod
    def of(
        cls, members: ArrayLike, others: ArrayLike, *, confidence: float = 0.95, attack: str = "threshold"
    ) -> "Membership":
        """Return the result of an attack from its scores, higher for rows that look like members."""
        ins, outs = _finite("members", members), _finite("others", others)
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
        auc, error = delong(ins, outs)
        interval = _interval(auc, error, confidence, min(len(ins), len(outs)))
        return cls(*_roc(ins, outs), auc, interval, float(confidence), len(ins), len(outs), attack)

    @property
    def advantage(self) -> float:
        """The largest TPR - FPR, the threshold chosen with hindsight: above 0 by chance even where nothing leaks."""
        return float(np.max(self.tpr - self.fpr))

    @property
    def is_significant(self) -> bool:
        """Whether the attack beats guessing: the interval of the area lies above one half."""
        return self.auc_interval[0] > 0.5

    def tpr_at(self, fpr: float) -> float:
        """Return the share of members found while at most the share ``fpr`` of non-members is accused."""
        allowed = self.fpr <= probability("fpr", fpr) * (1 + 1e-12)
        return float(self.tpr[allowed].max())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "attack": self.attack,
            "auc": self.auc,
            "auc_interval": list(self.auc_interval),
            "confidence": self.confidence,
            "advantage": self.advantage,
            "tpr_at_fpr": {f"{rate:g}": self.tpr_at(rate) for rate in _SHOWN_RATES},
            "n_in": self.n_in,
            "n_out": self.n_out,
            "fpr": self.fpr.tolist(),
            "tpr": self.tpr.tolist(),
        }

    def __str__(self) -> str:
        low, high = self.auc_interval
        found = ", ".join(f"{self.tpr_at(rate):.2%} at {rate:.1%}" for rate in _SHOWN_RATES)
        verdict = "tells members from others" if self.is_significant else "does no better than guessing"
        return (
            f"The {self.attack} attack {verdict}: AUC {self.auc:.3f}, between {low:.3f} and {high:.3f} with confidence "
            f"{self.confidence:g} ({self.n_in:,} members, {self.n_out:,} others; 0.5 is guessing)\n"
            f"  members found, while accusing a share of the others: {found}\n"
            f"  largest advantage over all thresholds (TPR - FPR): {self.advantage:.3f}"
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the ROC curve beside that of guessing; needs matplotlib."""
        if ax is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError("plots need matplotlib: pip install 'privet[report]'") from error
            ax = Figure(figsize=(4.5, 4.5), layout="constrained").subplots()
        ax.plot(self.fpr, self.tpr, label=f"{self.attack} attack, AUC {self.auc:.3f}")
        ax.plot([0, 1], [0, 1], linestyle=":", color="grey", label="guessing")
        ax.set(xlabel="non-members taken for members", ylabel="members found", xlim=(0, 1), ylim=(0, 1))
        ax.legend(loc="lower right")
        return ax


def membership(
    model: Any, X: Any, y: Any, X_out: Any, y_out: Any, *, score: Score | None = None, confidence: float = 0.95
) -> Membership:
    """Attack a model by its losses: rows that it fits well are taken for those that it learned from.

    Parameters
    ----------
    model
        Fitted. Losses come from ``predict_proba``, else ``decision_function``, else ``predict``: the squared error of a
        number, or whether a label is right.
    X, y
        Rows that the model learned from, and their labels: arrays, DataFrames or sparse.
    X_out, y_out
        Others of the same population. Where they come from another one, the attack may only tell the two apart.
    score : callable or None
        ``score(model, X, y)`` replaces the loss: one number a row, higher for what looks like a member.
    confidence : float
        Of the interval of the area (DeLong's variance, on the logit scale), both ends together.
    """
    attack = score or fit_of
    return Membership.of(
        _scored("X and y", attack, model, X, y),
        _scored("X_out and y_out", attack, model, X_out, y_out),
        confidence=confidence,
    )


def likelihood_ratio(
    train: Callable[[Any, Any], Any],
    X: Any,
    y: Any,
    *,
    member: ArrayLike,
    model: Any = None,
    shadows: int = 32,
    score: Score | None = None,
    confidence: float = 0.95,
    source: NoiseSource | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Membership:
    """Attack a model by comparing it with others, trained on random halves of the rows.

    Each row's score under the model is held against two normal laws: of the scores under shadow models that learned the
    row, and under those that did not. Their ratio says whether the model learned it.

    Parameters
    ----------
    train : callable
        ``train(X, y)`` returns a fitted model.
    X, y
        Members and others of one population, best half and half, as the shadows learn from one half of all.
    member : array of bool
        Which rows the attacked model learned from.
    model
        The attacked model; None trains it on the members.
    shadows : int
        How many models to train: an even number, as they come in pairs of complementary halves.
    score : callable or None
        ``score(model, X, y)`` of roughly normal law; None takes the log-odds of the right label, or the residual of a
        regression.
    source : NoiseSource or None
        Draws the halves; a seeded one makes the attack repeatable, if ``train`` is.
    progress : callable or None
        Called with models trained and planned.
    """
    labels, bits = _labels("X and y", X, y), np.asarray(member)
    n = len(labels)
    if bits.dtype != np.bool_ or bits.shape != (n,):
        raise ValueError(f"member must hold one True or False for each of the {n} rows")
    if bits.all() or not bits.any():
        raise ValueError("member must name some rows and leave others out: both are needed")
    if count("shadows", shadows, at_least=_LEAST_SHADOWS) % 2:
        raise ValueError(f"shadows come in pairs of complementary halves: give an even number, not {shadows}")
    attack, source = score or _evidence, source or NoiseSource()
    target = train(_rows(X, bits), _rows(y, bits)) if model is None else model
    observed = _scored("X and y", attack, target, X, labels)
    taught: Bits = np.empty((shadows, n), dtype=bool)
    scores: Floats = np.empty((shadows, n))
    for shadow in range(shadows):
        if shadow % 2 == 0:
            taught[shadow] = source.permutation(n) < n // 2
        else:  # the other half: each row is then in exactly half of the shadows
            taught[shadow] = ~taught[shadow - 1]
        fitted = train(_rows(X, taught[shadow]), _rows(y, taught[shadow]))
        scores[shadow] = _scored("X and y", attack, fitted, X, labels)
        if progress is not None:
            progress(shadow + 1, shadows)
    ratio = _log_density(observed, scores, taught) - _log_density(observed, scores, ~taught)
    return Membership.of(ratio[bits], ratio[~bits], confidence=confidence, attack="likelihood-ratio")


def _log_density(observed: Floats, scores: Floats, chosen: Bits) -> Floats:
    """Return the log-density of each row's score under the normal law of its chosen shadows, up to a constant."""
    k = len(scores) // 2  # each row is chosen in as many
    means = np.where(chosen, scores, 0).sum(axis=0) / k
    squares = np.where(chosen, (scores - means) ** 2, 0).sum(axis=0) / (k - 1)
    variances = squares if len(scores) >= _SHARED_BELOW else np.full_like(squares, squares.mean())
    variances = np.maximum(variances, _LEAST_SPREAD**2)  # a model without randomness may leave none
    return np.asarray(-((observed - means) ** 2) / (2 * variances) - np.log(variances) / 2)


# ------------------------------------------------------------------------------------------------ scores of rows


def fit_of(model: Any, X: Any, y: NDArray[Any]) -> Floats:
    """Return how well a model fits each row, higher for a smaller loss; thresholds on it are thresholds on the loss.

    Log-odds of the right label rather than its log-probability: the same order, without ties where a loss rounds to 0.
    """
    evidence = _evidence(model, X, y, least=float(np.finfo(np.float64).tiny))
    is_number = not any(hasattr(model, name) for name in ("predict_proba", "decision_function", "classes_"))
    return -(evidence**2) if is_number else evidence


def _evidence(model: Any, X: Any, y: NDArray[Any], least: float = _LEAST_PROBABILITY) -> Floats:
    """Return a statistic a row: log-odds or margin of its label, right or wrong, or the residual of a number."""
    if hasattr(model, "predict_proba"):
        values = np.log(np.maximum(np.asarray(model.predict_proba(X), dtype=np.float64), least))
        return _margins(model, y, values, logsumexp)
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(X), dtype=np.float64)
        return _margins(model, y, np.column_stack([0 * values, values]) if values.ndim == 1 else values, np.max)
    if not hasattr(model, "predict"):
        raise TypeError(
            f"{type(model).__name__} has none of predict_proba, decision_function and predict: "
            "give score(model, X, y), one number a row, higher for what looks like a member"
        )
    predicted = np.asarray(model.predict(X))
    if hasattr(model, "classes_"):
        return np.asarray(predicted == y, dtype=np.float64)
    residuals = np.asarray(y, dtype=np.float64) - predicted.reshape(y.shape)
    return residuals if residuals.ndim == 1 else np.asarray(np.linalg.norm(residuals, axis=1))


def _margins(model: Any, y: NDArray[Any], values: Floats, together: Callable[..., Any]) -> Floats:
    """Return the value of each row's label less that of its rivals together."""
    classes = np.asarray(getattr(model, "classes_", np.arange(values.shape[1])))
    if len(classes) != values.shape[1] or len(classes) < 2:
        raise TypeError(
            f"{type(model).__name__} names {len(classes)} classes and scores {values.shape[1]}: give score(model, X, y)"
        )
    is_own = y[:, None] == classes
    known = is_own.any(axis=1)
    if not known.any():
        raise ValueError(f"no label in y is one of the model's classes, {classes.tolist()[:5]}")
    own = values[np.arange(len(y)), is_own.argmax(axis=1)]
    margins = own - together(np.where(is_own, -np.inf, values), axis=1)
    # A label that the model has never seen, as a shadow may not have, is fitted as badly as any.
    return np.asarray(np.where(known, margins, margins[known].min()))


def _scored(name: str, attack: Score, model: Any, X: Any, y: Any) -> Floats:
    """Return the scores of rows, checked: one finite number each."""
    labels = _labels(name, X, y)
    values = np.asarray(attack(model, X, labels), dtype=np.float64)
    if values.shape != labels.shape[:1]:
        raise ValueError(f"score must return one number for each of the {len(labels)} rows, got shape {values.shape}")
    return _finite(name, values)


def _finite(name: str, values: ArrayLike) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not scores.size:
        raise ValueError(f"the scores of {name} must be a list of at least one number, got shape {scores.shape}")
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise ValueError(f"{wrong} of {scores.size} scores of {name} are NaN or infinite")
    return scores


def _labels(name: str, X: Any, y: Any) -> NDArray[Any]:
    """Return the labels as an array, checked: as many as rows, and none missing."""
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    if labels.ndim == 0 or n != len(labels):
        raise ValueError(f"{name} must be of one length, got {n} rows and labels of shape {labels.shape}")
    if n == 0:
        raise ValueError(f"{name} are empty: an attack needs members and others")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} have labels that are not a number (NaN)")
    return labels


def _rows(table: Any, chosen: Bits) -> Any:
    """Return the chosen rows of an array, a DataFrame, a sparse matrix or a list, in its own kind."""
    if hasattr(table, "iloc"):
        return table.iloc[np.flatnonzero(chosen)]
    return (table if hasattr(table, "shape") else np.asarray(table))[np.flatnonzero(chosen)]


# ---------------------------------------------------------------------------------------------- the area under ROC


def delong(ins: Floats, outs: Floats) -> tuple[float, float]:
    """Return the area under the ROC curve and its standard error, ties counted half.

    DeLong, DeLong and Clarke-Pearson (1988), by the ranks of Sun and Xu (2014), in the time of a sort.
    """
    ranks = _midranks(np.concatenate([ins, outs]))
    beaten = (ranks[: len(ins)] - _midranks(ins)) / len(outs)  # for each member, the share of others below it
    beating = 1 - (ranks[len(ins) :] - _midranks(outs)) / len(ins)
    variance = sum(float(np.var(part, ddof=1)) / len(part) if len(part) > 1 else 0.0 for part in (beaten, beating))
    return float(beaten.mean()), math.sqrt(variance)


def _midranks(values: Floats) -> Floats:
    """Return ranks from 1, equal values sharing the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def _interval(auc: float, error: float, confidence: float, fewest: int) -> tuple[float, float]:
    """Return limits of the area: normal on the logit scale, which keeps them in (0, 1) and honest near its ends.

    Where all is tied, or members and others do not overlap, the estimated error is 0, which no sample can vouch for.
    Hoeffding's inequality for two-sample means (1963, section 5) takes its place: wide, but true of every law.
    """
    if fewest > 1 and error > 1e-12 and 0 < auc < 1:
        reach = float(ndtri((1 + confidence) / 2)) * error / (auc * (1 - auc))
        return float(expit(logit(auc) - reach)), float(expit(logit(auc) + reach))
    reach = math.sqrt(math.log(2 / (1 - confidence)) / (2 * fewest))
    return max(0.0, auc - reach), min(1.0, auc + reach)


def _roc(ins: Floats, outs: Floats) -> tuple[Floats, Floats]:
    """Return the ROC curve: one point a distinct score, but those within a step up or to the right left out."""
    scores = np.concatenate([ins, outs])
    _, places = np.unique(-scores, return_inverse=True)
    tpr = np.bincount(places[: len(ins)], minlength=places.max() + 1)
    fpr = np.bincount(places[len(ins) :], minlength=places.max() + 1)
    within = ((tpr[1:] == 0) & (tpr[:-1] == 0)) | ((fpr[1:] == 0) & (fpr[:-1] == 0))
    corners = np.append(~within, True)
    curve = [np.append(0, np.cumsum(steps)[corners]) / len(part) for steps, part in ((fpr, outs), (tpr, ins))]
    return curve[0], curve[1]
