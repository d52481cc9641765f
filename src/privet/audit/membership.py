"""Membership attacks: tell apart the rows that a model was trained on and the rows that it was not trained on.

The threshold attack of Yeom et al., "Privacy Risk in Machine Learning" (2018), needs only the model. The
likelihood-ratio attack of Carlini et al., "Membership Inference Attacks From First Principles" (2022), and RMIA of
Zarifzadeh, Liu and Shokri, "Low-Cost High-Power Membership Inference Attacks" (2024), train further models and are much
stronger. All measure how much this model reveals about these rows. None bounds epsilon, which is about the worst case.
For that, use :func:`privet.audit.distinguish` and :func:`privet.audit.one_run`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from privet.audit.bounds import check_confidence
from privet.audit.roc import auc_interval, delong, roc_curve
from privet.audit.row_scores import Bits, Floats, Score, checked_scores, finite_scores, fit_of, log_odds
from privet.audit.shadow_models import log_likelihoods, shadow_game
from privet.checks import probability
from privet.extras import axes
from privet.privacy import NoiseSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN_RATES = (0.001, 0.01, 0.1)
_LEAST_SHADOWS = 4  # two with each row and two without, because a single value has no spread
_SHARED_BELOW = 64  # with fewer shadow models, a separate spread per row is mostly estimation error (Carlini et al.)
_LEAST_SPREAD = 1e-9


@dataclass(frozen=True, eq=False)
class Membership:
    """How well an attack distinguishes members, the rows that a model was trained on, from non-members.

    Attributes
    ----------
    fpr, tpr : array
        The corners of the ROC curve from (0, 0) to (1, 1): the shares of non-members and of members that are accused.
    auc : float
        The area under the curve: the probability that a member scores higher than a non-member. Guessing gives 0.5.
    auc_interval : tuple of float
        Confidence limits of the area.
    confidence : float
        Confidence of these limits.
    n_in, n_out : int
        Number of members and of non-members.
    attack : str
        Name of the attack.
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
        """Return the result of an attack from its scores. Rows that look like members must have higher scores."""
        ins, outs = finite_scores("members", members), finite_scores("others", others)
        check_confidence(confidence)
        auc, error = delong(ins, outs)
        interval = auc_interval(auc, error, confidence, min(len(ins), len(outs)))
        return cls(*roc_curve(ins, outs), auc, interval, float(confidence), len(ins), len(outs), attack)

    @property
    def advantage(self) -> float:
        """The largest difference of TPR and FPR, which is positive by chance even if nothing leaks."""
        return float(np.max(self.tpr - self.fpr))

    @property
    def is_significant(self) -> bool:
        """Whether the attack is better than guessing: the lower confidence limit of the area exceeds one half."""
        return self.auc_interval[0] > 0.5

    def tpr_at(self, fpr: float) -> float:
        """Return the share of members that are found while at most a share ``fpr`` of the non-members is accused."""
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
        found = ", ".join(f"{self.tpr_at(rate):.2%} at a rate of {rate:.1%}" for rate in _SHOWN_RATES)
        verdict = "distinguishes members from non-members" if self.is_significant else "is not better than guessing"
        return (
            f"The {self.attack} attack {verdict}: AUC {self.auc:.3f}, between {low:.3f} and {high:.3f} with confidence "
            f"{self.confidence:g} ({self.n_in:,} members, {self.n_out:,} non-members; guessing gives 0.5)\n"
            f"  share of members found, at a given false positive rate: {found}\n"
            f"  largest advantage over all thresholds (TPR - FPR): {self.advantage:.3f}"
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the ROC curve together with that of guessing. This requires matplotlib."""
        ax = axes(ax, 4.5, 4.5)
        ax.plot(self.fpr, self.tpr, label=f"{self.attack} attack, AUC {self.auc:.3f}")
        ax.plot([0, 1], [0, 1], linestyle=":", color="grey", label="guessing")
        ax.set(xlabel="non-members accused", ylabel="members found", xlim=(0, 1), ylim=(0, 1))
        ax.legend(loc="lower right")
        return ax


def membership(
    model: Any, X: Any, y: Any, X_out: Any, y_out: Any, *, score: Score | None = None, confidence: float = 0.95
) -> Membership:
    """Attack a model by its losses: rows that it fits well are taken for rows that it was trained on.

    Parameters
    ----------
    model
        A fitted model. Losses are computed from ``predict_proba`` if it exists, otherwise from ``decision_function``,
        otherwise from ``predict`` (the squared error of a number, or whether a label is right).
    X, y
        Rows that the model was trained on, and their labels: arrays, DataFrames or sparse matrices.
    X_out, y_out
        Other rows of the same population. With rows of another population, the attack may only tell the populations
        apart.
    score : callable or None
        ``score(model, X, y)`` replaces the loss. It returns one number per row, higher for rows that look like members.
    confidence : float
        Confidence of the two-sided interval of the area (DeLong's variance, on the logit scale).
    """
    attack = score or fit_of
    return Membership.of(
        checked_scores("X and y", attack, model, X, y),
        checked_scores("X_out and y_out", attack, model, X_out, y_out),
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
    """Attack a model by comparing it with shadow models that are trained on random halves of the rows.

    The score of a row under the model is compared with two normal distributions: that of its scores under shadow models
    trained with the row, and that under shadow models trained without it. The attack uses the ratio of the densities.

    Parameters
    ----------
    train : callable
        ``train(X, y)`` returns a fitted model.
    X, y
        Members and non-members of one population. Equal numbers work best, because shadow models use half of all rows.
    member : array of bool
        Which rows the attacked model was trained on.
    model
        The attacked model. If None, it is trained on the members.
    shadows : int
        Number of shadow models, which must be even, because they come in pairs with complementary halves.
    score : callable or None
        ``score(model, X, y)`` with a roughly normal distribution. If None, it is the log-odds of the true label, or the
        residual of a regression.
    source : NoiseSource or None
        Draws the halves. A seeded source makes the attack repeatable if ``train`` is.
    progress : callable or None
        Called with the number of trained models and the total number.
    """
    game = shadow_game(
        train, X, y, member, shadows, score or log_odds, model, source, progress, at_least=_LEAST_SHADOWS
    )
    ratio = _log_density(game.observed, game.scores, game.taught) - _log_density(
        game.observed, game.scores, ~game.taught
    )
    return Membership.of(ratio[game.member], ratio[~game.member], confidence=confidence, attack="likelihood-ratio")


def rmia(
    train: Callable[[Any, Any], Any],
    X: Any,
    y: Any,
    *,
    member: ArrayLike,
    model: Any = None,
    shadows: int = 8,
    score: Score | None = None,
    confidence: float = 0.95,
    source: NoiseSource | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Membership:
    """Attack a model by comparing its likelihood of each row's label with that of shadow models (RMIA).

    The likelihood of each row's label under the model is divided by its mean under shadow models, half of which were
    trained with the row. A row's score is the share of all rows whose ratio is smaller. No distribution is fitted, so
    few shadow models suffice, while :func:`likelihood_ratio` needs dozens for its full strength.

    Parameters
    ----------
    train, X, y, member, model, source, progress
        See :func:`likelihood_ratio`.
    shadows : int
        Number of shadow models, which must be even, because they come in pairs with complementary halves.
    score : callable or None
        ``score(model, X, y)`` returns the log-likelihood of each row's label. If None, it is computed from
        ``predict_proba``, or from the margin of ``decision_function`` or the residual of a regression.
    """
    game = shadow_game(train, X, y, member, shadows, score or log_odds, model, source, progress, at_least=2)
    observed, scores = game.observed, game.scores
    if score is None:
        observed, scores = log_likelihoods(game)
    ratios = observed - (logsumexp(scores, axis=0) - np.log(len(scores)))
    shares = np.searchsorted(np.sort(ratios), ratios) / len(ratios)
    return Membership.of(shares[game.member], shares[~game.member], confidence=confidence, attack="RMIA")


def _log_density(observed: Floats, scores: Floats, chosen: Bits) -> Floats:
    """Return the log-density of each row's score under the normal distribution fitted to the chosen shadow models."""
    k = len(scores) // 2  # each row is in this many shadow models
    means = np.where(chosen, scores, 0).sum(axis=0) / k
    squares = np.where(chosen, (scores - means) ** 2, 0).sum(axis=0) / (k - 1)
    variances = squares if len(scores) >= _SHARED_BELOW else np.full_like(squares, squares.mean())
    variances = np.maximum(variances, _LEAST_SPREAD**2)  # a deterministic model may have no spread
    return np.asarray(-((observed - means) ** 2) / (2 * variances) - np.log(variances) / 2)
