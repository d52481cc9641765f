"""The command line: one file per command reads its options, and :mod:`privet.commands` does the work.

The libraries that do the work are imported inside the commands, so that ``privet --help`` answers quickly.
"""

import sys
from typing import Annotated

import typer

from privet.cli import audit, demo, fit, ledger, party, plan, predict, schema
from privet.cli.options import DescribedCommand, with_extra, with_options

app = typer.Typer(
    name="privet",
    help="Train models on sensitive data with differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.command()(schema.schema)
app.command()(plan.plan)
app.command(cls=DescribedCommand)(fit.fit)
app.command()(predict.predict)
app.command(cls=DescribedCommand)(audit.audit)
app.add_typer(party.party, name="party")
app.command()(ledger.ledger)


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Train models on sensitive data with differential privacy."""
    if version:
        from privet import __version__

        print(f"privet {__version__}")
        raise typer.Exit()


def main() -> None:
    """Run the command line. A mistake in the input is reported in one line on standard error, with exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        message = str(error).strip() or type(error).__name__
        print(f"privet: {with_options(message.splitlines()[0])}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        remedy = with_extra(error)
        if remedy is None:
            raise
        print(f"privet: {remedy}", file=sys.stderr)
        sys.exit(2)
