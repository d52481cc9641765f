"""Owners who hand in shares to a committee of servers: seconds, bytes and memory, over mutual TLS on loopback.

python benchmarks/committee.py [--json] [--only NAME ...]

With --only, --json replaces the rows of these cases and keeps the others, so that cases can be measured one by one.

Servers are processes. All owners are in one more process, which makes one TLS connection per owner and server, as
independent owners would. The time of a release starts when the first owner calls and ends when the last server has
opened the noisy sum. Everything shares the cores of this machine, including the owners.

Table 6.2 of L. Wang's dissertation has 22, 26 and 20 s for sums of 104, 122 and 95 numbers, by garbled circuits of two
parties that need not trust each other. Here three servers compute, of which two must not collude (``majority``), or of
which one must be honest (``one``).
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from privet.multiparty import make_keys
from privet.multiparty.protocol import roles
from privet.multiparty.protocol.committee import handed_in, sharing_of
from privet.multiparty.protocol.participation import sum_plan
from privet.multiparty.study import Study
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import Servers
from privet.privacy import NoiseSource

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import ports_of_servers

HOST = "127.0.0.1"
AT_ONCE = 100  # owners who are connected at the same time, if they do not wait for what is opened
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


@dataclass(frozen=True)
class Case:
    """One release, or one descent of ``steps`` releases in which owners stay connected."""

    name: str
    trust: str
    servers: int
    owners: int
    dimension: int
    steps: int = 1
    limit: float | None = None  # seconds that a release or descent may take
    paper: float | None = None  # seconds in table 6.2
    check_norms: bool = False


CASES = (
    Case("table 6.2, d = 104", "majority", 3, 10, 104, paper=22.0),
    Case("table 6.2, d = 122", "majority", 3, 10, 122, paper=26.0),
    Case("table 6.2, d = 95", "majority", 3, 10, 95, paper=20.0),
    Case("table 6.2, d = 104, one", "one", 3, 10, 104, paper=22.0),
    Case("table 6.2, d = 122, one", "one", 3, 10, 122, paper=26.0),
    Case("table 6.2, d = 95, one", "one", 3, 10, 95, paper=20.0),
    Case("10 owners, norms checked", "majority", 3, 10, 104, check_norms=True),
    Case("100 owners", "majority", 3, 100, 104),
    Case("100 owners, norms checked", "majority", 3, 100, 104, check_norms=True),
    Case("1,000 owners", "majority", 3, 1_000, 104, limit=7.0),
    Case("1,000 owners, norms checked", "majority", 3, 1_000, 104, check_norms=True),
    Case("1,000 owners, one", "one", 3, 1_000, 104, limit=7.0),
    Case("10,000 owners", "majority", 3, 10_000, 104, limit=65.0),
    Case("100 steps of 100 owners", "majority", 3, 100, 104, steps=100, limit=60.0),
    Case("a million numbers", "one", 2, 100, 1_000_000, limit=30.0),
)


def study_of(case: Case, ports: Sequence[int]) -> Study:
    """Return the study of a case. Its columns are as many as the sum has numbers, with the intercept."""
    servers = [{"name": f"server {each}", "address": f"{HOST}:{port}"} for each, port in enumerate(ports)]
    columns = {f"x{place}": [-1, 1] for place in range(case.dimension - 1)}
    return Study.from_values(
        {
            "name": "benchmark",
            "epsilon": 1.0,
            "delta": 1e-6,
            "trust": case.trust,
            "owners": case.owners,
            "rows_per_owner": 50,
            "method": "gradient",
            "steps": case.steps,
            "check_norms": case.check_norms,
            "server": servers,
            "table": {"target": "y", "target_levels": ["no", "yes"], "numeric": columns},
        }
    )


# ------------------------------------------------------------------------------------------------ servers and owners


async def serve(case: Case, ports: Sequence[int], keys: Path, index: int) -> None:
    """Run one server, and print when it had opened everything, the bytes that it sent, and its memory."""
    study = study_of(case, ports)
    sum_plan(study, study.committee_problem())
    before = resident() if study.digest else 0.0  # A study of a million columns is large itself.
    network = roles.network_of(study, index, keys, connect_timeout=120, timeout=600)
    async with network.connect() as session:
        print("ready", flush=True)
        release = await roles.serve(session, study, keys=keys, patience=300.0)
        said = {
            "end": time.monotonic(),
            "bytes_sent": session.bytes_sent,
            "bytes_received": release.trace["bytes_received"],
            "owners": len(release.trace["counts"]),
            "mebibytes": resident(),
            "mebibytes_before": before,
        }
        print(json.dumps(said), flush=True)


def resident() -> float:
    """Return the most memory that this process has used, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def listening(address: tuple[str, int]) -> None:
    """Wait until a server has made its plan and listens for owners."""
    while True:
        try:
            _, writer = await asyncio.open_connection(*address)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def hand_in(case: Case, ports: Sequence[int], keys: Path) -> None:
    """Hand in as all owners, with random vectors, and print when the first of them called."""
    study = study_of(case, ports)
    plan = sum_plan(study, study.committee_problem())
    norms = roles.norm_check(study, plan)
    sharing = handed_in(sharing_of(plan, case.trust, case.servers, case.owners, norms), norms)
    digest, addresses = bytes.fromhex(study.digest), [(HOST, port) for port in ports]
    drawn = np.random.default_rng(0).integers(-1000, 1000, case.dimension)
    vector = drawn if norms is None else norms.to_bits(drawn)
    at_once = asyncio.Semaphore(case.owners if case.steps > 1 else AT_ONCE)

    async def one(owner: int) -> int:
        async with at_once, Servers(addresses, owner, keys, 600.0, sharing.longest) as servers:
            for number in range(case.steps):
                shares = sharing.split(vector, NoiseSource(), first=owner)
                waits = case.steps > 1
                await servers.hand_in([Contribution(digest, number, 50, waits, share) for share in shares])
            return servers.bytes_sent

    for address in addresses:
        await listening(address)
    begin = time.monotonic()
    sent = await asyncio.gather(*(one(owner) for owner in range(case.owners)))
    said = {"begin": begin, "most_bytes": max(sent) / case.servers / case.steps, "all_bytes": sum(sent)}
    print(json.dumps(said), flush=True)


