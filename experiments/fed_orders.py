"""Figures G.10 and G.11 of "Differentially Private Federated Learning with Laplacian Smoothing": orders, projections.

python experiments/fed_orders.py [--full | --quick]

The mean update of the first convolution, of the same runs without privacy as in fed_frequency.py.

- Figure G.10: its spectrum, with the weights flattened in four orders of output channels (O), input channels (I),
  height (H) and width (W), and in PyTorch's order with the output channels permuted four times. As a control, which
  the paper does not have, all weights are permuted: if the spectrum were a property of the numbers and not of their
  neighbourhood, this would not change it.
- Figure G.11: its projections on the eigenvectors of the Laplacian of a cycle. The paper shows 100 eigenvectors "with
  the largest eigenvalues". Those of the smoothing operator with the largest eigenvalues are the smoothest vectors,
  which is what the text is about; those of the Laplacian itself would be the roughest ones. Both are shown.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from fed_digits import digits, pretrained
from fed_frequency import PRESETS, Preset, Spectrum, banded, magnitudes_of
from fed_report import options, result_name
from fed_runs import Setting, Task, without_privacy
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import console, print_table, save_figure, write_results

Floats = NDArray[np.float64]
LAYER = "0.weight"
AXES = {"O": 0, "I": 1, "H": 2, "W": 3}
ORDERS = ("OIHW", "OIWH", "IOHW", "HWOI")
SHUFFLES = 4
FEW = 100  # eigenvectors, as in the paper


def updates(preset: Preset) -> dict[int, Floats]:
    """Return the mean update of the first convolution in the rounds of the preset."""
    svhn = digits(preset.n, preset.side)
    setting = Setting(preset.n_clients, preset.clients_per_round, max(preset.rounds), 1.0, preset.local)
    task = Task(lambda: pretrained(preset.pretraining, preset.network, preset.side), svhn.clients, svhn.test)
    rounds = without_privacy(task, setting, seed=1, rounds=max(preset.rounds))
    return {number: np.asarray(update[LAYER], np.float64) for number, update, _ in rounds if number in preset.rounds}


def arrangements(layer: Floats) -> dict[str, Floats]:
    """Return the weights in every arrangement of Figure G.10, and in the control."""
    found = {order: layer.transpose([AXES[letter] for letter in order]) for order in ORDERS}
    rng = np.random.default_rng(0)
    for number in range(1, SHUFFLES + 1):
        found[f"channels permuted, {number}"] = layer[rng.permutation(len(layer))]
    found["all weights permuted"] = rng.permutation(layer.ravel())
    return found


def spectrum_row(name: str, number: int, layer: Floats) -> dict[str, Any]:
    """Return the share of the energy at low frequencies and the slope of the spectrum."""
    spectrum = Spectrum("CNN", LAYER, number, magnitudes_of(layer))
    return {"arrangement": name, "round": number, "low_share": spectrum.low_share, "slope": spectrum.slope}


def projections(layer: Floats) -> Floats:
    """Return absolute projections on the eigenvectors of a cycle's Laplacian, from the smoothest to the roughest."""
    flat = layer.ravel()
    transformed = np.fft.rfft(flat, norm="ortho")
    paired = np.sqrt(2) * np.stack([transformed.real, transformed.imag], axis=1)  # a cosine and a sine per frequency
    paired[0] /= np.sqrt(2)
    if len(flat) % 2 == 0:
        paired[-1] /= np.sqrt(2)
    return np.abs(np.delete(paired.ravel(), [1] if len(flat) % 2 else [1, 2 * len(transformed) - 1]))


def projection_row(number: int, layer: Floats) -> dict[str, Any]:
    """Return the shares of the energy on the smoothest and on the roughest eigenvectors."""
    energy = projections(layer) ** 2
    few = min(FEW, len(energy) // 2)
    return {
        "round": number,
        "eigenvectors": few,
        "smoothest": float(energy[:few].sum() / energy.sum()),
        "roughest": float(energy[-few:].sum() / energy.sum()),
        "of_noise": few / len(energy),
    }


def plot(layers: dict[int, Floats], name: str) -> None:
    """Draw the spectra of the last round by arrangement, and the projections by round."""
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    orders, shuffled, projected = figure.subplots(1, 3)
    for label, layer in arrangements(layers[max(layers)]).items():
        panel = orders if label in ORDERS else shuffled
        panel.loglog(*banded(magnitudes_of(layer), 20), "k:" if label.startswith("all") else "-", label=label)
    orders.set(title="Figure G.10 (a-d): orders", xlabel="frequency", ylabel="magnitude")
    shuffled.set(title="Figure G.10 (e-h): permutations", xlabel="frequency")
    for number, layer in layers.items():
        found = projections(layer)[:FEW]
        projected.plot(found / np.linalg.norm(layer), linewidth=0.8, label=f"round {number}")
    projected.set(title="Figure G.11: on the smoothest eigenvectors", xlabel="eigenvector", ylabel="projection")
    for panel in (orders, shuffled, projected):
        panel.legend(fontsize=7)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = PRESETS[chosen.configuration]
    begin = time.perf_counter()
    layers = updates(preset)
    console.print(f"Configuration {chosen.configuration}: {preset.network.__name__}, {preset.n_clients} clients.")
    last = max(layers)
    spectra = [spectrum_row(label, last, layer) for label, layer in arrangements(layers[last]).items()]
    projected = [projection_row(number, layer) for number, layer in layers.items()]
    print_table(
        f"Figure G.10: spectrum of the first convolution, round {last}",
        ["arrangement", "lowest tenth, % of energy", "slope"],
        [[row["arrangement"], f"{100 * row['low_share']:.1f}", f"{row['slope']:.2f}"] for row in spectra],
    )
    print_table(
        "Figure G.11: % of the energy on some eigenvectors",
        ["round", "eigenvectors", "smoothest", "roughest", "expected of noise"],
        [
            [str(row["round"]), str(row["eigenvectors"])]
            + [f"{100 * row[key]:.1f}" for key in ("smoothest", "roughest", "of_noise")]
            for row in projected
        ],
    )
    name = result_name("fed_orders", chosen.configuration)
    results = {
        "configuration": chosen.configuration,
        "weights": layers[last].size,
        "seconds": round(time.perf_counter() - begin),
        "spectra": spectra,
        "projections": projected,
    }
    write_results(name, results)
    plot(layers, name)
    return results


if __name__ == "__main__":
    main()
