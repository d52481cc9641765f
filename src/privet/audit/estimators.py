"""Audits of estimators on pairs of neighbouring tables: the distinguishing game with many fits, and replays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from privet.audit.distinguish import Distinguished, distinguish
from privet.audit.pairs import CLASSIFICATION, Pair, neighbours, scattered_table, target_flip
from privet.cautions import silenced
from privet.linear.additive import PrivateAdditiveModel
from privet.linear.table_model import TableEstimator
from privet.privacy import NoiseSource
from privet.replay import Replayed, replay

_PLACES = 9  # at which the curves of additive models are looked at


def audit_estimator(
    estimator: TableEstimator,
    *,
    pairs: Sequence[Pair] | None = None,
    n: int = 3,
    d: int = 2,
    runs: int = 500,
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Distinguished]:
    """Fit many copies of an estimator on neighbouring tables, and try to distinguish the models.

    Parameters
    ----------
    estimator : TableEstimator
        The estimator with its settings. ``random_state`` must be None, because all fits with one seed have the same
        noise.
    pairs : sequence of Pair or None
        None means worst-case pairs of n rows and d columns for this kind of estimator.
    runs : int
        Number of fits on each table of each pair.
    confidence : float
        Joint confidence of all audits. Each single audit uses a higher confidence.

    Returns
    -------
    dict from the name of a pair to the result of its game.
    """
    if estimator.random_state is not None:
        raise ValueError("An audit needs new noise in every fit, but random_state is set. Set random_state=None.")
    chosen = list(pairs) if pairs is not None else worst_pairs(estimator, n, d)
    estimator = _with_classes(estimator)
    results = {}
    for place, pair in enumerate(chosen):
        (X, y), second = pair
        claim = _fitted(estimator, (X, y)).guarantee_
        results[pair.name] = distinguish(
            lambda table, _: _weights(_fitted(estimator, table)),
            (X, y),
            second,
            guarantee=claim,
            runs=runs,
            confidence=1 - (1 - confidence) / len(chosen),
            source=NoiseSource(),
            progress=progress and (lambda done, _, k=place: progress(k * runs + done, len(chosen) * runs)),  # type: ignore[misc]
            name=pair.name,
        )
    return results


def replay_estimator(
    estimator: TableEstimator,
    *,
    pairs: Sequence[Pair] | None = None,
    n: int = 3,
    d: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Replayed]:
    """Replay the fits of an estimator on neighbouring tables (:func:`privet.audit.replay`).

    Parameters
    ----------
    estimator : TableEstimator
        The estimator with its settings.
    pairs : sequence of Pair or None
        None means worst-case pairs of n rows and d columns, and neighbours of a table of at least 12 rows, one
        of whose records gets extreme values.

    Returns
    -------
    dict from the name of a pair to the outcome of its replay.
    """
    if pairs is None:
        bound = None if is_classifier(estimator) else getattr(estimator, "target_bound", 1.0)
        table = scattered_table(max(n, 12), d, _row_norm(estimator), bound)
        pairs = [*worst_pairs(estimator, n, d), *neighbours(table)]
    estimator = _with_classes(estimator)
    results = {}
    for done, pair in enumerate(pairs, start=1):
        results[pair.name] = replay(lambda table: _fitted(estimator, table), *pair, name=pair.name)
        if progress is not None:
            progress(done, len(pairs))
    return results


def worst_pairs(estimator: TableEstimator, n: int = 3, d: int = 2) -> list[Pair]:
    """Return worst-case pairs of neighbouring tables for an estimator and its bounds."""
    if is_classifier(estimator):
        return [make(n, d, _row_norm(estimator)) for make in CLASSIFICATION]
    return [target_flip(n, d, _row_norm(estimator), getattr(estimator, "target_bound", 1.0))]


def _with_classes(estimator: TableEstimator) -> TableEstimator:
    """Return a classifier that knows its classes, because the tables of a pair may have only one label."""
    if is_classifier(estimator) and estimator.classes is None:
        return clone(estimator).set_params(classes=[0, 1])  # type: ignore[no-any-return]
    return estimator


def _fitted(estimator: TableEstimator, table: tuple[Any, Any]) -> Any:
    with silenced():
        return clone(estimator).fit(*table)


def _row_norm(estimator: TableEstimator) -> float:
    """Return the norm of the rows of worst-case tables. Additive models have bounds on columns instead."""
    return float(getattr(estimator, "feature_norm", 1.0))


def _weights(model: Any) -> NDArray[np.float64]:
    """Return what a model released: its weights, or the curves of an additive model at places between its bounds."""
    if isinstance(model, PrivateAdditiveModel):
        places = np.linspace(-1, 1, _PLACES)
        X = np.vstack([np.full(model.n_features_in_, place) for place in places])
        return np.ravel(model._scores(X))
    return np.concatenate([np.ravel(model.coef_), np.ravel(model.intercept_)])
