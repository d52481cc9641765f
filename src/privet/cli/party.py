"""The options of ``privet party run | keygen | local | verify``, which call :mod:`privet.commands.party`.

The libraries that do the work are imported inside the commands.
"""

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privet.cautions import about_existing_file
from privet.checks import positive
from privet.cli.early import check_files, check_ledger, examples
from privet.cli.options import (
    Decimal,
    Encoding,
    Json,
    Ledger,
    Limit,
    LimitDelta,
    Output,
    Quiet,
    Sep,
    Verbose,
    open_ledger,
)
from privet.commands.json_output import console_for, plain_console
from privet.files import read_json

StudyFile = Annotated[Path, typer.Argument(help="The study: a TOML file that is the same for all parties.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for a message of another party, or of owners.")]


class _RunsByDefault(TyperGroup):
    """A group whose subcommand ``run`` may be left out: ``privet party study.toml --index 0``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` if the first argument is not a subcommand."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args or ["--help"])


party = typer.Typer(
    cls=_RunsByDefault,
    help="Train one model with other data owners, without showing them your rows.",
)


@party.command(
    "run",
    epilog=examples(
        "privet party study.toml --index 0 --data hospital.csv --keys keys",
        "privet party study.toml --owner 3 --data practice.csv --keys keys",
    ),
)
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
    quiet: Quiet = False,
) -> None:
    """Take part in a study: `privet party study.toml --index 0 --data hospital.csv --keys keys`.

    In a study with servers, give --server or --owner instead of --index.
    """
    _check_study(study)
    if [index, server, owner].count(None) != 2:
        raise ValueError("Give exactly one of --index, --server and --owner.")
    if owner is not None and data is None:
        raise ValueError("An owner brings rows. Give its table with --data.")
    for name, seconds in {"--timeout": timeout, "--connect-timeout": connect_timeout}.items():
        positive(name, seconds)
    check_files(read={"table": data}, written=None if owner is not None else output)
    if keys is not None and not keys.is_dir():
        raise ValueError(f"The folder {keys} of --keys does not exist: make keys with `privet party keygen`.")
    check_ledger(ledger, limit, limit_delta, written=output)
    if owner is None:
        about_existing_file(output)
    from privet.commands import committee
    from privet.commands import party as command
    from privet.multiparty.study import Study, parse_address
    from privet.tables import FileForm

    agreed = Study.read(study)
    if at:
        agreed = agreed.moved([parse_address(each) for each in at])
    form = FileForm(sep, decimal, encoding)
    common: dict[str, Any] = {
        "keys": keys,
        "ledger": open_ledger(ledger, limit, limit_delta),
        "timeout": timeout,
        "verbose": verbose,
        "console": plain_console(),
    }
    if owner is not None:
        committee.hand_in(agreed, owner, data, form=form, **common)
    elif server is not None:
        committee.serve(agreed, server, state=state, output=output, connect_timeout=connect_timeout, **common)
    else:
        assert index is not None
        command.run(agreed, index, data, form=form, output=output, connect_timeout=connect_timeout, **common)


@party.command("keygen", epilog=examples("privet party keygen study.toml -o keys"))
def keygen(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")] = Path("keys"),
    days: Annotated[float, typer.Option(help="Number of days for which the certificates are valid.")] = 90.0,
) -> None:
    """Create a key and a certificate for every party of a study."""
    _check_study(study)
    positive("--days", days)
    if output.exists():
        raise ValueError(f"{output} exists already, and keys are never overwritten. Choose a new folder with --output.")
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.keygen(Study.read(study), output, days, plain_console())


@party.command("local", epilog=examples("privet party local study.toml --data north.csv --data south.csv"))
def local(
    study: StudyFile,
    data: Annotated[list[Path], typer.Option(help="Table of a party. Repeat it in the order of the parties.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the parties' models.")] = Path("results"),
    timeout: Timeout = 60.0,
) -> None:
    """Try a study on this machine, with one process per party."""
    _check_study(study)
    positive("--timeout", timeout)
    for each in data:
        check_files(read={"table": each})
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.local(study, Study.read(study), data, output=output, timeout=timeout, console=plain_console())


@party.command("verify", epilog=examples("privet party verify study.privet.json --ca keys/ca.crt"))
def verify(
    model: Annotated[Path, typer.Argument(help="A model saved by privet party.")],
    ca: Annotated[Path | None, typer.Option(help="The study's ca.crt.")] = None,
    on: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="Day of the study, if its certificates have expired since. Default: today."
        ),
    ] = None,
    json: Json = None,
    verbose: Verbose = False,
) -> None:
    """Check that all parties of a study signed a model, and print its guarantee."""
    check_files(read={"model file": model, "certificate": ca})
    if "study" not in read_json(model):
        raise ValueError(f"{model} is not the result of a study, which `privet party run` writes.")
    console = console_for(json)
    from privet.commands import party as command

    command.verify_result(model, ca, on, verbose=verbose, output=json, console=console)


def _check_study(path: Path) -> None:
    """Raise ValueError if a study cannot be read, or is not a TOML file. Its content is checked later."""
    check_files(read={"study": path})
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"The study {path} cannot be read: {error}") from error
