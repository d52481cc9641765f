"""Options that several commands share, and the names of options for parameters of the library."""

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privet import names
from privet.cautions import PrivetWarning
from privet.checks import rate_pair
from privet.cli.early import check_ledger

if TYPE_CHECKING:
    from privet import privacy

Epsilon = Annotated[float, typer.Option(help="Privacy budget, a positive number.")]
OptionalEpsilon = Annotated[float | None, typer.Option(help="Privacy budget, a positive number.", show_default="1.0")]
Delta = Annotated[float | None, typer.Option(help="Use 0 for pure epsilon.", show_default="min(1e-6, 0.01/n)")]
Tpr = Annotated[
    str | None,
    typer.Option(
        metavar="FPR:TPR",
        help="Fix what attacks may achieve instead of epsilon: a false-positive rate and the largest true-positive "
        "rate at it. With 0.01:0.05, no attack that is wrong about 1% of the records that were not used can find more "
        "than 5% of those that were.",
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File in which the model is saved.")]
Sep = Annotated[
    str | None,
    typer.Option(
        help="Separator of a CSV file: comma, semicolon, tab or pipe.",
        show_default="the one with which the declared columns are in the header",
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help='Decimal mark of all numbers, "," or ".". The other one then separates thousands.',
        show_default="decided for each cell",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of a CSV file, such as latin-1.",
        show_default="by the byte-order mark, or UTF-8, and Windows-1252 for a cell that is not UTF-8",
    ),
]
"""For every command that reads tables, with ``FileForm`` of privet.tables."""
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


def _silence(quiet: bool) -> bool:
    if quiet:
        warnings.simplefilter("ignore", PrivetWarning)
    return quiet


Quiet = Annotated[
    bool,
    typer.Option("--quiet", envvar="PRIVET_QUIET", show_envvar=True, callback=_silence, help="Show no warnings."),
]
Model = typer.Option(
    help=f"One of {', '.join(names.BY_TARGET)}, {', '.join(names.MODELS)}. auto chooses logistic for classes and "
    "ridge for numbers, sparse chooses sparse_logistic or sparse_regression, and additive "
    "chooses additive_classifier or additive_regressor.",
    autocompletion=lambda: [*names.BY_TARGET, *names.MODELS],
)
Method = typer.Option(
    help=f"One of auto, {', '.join(names.methods())}.", autocompletion=lambda: ["auto", *names.methods()]
)
Verbose = Annotated[bool, typer.Option("--verbose", help="Show all details of the guarantee.")]

_HINTS = {
    "batch_size": "batch_size is --batch-size",
    "clip_norm": "clip_norm is --clip-norm",
    "noise_multiplier": "noise_multiplier is --noise-multiplier",
    "tpr": "tpr is --tpr FPR:TPR",
    "corner_width": "corner_width is --corner-width",
    "X_public": "X_public is --public",
    "n_nonzero": "n_nonzero is --n-nonzero",
    "max_iter": "max_iter is --max-iter",
    "random_state": "random_state is --seed",
    "target_bounds": "target_bounds is --target-bounds LOW:HIGH",
    "target_levels": "target_levels is --levels COLUMN=FIRST,SECOND with the name of the target column",
    "above the limit of": "the limit is --limit, and its delta is --limit-delta",
    "decimal": "decimal is --decimal, as in --decimal ','",
    "encoding": "encoding is --encoding",
    "separator": "separator is --sep",
    "missing cells of this column": "missing is --missing RULE or --missing COLUMN=CONSTANT",
    "no target": "name the column to predict with --target",
}


def rates(option: str | None) -> tuple[float, float] | None:
    """Return the two rates of ``--tpr``, or None if it is not given."""
    if option is None:
        return None
    try:
        fpr, tpr = (float(part) for part in option.split(":"))
    except ValueError:
        raise ValueError(
            f"--tpr must be two numbers with a colon between them, as in 0.01:0.05, got {option!r}."
        ) from None
    return rate_pair("--tpr", (fpr, tpr))


def pairs_of(options: list[str] | None) -> list[tuple[str, str]] | None:
    """Return the columns of each ``--pair``, or None if there is none."""
    found = []
    for option in options or ():
        one, comma, other = (part.strip() for part in option.partition(","))
        if not (one and comma and other) or "," in other:
            raise ValueError(f"--pair must be two columns with a comma between them, as in age,sex, got {option!r}.")
        found.append((one, other))
    return found or None


def directions(options: list[str] | None) -> dict[str, int] | None:
    """Return the direction of each column of ``--monotone``, or None if there is none."""
    found = {}
    for option in options or ():
        name, _, sign = option.rpartition("=")
        if not name or sign.strip() not in {"+1", "1", "-1"}:
            raise ValueError(f"--monotone must be a column and +1 or -1, as in age=+1, got {option!r}.")
        found[name.strip()] = int(sign)
    return found or None


def with_options(message: str) -> str:
    """Return an error message of the library, followed by the options that set the parameters it names."""
    hints = _HINTS | {kind: f"{kind} is --model {name}" for name, kind in names.MODELS.items()}
    found = [hint for name, hint in hints.items() if re.search(rf"\b{name}\b", message)]
    return f"{message.rstrip('.')}. On the command line: {'; '.join(found)}." if found else message


def open_ledger(path: Path | None, limit: float | None, limit_delta: float) -> "privacy.Ledger | None":
    """Return the ledger of --ledger, with the limit of --limit and --limit-delta, or None without --ledger.

    Raise an error now, before any budget is spent, if the ledger cannot be read or written.
    """
    check_ledger(path, limit, limit_delta)
    if path is None:
        return None
    from privet.privacy import Budget, Ledger

    ledger = Ledger(path, None if limit is None else Budget(limit, limit_delta))
    ledger.check()
    return ledger
