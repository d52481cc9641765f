"""Comparisons of smoothed and plain federated training, with local learning rates that are chosen on validation data.

For each sampling, noise multiplier and sigma, every rate is run with one seed. The rate with the best validation
accuracy is then run with other seeds, whose test accuracies are shown.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from fed_runs import Score, Setting, Task, train
from matplotlib.figure import Figure
from support import Spread, console, print_table, resumed, save_figure
from torch import nn

TRIAL_SEED = 1000
LOOKS = 20  # points of a curve
SMALL_STEP = 0.52  # sqrt(privet.denoise.beta(d, 1)) for long vectors: leaves as much noise as sigma 1
Row = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """The settings that are compared.

    Attributes
    ----------
    template
        A run, a dataclass with the fields ``sampling``, ``multiplier``, ``sigma``, ``rate`` and ``seed``.
    settings
        Sampling, noise multiplier and the values of sigma.
    rates
        The candidates for the local learning rate.
    seeds
        The seeds of the chosen runs.
    """

    template: Any
    settings: tuple[tuple[str, float, tuple[float, ...]], ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]


def watched(task: Task, setting: Setting, seed: int, validate: Score, looks: int = LOOKS) -> Row:
    """Return accuracies in per cent on test and validation data, the latter by round, and the epsilon of a training."""
    marks = {max(1, setting.rounds * look // looks) for look in range(1, looks + 1)}
    done = iter(range(1, setting.rounds + 1))

    def watch(model: nn.Module) -> float:
        return validate(model) if next(done) in marks else math.nan

    found = train(task, setting, seed, watch)
    curve = {number: score for number, score in enumerate(found.curve, 1) if number in marks}
    return {
        "test": found.accuracy,
        "rounds": [*curve],
        "validation": [*curve.values()],
        "epsilon": found.epsilon if setting.noise_multiplier else None,
        "seconds": found.seconds,
    }


def made(run: Any, outcome: Callable[[Any], Row]) -> Row:
    """Return the outcome of a run, which may have finished before, and print it."""
    found = resumed(run, lambda: outcome(run))
    what = f"{run.sampling}, z {run.multiplier:g}, sigma {run.sigma:g}, rate {run.rate:g}, seed {run.seed}"
    console.print(f"{what}: validation {found['validation'][-1]:.1f} %, {found['seconds']:.0f} s", markup=False)
    return found


def compared(grid: Grid, setting: tuple[str, float, float], outcome: Callable[[Any], Row]) -> Row:
    """Return the row of a setting: its learning rate, chosen on validation data, and the accuracies of its seeds."""
    sampling, multiplier, sigma = setting
    run = replace(grid.template, sampling=sampling, multiplier=multiplier, sigma=sigma)
    tried = {rate: made(replace(run, rate=rate, seed=TRIAL_SEED), outcome)["validation"][-1] for rate in grid.rates}
    best = max(tried, key=tried.__getitem__)
    found = [made(replace(run, rate=best, seed=seed), outcome) for seed in grid.seeds]
    return {
        "sampling": sampling,
        "noise_multiplier": multiplier,
        "sigma": sigma,
        "epsilon": found[0]["epsilon"],
        "validation_by_rate": {f"{rate:g}": score for rate, score in tried.items()},
        "rate": best,
        **summary(found),
    }


def summary(found: Sequence[Row]) -> Row:
    """Return test accuracies and the mean of the validation curves of several runs."""
    spread = Spread.of([each["test"] for each in found])
    return {
        "test": [spread.mean, spread.std],
        "tests": [each["test"] for each in found],
        "rounds": found[0]["rounds"],
        "validation": np.mean([each["validation"] for each in found], axis=0).tolist(),
    }


def rows_of(grid: Grid, outcome: Callable[[Any], Row]) -> list[Row]:
    """Return the rows of all settings, with what smoothing gains."""
    settings = [(sampling, z, sigma) for sampling, z, sigmas in grid.settings for sigma in sigmas]
    return with_gains([compared(grid, setting, outcome) for setting in settings])


def with_gains(rows: list[Row]) -> list[Row]:
    """Return the rows with what smoothing gains over sigma = 0, with its standard error over seeds."""
    plain = {(row["sampling"], row["noise_multiplier"]): row["tests"] for row in rows if row["sigma"] == 0}
    for row in rows:
        row["gain"] = gain(row["tests"], plain[row["sampling"], row["noise_multiplier"]])
    return rows


def gain(smoothed: Sequence[float], plain: Sequence[float]) -> list[float]:
    """Return the mean difference of accuracies with the same seeds, and its standard error."""
    found = Spread.of([one - other for one, other in zip(smoothed, plain, strict=True)])
    return [found.mean, found.std / math.sqrt(found.runs)]


def show(title: str, rows: list[Row]) -> None:
    """Print the table."""
    shown = [
        [
            f"{row['sampling']}, z {row['noise_multiplier']:g}",
            "" if row["epsilon"] is None else f"{row['epsilon']:.2f}",
            f"{row['sigma']:g}",
            f"{row['rate']:g}",
            Spread(*row["test"], len(row["tests"])).show(2),
            f"{row['gain'][0]:+.2f} ± {row['gain'][1]:.2f}",
            "" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in rows
    ]
    columns = ["sampling, noise", "epsilon", "sigma", "rate", "test accuracy, %", "gain (standard error)", "(paper)"]
    print_table(title, columns, shown)


def plot(rows: list[Row], name: str) -> None:
    """Draw validation accuracy by round, one panel per noise."""
    kinds = list(dict.fromkeys((row["sampling"], row["noise_multiplier"]) for row in rows))
    figure = Figure(figsize=(4.5 * len(kinds), 3.6), layout="constrained")
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for row in rows:
            if (row["sampling"], row["noise_multiplier"]) == kind:
                panel.plot(row["rounds"], row["validation"], label=f"sigma {row['sigma']:g}, rate {row['rate']:g}")
        panel.set(title=f"{kind[0]}, z = {kind[1]:g}", xlabel="round", ylabel="validation accuracy, %")
        panel.legend(fontsize=7)
    save_figure(figure, name)
