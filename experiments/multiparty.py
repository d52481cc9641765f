"""Figures 6.1 to 6.9 and Table 6.1 of "Towards Efficient and Effective Privacy-Preserving Machine Learning".

python experiments/multiparty.py [--paper | --quick] [--seeds N] [--datasets NAME ...]

Several parties train one model. Measured are the optimality gap J(w) - J(w*) on the training part, and the loss of
accuracy (or the additional mean squared error) on the test part, both relative to the minimiser w* of the pooled data
without noise. There are 100 parties, 1,000 parties, or one record per party; epsilon = 0.5, delta = 0.001, J has
lambda = 0.001, and G = 1. The protocol is simulated in one process with the exact distribution of its noise and the
rounding of each party. The data are in multiparty_data.py, the methods in multiparty_methods.py, and Table 6.1 in
multiparty_noise.py.

- `--paper` runs the chapter's configuration: 1,500 steps of size 1, and lambda = 0.001 while training, for all
  methods.
- Without it, each method uses its own best of a few settings: 1 to 300 steps of size 1/smoothness for descents, and
  lambda from 0.001 to 10 during training for methods that perturb a minimiser (J, by which all are judged, keeps
  0.001). The setting is chosen in the same way for each method, data set and number of parties, by the optimality gap
  of three runs whose seeds are not among those shown. As in the chapter, its privacy cost is not counted.
- Local Obj-P adds the penalty that its budget requires if a party has few rows. Rajkumar and Agarwal spend epsilon in
  each step, so their method is not private at this budget and serves as a reference only. Methods that perturb once
  are horizontal lines.

This experiment differs from the chapter in three ways. The noise is what the guarantee requires (the chapter's noise
gives sqrt(d) epsilon where it perturbs models, and is 3.3 times too small where it perturbs gradients; see Table 6.1).
Bounds are public. The third data set is Bike instead of KDD Cup 98, with the Huber loss instead of the squared loss.
The chapter's figures are curves without numbers, so what its text says about them is printed beside the results.
Spreads are over seeds of the noise. The split, and the assignment to parties, are fixed.

In the configuration of the chapter, MPC Out-P is not the best method everywhere. On Bike, with 13,000 rows, lambda =
0.001 requires noise of about 0.75 per coordinate, 2 G/(n lambda) times 4.9, which dominates the model. Local Obj-P is
then better, because its budget forces a larger penalty. With the same penalty, MPC Out-P is far better
(multiparty_penalty.py). With its own lambda of 0.01, MPC Out-P has a tenth of the noise. With one record per party,
the minimisers contain little information about the data at any lambda. MPC Grad-P is made for this case.

Points with 100 and 1,000 owners run through real servers in multiparty_servers.py. Table 6.2 (time and bytes) is in
multiparty_processes.py, with three real processes on Adult, and in benchmarks/committee.py, with owners and servers.
"""

import argparse
import itertools
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import multiparty_noise
import numpy as np
import support
from multiparty_data import FILES, KDD98, NAMES, Study, load, party_counts
from multiparty_methods import BASELINES, CENTRAL, DESCENTS, METHODS, MPC_GRAD, MPC_OUT, Deal, Knobs, train
from multiparty_report import page, plot, show
from rich.progress import track
from support import Spread, console, data_file, write_results
from threadpoolctl import threadpool_limits

from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem
from privet.solvers.base.minimise import minimise

BUDGET = Budget(0.5, 1e-3)
ALPHA = 0.001
TRIAL_SEEDS = (1000, 1001, 1002)
CURVE_POINTS = 30


@dataclass(frozen=True)
class Preset:
    """Settings to choose from, and the number of seeds to show. A step size of None means 1/smoothness."""

    name: str
    told: str
    seeds: int
    steps: tuple[int, ...]
    step_size: float | None
    alphas: tuple[float, ...]

    def settings(self, method: str, problem: Problem) -> list[Knobs]:
        """Return the settings from which a method may choose."""
        if method not in DESCENTS:
            return [Knobs(alpha) for alpha in self.alphas]
        size = 1 / problem.smoothness if self.step_size is None else self.step_size
        return [Knobs(ALPHA, steps, size) for steps in self.steps]


