"""Table 2 and figures 3 and 4 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in ... ERM".

The task is multinomial logistic regression on MNIST, with 50,000 training images, 10,000 validation images, l2 penalty
1e-4, delta 1e-5 and batches of 128. The paper's numbers are compared with four methods:

- ``published``: the authors' code (BaoWangMath/DP-LSSGD on GitHub). The step size is a in the first epoch, then a/t,
  where t is the number of the epoch. The *mean* of a batch is clipped to norm 1, but single records are not. Batches
  come from shuffling, and the noise is the authors'. The epsilon that it claims is not certified; the method shows
  where the paper's numbers come from.
- ``epochs``: the same step sizes with every record clipped to norm 1, Poisson sampling, and noise from the accountant.
- ``text``: the step size a/t in every iteration, as in the paper's text, and otherwise as ``epochs``.
- ``privet``: PrivateLogisticRegression with its defaults.

The first three standardise pixels like the authors. privet takes the pixels unchanged, in rows scaled to norm at most
6. The paper shows figures 3 and 4 only as pictures, so they cannot be compared by numbers.
"""

import argparse
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from dp_lssgd_descents import BATCH, DELTA, EPSILONS, PUBLISHED_NOISE, STANDARDISED, Job, Outcome, Preset, work
from matplotlib.figure import Figure
from rich.progress import track
from support import Spread, console, data_file, print_table, save_figure, write_results
from threadpoolctl import threadpool_limits

from privet.plans import FixedOrder, FixedSize, GradientPlan

Groups = dict[tuple[str, float, int, float], list[Outcome]]

