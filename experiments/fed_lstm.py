"""Table 4 of "Differentially Private Federated Learning with Laplacian Smoothing": an LSTM on Shakespeare's plays.

python experiments/fed_lstm.py [--full | --quick] [--runs 2]

A client is a role of a play, and its data is the text of the role, so clients differ in size and style. An example is a
sequence of characters, and the task is to predict the next one. Roles with fewer than 100 examples are left out. The
text of a role is split chronologically into 70 % for training, 10 % for validation and 20 % for test. The edition
differs from the paper's: about 1,100 roles remain where the paper has 975, so delta is slightly smaller.

Noise multipliers 1.4, 1.2, 1.0 and 0.8 correspond to the paper's epsilon of 17.69 to 39.90 (uniform) and 8.23 to 20.92
(Poisson).

--full has the settings of the paper, with the other edition: 80 characters, two LSTM layers with 256 units, all
examples, 100 rounds with a fifth of the roles, 5 epochs with batches of 50, local learning rate 1.47, clipping norm 5
and five seeds. The default preset has 10 characters, one layer with 64 units, at most 100 examples per role, 30 rounds
with a tenth of the roles, clipping norm 1.5, and fewer cells of the table. It does not test whether smoothing helps:
both noise levels give nearly the same accuracy, so noise does not matter in it, and accuracy still rises in the last
round.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from fed_data import CharacterLSTM, Roles, role_texts, roles_of
from fed_report import Shown, finding, keep, options, result_name
from fed_runs import Cell, Setting, Task, best_of, gain, repeated, trained_without_privacy
from matplotlib.figure import Figure
from support import console, save_figure
from torch import Tensor, nn

from privet.federated import LocalTraining, accuracy

MULTIPLIERS = (1.4, 1.2, 1.0, 0.8)
PAPER = {  # test accuracy, %: by sigma, for each noise multiplier
    "uniform": {
        0.0: (38.79, 39.05, 41.48, 43.96),
        0.5: (39.97, 41.44, 43.66, 45.49),
        1.0: (40.36, 41.90, 44.29, 45.35),
        1.5: (40.76, 42.04, 43.68, 44.91),
    },
    "poisson": {
        0.0: (38.58, 39.84, 41.49, 43.78),
        0.5: (39.44, 40.87, 43.70, 45.24),
        1.0: (40.73, 42.20, 44.06, 45.03),
        1.5: (40.60, 42.27, 43.92, 45.06),
    },
}


THEIRS = LocalTraining(1.47, batch_size=50, epochs=5, decay=0.99, weight_decay=4e-5)


@dataclass(frozen=True)
class Preset:
    """Network, sizes, and the cells of the table that are run."""

    length: int = 80
    units: int = 256
    layers: int = 2
    most: int = 10**9
    n_clients: int | None = None
    share: float = 0.2
    rounds: int = 100
    local: LocalTraining = THEIRS
    clip_norm: float = 5.0
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    samplings: tuple[str, ...] = ("uniform", "poisson")
    multipliers: tuple[float, ...] = MULTIPLIERS
    sigmas: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5)
    engine: str = "auto"

    @property
    def in_words(self) -> str:
        """A description of what is run."""
        return (
            f"{self.share:.0%} of them per round, {self.rounds} rounds, at most {self.most:,} examples of "
            f"{self.length} characters each, {self.layers} LSTM layers of {self.units}, local epochs "
            f"{self.local.epochs}, clip {self.clip_norm:g}, {len(self.seeds)} seeds"
        )


PRESETS = {
    "full": Preset(),
    "preset": Preset(
        length=10,
        units=64,
        layers=1,
        most=100,
        share=0.1,
        rounds=30,
        clip_norm=1.5,
        seeds=(1,),
        samplings=("poisson",),
        multipliers=(1.4, 0.8),
        sigmas=(0.0, 1.0),
        engine="sequential",
    ),
    "quick": Preset(
        length=10,
        units=8,
        layers=1,
        most=20,
        n_clients=20,
        rounds=2,
        local=LocalTraining(1.47, batch_size=10, epochs=1),
        seeds=(1,),
        samplings=("poisson",),
        multipliers=(1.0,),
        sigmas=(0.0, 1.0),
        engine="sequential",
    ),
}


def task_of(roles: Roles, preset: Preset) -> Task:
    """Return the roles as a task. The clients do not depend on the seed."""

    def test(model: nn.Module) -> float:
        return 100 * accuracy(*roles.test)(model)

    return Task(
        lambda: CharacterLSTM(roles.n_characters, preset.units, preset.layers),
        lambda _number, _seed: roles.training,
        test,
        engine=preset.engine,
    )


def setting(preset: Preset, roles: Roles, sampling: str, multiplier: float) -> Setting:
    """Return the setting for a noise multiplier, without smoothing."""
    return Setting(
        len(roles),
        max(1, round(preset.share * len(roles))),
        preset.rounds,
        preset.clip_norm,
        preset.local,
        sampling=sampling,
        noise_multiplier=multiplier,
    )


def commonest(parts: tuple[Tensor, Tensor]) -> float:
    """Return the accuracy of always predicting the most common character, in per cent."""
    counts = torch.bincount(parts[1])
    return 100 * float(counts.max() / counts.sum())


def table4(task: Task, roles: Roles, preset: Preset) -> tuple[dict[Any, Cell], list[Shown], list[str]]:
    """Run Table 4."""
    cells: dict[Any, Cell] = {}
    tables, lines = [], []

    def watch(model: nn.Module) -> float:
        return 100 * accuracy(*roles.validation)(model)

    for sampling in preset.samplings:
        for z in preset.multipliers:
            for sigma in preset.sigmas:
                chosen = setting(preset, roles, sampling, z).smoothed(sigma)
                name = f"Table 4, {sampling}, z {z}, sigma {sigma:g}"
                cells[sampling, z, sigma] = repeated(name, task, chosen, preset.seeds, watch)
            best = best_of(cells[sampling, z, sigma] for sigma in preset.sigmas if sigma)
            what = f"Table 4, {sampling}, z {z}: best sigma > 0 above sigma = 0"
            lines.append(finding(what, "yes", gain(best, cells[sampling, z, 0.0])))
        rows = [
            [f"{sigma:g}"]
            + [
                text
                for z in preset.multipliers
                for text in (
                    f"{PAPER[sampling][sigma][MULTIPLIERS.index(z)]:.2f}",
                    cells[sampling, z, sigma].accuracy.show(2),
                )
            ]
            for sigma in preset.sigmas
        ]
        spent = [f"{cells[sampling, z, 0.0].outcomes[0].epsilon:.3g}" for z in preset.multipliers]
        rows.append(["epsilon here", *(text for each in spent for text in ("", each))])
        heads = [text for z in preset.multipliers for text in (f"z {z}: paper", "privet")]
        tables.append(Shown(f"Table 4, {sampling}: test accuracy, %", ["sigma", *heads], rows).print())
    return cells, tables, lines


def plot(cells: dict[Any, Cell], name: str) -> None:
    """Draw validation accuracy by round, as in figure 5."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    panel = figure.subplots()
    for (sampling, z, sigma), cell in cells.items():
        label = f"{sampling}, z {z}, sigma {sigma:g}"
        panel.plot(range(1, len(cell.curve) + 1), cell.curve, "-" if sigma else ":", label=label)
    panel.set(title="LSTM on the plays, by role", xlabel="round", ylabel="validation accuracy, %")
    panel.legend(fontsize=7)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = PRESETS[chosen.configuration]
    if chosen.runs is not None:
        preset = replace(preset, seeds=tuple(range(1, chosen.runs + 1)))
    begin = time.perf_counter()
    roles = roles_of(role_texts(), preset.length, 100, preset.most, preset.n_clients)
    ran = f"Configuration {chosen.configuration}: {len(roles)} roles, {preset.in_words}"
    console.print(ran)
    task = task_of(roles, preset)
    cells, tables, lines = table4(task, roles, preset)
    plain = setting(preset, roles, preset.samplings[0], preset.multipliers[0])
    reference = task.test(trained_without_privacy(task, plain, 1))
    lines.append(finding("without noise and clipping, one run", "not stated", f"{reference:.2f} %"))
    lines.append(finding("always the most common character", "not stated", f"{commonest(roles.test):.2f} %"))
    name = result_name("fed_lstm", chosen.configuration)
    results = keep(
        name,
        tables,
        configuration=chosen.configuration,
        ran=ran,
        seconds=round(time.perf_counter() - begin),
        findings=lines,
        rows=[{"cell": list(key), **cell.summary()} for key, cell in cells.items()],
    )
    plot(cells, name)
    return results


if __name__ == "__main__":
    main()
