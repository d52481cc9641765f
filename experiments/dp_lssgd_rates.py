"""Figure 5 of DP-LSSGD with a learning rate that is chosen for every method on held-out images.

python experiments/dp_lssgd_rates.py [--full | --quick] [--runs 3] [--workers 1]

Network, images, noise and number of steps are those of dp_lssgd_cnn.py, where all methods have the learning rates of
the paper. Here every method has several candidates per noise multiplier: 0.015, 0.05, 0.15, 0.5 and 1.5 for DP-SGD and
DP-LSSGD, and 0.0003, 0.001, 0.003 and 0.01 for DP-Adam and DP-LSAdam. Each is tried once on 55,000 training images, and
the one with the best accuracy over the last quarter on the other 5,000 is run with all training images and other seeds,
and looks at the test images. The choice is not charged to the budget. --full makes 60 epochs and five runs.

Results of the standard preset (docs/results/dp_lssgd_rates.json): with these rates, smoothing makes DP-SGD and DP-Adam
worse at noise multiplier 10, and makes little difference at 2. A smaller learning rate does more against noise.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deep_runs import Job, Runs, draw, grouped, options, run_all, start_and_majority, without_noise
from dp_lssgd_cnn import FULL, METHODS, QUICK, STANDARD, Preset, job
from dp_srm_networks import TRIAL_SEED
from matplotlib.figure import Figure
from support import console, data_file, print_table, save_figure, write_results

HELD_OUT = 5000  # training images on which learning rates are chosen
RATES = {"SGD": (0.015, 0.05, 0.15, 0.5, 1.5), "Adam": (0.0003, 0.001, 0.003, 0.01)}
Setting = tuple[str, float]  # method, noise multiplier


@dataclass(frozen=True)
class Size:
    """A preset of dp_lssgd_cnn.py, with the number of held-out images."""

    preset: Preset
    held_out: int = HELD_OUT


SIZES = {"standard": Size(STANDARD), "full": Size(FULL), "quick": Size(replace(QUICK, runs=1), held_out=200)}


def rates_of(method: str) -> tuple[float, ...]:
    """Return the candidates of a method."""
    return RATES["Adam" if method.endswith("Adam") else "SGD"]


def trials(size: Size) -> list[Job]:
    """Return one training per candidate, with the held-out images in place of the test images."""
    preset = size.preset
    return [
        replace(job(method, preset, noise, rate), n=preset.n - size.held_out, held_out=size.held_out, seed=TRIAL_SEED)
        for noise in preset.noises
        for method in METHODS
        for rate in rates_of(method)
    ]


def chosen(size: Size, workers: int) -> tuple[dict[Setting, float], list[dict[str, Any]]]:
    """Return the best rate by method and noise multiplier, and all candidates with their accuracies."""
    best: dict[Setting, tuple[float, float]] = {}
    rows = []
    for each, outcome in run_all(trials(size), workers).items():
        assert each.noise_multiplier is not None
        late = Runs(each, [outcome]).late.mean
        setting = (each.method, each.noise_multiplier)
        best[setting] = max(best.get(setting, (-1.0, 0.0)), (late, each.learning_rate))
        rows.append(
            {
                "method": each.method,
                "noise_multiplier": each.noise_multiplier,
                "learning_rate": each.learning_rate,
                "held_out_accuracy": late,
            }
        )
    return {setting: rate for setting, (_, rate) in best.items()}, rows


def final_runs(size: Size, rates: dict[Setting, float], workers: int) -> dict[Setting, Runs]:
    """Return the runs of every method with its rate."""
    jobs = [
        replace(job(method, size.preset, noise, rate), seed=seed)
        for seed in range(size.preset.runs)
        for (method, noise), rate in rates.items()
    ]
    return grouped(run_all(jobs, workers), lambda each: (each.method, each.noise_multiplier))


def beside(size: Size, rates: dict[Setting, float], workers: int) -> dict[str, float]:
    """Return the accuracies of the start, the most frequent class, and a training without noise."""
    noise = min(size.preset.noises)
    plain = job("DP-SGD", size.preset, noise, rates["DP-SGD", noise])
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
    told = options(__doc__, arguments)
    size = SIZES[told.preset]
    size = replace(size, preset=replace(size.preset, runs=told.runs or size.preset.runs))
    data_file("mnist.npz")
    console.print(size.preset.in_words())
    begin = time.perf_counter()
    rates, candidates = chosen(size, told.workers)
    groups = final_runs(size, rates, told.workers)
    noises = size.preset.noises
    pairs = (("DP-SGD", "DP-LSSGD"), ("DP-Adam", "DP-LSAdam"))
    gains = [gain(groups, noise, *pair) for noise in noises for pair in pairs]
    results = {
        "preset": asdict(size.preset),
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
    name = "dp_lssgd_rates" + ("" if told.preset == "standard" else f"_{told.preset}")
    write_results(name, results)
    plot(groups, noises, name)
    return results


if __name__ == "__main__":
    main()
