"""The kinds of features, and what the missing cells of each feature are: the section [missing], and --missing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from typing import Any, TypeAlias

from privet.tables.categories import Categorical
from privet.tables.cells import LEVEL, REFUSE
from privet.tables.dates import Date
from privet.tables.errors import SchemaErrors, TableError, did_you_mean, listing, show
from privet.tables.numbers import Numeric

Feature: TypeAlias = Numeric | Categorical | Date

FEATURES: dict[str, type[Feature]] = {"numeric": Numeric, "categorical": Categorical, "date": Date}
"""The classes of features by the names of their kinds in saved models."""

OTHERS = "*"
"""Stands for all columns without an entry of their own."""

_DEFAULTS = (
    ("missing", REFUSE),
    ("format", None),
)  # left out, so that schemas without them read as in earlier versions


def by_name(columns: Iterable[Feature]) -> dict[str, Feature]:
    """Return the columns by their names, which must be different."""
    named: dict[str, Feature] = {}
    for column in columns:
        if column.name in named:
            raise TableError(f"Column {column.name!r} is declared more than once. Keep one declaration.")
        named[column.name] = column
    return named


def feature_fields(feature: Feature) -> dict[str, Any]:
    """Return a feature as plain values that JSON can hold."""
    kind = next(name for name, each in FEATURES.items() if each is type(feature))
    values = {part.name: getattr(feature, part.name) for part in fields(feature)}
    given = {name: value for name, value in values.items() if (name, value) not in _DEFAULTS}
    return {"kind": kind, **{name: str(value) if isinstance(value, date) else value for name, value in given.items()}}


def toml_rules(values: Mapping[str, Any], where: str, errors: SchemaErrors) -> dict[str, Any]:
    """Return the rules of a schema file by column. A text, as in ``missing = "level"``, is a rule for all columns."""
    rules = values.get("missing", {})
    if isinstance(rules, str):
        rules = {OTHERS: rules}
    if not isinstance(rules, dict):
        errors.add(
            f"{where}: missing = {show(rules)} is not possible. Write [missing] with one line per column, as in "
            'sex = "level" or age = 40.'
        )
        return {}
    return dict(rules)


def option_rules(texts: Iterable[str], columns: Collection[str]) -> dict[str, Any]:
    """Return rules by column from texts such as ``level``, for all columns, or ``age=40`` and ``sex=level``."""
    rules: dict[str, Any] = {}
    for text in texts:
        named = [name for name in columns if text.startswith(f"{name}=")]
        name = max(named, key=len) if named else text.partition("=")[0].strip() if "=" in text else OTHERS
        if name in rules:
            raise TableError(f"missing is given twice for {'all columns' if name == OTHERS else repr(name)}: keep one.")
        rules[name] = text if name == OTHERS else text[len(name) + 1 :].strip() if named else text.partition("=")[2]
    return rules


def with_rules(
    features: Sequence[Feature], targets: Collection[str], rules: Mapping[str, Any], errors: SchemaErrors
) -> tuple[Feature, ...]:
    """Return the features with their rules for missing cells. Rules that are not possible are added to ``errors``."""
    names = {feature.name: None for feature in features}
    for name in rules:
        if name in targets:
            errors.add(
                f"missing is declared for the target {name!r}, but the target of each row must be known. Remove the "
                "entry, and drop rows without a target from the table.",
                name,
            )
        elif name != OTHERS and name not in names and name not in errors.columns:
            remedy = did_you_mean(name, [*names]) or f"The features are {listing([*names])}."
            errors.add(f"missing is declared for {name!r}, which is not a declared feature. {remedy}", name)
    others = rules.get(OTHERS, REFUSE)
    if others not in (REFUSE, LEVEL):
        errors.add(
            f"missing = {show(others)} is not possible for all columns. Use {REFUSE!r} or {LEVEL!r}, and name the "
            "column of a constant, as in age=40."
        )
        others = REFUSE
    found = []
    for feature in features:
        with errors.catch(feature.name):
            found.append(_with_rule(feature, rules.get(feature.name, others)))
    return tuple(found)


def _with_rule(feature: Feature, rule: Any) -> Feature:
    if isinstance(feature, Numeric) and isinstance(rule, str) and rule not in (REFUSE, LEVEL):
        with contextlib.suppress(ValueError):  # Numeric names the remedy
            rule = float(rule)  # from a text such as age=40
    return replace(feature, missing=rule)
