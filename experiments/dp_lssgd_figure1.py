"""Figure 1 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in ... ERM": DP-SGD by epsilon.

python experiments/dp_lssgd_figure1.py [--quick]

Training and validation loss of logistic regression on MNIST by iteration, trained by DP-SGD without smoothing, for
several epsilons at delta 1e-5. Setting and noise are those of the method ``text`` of dp_lssgd_table2.py: records
clipped to norm 1, noise from the accountant, step size 1/t as in the paper's text. Epsilon 100 stands for training
without privacy. The paper's third panel, a CNN by epsilon, is not part of this script: points of DP-SGD are in the
results of dp_lssgd_cnn.py and dp_srm_cnn.py.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dp_lssgd_descents import Job, Preset, work
from matplotlib.figure import Figure
from support import print_table, save_figure, write_results

EPSILONS = (0.1, 0.2, 0.4, 1.0, 100.0)
STANDARD = Preset("standard", epochs=5, runs=1, privet_runs=0)
QUICK = replace(STANDARD, name="quick", epochs=1, n=2000, factor=20.0)


def row(epsilon: float, preset: Preset) -> dict[str, Any]:
    """Return the curves and the last values of one training."""
    outcome = work(Job("text", epsilon, 0, 0, preset, with_curve=True))
    return {
        "epsilon": epsilon * preset.factor,
        "accuracy": outcome.accuracy,
        "last_training": outcome.curve["training"][-1],
        "last_validation": outcome.curve["validation"][-1],
        **outcome.curve,
    }


def plot(rows: Sequence[dict[str, Any]], name: str) -> None:
    """Draw training and validation loss by iteration."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, part in zip(axes, ("training", "validation"), strict=True):
        for each in rows:
            axis.loglog(each["iteration"], each[part], label=f"epsilon {each['epsilon']:g}")
        axis.axhline(np.log(10), color="grey", linestyle=":", label="zero weights")
        axis.set(title=f"{part} loss", xlabel="iteration")
    axes[0].legend(fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2,000 images, one epoch, 20 times the epsilons")
    preset = QUICK if parser.parse_args(arguments).quick else STANDARD
    begin = time.perf_counter()
    epsilons = EPSILONS[::2] if preset is QUICK else EPSILONS
    rows = [row(epsilon, preset) for epsilon in epsilons]
    print_table(
        "Figure 1: DP-SGD by epsilon, at the last iteration",
        ["epsilon", "training loss", "validation loss", "test accuracy, %"],
        [
            [f"{each['epsilon']:g}"] + [f"{each[key]:.3f}" for key in ("last_training", "last_validation", "accuracy")]
            for each in rows
        ],
    )
    name = "dp_lssgd_figure1" + ("_quick" if preset is QUICK else "")
    results = {
        "preset": preset.name,
        "epochs": preset.epochs,
        "loss_of_zero_weights": float(np.log(10)),
        "rows": rows,
        "seconds": round(time.perf_counter() - begin),
    }
    write_results(name, results)
    plot(rows, name)
    return results


if __name__ == "__main__":
    main()
