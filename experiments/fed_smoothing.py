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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from fed_data import Examples, mnist_in_colour, small_cnn, svhn_images
from fed_runs import Setting, Task, train
from matplotlib.figure import Figure
from support import Spread, console, print_table, resumed, save_figure, write_results
from torch import Tensor, nn

from privet.federated import LocalTraining

SIDE = 16
TRIAL_SEED = 1000
LOOKS = 20  # points of a curve
THEIR_RATIO = 1.8 * math.sqrt(3.4e6) / 100
PAPER = {  # Table 3, test accuracy in per cent at z = 1.8
    "uniform": {0.0: 82.05, 0.5: 84.17, 1.0: 84.40, 1.5: 83.51},
    "poisson": {0.0: 82.01, 0.5: 83.94, 1.0: 83.85, 1.5: 83.74},
}


@dataclass(frozen=True)
class Run:
    """One training."""

    sampling: str
    multiplier: float
    sigma: float
    rate: float
    seed: int = TRIAL_SEED
    n: int = 20_000
    n_clients: int = 2_000
    rounds: int = 200
    clip_norm: float = 0.3
    pretraining: int = 60_000

    @property
    def setting(self) -> Setting:
        """The setting of the federated training."""
        per_round = self.n_clients // 20
        local = LocalTraining(self.rate, batch_size=10, epochs=2, decay=0.99, weight_decay=4e-5)
        return Setting(
            self.n_clients,
            per_round,
            self.rounds,
            self.clip_norm,
            local,
            sampling=self.sampling,
            noise_multiplier=self.multiplier,
        ).smoothed(self.sigma)


@dataclass(frozen=True)
class Grid:
    """The settings that are compared: sampling, noise multiplier and the values of sigma.

    ``rates`` are the candidates for the local learning rate.
    """

    template: Run
    settings: tuple[tuple[str, float, tuple[float, ...]], ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]


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


# ---------------------------------------------------------------------------------------------------- data and network


def standardised(X: Tensor) -> Tensor:
    """Return images with mean 0 and deviation 1 each."""
    dims = (1, 2, 3)
    return (X - X.mean(dims, keepdim=True)) / X.std(dims, keepdim=True).clamp(min=0.05)


@lru_cache(maxsize=1)
def digits(n: int) -> Examples:
    """Return SVHN with standardised images."""
    data = svhn_images(n, SIDE)
    return replace(
        data,
        X=standardised(data.X),
        X_validation=standardised(data.X_validation),
        X_test=standardised(data.X_test),
    )


