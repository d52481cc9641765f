"""Table 2 and figure 3 of "Differentially Private Federated Learning with Laplacian Smoothing": logistic regression.

python experiments/fed_logistic.py [--preset | --quick] [--runs 5]

The 50,000 training images of MNIST are split among 1000 clients (uniform sampling, replace-one) or 500 clients (Poisson
sampling, add-or-remove). Epsilon is 6 to 9, and delta is N^-1.1 for N clients.

- Noise from the accountant, with our own settings. They were chosen by about 45 trainings at epsilon 6 on 10,000
  validation images, which are training images that no client has, and fixed before the runs shown. The test images were
  not used for any choice. As in the paper, the search is not charged to the budget. A quarter of the clients take part
  in a round instead of 5 %. A client takes five steps on all its images instead of 25 steps on ten images. The clipping
  norm is 1.5 instead of 0.4. The second half of the models is averaged. There is no smoothing, because it made no
  difference at this noise.
- Noise of the paper, from Theorems 1 and 2 as printed, with all its settings (Table H.7) and sigma from 0 to 3. With
  Poisson sampling the divisor is fixed: docs/errata.md (k). According to the accountant, this noise spends an
  epsilon of 0.8 to 2.1, where the theorems state 6 to 9.

Without options, everything is run with five seeds, as in the paper. --preset has two seeds, and
--quick is for tests.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fed_data import Examples, mnist_pixels, softmax_regression
from fed_report import Shown, finding, keep, options, result_name, yes
from fed_runs import Cell, Setting, Task, best_of, gain, repeated
from matplotlib.figure import Figure
from support import console, save_figure
from torch import nn
from torch.nn import functional

from privet.federated import LocalTraining

EPSILONS = (6.0, 7.0, 8.0, 9.0)
SIGMAS = (0.0, 1.0, 2.0, 3.0)
CLIENTS = {"uniform": 1000, "poisson": 500}
SHARE = 0.05
PAPER = {  # test accuracy, %: by sigma, for each epsilon
    "uniform": {
        0.0: (82.87, 84.67, 84.99, 85.41),
        1.0: (84.77, 85.90, 86.32, 86.63),
        2.0: (83.92, 85.43, 85.78, 86.22),
        3.0: (84.73, 85.62, 86.40, 86.42),
    },
    "poisson": {
        0.0: (83.94, 85.45, 86.30, 86.53),
        1.0: (85.64, 86.51, 86.61, 86.95),
        2.0: (85.49, 86.34, 86.79, 87.23),
        3.0: (85.52, 86.51, 86.63, 86.85),
    },
}
THEIRS = LocalTraining(0.1, batch_size=10, epochs=5, decay=0.99, weight_decay=4e-5)

OURS = Setting(
    n_clients=1000,
    clients_per_round=250,
    rounds=40,
    clip_norm=1.5,
    local=LocalTraining(1.0, batch_size=50, steps=5),
    tail_share=0.5,
)


@dataclass(frozen=True)
class Preset:
    """The size of the experiment."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    epsilons: tuple[float, ...] = EPSILONS
    samplings: tuple[str, ...] = ("uniform", "poisson")
    sigmas: tuple[float, ...] = SIGMAS
    rounds: int = 30
    our_rounds: int = 40
    n: int = 50_000


PRESETS = {
    "full": Preset(),
    "preset": Preset(seeds=(1, 2)),
    "quick": Preset(
        seeds=(1,), epsilons=(6.0,), samplings=("uniform",), sigmas=(0.0, 1.0), rounds=2, our_rounds=2, n=4_000
    ),
}


