"""Tables 3, 5, 6 and H.11 (figure 6) of "Differentially Private Federated Learning with Laplacian Smoothing": a CNN.

python experiments/fed_cnn.py [--full | --quick] [--runs 2]

THE DATA IS A SUBSET: 20,000 of the paper's 604,388 training images of SVHN. There are 200 clients with 100 images each
instead of 2,000 clients with 300. Compare accuracies with each other and not with those of the paper.

With a tenth of the clients, the paper's 100 clients per round are half of all clients. One can keep either the paper's
noise on the mean (the same z and clients per round, which spends a larger epsilon here) or its epsilon (with which
nothing would be learnt). The noise multipliers are those of the paper, and the tables show the epsilon that they spend
here.

- Table 3: noise multipliers 2.4, 2.2, 2.0 and 1.8, which correspond to the paper's epsilon of 2.83 to 4.05 (uniform)
  and 1.39 to 2.00 (Poisson), with sigma from 0 to 1.5. Training starts from weights trained on MNIST as public data.
- Table 5: the orders in which a convolution's weights are smoothed, at z = 2.0. The paper calls PyTorch's order OIWH,
  but it is OIHW. Height and width are exchanged here in all columns of the paper.
- Table 6: James-Stein and soft thresholding instead of smoothing, at the noise of Table 3.
- Figure 6: high noise (z = 3, 3.5, 4) with Poisson sampling and several local learning rates.

--full is the paper's network (3.4 million weights) on 32 x 32 pixels with most settings of Table H.7: 100 clients per
round, 200 rounds, 10 epochs with batches of 64, clipping norm 0.3 and five seeds. It is not the paper's configuration:
its rate is 0.5 with 200 clients where the paper's is 0.05 with 2,000. Figure 6 starts from random weights.

The default preset has a network of 22,682 weights on 16 x 16 pixels, fewer rounds, fewer local epochs, and only some
cells of the tables. In so few rounds, a network with random initial weights only learns to predict the most common
digit, even without noise. Figure 6 therefore also starts from weights trained on MNIST. Their accuracy before any round
is measured by fed_start.py (docs/results/fed_start.json), and runs that end below it have learnt nothing. Whether
smoothing helps depends on the noise on the mean, which is z times the clipping norm over the number of clients per
round, and a small network is less sensitive to it than the paper's. Trials on validation images with 100, 50, 20 and 10
clients per round showed both cases: with 100, smoothing hurts at z = 3; with 20, the noise destroys the model in any
case, but later with smoothing. Figure 6 is therefore shown for 50 and 30 clients per round, and the tables for 30.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from fed_cnn_paper import FIGURE6, MULTIPLIERS, ORDERS, RATES, TABLE3, TABLE5, TABLE6
from fed_cnn_setup import PRESETS, Preset, prepared, scratch, setting
from fed_data import svhn_images
from fed_report import Shown, finding, keep, options, result_name
from fed_runs import Cell, Task, best_of, gain, repeated
from matplotlib.figure import Figure
from support import console, save_figure

from privet.denoise import Denoiser, JamesStein, SoftThreshold

SUBSET = "On a subset of SVHN with 20,000 images and 200 clients; the paper has 604,388 images and 2,000 clients."
DENOISERS: dict[str, Denoiser] = {"James-Stein": JamesStein(), "soft threshold": SoftThreshold()}
Cells = dict[Any, Cell]


# --------------------------------------------------------------------------------------------------------------- tables


def table3(task: Task, preset: Preset) -> tuple[Cells, list[Shown], list[str]]:
    """Run Table 3."""
    cells: Cells = {}
    tables, lines = [], []
    for sampling in preset.samplings:
        for multiplier in preset.multipliers:
            for sigma in preset.sigmas:
                chosen = setting(preset, sampling, multiplier).smoothed(sigma)
                name = f"Table 3, {sampling}, z {multiplier}, sigma {sigma:g}"
                cells["table 3", sampling, multiplier, sigma] = repeated(name, task, chosen, preset.seeds)
        mine = {key[2:]: cell for key, cell in cells.items() if key[1] == sampling}
        rows = [
            [f"{sigma:g}", *_pairs((TABLE3[sampling][sigma][_place(z)], mine[z, sigma]) for z in preset.multipliers)]
            for sigma in preset.sigmas
        ]
        spent = [mine[z, preset.sigmas[0]].outcomes[0].epsilon for z in preset.multipliers]
        rows.append(["epsilon here", *(text for each in spent for text in ("", f"{each:.3g}"))])
        tables.append(Shown(f"Table 3, {sampling}: test accuracy, %", ["sigma", *_heads(preset)], rows).print())
        for z in preset.multipliers:
            best = best_of(mine[z, sigma] for sigma in preset.sigmas if sigma)
            what = f"Table 3, {sampling}, z {z}: best sigma > 0 above sigma = 0"
            lines.append(finding(what, "yes", gain(best, mine[z, 0.0])))
    return cells, tables, lines


def table5(task: Task, preset: Preset) -> tuple[Cells, list[Shown], list[str]]:
    """Run Table 5, at z = 2.0."""
    cells: Cells = {}
    tables, lines = [], []
    for sampling in preset.samplings:
        for sigma in preset.order_sigmas:
            for order in ORDERS:
                chosen = replace(setting(preset, sampling, 2.0).smoothed(sigma), order=order)
                name = f"Table 5, {sampling}, sigma {sigma:g}, {order}"
                cells["table 5", sampling, sigma, order] = repeated(name, task, chosen, preset.seeds)
        rows = [
            [
                f"{sigma:g}",
                *_pairs(
                    (paper, cells["table 5", sampling, sigma, order])
                    for paper, order in zip(TABLE5[sampling][sigma], ORDERS, strict=True)
                ),
            ]
            for sigma in preset.order_sigmas
        ]
        heads = [text for order in ORDERS for text in (f"{order}: paper", "privet")]
        tables.append(Shown(f"Table 5, {sampling}, z 2.0: test accuracy, %", ["sigma", *heads], rows).print())
        means = [cell.accuracy.mean for key, cell in cells.items() if key[1] == sampling]
        apart = f"{max(means) - min(means):.2f} points apart at most"
        paper = [value for row in TABLE5[sampling].values() for value in row]
        paper_range = f"{max(paper) - min(paper):.2f} points apart at most"
        lines.append(finding(f"Table 5, {sampling}: all cells", paper_range, apart))
    return cells, tables, lines


def table6(task: Task, preset: Preset) -> tuple[Cells, list[Shown], list[str]]:
    """Run Table 6, the other denoisers, for comparison with Table 3."""
    cells: Cells = {}
    tables: list[Shown] = []
    for sampling in preset.samplings:
        for multiplier in preset.multipliers:
            for name, denoiser in DENOISERS.items():
                chosen = replace(setting(preset, sampling, multiplier), denoiser=denoiser)
                title = f"Table 6, {sampling}, z {multiplier}, {name}"
                cells["table 6", sampling, multiplier, name] = repeated(title, task, chosen, preset.seeds)
        rows = [
            [name, *_pairs((paper[_place(z)], cells["table 6", sampling, z, name]) for z in preset.multipliers)]
            for name, paper in TABLE6[sampling].items()
        ]
        tables.append(Shown(f"Table 6, {sampling}: test accuracy, %", ["denoiser", *_heads(preset)], rows).print())
    return cells, tables, []


def figure6(task: Task, preset: Preset) -> tuple[Cells, list[Shown], list[str]]:
    """Run Table H.11, whose curves are figure 6."""
    data = svhn_images(preset.n, preset.side)
    cells: Cells = {}
    rows, lines = [], []
    for per_round, z in product(preset.high_per_round, preset.high):
        for sigma in (0.0, 1.0):
            for rate in preset.rates:
                chosen = replace(
                    setting(preset, "poisson", z).smoothed(sigma),
                    clients_per_round=per_round,
                    rounds=preset.high_rounds,
                    local=replace(preset.local, learning_rate=rate),
                )
                name = f"Figure 6, {per_round} per round, z {z}, sigma {sigma:g}, local rate {rate}"
                cell = repeated(name, task, chosen, preset.high_seeds, data.validate)
                cells["figure 6", per_round, z, sigma, rate] = cell
            paper = [FIGURE6[z][sigma][RATES.index(rate)] for rate in preset.rates]
            mine = [cells["figure 6", per_round, z, sigma, rate] for rate in preset.rates]
            spent = f"{mine[0].outcomes[0].epsilon:.3g}"
            rows.append([f"{per_round}", f"{z}", f"{sigma:g}", spent, *_pairs(zip(paper, mine, strict=True))])
        for rate in preset.rates:
            without, smooth = (cells["figure 6", per_round, z, sigma, rate] for sigma in (0.0, 1.0))
            what = f"Figure 6, {per_round} per round, z {z}, local rate {rate}: smoothing above none"
            lines.append(finding(what, "yes", gain(smooth, without)))
    heads = [text for rate in preset.rates for text in (f"rate {rate}: paper", "privet")]
    columns = ["clients per round", "z", "sigma", "epsilon here", *heads]
    return cells, [Shown("Table H.11 (figure 6), Poisson: test accuracy, %", columns, rows).print()], lines


def _place(multiplier: float) -> int:
    return MULTIPLIERS.index(multiplier)


def _heads(preset: Preset) -> list[str]:
    return [text for multiplier in preset.multipliers for text in (f"z {multiplier}: paper", "privet")]


def _pairs(found: Iterable[tuple[float, Cell]]) -> list[str]:
    return [text for paper, cell in found for text in (f"{paper:.2f}", cell.accuracy.show(2))]


def plot(cells: Cells, name: str) -> None:
    """Draw figure 6: validation accuracy by round, one panel per noise multiplier."""
    kinds = list(dict.fromkeys(key[1:3] for key in cells))
    wide = len({z for _, z in kinds})
    figure = Figure(figsize=(4.5 * wide, 3.4 * len(kinds) / wide), layout="constrained")
    panels = figure.subplots(len(kinds) // wide, wide, squeeze=False).flatten()
    for panel, kind in zip(panels, kinds, strict=True):
        for (_, per_round, z, sigma, rate), cell in cells.items():
            if (per_round, z) == kind:
                style = "-" if sigma else ":"
                panel.plot(range(1, len(cell.curve) + 1), cell.curve, style, label=f"sigma {sigma:g}, rate {rate}")
        panel.set(title=f"z = {kind[1]}, {kind[0]} clients per round", xlabel="round", ylabel="validation accuracy, %")
        panel.legend(fontsize=7)
    figure.suptitle(f"Figure 6: high noise. {SUBSET}", fontsize=8)
    save_figure(figure, name)


# ----------------------------------------------------------------------------------------------------------------- main


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = PRESETS[chosen.configuration]
    if chosen.runs is not None:
        seeds = tuple(range(1, chosen.runs + 1))
        preset = replace(preset, seeds=seeds, high_seeds=seeds)
    begin = time.perf_counter()
    ran = f"Configuration {chosen.configuration}: {preset.in_words}"
    console.print(f"{SUBSET}\n{ran}")
    begun = prepared(preset)
    high = figure6(begun if preset.is_high_pretrained else scratch(preset), preset)
    parts = [high, *(part(begun, preset) for part in (table3, table5, table6))]
    name = result_name("fed_cnn", chosen.configuration)
    results = keep(
        name,
        [table for _, tables, _ in parts for table in tables],
        configuration=chosen.configuration,
        ran=ran,
        subset=SUBSET,
        seconds=round(time.perf_counter() - begin),
        findings=[line for _, _, lines in parts for line in lines],
        rows=[{"cell": list(key), **cell.summary()} for cells, _, _ in parts for key, cell in cells.items()],
    )
    plot(high[0], name)
    return results


if __name__ == "__main__":
    main()
