"""Full parties that form one noisy sum without servers: seconds and bytes, over mutual TLS on loopback.

python benchmarks/full_parties.py [--json] [--only PARTIES ...]

Each party is a process. All of them share the cores of this machine. The time of a release starts when all parties are
connected, and ends when the last of them has opened the noisy sum.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from privet.commands.party import free_ports
from privet.multiparty import JointAggregator, Network, make_keys
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget
from privet.solvers.base.interface import Problem

HOST = "127.0.0.1"
DIMENSION = 104  # as in Table 6.2 of L. Wang's dissertation
LIMITS = {3: None, 5: 2.0, 7: 4.0, 9: 8.0}  # seconds that a release may take
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


async def take_part(ports: Sequence[int], keys: Path, index: int) -> None:
    """Take part in one release, and print what it took."""
    plan = AggregationPlan.for_budget(
        Budget(1.0, 1e-6), dimension=DIMENSION, steps=1, sensitivity=2.0, largest=50.0 * len(ports)
    )
    problem = Problem(Logistic(), L2(1.0), BoundedRows(np.zeros((1, 1)), 1.0, 0.0), np.zeros(1))
    network = Network([(HOST, port) for port in ports], index, keys, connect_timeout=120.0, timeout=600.0)
    async with network.connect() as session:
        aggregator = JointAggregator(plan, session, problem)
        await session.exchange(b"ready")
        begin, sent, used = time.monotonic(), session.bytes_sent, time.process_time()
        await aggregator.noisy_sum(lambda _: np.linspace(-1.0, 1.0, DIMENSION))
        said = {
            "begin": begin,
            "end": time.monotonic(),
            "processor": time.process_time() - used,
            "bytes_sent": session.bytes_sent - sent,
            "mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    print(json.dumps(said), flush=True)


def measured(parties: int, keys: Path) -> dict[str, Any]:
    """Run one release in processes, and return what was measured."""
    ports = free_ports(parties)

    def process(index: int) -> subprocess.Popen[str]:
        given = json.dumps([ports, str(keys), index])
        return subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--process", given], stdout=-1, text=True)

    started = [process(index) for index in range(parties)]
    try:
        said = [json.loads(each.communicate()[0]) for each in started]
    finally:
        for each in started:
            each.kill()
    return {
        "parties": parties,
        "dimension": DIMENSION,
        "limit": LIMITS.get(parties),
        "seconds": max(each["end"] for each in said) - min(each["begin"] for each in said),
        "processor_seconds_per_party": sum(each["processor"] for each in said) / parties,
        "bytes_sent_per_party": sum(each["bytes_sent"] for each in said) / parties,
        "mebibytes_per_party": max(each["mebibytes"] for each in said),
    }


def main() -> None:
    """Run all cases, print a table, and write it with --json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write docs/results/full_parties_benchmark.json")
    parser.add_argument("--only", nargs="*", type=int, help="numbers of parties")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.process:
        ports, folder, index = json.loads(chosen.process)
        asyncio.run(take_part(ports, Path(folder), index))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for parties in chosen.only or LIMITS:
            keys = make_keys(Path(folder) / str(parties), [f"party {index}" for index in range(parties)])
            rows.append(measured(parties, keys))
    table = Table(title=f"Full parties, a release of {DIMENSION} numbers")
    for column in ("parties", "s", "limit", "processor s per party", "MB sent per party", "MiB per party"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["parties"]),
            f"{row['seconds']:.2f}",
            "" if row["limit"] is None else f"{row['limit']:g}",
            f"{row['processor_seconds_per_party']:.2f}",
            f"{row['bytes_sent_per_party'] / 1e6:.2f}",
            f"{row['mebibytes_per_party']:.0f}",
        )
    Console(width=120).print(table)
    if chosen.json:
        (RESULTS / "full_parties_benchmark.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
