"""Dissertation, section 6.7: time and traffic of the protocol between real processes, and a real run on Adult.

Table 6.2 gives the time and traffic of one noisy aggregation by garbled circuits. Here three parties, with one process
per party, aggregate over TLS on loopback with joint noise. Then three "hospitals" with a third of Adult each train a
logistic regression with ``privet party``, one command per party.

Usage: python experiments/multiparty_processes.py [--steps 100] [--releases 5]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from support import arrays, console, print_table, write_results

from privet.commands.party import free_ports
from privet.linear import TableModel
from privet.multiparty import JointAggregator, Network, make_keys
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget
from privet.tables import TableSchema

PAPER = {104: (22.28, 776.93 + 35.17), 122: (26.45, 911.35 + 41.19), 95: (20.31, 709.72 + 32.28)}
NAMES = {104: "Adult", 122: "KDDCup99", 95: "KDDCup98"}
EPSILON, DELTA = 0.5, 1e-3
# Bounds from the code book, not from the rows.
NUMERIC = {
    "age": [17, 90],
    "fnlwgt": [0, 1_500_000],
    "education-num": [1, 16],
    "capital-gain": [0, 100_000],
    "capital-loss": [0, 5000],
    "hours-per-week": [1, 99],
}


def a_plan(dimension: int) -> AggregationPlan:
    """Return the plan of one release, for unit gradients of 30,000 records."""
    return AggregationPlan.for_budget(
        Budget(EPSILON, DELTA), dimension=dimension, steps=100, sensitivity=2.0, largest=3e4
    )


async def aggregate(network: Network, dimension: int, releases: int) -> dict[str, float]:
    """Return the mean seconds and megabytes of one release, as one party measures them."""
    plan = a_plan(dimension)
    async with network.connect() as session:
        aggregator = JointAggregator(plan, session, None)
        await aggregator.noisy_sum(lambda _: np.zeros(dimension))  # The first release also makes tables and keys.
        before, begin = session.bytes_sent, time.perf_counter()
        for _ in range(releases):
            await aggregator.noisy_sum(lambda _: np.zeros(dimension))
        return {
            "seconds": (time.perf_counter() - begin) / releases,
            "megabytes": (session.bytes_sent - before) / releases / 1e6,
        }


def table_62(releases: int) -> list[dict[str, Any]]:
    """Return time and traffic for each number of features in the paper."""
    found = []
    for dimension in PAPER:
        with tempfile.TemporaryDirectory() as folder:
            keys = make_keys(Path(folder) / "keys", ["a", "b", "c"], days=2)
            ports = ",".join(map(str, free_ports(3)))
            options = [
                "--dimension",
                str(dimension),
                "--releases",
                str(releases),
                "--keys",
                str(keys),
                "--ports",
                ports,
            ]
            command = [sys.executable, __file__, "--party"]
            runs = [subprocess.Popen([*command, str(i), *options], stdout=subprocess.PIPE, text=True) for i in range(3)]
            outputs = [json.loads(run.communicate(timeout=300)[0]) for run in runs]
        seconds = max(each["seconds"] for each in outputs)
        megabytes = sum(each["megabytes"] for each in outputs)
        found.append(
            {
                "features": dimension,
                "bits": a_plan(dimension).law.bits_drawn,
                "seconds": seconds,
                "megabytes": megabytes,
            }
        )
    return found


def adult_tables() -> tuple[pd.DataFrame, pd.DataFrame, dict[str, list[str]]]:
    """Return Adult's training and test tables without missing values, and the levels of its categories."""
    parts = arrays("adult.npz")
    levels = {str(name): [str(level) for level in parts[f"levels_{name}"]] for name in parts["cat_names"]}
    frames = []
    for part in ("train", "test"):
        numbers = pd.DataFrame(parts[f"num_{part}"], columns=[str(name) for name in parts["num_names"]])
        codes = parts[f"cat_{part}"]
        for place, name in enumerate(levels):
            numbers[name] = np.array(levels[name], dtype=object)[codes[:, place]]
        numbers["income"] = np.where(parts[f"y_{part}"] == 1, ">50K", "<=50K")
        frames.append(numbers[~(numbers == "?").any(axis=1)])
    known = {name: [level for level in texts if level != "?"] for name, texts in levels.items()}
    return frames[0], frames[1], known


