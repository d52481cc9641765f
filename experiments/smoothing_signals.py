"""Smoothing of a noisy sine and of a noisy descent: DP-LSSGD, Figure 2; DP-Fed-LS, Figures 1 and F.9.

python experiments/smoothing_signals.py [--quick]

- Figure 2 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in Privacy-Preserving ERM": one period of
  a sine at 100 points with noise 0.1, smoothed with sigma 10, and sin(x) sin(y) on 100 x 100 points with noise 0.2,
  read row by row and smoothed with sigma 100.
- Figure 1 of "Differentially Private Federated Learning with Laplacian Smoothing": a sine at 500 points of [0, 30],
  and the share of the mean squared error that smoothing removes, by noise level and sigma. The expected error is
  computed: bias of the smoothed sine, and beta times the variance of the noise. privet joins the ends of a vector.
  This sine does not end where it begins, so smoothing has a bias there that it would not have on a line.
- Figure F.9 of the same paper: 100 steps of noisy gradient descent on two weights, with and without smoothing. The
  paper does not state its two distributions: here they are normal around (1, 1) and (-1, -1). The paper's solution (c,
  c) is constant, which is what smoothing keeps. As a control, the same is run with classes around (1, -1) and (-1, 1),
  whose solution (c, -c) is what smoothing damps the most.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import print_table, save_figure, write_results

from privet.denoise import beta, laplacian_smoothing

Floats = NDArray[np.float64]
SIGMAS = (0.5, 1.0, 2.0, 3.0)
LEVELS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
WAVE = np.sin(np.linspace(0, 30, 500))
POINTS, STEPS, STEP_SIZE, STEP_NOISE = 200, 100, 0.1, 0.3


# ------------------------------------------------------------------------------------------------- noisy signals


def signals() -> dict[str, tuple[Floats, float, float]]:
    """Return the two signals of DP-LSSGD's Figure 2 with the level of their noise and sigma."""
    period = np.sin(2 * np.pi * np.arange(1, 101) / 100)
    return {"1D": (period, 0.1, 10.0), "2D": (np.outer(period, period), 0.2, 100.0)}


def signal_row(name: str, runs: int) -> dict[str, Any]:
    """Return the mean squared error of a noisy signal and of the smoothed one, over several draws of the noise."""
    signal, level, sigma = signals()[name]
    noisy = signal + level * np.random.default_rng(1).normal(size=(runs, *signal.shape))
    smoothed = np.array([laplacian_smoothing(each, sigma) for each in noisy])
    before, after = (float(np.mean((each - signal) ** 2)) for each in (noisy, smoothed))
    return {"signal": name, "noise": level, "sigma": sigma, "before": before, "after": after, "kept": after / before}


def removed(level: float, sigma: float, wave: Floats = WAVE) -> float:
    """Return the share of the mean squared error that smoothing is expected to remove; negative if it adds some."""
    bias = float(np.mean((laplacian_smoothing(wave, sigma) - wave) ** 2))
    return 1.0 - bias / level**2 - beta(len(wave), sigma)


def break_even(sigma: float, wave: Floats = WAVE) -> float:
    """Return the noise level from which on smoothing reduces the error."""
    bias = float(np.mean((laplacian_smoothing(wave, sigma) - wave) ** 2))
    return float(np.sqrt(bias / (1.0 - beta(len(wave), sigma))))


def closed_wave() -> Floats:
    """Return the same sine over whole periods, so that its ends meet."""
    return np.sin(2 * np.pi * 5 * np.arange(500) / 500)


# ------------------------------------------------------------------------------------------------- noisy descents


