"""Shadow models for membership attacks: models like the attacked one, each trained on a random half of the rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from privet.audit.row_scores import Bits, Floats, Score, checked_labels, checked_scores, rows_of
from privet.checks import count
from privet.privacy import NoiseSource


@dataclass(frozen=True, eq=False)
class ShadowGame:
    """The scores of all rows under the attacked model and under its shadow models.

    Attributes
    ----------
    member : array of bool
        Which rows the attacked model was trained on.
    observed : array
        The score of each row under the attacked model.
    taught : array of bool
        For each shadow model, which rows it was trained on.
    scores : array
        For each shadow model, the score of each row.
    is_number : bool
        Whether the target is a number. The default score is then a residual.
    """

    member: Bits
    observed: Floats
    taught: Bits
    scores: Floats
    is_number: bool


def shadow_game(
    train: Callable[[Any, Any], Any],
    X: Any,
    y: Any,
    member: ArrayLike,
    shadows: int,
    score: Score,
    model: Any,
    source: NoiseSource | None,
    progress: Callable[[int, int], None] | None,
    *,
    at_least: int,
) -> ShadowGame:
    """Train the shadow models, and the attacked model if it is None, and return all scores."""
    labels, bits = checked_labels("X and y", X, y), np.asarray(member)
    n = len(labels)
    if bits.dtype != np.bool_ or bits.shape != (n,):
        raise ValueError(f"member must contain one bool per row, {n} in total.")
    if bits.all() or not bits.any():
        raise ValueError("member must be True for some rows and False for others.")
    if count("shadows", shadows, at_least=at_least) % 2:
        raise ValueError(f"shadows must be even, got {shadows}. Shadow models come in pairs with complementary halves.")
    source = source or NoiseSource()
    target = train(rows_of(X, bits), rows_of(y, bits)) if model is None else model
    observed = checked_scores("X and y", score, target, X, labels)
    taught: Bits = np.empty((shadows, n), dtype=bool)
    scores: Floats = np.empty((shadows, n))
    for shadow in range(shadows):
        if shadow % 2 == 0:
            taught[shadow] = source.permutation(n) < n // 2
        else:  # the complement, so that each row is in exactly half of the shadow models
            taught[shadow] = ~taught[shadow - 1]
        fitted = train(rows_of(X, taught[shadow]), rows_of(y, taught[shadow]))
        scores[shadow] = checked_scores("X and y", score, fitted, X, labels)
        if progress is not None:
            progress(shadow + 1, shadows)
    is_number = not any(hasattr(target, name) for name in ("predict_proba", "decision_function", "classes_"))
    return ShadowGame(bits, observed, taught, scores, is_number)


def log_likelihoods(game: ShadowGame) -> tuple[Floats, Floats]:
    """Return the log-likelihood of each row's label from default scores: log-odds, margins or residuals.

    Residuals are taken for normal, with the mean square that shadow models have on rows they were not trained on.
    """
    if not game.is_number:
        return np.asarray(log_expit(game.observed)), np.asarray(log_expit(game.scores))
    variance = max(float(np.mean(game.scores[~game.taught] ** 2)), float(np.finfo(np.float64).tiny))
    return -(game.observed**2) / (2 * variance), -(game.scores**2) / (2 * variance)
