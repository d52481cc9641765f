"""Effects with the noise in them: what each column adds to a prediction, and how much of it may be privacy noise."""

import math
from typing import Any

import numpy as np

from privet.linear import TableModel
from privet.linear.additive import PrivateAdditiveModel
from privet.linear.effects import Effects, column_effects
from privet.linear.shapes import Shape, by_importance
from privet.report.facts import EffectRow, EffectTable
from privet.report.numbers import plain
from privet.tables import NumericTarget

MOST_ROWS, LEAST_ROWS, MOST_OUTPUTS = 24, 4, 4
"""How many effects are listed, at least how many per output, and of how many outputs. The others are counted."""

_KNOWN = (
    "The noise that privacy added to each effect has the standard deviation in the last column. The band is two "
    "standard deviations wide on each side. An effect whose band contains zero may be noise alone."
)
_UNKNOWN = (
    "Noise was added in every step of the training, or before it. How much of it is left in an effect depends on the "
    "data. It is therefore not known, and no band is shown. Small effects may be noise alone."
)
_ESTIMATED = (
    "The standard deviation of the noise that privacy added to each effect is estimated from the noise, the steps and "
    "noisy counts alone. The band is two standard deviations wide on each side."
)
_SAMPLING = (
    "Besides privacy noise, effects vary because other records could have been collected. That variation is not shown: "
    "estimating it would reveal more about the records."
)


def effect_tables(model: Any) -> tuple[tuple[EffectTable, ...], str]:
    """Return the effects of a model on each of its outputs, and what is known about the noise in them."""
    estimator = model.estimator if isinstance(model, TableModel) else model
    if isinstance(estimator, PrivateAdditiveModel):
        return _additive(estimator, model), f"{_ESTIMATED} {_SAMPLING}"
    try:
        outputs = column_effects(model)
    except TypeError:  # a scaler that is not one of privet
        return (), ""
    std = getattr(estimator, "noise_std_", None)
    room = max(LEAST_ROWS, MOST_ROWS // len(outputs))
    tables = tuple(_table(output, std, model, room) for output in outputs[:MOST_OUTPUTS])
    note = f"{_UNKNOWN if std is None else _KNOWN} {_SAMPLING}"
    hidden = len(outputs) - MOST_OUTPUTS
    return tables, f"Effects on {hidden} further outputs are not listed. {note}" if hidden > 0 else note


def _additive(estimator: PrivateAdditiveModel, model: Any) -> tuple[EffectTable, ...]:
    """Return the differences along the curves of an additive model, those of the most important columns first."""
    target = model.target.name if isinstance(model, TableModel) else ""
    labels = [str(label) for label in getattr(estimator, "classes_", ())]
    labels = list(map(str, model.levels)) if labels and isinstance(model, TableModel) else labels
    of = f" of {target} = " if target else " of "
    if not labels:
        outputs = [f"the prediction{of.removesuffix(' = ') if target else ''}"]
        if getattr(estimator, "loss", "") == "poisson":
            outputs = [f"the logarithm of {outputs[0]}"]
    else:
        outputs = [f"the score{of}{label}" for label in (labels[1:] if len(labels) == 2 else labels)]
    shapes = by_importance(list(estimator.shapes_.values()))
    room = max(LEAST_ROWS, MOST_ROWS // len(outputs))
    tables = []
    for place, name in enumerate(outputs[:MOST_OUTPUTS]):
        rows = [row for shape in shapes for row in _of_shape(shape, place)]
        tables.append(EffectTable(name, tuple(rows[:room]), max(0, len(rows) - room)))
    return tuple(tables)


def _of_shape(shape: Shape, output: int) -> list[EffectRow]:
    """Return the difference between the lowest and the highest bin of a number, and those between levels."""
    values = shape.values.reshape(len(shape.values), -1)[:, output]
    if shape.edges is None:
        names = shape.levels or ()
        return [
            EffectRow(
                shape.name,
                f"{names[k]} instead of {names[0]}",
                float(values[k] - values[0]),
                float(np.hypot(shape.noise[k], shape.noise[0])),
            )
            for k in range(1, len(values))
        ]
    low, high = sorted((int(values.argmin()), int(values.argmax())))
    ends = [f"{plain(shape.edges[k])} to {plain(shape.edges[k + 1])}" for k in (low, high)]
    noise = float(np.hypot(shape.noise[low], shape.noise[high]))
    return [EffectRow(shape.name, f"from {ends[0]}, to {ends[1]}", float(values[high] - values[low]), noise)]


def _table(output: Effects, std: float | None, model: Any, room: int) -> EffectTable:
    unit = None if std is None else std * _output_per_weight(output, model)
    rows = [row for effect in output.columns for row in _rows(effect, unit, isinstance(model, TableModel))]
    name = f"the prediction of {output.target}" if output.target else "the prediction"
    if output.label is not None:
        score = "log-odds" if output.is_log_odds else "score"
        name = f"the {score} of {output.target} = {output.label}" if output.target else f"the {score} of {output.label}"
    return EffectTable(name, tuple(rows[:room]), max(0, len(rows) - room))


def _output_per_weight(output: Effects, model: Any) -> float:
    """Return how far the output moves per unit of the weight of an encoded column at its full length."""
    if not isinstance(model, TableModel):
        return 1.0
    widths = {each.name: each.half_width for each in model.schema.targets if isinstance(each, NumericTarget)}
    return model.schema.column_scale * widths.get(output.target or "", 1.0)


def _rows(effect: Any, unit: float | None, is_table: bool) -> list[EffectRow]:
    """Return a row for a number, and one per level but the first for a category.

    A number between its bounds moves the encoded column from -1 to 1, and thus has twice the noise of its weight. Two
    levels have independent noise each.
    """
    rows = []
    if effect.over_interval is not None and is_table:
        low, high = (plain(end) if isinstance(end, int | float) else str(end) for end in effect.interval)
        rows.append(EffectRow(effect.column, f"from {low} to {high}", effect.over_interval, unit and 2 * unit))
    elif effect.per_unit is not None:
        rows.append(EffectRow(effect.column, "per unit", effect.per_unit, unit))
    first = effect.levels[0][0] if effect.levels and effect.per_unit is None else None
    for level, difference in effect.levels[1:] if first is not None else effect.levels:
        against = f"{level} instead of {first}" if first is not None else f"{level} instead of a middle value"
        rows.append(
            EffectRow(effect.column, against, difference, unit and math.sqrt(2 if first is not None else 1) * unit)
        )
    return rows
