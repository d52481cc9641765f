"""The options of ``privet show``."""

from pathlib import Path
from typing import Annotated
from zipfile import is_zipfile

import typer

from privet.cli.early import check_files
from privet.cli.options import Json, Verbose
from privet.commands.json_output import console_for
from privet.files import read_json


def show(
    model: Annotated[
        Path, typer.Argument(help="A model that privet saved: by privet fit, by privet party, or in Python.")
    ],
    json: Json = None,
    verbose: Verbose = False,
) -> None:
    """Show what a saved model is, what it promises, and what each column adds to its predictions.

    No data is read, and no privacy is spent: everything is in the file, which its guarantee covers.
    """
    check_files(read={"model file": model})
    if not is_zipfile(model):
        read_json(model)
    console = console_for(json)
    from privet.commands import show as command

    command.run(model, verbose=verbose, json=json, console=console)
