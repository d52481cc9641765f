"""R² of the methods of PrivateRidge that fit regression tables without any tuning: noisy descent and noisy moments.

Wine quality, hourly rentals of bikes, working hours per week in Adult, and visits to a doctor in the German health
panel, cut at 20. Columns are scaled by public bounds, and levels are indicators. Both methods use their defaults, delta
1e-6 and the same splits; seeds are paired.

With ``--validate``, fits use 64 % of the rows and are measured on 16 %. The floor of eigenvalues and the rule of
``method="auto"`` were chosen on such splits. Without it, 80 % and the remaining 20 %, which took no part in any choice.

    python benchmarks/regression_methods.py [--runs 5] [--validate]
"""

import argparse
import csv
import gzip
import io
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from additive_tables import Table, adult, bike, german, wine
from sklearn.metrics import r2_score

from privet import PrivateRidge

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import Spread, data_file, print_table, write_results

DELTA = 1e-6
EPSILONS = (0.1, 0.5, 1.0, 4.0, 16.0, 64.0)
METHODS = ("gradient", "sufficient_statistics")


def hours() -> Table:
    """Return Adult with the working hours per week, its sixth number, as the target."""
    table = adult()
    return replace(
        table,
        name="hours",
        X=np.delete(table.X, 5, axis=1),
        y=table.X[:, 5],
        bounds=table.bounds[:5],
        target_bounds=(0, 100),
        n_train=None,
    )


def visits() -> Table:
    """Return the German health panel with the number of visits to a doctor in the last three months as the target."""
    with gzip.open(data_file("german_health_5yr.csv.gz")) as file:
        y = np.array([float(row["docvis"]) for row in csv.DictReader(io.TextIOWrapper(file))])
    return replace(german(), name="visits", y=y, target_bounds=(0, 20))


TABLES = {"wine": wine, "bike": bike, "hours": hours, "visits": visits}


def prepared(table: Table) -> tuple[Any, Any]:
    """Return the columns as rows of norm at most 1, and targets in [-1, 1]."""
    assert table.target_bounds is not None
    low, high = table.target_bounds
    return table.encoded(table.X), 2 * (np.clip(table.y, low, high) - low) / (high - low) - 1


def measured(X: Any, y: Any, method: str, epsilon: float, seed: int, validates: bool) -> tuple[float, float, str]:
    """Return the R² of a fit, its seconds and the method that ran."""
    order, n = np.random.default_rng(1000 + seed).permutation(len(y)), len(y)
    ends = (int(0.64 * n), int(0.8 * n)) if validates else (int(0.8 * n), n)
    train, test = order[: ends[0]], order[ends[0] : ends[1]]
    begin = time.perf_counter()
    model = PrivateRidge(epsilon, DELTA, method=method, random_state=seed).fit(X[train], y[train])
    seconds = time.perf_counter() - begin
    return float(r2_score(y[test], model.predict(X[test]))), seconds, str(model.method_)


def main() -> None:
    """Fit all tables with both methods, print R², and write the results unless they are of validation rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in given.tables:
        X, y = prepared(TABLES[name]())
        for epsilon in EPSILONS:
            row: dict[str, Any] = {"table": name, "n": int(0.8 * len(y)), "columns": X.shape[1], "epsilon": epsilon}
            for method in (*METHODS, "auto"):
                runs = [measured(X, y, method, epsilon, seed, given.validate) for seed in range(given.runs)]
                found = Spread.of([r2 for r2, _, _ in runs])
                row[method] = {"mean": found.mean, "std": found.std}
                row["seconds_" + method] = float(np.median([seconds for _, seconds, _ in runs]))
                if method == "auto":
                    row["auto_took"] = runs[0][2]
            rows.append(row)
            print(row, flush=True)
    cells = [
        [row["table"], f"{row['epsilon']:g}", *(f"{row[m]['mean']:.3f}" for m in (*METHODS, "auto")), row["auto_took"]]
        for row in rows
    ]
    print_table("R²", ("table", "epsilon", *METHODS, "auto", "auto took"), cells)
    if not given.validate and given.tables == list(TABLES):
        write_results("regression_methods", {"delta": DELTA, "runs": given.runs, "rows": rows})


if __name__ == "__main__":
    main()
