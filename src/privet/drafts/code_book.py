"""Reading a code book: a public description of the columns, as a table or as text with one column per line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from privet.drafts.draft import Draft, DraftColumn
from privet.drafts.entries import Entry, range_error
from privet.drafts.lines import entry_of
from privet.drafts.wording import Bound, Bounds, Level, bound_of, bounds_of, levels_of
from privet.tables.errors import TableError, listing

_HEADERS = {
    "name": "name variable variable_name var varname column column_name col field field_name feature attribute "
    "variable_field_name spalte merkmal variablenname feld",
    "type": "type data_type datatype dtype kind class field_type variable_type measurement_level level_of_measurement "
    "typ datentyp skalenniveau",
    "low": "min minimum low lower lower_bound lower_limit from min_value text_validation_min untergrenze von",
    "high": "max maximum high upper upper_bound upper_limit to max_value text_validation_max obergrenze bis",
    "bounds": "range bounds valid_range allowed_range value_range limits interval wertebereich bereich",
    "values": "values value levels level codes code coding categories choices options labels value_labels valid_values "
    "allowed_values permitted_values possible_values enumeration choices_calculations_or_slider_labels "
    "werte wert auspraegungen kategorien stufen kodierung",
    "unit": "unit units uom einheit",
    "description": "description label variable_label question meaning definition field_label title comment comments "
    "note notes explanation beschreibung bedeutung bezeichnung kommentar frage",
    "missing": "missing missing_codes missing_code missing_values missing_value na na_values null nulls nullable "
    "fehlend fehlende_werte",
    "format": "format date_format",
    "role": "role usage use identifier rolle",
    "label": "value_label code_label level_label",
}
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})
HEADERS = {header: part for part, headers in _HEADERS.items() for header in headers.split()}
SEPARATORS = (",", ";", "\t", "|")
_ADVICE = "Write one column per line, as in age: integer, 0-120, or begin the line with # if it is a comment."
_OF_A_LEVEL = {"name", "values", "label", "description"}
_TARGETS = {"target", "outcome", "response", "dependent", "label"}
_IDS = {"id", "identifier", "key", "y", "yes"}


@dataclass(frozen=True)
class Problem:
    """A line of a code book that was not understood."""

    line: int
    message: str


@dataclass(frozen=True)
class CodeBook:
    """What a code book says.

    Parameters
    ----------
    draft : Draft
        Columns whose entry has a problem are in it as columns that are not used, with the problem as comment.
    problems : tuple of Problem
    """

    draft: Draft
    problems: tuple[Problem, ...]


def read_code_book(path: str | Path) -> CodeBook:
    """Read a code book. It must be public: nothing in it is protected."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TableError(f"privet cannot read the code book {path}: {error.strerror}. Check the path.") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")  # the usual other encoding; a code book is public
    return parse_code_book(text, path.name)


def parse_code_book(text: str, name: str = "code book") -> CodeBook:
    """Return what the text of a code book says."""
    problems: list[Problem] = []
    entries: dict[str, Entry] = {}
    for entry in _entries(text, problems):
        if entries.setdefault(entry.name, entry) is not entry:
            problems.append(Problem(entry.line, f"{entry.name!r} is described twice. Keep one of the descriptions."))
    columns = [_column(entry, problems) for entry in entries.values()]
    if not columns:
        raise TableError(
            f"No column was found in {name}. {_ADVICE} Or give a table with a header such as name,type,range."
        )
    origin = (
        f"Drafted by privet schema from the code book {name}. No row of the table was read, and no budget was spent.",
        "Check each line: bounds and levels must be public facts about a column, not its least and largest cell.",
    )
    return CodeBook(Draft(origin, tuple(columns)), tuple(sorted(problems, key=lambda problem: problem.line)))


def _column(entry: Entry, problems: list[Problem]) -> DraftColumn:
    try:
        return entry.column()
    except TableError as error:
        problems.append(Problem(entry.line, str(error)))
        about = (f"{entry.description}.",) if entry.description else ()
        return DraftColumn(entry.name, comments=(f"line {entry.line} of the code book: {error}", *about))


def _entries(text: str, problems: list[Problem]) -> Iterator[Entry]:
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not _is_comment(line):
            separator = next((each for each in SEPARATORS if _is_header(_cells(line, each))), None)
            if separator is not None:
                return _table_entries(lines, start, separator, problems)
            break
    return _line_entries(lines, problems)


# ---------------------------------------------------------------------------------------------------- lines of text


def _line_entries(lines: Sequence[str], problems: list[Problem]) -> Iterator[Entry]:
    is_code = False
    for number, line in enumerate(lines, start=1):
        is_code ^= line.strip().startswith("```")
        if _is_comment(line) or line.strip().startswith("```"):
            continue
        try:
            yield entry_of(line, number)
        except TableError as error:
            problems.append(Problem(number, f"{error} {_ADVICE}"))