PRESETS = {
    "default": Preset(
        "default",
        "the default preset: each method has its best of a few settings, 5 seeds (not the chapter's 1,500 steps)",
        seeds=5,
        steps=(1, 3, 10, 30, 100, 300),
        step_size=None,
        alphas=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0),
    ),
    "paper": Preset(
        "paper",
        "the chapter's full configuration: 1,500 steps of size 1, lambda = 0.001 for all methods, 3 seeds",
        seeds=3,
        steps=(1500,),
        step_size=1.0,
        alphas=(ALPHA,),
    ),
    "quick": Preset(
        "quick",
        "a quick look: few settings, 2 seeds (not the chapter's 1,500 steps)",
        seeds=2,
        steps=(3, 30),
        step_size=None,
        alphas=(0.01, 0.1),
    ),
}


class Judge:
    """Compares weights with the minimiser of the pooled data, which no method sees."""

    def __init__(self, study: Study, problem: Problem) -> None:
        self._study, self._problem = study, problem
        best = minimise(problem, tolerance=1e-9)
        self.least, self.merit = problem.value(best), study.merit(best)

    def gap(self, weights: Any) -> float:
        """Return J(w) - J(w*) on the training part."""
        return self._problem.value(weights) - self.least

    def loss(self, weights: Any) -> float:
        """Return the loss of accuracy on the test part, or the additional mean squared error."""
        return self.merit - self._study.merit(weights)


@dataclass(frozen=True)
class Job:
    """One data set, divided among one number of parties."""

    name: str
    parties: int
    preset: Preset


def work(job: Job) -> list[dict[str, Any]]:
    """Return one row per method."""
    return examine(load(job.name), job.parties, job.preset)


def examine(study: Study, parties: int, preset: Preset) -> list[dict[str, Any]]:
    """Return the results of every method on a study divided among the given number of parties."""
    deal = Deal(study, parties)
    problem = deal.pooled(ALPHA)
    judge = Judge(study, problem)
    facts = {"dataset": study.name, "parties": parties, "rows_each": deal.rows_each, "columns": deal.d}
    facts |= {"is_regression": study.is_regression, "merit_of_minimiser": judge.merit}
    facts |= {"gap_of_zero_weights": judge.gap(problem.start()), "loss_of_zero_weights": judge.loss(problem.start())}
    chosen: dict[str, Knobs] = {}
    rows = []
    for method in METHODS:
        # MPC Grad-P is compared with the central descent, so both have the same steps.
        chosen[method] = chosen[MPC_GRAD] if method == CENTRAL else choose(method, deal, judge, preset)
        rows.append(facts | repeated(method, deal, judge, chosen[method], preset.seeds))
    return rows


def choose(method: str, deal: Deal, judge: Judge, preset: Preset) -> Knobs:
    """Return the setting with the least optimality gap on average, in runs that are not shown."""
    settings = preset.settings(method, deal.pooled(ALPHA))
    if len(settings) == 1:
        return settings[0]

    def gap(knobs: Knobs) -> float:
        runs = [train(method, deal, BUDGET, knobs, _source(seed, method, deal)) for seed in TRIAL_SEEDS]
        return float(np.mean([judge.gap(run.path[knobs.steps]) for run in runs]))

    return min(settings, key=gap)


def repeated(method: str, deal: Deal, judge: Judge, knobs: Knobs, seeds: int) -> dict[str, Any]:
    """Return the results of a method over all seeds, and its intermediate results."""
    kept = sorted({round(step) for step in np.linspace(0, knobs.steps, CURVE_POINTS + 1)})
    runs = [train(method, deal, BUDGET, knobs, _source(seed, method, deal), kept) for seed in range(seeds)]
    steps = sorted(runs[0].path)
    gaps, losses = (
        np.array([[measure(run.path[step]) for step in steps] for run in runs]) for measure in (judge.gap, judge.loss)
    )
    curve = {"gap": gaps.mean(axis=0), "loss": losses.mean(axis=0)}
    return {
        "method": method,
        "knobs": asdict(knobs),
        "epsilon": runs[0].epsilon,
        "noise_std": runs[0].noise_std,
        "gap": asdict(Spread.of(gaps[:, -1])),
        "loss": asdict(Spread.of(losses[:, -1])),
        "curve": {"steps": steps} | {name: [float(f"{value:.4g}") for value in curve[name]] for name in curve},
    }


def _source(seed: int, method: str, deal: Deal) -> NoiseSource:
    return NoiseSource(seed, purpose=f"{deal.study.name}, {deal.parties} parties, {method}")


