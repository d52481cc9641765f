"""``privet party``: several data owners train one model, with one process per party."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from socket import socket
from typing import IO

from rich.console import Console

from privet.commands.json_output import write_result
from privet.files import check_writable, read_json, write_json
from privet.linear import TableModel
from privet.multiparty import Network, NetworkError, make_keys
from privet.multiparty.protocol.participation import Table, take_part
from privet.multiparty.protocol.results import Signature, sign, skipped, to_result, with_signatures
from privet.multiparty.protocol.results import verify_result as check_result
from privet.multiparty.study import Study, StudyError
from privet.privacy import Guarantee, Ledger
from privet.privacy.ledger.spending import book_spending
from privet.progress import progress_bar
from privet.tables import RECOGNISED, FileForm, TableError, read_table


def run(
    study: Study,
    index: int,
    data: Path | None,
    *,
    form: FileForm = RECOGNISED,
    keys: Path | None,
    output: Path,
    ledger: Ledger | None,
    connect_timeout: float,
    timeout: float,
    verbose: bool = False,
    console: Console,
) -> None:
    """Take part in a study as party ``index``, and write the model that all parties compute."""
    if study.servers:
        raise StudyError("This study has servers. Use --server for one of them, or --owner for an owner of rows.")
    if not 0 <= index < len(study.parties):
        raise StudyError(
            f"--index must be the position of this party in the study, from 0 to {len(study.parties) - 1}, got {index}."
        )
    check_writable(output)
    addresses = tuple((party.host, party.port) for party in study.parties)
    network = Network(addresses, index, keys, connect_timeout=connect_timeout, timeout=timeout)
    # Before connecting: a table that does not match the study is refused without the other parties noticing.
    table = None if data is None else encoded(study, data, form, console)
    console.print(
        f"{study.parties[index].name}, party {index} of {len(study.parties)}; study {study.name}, {study.digest[:16]}",
        highlight=False,
    )
    try:
        asyncio.run(_run(network, study, table, output=output, ledger=ledger, verbose=verbose, console=console))
    except NetworkError as error:
        raise StudyError(str(error)) from error


def encoded(study: Study, data: Path, form: FileForm, console: Console) -> Table:
    """Return the encoded table of this party, and tell its owner how many values were clipped."""
    frame = read_table(data, study.table, form=form)
    rows = study.encode(frame)
    clipped = [f"{number} of {name!r}" for name, number in study.table.n_clipped(frame).items()]
    if clipped:
        console.print(
            f"Values beyond the study's bounds were clipped to them: {', '.join(clipped)}. These numbers are not "
            "private and are shown only here. Do not pass them on.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return rows


def booked(study: Study, ledger: Ledger | None) -> Callable[[Guarantee], None]:
    """Return a function that records the budget of a study in a ledger, if there is one."""

    def book(guarantee: Guarantee) -> None:
        # This happens before anything is opened, so a crash in between wastes budget but never loses track of it.
        book_spending(guarantee, f"study {study.name} ({study.digest[:16]})", ledgers=[ledger])

    return book


def naming_missing(names: Sequence[str], console: Console) -> Callable[[list[int]], None]:
    """Return a function that prints the names of the members that are not connected yet, given their positions."""

    def waiting(missing: list[int]) -> None:
        if missing:
            console.print(f"Waiting for {', '.join(names[each] for each in missing)}", highlight=False)

    return waiting


async def _run(
    network: Network,
    study: Study,
    table: Table | None,
    *,
    output: Path,
    ledger: Ledger | None,
    verbose: bool,
    console: Console,
) -> None:
    """Connect with the other parties, train, sign the model and write it."""
    async with network.connect(naming_missing([party.name for party in study.parties], console)) as session:
        console.print("All parties are connected", highlight=False)
        shown = "Turns" if study.method == "relay" else "Noisy sums"
        with progress_bar(shown, console.is_terminal, console) as progress:
            release = await take_part(
                session,
                study,
                table,
                check=None if ledger is None else ledger.check,
                book=booked(study, ledger),
                progress=progress,
            )
        result = to_result(study, release)
        signatures = await sign(session, study, result)
        traffic = session.bytes_sent + session.bytes_received
    write_json(output, with_signatures(result, signatures))
    console.print(release.guarantee.statement(verbose), highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{traffic / 1e6:.1f} MB sent and received. Model written to {output}, "
        + (f"signed by {_signers(study, signatures)}" if signatures else "unsigned, because there were no keys")
        + f". Use it with: privet predict {output} TABLE",
        highlight=False,
        soft_wrap=True,
    )


def _signers(study: Study, signatures: Sequence[Signature]) -> str:
    """Return which of the parties signed. Those that a relay skipped did not."""
    signed, parties = {each.party for each in signatures}, [party.name for party in study.parties]
    missing = [name for name in parties if name not in signed]
    if not missing:
        return f"all {len(parties)} parties"
    return f"{len(signed)} of {len(parties)} parties, without {', '.join(missing)}, which failed and was skipped"


def keygen(study: Study, folder: Path, days: float, console: Console) -> None:
    """Make the keys and certificates of all parties of a study."""
    owners = study.owner_names if study.servers else []
    made = make_keys(folder, [member.name for member in study.members], days=days, owners=owners)
    who = f"{len(study.servers)} servers and {len(owners)} owners" if owners else f"{len(study.parties)} parties"
    console.print(f"Keys of {who} are in {made}, valid for {days:g} days.", highlight=False)
    for index, member in enumerate(study.members):
        console.print(f"  {member.name}: ca.crt, party_{index}.crt, party_{index}.key", highlight=False)
    if owners:
        console.print("  each owner, for instance 0: ca.crt, owner_0.crt, owner_0.key", highlight=False)
    console.print(
        "Give each of them its own three files over a secure channel, then delete this folder.", highlight=False
    )


def local(path: Path, study: Study, data: Sequence[Path], *, output: Path, timeout: float, console: Console) -> None:
    """Run all parties on this machine, with one process per party and temporary keys."""
    if study.servers:
        raise StudyError(
            "privet party local starts studies without servers only. Start each server with --server and each owner "
            "with --owner. Addresses on localhost keep them on this machine."
        )
    if not 0 < len(data) <= len(study.parties):
        raise StudyError(
            f"The study has {len(study.parties)} parties. Give --data at most once per party, got {len(data)}."
        )
    for party, table in zip(study.parties, data, strict=False):
        try:
            # The other processes would wait in vain for a party that cannot start.
            study.encode(read_table(table, study.table))
        except TableError as error:
            raise TableError(f"{party.name}: {error}") from error
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="privet-study-") as folder, ExitStack() as files:
        keys = make_keys(Path(folder) / "keys", [party.name for party in study.parties], days=1)
        moved = [part for port in free_ports(len(study.parties)) for part in ("--at", f"127.0.0.1:{port}")]
        processes = []
        for index, party in enumerate(study.parties):
            options = ["--index", str(index), "--keys", str(keys), *moved]
            # On one machine all parties connect quickly. If one fails at its start, the others need not wait long.
            options += ["--timeout", str(timeout), "--connect-timeout", str(timeout)]
            options += ["--output", str(output / f"{party.name}.privet.json")]
            options += ["--data", str(data[index])] if index < len(data) else []
            command = [sys.executable, "-m", "privet", "party", "run", str(path), *options]
            # Show the output of the first party only. That of the others matters only if they fail.
            log = None if index == 0 else files.enter_context((Path(folder) / f"{index}.log").open("w+"))
            processes.append((party.name, log, subprocess.Popen(command, stdout=log, stderr=log)))
        failed = [name for name, log, process in processes if process.wait() and _report_failure(name, log, console)]
    if failed:
        raise StudyError(f"The study failed at {', '.join(failed)}. No model was written there.")


def _report_failure(name: str, log: IO[str] | None, console: Console) -> bool:
    """Print the last line of a failed party's output, and return True."""
    if log is not None:
        log.seek(0)
        console.print(f"{name}: {(log.read().strip().splitlines() or ['no output'])[-1]}", highlight=False)
    return True


