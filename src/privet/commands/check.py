"""``privet check``: list everything that keeps a table from being used, and how many of its cells are clipped."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privet.commands.json_output import write_result
from privet.tables import Finding, Report, SchemaError, Severity, TableSchema, check_table

MOST_FINDINGS = 200
TABLE_WIDTH = 120
"""In a narrower terminal, findings are paragraphs instead of lines of a table."""

NOTICE = "These findings describe the rows and are not private. Do not publish them."


def run(data: Path, make_schema: Callable[[], TableSchema], *, json: Path | None = None, console: Console) -> Report:
    """Print the findings on a table, and return them.

    ``make_schema`` makes the schema from the options of the command. Problems of the schema itself are listed too.
    """
    errors: SchemaError | None = None
    schema: TableSchema | None = None
    try:
        schema = make_schema()
    except SchemaError as error:
        schema, errors = error.rest, error
    report = check_table(data, schema, errors)
    if report.findings:
        shown = report.findings[:MOST_FINDINGS]
        if console.width < TABLE_WIDTH:
            console.print(
                "\n".join(line for finding in shown for line in _lines(finding, console.width)), soft_wrap=True
            )
        else:
            console.print(_table(shown))
        if (more := len(report.findings) - MOST_FINDINGS) > 0:
            console.print(f"{more:,} further lines are left out. --json FILE writes all of them.")
        console.print("Rows are counted from 1, without the header.", highlight=False)
    if any(finding.severity is Severity.CLIPPED for finding in report.findings):
        console.print("Bounds are public facts: do not adapt them to the number of clipped cells.", highlight=False)
    console.print(_summary(data, report), highlight=False, markup=False, soft_wrap=True)
    console.print(NOTICE, highlight=False, soft_wrap=True)
    write_result(json, _fields(report))
    return report


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(show_lines=True, box=box.HORIZONTALS)
    for name, width in (("column", 20), ("problem", 30), ("cells", 9), ("rows", 18), ("examples", 26)):
        table.add_column(name, overflow="fold", max_width=width, justify="right" if name == "cells" else "left")
    table.add_column("remedy", overflow="fold", ratio=1)
    for finding in findings:
        cells = "" if finding.n_cells is None else f"{finding.n_cells:,}"
        words = (
            printable(finding.column or ""),
            _what(finding),
            cells,
            _rows(finding),
            _examples(finding),
            finding.remedy,
        )
        # Text, because cells of the table could contain what rich takes for markup.
        table.add_row(*map(Text, words), style="" if finding.is_problem else "dim")
    return table


def _lines(finding: Finding, width: int) -> Iterator[str]:
    """Yield a finding as a paragraph: its column and what was found, and below it where, and what to do."""
    cells = "" if finding.n_cells is None else f" ({finding.n_cells:,} cell{'' if finding.n_cells == 1 else 's'})"
    column = "" if finding.column is None else f"{printable(finding.column)}: "
    yield from textwrap.wrap(f"{column}{_what(finding)}{cells}", width)
    for name, text in (("rows", _rows(finding)), ("examples", _examples(finding)), ("remedy", finding.remedy)):
        if text:
            first = f"  {name:<9} "
            yield from textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first))
    yield ""


def _what(finding: Finding) -> str:
    return finding.what if finding.is_problem else f"{finding.severity.value}: {finding.what}"


def printable(name: str) -> str:
    """Return a name as it can be shown in a terminal: quoted, if it contains control characters."""
    return name if name.isprintable() else repr(name)


def _rows(finding: Finding) -> str:
    more = (finding.n_cells or 0) - len(finding.rows)
    return ", ".join(map(str, finding.rows)) + (f" and {more:,} more" if finding.rows and more else "")


def _examples(finding: Finding) -> str:
    more = finding.n_examples - len(finding.examples)
    return ", ".join(finding.examples) + (f" and {more:,} more" if more > 0 else "")


def _summary(data: Path, report: Report) -> str:
    """Return in a sentence whether the table can be used."""
    if report.is_accepted:
        return f"No problems: privet fit accepts the {report.n_rows:,} rows of {data}."
    n = sum(finding.is_problem for finding in report.findings)
    number = "One problem" if n == 1 else f"{n:,} problems"
    return f"{number}: privet fit does not accept {data} before {'it is' if n == 1 else 'they are'} corrected."


def _fields(report: Report) -> dict[str, Any]:
    findings = [asdict(finding) | {"severity": finding.severity.value} for finding in report.findings]
    return {"rows": report.n_rows, "is_private": False, "is_accepted": report.is_accepted, "findings": findings}
