"""The options of ``privet ledger``."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privet.checks import delta_value, positive
from privet.cli.early import check_is_ledger, examples
from privet.cli.options import Json, LimitDelta, Verbose
from privet.commands.json_output import console_for, plain_console, write_result
from privet.files import check_readable, check_writable

Path_ = Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger, as privet fit --ledger writes it.")]
Delta = Annotated[
    float | None,
    typer.Option(help="Delta of the totals. Default: that of the limit, or else the sum of the entries' deltas."),
]


class ShowByDefault(TyperGroup):
    """A group of commands of which ``show`` may be left out: ``privet ledger patients.ledger``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``show`` unless the first argument is a command or asks for help."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    help="Show what has been spent on a data set, and what is left. 'privet ledger LEDGER' is 'privet ledger show'.",
)


@ledger.command(
    epilog=examples("privet ledger table.ledger", "privet ledger table.ledger --set-limit 3 --reason 'ethics board'")
)
def show(
    path: Path_,
    delta: Delta = None,
    every: Annotated[bool, typer.Option("--all", help="Show all lines, not only the last 50.")] = False,
    set_limit: Annotated[
        float | None,
        typer.Option(help="First set the limit to this epsilon, also above the earlier one. The time line records it."),
    ] = None,
    limit_delta: LimitDelta = 1e-6,
    reason: Annotated[str, typer.Option(help="With --set-limit: who allowed it, and why.")] = "",
    drop_cut_line: Annotated[
        bool,
        typer.Option(
            "--drop-cut-line",
            help="First remove the last line of a ledger in the old text form if a crash cut it off. Its release was "
            "not made.",
        ),
    ] = False,
    json: Json = None,
    verbose: Verbose = False,
) -> None:
    """Show the time line of a ledger, the total, and what is left of the limit.

    The epsilon of each entry is recomputed.
    """
    delta_value(limit_delta)
    if set_limit is not None:
        positive("--set-limit", set_limit)
    _check(path, delta)
    if set_limit is not None:
        check_writable(path)
    console = console_for(json)
    from privet.commands import ledger as command
    from privet.privacy import Budget

    if drop_cut_line:
        command.drop_cut_line(path, console)
    if set_limit is not None:
        command.set_limit(path, Budget(set_limit, limit_delta), reason, console)
    write_result(json, command.show(path, delta=delta, every=every, verbose=verbose, console=console))


@ledger.command(epilog=examples("privet ledger export table.ledger -o spent.csv"))
def export(
    path: Path_,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, which ends in .json or .csv.")],
    delta: Delta = None,
) -> None:
    """Write the time line of a ledger to a JSON or CSV file."""
    if output.suffix not in {".json", ".csv"}:
        raise ValueError(f"--output must end in .json or .csv, got {output}.")
    check_writable(output)
    _check(path, delta)
    from privet.commands import ledger as command

    command.export(path, output, delta=delta, console=plain_console())


def _check(path: Path, delta: float | None) -> None:
    """Raise ValueError if there is no ledger, or if it cannot be read, and for an impossible delta."""
    if delta is not None:
        delta_value(delta)
    if not path.exists():
        raise ValueError(f"The ledger {path} does not exist. privet fit --ledger {path} creates it.")
    check_readable(path, "ledger")
    check_is_ledger(path)
