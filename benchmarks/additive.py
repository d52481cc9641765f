"""Private additive models against interpret's DP-EBM and privet's linear models, on the same splits, in one run.

DP-EBM runs in a separate environment with interpret-core 0.7.8, whose Python is given by EBM_PYTHON. All models use
their defaults, delta 1e-6 and the same public bounds and levels. DP-EBM accounts for adding or removing a record, and
privet for replacing one, for which the same epsilon needs about twice the noise: the comparison favours DP-EBM. In a
regression, DP-EBM scales its noise by the range of the target, which is enough only if no target is larger in absolute
value (issue 523 of interpret). Here both ranges start at 0, so the two agree.

    EBM_PYTHON=.../bin/python python benchmarks/additive.py [--runs 5] [--tables adult bank ...]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from additive_tables import TABLES, Table
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from privet import PrivateAdditiveClassifier, PrivateAdditiveRegressor, PrivateLogisticRegression, PrivateRidge

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import Spread, console, print_table, write_results

DELTA = 1e-6
EPSILONS = {"adult": (0.1, 0.5, 1.0, 2.0, 4.0)}
USUAL = (0.1, 0.5, 1.0, 4.0)


def measured(table: Table, y: Any, found: Any) -> dict[str, float]:
    """Return how well predictions fit: R² of numbers, or area, log loss and accuracy of probabilities."""
    if table.is_number:
        return {"r2": float(r2_score(y, found))}
    found = np.clip(found, 1e-9, 1 - 1e-9)
    return {
        "auc": float(roc_auc_score(y, found)),
        "log_loss": float(log_loss(y, found)),
        "accuracy": float(accuracy_score(y, found > 0.5)),
    }


def additive(table: Table, epsilon: float, seed: int) -> dict[str, float]:
    """Return the measures of privet's additive model, and the seconds of its fit."""
    X, y, X_test, y_test = table.split(seed)
    options: dict[str, Any] = {"bounds": list(table.bounds), "levels": table.levels, "random_state": seed}
    begin = time.perf_counter()
    if table.target_bounds is not None:
        model = PrivateAdditiveRegressor(epsilon, DELTA, target_bounds=table.target_bounds, **options).fit(X, y)
    else:
        model = PrivateAdditiveClassifier(epsilon, DELTA, classes=(0, 1), **options).fit(X, y.astype(int))
    seconds = time.perf_counter() - begin
    found = model.predict(X_test) if table.is_number else model.predict_proba(X_test)[:, 1]
    return measured(table, y_test, found) | {"seconds": seconds}


def linear(table: Table, epsilon: float, seed: int) -> dict[str, float]:
    """Return the measures of privet's linear model with its defaults, on columns scaled by public bounds."""
    X, y, X_test, y_test = table.split(seed)
    X, X_test = table.encoded(X), table.encoded(X_test)
    begin = time.perf_counter()
    if table.target_bounds is not None:
        low, high = table.target_bounds
        half = (high - low) / 2
        model = PrivateRidge(epsilon, DELTA, random_state=seed).fit(X, (y - low) / half - 1)
        found = low + half * (model.predict(X_test) + 1)
    else:
        model = PrivateLogisticRegression(epsilon, DELTA, classes=(0, 1), random_state=seed).fit(X, y.astype(int))
        found = model.predict_proba(X_test)[:, 1]
    return measured(table, y_test, found) | {"seconds": time.perf_counter() - begin}


def peer(tables: list[Table], runs: int) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yield table, epsilon and measures of each fit of DP-EBM; nothing if its environment is missing."""
    python = os.environ.get("EBM_PYTHON")
    if not python or not Path(python).exists():
        console.print("EBM_PYTHON does not name the Python of an environment with interpret-core 0.7.8.")
        return
    script = Path(__file__).with_name("peer_interpret.py")
    for table in tables:
        with tempfile.TemporaryDirectory() as folder:
            cases = {}
            for epsilon in EPSILONS.get(table.name, USUAL):
                for seed in range(runs):
                    X, y, X_test, y_test = table.split(seed)
                    name = f"{len(cases):03d}"
                    cases[name] = epsilon, y_test
                    fields = {"X": X, "y": y, "X_test": X_test, "bounds": np.array(table.bounds)}
                    fields |= {"epsilon": epsilon, "delta": DELTA, "seed": seed}
                    np.savez(Path(folder) / f"{name}.npz", target_bounds=np.array(table.target_bounds or ()), **fields)
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            done = subprocess.run(
                [python, str(script), folder], env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            for line in done.stdout.splitlines():
                answer = json.loads(line)
                epsilon, y_test = cases[answer["file"]]
                found = measured(table, y_test, np.array(answer["found"]))
                yield table.name, epsilon, found | {"seconds": answer["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = [TABLES[name]() for name in options.tables]
    kept: dict[tuple[str, float, str], list[dict[str, float]]] = {}
    for table in tables:
        for epsilon in EPSILONS.get(table.name, USUAL):
            for model, fit in (("additive", additive), ("linear", linear)):
                kept[table.name, epsilon, model] = [fit(table, epsilon, seed) for seed in range(options.runs)]
    for name, epsilon, found in peer(tables, options.runs):
        kept.setdefault((name, epsilon, "DP-EBM"), []).append(found)
    rows = []
    for (name, epsilon, model), fits in kept.items():
        spreads = {measure: Spread.of([fit[measure] for fit in fits]) for measure in fits[0]}
        values = {measure: spread.mean for measure, spread in spreads.items()}
        stds = {f"{measure}_std": spread.std for measure, spread in spreads.items()}
        rows.append({"table": name, "epsilon": epsilon, "model": model, "runs": len(fits), **values, **stds})
    rows.sort(key=lambda row: (list(TABLES).index(row["table"]), row["epsilon"], row["model"]))
    columns = ("auc", "log_loss", "accuracy", "r2", "seconds")
    shown = [
        [row["table"], f"{row['epsilon']:g}", row["model"], *(f"{row[c]:.4f}" if c in row else "" for c in columns)]
        for row in rows
    ]
    print_table("means over fits", ["table", "epsilon", "model", *columns], shown)
    write_results("additive_benchmark", {"delta": DELTA, "interpret": "0.7.8", "rows": rows})


if __name__ == "__main__":
    main()