def ours(sampling: str, epsilon: float, preset: Preset) -> Setting:
    """Return our own setting for a budget, with noise from the accountant and a quarter of the clients per round."""
    n = CLIENTS[sampling]
    return replace(
        OURS,
        n_clients=n,
        clients_per_round=n // 4,
        rounds=preset.our_rounds,
        sampling=sampling,
        epsilon=epsilon,
        local=replace(OURS.local, batch_size=50_000 // n),
    )


def theirs(sampling: str, epsilon: float, sigma: float, preset: Preset) -> Setting:
    """Return the paper's setting with the paper's noise."""
    n = CLIENTS[sampling]
    setting = Setting(
        n, round(SHARE * n), preset.rounds, 0.4, THEIRS, sampling=sampling, epsilon=epsilon, is_by_theorem=True
    )
    return setting.smoothed(sigma)


class Watch:
    """Scores models on validation images, and records their losses on the first training images for figure 3."""

    def __init__(self, data: Examples) -> None:
        self._data = data
        self.losses: list[float] = []

    def __call__(self, model: nn.Module) -> float:
        """Return the validation accuracy."""
        self.losses.append(float(functional.cross_entropy(model(self._data.X[:5000]), self._data.y[:5000]).detach()))
        return self._data.validate(model)


# -------------------------------------------------------------------------------------------------------------- parts


def with_accountant(task: Task, preset: Preset) -> tuple[list[Shown], list[str], list[dict[str, Any]]]:
    """Run our own settings, and return tables, findings and rows."""
    tables, lines, kept = [], [], []
    for sampling in preset.samplings:
        rows: list[list[str]] = []
        for epsilon in preset.epsilons:
            best = max(row[EPSILONS.index(epsilon)] for row in PAPER[sampling].values())
            cell = repeated(
                f"{sampling}, epsilon {epsilon:g}, accountant", task, ours(sampling, epsilon, preset), preset.seeds
            )
            found = cell.summary()
            rows.append(
                [
                    f"{epsilon:g}",
                    f"{best:.2f}",
                    cell.accuracy.show(2),
                    f"{found['epsilon']:.4f}",
                    f"{found['noise_multiplier']:.3f}",
                    f"{found['seconds_a_run']:.0f}",
                ]
            )
            what = f"{sampling}, epsilon {epsilon:g}: best of the column"
            above = yes(cell.accuracy.mean > best)
            lines.append(finding(what, f"{best:.2f}", f"{cell.accuracy.show(2)} (above: {above})"))
            kept.append({"part": "accountant", "sampling": sampling, "budget": epsilon, "paper_best": best, **found})
        columns = ["epsilon", "paper, best", "privet", "epsilon spent", "noise multiplier", "seconds per run"]
        title = f"Table 2, {sampling}, accountant noise, our own settings: test accuracy, %"
        tables.append(Shown(title, columns, rows).print())
    return tables, lines, kept


def with_theorems(
    task: Task, data: Examples, preset: Preset
) -> tuple[list[Shown], list[str], list[dict[str, Any]], dict[tuple[str, float], tuple[list[float], list[float]]]]:
    """Run the paper's settings with its noise, and return tables, findings, rows and curves at epsilon 7."""
    tables, lines, kept = [], [], []
    curves: dict[tuple[str, float], tuple[list[float], list[float]]] = {}
    drawn = 7.0 if 7.0 in preset.epsilons else preset.epsilons[0]
    for sampling in preset.samplings:
        cells: dict[tuple[float, float], Cell] = {}
        for epsilon in preset.epsilons:
            for sigma in preset.sigmas:
                watch = Watch(data) if epsilon == drawn else None
                name = f"{sampling}, epsilon {epsilon:g}, the paper's noise, sigma {sigma:g}"
                cell = repeated(name, task, theirs(sampling, epsilon, sigma, preset), preset.seeds, watch)
                cells[epsilon, sigma] = cell
                kept.append(
                    {"part": "theorem", "sampling": sampling, "budget": epsilon, "sigma": sigma, **cell.summary()}
                )
                if watch is not None:
                    curves[sampling, sigma] = (_mean_of(watch.losses, len(preset.seeds)), cell.curve)
        tables.append(_theorem_table(sampling, cells, preset).print())
        lines += smoothing_lines(sampling, cells, preset)
    return tables, lines, kept, curves


def _mean_of(values: list[float], runs: int) -> list[float]:
    """Return the mean over runs of values that are stored one run after another."""
    length = len(values) // runs
    return [sum(values[place::length]) / runs for place in range(length)]


def _theorem_table(sampling: str, cells: dict[tuple[float, float], Cell], preset: Preset) -> Shown:
    rows = []
    for sigma in preset.sigmas:
        row = [f"{sigma:g}"]
        for epsilon in preset.epsilons:
            paper = PAPER[sampling][sigma][EPSILONS.index(epsilon)]
            row += [f"{paper:.2f}", cells[epsilon, sigma].accuracy.show(2)]
        rows.append(row)
    spent = [f"{cells[epsilon, preset.sigmas[0]].outcomes[0].epsilon:.2f}" for epsilon in preset.epsilons]
    rows.append(["epsilon spent"] + [text for each in spent for text in ("", each)])
    columns = ["sigma"] + [text for epsilon in preset.epsilons for text in (f"{epsilon:g}: paper", "privet")]
    return Shown(f"Table 2, {sampling}, the paper's settings and noise: test accuracy, %", columns, rows)


def smoothing_lines(sampling: str, cells: dict[tuple[float, float], Cell], preset: Preset) -> list[str]:
    """Return for each budget a line that says whether smoothing helps."""
    lines = []
    for epsilon in preset.epsilons:
        place = EPSILONS.index(epsilon)
        plain, *smoothed = (PAPER[sampling][sigma][place] for sigma in preset.sigmas)
        paper = f"{yes(max(smoothed) > plain)} ({max(smoothed):.2f} against {plain:.2f})"
        here = gain(best_of(cells[epsilon, sigma] for sigma in preset.sigmas if sigma), cells[epsilon, 0.0])
        lines.append(finding(f"{sampling}, epsilon {epsilon:g}: best sigma > 0 above sigma = 0", paper, here))
    return lines


def plot(curves: dict[tuple[str, float], tuple[list[float], list[float]]], name: str) -> None:
    """Draw figure 3: training loss and validation accuracy for both kinds of sampling."""
    samplings = list(dict.fromkeys(sampling for sampling, _ in curves))
    figure = Figure(figsize=(9, 3.6 * len(samplings)), layout="constrained")
    panels = figure.subplots(len(samplings), 2, squeeze=False)
    for (left, right), sampling in zip(panels, samplings, strict=True):
        for (which, sigma), (losses, accuracies) in curves.items():
            if which == sampling:
                rounds = range(1, len(losses) + 1)
                left.plot(rounds, losses, label=f"sigma {sigma:g}")
                right.plot(rounds, accuracies, label=f"sigma {sigma:g}")
        left.set(title=f"{sampling}: training loss", xlabel="round", yscale="log")
        right.set(title=f"{sampling}: validation accuracy, %", xlabel="round", ylim=(60, None))
        left.legend(fontsize=8)
    figure.suptitle("Figure 3: logistic regression, epsilon 7 by the paper's theorems", fontsize=9)
    save_figure(figure, name)


# --------------------------------------------------------------------------------------------------------------- main


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments, default="full")
    preset = PRESETS[chosen.configuration]
    if chosen.runs is not None:
        preset = replace(preset, seeds=tuple(range(1, chosen.runs + 1)))
    begin = time.perf_counter()
    data = mnist_pixels(preset.n)
    ran = (
        f"Configuration {chosen.configuration}: {len(preset.seeds)} seeds, {len(data.y):,} images, the paper's clients"
    )
    console.print(ran)
    task = Task(softmax_regression, data.clients, data.test)
    tables, lines, rows = with_accountant(task, preset)
    more_tables, more_lines, more_rows, curves = with_theorems(task, data, preset)
    name = result_name("fed_logistic", chosen.configuration)
    results = keep(
        name,
        [*tables, *more_tables],
        configuration=chosen.configuration,
        ran=ran,
        seconds=round(time.perf_counter() - begin),
        our_settings=[asdict(ours(sampling, preset.epsilons[0], preset)) for sampling in preset.samplings],
        findings=[*lines, *more_lines],
        rows=[*rows, *more_rows],
    )
    plot(curves, name)
    return results


if __name__ == "__main__":
    main()
