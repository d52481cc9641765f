"""A relay of five processes on Adult, against the same plan in one process, where one person holds all rows.

Five owners with 6,000 rows of Adult each pass the state of a noisy descent on, with ``privet party``, one command per
owner. The noise, the steps and the guarantee towards the public are those of ``projected_sgd`` on the pooled rows, so
the accuracy must be the same, within the spread over runs.

Usage: python experiments/relay.py [--runs 5] [--quick]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from multiparty_processes import NUMERIC, adult_tables
from support import console, print_table, write_results

from privet.linear import TableModel
from privet.multiparty.protocol.participation import plan_of
from privet.multiparty.protocol.relay_plan import RelayPlan
from privet.multiparty.study import Study
from privet.privacy import NoiseSource, gdp_epsilon
from privet.solvers import Run, projected_sgd

OWNERS, ROWS, BATCH, PASSES = 5, 6000, 500, 20
EPSILON, DELTA = 1.0, 1e-6


def study_values(levels: dict[str, list[str]], passes: int, batch: int) -> dict[str, Any]:
    """Return the study, in which an owner's name is its place in the order."""
    return {
        "name": "adult",
        "epsilon": EPSILON,
        "delta": DELTA,
        "method": "relay",
        "alpha": 1e-4,
        "passes": passes,
        "batch": batch,
        "party": [{"name": f"owner{i}", "address": f"127.0.0.1:{9100 + i}"} for i in range(OWNERS)],
        "table": {
            "target": "income",
            "target_levels": ["<=50K", ">50K"],
            "numeric": NUMERIC,
            "categorical": levels,
        },
    }


def as_toml(values: dict[str, Any]) -> str:
    """Return the text of a study file."""
    tables = {"table", "party"}
    lines = [f"{key} = {_toml(value)}" for key, value in values.items() if key not in tables]
    for party in values["party"]:
        lines += ["[[party]]", *(f"{key} = {_toml(value)}" for key, value in party.items())]
    for name in ("", "numeric", "categorical"):
        part = values["table"][name] if name else values["table"]
        lines.append(f"[table.{name}]" if name else "[table]")
        lines += [f"{_toml(key)} = {_toml(value)}" for key, value in part.items() if not isinstance(value, dict)]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else repr(value)


def between_processes(values: dict[str, Any], tables: list[pd.DataFrame], test: pd.DataFrame) -> tuple[float, float]:
    """Return the test accuracy of one relay of processes, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.toml").write_text(as_toml(values))
        command = [sys.executable, "-m", "privet", "party", "local", str(folder / "study.toml"), "-o", str(folder)]
        for index, table in enumerate(tables):
            table.to_csv(folder / f"{index}.csv", index=False)
            command += ["--data", str(folder / f"{index}.csv")]
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        model = TableModel.load(folder / "owner0.privet.json")
    return float(np.mean(model.predict(test) == test["income"].to_numpy())), seconds


def in_one_process(study: Study, plan: RelayPlan, train: pd.DataFrame, test: pd.DataFrame, runs: int) -> list[float]:
    """Return the test accuracies of ``projected_sgd`` with the same plan on all rows."""
    problem = study.problem([len(train)]).local(*study.encode(train))
    X, y = study.encode(test)
    found = []
    for _ in range(runs):
        weights = projected_sgd(problem, Run(plan.plan, NoiseSource())).weights.ravel()
        scores = X @ weights[:-1] + study.intercept_scaling * weights[-1]
        found.append(float(np.mean((scores > 0) == y)))
    return found


def measured(runs: int, rows: int, passes: int, batch: int) -> dict[str, Any]:
    """Return the accuracies of both, and the epsilon of every owner towards the public and towards the next owner."""
    train, test, levels = adult_tables()
    train = train.iloc[: OWNERS * rows]
    values = study_values(levels, passes, batch)
    study = Study.from_values(values)
    plan = plan_of(study, study.problem([rows] * OWNERS))
    assert isinstance(plan, RelayPlan)
    relays = [
        between_processes(values, [train.iloc[i * rows : (i + 1) * rows] for i in range(OWNERS)], test)
        for _ in range(runs)
    ]
    pooled = in_one_process(study, plan, train, test, 4 * runs)
    return {
        "owners": OWNERS,
        "rows": rows,
        "passes": passes,
        "batch": batch,
        "epsilon": EPSILON,
        "delta": DELTA,
        "relay": _summary([accuracy for accuracy, _ in relays]),
        "one process": _summary(pooled),
        "seconds": float(np.mean([seconds for _, seconds in relays])),
        "epsilon of each owner": [gdp_epsilon(plan.mu(owner, plan.turns), DELTA) for owner in plan.order],
        "epsilon towards the next owner": gdp_epsilon(plan.next_holder_mu, DELTA),
    }


def _summary(accuracies: list[float]) -> dict[str, Any]:
    spread = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0
    return {"mean": float(np.mean(accuracies)), "spread": spread, "runs": len(accuracies)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="relays of processes; four times as many in one process")
    parser.add_argument("--quick", action="store_true", help="one small relay, which writes no results")
    options = parser.parse_args()
    found = measured(1, 200, 2, 50) if options.quick else measured(options.runs, ROWS, PASSES, BATCH)
    names = {"relay": f"relay of {OWNERS} processes", "one process": "projected_sgd in one process"}
    table = [[name, f"{found[key]['mean']:.4f} ± {found[key]['spread']:.4f}"] for key, name in names.items()]
    print_table(f"Adult, test accuracy at epsilon {EPSILON:g}", ["", "accuracy"], table)
    console.print(
        f"Epsilon towards the public by place: {', '.join(f'{each:.3f}' for each in found['epsilon of each owner'])}; "
        f"towards the next owner: {found['epsilon towards the next owner']:.3f}. {found['seconds']:.0f} s per relay."
    )
    if not options.quick:
        write_results("relay", found)


if __name__ == "__main__":
    main()
