"""Test accuracy of the methods of PrivateLogisticRegression that add noise in every step, with their defaults.

This is no table of a paper. It compares the papers' algorithms as ``method=...`` offers them: only the budget and
``feature_norm`` are given. The rules for steps, batches and step sizes of ``minibatch``, ``recursive_momentum`` and
``adaptive`` were found by trials on a9a and MNIST, which flatters them there a little. BANK took no part in that.

- a9a: 32,561 rows of 14 categories, as 123 columns; the published test part.
- BANK: 45,211 rows, encoded as in efficient_erm_data.py; every fifth row, after shuffling, is a test row.
- MNIST: 60,000 images as rows of 784 pixels, scaled down to norm 6. Only the faster methods: with ten classes, one fit
  of the others takes minutes.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import support
from efficient_erm_data import load
from support import Split, Spread, print_table, timed, write_results

from privet import PrivateLogisticRegression

METHODS = ("gradient", "minibatch", "recursive_momentum", "adaptive", "random_round", "iteration")
DELTA = 1e-6
LEFT_OUT = {("MNIST", method) for method in ("adaptive", "random_round", "iteration")}
Table = tuple[Split, float, tuple[float, ...]]


def bank() -> Split:
    """Return BANK, in a random order that is the same in every run, with a fifth of its rows for the test."""
    data = load("BANK")
    order = np.random.default_rng(0).permutation(len(data.targets))
    test, train = np.split(order, [len(order) // 5])
    X, y = np.column_stack(data.blocks), data.targets.astype(int)
    return Split(X[train], y[train], X[test], y[test])


def tables(n: int | None) -> dict[str, Table]:
    """Return each dataset with its public norm of rows and its values of epsilon; of a quick run ``n`` rows of a9a."""
    a9a = support.a9a()
    if n is not None:
        return {"a9a": (Split(a9a.X[:n], a9a.y[:n], a9a.X_test[:n], a9a.y_test[:n]), 14**0.5, (1.0,))}
    attributes = len(load("BANK").blocks)
    return {
        "a9a": (a9a, 14**0.5, (0.5, 1.0)),
        "BANK": (bank(), attributes**0.5, (0.5, 1.0)),
        "MNIST": (support.mnist(60_000), 6.0, (0.1, 0.3, 1.0)),
    }


def measured(table: Table, method: str, epsilon: float, runs: int) -> dict[str, Any]:
    """Return accuracy in per cent and processor time of fits with different noise."""
    data, norm, _ = table
    scores, seconds = [], []
    for seed in range(runs):
        model = PrivateLogisticRegression(
            epsilon, DELTA, method=method, feature_norm=norm, classes=np.unique(data.y), random_state=seed
        )
        _, spent = timed(lambda model=model: model.fit(data.X, data.y))
        scores.append(100 * float(model.score(data.X_test, data.y_test)))
        seconds.append(spent)
    return {"accuracy": asdict(Spread.of(scores)), "seconds": float(np.median(seconds)), "steps": model.n_iter_}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Fit all methods, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="two runs on 1,000 rows of a9a")
    options = parser.parse_args(arguments)
    runs, rows, shown = 2 if options.quick else options.runs, [], []
    for name, table in tables(1000 if options.quick else None).items():
        majority = 100 * float(np.bincount(table[0].y_test).max() / len(table[0].y_test))
        for epsilon in table[2]:
            cells = [f"{name}, epsilon {epsilon:g}", f"{majority:.1f}"]
            for method in METHODS:
                if (name, method) in LEFT_OUT:
                    cells.append("")
                    continue
                found = measured(table, method, epsilon, runs)
                rows.append({"data": name, "epsilon": epsilon, "method": method, "majority": majority, **found})
                cells.append(f"{Spread(**found['accuracy']).show(1)} ({found['seconds']:.1f} s)")
            shown.append(cells)
    print_table(f"Test accuracy, %, delta {DELTA:g}, {runs} runs", ["", "majority class", *METHODS], shown)
    content = {"runs": runs, "delta": DELTA, "quick": options.quick, "rows": rows}
    write_results("methods_table_quick" if options.quick else "methods_table", content)
    return content


if __name__ == "__main__":
    main()
