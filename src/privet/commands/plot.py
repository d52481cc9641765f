"""``privet plot``: draw the curves of an additive model."""

from pathlib import Path

from rich.console import Console

from privet.report.shapes import shapes_of, write_plot
from privet.saving import load


def run(model_path: Path, *, output: Path, console: Console) -> None:
    """Write the picture of a saved model, and say where it is."""
    model = load(model_path)
    try:
        found = shapes_of(model)
    except TypeError as error:
        raise ValueError(str(error)) from error
    write_plot(model, output)
    console.print(f"{len(found)} curves drawn in {output}.", highlight=False, soft_wrap=True)
