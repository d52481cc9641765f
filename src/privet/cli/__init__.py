"""The command line: one file per command reads its options, and :mod:`privet.commands` does the work.

The libraries that do the work are imported inside the commands, so that ``privet --help`` answers quickly, and so does
a command that refuses its options.
"""

import os
import sys
import warnings
from typing import Annotated, Any, TextIO

import typer

from privet.cautions import PrivetWarning, once
from privet.cli import audit, check, demo, fit, ledger, party, plan, plot, predict, report, schema, show
from privet.cli.early import examples, paragraphs
from privet.cli.options import with_options
from privet.extras import with_remedy

# The base of all errors in options. Newer releases of typer contain click, and older ones depend on it.
_CommandError: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="privet",
    help="Train models on sensitive data with differential privacy.",
    epilog=examples("privet demo", "privet fit --help"),
    pretty_exceptions_enable=False,
)
app.command(epilog=examples("privet demo --seeds 3"))(demo.demo)
app.command(
    epilog=examples(
        "privet schema table.csv --code-book book.csv -o table.toml",
        "privet schema table.csv --epsilon 0.5 --ledger table.ledger",
    ),
    help=paragraphs(schema.schema),
)(schema.schema)
app.command(epilog=examples("privet check table.csv --schema table.toml"), help=paragraphs(check.check))(check.check)
app.command(epilog=examples("privet plan --n 10000 --epsilon 1 --epochs 10 --batch-size 500"))(plan.plan)
app.command(
    epilog=examples(
        "privet fit table.csv --target ill --bounds age=0:120 --levels sex=f,m",
        "privet fit table.csv --schema table.toml --epsilon 2 --ledger table.ledger",
    )
)(fit.fit)
app.command(epilog=examples("privet show model.privet.json", "privet show model.privet.json --json model.json"))(
    show.show
)
app.command(epilog=examples("privet plot model.privet.json -o curves.html"))(plot.plot)
app.command(
    epilog=examples(
        "privet predict model.privet.json new.csv -o predictions.csv",
        "privet predict model.privet.json test.csv --score --json score.json",
    )
)(predict.predict)
app.command(
    epilog=examples(
        "privet audit model.privet.json --train table.csv --holdout other.csv",
        "privet audit --estimator logistic --epsilon 1 --runs 1000",
        "privet audit training.py --replay",
    )
)(audit.audit)
app.command(
    epilog=examples(
        "privet report model.privet.json -o report.html --ledger table.ledger",
        "privet report model.privet.json --about about.toml --registry entry.yaml",
    )
)(report.report)
app.add_typer(party.party, name="party", epilog=examples("privet party run --help"))
app.add_typer(
    ledger.ledger,
    name="ledger",
    epilog=examples("privet ledger table.ledger", "privet ledger export table.ledger -o spent.csv"),
)


@app.callback(invoke_without_command=True)
def show_version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Train models on sensitive data with differential privacy."""
    if version:
        from privet import __version__

        print(f"privet {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")
        raise typer.Exit(2)


def main() -> None:
    """Run the command line. Mistakes in the input and warnings are reported in one line each on standard error.

    The exit code of a mistake is 2.
    """
    with warnings.catch_warnings(), once():
        warnings.simplefilter("always", PrivetWarning)
        warnings.showwarning = _show_warning
        sys.exit(_exit_code())


def _exit_code() -> int:
    """Run the command, and return the exit code of the process."""
    try:
        code = app(prog_name="privet", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        print("privet: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (_CommandError, ValueError, OSError, ModuleNotFoundError) as error:
        message = _mistake(error)
        if message is None:
            raise
        print(f"privet: {' '.join(message.split())}", file=sys.stderr)
        return 2


def _mistake(error: Exception) -> str | None:
    """Return what the person who typed the command did wrong, or None if the error is not theirs."""
    if isinstance(error, _CommandError):
        context = getattr(error, "ctx", None)
        where = "privet" if context is None else context.command_path
        message = str(error.format_message()).rstrip(".") or "A command is missing"
        return f"{message}{'' if message.endswith('?') else '.'} {where} --help lists the options."
    if isinstance(error, ModuleNotFoundError):
        return with_remedy(error)
    lines = str(error).strip().splitlines()
    return with_options(lines[0] if lines else type(error).__name__)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show warnings of privet in one line each, and others as Python does."""
    if issubclass(category, PrivetWarning):
        print(f"privet: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file or sys.stderr, end="")
