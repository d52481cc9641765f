"""How well a model fits each row: the scores that membership attacks use."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]
Score = Callable[[Any, Any, NDArray[Any]], ArrayLike]
"""``score(model, X, y)`` of a fitted model, rows and labels: one number per row."""

_LEAST_PROBABILITY = 1e-12  # a smaller probability would be an outlier that spoils the fit of a normal distribution


def fit_of(model: Any, X: Any, y: NDArray[Any]) -> Floats:
    """Return how well a model fits each row. A smaller loss gives a higher value, so the order is that of the loss.

    For classes it is the log-odds of the true label instead of its log-probability. The order is the same, without ties
    where a loss rounds to 0.
    """
    evidence = log_odds(model, X, y, least=float(np.finfo(np.float64).tiny))
    is_number = not any(hasattr(model, name) for name in ("predict_proba", "decision_function", "classes_"))
    return -(evidence**2) if is_number else evidence


def log_odds(model: Any, X: Any, y: NDArray[Any], least: float = _LEAST_PROBABILITY) -> Floats:
    """Return one statistic per row: the log-odds or margin of its label, or the residual if the target is a number."""
    if hasattr(model, "predict_proba"):
        values = np.log(np.maximum(np.asarray(model.predict_proba(X), dtype=np.float64), least))
        return _margins(model, y, values, logsumexp)
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(X), dtype=np.float64)
        return _margins(model, y, np.column_stack([0 * values, values]) if values.ndim == 1 else values, np.max)
    if not hasattr(model, "predict"):
        raise TypeError(
            f"{type(model).__name__} has none of predict_proba, decision_function and predict. Pass score(model, X, "
            "y), which returns one number per row, higher for rows that look like members."
        )
    predicted = np.asarray(model.predict(X))
    if hasattr(model, "classes_"):
        return np.asarray(predicted == y, dtype=np.float64)
    residuals = np.asarray(y, dtype=np.float64) - predicted.reshape(y.shape)
    return residuals if residuals.ndim == 1 else np.asarray(np.linalg.norm(residuals, axis=1))


def _margins(model: Any, y: NDArray[Any], values: Floats, together: Callable[..., Any]) -> Floats:
    """Return the value of each row's label minus the combined value of all other labels."""
    classes = np.asarray(getattr(model, "classes_", np.arange(values.shape[1])))
    if len(classes) != values.shape[1] or len(classes) < 2:
        raise TypeError(
            f"{type(model).__name__} has {len(classes)} classes but {values.shape[1]} scores per row. "
            "Pass score(model, X, y)."
        )
    is_own = y[:, None] == classes
    known = is_own.any(axis=1)
    if not known.any():
        raise ValueError(f"No label in y is one of the model's classes, {classes.tolist()[:5]}.")
    own = values[np.arange(len(y)), is_own.argmax(axis=1)]
    margins = own - together(np.where(is_own, -np.inf, values), axis=1)
    # A shadow model may not have seen a label. Rows with this label get the lowest score.
    return np.asarray(np.where(known, margins, margins[known].min()))


def checked_scores(name: str, attack: Score, model: Any, X: Any, y: Any) -> Floats:
    """Return the scores of rows after checking that there is one finite number per row."""
    labels = checked_labels(name, X, y)
    values = np.asarray(attack(model, X, labels), dtype=np.float64)
    if values.shape != labels.shape[:1]:
        raise ValueError(f"score must return one number per row, {len(labels)} in total, got shape {values.shape}.")
    return finite_scores(name, values)


def finite_scores(name: str, values: ArrayLike) -> Floats:
    """Return scores as an array after checking that they are a non-empty list of finite numbers."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not scores.size:
        raise ValueError(f"The scores of {name} must be a list of at least one number, got shape {scores.shape}.")
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise ValueError(f"{wrong} of {scores.size} scores of {name} are NaN or infinite.")
    return scores


def checked_labels(name: str, X: Any, y: Any) -> NDArray[Any]:
    """Return the labels as an array after checking that there is one per row and none is missing."""
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    if labels.ndim == 0 or n != len(labels):
        raise ValueError(f"{name} must have the same length, got {n} rows and labels of shape {labels.shape}.")
    if n == 0:
        raise ValueError(f"{name} are empty. An attack needs both members and non-members.")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} have labels that are NaN.")
    return labels


def rows_of(table: Any, chosen: Bits) -> Any:
    """Return the chosen rows of an array, a DataFrame, a sparse matrix or a list, in the same type."""
    if hasattr(table, "iloc"):
        return table.iloc[np.flatnonzero(chosen)]
    return (table if hasattr(table, "shape") else np.asarray(table))[np.flatnonzero(chosen)]
