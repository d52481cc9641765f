"""The check of a table: everything that keeps it from being used, all at once, and what else its owner should know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privet.tables.bounds import BoundedColumn
from privet.tables.categories import distinct_levels
from privet.tables.cells import is_mark, spelling
from privet.tables.delimited import Remarks
from privet.tables.errors import SchemaError, TableError, did_you_mean, show
from privet.tables.findings import N_ROWS, Finding, Severity, grouped, schema_findings
from privet.tables.lines import WrongLine
from privet.tables.reading import read_header, read_sound_rows
from privet.tables.targets import Target

if TYPE_CHECKING:
    import pandas as pd

    from privet.tables.schema import TableSchema


MOST_MISSING = 50
"""If more declared columns are missing, they are listed in one finding, without a guess of what each is called."""


@dataclass(frozen=True)
class Report:
    """The findings on a table file, first those on the whole table and then by column, and its number of rows."""

    findings: tuple[Finding, ...]
    n_rows: int

    @property
    def is_accepted(self) -> bool:
        """Whether a model can be trained on the table."""
        return not any(finding.is_problem for finding in self.findings)


def check_table(path: str | Path, schema: TableSchema | None, error: SchemaError | None = None) -> Report:
    """Return the findings on a table file. Raise TableError if there is no such file.

    ``schema`` and ``error`` are the schema and what is wrong with it. The table is checked by the rest of the schema.
    """
    path = Path(path)
    if not path.is_file():
        read_header(path)  # names the mistake
    found = [] if error is None else schema_findings(error)
    wrong = set() if error is None else error.errors.columns
    names: Sequence[str] = ()
    n_rows = 0
    try:
        names = read_header(path, schema)
        declared = () if schema is None else _declared(schema)
        if schema is not None:
            found.extend(_names(schema, names, wrong, Severity.PROBLEM))
        times = Counter(names)
        wanted = [name for name in declared if times[name] == 1 and name not in wrong]
        frame, n_rows, remarks = read_sound_rows(path, schema, wanted)
        found.extend(_lines(remarks))
        if schema is not None and len(frame) > 0:
            left_out = [line.row - 1 for line in remarks.wrong]
            numbers = np.delete(np.arange(1, n_rows + 1), left_out)
            cells = _columns(schema, frame, wanted, wrong)
            found.extend(replace(each, rows=tuple(int(numbers[row - 1]) for row in each.rows)) for each in cells)
    except TableError as unreadable:
        found.append(Finding.of_error(None, unreadable))
    return Report(tuple(_in_order(found, names)), n_rows)


def _declared(schema: TableSchema) -> tuple[str, ...]:
    """Return the names of all declared columns, IDs included."""
    return (*(column.name for column in (*schema.features, *schema.targets)), *schema.ids)


def _lines(remarks: Remarks) -> Iterator[Finding]:
    """Yield what is wrong with lines of the file, and a note on their encoding."""
    kinds: dict[tuple[str, str], list[WrongLine]] = {}
    for line in remarks.wrong:
        kinds.setdefault((line.cause, line.remedy), []).append(line)
    for (cause, remedy), group in kinds.items():
        yield Finding(
            None,
            f"rows with {cause}",
            f"{remedy}." if remedy else "Correct these rows. A cell that contains the separator needs quotation marks.",
            n_cells=len(group),
            rows=tuple(line.row for line in group[:N_ROWS]),
            examples=tuple(line.text for line in group[:2]),
            n_examples=len(group),
        )
    if remarks.not_utf8:
        yield Finding.of_rows(
            None,
            "rows with bytes that are not UTF-8",
            "Their cells are read as Windows-1252. If the file is in another encoding, declare it: --encoding.",
            np.array(remarks.not_utf8) - 1,
            severity=Severity.NOTE,
        )


def table_findings(schema: TableSchema, frame: pd.DataFrame, wrong: Collection[str | None] = ()) -> list[Finding]:
    """Return what there is to say of a table: first of the whole table, then by column in the order of the table.

    ``wrong`` are columns whose declarations have problems. Nothing is said of their cells.
    """
    if len(frame) == 0:
        return [Finding(None, "the table is empty: it has no rows", "Use a file with rows.")]
    names = list(map(str, frame.columns))
    return _in_order([*_names(schema, names, wrong, Severity.NOTE), *_columns(schema, frame, names, wrong)], names)


def _in_order(findings: Sequence[Finding], names: Sequence[str]) -> list[Finding]:
    place = {name: k for k, name in enumerate(names)}
    return sorted(findings, key=lambda finding: place.get(finding.column or "", -1))


def _names(
    schema: TableSchema, names: Sequence[str], wrong: Collection[str | None], of_missing_ids: Severity
) -> Iterator[Finding]:
    """Yield what there is to say of the names in the header."""
    declared = _declared(schema)
    yield from _ignored(schema, names, wrong)
    if schema.target is None and not wrong:
        remedy = 'Name the column to predict: target = "column" in the schema file, or --target column.'
        yield Finding(None, "no target is declared", remedy)
    times, used = Counter(names), set(declared)
    not_once = [name for name in declared if times[name] != 1 and name not in wrong]
    missing = [name for name in not_once if not times[name] and name not in schema.ids]
    if len(missing) > MOST_MISSING:
        yield Finding.of_names(
            "declared columns that the table does not have",
            "Check that the table and the schema belong together, and compare the spelling of names.",
            missing,
            severity=Severity.PROBLEM,
        )
        not_once = [name for name in not_once if times[name] or name in schema.ids]
    free = [name for name in times if name not in used]
    for name in not_once:
        severity = of_missing_ids if name in schema.ids else Severity.PROBLEM
        yield _not_once(name, times[name], free, severity)


def _columns(
    schema: TableSchema, frame: pd.DataFrame, names: Sequence[str], wrong: Collection[str | None]
) -> Iterator[Finding]:
    """Yield what there is to say of the cells of the columns that exist once."""
    times, place = Counter(names), {name: k for k, name in enumerate(names)}
    for column in (*schema.features, *schema.targets):
        if times[column.name] == 1 and column.name not in wrong:
            yield from _cells(column, frame.iloc[:, place[column.name]])
    for name in schema.ids:
        if times[name] == 1:
            yield from _ids(name, frame.iloc[:, place[name]])


def _ignored(schema: TableSchema, names: Sequence[str], wrong: Collection[str | None]) -> Iterator[Finding]:
    """Yield notes on the names of columns that are not declared."""
    used = set(_declared(schema))
    free = [name for name in dict.fromkeys(names) if name not in used and name not in wrong]
    folded = set(map(_folded, used & set(names)))
    alike = [name for name in free if _folded(name) in folded]
    if alike:
        yield Finding.of_names(
            "names that differ from a declared name only in case or blanks",
            "These columns are ignored. Check that the right columns are declared, or remove them from the table.",
            alike,
        )
    if others := [name for name in free if _folded(name) not in folded]:
        yield Finding.of_names(
            "columns that are not declared",
            "They are ignored. Declare those in the schema that the model should use.",
            others,
        )
    if repeated := [name for name, times in Counter(names).items() if times > 1 and name not in used]:
        what = "repeated names of columns that are not declared"
        yield Finding.of_names(what, "They are ignored. Rename them in the table to declare them.", repeated)


def _folded(name: str) -> str:
    return name.strip().casefold()


def _not_once(name: str, times: int, free: Sequence[str], severity: Severity) -> Finding:
    """Return what is wrong with a declared column that the table does not have, or has several times.

    ``free`` are the names of columns that are not declared, one of which may be meant.
    """
    if times > 1:
        what, remedy = f"the table has {times} columns of this name", "Rename all but one of them in the table."
    else:
        hint = did_you_mean(name, free)
        what, remedy = (
            "the table has no such column",
            "Rename the column in the table or in the schema, or remove it from the schema.",
        )
        remedy = f"{hint} {remedy}" if hint else remedy
    return Finding(name, what, remedy, severity=severity)


def _cells(column: Any, cells: pd.Series) -> Iterator[Finding]:
    """Yield what there is to say of the cells of a declared column."""
    problems = list(grouped(column.faults(cells), column.hint))
    yield from problems
    if isinstance(column, Target):
        yield from _classes(column, cells, bool(problems))
    if isinstance(column, BoundedColumn):
        yield from _clipped(column, cells)


def _classes(target: Target, cells: pd.Series, has_problems: bool) -> Iterator[Finding]:
    """Yield what there is to say of the classes of a target."""
    if target.levels is None:
        if not has_problems:
            try:
                target.completed(cells)
            except TableError as error:
                yield Finding.of_error(target.name, error)
        return
    _, found = distinct_levels(cells, known=target.levels)
    if len(found) == 1 and not has_problems:
        yield Finding(
            target.name,
            "all rows have the same class",
            "A model learns nothing from them. Check the choice of rows.",
            examples=(show(found[0]),),
            n_examples=1,
            severity=Severity.NOTE,
        )


def _clipped(column: BoundedColumn, cells: pd.Series) -> Iterator[Finding]:
    """Yield how many cells are beyond each bound."""
    bounds = map(spelling, (column.low, column.high))
    for side, bound, count in zip(("below", "above"), bounds, column.n_beyond(cells), strict=True):
        if count:
            yield Finding(
                column.name,
                f"{side} the bound {bound}",
                f"They count as {bound}.",
                n_cells=count,
                severity=Severity.CLIPPED,
            )


def _ids(name: str, cells: pd.Series) -> Iterator[Finding]:
    """Yield a note if an ID occurs in several rows."""
    repeated = cells.duplicated()
    repeated &= ~cells.isin([cell for cell in cells[repeated].unique() if is_mark(cell)])
    if repeated.any():
        yield Finding.of_rows(
            name,
            "IDs that occur before",
            "The guarantee protects single rows, and not a person with several rows. If an ID stands for a person, "
            "keep one row per person.",
            np.flatnonzero(repeated),
            severity=Severity.NOTE,
        )
