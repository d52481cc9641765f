"""Drafting a schema from private rows, for a part of the privacy budget."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from privet.checks import positive
from privet.drafts.answers import SURE, Answer, ask, cells_of, is_enough
from privet.drafts.draft import Draft, DraftColumn, check_different, check_names
from privet.drafts.plan import DraftPlan
from privet.drafts.recognition import FORMATS, SLASHED, Kind
from privet.drafts.round_numbers import rounded_bounds
from privet.drafts.wording import is_id_name
from privet.privacy import Budget, Guarantee, NoiseSource
from privet.privacy.budget import default_delta
from privet.privacy.ledger.spending import book_spending
from privet.tables import Categorical, Date, Numeric, NumericTarget, TableError, Target
from privet.tables.cells import LEVEL, MISSING, REFUSE, check_name

if TYPE_CHECKING:
    import pandas as pd

_MOST_CODES = 20
_MOST_OTHERS = 0.1
_NAMES = {
    Kind.NUMBER: "numbers",
    Kind.TEXT: "texts",
    Kind.DATE: "dates",
    Kind.DAY_FIRST: "dates such as 31/12/2020",
    Kind.MONTH_FIRST: "dates such as 12/31/2020",
    Kind.EITHER_FIRST: "dates such as 01/02/2020",
}


def from_rows(
    frame: pd.DataFrame,
    epsilon: float,
    delta: float | None = None,
    *,
    target: str | None = None,
    ids: Iterable[str] = (),
    decimal: str | None = None,
    random_state: int | None = None,
    before_asking: Callable[[Guarantee], None] = lambda guarantee: None,
) -> tuple[Draft, Guarantee]:
    """Return a draft of the schema of a private table, and the guarantee of the draft.

    Parameters
    ----------
    frame : DataFrame
        The table. The names of its columns and the number of its rows are public.
    epsilon : float
    delta : float or None
        None means min(1e-6, 0.01/n). It must not be 0.
    target : str or None
        The column to predict.
    ids : sequence of str
        Columns that are never used. Nothing is asked about them.
    decimal : "," or "." or ",." or None
        The mark before the decimals in texts, by which the other one separates thousands. ",." stands for either one,
        in each cell by itself, and None for a point. See :func:`privet.tables.decimal_mark`.
    random_state : int or None
        None draws from a cryptographically secure generator.
    before_asking : callable
        Gets the guarantee before any noise is drawn: the moment to record what this costs. If it raises an error,
        nothing is spent.

    Formal guarantees
    -----------------
    The draft, with all of its comments, satisfies the returned guarantee (:class:`~privet.drafts.plan.DraftPlan`).
    """
    names = list(map(str, frame.columns))
    check_different(names)
    ids = tuple(ids)
    check_names([*ids, *([] if target is None else [target])], names)
    if target is not None:
        check_name(target)
    asked = [name for name in names if name not in ids and name.strip()]
    if not asked:
        raise TableError("All columns are IDs or have no name, so there is nothing to describe.")
    n = len(frame)
    budget = Budget(positive("epsilon", epsilon), default_delta(n) if delta is None else delta)
    plan = DraftPlan.for_budget(budget, len(asked))
    if not is_enough(plan, n):
        raise TableError(_too_few(budget, len(asked), n))
    source = NoiseSource(random_state, purpose=f"draft of a schema {budget!r}")
    guarantee = plan.guarantee().assuming(source.assumption())
    before_asking(guarantee)
    book_spending(guarantee, "draft of a schema")
    answers = {each.name: each for each in ask(cells_of(frame, asked, decimal), target, plan, source)}
    columns = tuple(column_of(answers[name]) if name in answers else _not_asked(name) for name in names)
    return Draft(_origin(guarantee), columns), guarantee


def _not_asked(name: str) -> DraftColumn:
    if name.strip():
        return DraftColumn(name, is_id=True)
    return DraftColumn(name, comments=("a column without a name cannot be used. Name it in the header of the table.",))


def _too_few(budget: Budget, n_columns: int, n: int) -> str:
    """Return the error for a table that is too small for its budget, with the epsilon or the rows that would do."""
    epsilon, rows = budget.epsilon, n
    while epsilon < 100 and not is_enough(DraftPlan.for_budget(Budget(epsilon, budget.delta), n_columns), n):
        epsilon *= 1.1
    while not is_enough(DraftPlan.for_budget(budget, n_columns), rows):
        rows = math.ceil(1.1 * rows)
    enough = f"About {float(f'{rows:.2g}'):,.0f} rows would do at this epsilon"
    enough += f", or epsilon = {math.ceil(10 * epsilon) / 10:g} for these rows" if epsilon <= 10 else ""
    return (
        f"epsilon = {budget.epsilon:g}, shared by {n_columns} columns, is too small for {n} rows: the draft would be "
        f"noise, so nothing was asked or spent. {enough}. Or describe the columns in a code book (--code-book) or in "
        "the terminal (--ask), which costs nothing."
    )


def _origin(guarantee: Guarantee) -> tuple[str, ...]:
    return (
        "Drafted by privet schema from private rows, with differential privacy. This file may be published under this "
        "guarantee, in addition to what else is released from the same rows:",
        *guarantee.statement(verbose=True).splitlines(),
        "All numbers of cells below have noise. Where you know a column, correct its line: what is generally known "
        "about a column is better than an estimate. Do not correct bounds or levels by looking at the rows.",
    )


def column_of(answer: Answer) -> DraftColumn:
    """Return the draft of a column. It depends on what was released only."""
    if not answer.kinds:
        return _unused(answer, "hardly any of its cells is a number, a text or a date", *_others(answer))
    drafted = {
        (Kind.NUMBER,): _numbers,
        (Kind.TEXT,): _texts,
        (Kind.DATE,): _dates,
        SLASHED: _dates,
    }[answer.kinds]
    return drafted(answer)


def _numbers(answer: Answer) -> DraftColumn:
    if answer.is_target and _are_codes(answer):
        assert answer.levels is not None
        return DraftColumn(
            answer.name,
            target=Target(answer.name, tuple(answer.levels)),
            comments=(
                f"the column to predict. Its numbers are taken for classes, because few of them cover most cells: "
                f"{_counted(answer)}. To predict a number, remove target_levels and write target_bounds = [low, high].",
                *_others(answer),
            ),
        )
    if answer.bounds is None:
        return _few_cells(answer)
    if is_id_name(answer.name) and not answer.is_target:
        return _unused(answer, "numbers, but its name suggests an ID. List it in ids, or declare bounds")
    low, high = rounded_bounds(*answer.bounds)
    comments = (*_about_bounds(answer), *_others(answer))
    if answer.is_target:
        return DraftColumn(answer.name, target=NumericTarget(answer.name, low, high), comments=comments)
    return DraftColumn(answer.name, Numeric(answer.name, low, high, missing=_rule(answer)), comments=comments)


def _texts(answer: Answer) -> DraftColumn:
    assert answer.levels is not None
    least = f"A level is found only if at least about {answer.threshold:,.0f} rows have it"
    if len(answer.levels) < 2:
        what = f"texts, of which fewer than two are frequent. {least}. It may be free text or an ID: ids = [...]"
        if answer.is_target:
            return DraftColumn(answer.name, target=Target(answer.name), comments=(f"{what}. Declare target_levels.",))
        return _unused(answer, what)
    missing = answer.number(*Kind) - answer.number(Kind.MISSING) - sum(answer.levels.values())
    comments = [f"levels with noisy numbers of rows: {_counted(answer)}. {least}.", *_others(answer)]
    if missing > SURE * answer.std * math.sqrt(len(answer.levels) + len(Kind)):
        comments.insert(1, f"About {missing:,.0f} cells have other, rarer levels: add those that you know.")
    levels = tuple(answer.levels)
    if answer.is_target:
        return DraftColumn(answer.name, target=Target(answer.name, levels), comments=tuple(comments))
    rule = REFUSE if MISSING in levels else str(_rule(answer))
    return DraftColumn(answer.name, Categorical(answer.name, levels, missing=rule), comments=tuple(comments))


def _dates(answer: Answer) -> DraftColumn:
    if answer.is_target:
        what = "the column to predict, but dates cannot be predicted. Replace them in the table by numbers of days"
        return _unused(answer, what)
    if answer.bounds is None:
        return _few_cells(answer)
    first, last = sorted(map(int, answer.bounds))
    low, high = datetime.date(first, 1, 1), datetime.date(last, 12, 31)
    comments = [*_about_bounds(answer), *_others(answer)]
    form = None
    if answer.kinds == SLASHED:
        order = sorted((Kind.MONTH_FIRST, Kind.DAY_FIRST), key=answer.number)
        form = FORMATS[order[1]]
        apart = answer.number(order[1]) - answer.number(order[0])
        is_clear = apart > SURE * answer.std * math.sqrt(2)
        comments.insert(
            1,
            f"The format {form} is "
            + ("that of most dates." if is_clear else "a guess: the noisy counts do not tell."),
        )
    feature = Date(answer.name, low, high, format=form, missing=_rule(answer))
    return DraftColumn(answer.name, feature, comments=tuple(comments))


def _are_codes(answer: Answer) -> bool:
    """Return whether a few levels cover most of the cells."""
    levels = answer.levels or {}
    covered = sum(levels.values())
    return 2 <= len(levels) <= _MOST_CODES and covered >= (1 - _MOST_OTHERS) * answer.number(Kind.NUMBER)


def _about_bounds(answer: Answer) -> tuple[str, ...]:
    what = _NAMES[answer.kinds[0]] if len(answer.kinds) == 1 else "dates with slashes"
    return (
        f"about {answer.number(*answer.kinds):,.0f} cells are {what}. The bounds are noisy quantiles, rounded "
        f"outwards: about {100 * answer.share:.2g} % of the cells may lie beyond each of them. Replace them by known "
        "limits if there are some.",
    )


def _few_cells(answer: Answer) -> DraftColumn:
    what = _NAMES[answer.kinds[0]] if len(answer.kinds) == 1 else "dates with slashes"
    return _unused(
        answer,
        f"about {answer.number(*answer.kinds):,.0f} cells are {what}, too few for private bounds. Declare bounds that "
        "are generally known",
    )


def _others(answer: Answer) -> tuple[str, ...]:
    """Return comments on missing cells, and on cells of another kind than the column."""
    found = []
    if answer.is_sure(Kind.MISSING):
        rows = "Drop these rows, because each needs a target." if answer.is_target else ""
        found.append(f"About {answer.number(Kind.MISSING):,.0f} cells are missing. {rows}".strip())
    for kind, name in _NAMES.items():
        if kind not in answer.kinds and answer.kinds != (Kind.TEXT,) and answer.is_sure(kind):
            found.append(f"About {answer.number(kind):,.0f} cells are {name}, which privet check lists as errors.")
    return tuple(found)


def _counted(answer: Answer) -> str:
    shown = [f"{level!r} {number:,.0f}" for level, number in (answer.levels or {}).items()]
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")


def _rule(answer: Answer) -> str:
    return LEVEL if answer.is_sure(Kind.MISSING) else REFUSE


def _unused(answer: Answer, why: str, *comments: str) -> DraftColumn:
    return DraftColumn(answer.name, comments=(f"{why}.", *comments))
