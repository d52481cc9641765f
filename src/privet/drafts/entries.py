"""An entry of a code book: what it says about one column, and the draft of the column that follows from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date

from privet.drafts.draft import DraftColumn
from privet.drafts.wording import CATEGORY, DATE, ID, IMPLIED_LEVELS, NUMBER, TEXT, Bounds, Level, first_word, kind_of
from privet.tables import Categorical, Date, Numeric, TableError
from privet.tables.cells import LEVEL, REFUSE, is_mark, spelling
from privet.tables.errors import show
from privet.tables.features import Feature

_NEVER = {"", "no", "none", "never", "not allowed", "n", "false", "-"}
_SOME = {"yes", "y", "true", "allowed", "possible", "empty", "blank"}


@dataclass
class Entry:
    """What a code book says about one column, as far as it was understood.

    Parameters
    ----------
    name : str
    line : int
        Where the entry begins.
    type : str
        The type as it is written.
    problem : str
        What was not understood, and how to write it.
    """

    name: str
    line: int
    type: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    levels: list[Level] = field(default_factory=list)
    unit: str = ""
    description: str = ""
    missing: str = ""
    format: str | None = None
    is_target: bool = False
    is_id: bool = False
    problem: str = ""

    @property
    def kind(self) -> str | None:
        """What the column is. Labels of levels, as in ``1=male``, say more than the type of the codes."""
        stated = ID if self.is_id else kind_of(self.type)
        if stated in (ID, DATE):
            return stated
        has_labels = any(level.label for level in self.levels)
        if self.levels and (has_labels or stated != NUMBER):
            return CATEGORY
        if stated in (CATEGORY, NUMBER):
            return stated
        bound = self.bounds.low if self.bounds.low is not None else self.bounds.high
        if bound is None:
            return stated
        return DATE if isinstance(bound, date) else NUMBER

    def column(self) -> DraftColumn:
        """Return the draft of the column. Raise TableError, with the remedy, if the entry does not say enough."""
        if self.problem:
            raise TableError(self.problem)
        kind = self.kind
        if kind == ID:
            return DraftColumn(self.name, is_id=True, comments=self._comments("an ID"))
        if kind == TEXT:
            what = "text without levels, which is not used. If it is an ID, list it in ids"
            return DraftColumn(self.name, comments=self._comments(what))
        makers = {NUMBER: self._number, CATEGORY: self._category, DATE: self._date}
        if kind not in makers:
            raise TableError(
                f"{self._says_nothing()} Write for instance {self.name}: integer, 0-120, or list its levels."
            )
        feature, comments = makers[kind]()
        column = DraftColumn(self.name, feature, comments=comments)
        return column.as_target() if self.is_target else column

    def _number(self) -> tuple[Feature, tuple[str, ...]]:
        bounds, codes = self.bounds, self.missing_codes
        if bounds.low is None and bounds.high is None and self.levels:
            numbers = [_as_number(self.name, level.code) for level in self.levels]
            bounds = Bounds(min(numbers), max(numbers))
        low, high = self._both(bounds, "0-120")
        comments = self._comments("number", f"in {self.unit or bounds.unit}" if self.unit or bounds.unit else "")
        if codes:
            comments += (
                f"Missing codes {', '.join(codes)}: privet takes them for numbers. Replace them by empty cells in the "
                "table.",
            )
        return Numeric(self.name, low, high, missing=self._rule()), comments  # type: ignore[arg-type]  # it checks them

    def _category(self) -> tuple[Feature, tuple[str, ...]]:
        levels = list(self.levels) or [Level(each) for each in IMPLIED_LEVELS.get(first_word(self.type), ())]
        if any(re.fullmatch(r"\.{2,}|\u2026|etc\.?", level.code) for level in levels):
            raise TableError(f"The levels of {self.name!r} end in dots. List all of them.")
        if not levels:
            raise TableError(f"{self.name!r} is a category without levels. List them, as in {self.name}: female, male.")
        if len(levels) == 1:
            raise TableError(
                f"Only one level of {self.name!r} was found: {levels[0].code!r}. List all levels, separated by commas "
                "or semicolons, and quote the list if this sign separates the cells of the code book."
            )
        known = {spelling(level.code) for level in levels}
        levels += [Level(code, "missing") for code in self.missing_codes if spelling(code) not in known]
        labels = [f"{level.code} = {level.label}" for level in levels if level.label]
        comments = self._comments("category")
        comments += ("; ".join(labels) + ".",) if labels else ()
        if not self.levels:
            comments += (f"The code book says {self.type!r} and lists no levels. Check how cells spell them.",)
        return Categorical(self.name, tuple(level.code for level in levels), missing=self._rule()), comments

    def _date(self) -> tuple[Feature, tuple[str, ...]]:
        low, high = self._both(self.bounds, "2019-01-01 to 2024-12-31")
        if not isinstance(low, date) or not isinstance(high, date):
            raise TableError(f"The bounds of the dates {self.name!r} are not dates. Write them as in 2019-01-31.")
        comments = self._comments("date")
        if self.format is None:
            comments += ("Dates other than 2019-01-31 and 31.1.2019 need a format, see docs/tables.md.",)
        return Date(self.name, low, high, format=self.format, missing=self._rule()), comments

    @property
    def missing_codes(self) -> list[str]:
        """The codes of missing cells, other than texts that privet takes for missing cells anyway."""
        parts = re.split(r"[,;|]", self.missing)
        codes = [code for part in parts for code in ([part.partition("=")[0].strip()] if "=" in part else part.split())]
        return [code for code in codes if code.lower() not in _NEVER | _SOME and not is_mark(code)]

    def _rule(self) -> str:
        return REFUSE if self.missing.strip().lower() in _NEVER else LEVEL

    def _both(self, bounds: Bounds, example: str) -> tuple[float | date, float | date]:
        """Return both bounds, or raise the error that says which is missing."""
        if bounds.low is None or bounds.high is None:
            lacks = "bounds" if bounds.low is bounds.high else "a low bound" if bounds.low is None else "a high bound"
            raise TableError(
                f"{self.name!r} lacks {lacks}. Write both, as in {self.name}: {example}. They are limits that are "
                "generally known, not the least and the largest cell."
            )
        return bounds.low, bounds.high

    def _says_nothing(self) -> str:
        if self.type:
            return f"The type {self.type!r} of {self.name!r} is not known."
        return f"Neither a type, nor bounds, nor levels of {self.name!r} were found."

    def _comments(self, *words: str) -> tuple[str, ...]:
        """Return the first comment: what the column is."""
        about = " ".join(filter(None, words))
        described = f"{self.description.rstrip('.')} ({about})" if self.description else about
        return (f"{described}.",)


def range_error(name: str, text: str) -> TableError:
    """Return the error for a range that is not understood."""
    return TableError(f"The range {show(text)} of {name!r} is not understood. Write it as in 0-120.")


def _as_number(name: str, code: str) -> float:
    try:
        return float(code)
    except ValueError:
        raise TableError(
            f"The level {code!r} of the number {name!r} is not a number. Correct it, or declare a category."
        ) from None
