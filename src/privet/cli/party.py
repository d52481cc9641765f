"""The options of ``privet party run | keygen | local | verify``, which call :mod:`privet.commands.party`.

The libraries that do the work are imported inside the commands.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from privet.cli.options import Decimal, Encoding, Ledger, Limit, LimitDelta, Output, Sep, Verbose, open_ledger

StudyFile = Annotated[Path, typer.Argument(help="The study: a TOML file that is the same for all parties.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for a message of another party, or of owners.")]


class _RunsByDefault(TyperGroup):
    """A group whose subcommand ``run`` may be left out: ``privet party study.toml --index 0``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` if the first argument is not a subcommand."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


party = typer.Typer(
    cls=_RunsByDefault,
    help="Train one model with other data owners, without showing them your rows.",
    no_args_is_help=True,
)


@party.command("run")
def run(
    study: StudyFile,
    index: Annotated[int | None, typer.Option(help="Position of this party in the study, starting from 0.")] = None,
    server: Annotated[int | None, typer.Option(help="Position of this server, in a study with servers.")] = None,
    owner: Annotated[int | None, typer.Option(help="Number of this owner, in a study with servers.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="This party's CSV or Parquet table. Leave it out if the party has no data.")
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with this party's key and certificate.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder in which a server keeps its state for a restart. Default: OUTPUT.state."),
    ] = None,
    output: Output = Path("study.privet.json"),
    ledger: Ledger = None,
    limit: Limit = None,
    limit_delta: LimitDelta = 1e-6,
    connect_timeout: Annotated[float, typer.Option(help="Seconds to wait for all parties to connect.")] = 300.0,
    timeout: Timeout = 60.0,
    at: Annotated[
        list[str] | None, typer.Option(hidden=True, help="Addresses to use instead of those in the study.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Take part in a study: `privet party study.toml --index 0 --data hospital.csv --keys keys`.

    In a study with servers, give --server or --owner instead of --index.
    """
    from privet.commands import committee
    from privet.commands import party as command
    from privet.multiparty.study import Study, parse_address
    from privet.tables import FileForm

    if [index, server, owner].count(None) != 2:
        raise typer.BadParameter("Give exactly one of --index, --server and --owner.")
    agreed = Study.read(study)
    if at:
        agreed = agreed.moved([parse_address(each) for each in at])
    form = FileForm(sep, decimal, encoding)
    common: dict[str, Any] = {
        "keys": keys,
        "ledger": open_ledger(ledger, limit, limit_delta),
        "timeout": timeout,
        "verbose": verbose,
        "console": Console(),
    }
    if owner is not None:
        committee.hand_in(agreed, owner, data, form=form, **common)
    elif server is not None:
        committee.serve(agreed, server, state=state, output=output, connect_timeout=connect_timeout, **common)
    else:
        assert index is not None
        command.run(agreed, index, data, form=form, output=output, connect_timeout=connect_timeout, **common)


@party.command("keygen")
def keygen(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")] = Path("keys"),
    days: Annotated[float, typer.Option(help="Number of days for which the certificates are valid.")] = 90.0,
) -> None:
    """Create a key and a certificate for every party of a study."""
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.keygen(Study.read(study), output, days, Console())


@party.command("local")
def local(
    study: StudyFile,
    data: Annotated[list[Path], typer.Option(help="Table of a party. Repeat it in the order of the parties.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the parties' models.")] = Path("results"),
    timeout: Timeout = 60.0,
) -> None:
    """Try a study on this machine, with one process per party."""
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.local(study, Study.read(study), data, output=output, timeout=timeout, console=Console())


@party.command("verify")
def verify(
    model: Annotated[Path, typer.Argument(help="A model saved by privet party.")],
    ca: Annotated[Path | None, typer.Option(help="The study's ca.crt.")] = None,
    on: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="Day of the study, if its certificates have expired since. Default: today."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Check that all parties of a study signed a model, and print its guarantee."""
    from privet.commands import party as command

    command.verify_result(model, ca, on, verbose=verbose, console=Console())
