"""diffprivlib's logistic regression on a9a and MNIST, for benchmarks/linear.py.

Runs in a separate environment with diffprivlib 0.6.6 and scikit-learn 1.7.2, without privet. Prints one JSON
object with accuracy and seconds.

    python benchmarks/peer_diffprivlib.py RUNS
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression

EPSILONS = (0.1, 0.5, 1.0, 2.0)
FOLDER = Path(os.environ.get("PRIVET_DATA", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))


def a9a() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    with np.load(FOLDER / "a9a.npz") as file:
        X, X_test = file["x_train"].astype(float), file["x_test"].astype(float)
        return X, file["y_train"] > 0, X_test, file["y_test"] > 0, 14**0.5


def mnist() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    with np.load(FOLDER / "mnist.npz") as file:
        X, X_test = (file[key].reshape(-1, 784) / 255.0 for key in ("x_train", "x_test"))
        return X[:50_000], file["y_train"][:50_000], X_test, file["y_test"], 6.0


def main() -> None:
    warnings.simplefilter("ignore")
    runs = int(sys.argv[1])
    found: dict[str, dict] = {"accuracy": {}, "seconds": {}}
    for name, load, repeats in (("a9a", a9a, runs), ("mnist", mnist, 1)):  # MNIST has ten classes and takes ten fits
        X, y, X_test, y_test, norm = load()
        scores: dict[str, dict[str, float]] = {}
        seconds = []
        for epsilon in EPSILONS:
            reached = []
            for _ in range(repeats):
                begin = time.perf_counter()
                model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=100).fit(X, y)
                seconds.append(time.perf_counter() - begin)
                reached.append(float(model.score(X_test, y_test)))
            std = float(np.std(reached, ddof=1)) if len(reached) > 1 else 0.0
            scores[f"{epsilon:g}"] = {"mean": float(np.mean(reached)), "std": std}
        found["accuracy"][name], found["seconds"][name] = scores, min(seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
