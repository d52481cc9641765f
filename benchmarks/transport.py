"""The transport between parties beside gRPC: seconds, processor time and memory, over mutual TLS on loopback.

python benchmarks/transport.py [--json] [--repeats 3] [--only NAME ...]

Both carry the same frames for the same sessions (benchmarks/grpc_mesh.py), so the computation is the same and the
difference is that of the transports. Parties are processes, and all of them share the cores of this machine. Runs of
the two alternate. A party's time starts when all parties are ready, and the slowest party counts.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from privet.commands.party import free_ports
from privet.multiparty import JointAggregator, JointProblem, Network, Session, make_keys
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget
from privet.solvers import Problem

HOST = "127.0.0.1"
BUDGET = Budget(1.0, 1e-6)
TRANSPORTS = ("present", "grpc")
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
LARGE = 16 * 2**20


@dataclass(frozen=True)
class Case:
    """Something that parties do after they have connected."""

    name: str
    parties: int
    work: str
    times: int  # how often per measurement
    dimension: int = 104


CASES = (
    Case("one release, 3 parties", 3, "release", 5),
    Case("one release, 5 parties", 5, "release", 2),
    Case("100 steps, 3 parties", 3, "descent", 100, dimension=8),
    Case("one exchange without content, 3 parties", 3, "exchange", 1000, dimension=0),
    Case("one exchange of 16 MiB, 2 parties", 2, "exchange", 8, dimension=LARGE),
)


# ----------------------------------------------------------------------------------------------------- work of a party


async def release(session: Session, case: Case) -> Callable[[], Awaitable[Any]]:
    """Open noisy sums."""
    plan = AggregationPlan.for_budget(BUDGET, dimension=case.dimension, steps=100, sensitivity=2.0, largest=3e4)
    aggregator = JointAggregator(plan, session, None)
    await aggregator.noisy_sum(lambda _: np.zeros(case.dimension))  # The first one also makes tables and keys.

    async def work() -> None:
        for _ in range(case.times):
            await aggregator.noisy_sum(lambda _: np.zeros(case.dimension))

    return work


async def descent(session: Session, case: Case) -> Callable[[], Awaitable[Any]]:
    """Train a small model: many rounds of small messages."""
    rng = np.random.default_rng(session.index)
    rows, targets = rng.uniform(-0.3, 0.3, (500, case.dimension)), rng.integers(0, 2, 500).astype(float)
    problem = Problem(Logistic(), L2(1e-2), BoundedRows(rows, 1.0, 0.5), targets)
    joint = JointProblem.of([problem] * session.parties)
    plan = gradient_plan(joint, BUDGET, steps=case.times)
    aggregator = JointAggregator(plan, session, problem)
    return lambda: joint_gradient_descent(joint, aggregator, delta=BUDGET.delta)


async def exchange(session: Session, case: Case) -> Callable[[], Awaitable[Any]]:
    """Exchange public messages, one round after the other."""

    async def work() -> None:
        for _ in range(case.times):
            await session.exchange(bytes(case.dimension))

    return work


async def take_part(case: Case, transport: str, index: int, ports: list[int], keys: Path) -> None:
    """Run one party, and print what it measured."""
    if transport == "grpc":
        import grpc_mesh

        grpc_mesh.use(keys)
    mpyc_runtime.description()  # loads MPyC
    print("ready", flush=True)
    sys.stdin.readline()
    begin, used = time.perf_counter(), time.process_time()
    async with Network(tuple((HOST, port) for port in ports), index, keys, timeout=120).connect() as session:
        said = {"connecting": time.perf_counter() - begin, "connecting_processor": time.process_time() - used}
        work = await globals()[case.work](session, case)
        await session.exchange(b"ready")
        begin, used, sent = time.perf_counter(), time.process_time(), session.bytes_sent
        await work()
        said["seconds"] = (time.perf_counter() - begin) / case.times
        said["processor"] = (time.process_time() - used) / case.times
        said["bytes"] = (session.bytes_sent - sent) / case.times
    if transport == "grpc":
        for server in grpc_mesh.Mesh.servers:
            await server.stop(0)
    said["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(said), flush=True)


# ------------------------------------------------------------------------------------------------------------ measuring


def measured(case: Case, transport: str, keys: Path) -> dict[str, float]:
    """Run a case in processes. Times and memory are those of the slowest and largest party, the rest is summed."""
    ports = free_ports(case.parties)

    def process(index: int) -> subprocess.Popen[str]:
        given = json.dumps([asdict(case), transport, index, ports, str(keys)])
        command = [sys.executable, "-W", "ignore", __file__, "--process", given]
        return subprocess.Popen(command, stdin=-1, stdout=-1, text=True)

    parties = [process(index) for index in range(case.parties)]
    try:
        for party in parties:
            assert party.stdout is not None and party.stdout.readline() == "ready\n"
        for party in parties:
            assert party.stdin is not None
            party.stdin.write("\n")
            party.stdin.flush()
        said = [json.loads(party.communicate(timeout=200)[0]) for party in parties]
    finally:
        for party in parties:
            party.kill()
    worst = {key: max(each[key] for each in said) for key in ("connecting", "seconds", "mebibytes")}
    return worst | {key: sum(each[key] for each in said) for key in ("connecting_processor", "processor", "bytes")}


def main() -> None:
    """Measure all cases, print a table, and write it with --json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write docs/results/transport_trial.json")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each transport")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.process:
        values, transport, index, ports, keys = json.loads(chosen.process)
        asyncio.run(take_part(Case(**values), transport, index, ports, Path(keys)))
        return
    console, rows = Console(width=140), []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if chosen.only and case.name not in chosen.only:
                continue
            keys = make_keys(Path(folder) / str(len(rows)), [f"party {each}" for each in range(case.parties)])
            runs: dict[str, list[dict[str, float]]] = {each: [] for each in TRANSPORTS}
            for _ in range(chosen.repeats):
                for transport in TRANSPORTS:
                    runs[transport].append(measured(case, transport, keys))
            found = {
                transport: {key: statistics.median(run[key] for run in each) for key in each[0]}
                for transport, each in runs.items()
            }
            ratio = found["grpc"]["seconds"] / found["present"]["seconds"]
            rows.append({**asdict(case), **found, "ratio": ratio, "all_seconds": seconds_of(runs)})
            console.print(f"{case.name}: {ratio:.2f}", highlight=False)
    console.print(table_of(rows))
    if chosen.json:
        write(rows, chosen.repeats)


