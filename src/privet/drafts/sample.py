"""Drafting a schema from a public sample: rows that need no protection, such as published or invented ones."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np

from privet.drafts.draft import Draft, DraftColumn
from privet.drafts.recognition import FORMATS, SLASHED, Cells, Kind
from privet.drafts.round_numbers import widened
from privet.drafts.wording import is_id_name
from privet.tables import Categorical, Date, Numeric
from privet.tables.cells import LEVEL, REFUSE
from privet.tables.errors import listing

if TYPE_CHECKING:
    import pandas as pd

_FEW_NUMBERS = 10
_MOST_LEVELS = 50
_MOST = 0.9  # the share of cells of one kind from which on the others are taken for mistakes


def from_sample(frame: pd.DataFrame, name: str = "a public sample", *, decimal: str | None = None) -> Draft:
    """Return a draft that is read off the cells of a public table. Nothing in this table is protected.

    ``decimal`` is the mark before the decimals in texts (see :func:`privet.tables.decimal_mark`).
    """
    origin = (
        f"Drafted by privet schema from {name}, {len(frame):,} rows. They must be public: what follows is read off "
        "their cells without any protection. If they are rows of people who were promised privacy, delete this file.",
        "Bounds are widened to round numbers, because private rows may lie beyond those of the sample. Check them.",
    )
    cells = (Cells.of(frame.iloc[:, place], decimal) for place in range(frame.shape[1]))
    return Draft(origin, tuple(_column(str(label), each) for label, each in zip(frame.columns, cells, strict=True)))


def _column(name: str, cells: Cells) -> DraftColumn:
    counts = dict(zip(Kind, cells.by_kind().tolist(), strict=True))
    missing = counts.pop(Kind.MISSING)
    filled = sum(counts.values())
    if not filled:
        return DraftColumn(name, comments=("all cells of the sample are missing.",))
    rule = LEVEL if missing else REFUSE
    absent: tuple[str, ...] = (
        (f"{missing:,} of {missing + filled:,} cells of the sample are missing.",) if missing else ()
    )
    choices: tuple[tuple[Kind, ...], ...] = ((Kind.NUMBER,), (Kind.DATE,), SLASHED)
    kinds = max(choices, key=lambda each: sum(counts[kind] for kind in each))
    if sum(counts[kind] for kind in kinds) < _MOST * filled:
        return _texts(name, cells, filled, rule, absent)
    if others := list(cells.levels(*kinds)):
        absent += (f"Some cells of the sample are of another kind, and would be errors: {listing(others)}.",)
    return (_numbers if kinds == (Kind.NUMBER,) else _dates)(name, cells, rule, absent)


def _numbers(name: str, cells: Cells, rule: str, more: tuple[str, ...]) -> DraftColumn:
    values = np.unique(cells.tally(Kind.NUMBER)[0])
    low, high = float(values[0]), float(values[-1])
    if is_id_name(name):
        return DraftColumn(name, comments=("numbers, but its name suggests an ID. List it in ids, or declare bounds.",))
    found = f"numbers from {low:g} to {high:g} in the sample"
    if low < high and len(values) <= _FEW_NUMBERS and (values == np.round(values)).all():
        codes = ", ".join(f'"{value:g}"' for value in values)
        hint = f"Only {len(values)} different ones: if they are codes, declare levels = [{codes}] under [categorical]"
        return DraftColumn(name, Numeric(name, low, high, missing=rule), comments=(f"{found}.", f"{hint}.", *more))
    comments = (f"{found}, widened to round bounds.", *more)
    return DraftColumn(name, Numeric(name, *widened(low, high), missing=rule), comments=comments)


def _dates(name: str, cells: Cells, rule: str, more: tuple[str, ...]) -> DraftColumn:
    is_slashed = not cells.tally(Kind.DATE)[0].size or cells.tally(*SLASHED)[0].size > cells.tally(Kind.DATE)[0].size
    years = cells.tally(*(SLASHED if is_slashed else (Kind.DATE,)))[0].astype(int)
    low, high = datetime.date(int(years.min()), 1, 1), datetime.date(int(years.max()), 12, 31)
    form = None
    comments: tuple[str, ...] = (f"dates of the years {low.year} to {high.year} in the sample.",)
    if is_slashed:
        day, month = (cells.tally(kind)[1].sum() for kind in (Kind.DAY_FIRST, Kind.MONTH_FIRST))
        form = FORMATS[Kind.MONTH_FIRST if month > day else Kind.DAY_FIRST]
        if not day and not month:
            comments += (f"The format {form} is a guess: the sample does not tell whether the day is first.",)
        if day and month:
            comments += (f"Some dates of the sample are not written as {form}, and would be errors.",)
    return DraftColumn(name, Date(name, low, high, format=form, missing=rule), comments=(*comments, *more))


def _texts(name: str, cells: Cells, filled: int, rule: str, more: tuple[str, ...]) -> DraftColumn:
    levels = tuple(cells.levels())
    if len(levels) < 2:
        return DraftColumn(name, comments=(f"the sample has only one level, {levels[0]!r}. A feature needs two.",))
    if len(levels) > _MOST_LEVELS or (len(levels) == filled > 2):
        what = f"texts with {len(levels):,} different values in {filled:,} cells: free text or an ID, see ids"
        return DraftColumn(name, comments=(f"{what}.",))
    comments = ("the levels of the sample. Add those that it happens to lack.", *more)
    return DraftColumn(name, Categorical(name, levels, missing=rule), comments=comments)
