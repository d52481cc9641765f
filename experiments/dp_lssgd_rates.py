"""Figures 5 and 6 of DP-LSSGD with a learning rate that is chosen for every method on held-out images.

python experiments/dp_lssgd_rates.py [--images mnist | cifar10] [--full | --quick] [--runs 3] [--workers 1]

Network, images, noise and number of steps are those of dp_lssgd_cnn.py for MNIST (Figure 5) and of cifar_cnn.py for
CIFAR-10 (Figure 6), where all methods have the learning rates of the paper. Here every method has several candidates
per noise multiplier: 0.015, 0.05, 0.15, 0.5 and, on MNIST, 1.5 for DP-SGD and DP-LSSGD, and 0.0003, 0.001, 0.003 and,
on MNIST, 0.01 for DP-Adam and DP-LSAdam. Each is tried once with 5,000 training images held out. The one with the best
accuracy over the last quarter on these is run with all training images and other seeds, and looks at the test images.
The choice is not charged to the budget. --full makes 60 epochs and five runs.

Results of the standard preset on MNIST (docs/results/dp_lssgd_rates.json): with these rates, smoothing makes DP-SGD and
DP-Adam worse at noise multiplier 10, and makes little difference at 2. A smaller learning rate does more against noise.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cifar_cnn
import dp_lssgd_cnn
from deep_runs import Job, Runs, draw, grouped, options, run_all, start_and_majority, without_noise
from dp_lssgd_cnn import METHODS
from dp_srm_networks import TRIAL_SEED
from matplotlib.figure import Figure
from support import console, data_file, print_table, save_figure, write_results

RATES = {
    "mnist": {"SGD": (0.015, 0.05, 0.15, 0.5, 1.5), "Adam": (0.0003, 0.001, 0.003, 0.01)},
    "cifar10": {"SGD": (0.015, 0.05, 0.15, 0.5), "Adam": (0.0003, 0.001, 0.003)},
}
FIGURE_5 = {"standard": dp_lssgd_cnn.STANDARD, "full": dp_lssgd_cnn.FULL, "quick": dp_lssgd_cnn.QUICK}
FIGURE_6 = cifar_cnn.PRESETS | {"quick": replace(cifar_cnn.PRESETS["quick"], net="cnn5", scale="from_minus_one")}
Setting = tuple[str, float]  # method, noise multiplier


@dataclass(frozen=True)
class Size:
    """The trainings with the paper's rates, one per method and noise multiplier, and how they are repeated."""

    jobs: tuple[Job, ...]
    runs: int
    rates: dict[str, tuple[float, ...]]  # the candidates of both kinds of optimisers
    held_out: int  # training images on which learning rates are chosen

    @property
    def noises(self) -> list[float]:
        """The noise multipliers."""
        return list(dict.fromkeys(setting(each)[1] for each in self.jobs))


def setting(each: Job) -> Setting:
    """Return the method and the noise multiplier of a training."""
    assert each.noise_multiplier is not None
    return each.method, each.noise_multiplier


def size_of(images: str, preset: str) -> Size:
    """Return a preset, with the trainings of dp_lssgd_cnn.py or cifar_cnn.py."""
    if images == "cifar10":
        figure6 = FIGURE_6[preset]
        runs, jobs = figure6.runs, cifar_cnn.planned(replace(figure6, runs=1))
    else:
        figure5 = FIGURE_5[preset]
        runs = figure5.runs
        jobs = [dp_lssgd_cnn.job(method, figure5, noise) for noise in figure5.noises for method in METHODS]
    if preset == "quick":
        return Size(tuple(jobs), 1, {kind: rates[1:3] for kind, rates in RATES[images].items()}, held_out=200)
    return Size(tuple(jobs), runs, RATES[images], held_out=5000)


def trials(size: Size) -> list[Job]:
    """Return one training per candidate, with the held-out images in place of the test images."""
    return [
        replace(job, learning_rate=rate, n=job.n - size.held_out, held_out=size.held_out, seed=TRIAL_SEED)
        for job in size.jobs
        for rate in size.rates["Adam" if job.adam else "SGD"]
    ]


def chosen(size: Size, workers: int) -> tuple[dict[Setting, float], list[dict[str, Any]]]:
    """Return the best rate by method and noise multiplier, and all candidates with their accuracies."""
    best: dict[Setting, tuple[float, float]] = {}
    rows = []
    for each, outcome in run_all(trials(size), workers).items():
        late = Runs(each, [outcome]).late.mean
        best[setting(each)] = max(best.get(setting(each), (-1.0, 0.0)), (late, each.learning_rate))
        rows.append(
            {
                "method": each.method,
                "noise_multiplier": each.noise_multiplier,
                "learning_rate": each.learning_rate,
                "held_out_accuracy": late,
            }
        )
    return {key: rate for key, (_, rate) in best.items()}, rows


