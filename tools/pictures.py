"""Draws the pictures of docs/accounting.md from privet itself, into docs/images.

    python tools/pictures.py           # draws all of them
    python tools/pictures.py --check   # ends with exit code 1 if one of them is not what privet computes

Numbers are computed by the functions that a guarantee uses. Texts remain texts in the files, which keeps them small.
"""

import argparse
import io
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from scipy.stats import norm

from privet.plans import Descent, FixedOrder, FullBatch, GradientPlan, Poisson
from privet.privacy import Adjacency, Budget, compose, gaussian_epsilon, gdp_mu
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.events import PoissonGaussian

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
DELTA = 1e-5
COLOURS = ("#0b5cad", "#c2410c", "#15803d", "#7e22ce")
STYLE = {
    "figure.figsize": (6.4, 3.6),
    "svg.fonttype": "none",
    "svg.hashsalt": "privet",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
}
TOLERANCE = 0.2  # of a coordinate, in points: what two machines may differ by


def trade_off(axes: Any) -> None:
    """Draw what an attacker can reach: detections against false alarms, for Gaussian noise that meets a budget."""
    false_alarms = np.linspace(0, 1, 201)
    for target in (0.1, 0.5, 1.0, 2.0):
        mu = gdp_mu(Budget(target, DELTA))
        axes.plot(false_alarms, norm.cdf(norm.ppf(false_alarms) + mu), label=f"epsilon {target:g}")
    axes.plot([0, 1], [0, 1], color="grey", linestyle="dotted", label="guessing")
    axes.set(xlabel="share of false alarms", ylabel="largest share of detections")
    axes.legend(loc="lower right")


def composition(axes: Any) -> None:
    """Draw the total epsilon of many releases: added up, and composed from the events."""
    one = GradientPlan.for_budget(Budget(0.1, DELTA), sampler=FullBatch(), steps=1, clip_norm=1.0).guarantee()
    counts = [1, 2, 4, 8, 16, 32, 64, 100]
    axes.plot(counts, [count * one.epsilon for count in counts], label="sum of the epsilons")
    axes.plot(counts, [compose([one] * count, DELTA).epsilon for count in counts], label="composed by privet")
    axes.set(xlabel="releases, each with epsilon 0.1 at delta 1e-5", ylabel="total epsilon at delta 1e-5")
    axes.legend()


def sampling(axes: Any) -> None:
    """Draw the epsilon of training with random batches, by the share of the records in a batch."""
    rates, steps, noise = np.geomspace(0.001, 1, 13), 500, 4.0
    sampled = [epsilon(PoissonGaussian(noise, float(rate), steps), Adjacency.ADD_OR_REMOVE, DELTA) for rate in rates]
    axes.plot(rates, sampled, label="Poisson batches")
    every = gaussian_epsilon(math.sqrt(steps), noise, DELTA)
    axes.axhline(every, color=COLOURS[1], label="the same noise without sampling")
    axes.set(xscale="log", yscale="log", xlabel="sampling rate", ylabel=f"epsilon of {steps} steps at delta 1e-5")
    axes.legend(loc="lower right")


def analyses(axes: Any) -> None:
    """Draw the epsilon that two analyses certify for the same run."""
    counts = [100, 300, 1000, 3000, 10_000]
    for name, text in (("rdp", "Renyi divergences"), ("tightest", "loss distribution (privet's default)")):
        found = [
            epsilon(PoissonGaussian(1.0, 0.01, steps), Adjacency.ADD_OR_REMOVE, DELTA, analysis=name)
            for steps in counts
        ]
        axes.plot(counts, found, label=text)
    axes.set(xscale="log", xlabel="steps (sampling rate 0.01, noise multiplier 1)", ylabel="epsilon at delta 1e-5")
    axes.legend()


def iteration(axes: Any) -> None:
    """Draw the epsilon of each record if only the last iterate of ten passes is released."""
    n, passes, noise = 1000, 10, 4.0
    descent = Descent(step_size=1.0, smoothness=1.0)
    last = GradientPlan(FixedOrder(n, passes), None, 1.0, noise, release="last", descent=descent)
    records = last.guarantee(DELTA).per_record
    assert records is not None
    all_steps = GradientPlan(FixedOrder(n, passes), None, 1.0, noise).guarantee(DELTA).epsilon
    places = np.arange(1, n + 1, 9)
    axes.plot(places, [records[int(place) - 1] for place in places], label="only the last iterate is released")
    axes.axhline(all_steps, color=COLOURS[1], label="all iterates are released")
    axes.set(yscale="log", xlabel="place of the record in the order", ylabel="epsilon of the record at delta 1e-5")
    axes.legend(loc="center left")


def poisson_or_full(axes: Any) -> None:
    """Draw the noise of a mean gradient that a budget needs, by the number of passes, with and without sampling."""
    n, batch, passes = 50_000, 500, [1, 2, 5, 10, 20, 50]
    fields = {"clip_norm": 1.0, "adjacency": Adjacency.ADD_OR_REMOVE, "public_n": n}
    budget = Budget(1.0, DELTA)
    small = [
        GradientPlan.for_budget(budget, sampler=Poisson(batch / n), steps=count * n // batch, **fields)
        for count in passes
    ]
    full = [GradientPlan.for_budget(budget, sampler=FullBatch(), steps=count, **fields) for count in passes]
    axes.plot(passes, [plan.noise_std / batch for plan in small], label="Poisson batches of 500: 100 steps per pass")
    axes.plot(passes, [plan.noise_std / n for plan in full], label="full batches: 1 step per pass")
    axes.set(xscale="log", yscale="log", xlabel="passes over 50,000 records", ylabel="noise of a step's mean, in clips")
    axes.legend()


PICTURES: dict[str, Callable[[Any], None]] = {
    "trade_off": trade_off,
    "composition": composition,
    "sampling": sampling,
    "analyses": analyses,
    "iteration": iteration,
    "batches": poisson_or_full,
}


def drawn(name: str) -> str:
    """Return a picture as SVG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    with matplotlib.rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes = figure.subplots()
        PICTURES[name](axes)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,g}")
            axis.set_minor_formatter(NullFormatter())
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return re.sub(r"[ \t]+$", "", text.getvalue(), flags=re.M)


def differences(old: str, new: str) -> bool:
    """Say whether two pictures differ by more than rounding: in their texts, or in a coordinate."""
    number = r"-?\d+\.\d+"
    if re.sub(number, "#", old) != re.sub(number, "#", new):
        return True
    pairs = zip(re.findall(number, old), re.findall(number, new), strict=True)
    return any(abs(float(before) - float(after)) > TOLERANCE for before, after in pairs)


def outdated() -> list[str]:
    """Return the names of the pictures that are missing or are not what privet computes."""
    files = {name: FOLDER / f"{name}.svg" for name in PICTURES}
    return [
        name for name, file in files.items() if not file.exists() or differences(file.read_text("utf-8"), drawn(name))
    ]


def main() -> None:
    """Draw the pictures, or check them."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/accounting.md from privet itself.")
    parser.add_argument("--check", action="store_true", help="Only check that the pictures are current.")
    if parser.parse_args().check:
        sys.exit(f"Out of date: {', '.join(found)}. Run: python tools/pictures.py" if (found := outdated()) else 0)
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
