"""When does smoothing help a CNN on SVHN? Table 3 and figure 4 of the DP-Fed-LS paper.

python experiments/fed_smoothing.py [--quick]

As in "Differentially Private Federated Learning with Laplacian Smoothing" (Table H.7), there are 2,000 clients, a
twentieth of them in each of 200 rounds, clipping norm 0.3, noise multipliers from 1.8 on, uniform and Poisson sampling,
and weights trained on MNIST at the start. Smaller than in the paper: a client has 10 images instead of 300, because
only 20,000 are at hand; the network has 22,682 weights and 16 x 16 pixels instead of 3.4 million and 32 x 32; clients
make 2 passes over their images, each in one batch. Images are standardised one by one, and initial weights are those of
He and others. Without these two, nothing is learnt in so few rounds even without noise.

The noise on a round's mean update has norm z C sqrt(d) / m for d weights and m clients, and the signal has norm at most
C. The ratio z sqrt(d) / m is 2.7 at z = 1.8, against 33 in the paper. The noise of the paper's ratio would be that of
z = 22. Therefore larger noise multipliers are run as well.

For each sigma, noise multiplier and sampling, the local learning rate is chosen on validation images (half of the
5,000 test images) with one seed. The chosen ones are run with three other seeds and measured on the other half. Beside
them stand the accuracy of the start, of the most common digit, and of the same training without noise.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from fed_digits import Run, digits, majority, outcome, pretrained, size
from fed_grids import Grid, Row, compared, plot, rows_of, show
from support import Spread, console, write_results

THEIR_RATIO = 1.8 * math.sqrt(3.4e6) / 100
PAPER = {  # Table 3, test accuracy in per cent at z = 1.8
    "uniform": {0.0: 82.05, 0.5: 84.17, 1.0: 84.40, 1.5: 83.51},
    "poisson": {0.0: 82.01, 0.5: 83.94, 1.0: 83.85, 1.5: 83.74},
}


TEMPLATE = Run("poisson", 0.0, 0.0, 0.1)
PRESETS = {
    "standard": Grid(
        TEMPLATE,
        (("poisson", 1.8, (0.0, 0.5, 1.0)), ("poisson", 4.0, (0.0, 1.0)), ("uniform", 1.8, (0.0, 1.0))),
        (0.1, 0.3),
        (1, 2, 3),
    ),
    "quick": Grid(
        replace(TEMPLATE, n=400, n_clients=40, rounds=2, pretraining=200),
        (("poisson", 1.8, (0.0, 1.0)), ("uniform", 1.8, (0.0, 1.0))),
        (0.1,),
        (1,),
    ),
}


def with_paper(row: Row) -> Row:
    """Return a row with the accuracy of the paper, if it has the same noise multiplier."""
    return {**row, "paper": PAPER[row["sampling"]].get(row["sigma"]) if row["noise_multiplier"] == 1.8 else None}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images, for tests")
    preset = "quick" if parser.parse_args(arguments).quick else "standard"
    grid = PRESETS[preset]
    begin = time.perf_counter()
    torch.set_num_threads(1)
    plain = compared(grid, ("poisson", 0.0, 0.0), outcome)
    rows = [with_paper(row) for row in rows_of(grid, outcome)]
    show("A CNN on SVHN, 2,000 clients", rows)
    data = digits(grid.template.n)
    results = {
        "preset": preset,
        "start": data.test(pretrained(grid.template.pretraining)),
        "majority": majority(data),
        "without_noise": plain,
        "noise_to_clip": 1.8 * math.sqrt(size(grid.template.pretraining)) / (grid.template.n_clients / 20),
        "noise_to_clip_of_the_paper": THEIR_RATIO,
        "rows": rows,
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(
        f"Start {results['start']:.1f} %, most common digit {results['majority']:.1f} %, without noise "
        f"{Spread(*plain['test'], len(grid.seeds)).show(2)} %; noise on a mean update over the clip "
        f"{results['noise_to_clip']:.1f} at z = 1.8 (paper {THEIR_RATIO:.0f})"
    )
    name = "fed_smoothing" + ("" if preset == "standard" else f"_{preset}")
    write_results(name, results)
    plot(rows, name)
    return results


if __name__ == "__main__":
    main()
