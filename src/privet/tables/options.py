"""Descriptions of tables as people write them: options of a command line, and TOML files."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

from privet.tables.columns import Categorical, Numeric, by_name
from privet.tables.errors import TableError, show
from privet.tables.targets import NumericTarget, Target

_TOML_KEYS = ("target", "target_levels", "target_bounds", "numeric", "categorical")


def parse_bounds(text: str) -> Numeric:
    """Read the option `age=0:120`; the name ends at the last `=`."""
    name, _, bounds = text.rpartition("=")
    try:
        ends = _ends(bounds)
    except ValueError:
        raise TableError(f"cannot read the bounds {show(text)}: write column=low:high, as in age=0:120") from None
    return Numeric(name.strip(), *ends)


def parse_target_bounds(name: str, text: str) -> Numeric:
    """Read the option `0:5000`, the bounds of the target of that name."""
    try:
        ends = _ends(text)
    except ValueError:
        raise TableError(f"cannot read the target's bounds {show(text)}: write low:high, as in 0:5000") from None
    return Numeric(name, *ends)


def parse_levels(text: str) -> Categorical:
    """Read the option `sex=female,male`; the name ends at the first `=`, and a level with a comma goes in quotes."""
    name, equals, levels = text.partition("=")
    if not equals:
        raise TableError(f"cannot read the levels {show(text)}: write column=level,level as in sex=female,male")
    return Categorical(name.strip(), tuple(next(csv.reader([levels], skipinitialspace=True), [])))


def as_target(column: Numeric | Categorical) -> Target | NumericTarget:
    """Return what is declared of a column as the description of a target."""
    if isinstance(column, Numeric):
        return NumericTarget(column.name, column.low, column.high)
    return Target(column.name, column.levels)


def read_toml(path: Path) -> tuple[dict[str, Numeric | Categorical], Target | NumericTarget | None]:
    """Read the features, by name, and the target, if any, from a TOML file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TableError(f"cannot read the schema {path}: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise TableError(f"the schema {path} is not valid TOML: {error}") from error
    return parse_table(values, f"the schema {path}")


def parse_table(
    values: dict[str, Any], where: str
) -> tuple[dict[str, Numeric | Categorical], Target | NumericTarget | None]:
    """Read the features, by name, and the target, if any, from the values of a TOML file or of a part of one."""
    for key in values:
        if key not in _TOML_KEYS:
            raise TableError(f"{where} has an unknown key {key!r}: the keys are {', '.join(_TOML_KEYS)}")
    numeric, categorical = values.get("numeric", {}), values.get("categorical", {})
    if not isinstance(numeric, dict) or not isinstance(categorical, dict):
        raise TableError(f"{where}: write numeric and categorical as tables, [numeric] and [categorical]")
    numbers = [Numeric(name, *_pair(name, name, bounds)) for name, bounds in numeric.items()]
    columns = by_name([*numbers, *(Categorical(name, levels) for name, levels in categorical.items())])
    return columns, _toml_target(where, values)


def _toml_target(where: str, values: dict[str, Any]) -> Target | NumericTarget | None:
    described = [key for key in ("target_levels", "target_bounds") if key in values]
    if "target" not in values:
        if described:
            raise TableError(f'{where} has {described[0]} but no target: add target = "column"')
        return None
    if len(described) > 1:
        raise TableError(
            f"{where} has both target_levels and target_bounds: keep the levels of a category, or the "
            "bounds of a number"
        )
    name = values["target"]
    if "target_bounds" in values:
        return NumericTarget(name, *_pair(name, "target_bounds", values["target_bounds"]))
    return Target(name, values.get("target_levels"))


def _pair(name: object, key: str, bounds: object) -> tuple[Any, Any]:
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise TableError(f"column {name!r}: bounds {show(bounds)} are not a pair: write {key} = [low, high]")
    return bounds[0], bounds[1]


def _ends(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    return float(low), float(high)
