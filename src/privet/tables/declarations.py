"""The declaration of a table's columns in a TOML file, or in texts such as ``age=0:120`` and ``sex=female,male``."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privet.tables.categories import Categorical
from privet.tables.dates import Date, to_date
from privet.tables.errors import SchemaErrors, TableError, did_you_mean, show
from privet.tables.features import Feature, by_name, option_rules, toml_rules
from privet.tables.form import RECOGNISED, FileForm
from privet.tables.numbers import Numeric
from privet.tables.targets import AnyTarget, NumericTarget, Target, described

_KEYS = ("target", "target_levels", "target_bounds", "numeric", "categorical", "dates", "missing", "ids", "file")


@dataclass(frozen=True)
class Declarations:
    """What a file declares: features by name, targets, rules for missing cells by name, IDs, and the form of files."""

    features: dict[str, Feature] = field(default_factory=dict)
    targets: tuple[AnyTarget, ...] = ()
    missing: dict[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    form: FileForm = RECOGNISED

    def with_options(
        self,
        *,
        bounds: Iterable[str],
        levels: Iterable[str],
        missing: Iterable[str],
        ids: Iterable[str],
        target: str | Iterable[str] | None,
        target_bounds: str | None,
        form: FileForm,
    ) -> Declarations:
        """Return these declarations, overridden by options in the form of texts."""
        chosen = self.targets
        if target is not None:
            known = {each.name: each for each in chosen}
            names = [target] if isinstance(target, str) else list(target)
            chosen = tuple(known.get(name) or Target(name) for name in names)
        columns: list[Feature] = [*map(parse_bounds, bounds), *map(parse_levels, levels)]
        if target_bounds is not None:
            columns.append(_of_one_target(chosen, target_bounds))
        options = by_name(columns)
        targets = [described(each, options.pop(each.name)) if each.name in options else each for each in chosen]
        features = self.features | options
        rules = self.missing | option_rules(missing, features)
        every_id = tuple(dict.fromkeys((*self.ids, *ids)))
        return Declarations(features, tuple(targets), rules, every_id, self.form.overridden_by(form))


def _of_one_target(targets: tuple[AnyTarget, ...], bounds: str) -> Numeric:
    """Return the column of the only target, with its bounds from a text without a name."""
    if not targets:
        raise TableError("target_bounds are given, but no target. Name the column to predict as the target.")
    if len(targets) > 1:
        raise TableError(
            f"target_bounds = {bounds} has no name, but there are {len(targets)} targets. Declare the bounds of each "
            f"column by name, as in {targets[0].name}={bounds}."
        )
    return Numeric(targets[0].name, *low_and_high(bounds, bounds, "low:high, as in 0:5000"))


def read_toml(path: Path, errors: SchemaErrors) -> Declarations:
    """Read what a TOML file declares. Errors in single declarations are added to ``errors``."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise TableError(f"privet cannot read the schema {path}: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise TableError(f"The schema {path} is not valid TOML: {error}") from error
    return parse_toml(values, f"The schema {path}", errors)


def parse_toml(values: Mapping[str, Any], where: str, errors: SchemaErrors) -> Declarations:
    """Read what the values of a TOML file, or of a section of one, declare. ``where`` names it in errors.

    Declarations that cannot be read are left out, and their errors are added to ``errors``.
    """
    for key in values:
        if key not in _KEYS:
            remedy = did_you_mean(key, _KEYS) or f"The keys are {', '.join(_KEYS)}."
            errors.add(f"{where} has an unknown key {key!r}. {remedy}")
    declared = Declarations(missing=toml_rules(values, where, errors))
    for key, make in _SECTIONS.items():
        section = values.get(key, {})
        if not isinstance(section, dict):
            errors.add(f"{where}: {key} = {show(section)} is not a table. Write it as a section, [{key}].")
            continue
        for name, given in section.items():
            with errors.catch(name):
                column = make(name, given)
                same = [declared.features[name]] if name in declared.features else []  # from another section
                declared.features.update(by_name([*same, column]))
    form = FileForm()
    with errors.catch():
        form = FileForm.from_dict(values.get("file", {}), where)
    targets, ids = toml_targets(values, where, errors), _toml_ids(values.get("ids", []), where, errors)
    return replace(declared, targets=targets, ids=ids, form=form)


def _toml_number(name: str, given: Any) -> Numeric:
    """Read a number from its bounds."""
    return Numeric(name, *pair(name, name, given))


