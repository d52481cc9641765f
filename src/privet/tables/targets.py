"""The targets of a table: one column to predict, or several that are all classes or all numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from privet.tables.columns import Categorical, Numeric, NumericTarget, Target
from privet.tables.errors import TableError, show

AnyTarget: TypeAlias = Target | NumericTarget

KINDS: dict[str, type[AnyTarget]] = {kind.kind: kind for kind in (Target, NumericTarget)}


def check_targets(targets: tuple[AnyTarget, ...], features: Iterable[str]) -> None:
    """Raise TableError unless the targets are different columns of one kind, and none is a feature."""
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"The target {name!r} is declared more than once. Keep one declaration.")
        if name in set(features):
            raise TableError(
                f"The target {name!r} is also declared as a feature. Remove one of the two declarations. "
                "Declare the levels or bounds of a target as target_levels or target_bounds."
            )
    for target in targets[1:]:
        if type(target) is not type(targets[0]):
            number, other = sorted((targets[0], target), key=lambda each: isinstance(each, Target))
            raise TableError(
                f"The target {number.name!r} is a number and {other.name!r} a category. One model predicts either "
                "numbers or categories: train two models."
            )


def described(target: AnyTarget, column: Numeric | Categorical) -> AnyTarget:
    """Return the target with the bounds or levels that are declared for its column."""
    if isinstance(column, Numeric):
        return NumericTarget(target.name, column.low, column.high)
    return Target(target.name, column.levels)


def to_fields(target: AnyTarget) -> dict[str, Any]:
    """Return a target as plain values that JSON can hold."""
    return {"kind": target.kind, **asdict(target)}


def toml_targets(values: Mapping[str, Any], where: str) -> tuple[AnyTarget, ...]:
    """Read the targets, if any, from the values of a TOML file.

    For one target, ``target_levels`` or ``target_bounds`` is a list. For several, it is a table with one list per name.
    """
    given = [key for key in ("target_levels", "target_bounds") if key in values]
    if "target" not in values:
        if given:
            raise TableError(f'{where} has {given[0]} but no target. Add target = "column".')
        return ()
    if len(given) > 1:
        raise TableError(
            f"{where} has both target_levels and target_bounds. Keep the levels for a category, or the bounds for a "
            "number."
        )
    name = values["target"]
    if not isinstance(name, list):
        return (_toml_target(name, {key: values[key] for key in given}),)
    if not name:
        raise TableError(f'{where} has an empty list of targets. Write target = "column", or name several.')
    tables: dict[str, Any] = {key: values[key] for key in given}
    for key, table in tables.items():
        if not isinstance(table, dict) or not set(table) <= set(name):
            raise TableError(
                f"{where} has several targets, but {key} = {show(table)} is not a table of their names. Write "
                f"{key} = {{ {name[0]} = [...] }}."
            )
    return tuple(
        _toml_target(each, {key: table[each] for key, table in tables.items() if each in table}) for each in name
    )


def _toml_target(name: Any, given: Mapping[str, Any]) -> AnyTarget:
    if "target_bounds" in given:
        return NumericTarget(name, *pair(name, "target_bounds", given["target_bounds"]))
    return Target(name, given.get("target_levels"))


def pair(name: object, key: str, bounds: object) -> tuple[Any, Any]:
    """Return the bounds of a column, which must be a list of two."""
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise TableError(f"Column {name!r}: the bounds {show(bounds)} are not a pair. Write {key} = [low, high].")
    return bounds[0], bounds[1]
