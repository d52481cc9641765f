"""Figures 4.1 and 4.4 of "Towards Efficient and Effective Privacy-Preserving Machine Learning": curves, and STORM.

python experiments/dp_srm_curves.py [--quick]

Objective and gradient norm by data passes for DP-GD, DP-AGD, RRPSGD and DP-SRM on a9a (4.1) and ijcnn1 (4.4), as in
dp_srm_table42.py and dp_srm_table43.py, whose step sizes are used. RRPSGD releases one iterate of a run, drawn at
random. Its curve is the whole run from which it draws. STORM (recursive momentum without privacy), with which the paper
compares, makes ten passes with batches of 200; its step size is the best of a grid on the training objective.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dp_srm_table42
import dp_srm_table43
import numpy as np
import support
from dp_srm import DELTA, Dataset, methods, trajectories
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import Split, print_table, save_figure, write_results

from privet.plans import FixedSize, GradientPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem, Release, Run, noisy_gradient_descent

SHOWN = ("DP-GD", "DP-AGD", "RRPSGD", "DP-SRM")
EPSILONS = (0.2, 0.5)
STORM_PASSES, STORM_BATCH, STORM_REFRESH = 10, 200, 0.1
FIGURES = {"Figure 4.1": ("dp_srm_table42", dp_srm_table42), "Figure 4.4": ("dp_srm_table43", dp_srm_table43)}
PAPER_STORM = {"Figure 4.1": 0.3346}  # test loss, as printed in Table 4.2


def whole_random_round(problem: Problem, epsilon: float, step: float, source: NoiseSource) -> Release:
    """Return all iterates from which RRPSGD draws one."""
    batch, rounds = 200, 8 if epsilon < 0.5 else 10
    n = problem.rows.n
    plan = GradientPlan.for_budget(
        Budget(epsilon, DELTA), sampler=FixedSize(batch, n), steps=rounds * n // batch, clip_norm=problem.lipschitz
    )
    return noisy_gradient_descent(problem, Run(plan, source), step_size=step, keep_iterates=True)


def storm(problem: Problem, step: float, seed: int) -> list[NDArray[Any]]:
    """Return the iterates of recursive momentum without privacy."""
    rng = np.random.default_rng(seed)
    weights, before, momentum, iterates = problem.start(), problem.start(), problem.start(), []

    def gradient(where: NDArray[Any], batch: NDArray[Any]) -> NDArray[Any]:
        total = problem.objective.gradient_sum(where, problem.rows.take(batch), problem.targets[batch], math.inf)
        found: NDArray[Any] = total / len(batch) + problem.regulariser.gradient(where)
        return found

    for number in range(STORM_PASSES * problem.rows.n // STORM_BATCH):
        batch = rng.choice(problem.rows.n, STORM_BATCH, replace=False)
        now = gradient(weights, batch)
        momentum = now if number == 0 else now + (1 - STORM_REFRESH) * (momentum - gradient(before, batch))
        before, weights = weights, weights - step * momentum
        iterates.append(weights)
    return iterates


def best_storm(problem: Problem, seed: int) -> list[NDArray[Any]]:
    """Return the iterates with the step size whose last objective is the least."""
    grid = (1.0, 5.0, 20.0)
    return min((storm(problem, c / problem.smoothness, seed) for c in grid), key=lambda run: problem.value(run[-1]))


def curves(data: Dataset, steps: dict[tuple[float, str], str], runs: int) -> list[dict[str, Any]]:
    """Return the mean curve of every method and budget, and that of STORM."""
    problem, test = data.problem(), data.problem(test=True)
    found = []
    for epsilon in EPSILONS:
        for method in methods(data, problem, epsilon):
            if method.name not in SHOWN:
                continue
            step = steps[epsilon, method.name]
            if method.name == "RRPSGD":
                size = float(step.removesuffix("/L")) / problem.smoothness
                releases = [whole_random_round(problem, epsilon, size, NoiseSource(seed)) for seed in range(runs)]
                passes = 2 * method.passes  # the expected number is half of the planned one
            else:
                releases = [method.runs[step](NoiseSource(seed)) for seed in range(runs)]
                passes = method.passes
                if math.isnan(passes):
                    passes = float(np.mean([2 * release.trace["rounds"] for release in releases]))
            found.append(curve(epsilon, method.name, releases, (problem, test), passes))
    kept = [Release(run[-1], None, {"iterates": run}) for run in (best_storm(problem, seed) for seed in range(runs))]  # type: ignore[arg-type]
    return [*found, curve(None, "STORM (not private)", kept, (problem, test), STORM_PASSES)]


def curve(
    epsilon: float | None, method: str, releases: Sequence[Release], problems: tuple[Problem, Problem], passes: float
) -> dict[str, Any]:
    """Return the means over the runs at some iterates, and the test loss at the end."""
    problem, test = problems
    path = trajectories(list(releases), problem, passes)
    if path is None:
        raise AssertionError(f"{method} keeps no iterates.")
    losses = [test.objective.mean_loss(release.trace["iterates"][-1], test.rows, test.targets) for release in releases]
    return {
        "epsilon": epsilon,
        "method": method,
        "passes": path["passes"].tolist(),
        "objective": path["objective"].mean(axis=0).tolist(),
        "gradient": path["gradient"].mean(axis=0).tolist(),
        "last_objective": float(path["objective"][:, -1].mean()),
        "last_gradient": float(path["gradient"][:, -1].mean()),
        "least_gradient": float(path["gradient"].mean(axis=0).min()),
        "test_loss": float(np.mean(losses)),
    }


def plot(figures: dict[str, list[dict[str, Any]]], name: str) -> None:
    """Draw gradient norm and objective by passes, one row per figure."""
    figure = Figure(figsize=(16, 4 * len(figures)), layout="constrained")
    axes = figure.subplots(len(figures), 4, squeeze=False)
    for line, (title, rows) in zip(axes, figures.items(), strict=True):
        places = [(key, epsilon) for key in ("objective", "gradient") for epsilon in EPSILONS]
        for axis, (key, epsilon) in zip(line, places, strict=True):
            for row in rows:
                if row["epsilon"] in (None, epsilon):
                    style = ":" if row["epsilon"] is None else "-"
                    axis.plot(row["passes"], row[key], style, label=row["method"])
            axis.set(xscale="log", yscale="log", xlabel="data passes", ylabel=key)
            axis.set_title(f"{title}: epsilon {epsilon:g}")
    axes[0, 0].legend(fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one run on 2,000 rows of a9a")
    is_quick = parser.parse_args(arguments).quick
    figures = {}
    for title, (result, module) in FIGURES.items():
        rows = json.loads((support.ROOT / "docs" / "results" / f"{result}.json").read_text())["rows"]
        data = module.dataset()
        if is_quick:
            part = data.split
            data = replace(data, split=Split(part.X[:2000], part.y[:2000], part.X_test[:2000], part.y_test[:2000]))
        figures[title] = curves(
            data, {(row["epsilon"], row["method"]): row["step"] for row in rows}, 1 if is_quick else 5
        )
        print_table(
            f"{title}: at the end of the curves",
            ["method", "epsilon", "objective", "gradient norm", "least gradient norm", "test loss"],
            [
                [row["method"], "" if row["epsilon"] is None else f"{row['epsilon']:g}"]
                + [f"{row[key]:.4f}" for key in ("last_objective", "last_gradient", "least_gradient", "test_loss")]
                for row in figures[title]
            ],
        )
        if is_quick:
            break
    name = "dp_srm_curves" + ("_quick" if is_quick else "")
    results = {"runs": 1 if is_quick else 5, "paper_storm": PAPER_STORM, "figures": figures}
    write_results(name, results)
    plot(figures, name)
    return results


if __name__ == "__main__":
    main()
