"""The options of ``privet ledger``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.cli.options import Verbose


def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger written by privet fit --ledger or privet party --ledger.")],
    delta: Annotated[
        float | None, typer.Option(help="Delta of the total. Default: the sum of the entries' deltas.")
    ] = None,
    drop_cut_line: Annotated[
        bool,
        typer.Option(
            "--drop-cut-line", help="First remove the last line if a crash cut it off. Its release was not made."
        ),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show what has been spent on a dataset, and the total."""
    from privet.commands import ledger as command

    command.run(path, delta=delta, drop_cut_line=drop_cut_line, verbose=verbose, console=Console())
