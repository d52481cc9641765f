"""``privet party --server`` and ``--owner``: a few servers train one model, and many owners hand in shares."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console

from privet.commands.party import booked, encoded, naming_missing
from privet.files import check_writable, write_json
from privet.multiparty.protocol import roles
from privet.multiparty.protocol.results import sign, to_result, with_signatures
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.errors import NetworkError
from privet.privacy import Ledger
from privet.progress import progress_bar
from privet.tables import RECOGNISED, FileForm


def serve(
    study: Study,
    index: int,
    *,
    keys: Path | None,
    state: Path | None,
    output: Path,
    ledger: Ledger | None,
    connect_timeout: float,
    timeout: float,
    verbose: bool = False,
    console: Console,
) -> None:
    """Take part in a study as server ``index``, and write the model that all servers compute."""
    _check_index(study, index, len(study.servers), "--server")
    check_writable(output)
    network = roles.network_of(study, index, keys, connect_timeout=connect_timeout, timeout=2 * timeout)
    console.print(
        f"{study.servers[index].name}, server {index} of {len(study.servers)}; study {study.name}, "
        f"{study.digest[:16]}; up to {study.n_owners} owners have {timeout:g} s per release",
        highlight=False,
        soft_wrap=True,
    )
    folder = state or output.with_name(f"{output.name}.state")
    console.print(
        f"This server keeps its state in {folder}. Start it again only with this folder: without it, new noise on the "
        "same rows would be a second release, which the guarantee does not cover.",
        highlight=False,
        soft_wrap=True,
    )

    async def run() -> None:
        async with network.connect(naming_missing([each.name for each in study.servers], console)) as session:
            console.print("All servers are connected. Waiting for owners to hand in", highlight=False)
            with progress_bar("Noisy sums", console.is_terminal, console) as progress:
                release = await roles.serve(
                    session,
                    study,
                    keys=keys,
                    state=folder,
                    patience=timeout,
                    check=None if ledger is None else ledger.check,
                    book=booked(study, ledger),
                    progress=progress,
                )
            result = to_result(study, release)
            signatures = await sign(session, study, result)
        write_json(output, with_signatures(result, signatures))
        console.print(release.guarantee.statement(verbose), highlight=False, markup=False, soft_wrap=True)
        if left_out := result.get("left_out"):
            console.print(
                f"Left out, because a contribution exceeded its bound: {', '.join(left_out)}", highlight=False
            )
        console.print(
            f"{len(release.trace['counts'])} of {study.n_owners} owners took part. Model written to {output}. Use it "
            f"with: privet predict {output} TABLE",
            highlight=False,
            soft_wrap=True,
        )

    _run(run())


def hand_in(
    study: Study,
    index: int,
    data: Path | None,
    *,
    form: FileForm = RECOGNISED,
    keys: Path | None,
    ledger: Ledger | None,
    timeout: float,
    verbose: bool = False,
    console: Console,
) -> None:
    """Take part in a study as owner ``index``."""
    _check_index(study, index, study.n_owners, "--owner")
    if data is None:
        raise StudyError("An owner brings rows. Give its table with --data.")
    table = encoded(study, data, form, console)  # before anything is sent

    console.print(
        f"{study.owner_names[index]}; study {study.name}, {study.digest[:16]}; handing in to "
        f"{', '.join(server.name for server in study.servers)}, for at most {timeout:g} s per release",
        highlight=False,
        soft_wrap=True,
    )

    async def run() -> None:
        with progress_bar("Noisy sums", console.is_terminal and study.method == "gradient", console) as progress:
            release = await roles.hand_in(
                study,
                index,
                table,
                keys=keys,
                timeout=timeout,
                check=None if ledger is None else ledger.check,
                book=booked(study, ledger),
                progress=progress,
            )
        console.print(f"{study.owner_names[index]} has handed in its shares to all servers", highlight=False)
        if release is None:
            console.print(
                "The servers write the model. If they have to be started again before that, hand in again with the "
                "same command.",
                highlight=False,
                soft_wrap=True,
            )
        else:
            console.print(release.guarantee.statement(verbose), highlight=False, markup=False, soft_wrap=True)

    _run(run())


def _check_index(study: Study, index: int, number: int, option: str) -> None:
    if not study.servers:
        raise StudyError(f"{option} is for studies with servers, and this one has none. Use --index.")
    if not 0 <= index < number:
        raise StudyError(f"{option} must be a number from 0 to {number - 1}, got {index}.")


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except NetworkError as error:
        raise StudyError(str(error)) from error
