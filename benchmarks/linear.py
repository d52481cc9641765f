"""Private linear models against scikit-learn (not private) and diffprivlib, in one run: accuracy, and time as a ratio.

diffprivlib 0.6.6 does not import on current scikit-learn. It runs in a separate environment, whose Python is given by
PEER_PYTHON (`make bench` makes it). Data is read as in experiments/support.py. Times are the best of interleaved
repeats.

    python benchmarks/linear.py [--runs 5] [--peer-runs 3]
"""

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from privet import PrivateLogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import ROOT, Split, Spread, a9a, console, mnist, print_table, write_results

EPSILONS = (0.1, 0.5, 1.0, 2.0)
A9A_NORM = 14**0.5  # fourteen categorical attributes, so at most fourteen ones per row
MNIST_NORM = 6.0  # pixels from 0 to 1; strokes cover about a fifth of 784
TO_REACH = {
    ("a9a", 1e-6): {0.1: 0.825, 0.5: 0.845, 1.0: 0.847},
    ("a9a", 0.0): {1.0: 0.796, 2.0: 0.831},
    ("mnist", 1e-5): {0.1: 0.85, 0.2: 0.88, 0.3: 0.89},
}


def accuracy(data: Split, runs: int, **settings: Any) -> Spread:
    """Return the test accuracy of fits with fresh noise."""
    fits = (PrivateLogisticRegression(**settings).fit(data.X, data.y) for _ in range(runs))
    return Spread.of([fit.score(data.X_test, data.y_test) for fit in fits])


def accuracies(data: dict[str, Split], runs: int) -> list[dict[str, Any]]:
    """Return the accuracy of the default settings at every budget."""
    cases: list[tuple[str, float, float, float]] = [("a9a", 1e-6, epsilon, 0.0) for epsilon in EPSILONS]
    cases += [("a9a", 0.0, epsilon, 0.0) for epsilon in EPSILONS]
    budgets = sorted({*EPSILONS, 0.2, 0.3})
    cases += [("mnist", 1e-5, epsilon, smoothing) for smoothing in (0.0, 2.0) for epsilon in budgets]
    rows = []
    for name, delta, epsilon, smoothing in cases:
        norm = A9A_NORM if name == "a9a" else MNIST_NORM
        spread = accuracy(data[name], runs, epsilon=epsilon, delta=delta, feature_norm=norm, smoothing=smoothing)
        console.print(f"  {name} delta {delta:g} epsilon {epsilon:g} smoothing {smoothing:g}: {spread.show()}")
        goal = TO_REACH.get((name, delta), {}).get(epsilon)
        fields = {"data": name, "delta": delta, "epsilon": epsilon, "smoothing": smoothing, "to_reach": goal}
        rows.append({**fields, "accuracy": spread.mean, "std": spread.std, "runs": runs})
    return rows


def peer(runs: int) -> dict[str, Any] | None:
    """Return the accuracy of diffprivlib, or None if its environment is missing."""
    python = os.environ.get("PEER_PYTHON")
    if not python or not Path(python).exists():
        console.print(
            "PEER_PYTHON does not name the Python of an environment with diffprivlib, so its columns are left out."
        )
        return None
    command = [python, str(ROOT / "benchmarks" / "peer_diffprivlib.py"), str(runs)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def best_times(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the shortest time of each call. Calls take turns, so that a busy machine slows all of them alike."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def against_scikit_learn(data: dict[str, Split]) -> list[dict[str, Any]]:
    """Return fit times beside those of LogisticRegression at its default tolerance."""
    a, m = data["a9a"], data["mnist"]
    wide = sparse.random_array((20_000, 47_000), density=0.002, format="csr", rng=np.random.default_rng(0))
    labels = (np.asarray(wide.sum(axis=1)).ravel() > 47).astype(int)
    cases = [
        ("a9a dense", a.X, a.y, A9A_NORM, 7),
        ("a9a CSR", sparse.csr_array(a.X), a.y, A9A_NORM, 7),
        ("mnist dense float64", m.X, m.y, MNIST_NORM, 2),
        ("mnist dense float32", m.X.astype(np.float32), m.y, MNIST_NORM, 2),
        ("text-like CSR 20,000 x 47,000, 0.2 %", wide, labels, 1.0, 2),
    ]
    rows = []
    for name, X, y, norm, repeats in cases:

        def private(X: Any = X, y: Any = y, norm: float = norm) -> Any:
            return PrivateLogisticRegression(1.0, 1e-6, feature_norm=norm).fit(X, y)

        def public(X: Any = X, y: Any = y) -> Any:
            return LogisticRegression().fit(X, y)

        best = best_times({"privet": private, "scikit-learn": public}, repeats)
        tracemalloc.start()
        private()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append({"data": name, **best, "ratio": best["privet"] / best["scikit-learn"], "peak_bytes": peak})
        console.print(f"  {name}: {best['privet']:.3f} s against {best['scikit-learn']:.3f} s")
    return rows


def exponent(sizes: list[int], make: Callable[[int], tuple[Any, Any]]) -> tuple[float, list[float]]:
    """Return the slope of log time against log size, and the times."""
    times = []
    for size in sizes:
        X, y = make(size)
        model = PrivateLogisticRegression(1.0, 1e-6, max_iter=50)
        times.append(best_times({"fit": lambda X=X, y=y, model=model: model.fit(X, y)}, repeats=4)["fit"])
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0]), times


