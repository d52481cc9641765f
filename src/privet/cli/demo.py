"""The options of ``privet demo``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.cli.options import Output, Verbose


def demo(
    output: Output = Path("rand_health.privet.json"),
    seeds: Annotated[int, typer.Option(min=2, help="Number of runs per setting.")] = 10,
    verbose: Verbose = False,
) -> None:
    """Train private models on real medical records and compare them with a model without privacy."""
    from privet.commands import demo as command

    command.run(output=output, seeds=seeds, verbose=verbose, console=Console())
