"""Tables 5, 6, H.8, H.9 and H.11 (figure 6) of the DP-Fed-LS paper: a CNN on SVHN where noise matters.

python experiments/fed_cnn.py [--quick]

Data, network, start and clients are those of fed_smoothing.py. At the paper's noise multipliers, the noise on a mean
update is small for this network, which has 22,682 weights instead of 3.4 million. All cells therefore have z = 4, or 3
and 6 for Table H.11, and Poisson sampling. Then the noise has 4.5 to 9 times the norm of the clip, where the paper has
28 to 74. Training takes 100 of the paper's 200 rounds: at z = 4, the curves of fed_smoothing.py are flat from there on
with smoothing, and fall without.

One setting is changed at a time, as in the paper. Others have the values of the base: clipping norm 0.3, local rate
0.1, and one pass over the ten images of a client in one batch, where fed_smoothing.py has two passes. Each cell is run
without smoothing and with sigma 1.

- Table 5: the order in which a convolution's weights are smoothed. The paper calls PyTorch's order OIWH, but it is
  OIHW. Height and width are exchanged here in all columns of the paper.
- Table 6: James-Stein and soft thresholding instead of smoothing.
- Table H.8: clipping norms. Table H.9: local passes and batch sizes.
- Table H.11, figure 6: high noise and local learning rates. The paper starts it from random weights; in so few rounds,
  this network would then only learn to predict the most common digit, even without noise.

A control that the paper does not have: smoothing also makes a step smaller. Sigma 1 leaves 27 % of the variance of the
noise, which a global step size of 0.52 does as well, without favouring low frequencies. It is run without smoothing.

Beside the accuracies stand that of the start, of the most common digit, and of the same training without noise.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from fed_cnn_paper import FIGURE6, ORDERS, RATES, TABLE5, TABLE6, TABLE_H8, TABLE_H9
from fed_digits import Run, digits, majority, outcome, pretrained, size
from fed_grids import SMALL_STEP
from fed_runs import Setting
from matplotlib.figure import Figure
from support import Spread, console, kept_run, print_table, resumed, save_figure, write_results

from privet.denoise import Denoiser, JamesStein, SoftThreshold

DENOISERS: dict[str, Denoiser] = {"James-Stein": JamesStein(), "soft threshold": SoftThreshold()}
ORDERED = TABLE5["poisson"][1.0]  # the paper's accuracies in the order of ORDERS
CLIPS = (0.1, 0.3, 0.5, 0.7)
LOCAL = {(1, 5): (5, 32), (1, 10): (5, 64), (2, 10): (10, 64)}  # local passes and batch: the paper's
HIGH = {3.0: (0.1,), 4.0: (0.025, 0.1, 0.3), 6.0: (0.1,)}  # noise multipliers: local learning rates
CONTROLLED = (4.0, 6.0)  # noise multipliers of the control


@dataclass(frozen=True)
class Variant(Run):
    """A training that may differ from the base in its local passes, their batches, the denoiser and the global step."""

    epochs: int = 1
    batch_size: int = 10
    denoiser: str = "smoothing"
    order: str = "OIHW"
    step_size: float = 1.0

    @property
    def setting(self) -> Setting:
        """The setting of the federated training."""
        made = super().setting
        local = replace(made.local, epochs=self.epochs, batch_size=self.batch_size)
        return replace(
            made,
            local=local,
            order=self.order,
            denoiser=DENOISERS.get(self.denoiser, made.denoiser),
            step_size=self.step_size,
        )


BASE = Variant("poisson", 4.0, 0.0, 0.1, rounds=100)


@dataclass(frozen=True)
class Preset:
    """The base, and the number of seeds of every cell."""

    base: Variant = BASE
    seeds: int = 3


PRESETS = {
    "standard": Preset(),
    "quick": Preset(replace(BASE, n=400, n_clients=40, rounds=1, pretraining=200), seeds=1),
}


# --------------------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Cell:
    """One cell: the table that it belongs to, what it varies, its training, and the paper's accuracy at its noise."""

    table: str
    varied: str
    run: Variant
    paper: float | None = None


def cells(base: Variant) -> list[Cell]:
    """Return the cells of all tables. The base occurs in several tables, but is trained once."""
    smooth = replace(base, sigma=1.0)
    both = (base, smooth)
    found = [
        Cell("Table 5", order, replace(smooth, order=order), paper)
        for order, paper in zip(ORDERS, ORDERED, strict=True)
    ]
    found += [Cell("Table 6", name, replace(base, denoiser=name), TABLE6["poisson"][name][0]) for name in DENOISERS]
    found += [
        Cell("Table H.8", f"clip {clip:g}", replace(run, clip_norm=clip), TABLE_H8[clip][run.sigma])
        for clip in CLIPS
        for run in both
    ]
    found += [
        Cell("Table H.9", f"E = {E}, b = {b}", replace(run, epochs=E, batch_size=b), TABLE_H9[theirs][run.sigma])
        for (E, b), theirs in LOCAL.items()
        for run in both
    ]
    small = replace(base, step_size=SMALL_STEP)
    found += [Cell("control", f"z = {z:g}, step {SMALL_STEP}", replace(small, multiplier=z)) for z in CONTROLLED]
    return found + [
        Cell(
            "Table H.11",
            f"z = {z:g}, rate {rate:g}",
            replace(run, multiplier=z, rate=rate),
            printed(z, rate, run.sigma),
        )
        for z, rates in HIGH.items()
        for rate in rates
        for run in both
    ]