def initialise(layer: nn.Module) -> None:
    """Give a layer the initial weights of He and others."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)


@lru_cache(maxsize=1)
def start(n: int) -> dict[str, Tensor]:
    """Return the weights after two passes over ``n`` images of MNIST in colour, without privacy."""
    torch.manual_seed(0)
    model = small_cnn()
    model.apply(initialise)
    X, y = mnist_in_colour(n, SIDE)
    X = standardised(X)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    for _ in range(2):
        for rows in torch.randperm(n).split(64):
            optimizer.zero_grad()
            loss(model(X[rows]), y[rows]).backward()
            optimizer.step()
    return model.state_dict()


def pretrained(n: int) -> nn.Module:
    """Return the network with the weights of :func:`start`."""
    model = small_cnn()
    model.load_state_dict(start(n))
    return model


# ----------------------------------------------------------------------------------------------------------- trainings


def outcome(run: Run) -> dict[str, Any]:
    """Return accuracies in per cent on test and validation images, the latter by round, and the epsilon."""
    data = digits(run.n)
    task = Task(lambda: pretrained(run.pretraining), data.clients, data.test)
    marks = {max(1, run.rounds * look // LOOKS) for look in range(1, LOOKS + 1)}
    done = iter(range(1, run.rounds + 1))

    def watch(model: nn.Module) -> float:
        return data.validate(model) if next(done) in marks else math.nan

    found = train(task, run.setting, run.seed, watch)
    curve = {number: score for number, score in enumerate(found.curve, 1) if number in marks}
    return {
        "test": found.accuracy,
        "rounds": [*curve],
        "validation": [*curve.values()],
        "epsilon": found.epsilon if run.multiplier else None,
        "seconds": found.seconds,
    }


def made(run: Run) -> dict[str, Any]:
    """Return the outcome of a run, which may have finished before, and print it."""
    found = resumed(run, lambda: outcome(run))
    what = f"{run.sampling}, z {run.multiplier:g}, sigma {run.sigma:g}, rate {run.rate:g}, seed {run.seed}"
    console.print(f"{what}: validation {found['validation'][-1]:.1f} %, {found['seconds']:.0f} s", markup=False)
    return found


def compared(grid: Grid, sampling: str, multiplier: float, sigma: float) -> dict[str, Any]:
    """Return the row of a setting: its learning rate, chosen on validation images, and the accuracy of its seeds."""
    runs = [
        replace(grid.template, sampling=sampling, multiplier=multiplier, sigma=sigma, rate=rate) for rate in grid.rates
    ]
    tried = {run.rate: made(run)["validation"][-1] for run in runs}
    best = max(tried, key=tried.__getitem__)
    found = [
        made(replace(grid.template, sampling=sampling, multiplier=multiplier, sigma=sigma, rate=best, seed=seed))
        for seed in grid.seeds
    ]
    spread = Spread.of([each["test"] for each in found])
    return {
        "sampling": sampling,
        "noise_multiplier": multiplier,
        "sigma": sigma,
        "epsilon": found[0]["epsilon"],
        "validation_by_rate": {f"{rate:g}": score for rate, score in tried.items()},
        "rate": best,
        "test": [spread.mean, spread.std],
        "tests": [each["test"] for each in found],
        "rounds": found[0]["rounds"],
        "validation": torch.tensor([each["validation"] for each in found]).mean(0).tolist(),
        "paper": PAPER[sampling].get(sigma) if multiplier == 1.8 else None,
    }


def with_gains(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with what smoothing gains over sigma = 0, with its standard error over seeds."""
    plain = {(row["sampling"], row["noise_multiplier"]): row["tests"] for row in rows if row["sigma"] == 0}
    for row in rows:
        pairs = zip(row["tests"], plain[row["sampling"], row["noise_multiplier"]], strict=True)
        gain = Spread.of([one - other for one, other in pairs])
        row["gain"] = [gain.mean, gain.std / math.sqrt(gain.runs)]
    return rows


def show(rows: list[dict[str, Any]], runs: int) -> None:
    """Print the table."""
    shown = [
        [
            f"{row['sampling']}, z {row['noise_multiplier']:g}",
            "" if row["epsilon"] is None else f"{row['epsilon']:.2f}",
            f"{row['sigma']:g}",
            f"{row['rate']:g}",
            Spread(*row["test"], runs).show(2),
            f"{row['gain'][0]:+.2f} ± {row['gain'][1]:.2f}",
            "" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in rows
    ]
    columns = ["sampling, noise", "epsilon", "sigma", "rate", "test accuracy, %", "gain (standard error)", "(paper)"]
    print_table("A CNN on SVHN, 2,000 clients", columns, shown)


def plot(rows: list[dict[str, Any]], name: str) -> None:
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


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images, for tests")
    preset = "quick" if parser.parse_args(arguments).quick else "standard"
    grid = PRESETS[preset]
    begin = time.perf_counter()
    torch.set_num_threads(1)
    plain = compared(grid, "poisson", 0.0, 0.0)
    rows = with_gains([compared(grid, sampling, z, sigma) for sampling, z, sigmas in grid.settings for sigma in sigmas])
    show(rows, len(grid.seeds))
    data = digits(grid.template.n)
    labels = torch.bincount(data.y_test).double()
    size = sum(weights.numel() for weights in start(grid.template.pretraining).values())
    results = {
        "preset": preset,
        "start": data.test(pretrained(grid.template.pretraining)),
        "majority": 100 * float(labels.max() / labels.sum()),
        "without_noise": plain,
        "noise_to_clip": 1.8 * math.sqrt(size) / (grid.template.n_clients / 20),
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
