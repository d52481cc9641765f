"""Small CNNs on CIFAR-10: figure 6 of the DP-LSSGD paper, and CNN5 of L. Wang's dissertation (figure 4.5(e)-(j)).

python experiments/cifar_cnn.py [--full | --quick] [--runs 2] [--workers 2]

All 50,000 training and 10,000 test images are used, which experiments/cifar10.py prepares. --quick takes the subset
cifar10_15k_3k.npz.

- Figure 6: DP-SGD, DP-LSSGD, DP-Adam, DP-LSAdam at noise multiplier 2, clip 3, batches of 256, learning rate 0.15 or
  0.001, divided by ten from step 10,000. --full uses the CNN of TensorFlow's tutorial (1,068,298 weights, the
  central 24 x 24 pixels, no random crops) for 60 epochs. The standard preset uses CNN5, which is ten times cheaper, for
  ten epochs. The paper shows the figure only as a picture and does not state sigma, which is 1 here.
- CNN6 of the dissertation, whose convolutions are public and frozen, is run by dp_srm_cnn6.py.
- CNN5, the network of PyTorch's tutorial (62,006 weights): DP-SRM against DP-SGD at epsilon 6, 8 and 10, C1 = 2. --full
  runs the paper's search, with 100 epochs (as in its non-private run) and 30 runs of the best. The standard preset has
  ten epochs with batches of 1024, C1 = 0.2 and steps that decrease linearly to zero, at the same epsilons. Both methods
  have two candidates, which are tried with 5,000 images held out; the better one is run with three seeds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deep_runs import Job, Runs, draw, grouped, options, run_all
from dp_srm_networks import Groups, Setting, Study, beside, compared, draw_budget, grid, without_nan
from matplotlib.figure import Figure
from support import console, data_file, print_table, save_figure, write_results

FILE, SUBSET, N = "cifar10.npz", "cifar10_15k_3k.npz", 50_000
OPTIMISERS = {  # adam, sigma
    "DP-SGD": (False, 0.0),
    "DP-LSSGD": (False, 1.0),
    "DP-Adam": (True, 0.0),
    "DP-LSAdam": (True, 1.0),
}
ORDER = (("DP-SGD", "DP-LSSGD"), ("DP-Adam", "DP-LSAdam"))  # according to the paper, the second is above the first
PAPER = {  # test error of CNN5, %,
    (6.0, "DP-SGD"): 51.0,
    (6.0, "DP-SRM"): 50.3,
    (8.0, "DP-SGD"): 50.2,
    (8.0, "DP-SRM"): 48.2,
    (10.0, "DP-SGD"): 49.3,
    (10.0, "DP-SRM"): 47.1,
}
CNN5 = Job("", FILE, "from_minus_one", n=N, net="cnn5", steps=0, batch=0, clip_norm=2.0, learning_rate=0.0)
OURS = Setting(10.0, 1024, 10, clip_norm=0.2, is_annealed=True)
RECURSIVE = replace(OURS, refresh=0.7, difference_norm=0.01)
CANDIDATES = {
    "DP-SGD": tuple(replace(OURS, learning_rate=rate) for rate in (10.0, 20.0)),
    "DP-SRM": tuple(replace(RECURSIVE, learning_rate=rate) for rate in (10.0, 20.0)),
}
SEARCH = grid((0.01, 0.02, 0.05, 0.1, 0.2), (32, 64, 128), 100, (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99), (1, 2, 4))
FEW = {"DP-SGD": (Setting(0.1, 32, 0.2),), "DP-SRM": (Setting(0.1, 32, 0.2, refresh=0.5, first=2),)}
TITLE = "Figure 4.5(e)-(j): CNN5 on CIFAR-10, delta 1e-5"


@dataclass(frozen=True)
class Preset:
    """The network, pixels, steps and runs of figure 6, and the study of CNN5."""

    net: str
    scale: str
    steps: int
    batch: int
    runs: int
    study: Study

    @property
    def n(self) -> int:
        """The number of training images."""
        return self.study.template.n


PRESETS = {
    "standard": Preset(
        "cnn5", "from_minus_one", 10 * N // 256, 256, 3, Study(TITLE, CNN5, (6.0, 8.0, 10.0), CANDIDATES, PAPER, runs=3)
    ),
    "full": Preset(
        "tensorflow_cnn", "centred", 60 * N // 256, 256, 5, Study(TITLE, CNN5, (6.0, 8.0, 10.0), SEARCH, PAPER, runs=30)
    ),
    "quick": Preset(
        "tensorflow_cnn",
        "centred",
        2,
        16,
        1,
        Study(TITLE, replace(CNN5, source=SUBSET, n=1000, n_test=100), (10.0,), FEW, PAPER, runs=1),
    ),
}


def planned(preset: Preset) -> list[Job]:
    """Return the jobs of figure 6."""
    return [
        Job(
            method,
            preset.study.template.source,
            preset.scale,
            n=preset.n,
            net=preset.net,
            steps=preset.steps,
            batch=preset.batch,
            clip_norm=3.0,
            learning_rate=0.001 if adam else 0.15,
            noise_multiplier=2.0,
            adam=adam,
            smoothing=sigma,
            decay_at=10_000,
            tensorflow=True,
            n_test=preset.study.template.n_test,
            seed=seed,
        )
        for seed in range(preset.runs)
        for method, (adam, sigma) in OPTIMISERS.items()
    ]


def figure6(preset: Preset, workers: int) -> tuple[dict[str, Runs], list[dict[str, Any]]]:
    """Run and print figure 6, and return the runs and their summaries."""
    runs: dict[str, Runs] = grouped(run_all(planned(preset), workers), lambda job: job.method)
    shown = [
        [method, f"{each.outcomes[0].epsilon:.2f}", str(each.last.runs), each.last.show(2), each.best.show(2)]
        for method, each in runs.items()
    ]
    columns = ["method", "epsilon", "runs", "accuracy in the end, %", "best of the run, %"]
    print_table(f"Figure 6: {preset.net}, noise multiplier 2, clip 3", columns, shown)
    for below, above in ORDER:
        found = "yes" if runs[above].last.mean > runs[below].last.mean else "no"
        console.print(f"{above} above {below}: paper yes, privet {found}")
    return runs, [each.summary() for each in runs.values()]


def plot(runs: dict[str, Runs], groups: Groups, epsilons: Sequence[float], name: str) -> None:
    """Draw figure 6, and CNN5 by step and by time, with one column per epsilon."""
    figure = Figure(figsize=(5 * (1 + len(epsilons)), 8), layout="constrained")
    panels = figure.subplots(2, 1 + len(epsilons))
    first, empty = panels[:, 0]
    for method, each in runs.items():
        draw(first, each, method)
    first.set(title="figure 6: noise multiplier 2", xlabel="step", ylabel="test accuracy, %")
    first.legend(fontsize=8)
    empty.set_axis_off()
    for place, epsilon in enumerate(epsilons, 1):
        draw_budget(panels[0, place], groups, epsilon)
        draw_budget(panels[1, place], groups, epsilon, by_time=True)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = PRESETS[chosen.preset]
    preset = replace(preset, runs=chosen.runs or preset.runs)
    study = replace(preset.study, runs=chosen.runs or preset.study.runs)
    data_file(study.template.source)
    console.print(
        f"Preset {chosen.preset}: figure 6 by {preset.net}, {preset.steps} steps, {preset.runs} runs; CNN5, "
        f"{study.runs} runs; {preset.n} images"
    )
    begin = time.perf_counter()
    runs, summaries = figure6(preset, chosen.workers)
    groups, rows = compared(study, chosen.workers)
    results = {
        "preset": chosen.preset,
        "figure6": summaries,
        "cnn5": without_nan(rows),
        "test_error_beside": beside(study, groups, chosen.workers),
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(f"{results['seconds']} s in all")
    name = "cifar_cnn" + ("" if chosen.preset == "standard" else f"_{chosen.preset}")
    write_results(name, results)
    plot(runs, groups, study.epsilons, name)
    return results


if __name__ == "__main__":
    main()
