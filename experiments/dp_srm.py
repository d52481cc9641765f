"""Shared code of dp_srm_table42.py and dp_srm_table43.py: nonconvex logistic regression by five private methods.

The objective is the mean logistic loss plus 0.001 sum t^2/(1 + t^2) ("Towards Efficient and Effective Privacy-
Preserving Machine Learning", sections 4.7.1 and 4.8.1). Adjacency is replace-one, delta is 1e-5, and epsilon is 0.2 or
0.5. The paper's "Test Error" of 0.33 to 0.42 can only be the loss on the test set. Both the loss and the share of
wrong labels are printed. Data passes count the records visited; DP-SRM takes two gradients of each.

As in the paper, settings were tuned on the data itself, without charging the budget. Step sizes are tuned in the
script, on a grid within the range of the methods' theorems (up to 1.9/L, and smaller for RRPSGD), with new noise for
the results shown. The paper's constants of DP-SRM (C1 = 1, C2 = gamma = 0.01) are not run; its non-private STORM is
run by dp_srm_curves.py. Batch size, clipping norms, refresh period and largest move of DP-SRM were tuned on a9a at
epsilon 0.2. Three rows are not from the paper: DP-GD with any step size, the same with averaging, and the default
method of the estimators. L is the largest possible smoothness for rows of the given norm, and real data is smoother.
Within the range of the theorems DP-GD is therefore slow, and beyond it a strong baseline. Figures show the mean and
its 95 % band.

RRPSGD stops at a random round, on average half way, so its number of passes is the expected one of 8 or 10 planned.
DP-AGD reads the data twice per round: for a gradient, and for the losses of all candidate steps.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize
from support import Split, Spread, console, print_table, save_figure, timed, write_results

from privet.linear.methods import Task
from privet.linear.methods.gradient import GROWTH, averaged_share, gradient_steps, longest_step, precision, record_clip
from privet.objectives import BoundedRows, Logistic, SaturatingPenalty
from privet.plans import AdaptivePlan, CentredPlan, FixedSize, FullBatch, GradientPlan, RecursivePlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import (
    AlignedStep,
    Problem,
    Release,
    Run,
    adaptive_gradient_descent,
    centred_gradient_descent,
    noisy_gradient_descent,
    random_round,
    recursive_momentum,
)

DELTA = 1e-5
PENALTY = 0.001
Training = Callable[[NoiseSource], Release]


@dataclass(frozen=True)
class Dataset:
    """A dataset with its public bound and the settings of DP-SRM."""

    name: str
    split: Split
    row_norm: float
    batch: int
    refresh: float
    clip_norm: float
    difference_norm: float
    max_move: float  # times 1/L

    def problem(self, test: bool = False) -> Problem:
        """Return the problem of the training set or of the test set."""
        X, y = (self.split.X_test, self.split.y_test) if test else (self.split.X, self.split.y)
        rows = BoundedRows(X, self.row_norm)
        return Problem(Logistic(), SaturatingPenalty(PENALTY), rows, y.astype(np.float64))


@dataclass(frozen=True)
class Method:
    """A private method: its name, its data passes, and a run for each step size of its grid."""

    name: str
    passes: float
    runs: dict[str, Training]


def methods(data: Dataset, problem: Problem, epsilon: float) -> list[Method]:
    """Return all methods for a budget. Plans are made once."""
    budget, n, smoothness = Budget(epsilon, DELTA), problem.rows.n, problem.smoothness
    steps = {f"{c:g}/L": c / smoothness for c in (0.5, 1.0, 1.5, 1.9)}
    clip = problem.lipschitz

    gd = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=20, clip_norm=clip)
    rounds = 8 if epsilon < 0.5 else 10
    batch = 200
    rr = GradientPlan.for_budget(budget, sampler=FixedSize(batch, n), steps=rounds * n // batch, clip_norm=clip)
    passes = 4 if epsilon < 0.5 else 5
    srm = RecursivePlan.for_budget(
        budget,
        sampler=FixedSize(data.batch, n),
        steps=passes * n // data.batch,
        clip_norm=min(data.clip_norm, clip),
        difference_norm=data.difference_norm,
        refresh=data.refresh,
    )
    agd = AdaptivePlan.for_budget(budget)

    def with_steps(run: Callable[[float, NoiseSource], Release], grid: dict[str, float]) -> dict[str, Training]:
        return {name: (lambda source, eta=eta: run(eta, source)) for name, eta in grid.items()}

    def descent(eta: float, source: NoiseSource) -> Release:
        return noisy_gradient_descent(problem, Run(gd, source), step_size=eta, keep_iterates=True)

    def last(eta: float, source: NoiseSource) -> Release:
        return noisy_gradient_descent(problem, Run(gd, source), step_size=eta)

    def averaged(eta: float, source: NoiseSource) -> Release:
        return noisy_gradient_descent(problem, Run(gd, source), step_size=eta, averaged=0.3)

    def random_stop(eta: float, source: NoiseSource) -> Release:
        return random_round(problem, Run(rr, source), step_size=eta)

    def recursive(eta: float, source: NoiseSource) -> Release:
        move = data.max_move / smoothness
        return recursive_momentum(problem, Run(srm, source), step_size=eta, max_move=move, keep_iterates=True)

    def adaptive(source: NoiseSource) -> Release:
        return adaptive_gradient_descent(problem, Run(agd, source), keep_iterates=True)

    few = {f"{c:g}/L": c / smoothness for c in (0.02, 0.05, 0.1, 0.3)} | {"1/L": 1 / smoothness}
    beyond = {f"{c:g}/L": c / smoothness for c in (4.0, 5.0, 7.0, 20.0, 60.0)}
    return [
        Method("DP-GD", 20, with_steps(descent, steps)),
        Method("DP-AGD", math.nan, {"chosen privately": adaptive}),
        Method("RRPSGD", rounds / 2, with_steps(random_stop, few)),
        Method("DP-SRM", passes, with_steps(recursive, steps)),
        Method("DP-GD, any step", 20, with_steps(last, beyond)),
        Method("DP-GD, any step, averaged", 20, with_steps(averaged, beyond)),
        default_descent(data, budget),
    ]


def default_descent(data: Dataset, budget: Budget) -> Method:
    """Return the default method of the estimators on this objective: centred rows, searched steps, averaging."""
    rows = BoundedRows(data.split.X, data.row_norm, 0.2 * data.row_norm)
    problem = Problem(Logistic(), SaturatingPenalty(PENALTY), rows, data.split.y.astype(np.float64))
    reached = precision(budget, rows.n, problem.start().size)
    steps = gradient_steps(reached)
    task = Task(problem, budget, NoiseSource())
    clip = record_clip(task, least=0.2)
    plan = CentredPlan.for_budget(budget, steps=steps, clip_norm=clip, row_norm=rows.weight_in_total)
    longest = longest_step(plan.gradients.noise_std / rows.n, steps, rows.row_norm, 1.0)
    rule = AlignedStep(first=1.8 / problem.smoothness, longest=longest, growth=GROWTH)
    averaged = averaged_share(task)

    def run(source: NoiseSource) -> Release:
        return centred_gradient_descent(problem, Run(plan, source), step_size=rule, averaged=averaged)

    return Method("privet's default, with an intercept", steps + 1, {"found": run})


def outcome(release: Release, data: Dataset, problems: dict[bool, Problem]) -> dict[str, float]:
    """Return the numbers of a run for the tables, on the problem that its weights belong to."""
    weights = release.weights
    has_intercept = len(weights) > problems[False].rows.dimension
    train, test = problems[False], problems[True]
    if has_intercept:
        intercept = 0.2 * data.row_norm
        parts = ((data.split.X, data.split.y), (data.split.X_test, data.split.y_test))
        made = [
            Problem(Logistic(), SaturatingPenalty(PENALTY), BoundedRows(X, data.row_norm, intercept), y.astype(float))
            for X, y in parts
        ]
        train, test = made
    wrong = np.mean((test.rows.scores(weights) > 0) != (data.split.y_test > 0))
    loss = test.objective.mean_loss(weights, test.rows, test.targets)
    return {
        "objective": train.value(weights),
        "gradient": train.gradient_norm(weights),
        "test_loss": loss,
        "wrong": float(wrong),
    }


def minimum(problem: Problem) -> NDArray[Any]:
    """Return a stationary point, found without privacy."""

    def both(weights: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, math.inf)
        return problem.value(weights), total / problem.rows.n + problem.regulariser.gradient(weights)

    return np.asarray(minimize(both, problem.start(), jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x)


def study(data: Dataset, paper: dict[tuple[float, str], tuple[float, ...]], name: str, title: str) -> None:
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="two runs, one step size each, 4,000 rows")
    options = parser.parse_args()
    if options.quick:
        part = data.split
        few = Split(part.X[:4000], part.y[:4000], part.X_test[:4000], part.y_test[:4000])
        data, name = replace(data, split=few), f"{name}_quick"
    runs, trials = (2, 1) if options.quick else (options.runs, 5)
    problems = {False: data.problem(), True: data.problem(test=True)}
    best = outcome(Release(minimum(problems[False]), None), data, problems)  # type: ignore[arg-type]
    console.print(f"Not private (L-BFGS): objective {best['objective']:.4f}, test loss {best['test_loss']:.4f}")
    rows, curves, content = [], {}, []
    for epsilon in (0.2, 0.5):
        for method in methods(data, problems[False], epsilon):
            grid = dict(list(method.runs.items())[:1]) if options.quick else method.runs
            tried = {
                step: np.mean([outcome(run(NoiseSource()), data, problems)["gradient"] for _ in range(trials)])
                for step, run in grid.items()
            }
            step = min(tried, key=lambda name: float(tried[name]))
            done = [timed(lambda run=grid[step]: run(NoiseSource())) for _ in range(runs)]
            outcomes = [outcome(release, data, problems) for release, _ in done]
            found = {key: Spread.of([result[key] for result in outcomes]) for key in outcomes[0]}
            seconds = Spread.of([spent for _, spent in done])
            passes = method.passes
            if (
                method.name == "DP-AGD"
            ):  # one pass for a gradient, and one for all candidates, because scores are linear
                passes = float(np.mean([2 * release.trace["rounds"] for release, _ in done]))
            curves[epsilon, method.name] = trajectories([release for release, _ in done], problems[False], passes)
            told = paper.get((epsilon, method.name))
            rows.append(table_row(epsilon, method.name, passes, step, found, seconds, told))
            content.append(
                {"epsilon": epsilon, "method": method.name, "passes": passes, "step": step, "paper": told}
                | {key: [spread.mean, spread.std] for key, spread in found.items()}
                | {"seconds": seconds.mean, "runs": runs}
            )
            console.print(" | ".join(rows[-1]))
    columns = [
        "epsilon, method",
        "passes",
        "step",
        "gradient norm",
        "(paper)",
        "test loss",
        "(paper)",
        "wrong",
        "objective",
    ]
    print_table(title, [*columns, "CPU s"], rows)
    verdict(content)
    write_results(name, {"runs": runs, "quick": options.quick, "not_private": best, "rows": content})
    plot(curves, name, title)


def table_row(epsilon: float, name: str, passes: float, step: str, found: Any, seconds: Spread, told: Any) -> list[str]:
    error, gradient = ("", "") if told is None else (f"{told[0]:.4f}", f"{told[1]:.4f}")
    return [
        f"{epsilon:g} {name}",
        f"{passes:.1f}",
        step,
        found["gradient"].show(),
        gradient,
        found["test_loss"].show(),
        error,
        found["wrong"].show(),
        found["objective"].show(),
        f"{seconds.mean:.2f}",
    ]


def verdict(content: list[dict[str, Any]]) -> None:
    for epsilon in (0.2, 0.5):
        found = {row["method"]: row["gradient"][0] for row in content if row["epsilon"] == epsilon}
        below = [name for name in ("DP-GD", "RRPSGD", "DP-AGD") if found["DP-SRM"] < found[name]]
        console.print(f"epsilon {epsilon:g}: DP-SRM's gradient norm is below that of {', '.join(below) or 'none'}")


def trajectories(releases: list[Release], problem: Problem, passes: float) -> dict[str, Any] | None:
    """Return means and 95 % bands of objective and gradient norm by data passes, for methods that keep iterates."""
    if "iterates" not in releases[0].trace or len(releases[0].weights) != problem.rows.dimension:
        return None
    kept = [list(release.trace["iterates"]) for release in releases[:10]]
    length = min(map(len, kept))
    places = np.unique(np.linspace(0, length - 1, 25).astype(int))
    values = np.array([[problem.value(run[place]) for place in places] for run in kept])
    norms = np.array([[problem.gradient_norm(run[place]) for place in places] for run in kept])
    return {"passes": (places + 1) / length * passes, "objective": values, "gradient": norms}


def plot(curves: dict[tuple[float, str], Any], name: str, title: str) -> None:
    figure = Figure(figsize=(10, 7))
    axes = figure.subplots(2, 2)
    for column, epsilon in enumerate((0.2, 0.5)):
        for row, key in enumerate(("objective", "gradient")):
            axis = axes[row, column]
            for (budget, method), curve in curves.items():
                if budget != epsilon or curve is None:
                    continue
                mean = curve[key].mean(axis=0)
                band = 1.96 * curve[key].std(axis=0) / math.sqrt(len(curve[key]))
                axis.plot(curve["passes"], mean, label=method)
                axis.fill_between(curve["passes"], mean - band, mean + band, alpha=0.2)
            axis.set(xscale="log", yscale="log", xlabel="data passes", ylabel=key, title=f"epsilon = {epsilon:g}")
    axes[0, 0].legend()
    figure.suptitle(title)
    figure.tight_layout()
    save_figure(figure, name)
