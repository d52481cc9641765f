"""The options of ``privet report``."""

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.early import check_files, check_filled, check_is_ledger
from privet.cli.options import Decimal, Encoding, Sep
from privet.files import check_writable, read_json


def report(
    model: Annotated[Path, typer.Argument(help="A model saved by privet fit or privet party, or by save() in Python.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    ledger: Annotated[
        Path | None, typer.Option(help="Also show everything that was booked in this ledger, with its labels.")
    ] = None,
    public_test: Annotated[
        Path | None,
        typer.Option(help="A table of records that need no protection: also show the accuracy or the error on them."),
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with what software cannot know: curators, intended_use, security, collection, ..."
        ),
    ] = None,
    registry: Annotated[
        Path | None, typer.Option(help="Also write an entry for OpenDP's registry of deployments to this YAML file.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
) -> None:
    """Write what was promised as a page for an ethics board: what an attacker can do, and what the promise rests on."""
    files = {"model file": model, "ledger": ledger, "table": public_test, "TOML file": about}
    check_files(read=files, written=output)
    check_filled(public_test)
    if ledger is not None:
        check_is_ledger(ledger)
    if registry is not None:
        check_writable(registry)
    read_json(model)
    from privet.commands import report as command
    from privet.commands.json_output import plain_console
    from privet.tables import FileForm

    command.run(
        model,
        output=output,
        title=title,
        ledger=ledger,
        public_test=public_test,
        about=about,
        registry=registry,
        form=FileForm(sep, decimal, encoding),
        console=plain_console(),
    )
