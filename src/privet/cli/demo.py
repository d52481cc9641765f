"""The options of ``privet demo``."""

from pathlib import Path
from typing import Annotated

import typer

from privet.cautions import about_existing_file
from privet.cli.early import check_files
from privet.cli.options import Json, Output, Quiet, Verbose
from privet.commands.json_output import console_for
from privet.files import check_writable


def demo(
    output: Output = Path("rand_health.privet.json"),
    report: Annotated[Path, typer.Option(help="File in which the report of the model is written.")] = Path(
        "rand_health.report.html"
    ),
    seeds: Annotated[int, typer.Option(min=2, help="Number of runs per setting.")] = 10,
    json: Json = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Train private models on real medical records and compare them with a model without privacy."""
    check_files(read={}, written=output)
    check_writable(report)
    about_existing_file(output)
    console = console_for(json)
    from privet.commands import demo as command

    command.run(output=output, report=report, seeds=seeds, json=json, verbose=verbose, console=console)
