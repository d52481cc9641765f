"""The options of ``privet demo``."""

from pathlib import Path
from typing import Annotated

import typer

from privet.cautions import about_existing_file
from privet.cli.early import check_files
from privet.cli.options import Json, Output, Quiet, Verbose
from privet.commands.json_output import console_for


def demo(
    output: Output = Path("rand_health.privet.json"),
    seeds: Annotated[int, typer.Option(min=2, help="Number of runs per setting.")] = 10,
    json: Json = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Train private models on real medical records and compare them with a model without privacy."""
    check_files(read={}, written=output)
    about_existing_file(output)
    console = console_for(json)
    from privet.commands import demo as command

    command.run(output=output, seeds=seeds, json=json, verbose=verbose, console=console)
