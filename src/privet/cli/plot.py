"""The options of ``privet plot``."""

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.early import check_files


def plot(
    model: Annotated[Path, typer.Argument(help="An additive model saved by privet fit, or by save() in Python.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG, SVG or HTML file to write.")] = Path(
        "curves.html"
    ),
) -> None:
    """Draw every curve of an additive model, the most important first, with bands for the noise that privacy added."""
    check_files(read={"model file": model}, written=output)
    if output.suffix.lower() not in {".png", ".svg", ".html"}:
        raise ValueError(f"--output must end with .png, .svg or .html, which is the form of the picture, got {output}.")
    from privet.commands import plot as command
    from privet.commands.json_output import plain_console

    command.run(model, output=output, console=plain_console())
