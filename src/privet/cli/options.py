"""Options that several commands share, and the names of options for parameters of the library."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from privet import privacy

Epsilon = Annotated[float, typer.Option(help="Privacy budget, a positive number.")]
OptionalEpsilon = Annotated[float | None, typer.Option(help="Privacy budget, a positive number.", show_default="1.0")]
Delta = Annotated[float | None, typer.Option(help="Use 0 for pure epsilon.", show_default="min(1e-6, 0.01/n)")]
Output = Annotated[Path, typer.Option("--output", "-o", help="File in which the model is saved.")]
Ledger = Annotated[Path | None, typer.Option(help="Record what is spent in this file.")]
Limit = Annotated[
    float | None,
    typer.Option(
        help="Refuse to train if the ledger's total epsilon would exceed this limit. It is stored in the ledger, and "
        "holds for everybody from then on."
    ),
]
LimitDelta = Annotated[
    float, typer.Option(help="The delta at which --limit applies. The total epsilon is larger at a smaller delta.")
]
Json = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also write the result as JSON to this file. With - it is printed instead of the text.",
    ),
]
"""For every command that prints a table, with ``console_for`` and ``write_result`` of privet.commands.json_output."""
Verbose = Annotated[bool, typer.Option("--verbose", help="Show all details of the guarantee.")]

_HINTS = {
    "batch_size": "batch_size is --batch-size",
    "clip_norm": "clip_norm is --clip-norm",
    "noise_multiplier": "noise_multiplier is --noise-multiplier",
    "corner_width": "corner_width is --corner-width",
    "X_public": "X_public is --public",
    "n_nonzero": "n_nonzero is --n-nonzero",
    "max_iter": "max_iter is --max-iter",
    "random_state": "random_state is --seed",
    "target_bounds": "target_bounds is --target-bounds LOW:HIGH",
    "target_levels": "target_levels is --levels COLUMN=FIRST,SECOND with the name of the target column",
    "above the limit of": "the limit is --limit, and its delta is --limit-delta",
    "no target": "name the column to predict with --target",
}

_EXTRAS = {"torch": "deep", "flwr": "federated", "mpyc": "multiparty", "grpc": "multiparty"}
"""Which extra of privet installs a module."""


class DescribedCommand(TyperCommand):
    """A command whose help lists the models and methods that the library offers.

    The names are read from the library when the help of this command is shown. Importing the library earlier would slow
    down ``privet --help``.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Fill in the names of models and methods, then show the help."""
        from privet.linear import MODELS

        methods = dict.fromkeys(name for kind in MODELS.values() for name in kind.offered_methods())
        names = {"models": ", ".join(MODELS), "methods": ", ".join(methods)}
        for parameter in self.params:
            if text := getattr(parameter, "help", None):
                vars(parameter)["help"] = text.format(**names)
        super().format_help(ctx, formatter)


def with_options(message: str) -> str:
    """Return an error message of the library, followed by the options that set the parameters it names."""
    hints = dict(_HINTS)
    if "Private" in message:
        from privet.linear import MODELS

        hints |= {kind.__name__: f"{kind.__name__} is --model {name}" for name, kind in MODELS.items()}
    found = [hint for name, hint in hints.items() if re.search(rf"\b{name}\b", message)]
    return f"{message.rstrip('.')}. On the command line: {'; '.join(found)}." if found else message


def with_extra(error: ModuleNotFoundError) -> str | None:
    """Return an error message that names the extra to install, or None if no extra of privet has the missing module."""
    if error.name is None:  # privet's own error, which names the extra
        return str(error)
    module = error.name.partition(".")[0]
    extra = _EXTRAS.get(module)
    return None if extra is None else f"The module {module} is not installed. Install the extra {extra} of privet."


def open_ledger(path: Path | None, limit: float | None, limit_delta: float) -> "privacy.Ledger | None":
    """Return the ledger of --ledger, with the limit of --limit and --limit-delta, or None without --ledger.

    Raise an error now, before any budget is spent, if the ledger cannot be read or written.
    """
    from privet.files import check_writable
    from privet.privacy import Budget, Ledger

    if path is None:
        if limit is not None:
            raise ValueError("--limit requires --ledger, the file whose total it limits.")
        return None
    check_writable(path)
    ledger = Ledger(path, None if limit is None else Budget(limit, limit_delta))
    ledger.check()
    return ledger