def descent(centre: tuple[float, float], sigma: float, seed: int) -> tuple[Floats, float]:
    """Return the path of the weights and the last loss of the classifier sigmoid(W x), with classes at +-centre.

    Class 0 lies around ``centre``, and class 1 opposite.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(POINTS) % 2
    X = np.where(y[:, None], -1.0, 1.0) * np.asarray(centre) + 0.5 * rng.normal(size=(POINTS, 2))
    path = [np.zeros(2)]
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-X @ path[-1]))
        noisy = X.T @ (chances - y) / POINTS + STEP_NOISE * rng.normal(size=2)
        path.append(path[-1] - STEP_SIZE * (laplacian_smoothing(noisy, sigma) if sigma else noisy))
    loss = np.mean(np.logaddexp(0, X @ path[-1]) - y * (X @ path[-1]))
    return np.array(path), float(loss)


def descent_row(solution: str, centre: tuple[float, float], sigma: float, runs: int) -> dict[str, Any]:
    """Return how far paths stray from the line through 0 and the solution, how long they are, and where they end."""
    done = [descent(centre, sigma, seed) for seed in range(runs)]
    across = np.array([centre[1], -centre[0]]) / np.hypot(*centre)
    return {
        "solution": solution,
        "sigma": sigma,
        "stray": float(np.mean([np.abs(path @ across) for path, _ in done])),
        "length": float(np.mean([np.linalg.norm(np.diff(path, axis=0), axis=1).sum() for path, _ in done])),
        "loss": float(np.mean([loss for _, loss in done])),
        "loss_of_zero_weights": float(np.log(2)),
    }


CLASSES = {"(c, c)": (1.0, 1.0), "(c, -c)": (1.0, -1.0)}


# --------------------------------------------------------------------------------------------------------- report


def plot(name: str) -> None:
    """Draw the signals, the error that smoothing removes, and one path of each descent."""
    figure = Figure(figsize=(15, 11), layout="constrained")
    panels = figure.subplots(3, 3)
    rng = np.random.default_rng(0)
    period, level, sigma = signals()["1D"]
    noisy = period + level * rng.normal(size=period.shape)
    for values, label in ((noisy, "noisy"), (laplacian_smoothing(noisy, sigma), "smoothed"), (period, "signal")):
        panels[0, 0].plot(values, label=label)
    panels[0, 0].set_title("DP-LSSGD, Figure 2 (a): sigma 10")
    square, level, sigma = signals()["2D"]
    noisy = square + level * rng.normal(size=square.shape)
    panels[0, 1].imshow(noisy, vmin=-1, vmax=1)
    panels[0, 1].set_title("Figure 2 (c): noisy")
    panels[0, 2].imshow(laplacian_smoothing(noisy, sigma), vmin=-1, vmax=1)
    panels[0, 2].set_title("Figure 2 (d): smoothed, sigma 100")
    noisy = WAVE + 0.1 * rng.normal(size=WAVE.shape)
    for offset, values in enumerate((laplacian_smoothing(noisy, 1.0), noisy, WAVE)):
        panels[1, 0].plot(values + 3 * offset)
    panels[1, 0].set(title="DP-Fed-LS, Figure 1 (a): signal, noisy, smoothed (sigma 1)", yticks=[])
    for panel, wave, title in ((panels[1, 1], WAVE, "Figure 1 (b)"), (panels[1, 2], closed_wave(), "whole periods")):
        for strength in SIGMAS:
            panel.plot(LEVELS, [removed(each, strength, wave) for each in LEVELS], ".-", label=f"sigma {strength:g}")
        panel.axhline(0, color="grey", linewidth=0.8)
        panel.set(xscale="log", ylim=(-1, 1), xlabel="noise", ylabel="share of the error removed", title=title)
    for panel, (solution, centre) in zip(panels[2], CLASSES.items(), strict=False):
        for strength, label in ((0.0, "plain"), (1.0, "smoothed, sigma 1")):
            panel.plot(*descent(centre, strength, seed=0)[0].T, ".-", markersize=3, label=label)
        panel.set(title=f"Figure F.9: solution {solution}", xlabel="first weight", ylabel="second weight")
    panels[2, 2].axis("off")
    for panel in (panels[0, 0], panels[1, 1], panels[2, 0], panels[2, 1]):
        panel.legend(fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few draws, in a second")
    runs = 5 if parser.parse_args(arguments).quick else 200
    name = "smoothing_signals" + ("_quick" if runs == 5 else "")
    figure2 = [signal_row(each, runs) for each in signals()]
    print_table(
        "DP-LSSGD, Figure 2: mean squared error",
        ["signal", "noise", "sigma", "noisy", "smoothed", "share kept"],
        [[row["signal"], *(f"{row[key]:.4g}" for key in list(row)[1:])] for row in figure2],
    )
    figure1 = [
        {
            "sigma": sigma,
            "break_even": break_even(sigma),
            "break_even_of_whole_periods": break_even(sigma, closed_wave()),
        }
        | {f"removed at {level:g}": removed(level, sigma) for level in LEVELS}
        for sigma in SIGMAS
    ]
    print_table(
        "DP-Fed-LS, Figure 1: share of the mean squared error removed, by noise",
        ["sigma", "from noise", "whole periods", *(f"{level:g}" for level in LEVELS)],
        [[f"{value:.3g}" for value in row.values()] for row in figure1],
    )
    paths = [descent_row(*each, sigma, runs) for each in CLASSES.items() for sigma in (0.0, 1.0)]
    print_table(
        "DP-Fed-LS, Figure F.9: 100 noisy steps on two weights",
        list(paths[0]),
        [[row["solution"], *(f"{row[key]:.4g}" for key in list(row)[1:])] for row in paths],
    )
    results = {"runs": runs, "figure2": figure2, "figure1": figure1, "paths": paths}
    write_results(name, results)
    plot(name)
    return results


if __name__ == "__main__":
    main()