def final_runs(size: Size, rates: dict[Setting, float], workers: int) -> dict[Setting, Runs]:
    """Return the runs of every method with its rate."""
    jobs = [
        replace(job, learning_rate=rates[setting(job)], seed=seed) for seed in range(size.runs) for job in size.jobs
    ]
    return grouped(run_all(jobs, workers), setting)


def beside(size: Size, rates: dict[Setting, float], workers: int) -> dict[str, float]:
    """Return the accuracies of the start, the most frequent class, and a training without noise."""
    wanted = ("DP-SGD", min(size.noises))
    (plain,) = (replace(job, learning_rate=rates[wanted]) for job in size.jobs if setting(job) == wanted)
    (outcome,) = run_all([without_noise(plain)], workers).values()
    return {**start_and_majority(plain), "without_noise": outcome.last}


def row(runs: Runs) -> dict[str, Any]:
    """Return the row of a method, with its accuracies and its rate."""
    return {**runs.summary(), "late_accuracy": [runs.late.mean, runs.late.std]}


def gain(groups: dict[Setting, Runs], noise: float, plain: str, smooth: str) -> dict[str, Any]:
    """Return by how much a method is better with smoothing, with the standard error over paired seeds."""
    one, other = groups[plain, noise], groups[smooth, noise]
    pairs = zip(one.outcomes, other.outcomes, strict=True)
    gains = [Runs(other.job, [after]).late.mean - Runs(one.job, [before]).late.mean for before, after in pairs]
    mean = sum(gains) / len(gains)
    squares = sum((each - mean) ** 2 for each in gains)
    error = (squares / max(1, len(gains) - 1) / len(gains)) ** 0.5
    return {"noise_multiplier": noise, "methods": f"{smooth} above {plain}", "gain": mean, "standard_error": error}


def plot(groups: dict[Setting, Runs], noises: Sequence[float], name: str) -> None:
    """Draw the four methods with their rates, with one panel per noise multiplier."""
    figure = Figure(figsize=(5 * len(noises), 4), layout="constrained")
    for panel, noise in zip(figure.subplots(1, len(noises), squeeze=False)[0], noises, strict=True):
        for method in METHODS:
            runs = groups[method, noise]
            draw(panel, runs, f"{method}, rate {runs.job.learning_rate:g}")
        panel.set(title=f"noise multiplier {noise:g}", xlabel="step", ylabel="test accuracy, %")
        panel.legend(fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    told = options(__doc__, arguments, images=tuple(RATES))
    size = size_of(told.images, told.preset)
    size = replace(size, runs=told.runs or size.runs)
    first = size.jobs[0]
    data_file(first.source)
    console.print(
        f"Preset {told.preset}: {first.net}, {first.n} images, {first.steps} steps; {len(trials(size))} trials, "
        f"{size.runs} runs of every method with its rate"
    )
    begin = time.perf_counter()
    rates, candidates = chosen(size, told.workers)
    groups = final_runs(size, rates, told.workers)
    noises = size.noises
    pairs = (("DP-SGD", "DP-LSSGD"), ("DP-Adam", "DP-LSAdam"))
    gains = [gain(groups, noise, *pair) for noise in noises for pair in pairs]
    results = {
        "preset": told.preset,
        "runs": size.runs,
        "held_out": size.held_out,
        "candidates": candidates,
        "rows": [row(groups[method, noise]) for noise in noises for method in METHODS],
        "gains": gains,
        "test_accuracy_beside": beside(size, rates, told.workers),
        "seconds": round(time.perf_counter() - begin),
    }
    shown = [
        [f"{noise:g}", method, f"{runs.job.learning_rate:g}", runs.last.show(2), runs.late.show(2)]
        for (method, noise), runs in groups.items()
    ]
    columns = ["noise multiplier", "method", "rate", "accuracy in the end, %", "last quarter, %"]
    print_table("Every method with the rate that is best on held-out images", columns, shown)
    for each in gains:
        console.print(
            f"Noise multiplier {each['noise_multiplier']:g}: {each['methods']} by {each['gain']:+.2f} points "
            f"(standard error {each['standard_error']:.2f})"
        )
    kinds = [kind for kind in (told.images, told.preset) if kind not in ("mnist", "standard")]
    name = "_".join(["dp_lssgd_rates", *kinds])
    write_results(name, results)
    plot(groups, noises, name)
    return results


if __name__ == "__main__":
    main()
