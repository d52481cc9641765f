"""interpret's DP-EBM on the tables that benchmarks/additive.py writes, with its defaults and the same public bounds.

Runs in a separate environment with interpret-core 0.7.8, without privet. Prints one JSON line per fit.

    python benchmarks/peer_interpret.py FOLDER
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor


def main() -> None:
    warnings.simplefilter("ignore")
    for path in sorted(Path(sys.argv[1]).glob("*.npz")):
        with np.load(path) as file:
            parts = dict(file)
        n_numbers, n = len(parts["bounds"]), parts["X"].shape[1]
        bounds = {j: tuple(map(float, pair)) for j, pair in enumerate(parts["bounds"])}
        options = {
            "epsilon": float(parts["epsilon"]),
            "delta": float(parts["delta"]),
            "random_state": int(parts["seed"]),
            "feature_types": ["continuous"] * n_numbers + ["nominal"] * (n - n_numbers),
            "privacy_bounds": bounds,
            "n_jobs": 1,
        }
        begin = time.perf_counter()
        if len(parts["target_bounds"]):
            low, high = map(float, parts["target_bounds"])
            model = DPExplainableBoostingRegressor(privacy_target_min=low, privacy_target_max=high, **options)
            model.fit(parts["X"], parts["y"])
            seconds = time.perf_counter() - begin
            found = np.clip(model.predict(parts["X_test"]), low, high)
        else:
            model = DPExplainableBoostingClassifier(**options)
            model.fit(parts["X"], parts["y"].astype(int))
            seconds = time.perf_counter() - begin
            found = model.predict_proba(parts["X_test"])[:, 1]
        print(json.dumps({"file": path.stem, "seconds": seconds, "found": found.tolist()}), flush=True)


if __name__ == "__main__":
    main()