def _toml_date(name: str, given: Any) -> Date:
    """Read dates from their bounds, or from a table with ``bounds`` and ``format``."""
    if not isinstance(given, dict):
        return Date(name, *pair(name, name, given))
    if "bounds" not in given or not set(given) <= {"bounds", "format"}:
        raise TableError(
            f"Column {name!r}: {show(given)} does not describe dates. Write "
            f'{name} = {{ bounds = [2019-01-01, 2024-12-31], format = "%d/%m/%Y" }}.'
        )
    return Date(name, *pair(name, f"{name}.bounds", given["bounds"]), format=given.get("format"))


_SECTIONS: dict[str, Callable[[str, Any], Feature]] = {
    "numeric": _toml_number,
    "categorical": Categorical,
    "dates": _toml_date,
}
"""The sections of a schema file that declare features, and how to read one line of each."""


def _toml_ids(ids: Any, where: str, errors: SchemaErrors) -> tuple[str, ...]:
    if isinstance(ids, str):
        return (ids,)
    if not isinstance(ids, list):
        errors.add(f'{where}: ids = {show(ids)} is not a list of column names. Write ids = ["patient_id"].')
        return ()
    return tuple(ids)


def toml_targets(values: Mapping[str, Any], where: str, errors: SchemaErrors) -> tuple[AnyTarget, ...]:
    """Read the targets, if any, from the values of a TOML file. Errors are added to ``errors``.

    For one target, ``target_levels`` or ``target_bounds`` is a list. For several, it is a table with one list per name.
    """
    found: list[AnyTarget] = []
    described: list[tuple[Any, dict[str, Any]]] = []
    with errors.catch():
        described = _described_targets(values, where)
    for name, given in described:
        with errors.catch(name):
            found.append(_toml_target(name, given))
    return tuple(found)


def _described_targets(values: Mapping[str, Any], where: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return the name of each target, with what ``target_levels`` or ``target_bounds`` says of it."""
    given = [key for key in ("target_levels", "target_bounds") if key in values]
    if "target" not in values:
        if given:
            raise TableError(f'{where} has {given[0]} but no target. Add target = "column".')
        return []
    if len(given) > 1:
        raise TableError(
            f"{where} has both target_levels and target_bounds. Keep the levels for a category, or the bounds for a "
            "number."
        )
    name = values["target"]
    if not isinstance(name, list):
        return [(name, {key: values[key] for key in given})]
    if not name:
        raise TableError(f'{where} has an empty list of targets. Write target = "column", or name several.')
    tables: dict[str, Any] = {key: values[key] for key in given}
    for key, table in tables.items():
        if not isinstance(table, dict) or not set(table) <= set(name):
            raise TableError(
                f"{where} has several targets, but {key} = {show(table)} is not a table of their names. Write "
                f"{key} = {{ {name[0]} = [...] }}."
            )
    return [(each, {key: table[each] for key, table in tables.items() if each in table}) for each in name]


def _toml_target(name: Any, given: Mapping[str, Any]) -> AnyTarget:
    if "target_bounds" in given:
        return NumericTarget(name, *pair(name, "target_bounds", given["target_bounds"]))
    return Target(name, given.get("target_levels"))


def pair(name: object, key: str, bounds: object) -> tuple[Any, Any]:
    """Return the bounds of a column, which must be a list of two."""
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise TableError(f"Column {name!r}: the bounds {show(bounds)} are not a pair. Write {key} = [low, high].")
    return bounds[0], bounds[1]


def parse_bounds(text: str) -> Numeric | Date:
    """Read a text such as ``age=0:120`` or, for dates, ``admitted=2019-01-01:2024-12-31``.

    The name ends at the last ``=``. A format of dates may follow their bounds, as in
    ``admitted=2019-01-01:2024-12-31:%d/%m/%Y``.
    """
    name, _, bounds = text.rpartition("=")
    low, _, rest = bounds.partition(":")
    high, _, form = rest.partition(":")
    if to_date(low) and to_date(high):
        return Date(name.strip(), low, high, form.strip() or None)  # type: ignore[arg-type]  # it converts texts
    return Numeric(name.strip(), *low_and_high(bounds, text, "column=low:high, as in age=0:120"))


def parse_levels(text: str) -> Categorical:
    """Read a text such as ``sex=female,male``. The name ends at the first ``=``; a level with a comma needs quotes."""
    name, equals, levels = text.partition("=")
    if not equals:
        raise TableError(f"The levels {show(text)} cannot be read. Write column=level,level as in sex=female,male.")
    return Categorical(name.strip(), tuple(next(csv.reader([levels], skipinitialspace=True), [])))


def low_and_high(bounds: str, text: str, form: str) -> tuple[float, float]:
    """Read bounds such as ``0:120``, which are a part of ``text``."""
    low, _, high = bounds.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise TableError(f"The bounds {show(text)} cannot be read. Write {form}.") from None