def printed(multiplier: float, rate: float, sigma: float) -> float | None:
    """Return the accuracy of Table H.11, if it has this cell."""
    if multiplier not in FIGURE6 or rate not in RATES:
        return None
    return FIGURE6[multiplier][sigma][RATES.index(rate)]


def made(run: Variant, seed: int) -> dict[str, Any]:
    """Return the outcome of a run with a seed, which may have finished before."""
    seeded = replace(run, seed=seed)
    if not kept_run(seeded).exists():
        found = resumed(seeded, lambda: outcome(seeded, looks=10))
        console.print(f"{seeded}: test {found['test']:.1f} %, {found['seconds']:.0f} s", markup=False)
    return resumed(seeded, lambda: outcome(seeded, looks=10))


def run_all(runs: Sequence[Variant], preset: Preset) -> None:
    """Train all runs, first with seed 1, then with seed 2, and so on."""
    for seed in range(1, 1 + preset.seeds):
        for run in dict.fromkeys(runs):
            made(run, seed)


def row(cell: Cell, preset: Preset) -> dict[str, Any]:
    """Return the row of a cell, with its gain over the same training without a denoiser, seed by seed."""
    run = cell.run
    plain = replace(run, sigma=0.0, denoiser="smoothing", order="OIHW", step_size=1.0)
    tests = {seed: made(run, seed)["test"] for seed in range(1, 1 + preset.seeds)}
    gains = [test - made(plain, seed)["test"] for seed, test in tests.items()]
    spread, gain = Spread.of(list(tests.values())), Spread.of(gains)
    first = made(run, 1)
    return {
        "table": cell.table,
        "varied": cell.varied,
        "denoiser": run.denoiser if run.denoiser in DENOISERS else f"sigma {run.sigma:g}",
        "sigma": run.sigma,
        "noise_multiplier": run.multiplier,
        "rate": run.rate,
        "epsilon": first["epsilon"],
        "test": [spread.mean, spread.std],
        "tests": list(tests.values()),
        "gain": [gain.mean, gain.std / math.sqrt(gain.runs)],
        "rounds": first["rounds"],
        "validation": mean_curve([made(run, seed)["validation"] for seed in tests]),
        "paper": cell.paper,
    }


def mean_curve(curves: list[list[float]]) -> list[float]:
    """Return the mean of curves, point by point."""
    return [sum(points) / len(points) for points in zip(*curves, strict=True)]


# -------------------------------------------------------------------------------------------------------------- report


def show(rows: list[dict[str, Any]]) -> None:
    """Print one table per table of the paper."""
    columns = ["varied", "denoiser", "seeds", "test accuracy, %", "gain (standard error)", "(paper)"]
    for table in dict.fromkeys(each["table"] for each in rows):
        shown = [
            [
                each["varied"],
                each["denoiser"],
                str(len(each["tests"])),
                Spread(*each["test"], len(each["tests"])).show(2),
                f"{each['gain'][0]:+.2f} ± {each['gain'][1]:.2f}",
                "" if each["paper"] is None else f"{each['paper']:.2f}",
            ]
            for each in rows
            if each["table"] == table
        ]
        print_table(f"{table}: a CNN on SVHN, 2,000 clients", columns, shown)


def plot(rows: list[dict[str, Any]], start: float, name: str) -> None:
    """Draw figure 6: validation accuracy by round, with one panel per noise multiplier."""
    high = [each for each in rows if each["table"] == "Table H.11"]
    multipliers = list(dict.fromkeys(each["noise_multiplier"] for each in high))
    figure = Figure(figsize=(4.5 * len(multipliers), 3.6), layout="constrained")
    for panel, z in zip(figure.subplots(1, len(multipliers), squeeze=False)[0], multipliers, strict=True):
        for each in high:
            if each["noise_multiplier"] == z:
                style = "-" if each["sigma"] else ":"
                label = f"sigma {each['sigma']:g}, rate {each['rate']:g}"
                panel.plot(each["rounds"], each["validation"], style, label=label)
        panel.axhline(start, color="grey", linewidth=0.8)
        panel.set(title=f"z = {z:g} (grey: start)", xlabel="round", ylabel="validation accuracy, %")
        panel.legend(fontsize=7)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images, for tests")
    name = "quick" if parser.parse_args(arguments).quick else "standard"
    preset = PRESETS[name]
    base = preset.base
    begin = time.perf_counter()
    torch.set_num_threads(1)
    without_noise = replace(base, multiplier=0.0)
    chosen = cells(base)
    run_all([without_noise, *(cell.run for cell in chosen)], preset)
    rows = [row(cell, preset) for cell in chosen]
    show(rows)
    data, begun = digits(base.n), pretrained(base.pretraining)
    per_round = base.setting.clients_per_round
    results = {
        "preset": name,
        "start": data.test(begun),
        "majority": majority(data),
        "without_noise": row(Cell("", "no noise", without_noise), preset),
        "noise_to_clip": {f"{z:g}": z * math.sqrt(size(base.pretraining)) / per_round for z in HIGH},
        "rows": rows,
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(
        f"Start {results['start']:.1f} %, most common digit {results['majority']:.1f} %, "
        f"without noise {results['without_noise']['test'][0]:.1f} %"
    )
    file = "fed_cnn" + ("" if name == "standard" else f"_{name}")
    write_results(file, results)
    plot(rows, data.validate(begun), file)
    return results


if __name__ == "__main__":
    main()