def verdicts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the comparison of the two methods of the protocol with every private baseline, in both measures.

    ``clearly`` is by more than two standard errors of the difference.
    """
    found = {(row["dataset"], row["parties"], row["method"]): row for row in rows}
    places = dict.fromkeys((row["dataset"], row["parties"]) for row in rows)
    return [
        {"dataset": dataset, "parties": parties, "method": ours, "baseline": theirs, "measure": measure}
        | _compared(found[dataset, parties, ours][measure], found[dataset, parties, theirs][measure])
        for (dataset, parties), ours, theirs, measure in itertools.product(
            places, (MPC_OUT, MPC_GRAD), BASELINES, ("gap", "loss")
        )
    ]


def _compared(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    difference = theirs["mean"] - ours["mean"]
    error = np.hypot(ours["std"], theirs["std"]) / np.sqrt(ours["runs"])
    return {"better_by": difference, "is_better": difference > 0, "is_clear": bool(abs(difference) > 2 * error)}


def closeness(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the loss of MPC Grad-P on the test part relative to central noisy descent with equal steps and budget."""
    found = {(row["dataset"], row["parties"], row["method"]): row for row in rows}
    compared = []
    for dataset, parties in dict.fromkeys((row["dataset"], row["parties"]) for row in rows):
        joint, alone = (found[dataset, parties, method]["loss"] for method in (MPC_GRAD, CENTRAL))
        spread = float(np.hypot(joint["std"], alone["std"]))
        lost = {"dataset": dataset, "parties": parties, "lost": joint["mean"] - alone["mean"], "spread": spread}
        compared.append(lost | {"is_regression": found[dataset, parties, MPC_GRAD]["is_regression"]})
    return compared


def run_all(jobs: Sequence[Job], workers: int) -> list[dict[str, Any]]:
    """Run the jobs, one thread each, and return their rows."""
    title = f"{len(jobs)} panels"
    if workers == 1:
        with threadpool_limits(1):
            results = [work(job) for job in track(jobs, title, console=console)]
    else:
        with ProcessPoolExecutor(workers, initializer=threadpool_limits, initargs=(1,)) as pool:
            results = list(track(pool.map(work, jobs), title, len(jobs), console=console))
    return list(itertools.chain.from_iterable(results))


def conclude(rows: list[dict[str, Any]], preset: Preset, seconds: float, name: str) -> dict[str, Any]:
    """Print, save and plot the results, and return them."""
    table61 = multiparty_noise.show()
    results = {
        "preset": preset.name,
        "settings": asdict(preset) | {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta, "lambda": ALPHA},
        "table_6_1": table61,
        "rows": rows,
        "verdicts": verdicts(rows),
        "against_central": closeness(rows),
        "seconds": round(seconds),
    }
    show(results)
    write_results(name, results)
    explanation = (__doc__ or "").split("\n\n", 2)[2].strip()
    (support.RESULTS / f"{name}.md").write_text(page(results, name, explanation))
    plot(rows, name)
    return results


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and save its results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--paper", action="store_true", help="the chapter's configuration: 1,500 steps, lambda 0.001")
    size.add_argument("--quick", action="store_true", help="few settings and seeds")
    parser.add_argument("--seeds", type=int, help="runs of each method")
    parser.add_argument("--datasets", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument(
        "--data", metavar="FOLDER", help=f"folder with {FILES[KDD98]}: run only {KDD98}, of the chapter"
    )
    options = parser.parse_args(arguments)
    if options.data:
        os.environ["PRIVET_DATA"] = options.data  # also for the worker processes
        options.datasets = [KDD98]
    preset = PRESETS["paper" if options.paper else "quick" if options.quick else "default"]
    if options.seeds:
        preset = Preset(**asdict(preset) | {"seeds": options.seeds})
    for name in options.datasets:
        data_file(FILES[name])
    console.print(f"This is {preset.told}. All methods are simulated with the exact distribution of their noise.")
    jobs = [Job(name, parties, preset) for name in options.datasets for parties in party_counts(name)]
    begin = time.perf_counter()
    rows = run_all(jobs, workers=1 if options.quick else 2)
    part = "_kddcup98" if options.data else "" if len(options.datasets) == len(NAMES) else "_part"
    suffix = "" if preset.name == "default" else f"_{preset.name}"
    return conclude(rows, preset, time.perf_counter() - begin, f"multiparty{suffix}{part}")


if __name__ == "__main__":
    main()
