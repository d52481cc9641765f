"""``privet schema``: draft a schema file from public facts or, for a part of the budget, from private rows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from privet.commands.json_output import write_result
from privet.drafts import Draft, Problem, from_answers, from_sample, read_code_book, to_toml
from privet.drafts.draft import DraftColumn
from privet.drafts.header import header_of
from privet.files import written_whole
from privet.tables import FileForm, TableError, decimal_mark, read_table

if TYPE_CHECKING:
    from privet.privacy import Guarantee, Ledger

_MOST_SHOWN = 60
_MOST_ROWS = 200


def from_code_book(
    path: Path, table: Path | None, *, form: FileForm, target: str | None, ids: Sequence[str]
) -> tuple[Draft, tuple[Problem, ...]]:
    """Return the draft of a code book, and what was not understood. Of a table, if given, only the header is read."""
    book = read_code_book(path)
    return _described(book.draft, path.name, table, form, target, ids), book.problems


def from_public_sample(
    path: Path, table: Path | None, *, form: FileForm, target: str | None, ids: Sequence[str]
) -> Draft:
    """Return the draft of a public sample. Of the private table, if given, only the header is read."""
    draft = from_sample(read_table(path, form=form), path.name, decimal=decimal_mark(path, form=form))
    return _described(draft, path.name, table, form, target, ids)


def from_terminal(table: Path, *, form: FileForm, target: str | None, ids: Sequence[str]) -> Draft:
    """Return the draft that a person in the terminal describes. Only the header of the table is read."""
    try:
        return replace(from_answers(header_of(table, form), input, print, target=target, ids=ids), form=form)
    except EOFError:
        raise TableError("The answers ended before all columns were described. Nothing was written.") from None


def from_private_rows(
    table: Path,
    epsilon: float,
    delta: float | None,
    *,
    form: FileForm,
    output: Path,
    ledger: "Ledger | None",
    **settings: Any,
) -> "tuple[Draft, Guarantee]":
    """Return the draft of private rows, and its guarantee, which is recorded before anything is asked."""
    from privet.drafts import from_rows

    def record(guarantee: "Guarantee") -> None:
        if ledger is not None:
            ledger.spend(guarantee, label=f"schema {table.name} -> {output.name}")

    settings["decimal"] = decimal_mark(table, form=form)
    draft, guarantee = from_rows(read_table(table, form=form), epsilon, delta, before_asking=record, **settings)
    return replace(draft, form=form), guarantee


def write(
    draft: Draft,
    problems: Sequence[Problem],
    *,
    output: Path,
    table: Path | None,
    guarantee: "Guarantee | None" = None,
    json: Path | None,
    console: Console,
) -> None:
    """Write the schema file, and print what it says and what to do next."""
    if guarantee is None:
        _check_features(draft, problems)
    with written_whole(output) as file:
        file.write(to_toml(draft).encode())
    console.print(_shown(draft))
    if len(draft.columns) > _MOST_ROWS:
        console.print(f"{len(draft.columns) - _MOST_ROWS:,} further columns are in the file.", highlight=False)
    for problem in problems:
        console.print(f"Line {problem.line}: {problem.message}", highlight=False, markup=False, soft_wrap=True)
    if guarantee is not None:
        console.print(guarantee.statement(), highlight=False, markup=False, soft_wrap=True)
        if not draft.features:
            warn(f"No column could be described privately. The comments in {output} say why.")
    data = "TABLE" if table is None else table
    console.print(
        f"Schema written to {output}. Read its comments and correct it, then: privet check {data} --schema {output}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    write_result(
        json,
        {
            "output": str(output),
            "columns": [_fields(column) for column in draft.columns],
            "problems": [{"line": problem.line, "message": problem.message} for problem in problems],
            "guarantee": None if guarantee is None else guarantee.to_dict(),
        },
    )


def _described(
    draft: Draft, name: str, table: Path | None, form: FileForm, target: str | None, ids: Sequence[str]
) -> Draft:
    if table is not None:
        draft, others = draft.for_table(header_of(table, form))
        if others:
            warn(f"{name} describes columns that {table} does not have: {', '.join(others)}. Compare the spellings.")
    return replace(draft.with_roles(target, ids), form=form)


def _check_features(draft: Draft, problems: Sequence[Problem]) -> None:
    if not draft.features:
        first = f" Line {problems[0].line}: {problems[0].message}" if problems else ""
        raise TableError(f"No column could be described as a feature, so nothing was written.{first}")
    _ = draft.schema  # raises if, for instance, two targets do not go together


def warn(message: str) -> None:
    """Print a message on standard error."""
    Console(stderr=True).print(message, highlight=False, markup=False, soft_wrap=True)


def _shown(draft: Draft) -> Table:
    table = Table(title="Draft", title_justify="left")
    for name in ("column", "used as", "bounds or levels", "missing cells"):
        table.add_column(name)
    for column in draft.columns[:_MOST_ROWS]:
        missing = "" if column.feature is None else str(column.feature.missing)
        values = ", ".join(_text(value) for value in column.values)
        table.add_row(column.name, column.role, _cut(values), missing)
    return table


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _fields(column: DraftColumn) -> dict[str, Any]:
    values = [value if isinstance(value, float) else str(value) for value in column.values]
    return {"name": column.name, "role": column.role, "values": values, "comments": list(column.comments)}
