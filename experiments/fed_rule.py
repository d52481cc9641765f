"""Does a rule from public numbers tell when smoothing helps? All federated comparisons of this folder in one picture.

python experiments/fed_rule.py

It reads the results of fed_logistic.py, fed_smoothing.py, fed_cnn.py and fed_lstm.py: accuracies with and without
Laplacian smoothing (sigma 1) of trainings that differ in nothing else, or only in the local learning rate that was
chosen for each. Two numbers are known before training, for d weights, m clients per round, T rounds, noise multiplier z
and clipping norm C:

- the norm of the noise on a mean update over the clip, z sqrt(d) / m: the signal of a round is at most the clip;
- the noise that a weight accumulates over all rounds, z C sqrt(T) / m.

A third is known only from trainings, for instance on public data: the share of what training without noise gains over
the start that is lost through noise, without smoothing. For logistic regression, training without noise is run here.

For each of them, the best threshold of all is sought: the one above which most comparisons have a gain and below which
most have a loss. Comparisons whose gain is within two standard errors of zero do not count.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import fed_cnn
import fed_lstm
import fed_smoothing
import support
from fed_data import mnist_pixels, small_cnn, softmax_regression
from fed_grids import gain
from fed_logistic import PRESETS, theirs
from fed_runs import Setting, Task, train
from matplotlib.figure import Figure
from support import console, print_table, resumed, save_figure, write_results
from torch import nn

FULL = PRESETS["full"]

RULES = {
    "noise_to_clip": "noise on a mean update / clip: z sqrt(d) / m",
    "accumulated": "noise that a weight accumulates: z C sqrt(T) / m",
    "lost": "share of the learning that noise destroys without smoothing",
}


@dataclass(frozen=True)
class Comparison:
    """What smoothing gains in one setting, in points of accuracy, and what is known before training."""

    task: str
    setting: str
    noise_to_clip: float
    accumulated: float
    lost: float
    gain: float
    error: float
    runs: int

    @property
    def is_clear(self) -> bool:
        """Whether the gain or loss exceeds two standard errors."""
        return abs(self.gain) > 2 * self.error


@dataclass(frozen=True)
class Sizes:
    """Weights, clients per round, rounds and clipping norm of a task."""

    weights: int
    clients: int
    rounds: int
    clip: float

    def numbers(self, multiplier: float, clip: float | None = None) -> dict[str, float]:
        """Return both numbers for a noise multiplier."""
        spread = multiplier * (clip or self.clip) * math.sqrt(self.rounds) / self.clients
        return {"noise_to_clip": multiplier * math.sqrt(self.weights) / self.clients, "accumulated": spread}


def sizes(model: nn.Module, setting: Setting) -> Sizes:
    """Return the sizes of a network and a setting."""
    weights = sum(each.numel() for each in model.parameters())
    return Sizes(weights, setting.clients_per_round, setting.rounds, setting.clip_norm)


# ---------------------------------------------------------------------------------------------------------- comparisons


def read(name: str) -> dict[str, Any]:
    """Return a result file."""
    found: dict[str, Any] = json.loads((support.RESULTS / f"{name}.json").read_text())
    return found


def share_lost(private: Sequence[float], without_noise: float, start: float) -> float:
    """Return the share of what training without noise gains over the start that private training does not gain."""
    return (without_noise - sum(private) / len(private)) / (without_noise - start)


def logistic() -> list[Comparison]:
    """Return the comparisons of logistic regression, under the settings and the noise of the paper."""
    rows = [row for row in read("fed_logistic")["rows"] if row["part"] == "theorem"]
    plain = {(row["sampling"], row["budget"]): row["accuracies"] for row in rows if row["sigma"] == 0}
    found = []
    for row in rows:
        if row["sigma"] == 1:
            sampling, without = row["sampling"], plain[row["sampling"], row["budget"]]
            mean, error = gain(row["accuracies"], without)
            found.append(
                Comparison(
                    "logistic regression",
                    f"{sampling}, epsilon {row['budget']:g}",
                    **sizes(softmax_regression(), theirs(sampling, 6.0, 0.0, FULL)).numbers(row["noise_multiplier"]),
                    lost=share_lost(without, **logistic_without_noise(sampling)),
                    gain=mean,
                    error=error,
                    runs=len(without),
                )
            )
    return found


def logistic_without_noise(sampling: str) -> dict[str, float]:
    """Return the accuracies of logistic regression without noise, and of its zero weights, in per cent."""

    def outcome() -> dict[str, float]:
        data = mnist_pixels()
        task = Task(softmax_regression, data.clients, data.test)
        setting = replace(theirs(sampling, 6.0, 0.0, FULL), epsilon=None, is_by_theorem=False, noise_multiplier=0.0)
        return {"without_noise": train(task, setting, 1).accuracy, "start": data.test(softmax_regression())}

    return resumed(("logistic regression without noise", sampling), outcome)


def of_row(task: str, setting: str, row: dict[str, Any], lost: float, numbers: dict[str, float]) -> Comparison:
    """Return the comparison of a row that has a gain."""
    return Comparison(
        task, setting, **numbers, lost=lost, gain=row["gain"][0], error=row["gain"][1], runs=len(row["tests"])
    )


def in_grid(task: str, name: str, known: Sizes, part: str = "rows", clip: float | None = None) -> list[Comparison]:
    """Return the comparisons of a result file of a grid (fed_grids.py)."""
    results = read(name)
    rows = results[part]
    plain = {(row["sampling"], row["noise_multiplier"]): row["tests"] for row in rows if row["sigma"] == 0}
    found = []
    for row in rows:
        if row["sigma"] == 1:
            sampling, z = row["sampling"], row["noise_multiplier"]
            lost = share_lost(plain[sampling, z], results["without_noise"]["test"][0], results["start"])
            named = f"{sampling}, z = {z:g}" + ("" if clip is None else f", clip {clip:g}")
            found.append(of_row(task, named, row, lost, known.numbers(z, clip)))
    return found


def cnn() -> list[Comparison]:
    """Return the comparisons of the CNN at high noise, each once."""
    results, known = read("fed_cnn"), sizes(small_cnn(), fed_cnn.BASE.setting)
    plain = {(row["table"], row["varied"]): row["tests"] for row in results["rows"] if row["sigma"] == 0}
    found = {}
    for row in results["rows"]:
        key = (row["table"], row["varied"])
        if row["sigma"] == 1 and key in plain:
            clip = float(row["varied"].split()[1]) if row["table"] == "Table H.8" else None
            lost = share_lost(plain[key], results["without_noise"]["test"][0], results["start"])
            numbers = known.numbers(row["noise_multiplier"], clip)
            found[tuple(row["tests"])] = of_row("CNN", ", ".join(key), row, lost, numbers)  # the base is in many tables
    return list(found.values())


def controls() -> list[dict[str, Any]]:
    """Return accuracies in per cent without smoothing, with sigma 1, and with a smaller global step instead."""
    found = []
    for name, base in (("fed_cnn", {"table": "Table H.11", "rate": 0.1}), ("fed_lstm", {"sampling": "poisson"})):
        results = read(name)
        rows = [row for row in results["rows"] if base.items() <= row.items()]
        tests = {(row["noise_multiplier"], row["sigma"]): row["test"][0] for row in rows}
        steps = results.get("controls", [row for row in results["rows"] if row.get("table") == "control"])
        for row in steps:
            z = row["noise_multiplier"]
            told = {"plain": tests[z, 0.0], "smoothed": tests[z, 1.0], "small_step": row["test"][0]}
            found.append({"experiment": name, "noise_multiplier": z, **told})
    return found


# ----------------------------------------------------------------------------------------------------------------- rule


def threshold(found: Sequence[Comparison], name: str) -> tuple[float, int]:
    """Return the threshold of a number that predicts the sign of most clear gains, and how many it predicts."""
    clear = [each for each in found if each.is_clear]
    values = sorted({getattr(each, name) for each in clear})
    between = [(low + high) / 2 for low, high in pairwise(values)]

    def right(candidate: float) -> int:
        return sum((getattr(each, name) > candidate) == (each.gain > 0) for each in clear)

    best = max([values[0] - 1, *between, values[-1] + 1], key=right)
    return best, right(best)


def plot(found: Sequence[Comparison], name: str) -> None:
    """Draw the gain of smoothing over both numbers."""
    figure = Figure(figsize=(16, 4.2), layout="constrained")
    for panel, (rule, label) in zip(figure.subplots(1, len(RULES)), RULES.items(), strict=True):
        for task in dict.fromkeys(each.task for each in found):
            mine = [each for each in found if each.task == task]
            panel.errorbar(
                [getattr(each, rule) for each in mine],
                [each.gain for each in mine],
                yerr=[2 * each.error for each in mine],
                fmt="o",
                capsize=2,
                label=task,
            )
        panel.axhline(0, color="grey", linewidth=0.8)
        panel.set(xlabel=label, ylabel="gain of smoothing, points (2 standard errors)")
        panel.set_xscale("linear" if rule == "lost" else "log")
        panel.legend(fontsize=8)
    save_figure(figure, name)


def main() -> dict[str, Any]:
    """Collect the comparisons, print and write them with the best thresholds, and draw them."""
    template = fed_lstm.TEMPLATE
    lstm = Sizes(read("fed_lstm")["weights"], template.per_round, template.rounds, template.clip_norm)
    found = [
        *logistic(),
        *in_grid("CNN, 200 rounds", "fed_smoothing", sizes(small_cnn(), fed_smoothing.TEMPLATE.setting)),
        *cnn(),
        *in_grid("LSTM", "fed_lstm", lstm),
        *in_grid("LSTM", "fed_lstm", lstm, "small_clip", fed_lstm.PRESETS["standard"].small_clip),
    ]
    print_table(
        "Gain of smoothing (sigma 1)",
        ["task", "setting", "z sqrt(d) / m", "z C sqrt(T) / m", "lost, %", "gain", "standard error"],
        [
            [
                each.task,
                each.setting,
                f"{each.noise_to_clip:.1f}",
                f"{each.accumulated:.3f}",
                f"{100 * each.lost:.0f}",
                f"{each.gain:+.2f}",
                f"{each.error:.2f}",
            ]
            for each in found
        ],
    )
    rules = {name: dict(zip(("threshold", "right"), threshold(found, name), strict=True)) for name in RULES}
    results = {
        "clear": sum(each.is_clear for each in found),
        "rules": rules,
        "largest_loss": -min(each.gain for each in found),
        "controls": controls(),
        "comparisons": [{**asdict(each), "is_clear": each.is_clear} for each in found],
    }
    for name, label in RULES.items():
        best = rules[name]
        console.print(
            f"{label} > {best['threshold']:.3g} predicts {best['right']} of {results['clear']} signs", markup=False
        )
    write_results("fed_rule", results)
    plot(found, "fed_rule")
    return results


if __name__ == "__main__":
    main()