SIGMAS = (0, 1, 2, 3)
PAPER = {  # test accuracy in per cent: mean and standard deviation of five runs
    0: ((81.74, 0.96), (81.45, 1.59), (78.92, 1.14), (77.03, 0.69), (73.49, 1.60)),
    1: ((84.21, 0.51), (83.27, 0.35), (81.56, 0.79), (79.46, 1.33), (76.29, 0.53)),
    2: ((84.23, 0.65), (83.65, 0.76), (82.15, 0.59), (80.77, 1.26), (76.31, 0.93)),
    3: ((85.11, 0.45), (82.97, 0.48), (82.22, 0.28), (80.81, 1.03), (77.13, 0.77)),
}
CURVE_SIGMAS = (0, 1, 3)
STEP_KINDS, STEP_SIGMAS, STEPS = ("published", "epochs", "text"), (0, 3), (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
LONG = (
    ("published", 0.20),
    ("published", 0.10),
    ("epochs", 0.20),
    ("text", 0.20),
)  # run with all epochs in every preset
LABELS = {
    "published": "authors' code, no guarantee",
    "epochs": "their steps, records clipped",
    "text": "step a/t, records clipped",
    "privet": "privet's defaults",
}
STANDARD = Preset("standard", epochs=5, runs=3, privet_runs=5, step_runs=2, long_epochs=50)
FULL = Preset("full", epochs=50, runs=5, privet_runs=5, step_runs=5)
QUICK = Preset("quick", epochs=1, runs=1, privet_runs=1, n=2_000, factor=20.0, epsilons=(0.10,), workers=1)


def planned(preset: Preset) -> list[Job]:
    """Return the jobs of the table and both figures, without repetition."""
    long = replace(preset, epochs=preset.long_epochs)
    settings = itertools.product(LONG, STEP_SIGMAS) if long.epochs else ()
    jobs = [Job(kind, epsilon, sigma, 0, long) for (kind, epsilon), sigma in settings]
    for kind, epsilon, sigma in itertools.product(LABELS, preset.epsilons, SIGMAS):
        for run in range(preset.privet_runs if kind == "privet" else preset.runs):
            with_curve = epsilon in preset.figure_epsilons and sigma in CURVE_SIGMAS and run < preset.runs
            jobs.append(Job(kind, epsilon, sigma, run, preset, with_curve=with_curve))
    for kind, epsilon, sigma, a in itertools.product(STEP_KINDS, preset.figure_epsilons, STEP_SIGMAS, STEPS):
        jobs += [Job(kind, epsilon, sigma, run, preset, a) for run in range(preset.step_runs) if a != 1]
    return jobs


def run_all(jobs: Sequence[Job], workers: int) -> dict[Job, Outcome]:
    """Run the jobs with one thread each."""
    title = f"{len(jobs)} descents"
    if workers == 1:
        with threadpool_limits(1):
            return dict(zip(jobs, track(map(work, jobs), title, len(jobs), console=console), strict=True))
    with ProcessPoolExecutor(workers, initializer=threadpool_limits, initargs=(1,)) as pool:
        return dict(zip(jobs, track(pool.map(work, jobs), title, len(jobs), console=console), strict=True))


def gathered(outcomes: dict[Job, Outcome], preset: Preset) -> Groups:
    """Return the runs of each setting (kind, epsilon, sigma, a)."""
    groups = defaultdict(list)
    for job, outcome in outcomes.items():
        if job.preset == preset:
            groups[job.kind, job.epsilon, job.sigma, job.a].append(outcome)
    return dict(groups)


def accuracy(group: list[Outcome]) -> Spread:
    """Return the mean accuracy of a setting's runs."""
    return Spread.of([outcome.accuracy for outcome in group])


def mean_curve(group: list[Outcome]) -> dict[str, list[float]]:
    """Return the mean loss curve of a setting's runs."""
    curves = [outcome.curve for outcome in group if outcome.curve]
    return {name: np.mean([curve[name] for curve in curves], axis=0).round(4).tolist() for name in curves[0]}


def certified() -> list[dict[str, float]]:
    """Return the epsilon that the accountant certifies for the authors' noise: 60,000 images, 50 epochs of 469 batches.

    There are three cases: records clipped to norm 1 with Poisson sampling; batches from shuffling, without
    amplification by sampling; and records without clipping, whose gradients have a norm of up to sqrt(2) times that of
    an image.
    """
    n, epochs, longest = 60_000, 50, math.sqrt(2) * STANDARDISED.norm

    def epsilon(sampler: Any, steps: int | None, bound: float, noise: float) -> float:
        return GradientPlan(sampler, steps, bound, noise * BATCH / bound).guarantee(DELTA).epsilon

    drawn, shuffled, steps = FixedSize(BATCH, n), FixedOrder(n, epochs, BATCH), epochs * math.ceil(n / BATCH)
    return [
        {
            "claimed": claimed,
            "noise": noise,
            "clipped_and_drawn": epsilon(drawn, steps, 1.0, noise),
            "clipped": epsilon(shuffled, None, 1.0, noise),
            "as_it_is": epsilon(shuffled, None, longest, noise),
        }
        for claimed, noise in PUBLISHED_NOISE.items()
    ]


# ------------------------------------------------------------------------------------------------------------- tables


def show_table(groups: Groups, preset: Preset) -> list[dict[str, Any]]:
    """Print Table 2, and return its rows."""
    shown, kept = [], []
    for epsilon, sigma in itertools.product(preset.epsilons, SIGMAS):
        paper = Spread(*PAPER[sigma][EPSILONS.index(epsilon)], runs=5)
        ours = {kind: accuracy(groups[kind, epsilon, sigma, 1.0]) for kind in LABELS}
        spent = epsilon * preset.factor
        shown.append([f"{spent:.2f}", str(sigma), *(spread.show(2) for spread in (paper, *ours.values()))])
        spreads = {"paper": paper, **ours}
        kept.append({"epsilon": spent, "sigma": sigma} | {kind: asdict(spread) for kind, spread in spreads.items()})
    print_table("Table 2: test accuracy, %", ["epsilon", "sigma", "paper", *LABELS.values()], shown)
    return kept


def show_curves(groups: Groups, preset: Preset) -> list[dict[str, Any]]:
    """Print the final values of the curves of figure 3, and return the curves."""
    shown, kept = [], []
    for epsilon, sigma in itertools.product(preset.figure_epsilons, CURVE_SIGMAS):
        curves = {kind: mean_curve(groups[kind, epsilon, sigma, 1.0]) for kind in LABELS}
        ends = (f"{curve['training'][-1]:.3f} / {curve['validation'][-1]:.3f}" for curve in curves.values())
        spent = epsilon * preset.factor
        shown.append([f"{spent:.2f}", str(sigma), *ends])
        kept += [{"kind": kind, "epsilon": spent, "sigma": sigma, **curve} for kind, curve in curves.items()]
    print_table("Figure 3: last training / validation loss", ["epsilon", "sigma", *LABELS.values()], shown)
    return kept


def show_steps(groups: Groups, preset: Preset) -> list[dict[str, Any]]:
    """Print figure 4 as a table, and return its points."""
    shown, kept = [], []
    for kind, epsilon, sigma in itertools.product(STEP_KINDS, preset.figure_epsilons, STEP_SIGMAS):
        points = {a: accuracy(groups[kind, epsilon, sigma, a][: preset.step_runs]) for a in STEPS}
        spent = epsilon * preset.factor
        shown.append([LABELS[kind], f"{spent:.2f}", str(sigma), *(point.show(1) for point in points.values())])
        kept += [{"kind": kind, "epsilon": spent, "sigma": sigma, "a": a, **asdict(p)} for a, p in points.items()]
    print_table("Figure 4: test accuracy, %, by a", ["", "epsilon", "sigma", *map(str, STEPS)], shown)
    return kept


def show_long(outcomes: dict[Job, Outcome], groups: Groups, preset: Preset) -> list[dict[str, Any]]:
    """Print and return the results of some settings with all epochs of the paper."""
    shown, kept = [], []
    for job in (job for job in outcomes if job.preset != preset):
        short, long = accuracy(groups[job.kind, job.epsilon, job.sigma, job.a]), outcomes[job].accuracy
        paper = Spread(*PAPER[job.sigma][EPSILONS.index(job.epsilon)], runs=5)
        setting = [LABELS[job.kind], f"{job.epsilon:.2f}", str(job.sigma)]
        shown.append([*setting, paper.show(2), short.show(2), f"{long:.2f}"])
        kept.append({"kind": job.kind, "epsilon": job.epsilon, "sigma": job.sigma, "accuracy": long})
    if kept:
        runs = [f"{preset.epochs} epochs", f"{preset.long_epochs} epochs, one run"]
        columns = ["", "epsilon", "sigma", "paper, 50 epochs", *runs]
        print_table("Test accuracy, %, by epochs", columns, shown)
    return kept


def show_certified() -> list[dict[str, float]]:
    """Print the epsilon that the authors' noise guarantees."""
    kept = certified()
    shown = [[f"{value:.4g}" for value in row.values()] for row in kept]
    columns = ["claimed", "noise", "records clipped, batches drawn", "records clipped", "as it is"]
    print_table("Authors' code: epsilon that the accountant certifies", columns, shown)
    return kept


# -------------------------------------------------------------------------------------------------------------- plots


def plot_table(rows: list[dict[str, Any]], name: str) -> None:
    """Draw accuracy against epsilon, one panel per sigma."""
    figure = Figure(figsize=(16, 4), layout="constrained")
    panels = figure.subplots(1, len(SIGMAS), sharey=True)
    for panel, sigma in zip(panels, SIGMAS, strict=True):
        of_sigma = [row for row in rows if row["sigma"] == sigma]
        for kind, label in {"paper": "paper", **LABELS}.items():
            means, stds = ([row[kind][field] for row in of_sigma] for field in ("mean", "std"))
            panel.errorbar([row["epsilon"] for row in of_sigma], means, stds, label=label, marker="o", capsize=3)
        panel.set(title=f"sigma = {sigma}", xlabel="epsilon", xticks=[row["epsilon"] for row in of_sigma])
    panels[0].set_ylabel("test accuracy, %")
    panels[-1].legend(fontsize=8)
    save_figure(figure, name)


def plot_curves(curves: list[dict[str, Any]], name: str) -> None:
    """Draw losses against iterations, one row per epsilon and one column per method."""
    epsilons = sorted({curve["epsilon"] for curve in curves}, reverse=True)
    figure = Figure(figsize=(16, 3.5 * len(epsilons)), layout="constrained")
    panels = figure.subplots(len(epsilons), len(LABELS), squeeze=False, sharey=True)
    for (row, epsilon), (column, kind) in itertools.product(enumerate(epsilons), enumerate(LABELS)):
        panel = panels[row, column]
        for curve in (curve for curve in curves if (curve["kind"], curve["epsilon"]) == (kind, epsilon)):
            (line,) = panel.loglog(curve["iteration"], curve["training"], label=f"sigma = {curve['sigma']}")
            panel.loglog(curve["iteration"], curve["validation"], "--", color=line.get_color())
        panel.set(title=f"{LABELS[kind]}, epsilon {epsilon:g}", xlabel="iteration")
    panels[0, 0].set_ylabel("loss: training (solid), validation (dashed)")
    panels[0, 0].legend(fontsize=8)
    save_figure(figure, name)


def plot_steps(points: list[dict[str, Any]], name: str) -> None:
    """Draw accuracy against a, one panel per epsilon."""
    epsilons = sorted({point["epsilon"] for point in points})
    figure = Figure(figsize=(6 * len(epsilons), 4), layout="constrained")
    panels = figure.subplots(1, len(epsilons), squeeze=False, sharey=True)
    for panel, epsilon in zip(panels[0], epsilons, strict=True):
        for (place, kind), sigma in itertools.product(enumerate(STEP_KINDS), STEP_SIGMAS):
            line = [p for p in points if (p["kind"], p["epsilon"], p["sigma"]) == (kind, epsilon, sigma)]
            style = {"color": f"C{place}", "linestyle": "-" if sigma else "--", "marker": "o"}
            label = f"{LABELS[kind]}, sigma = {sigma}"
            panel.plot([point["a"] for point in line], [point["mean"] for point in line], label=label, **style)
        panel.set(title=f"epsilon {epsilon:g}", xlabel="a")
    panels[0, 0].set_ylabel("test accuracy, %")
    panels[0, -1].legend(fontsize=8)
    save_figure(figure, name)


def options(arguments: Sequence[str] | None) -> Preset:
    """Return the command-line options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, help="runs of every setting")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="2,000 images, 20 times the epsilon, one epoch, one run")
    size.add_argument("--full", action="store_true", help="the paper's 50 epochs and 5 runs: about two hours")
    chosen = parser.parse_args(arguments)
    preset = FULL if chosen.full else QUICK if chosen.quick else STANDARD
    if chosen.runs is None:
        return preset
    return replace(preset, runs=chosen.runs, privet_runs=chosen.runs, step_runs=chosen.runs)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    preset = options(arguments)
    data_file("mnist.npz")
    console.print(preset.in_words())
    begin = time.perf_counter()
    outcomes = run_all(planned(preset), preset.workers)
    groups = gathered(outcomes, preset)
    results = {
        "preset": asdict(preset),
        "table2": show_table(groups, preset),
        "figure3": show_curves(groups, preset),
        "figure4": show_steps(groups, preset),
        "long": show_long(outcomes, groups, preset),
        "authors_code_certified": show_certified(),
        "processor_seconds": round(sum(outcome.seconds for outcome in outcomes.values())),
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(f"{results['processor_seconds']} s of one core, {results['seconds']} s in all")
    suffix = "" if preset.name == "standard" else f"_{preset.name}"
    write_results(f"dp_lssgd_table2{suffix}", results)
    plot_table(results["table2"], f"dp_lssgd_table2{suffix}")
    plot_curves(results["figure3"], f"dp_lssgd_figure3{suffix}")
    plot_steps(results["figure4"], f"dp_lssgd_figure4{suffix}")
    return results


if __name__ == "__main__":
    main()
