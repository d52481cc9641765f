"""The effects of a linear model: what each column adds to a prediction, in the units of the column and of the target.

Effects are computed from the weights and from public declarations alone. This is post-processing of what the guarantee
covers, so that they may be published together with the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from privet.linear.base import PrivateLinearModel
from privet.linear.classification import PrivateClassifier, ProbabilisticClassifier
from privet.linear.table_model import TableModel
from privet.tables import Categorical, Date, NumericTarget, TableSchema

Floats = NDArray[np.float64]

DAYS_PER_YEAR = 365.2425


@dataclass(frozen=True)
class Effect:
    """What one column adds to an output of a model.

    Parameters
    ----------
    column : str
        Its name, or ``column 3`` if the model was trained on an array without names.
    size : float
        How much two rows that differ in this column alone can differ in the output. If the column has no declared
        bounds or levels, the absolute value of ``per_unit``.
    per_unit : float or None
        For numbers and dates between their bounds: the change of the output per unit of the column, or per year.
    interval : pair or None
        The declared bounds of a number or a date.
    over_interval : float or None
        The change of the output from the low bound to the high one.
    levels : tuple of pairs
        For categories: each level and its difference from the first one, in the order of their declaration. For numbers
        and dates whose missing cells are a level of their own: this level and its difference from the middle of the
        bounds.
    """

    column: str
    size: float
    per_unit: float | None = None
    interval: tuple[Any, Any] | None = None
    over_interval: float | None = None
    levels: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Effects:
    """The effects of all columns on one output of a model: on a number, or on the score of a class.

    Parameters
    ----------
    target : str or None
        The column that is predicted, if the model knows its name.
    label : str or None
        The class whose score is the output, or None if the output is a number.
    is_log_odds : bool
        Whether the score of the class is its log-odds.
    is_binary : bool
        Whether there are two classes, so that the score is that against the other class. Scores of several classes are
        those against the (geometric) average of all classes.
    baseline : float
        The output of a row of first levels and of numbers in the middle of their bounds, or of zeros if there are no
        bounds.
    largest_norm : float or None
        If rows are scaled down to this norm, effects hold for rows that are not longer, after any scaler. None if no
        row is scaled down.
    columns : tuple of Effect
        All columns, those of the largest size first.
    """

    target: str | None
    label: str | None
    is_log_odds: bool
    is_binary: bool
    baseline: float
    largest_norm: float | None
    columns: tuple[Effect, ...]


def column_effects(model: Any) -> tuple[Effects, ...]:
    """Return the effects of a fitted model on each of its outputs.

    A number and a target of two classes are one output each. A target of several classes has one per class.

    Parameters
    ----------
    model : TableModel, PrivateLinearModel or Pipeline
        A pipeline must consist of scalers of privet followed by a linear model. Its effects are in the units of the
        columns before they are scaled.

    Raises
    ------
    TypeError
        For any other model.
    """
    if isinstance(model, TableModel):
        if not isinstance(model.estimator, PrivateLinearModel):
            raise TypeError(f"{type(model.estimator).__name__} has shapes_ instead of effects.")
        return tuple(_of_table(model, model.estimator))
    scalers, estimator = _steps(model)
    return tuple(_of_rows(scalers, estimator))


@dataclass(frozen=True)
class _Output:
    """The weights of one output, and what it is. In its units, it is ``middle`` plus ``factor`` times the score."""

    target: str | None
    label: str | None
    is_log_odds: bool
    is_binary: bool
    weights: Floats
    intercept: float
    factor: float = 1.0
    middle: float = 0.0


def _outputs(model: PrivateLinearModel, targets: Sequence[Any]) -> Iterator[_Output]:
    """Yield the outputs of all targets. ``targets`` are those of a schema, or the names of columns, or None."""
    models = model.models_by_target() or [model]
    for one, target in zip(models, targets, strict=True):
        weights, intercepts = (np.asarray(each, dtype=np.float64) for each in (one._coefficients(), one.intercept_))
        name = target if isinstance(target, str) or target is None else target.name
        if not isinstance(one, PrivateClassifier):
            in_units = isinstance(target, NumericTarget)
            factor = target.half_width if in_units else 1.0
            middle = target.low / 2 + target.high / 2 if in_units else 0.0
            yield _Output(name, None, False, False, weights[0], intercepts[0], factor, middle)
            continue
        labels = [str(label) for label in getattr(target, "levels", None) or cast(Any, one).classes_]
        is_log_odds = isinstance(one, ProbabilisticClassifier)
        if len(weights) == 1:
            yield _Output(name, labels[1], is_log_odds, True, weights[0], intercepts[0])
            continue
        # Scores of several classes are known up to a constant: what counts is how they differ from their average.
        weights, intercepts = weights - weights.mean(axis=0), intercepts - intercepts.mean()
        for label, row, intercept in zip(labels, weights, intercepts, strict=True):
            yield _Output(name, label, is_log_odds, False, row, intercept)


def _of_table(model: TableModel, estimator: PrivateLinearModel) -> Iterator[Effects]:
    for output in _outputs(estimator, model.schema.targets):
        scaled = output.factor * model.schema.column_scale * output.weights
        columns, first_levels = _table_columns(model.schema, scaled)
        baseline = output.middle + output.factor * output.intercept + first_levels
        yield _effects(output, baseline, None, columns)


def _table_columns(schema: TableSchema, weights: Floats) -> tuple[list[Effect], float]:
    """Return the effects of encoded columns, and the sum of the weights of the first levels."""
    found, first_levels, start = [], 0.0, 0
    for feature in schema.features:
        own = weights[start : start + len(feature.columns)]
        start += len(feature.columns)
        if isinstance(feature, Categorical):
            levels = tuple(zip(feature.encoded_levels, (own - own[0]).tolist(), strict=True))
            found.append(Effect(feature.name, float(np.ptp(own)), levels=levels))
            first_levels += float(own[0])
            continue
        # From the low bound to the high one, the encoded cell goes from -1 to 1. A missing cell is encoded as 0.
        per_unit = float(own[0]) / feature.half_width * (DAYS_PER_YEAR if isinstance(feature, Date) else 1.0)
        missing = tuple((name.removeprefix(f"{feature.name}="), float(own[1])) for name in feature.columns[1:])
        size, interval = float(np.ptp((-own[0], *own))), (feature.low, feature.high)
        found.append(Effect(feature.name, size, per_unit, interval, 2 * float(own[0]), missing))
    return found, first_levels


def _of_rows(scalers: Sequence[Any], model: PrivateLinearModel) -> Iterator[Effects]:
    first = scalers[0] if scalers else model
    names = [str(name) for name in getattr(first, "feature_names_in_", ())]
    names = names or [f"column {place}" for place in range(model.n_features_in_)]
    slopes, middle, ends = np.ones(len(names)), np.zeros(len(names)), None
    if scalers:
        ends = np.vstack([first.lower_, first.lower_ / 2 + first.upper_ / 2, first.upper_])
        for scaler in scalers:  # Each transforms every column by itself, and keeps its order.
            ends, slopes = scaler.transform(_named_as(scaler, ends)), slopes / scaler.scale_
        middle = ends[1]
    targets = [str(name) for name in getattr(model, "target_names_", ())]
    for output in _outputs(model, targets or [None] * (len(model.models_by_target()) or 1)):
        columns = []
        for place, (name, slope) in enumerate(zip(names, (output.weights * slopes).tolist(), strict=True)):
            if ends is None:
                columns.append(Effect(name, abs(slope), slope))
            else:
                change = float(output.weights[place] * (ends[2, place] - ends[0, place]))
                interval = (float(first.lower_[place]), float(first.upper_[place]))
                columns.append(Effect(name, abs(change), slope, interval, change))
        yield _effects(output, float(output.intercept + output.weights @ middle), float(model.feature_norm), columns)


def _effects(output: _Output, baseline: float, largest_norm: float | None, columns: Sequence[Effect]) -> Effects:
    """Return the effects of columns, those of the largest size first, and those of equal size in their own order."""
    by_size = tuple(sorted(columns, key=lambda effect: -effect.size))
    return Effects(
        output.target, output.label, output.is_log_odds, output.is_binary, float(baseline), largest_norm, by_size
    )


def _steps(model: Any) -> tuple[list[Any], PrivateLinearModel]:
    """Return the scalers of a pipeline and its linear model."""
    steps = [step for step in _flat(model) if step not in (None, "passthrough")]
    if not steps or not isinstance(steps[-1], PrivateLinearModel):
        raise TypeError(f"{type(steps[-1] if steps else model).__name__} is not a linear model, so it has no effects.")
    for step in steps[:-1]:
        if not all(hasattr(step, name) for name in ("lower_", "upper_", "scale_", "transform")):
            raise TypeError(f"{type(step).__name__} is not a scaler of privet, so effects cannot be computed.")
    return steps[:-1], steps[-1]


def _flat(model: Any) -> Iterator[Any]:
    if isinstance(model, Pipeline):
        for _, step in model.steps:
            yield from _flat(step)
    else:
        yield model


def _named_as(scaler: Any, rows: Floats) -> Any:
    """Return rows as a DataFrame if the scaler was fitted to one, so that scikit-learn finds the names it expects."""
    if not hasattr(scaler, "feature_names_in_"):
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=scaler.feature_names_in_)