def study_text(levels: dict[str, list[str]], steps: int) -> str:
    """Return the text of the study file."""
    quoted = json.dumps
    lines = [f'name = "adult"\nepsilon = {EPSILON}\ndelta = {DELTA}\nsteps = {steps}\nalpha = 1e-3\nstep_size = 4.0']
    lines += [f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{9100 + i}"' for i, name in enumerate("abc")]
    lines += ['[table]\ntarget = "income"\ntarget_levels = ["<=50K", ">50K"]', "[table.numeric]"]
    lines += [f"{quoted(name)} = {bounds}" for name, bounds in NUMERIC.items()]
    lines += ["[table.categorical]", *(f"{quoted(name)} = {quoted(texts)}" for name, texts in levels.items())]
    return "\n".join(lines) + "\n"


def adult(steps: int) -> dict[str, Any]:
    """Return the time that three parties took on Adult, and the accuracy of their model."""
    train, test, levels = adult_tables()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.toml").write_text(study_text(levels, steps))
        tables = [folder / f"hospital{i}.csv" for i in range(3)]
        for i, path in enumerate(tables):
            train.iloc[i::3].to_csv(path, index=False)
        begin = time.perf_counter()
        command = [sys.executable, "-m", "privet", "party", "local", str(folder / "study.toml"), "-o", str(folder)]
        subprocess.run([*command, *(part for path in tables for part in ("--data", str(path)))], check=True)
        seconds = time.perf_counter() - begin
        model = TableModel.load(folder / "a.privet.json")
        same = len({(folder / f"{each}.privet.json").read_bytes() for each in "abc"}) == 1
    accuracy = float(np.mean(model.predict(test) == test["income"].to_numpy()))
    assert isinstance(model.schema, TableSchema)
    return {
        "steps": steps,
        "rows": len(train),
        "columns": len(model.schema.columns),
        "seconds": seconds,
        "accuracy": accuracy,
        "all models equal": same,
        "epsilon": model.guarantee.epsilon,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="of the run on Adult")
    parser.add_argument("--releases", type=int, default=5, help="over which Table 6.2 is averaged")
    for name in ("--party", "--dimension"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--keys", help=argparse.SUPPRESS)
    parser.add_argument("--ports", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.party is not None:
        addresses = tuple(("127.0.0.1", int(port)) for port in options.ports.split(","))
        network = Network(addresses, options.party, options.keys)
        print(json.dumps(asyncio.run(aggregate(network, options.dimension, options.releases))))
        return
    costs = table_62(options.releases)
    rows = [
        [
            f"{NAMES[each['features']]}, {each['features']}",
            f"{PAPER[each['features']][0]:.2f} s, {PAPER[each['features']][1]:.0f} MB",
            f"{each['seconds']:.2f} s, {each['megabytes']:.2f} MB",
            str(each["bits"]),
        ]
        for each in costs
    ]
    columns = ["features", "paper: two parties, Yao", "privet: three parties, TLS", "bits per coordinate"]
    print_table("Table 6.2: one aggregation with noise (megabytes sent by all parties together)", columns, rows)
    run = adult(options.steps)
    console.print(
        f"Adult, {run['rows']} rows in three processes, {run['steps']} steps, epsilon {EPSILON}: "
        f"{run['seconds']:.0f} s, test accuracy {run['accuracy']:.4f}; all parties wrote the same model: "
        f"{run['all models equal']}"
    )
    write_results("multiparty_processes", {"table 6.2": costs, "adult": run})


if __name__ == "__main__":
    main()