def _is_comment(line: str) -> bool:
    """Return whether a line says nothing: blank, a heading or comment, a rule, or a section of a schema file."""
    return bool(re.fullmatch(r"\s*(?:[#%>].*|//.*|<!--.*-->|[-=*_|:+\s]*|\[\w+\])\s*", line))


# ---------------------------------------------------------------------------------------------------------- tables


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip().strip("|") if separator == "|" else line
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]


def _part_of(header: str) -> str | None:
    """Return what a column of a code book is about."""
    plain = re.sub(r"\(.*?\)|[*`?]", " ", header.lower()).translate(_UMLAUTS)
    return HEADERS.get("_".join(re.findall(r"[a-z]+", plain)))


def _is_header(cells: Sequence[str]) -> bool:
    parts = [_part_of(cell) for cell in cells]
    return "name" in parts and len({part for part in parts if part}) >= 2


def _table_entries(lines: Sequence[str], start: int, separator: str, problems: list[Problem]) -> Iterator[Entry]:
    parts: list[str | None] = []
    headers: list[str] = []
    current: Entry | None = None
    for number, cells in _rows(lines, start, separator):
        if not parts:
            headers, parts = list(cells), _first_of_each([_part_of(cell) for cell in cells])
            unknown = [cell for cell, part in zip(cells, parts, strict=True) if part is None and cell]
            if unknown:
                known = ", ".join(("name", "type", "min", "max", "range", "values", "unit", "description", "missing"))
                message = f"The columns {listing(unknown)} of the code book are not used. privet understands {known}."
                problems.append(Problem(number, message))
            continue
        if len(cells) > len(headers) and any(cells[len(headers) :]):
            message = (
                f"The line has {len(cells)} cells, but the header has {len(headers)}. Quote cells with {separator!r}."
            )
            problems.append(Problem(number, message))
            continue
        row = {part: cell for part, cell in zip(parts, cells, strict=False) if part and cell}
        if not row:
            continue
        name = row.get("name", "").strip('`*" ')
        try:
            if current is not None and name in ("", current.name) and "values" in row and set(row) <= _OF_A_LEVEL:
                _add_level(current, row)
                continue
            if current is not None:
                yield current
            current = None
            if not name:
                raise TableError("The line has no name of a column. Write the name in the first column.")
            current = _entry(row, name, number)
        except TableError as error:
            if name:
                yield Entry(name, number, problem=str(error))
            else:
                problems.append(Problem(number, str(error)))
    if current is not None:
        yield current


def _rows(lines: Sequence[str], start: int, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table, each with the number of its first line. Quoted cells may span several lines."""
    if separator == "|":
        for number, line in enumerate(lines[start:], start=start + 1):
            if line.strip().strip("|-: \t"):
                yield number, _cells(line, separator)
        return
    reader = csv.reader(io.StringIO("\n".join(lines[start:]), newline=""), delimiter=separator)
    before = 0
    for cells in reader:
        number, before = start + before + 1, reader.line_num
        if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
            yield number, [cell.strip() for cell in cells]


def _first_of_each(parts: Sequence[str | None]) -> list[str | None]:
    """Return the parts without repetitions: of two columns with descriptions, the first one counts."""
    return [None if part in parts[:place] else part for place, part in enumerate(parts)]


def _entry(row: dict[str, str], name: str, number: int) -> Entry:
    entry = Entry(name, number, row.get("type", ""), description=row.get("description", ""), unit=row.get("unit", ""))
    entry.missing, entry.format = row.get("missing", ""), row.get("format")
    role = row.get("role", "").lower()
    entry.is_target, entry.is_id = role in _TARGETS, role in _IDS
    if "bounds" in row:
        bounds = bounds_of(row["bounds"])
        if bounds is None:
            raise range_error(name, row["bounds"])
        entry.bounds = bounds
    entry.bounds |= Bounds(_bound(row, "low"), _bound(row, "high"))
    if "values" in row:
        bounds = bounds_of(row["values"])
        if bounds is not None:
            entry.bounds |= bounds
        else:
            entry.levels = _levels(row)
    return entry


def _bound(row: dict[str, str], side: str) -> Bound | None:
    return bound_of(row[side]) if side in row else None


def _levels(row: dict[str, str]) -> list[Level]:
    levels = levels_of(row.get("values", ""))
    if len(levels) == 1 and "label" in row:
        return [Level(levels[0].code, row["label"])]
    return levels


def _add_level(entry: Entry, row: dict[str, str]) -> None:
    """Add a level to an entry, from a code book with one line per level. The description is then that of the level."""
    if len(entry.levels) == 1 and not entry.levels[0].label and "description" in row:
        entry.levels = [Level(entry.levels[0].code, entry.description)]
        entry.description = ""
    entry.levels += _levels({"label": row.get("description", "")} | row)