def write(rows: list[dict[str, Any]], repeats: int) -> None:
    """Write the result file. Rows of other cases that it has already are kept, because a run may be for some only."""
    path = RESULTS / "transport_trial.json"
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = {row["name"]: row for row in [*before, *rows]}
    machine = {"python": platform.python_version(), "grpcio": version("grpcio"), "cores": os.cpu_count()}
    values = {"machine": machine, "repeats": repeats, "rows": [kept[each.name] for each in CASES if each.name in kept]}
    path.write_text(json.dumps(values, indent=1) + "\n")


def seconds_of(runs: dict[str, list[dict[str, float]]]) -> dict[str, list[float]]:
    """Return the seconds of every run, by transport."""
    return {transport: [run["seconds"] for run in each] for transport, each in runs.items()}


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Return a table of medians, with the present transport and gRPC side by side."""
    table = Table(title="The present transport, and gRPC (medians; milliseconds; processor time of all parties)")
    for column in ("case", "ms", "gRPC", "ratio", "processor", "gRPC", "connect", "gRPC", "MiB", "gRPC"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        values = [[row[transport][key] for transport in TRANSPORTS] for key in ("seconds", "processor", "connecting")]
        texts = [[f"{1000 * each:,.2f}" for each in pair] for pair in values]
        memory = [f"{row[transport]['mebibytes']:.0f}" for transport in TRANSPORTS]
        table.add_row(row["name"], *texts[0], f"{row['ratio']:.2f}", *texts[1], *texts[2], *memory)
    return table


if __name__ == "__main__":
    main()
