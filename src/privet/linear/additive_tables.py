"""Tables for additive models: the cells of a table as numbers and levels, by its schema."""

from typing import Any

from privet.tables import Categorical, NumericTarget, TableSchema
from privet.tables.cells import columns_of

_INDICATOR = ("no", "yes")


def additive_settings(schema: TableSchema) -> dict[str, Any]:
    """Return the settings of an additive estimator that a schema determines: bounds, levels and target bounds."""
    bounds: dict[str, tuple[float, float]] = {}
    levels: dict[str, tuple[str, ...]] = {}
    for feature in schema.features:
        if isinstance(feature, Categorical):
            levels[feature.name] = tuple(feature.encoded_levels)
            continue
        bounds[feature.name] = feature.interval
        levels |= dict.fromkeys(feature.columns[1:], _INDICATOR)
    found: dict[str, Any] = {"bounds": bounds, "levels": levels}
    if isinstance(schema.target, NumericTarget):
        found["target_bounds"] = schema.target.interval
    return found


def additive_rows(schema: TableSchema, frame: Any) -> Any:
    """Return the features of a table as a DataFrame of clipped numbers and of levels.

    A number whose missing cells are a level of their own is in the middle of its bounds where it is missing, and has a
    further column that says so.
    """
    import pandas as pd

    found: dict[str, Any] = {}
    columns = columns_of(frame, [feature.name for feature in schema.features])
    for feature, column in zip(schema.features, columns, strict=True):
        encoded = feature.encode(column)
        if isinstance(feature, Categorical):
            found[feature.name] = pd.Categorical.from_codes(encoded.argmax(axis=1), list(feature.encoded_levels))
            continue
        low, high = feature.interval
        found[feature.name] = low / 2 + high / 2 + feature.half_width * encoded[:, 0]
        for name, indicator in zip(feature.columns[1:], encoded[:, 1:].T, strict=True):
            found[name] = pd.Categorical.from_codes(indicator.astype(int), list(_INDICATOR))
    return pd.DataFrame(found)