def growth() -> dict[str, Any]:
    """Return how the time of a fit grows with n and with d, dense and sparse."""
    rng = np.random.default_rng(0)

    def dense(n: int, d: int) -> tuple[Any, Any]:
        return rng.standard_normal((n, d)), rng.integers(0, 2, n)

    def stored(n: int, d: int) -> tuple[Any, Any]:
        return sparse.random_array((n, d), density=0.05, format="csr", rng=rng), rng.integers(0, 2, n)

    ns, ds = [50_000, 100_000, 200_000, 400_000], [100, 200, 400, 800]
    result = {}
    for kind, make in (("dense", dense), ("CSR", stored)):
        in_n, times_n = exponent(ns, lambda n, make=make: make(n, 100))
        in_d, times_d = exponent(ds, lambda d, make=make: make(50_000, d))
        result[kind] = {"exponent_n": in_n, "exponent_d": in_d, "n": ns, "d": ds, "t_n": times_n, "t_d": times_d}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peer-runs", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # scikit-learn's own limit of 100 iterations
    data = {"a9a": a9a(), "mnist": mnist()}
    console.print("Time against scikit-learn:")
    times = against_scikit_learn(data)
    scaling = growth()
    console.print("Accuracy:")
    reached = accuracies(data, options.runs)
    public = {name: LogisticRegression().fit(part.X, part.y) for name, part in data.items()}
    limits = {name: float(public[name].score(part.X_test, part.y_test)) for name, part in data.items()}
    peers = peer(options.peer_runs)
    report(times, scaling, reached, limits, peers)
    content = {"times": times, "growth": scaling, "accuracy": reached, "not_private": limits, "diffprivlib": peers}
    write_results("linear_benchmark", content)


def report(times: Any, scaling: Any, reached: Any, limits: Any, peers: Any) -> None:
    rows = []
    for row in reached:
        goal = "" if row["to_reach"] is None else f"{row['to_reach']:.3f}"
        met = "" if row["to_reach"] is None else "yes" if row["accuracy"] >= row["to_reach"] else "no"
        theirs = (peers or {}).get("accuracy", {}).get(row["data"], {}).get(f"{row['epsilon']:g}")
        shown = "" if theirs is None else f"{theirs['mean']:.4f} ± {theirs['std']:.4f}"
        key = f"{row['data']}, delta {row['delta']:g}, smoothing {row['smoothing']:g}"
        own = f"{row['accuracy']:.4f} ± {row['std']:.4f}"
        rows.append([key, f"{row['epsilon']:g}", own, goal, met, shown, f"{limits[row['data']]:.4f}"])
    columns = ["data", "epsilon", "privet", "to reach", "reached", "diffprivlib (pure)", "not private"]
    print_table("Test accuracy, defaults, replace-one", columns, rows)
    shown = [
        [
            row["data"],
            f"{row['privet']:.3f}",
            f"{row['scikit-learn']:.3f}",
            f"{row['ratio']:.2f}",
            f"{row['peak_bytes'] / 1e6:.0f}",
        ]
        for row in times
    ]
    print_table("Seconds per fit, best of several", ["data", "privet", "scikit-learn", "ratio", "peak MB"], shown)
    for kind, found in scaling.items():
        console.print(f"{kind}: time grows as n^{found['exponent_n']:.2f} and d^{found['exponent_d']:.2f}")
    if peers:
        console.print("diffprivlib, seconds per fit: " + ", ".join(f"{k} {v:.2f}" for k, v in peers["seconds"].items()))


if __name__ == "__main__":
    main()
