"""The options of ``privet predict``."""

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.early import check_files, check_filled
from privet.cli.options import Decimal, Encoding, Json, Sep
from privet.commands.json_output import STANDARD_OUTPUT, console_for
from privet.files import read_json


def predict(
    model: Annotated[Path, typer.Argument(help="A model saved by privet fit or privet party.")],
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table with the same columns.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write. Default: print the predictions.")
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each level.")] = False,
    score: Annotated[
        bool, typer.Option("--score", help="Also print the accuracy or error, if the table has the target column.")
    ] = False,
    id: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to copy to the predictions. Can be repeated.", show_default="those declared for privet fit"
        ),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = None,
) -> None:
    """Predict the target of each row of a table."""
    if json is not None and not score:
        raise ValueError("--json writes what --score finds, so it requires --score. Predictions go to --output as CSV.")
    if json == STANDARD_OUTPUT and output is None:
        raise ValueError("Predictions and --json - cannot both go to standard output. Give a file with --output.")
    check_files(read={"model file": model, "table": data}, written=output)
    read_json(model)
    check_filled(data)
    console = console_for(json)
    from privet.tables import FileForm

    form = FileForm(sep, decimal, encoding)
    from privet.commands import predict as command

    command.run(
        model,
        data,
        output=output,
        with_probabilities=probabilities,
        score=score,
        json=json,
        ids=id,
        form=form,
        console=console,
    )