# ------------------------------------------------------------------------------------------------------------ measuring


def measured(case: Case, keys: Path) -> dict[str, Any]:
    """Run a case in processes, and return what was measured."""
    ports = ports_of_servers(case.servers)

    def process(role: str) -> subprocess.Popen[str]:
        given = json.dumps([asdict(case), ports, str(keys), role])
        return subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--process", given], stdout=-1, text=True)

    servers = [process(str(index)) for index in range(case.servers)]
    try:
        for server in servers:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
        owners = process("owners")
        told, _ = owners.communicate()
        said = [json.loads(server.communicate()[0]) for server in servers]
    finally:
        for server in servers:
            server.kill()
    sent = json.loads(told)
    return {
        **asdict(case),
        "seconds": max(each["end"] for each in said) - sent["begin"],
        "bytes_per_owner_and_server": sent["most_bytes"],
        "bytes_from_all_owners": sent["all_bytes"],
        "bytes_between_servers": sum(each["bytes_sent"] for each in said),
        "mebibytes_per_server": max(each["mebibytes"] for each in said),
        "mebibytes_before_owners": max(each["mebibytes_before"] for each in said),
        "took_part": said[0]["owners"],
    }


def write(rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows to the result file, and keep its rows of other cases."""
    path = RESULTS / "committee_benchmark.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    by_name = {row["name"]: row for row in [*kept, *rows]}
    known = [by_name[case.name] for case in CASES if case.name in by_name]
    path.write_text(json.dumps({"cores": os.cpu_count(), "rows": known}, indent=1) + "\n")


def main() -> None:
    """Run all cases, print a table, and write it with --json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write docs/results/committee_benchmark.json")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.process:
        values, ports, keys, role = json.loads(chosen.process)
        case = Case(**values)
        work = hand_in(case, ports, Path(keys)) if role == "owners" else serve(case, ports, Path(keys), int(role))
        asyncio.run(work)
        return
    cases = [case for case in CASES if not chosen.only or case.name in chosen.only]
    console, rows = Console(width=140), []
    with tempfile.TemporaryDirectory() as folder:
        names = [f"server {index}" for index in range(3)]
        owners = [f"owner {index}" for index in range(max(case.owners for case in cases))]
        made = {number: make_keys(Path(folder) / str(number), names[:number], owners=owners) for number in (2, 3)}
        for case in cases:
            rows.append(measured(case, made[case.servers]))
            console.print(f"{case.name}: {rows[-1]['seconds']:.2f} s", highlight=False)
    table = Table(title="Owners and servers")
    for column in ("case", "trust", "servers", "owners", "d", "steps", "s", "limit", "B/owner", "MB servers", "MiB"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        table.add_row(
            row["name"],
            row["trust"],
            str(row["servers"]),
            str(row["took_part"]),
            str(row["dimension"]),
            str(row["steps"]),
            f"{row['seconds']:.2f}",
            "" if row["limit"] is None else f"{row['limit']:g}",
            f"{row['bytes_per_owner_and_server']:,.0f}",
            f"{row['bytes_between_servers'] / 1e6:.2f}",
            f"{row['mebibytes_per_server']:.0f}",
        )
    console.print(table)
    if chosen.json:
        write(rows)


if __name__ == "__main__":
    main()
