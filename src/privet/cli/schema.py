"""The options of ``privet schema``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet.cli.early import check_files, check_filled, check_ledger, check_settings
from privet.cli.options import Decimal, Encoding, Json, Ledger, Limit, LimitDelta, Sep, open_ledger
from privet.commands.json_output import STANDARD_OUTPUT, console_for, is_interactive

if TYPE_CHECKING:
    from privet.drafts import Problem


def schema(
    table: Annotated[
        Path | None,
        typer.Argument(help="The table. With --epsilon, its rows are read; otherwise only the names of its columns."),
    ] = None,
    code_book: Annotated[
        Path | None,
        typer.Option(help="A public description of the columns: a table (CSV, TSV), or a text with a line per column."),
    ] = None,
    sample: Annotated[
        Path | None, typer.Option(help="A table of rows that need no protection. Its cells appear in the schema.")
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask about each column in the terminal. This is the default in a terminal.")
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy budget for reading private rows, a positive number. It adds to what models spend."),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="For --epsilon. It must be positive.", show_default="min(1e-6, 0.01/n)")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column that is never used, such as a patient's number. Can be repeated."),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File in which the schema is written.")] = Path(
        "schema.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    ledger: Ledger = None,
    limit: Limit = None,
    limit_delta: LimitDelta = 1e-6,
    seed: Annotated[
        int | None, typer.Option(help="Make a private draft repeatable. The guarantee then holds only if it is secret.")
    ] = None,
    json: Json = None,
) -> None:
    """Draft a schema file, to be checked and corrected by you.

    What is read: with --code-book, --sample or --ask, no row of TABLE, only the names of its columns, which costs
    nothing. The sample must be public. With --epsilon, the rows of TABLE, with noise: this spends the privacy budget
    and is recorded in the ledger before anything is written.
    """
    sources = {"--code-book": code_book, "--sample": sample, "--ask": ask or None, "--epsilon": epsilon}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} cannot be given together. Choose one source of the draft.")
    spending = {"--delta": delta, "--ledger": ledger, "--limit": limit, "--seed": seed}
    if epsilon is None and (unused := [name for name, value in spending.items() if value is not None]):
        raise ValueError(f"{unused[0]} is for private drafts only. Give --epsilon as well, or leave it out.")
    check_settings({"epsilon": epsilon, "delta": delta, "random_state": seed})
    check_ledger(ledger, limit, limit_delta, written=output)
    if table is None and code_book is None and sample is None:
        raise ValueError("Give the table, or a --code-book or --sample that describes its columns.")
    if not given and not is_interactive(json):
        raise ValueError(
            "There is no terminal to ask in. Say where the draft comes from: --code-book FILE or --sample FILE, which "
            "are public, or --epsilon, which spends privacy budget."
        )
    if ask and json == STANDARD_OUTPUT:
        raise ValueError("--json - cannot be given with --ask, whose questions are printed there. Give --json a file.")
    check_files(read={"table": table, "code book": code_book, "sample": sample}, written=output)
    check_filled(table, code_book, sample)
    if output.exists() and not force:
        raise ValueError(f"{output} exists already. Choose another name with --output, or replace it with --force.")
    if epsilon is not None and delta == 0:
        raise ValueError("A private draft needs delta > 0, because it finds levels by a threshold. Leave --delta out.")
    console = console_for(json)
    from privet.tables import FileForm

    form = FileForm(sep, decimal, encoding)
    from privet.commands import schema as command

    named = tuple(ids or ())
    guarantee = None
    problems: tuple[Problem, ...] = ()
    if code_book is not None:
        draft, problems = command.from_code_book(code_book, table, form=form, target=target, ids=named)
    elif sample is not None:
        draft = command.from_public_sample(sample, table, form=form, target=target, ids=named)
    elif epsilon is not None and table is not None:
        account = open_ledger(ledger, limit, limit_delta)
        settings: dict[str, Any] = {"form": form, "target": target, "ids": named, "random_state": seed}
        draft, guarantee = command.from_private_rows(table, epsilon, delta, output=output, ledger=account, **settings)
    else:
        assert table is not None
        draft = command.from_terminal(table, form=form, target=target, ids=named)
    command.write(draft, problems, output=output, table=table, guarantee=guarantee, json=json, console=console)
    if guarantee is not None and ledger is None:
        command.warn("Nothing recorded what this draft has spent. Use --ledger, or add it to what models spend.")
