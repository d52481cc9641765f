"""Figure E.8 of "Differentially Private Federated Learning with Laplacian Smoothing": Theorems 1 and 2 and accountants.

python experiments/fed_closed_forms.py [--quick]

The noise on the sum of updates, divided by the clip, that an epsilon requires: by the theorem (as printed, with the
best split that meets its side conditions), by a moments accountant (Renyi divergences at integer orders and the
conversion epsilon + log(1/delta)/(order - 1), as in the paper), and by privet's accountant. Delta is N^-1.1 for N
clients. Adjacency is replacement of a client for uniform sampling and addition or removal for Poisson sampling. Under
replacement, a moments accountant's noise multiplier is relative to twice the clip; all values here are relative to the
clip.

The paper draws curves, and prints for T = 1000 the lines that fit them: log noise = intercept + slope log epsilon. The
constant between theorem and accountant is the exponential of the difference of the intercepts. The paper's intercept
for the accountant agrees with ours if its multiplier is taken relative to the sensitivity, twice the clip, while the
theorem's noise is relative to the clip: see docs/errata.md (p).
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import RdpAccountant
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import print_table, save_figure, write_results

from privet.federated import client_plan, paper_plan
from privet.privacy import Budget
from privet.privacy.analyses.subsampling_lemmas import SideConditionError

RATE = 0.05
ORDERS = np.arange(2, 65)
NOISES = np.geomspace(0.5, 60, 36)  # relative to the sensitivity
# What the paper prints for panel (c), uniform sampling and T = 1000: slope and intercept. Their constant is 2.77.
PAPER = {"theorem": (-0.80, 3.31), "moments": (-0.73, 2.29)}


@dataclass(frozen=True)
class Setting:
    """A panel: letters for uniform and Poisson sampling, rounds, clients, and the epsilons that are shown."""

    letters: str
    rounds: int
    n_clients: int
    epsilons: tuple[float, ...]

    @property
    def delta(self) -> float:
        """The delta of the paper."""
        return float(self.n_clients**-1.1)


SETTINGS = (
    Setting("ad", 30, 500, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)),
    Setting("be", 200, 2000, (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)),
    Setting("cf", 1000, 2000, (4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 25.0, 30.0)),
)


@cache
def divergences(sampling: str, n_clients: int) -> NDArray[Any]:
    """Return the Renyi divergences of one round, one row per noise and one column per order."""
    rows = []
    for noise in NOISES.tolist():
        gaussian = dpa.GaussianDpEvent(noise)
        if sampling == "uniform":
            event = dpa.SampledWithoutReplacementDpEvent(n_clients, round(RATE * n_clients), gaussian)
            relation = dpa.NeighboringRelation.REPLACE_ONE
        else:
            event = dpa.PoissonSampledDpEvent(RATE, gaussian)
            relation = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
        rows.append(RdpAccountant(ORDERS.tolist(), relation).compose(event).rdp)
    return np.array(rows)


def by_moments(sampling: str, setting: Setting, epsilon: float) -> float:
    """Return the noise of a moments accountant, interpolated between the noises of the grid."""
    spent = setting.rounds * divergences(sampling, setting.n_clients) + math.log(1 / setting.delta) / (ORDERS - 1)
    epsilons = np.minimum.accumulate(spent.min(axis=1))
    log_noise = np.interp(math.log(epsilon), np.log(epsilons[::-1]), np.log(NOISES[::-1]))
    return math.exp(log_noise) * (2 if sampling == "uniform" else 1)


def row(sampling: str, setting: Setting, epsilon: float) -> dict[str, Any]:
    """Return the noise for one epsilon by the theorem (None if its conditions fail), by moments, and by privet."""
    sizes: dict[str, Any] = {
        "n_clients": setting.n_clients,
        "clients_per_round": round(RATE * setting.n_clients),
        "rounds": setting.rounds,
        "clip_norm": 1.0,
        "sampling": sampling,
    }
    budget = Budget(epsilon, setting.delta)
    try:
        theorem: float | None = paper_plan(budget, rounded_order=False, **sizes).noise_multiplier
    except SideConditionError:
        theorem = None
    return {
        "panel": setting.letters[sampling == "poisson"],
        "sampling": sampling,
        "rounds": setting.rounds,
        "n_clients": setting.n_clients,
        "epsilon": epsilon,
        "theorem": theorem,
        "moments": by_moments(sampling, setting, epsilon),
        "privet": client_plan(budget, **sizes).noise_multiplier,
    }


def line(rows: Sequence[dict[str, Any]], key: str) -> dict[str, float]:
    """Return slope and intercept of log noise against log epsilon, over the epsilons that the theorem covers."""
    kept = [(each["epsilon"], each[key]) for each in rows if each["theorem"]]
    slope, intercept = np.polyfit(*np.log(kept).T, 1)
    return {"slope": float(slope), "intercept": float(intercept)}


def constant(lines: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the factor between theorem and moments accountant, and the one that a missing factor of 2 would give."""
    factor = math.exp(lines["theorem"]["intercept"] - lines["moments"]["intercept"])
    return {"both_relative_to_the_clip": factor, "multiplier_relative_to_twice_the_clip": 2 * factor}


