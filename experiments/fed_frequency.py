"""Figure 2 of "Differentially Private Federated Learning with Laplacian Smoothing": the spectrum of a mean update.

python experiments/fed_frequency.py [--full | --quick]

This is federated averaging without privacy. After some rounds, the mean of the clients' updates is analysed layer by
layer: its weights are read as one cycle, in PyTorch's order, and Fourier transformed. Laplacian smoothing keeps low
frequencies and damps high ones, so it helps if the signal lies in low frequencies, while noise lies in all of them
equally. The paper shows log-log plots, which fall off at high frequencies. Here two numbers are added, each next to
that of white noise: the share of the energy in the lowest tenth of the frequencies (about 10 % for noise), and the
slope of log magnitude over log frequency (about 0 for noise).

- The CNN of figure 2 on the subset of SVHN, pretrained on MNIST: the first convolution and the first linear layer, in
  rounds 1, 50, 100 and 200 (--full, the paper's network) or 1, 5, 10 and 20 of the small network (the default preset).
- Logistic regression on MNIST, which the paper does not show: rounds 1 and 10 of its settings.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from fed_data import mnist_pixels, paper_cnn, small_cnn, softmax_regression
from fed_digits import digits, pretrained
from fed_report import Shown, finding, keep, options, result_name, yes
from fed_runs import Setting, Task, without_privacy
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import console, save_figure
from torch import nn

from privet.federated import LocalTraining

Floats = NDArray[np.float64]
THEIRS = LocalTraining(0.1, batch_size=64, epochs=10, decay=0.99, weight_decay=4e-5)


@dataclass(frozen=True)
class Preset:
    """Network, sizes, and the rounds that are analysed."""

    network: Callable[[], nn.Module] = paper_cnn
    side: int = 32
    n: int = 20_000
    n_clients: int = 200
    clients_per_round: int = 100
    local: LocalTraining = THEIRS
    rounds: tuple[int, ...] = (1, 50, 100, 200)
    pretraining: int = 60_000
    logistic_clients: int = 1000
    logistic_rounds: tuple[int, ...] = (1, 10)


PRESETS = {
    "full": Preset(),
    "preset": Preset(
        network=small_cnn,
        side=16,
        clients_per_round=50,
        local=LocalTraining(0.1, batch_size=20, epochs=2, decay=0.99, weight_decay=4e-5),
        rounds=(1, 5, 10, 20),
    ),
    "quick": Preset(
        network=small_cnn,
        side=16,
        n=400,
        n_clients=20,
        clients_per_round=4,
        local=LocalTraining(0.1, batch_size=20, epochs=1),
        rounds=(1, 2),
        pretraining=200,
        logistic_rounds=(1,),
    ),
}
LOGISTIC = LocalTraining(0.1, batch_size=10, epochs=5, decay=0.99, weight_decay=4e-5)


# ------------------------------------------------------------------------------------------------------------ spectra


@dataclass(frozen=True)
class Spectrum:
    """Magnitudes of one layer's mean update at the frequencies 1, 2, ..., half its size."""

    task: str
    layer: str
    round: int
    magnitudes: Floats

    @property
    def low_share(self) -> float:
        """Share of the energy in the lowest tenth of the frequencies, without frequency 0."""
        energy = self.magnitudes**2
        return float(energy[: max(1, len(energy) // 10)].sum() / energy.sum())

    @property
    def slope(self) -> float:
        """Slope of log magnitude over log frequency, with equal weight for each octave."""
        frequencies = np.arange(1, len(self.magnitudes) + 1)
        logs = np.log(self.magnitudes + 1e-300)
        return float(np.polyfit(np.log(frequencies), logs, 1, w=frequencies**-0.5)[0])

    def summary(self) -> dict[str, Any]:
        """Return both numbers for the update and for noise."""
        noise = self.of_noise()
        return {
            "task": self.task,
            "layer": self.layer,
            "round": self.round,
            "low_share": self.low_share,
            "slope": self.slope,
            "noise_low_share": noise.low_share,
            "noise_slope": noise.slope,
        }

    def of_noise(self, seed: int = 0) -> "Spectrum":
        """Return the spectrum of white noise of the same length."""
        noise = np.random.default_rng(seed).normal(size=2 * len(self.magnitudes))
        return Spectrum(self.task, self.layer, self.round, magnitudes_of(noise))


def magnitudes_of(layer: NDArray[Any]) -> Floats:
    """Return the magnitudes of a layer's Fourier coefficients, without frequency 0."""
    flat = np.asarray(layer, dtype=np.float64).ravel()
    return np.asarray(np.abs(np.fft.rfft(flat))[1:] / np.sqrt(len(flat)))


def spectra(name: str, task: Task, setting: Setting, rounds: Sequence[int], layers: Sequence[str]) -> list[Spectrum]:
    """Train without privacy, and return the spectra of some layers after some of the rounds."""
    found = []
    for number, update, _ in without_privacy(task, setting, seed=1, rounds=max(rounds)):
        if number in rounds:
            found += [Spectrum(name, layer, number, magnitudes_of(update[layer])) for layer in layers]
    return found


def all_spectra(preset: Preset) -> list[Spectrum]:
    """Return the spectra of the CNN and of logistic regression."""
    svhn = digits(preset.n, preset.side)
    cnn = Setting(preset.n_clients, preset.clients_per_round, max(preset.rounds), 1.0, preset.local)
    task = Task(lambda: pretrained(preset.pretraining, preset.network, preset.side), svhn.clients, svhn.test)
    found = spectra("CNN", task, cnn, preset.rounds, ("0.weight", "7.weight"))
    pixels = mnist_pixels()
    n = preset.logistic_clients
    logistic = Setting(n, n // 20, max(preset.logistic_rounds), 1.0, LOGISTIC)
    task = Task(softmax_regression, pixels.clients, pixels.test)
    return found + spectra("logistic regression", task, logistic, preset.logistic_rounds, ("weight",))


LAYERS = {"0.weight": "first convolution", "7.weight": "first full layer", "weight": "weights"}


# ------------------------------------------------------------------------------------------------------------- report


def table(found: Sequence[Spectrum]) -> Shown:
    """Return both numbers of each spectrum, next to those of noise."""
    rows = []
    for each in found:
        noise = each.of_noise()
        rows.append(
            [
                f"{each.task}, {LAYERS[each.layer]}",
                f"{each.round}",
                f"{len(each.magnitudes)}",
                f"{100 * each.low_share:.1f}",
                f"{100 * noise.low_share:.1f}",
                f"{each.slope:.2f}",
                f"{noise.slope:.2f}",
            ]
        )
    columns = ["mean update of", "round", "frequencies", "lowest tenth, % of energy", "of noise", "slope", "of noise"]
    return Shown("Figure 2: where the energy of a mean update lies", columns, rows)


def findings(found: Sequence[Spectrum]) -> list[str]:
    """Return for each layer a line that says whether its signal lies in low frequencies."""
    lines = []
    for task, layer in dict.fromkeys((each.task, each.layer) for each in found):
        mine = [each for each in found if (each.task, each.layer) == (task, layer)]
        low = all(each.low_share > each.of_noise().low_share for each in mine)
        falls = all(each.slope < each.of_noise().slope for each in mine)
        paper = "yes" if task == "CNN" else "not shown"
        lines.append(finding(f"{task}, {LAYERS[layer]}: more in low frequencies than noise", paper, yes(low)))
        lines.append(finding(f"{task}, {LAYERS[layer]}: magnitudes fall off with the frequency", paper, yes(falls)))
    return lines


def plot(found: Sequence[Spectrum], name: str) -> None:
    """Draw log-log spectra, averaged over bands, with one panel per layer and dotted noise."""
    kinds = list(dict.fromkeys((each.task, each.layer) for each in found))
    figure = Figure(figsize=(4.5 * len(kinds), 3.8), layout="constrained")
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for each in found:
            if (each.task, each.layer) == kind:
                frequencies, levels = banded(each.magnitudes)
                panel.loglog(frequencies, levels, label=f"round {each.round}")
                noise = banded(each.of_noise().magnitudes)[1]
                panel.loglog(frequencies, noise * levels[-1] / noise[-1], ":", color="grey", linewidth=0.8)
        panel.set(title=f"{kind[0]}: {LAYERS[kind[1]]}", xlabel="frequency", ylabel="magnitude")
        panel.legend(fontsize=8)
    figure.suptitle(
        "Figure 2: spectrum of the mean update; dotted: white noise of the same level at the end", fontsize=9
    )
    save_figure(figure, name)


def banded(magnitudes: Floats, bands: int = 40) -> tuple[Floats, Floats]:
    """Return root mean squares over bands of equal width on a logarithmic scale, and their midpoints."""
    edges = np.unique(np.geomspace(1, len(magnitudes) + 1, bands + 1).astype(np.int64))
    levels = [np.sqrt(np.mean(magnitudes[a - 1 : b - 1] ** 2)) for a, b in pairwise(edges)]
    return np.sqrt(edges[:-1] * (edges[1:] - 1.0)), np.array(levels)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = PRESETS[chosen.configuration]
    begin = time.perf_counter()
    ran = (
        f"Configuration {chosen.configuration}: {preset.network.__name__}, {preset.n_clients} clients, "
        f"{preset.clients_per_round} per round, local epochs {preset.local.epochs}, rounds "
        f"{', '.join(map(str, preset.rounds))}; one seed"
    )
    console.print(ran)
    found = all_spectra(preset)
    shown = table(found).print()
    name = result_name("fed_frequency", chosen.configuration)
    results = keep(
        name,
        [shown],
        configuration=chosen.configuration,
        ran=ran,
        seconds=round(time.perf_counter() - begin),
        findings=findings(found),
        rows=[each.summary() for each in found],
    )
    plot(found, name)
    return results


if __name__ == "__main__":
    main()
