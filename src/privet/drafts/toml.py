"""Writing a draft as a TOML file that `TableSchema.from_toml` reads back."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from privet.drafts.draft import SECTIONS, Draft, DraftColumn, missing_rule, values_of
from privet.tables import Date
from privet.tables.features import Feature

_WIDTH = 110
_ADVICE = {
    "numeric": "Numbers are clipped to these bounds: wider bounds cost accuracy, narrower ones clip cells.",
    "categorical": "A cell that is none of these levels is an error. Add the levels that can occur; remove others.",
    "dates": "Dates are clipped to these bounds: wider bounds cost accuracy, narrower ones clip cells.",
    "missing": 'What missing cells are: "refuse" (an error, the default), "level" (one of their own) or a constant.',
}


def to_toml(draft: Draft) -> str:
    """Return the text of the schema file, with the comments of the draft."""
    lines = [*_comments(draft.origin), ""]
    targets = [column for column in draft.columns if column.target is not None]
    for column in targets[:1]:
        lines += _target_lines(column)
    if ids := [column for column in draft.columns if column.is_id]:
        lines += _comments(["IDs are never used for training. privet predict copies them to its output."])
        for column in ids:
            lines += _comments(_about(column) if column.comments else ())
        lines += [f"ids = {_value([column.name for column in ids])}", ""]
    for kind, section in SECTIONS.items():
        columns = [column for column in draft.columns if type(column.feature) is kind]
        if columns:
            lines += [f"[{section}]", *_comments([_ADVICE[section]])]
        for column in columns:
            assert column.feature is not None
            lines += [*_comments(_about(column)), f"{_key(column.name)} = {_entry(column.feature)}"]
        lines += [""] if columns else []
    rules = {feature.name: missing_rule(feature) for feature in draft.features}
    if any(rule is not None for rule in rules.values()):
        lines += ["[missing]", *_comments([_ADVICE["missing"]])]
        lines += [f"{_key(name)} = {_value(rule)}" for name, rule in rules.items() if rule is not None]
        lines.append("")
    if given := draft.form.to_dict():
        lines += ["[file]", *(f"{name} = {_value(value)}" for name, value in given.items()), ""]
    if unused := [column for column in draft.columns if not column.is_used]:
        lines += _comments(["Columns that are not used. To use one, declare it in a section above."])
        for column in unused:
            lines += _comments(_about(column) or [f"{column.name}: not described"])
    return "\n".join(lines).rstrip("\n") + "\n"


def _target_lines(column: DraftColumn) -> list[str]:
    assert column.target is not None
    lines = [*_comments(_about(column)), f"target = {_value(column.name)}"]
    if values := values_of(column.target):
        key = "target_bounds" if column.target.levels is None else "target_levels"
        lines.append(f"{key} = {_value(values)}")
    return [*lines, ""]


def _entry(feature: Feature) -> str:
    values = _value(values_of(feature))
    form = feature.format if isinstance(feature, Date) else None
    return values if form is None else f"{{ bounds = {values}, format = {_value(form)} }}"


def _about(column: DraftColumn) -> list[str]:
    """Return the comments of a column. The first one begins with its name, and the others belong to it."""
    return [f"{column.name}: {column.comments[0]}", *column.comments[1:]] if column.comments else []


def _comments(texts: Iterable[str]) -> list[str]:
    """Return comment lines. Control characters, which a TOML file must not contain, become spaces."""
    lines: list[str] = []
    for text in texts:
        plain = " ".join(re.sub(r"[\x00-\x1f\x7f\u2028\u2029\x85]", " ", text).split())
        lines += [f"# {line}" for line in textwrap.wrap(plain, _WIDTH, break_on_hyphens=False)]
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    """Return a value in the notation of TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


__all__ = ["to_toml"]