def verify_result(
    path: Path,
    authority: Path | None,
    on: datetime | None,
    *,
    verbose: bool = False,
    output: Path | None = None,
    console: Console,
) -> None:
    """Check that every party of the study signed a model with a certificate that was valid on the given day.

    Parties that a relay skipped are named.
    """
    fields = read_json(path)
    if authority is None and fields.get("signatures"):
        raise ValueError("Give --ca, the ca.crt of the study. Signatures prove nothing without it.")
    day = None if on is None else on.replace(hour=12, tzinfo=UTC)
    try:
        study = check_result(fields, authority.read_bytes() if authority else b"", day)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    guarantee = TableModel.load(path).guarantee
    missing = skipped(study, fields)
    members, what = study.members, "server" if study.servers else "party"
    who = f"{len(members) - len(missing)} of {len(members)}" if missing else f"all {len(members)}"
    lines = [
        f"Study {study.name}, SHA-256 {fields['study']['digest']}",
        f"Signed by {who} {'servers' if study.servers else 'parties'}:",
        *(f"  {what} {index}: {each.name}" for index, each in enumerate(members) if each.name not in missing),
        *(f"  not by {name}, which failed and was skipped" for name in missing),
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    console.print(guarantee.statement(verbose), highlight=False, markup=False, soft_wrap=True)
    found = {"study": study.name, "digest": fields["study"]["digest"], "skipped": list(missing)}
    signed = [each.name for each in members if each.name not in missing]
    write_result(output, found | {"signed_by": signed, "epsilon": guarantee.epsilon, "delta": guarantee.delta})


def free_ports(number: int) -> list[int]:
    """Return ports that are currently free on this machine."""
    sockets = [socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
