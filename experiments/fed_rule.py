"""Does a rule from public numbers tell when smoothing helps? All federated comparisons of this folder in one picture.

python experiments/fed_rule.py

It reads the results of fed_logistic.py, fed_smoothing.py, fed_cnn.py and fed_lstm.py: accuracies with and without
Laplacian smoothing (sigma 1) of trainings that differ in nothing else, or only in the local learning rate that was
chosen for each. Two numbers are known before training, for d weights, m clients per round, T rounds, noise multiplier z
and clipping norm C:

- the norm of the noise on a mean update over the clip, z sqrt(d) / m: the signal of a round is at most the clip;
- the noise that a weight accumulates over all rounds, z C sqrt(T) / m.

For each of them, the best threshold of all is sought: the one above which most comparisons have a gain and below which
most have none. Comparisons whose gain is within two standard errors of zero do not count.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import support
from matplotlib.figure import Figure
from support import console, print_table, save_figure, write_results

RULES = {
    "noise_to_clip": "noise on a mean update / clip: z sqrt(d) / m",
    "accumulated": "noise that a weight accumulates: z C sqrt(T) / m",
}


@dataclass(frozen=True)
class Comparison:
    """What smoothing gains in one setting, in points of accuracy, and what is known before training."""

    task: str
    setting: str
    noise_to_clip: float
    accumulated: float
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
    clients: float
    rounds: int
    clip: float

    def numbers(self, multiplier: float, clip: float | None = None) -> dict[str, float]:
        """Return both numbers for a noise multiplier."""
        spread = multiplier * (clip or self.clip) * math.sqrt(self.rounds) / self.clients
        return {"noise_to_clip": multiplier * math.sqrt(self.weights) / self.clients, "accumulated": spread}


LOGISTIC = {"uniform": Sizes(7_850, 50, 30, 0.4), "poisson": Sizes(7_850, 25, 30, 0.4)}
LONG_CNN = Sizes(22_682, 100, 200, 0.3)
CNN = Sizes(22_682, 100, 100, 0.3)
LSTM = Sizes(8_364, 50, 80, 2.0)


# ---------------------------------------------------------------------------------------------------------- comparisons


def read(name: str) -> dict[str, Any]:
    """Return a result file."""
    found: dict[str, Any] = json.loads((support.RESULTS / f"{name}.json").read_text())
    return found


def logistic() -> list[Comparison]:
    """Return the comparisons of logistic regression, under the settings and the noise of the paper."""
    rows = [row for row in read("fed_logistic")["rows"] if row["part"] == "theorem"]
    plain = {(row["sampling"], row["budget"]): row["accuracies"] for row in rows if row["sigma"] == 0}
    found = []
    for row in rows:
        if row["sigma"] == 1:
            gains = [a - b for a, b in zip(row["accuracies"], plain[row["sampling"], row["budget"]], strict=True)]
            spread = support.Spread.of(gains)
            found.append(
                Comparison(
                    "logistic regression",
                    f"{row['sampling']}, epsilon {row['budget']:g}",
                    **LOGISTIC[row["sampling"]].numbers(row["noise_multiplier"]),
                    gain=spread.mean,
                    error=spread.std / math.sqrt(spread.runs),
                    runs=spread.runs,
                )
            )
    return found


def in_rows(task: str, name: str, sizes: Sizes) -> list[Comparison]:
    """Return the comparisons of a result file of a grid (fed_grids.py)."""
    return [
        Comparison(
            task,
            f"{row['sampling']}, z = {row['noise_multiplier']:g}",
            **sizes.numbers(row["noise_multiplier"]),
            gain=row["gain"][0],
            error=row["gain"][1],
            runs=len(row["tests"]),
        )
        for row in read(name)["rows"]
        if row["sigma"] == 1
    ]


def cnn() -> list[Comparison]:
    """Return the comparisons of the CNN at high noise, each once."""
    found = {}
    for row in read("fed_cnn")["rows"]:
        if row["sigma"] == 1 and row["table"] != "Table 5":
            clip = float(row["varied"].split()[1]) if row["table"] == "Table H.8" else None
            key = (row["noise_multiplier"], row["rate"], *row["tests"])  # the base is in several tables
            found[key] = Comparison(
                "CNN",
                f"{row['table']}, {row['varied']}",
                **CNN.numbers(row["noise_multiplier"], clip),
                gain=row["gain"][0],
                error=row["gain"][1],
                runs=len(row["tests"]),
            )
    return list(found.values())


# ----------------------------------------------------------------------------------------------------------------- rule


def threshold(found: Sequence[Comparison], name: str) -> tuple[float, int]:
    """Return the threshold of a number that predicts the sign of most clear gains, and how many it predicts."""
    clear = [each for each in found if each.is_clear]
    values = sorted({getattr(each, name) for each in clear})
    between = [math.sqrt(low * high) for low, high in pairwise(values)]

    def right(candidate: float) -> int:
        return sum((getattr(each, name) > candidate) == (each.gain > 0) for each in clear)

    best = max([values[0] / 2, *between, values[-1] * 2], key=right)
    return best, right(best)


def plot(found: Sequence[Comparison], name: str) -> None:
    """Draw the gain of smoothing over both numbers."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for panel, (rule, label) in zip(figure.subplots(1, 2), RULES.items(), strict=True):
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
        panel.set(xlabel=label, ylabel="gain of smoothing, points (2 standard errors)", xscale="log")
        panel.legend(fontsize=8)
    save_figure(figure, name)


def main() -> dict[str, Any]:
    """Collect the comparisons, print and write them with the best thresholds, and draw them."""
    found = [
        *logistic(),
        *in_rows("CNN, 200 rounds", "fed_smoothing", LONG_CNN),
        *cnn(),
        *in_rows("LSTM", "fed_lstm", LSTM),
    ]
    print_table(
        "Gain of smoothing (sigma 1)",
        ["task", "setting", "z sqrt(d) / m", "z C sqrt(T) / m", "gain", "standard error"],
        [
            [
                each.task,
                each.setting,
                f"{each.noise_to_clip:.1f}",
                f"{each.accumulated:.3f}",
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
