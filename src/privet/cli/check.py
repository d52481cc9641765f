"""The options of ``privet check``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from privet.cli.early import check_files
from privet.cli.options import Decimal, Encoding, Json, Sep
from privet.commands.json_output import console_for


def check(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table.")],
    target: Annotated[list[str] | None, typer.Option(help="Column to predict. Can be repeated.")] = None,
    schema: Annotated[Path | None, typer.Option(help="TOML file with public bounds and levels.")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(help="Public bounds of a numeric column: age=0:120. Can be repeated.")
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(help="Levels of a categorical column or of the target: sex=female,male. Can be repeated."),
    ] = None,
    target_bounds: Annotated[str | None, typer.Option(help="Public bounds of a numeric target: 0:5000.")] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="What missing cells are: refuse, level (a level of their own), or a public constant for one column, "
            "as in age=40. Can be repeated.",
            show_default="refuse",
        ),
    ] = None,
    id: Annotated[list[str] | None, typer.Option(help="Column of IDs, which is never used. Can be repeated.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = None,
) -> None:
    """List everything that keeps a table from being used, with rows and remedies, and how many cells are clipped.

    The findings are not private: they are for the owner of the table. The exit code is 0 if privet fit accepts the
    table, 1 if it does not, and 2 if the arguments cannot be used.
    """
    check_files(read={"table": data})
    console = console_for(json)
    from privet.commands import check as command
    from privet.tables import FileForm, TableSchema

    options: dict[str, Any] = {
        "toml": schema,
        "bounds": bounds or (),
        "levels": levels or (),
        "target": target,
        "target_bounds": target_bounds,
        "missing": missing or (),
        "ids": id or (),
        "form": FileForm(sep, decimal, encoding),
    }
    report = command.run(data, lambda: TableSchema.from_options(**options), json=json, console=console)
    if not report.is_accepted:
        raise typer.Exit(1)
