"""Drafting a schema by asking a person about each column. Only the names of the columns are known."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privet.drafts.draft import Draft, DraftColumn, check_names
from privet.drafts.wording import IMPLIED_LEVELS, bounds_of, is_id_name
from privet.tables import Date, Numeric, TableError, parse_levels
from privet.tables.cells import LEVEL, REFUSE
from privet.tables.dates import to_date
from privet.tables.features import Feature

BACK = "<"
KINDS = {"n": "number", "c": "category", "d": "date", "i": "ID", "x": "not used"}
_HELP = f"Enter takes the answer in brackets, and {BACK} goes back to the question before."

Conversation = Generator["Question", Any, Draft]


@dataclass(frozen=True)
class Question:
    """A question to a person.

    Parameters
    ----------
    text : str
    default : str
        The answer of a person who only presses Enter. Empty if there is none.
    read : callable
        Returns the meaning of an answer, or raises TableError with what to write instead.
    """

    text: str
    default: str
    read: Callable[[str], Any]

    @property
    def prompt(self) -> str:
        """The question with its default."""
        return f"{self.text} [{self.default}]: " if self.default else f"{self.text}: "


def from_answers(
    names: Sequence[str],
    ask: Callable[[str], str],
    tell: Callable[[str], None],
    *,
    target: str | None = None,
    ids: Sequence[str] = (),
) -> Draft:
    """Return a draft from what a person answers.

    Parameters
    ----------
    names : sequence of str
        The columns of the table, in order.
    ask : callable
        Shows a prompt and returns the line that the person writes.
    tell : callable
        Shows a text.
    target, ids
        What is known already, and not asked about.
    """
    check_names([*ids, *([] if target is None else [target])], names)
    tell(f"{len(names)} columns. {_HELP}")
    answers: list[Any] = []
    while True:
        conversation = _conversation(names, target, tuple(ids))
        try:
            question = next(conversation)
            for answer in answers:
                question = conversation.send(answer)
            while True:
                answers.append(_answer(question, ask, tell))
                question = conversation.send(answers[-1])
        except _GoBackError:
            answers = answers[:-1]  # the conversation starts again, with all answers but the last
        except StopIteration as end:
            draft: Draft = end.value
            return draft


class _GoBackError(Exception):
    """The person wants to answer the question before again."""


def _answer(question: Question, ask: Callable[[str], str], tell: Callable[[str], None]) -> Any:
    while True:
        written = ask(question.prompt).strip()
        if written == BACK:
            raise _GoBackError
        if not written and not question.default:
            tell("Please answer this question. There is no default.")
            continue
        try:
            return question.read(written or question.default)
        except TableError as error:
            tell(str(error))


def _conversation(names: Sequence[str], target: str | None, ids: Sequence[str]) -> Conversation:
    if target is None:
        target = yield Question(
            "Which column is to be predicted (none if there is no such column)", "none", lambda text: _name(text, names)
        )
    columns = []
    for number, name in enumerate(names, start=1):
        if name in ids:
            columns.append(DraftColumn(name, is_id=True))
            continue
        column = yield from _column(f"{number}/{len(names)} {name}", name, name == target)
        columns.append(column)
    origin = (
        "Drafted by privet schema from answers in the terminal. No row of the table was read and no budget spent.",
        "Bounds and levels must be public facts about a column, not its least and largest cell.",
    )
    return Draft(origin, tuple(columns))


def _column(place: str, name: str, is_target: bool) -> Generator[Question, Any, DraftColumn]:
    offered = {sign: word for sign, word in KINDS.items() if not is_target or sign in "nc"}
    words = ", ".join(f"{sign} = {word}" for sign, word in offered.items())
    role = " (to be predicted)" if is_target else ""
    kind = yield Question(
        f"{place}{role}: {words}", "c" if is_target else _guess(name), lambda text: _kind(text, offered)
    )
    if kind in ("i", "x"):
        comments = ("not used, as answered.",) if kind == "x" else ()
        return DraftColumn(name, is_id=kind == "i", comments=comments)
    if kind == "c":
        text = f"  levels of {name}, separated by commas?"
        feature: Feature = yield Question(text, "", lambda text: parse_levels(f"{name}={text}"))
        what = "levels as answered"
    elif kind == "n":
        text = f"  least and largest plausible value of {name}, as in 0:120?"
        feature = yield Question(text, "0:120" if name.lower() == "age" else "", lambda text: _numeric(name, text))
        what = "bounds as answered"
    else:
        text = f"  first and last plausible day of {name}, as in 2019-01-01:2024-12-31?"
        low, high = yield Question(text, "", _days)
        text = "  how dates are written: iso = 2019-01-31 or 31.1.2019, or a format such as %d/%m/%Y"
        feature = yield Question(text, "iso", lambda text: Date(name, low, high, None if text == "iso" else text))
        what = "bounds as answered"
    if is_target:
        return DraftColumn(name, feature, comments=(f"{what}.",)).as_target()
    feature = yield Question(
        f"  can cells of {name} be missing: y = yes, n = no",
        "n",
        lambda text: replace(feature, missing=LEVEL if _yes(text) else REFUSE),
    )
    return DraftColumn(name, feature, comments=(f"{what}.",))


def _guess(name: str) -> str:
    """Return a kind that the name of a column suggests. Only names are known here."""
    words = set("".join(sign if sign.isalnum() else " " for sign in name.lower()).split())
    if is_id_name(name):
        return "i"
    if words & {"date", "day", "birth", "born", "dob", "datum"} or name.lower().endswith("date"):
        return "d"
    return "c" if words & {"sex", "gender", "type", "status", "group", "code", "country", *IMPLIED_LEVELS} else "n"


def _name(text: str, names: Sequence[str]) -> str | None:
    if text == "none" and text not in names:
        return None
    check_names([text], names)
    return text


def _kind(text: str, offered: dict[str, str]) -> str:
    for sign, word in offered.items():
        if text.lower() in (sign, word.lower()):
            return sign
    raise TableError(f"{text!r} is not one of the answers. Write one of {', '.join(offered)}.")


def _numeric(name: str, text: str) -> Numeric:
    bounds = bounds_of(text)
    if bounds is None or bounds.low is None or bounds.high is None:
        raise TableError(f"{text!r} is not a pair of numbers. Write the least and the largest value, as in 0:120.")
    return Numeric(name, bounds.low, bounds.high)  # type: ignore[arg-type]  # it checks them


def _days(text: str) -> tuple[Any, Any]:
    bounds = bounds_of(text)
    if bounds is None or to_date(bounds.low) is None or to_date(bounds.high) is None:
        raise TableError(f"{text!r} is not a pair of days. Write them as in 2019-01-01:2024-12-31.")
    Date("the column", bounds.low, bounds.high)  # type: ignore[arg-type]  # raises if they are in the wrong order
    return bounds.low, bounds.high


def _yes(text: str) -> bool:
    if text.lower() in ("y", "yes"):
        return True
    if text.lower() in ("n", "no"):
        return False
    raise TableError(f"{text!r} is not one of the answers. Write y or n.")