def panels(settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """Return the panels: their points, the lines that fit them, and how much more noise a theorem has than privet."""
    found = []
    for sampling in ("uniform", "poisson"):
        for setting in settings:
            rows = [row(sampling, setting, epsilon) for epsilon in setting.epsilons]
            covered = [each for each in rows if each["theorem"]]
            lines = {key: line(rows, key) for key in ("theorem", "moments", "privet")} if len(covered) > 1 else None
            found.append(
                {
                    "panel": rows[0]["panel"],
                    "covered_from": covered[0]["epsilon"] if covered else None,
                    "least_ratio": min((each["theorem"] / each["privet"] for each in covered), default=None),
                    "most_ratio": max((each["theorem"] / each["privet"] for each in covered), default=None),
                    "lines": lines,
                    "constant": constant(lines) if lines else None,
                    "rows": rows,
                }
            )
    return found


def plot(found: Sequence[dict[str, Any]], name: str) -> None:
    """Draw noise against epsilon, uniform sampling above Poisson sampling."""
    figure = Figure(figsize=(15, 8), layout="constrained")
    axes = figure.subplots(2, len(found) // 2, squeeze=False).ravel()
    labels = {"theorem": "paper: theorem", "moments": "moments accountant", "privet": "privet's accountant"}
    for axis, panel in zip(axes, found, strict=True):
        for key, label in labels.items():
            points = [(each["epsilon"], each[key]) for each in panel["rows"] if each[key]]
            axis.loglog(*(np.transpose(points) if points else ([], [])), ".-", label=label)
        first = panel["rows"][0]
        title = f"({first['panel']}) {first['sampling']}, T = {first['rounds']}, N = {first['n_clients']}"
        axis.set(title=title, xlabel="epsilon", ylabel="noise / clip")
        axis.legend(fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Compute, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first setting at three epsilons")
    is_quick = parser.parse_args(arguments).quick
    settings = (Setting("ad", 30, 500, (4.0, 7.0, 9.0)),) if is_quick else SETTINGS
    found = panels(settings)
    lines = [
        [f"({each['panel']}) {each['sampling']}, T = {each['rounds']}", f"{each['epsilon']:g}"]
        + [f"{each[key]:.3f}" if each[key] else "conditions fail" for key in ("theorem", "moments", "privet")]
        for panel in found
        for each in panel["rows"]
    ]
    columns = ["panel", "epsilon", "paper: theorem", "moments accountant", "privet"]
    print_table("Figure E.8: noise divided by the clip", columns, lines)
    name = "fed_closed_forms" + ("_quick" if is_quick else "")
    results = {"paper": PAPER, "panels": found}
    write_results(name, results)
    plot(found, name)
    return results


if __name__ == "__main__":
    main()
