"""Shared code of dp_srm_cnn.py, dp_srm_cnn6.py and cifar_cnn.py: DP-SRM against DP-SGD on a network, at given budgets.

If a method has several candidates, each is tried once at every epsilon, with part of the training images held out. The
one with the smallest error on these is run with all training images, with other seeds, and looks at the test images
once. As in the paper, this choice is not charged to the budget. DP-SRM evaluates every batch at two points, so one step
takes as long as two steps of DP-SGD or more. Its first batch may be larger.

Beside the errors stand those of the untrained network, of the most frequent class, and of the same training as that of
DP-SGD without noise.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deep_runs import Job, Runs, draw, grouped, run_all, start_and_majority, without_noise
from matplotlib.figure import Figure
from support import Spread, console, print_table, save_figure, write_results

from privet.deep import RecursiveMomentum

METHODS = ("DP-SGD", "DP-SRM")
TRIAL_SEED = 1000
Groups = dict[tuple[float, str], Runs]


@dataclass(frozen=True)
class Setting:
    """The tuned settings of a training.

    Attributes
    ----------
    learning_rate, batch, epochs
        Step size, batch size b, and the number of passes over the images.
    refresh : float or None
        gamma of DP-SRM, or None for DP-SGD.
    first : int
        The size of DP-SRM's first batch, divided by b.
    difference_norm : float or None
        The bound C2 of DP-SRM. None takes gamma, as in the paper.
    clip_norm : float or None
        The bound C1. None takes that of the template.
    is_annealed : bool
        Whether the step size decreases linearly to zero.
    """

    learning_rate: float
    batch: int
    epochs: float
    refresh: float | None = None
    first: int = 1
    difference_norm: float | None = None
    clip_norm: float | None = None
    is_annealed: bool = False

    @property
    def momentum(self) -> RecursiveMomentum | None:
        """The recursive momentum of DP-SRM, or None for DP-SGD."""
        if self.refresh is None:
            return None
        difference = self.refresh if self.difference_norm is None else self.difference_norm
        return RecursiveMomentum(difference, self.refresh, first_batch_size=self.first * self.batch)

    def of(self, template: Job, method: str, epsilon: float) -> Job:
        """Return the job with this setting."""
        return replace(
            template,
            method=method,
            epsilon=epsilon,
            learning_rate=self.learning_rate,
            batch=self.batch,
            steps=max(1, round(self.epochs * template.n / self.batch)),
            momentum=self.momentum,
            clip_norm=self.clip_norm or template.clip_norm,
            is_annealed=self.is_annealed,
        )


@dataclass(frozen=True)
class Study:
    """A comparison: a template with network and data, budgets, candidates of both methods, and the paper's errors."""

    title: str
    template: Job
    epsilons: tuple[float, ...]
    candidates: dict[str, tuple[Setting, ...]]
    paper: dict[tuple[float, str], float]  # test error, %
    runs: int
    held_out: int = 5000  # training images on which settings are chosen


def grid(
    rates: Sequence[float], batches: Sequence[int], epochs: float, refreshes: Sequence[float], firsts: Sequence[int]
) -> dict[str, tuple[Setting, ...]]:
    """Return the candidates of the paper's search."""
    plain = tuple(Setting(rate, batch, epochs) for rate in rates for batch in batches)
    recursive = (
        replace(setting, refresh=refresh, first=first) for setting in plain for refresh in refreshes for first in firsts
    )
    return {"DP-SGD": plain, "DP-SRM": tuple(recursive)}


def chosen(study: Study, workers: int) -> dict[tuple[float, str], Setting]:
    """Return the setting for every method and epsilon: the only candidate, or the best after one run each."""
    several = [
        (epsilon, method, setting)
        for epsilon in study.epsilons
        for method, settings in study.candidates.items()
        for setting in settings
        if len(settings) > 1
    ]
    fewer = replace(study.template, n=study.template.n - study.held_out, held_out=study.held_out, seed=TRIAL_SEED)
    jobs = [setting.of(fewer, method, epsilon) for epsilon, method, setting in several]
    tried = run_all(jobs, workers).values()
    best = {(epsilon, method): study.candidates[method][0] for epsilon in study.epsilons for method in METHODS}
    found: dict[tuple[float, str], float] = {}
    for (epsilon, method, setting), outcome in zip(several, tried, strict=True):
        if outcome.last > found.get((epsilon, method), -math.inf):
            found[epsilon, method], best[epsilon, method] = outcome.last, setting
    return best


def compared(study: Study, workers: int) -> tuple[Groups, list[dict[str, Any]]]:
    """Run both methods at all budgets, print the table, and return the runs and its rows."""
    settings = chosen(study, workers)
    jobs = [
        replace(settings[epsilon, method].of(study.template, method, epsilon), seed=seed)
        for seed in range(study.runs)
        for epsilon in study.epsilons
        for method in METHODS
    ]
    groups: Groups = grouped(run_all(jobs, workers), lambda job: (job.epsilon, job.method))
    rows = [row(study, groups, epsilon, method) for epsilon in study.epsilons for method in METHODS]
    show(study, rows)
    return groups, rows


def beside(study: Study, groups: Groups, workers: int) -> dict[str, Any]:
    """Return what an error is to be compared with: the start, the majority class, and a training without noise."""
    job = groups[study.epsilons[-1], "DP-SGD"].job
    plain = run_all([replace(without_noise(job), seed=seed) for seed in range(study.runs)], workers)
    found = {name: 100 - accuracy for name, accuracy in start_and_majority(job).items()}
    without = error(Runs(job, [*plain.values()]))
    console.print(
        f"Test error of the untrained network {found['start']:.1f} %, of the most frequent class "
        f"{found['majority']:.1f} %, of DP-SGD's training without noise {without.show(2)} %"
    )
    return {**found, "without_noise": [without.mean, without.std]}


def error(runs: Runs) -> Spread:
    """Return the final test error in per cent."""
    return Spread(100 - runs.last.mean, runs.last.std, runs.last.runs)


def part_needed(runs: Runs, accuracy: float) -> float:
    """Return the fraction of the steps after which the mean accuracy is first reached, or nan if it never is."""
    steps, mean, _ = runs.curve
    reached = steps[mean >= accuracy]
    return float(reached[0] / steps[-1]) if len(reached) else math.nan


def row(study: Study, groups: Groups, epsilon: float, method: str) -> dict[str, Any]:
    """Return the row of a setting, with steps and time to reach the final accuracy of DP-SGD, relative to DP-SGD."""
    runs, plain = groups[epsilon, method], groups[epsilon, "DP-SGD"]
    summary, baseline = runs.summary(), plain.summary()
    part = part_needed(runs, plain.last.mean)
    found = error(runs)
    return {
        "epsilon": epsilon,
        "method": method,
        "paper_error": study.paper.get((epsilon, method)),
        "error": [found.mean, found.std],
        "steps_to_match": part * runs.job.steps / plain.job.steps,
        "time_to_match": part * summary["processor_seconds"] / max(baseline["processor_seconds"], 0.1),
        **summary,
    }


def show(study: Study, rows: list[dict[str, Any]]) -> None:
    """Print the table, and the better method for each epsilon."""
    shown = [[*setting_in_words(each), *outcome_in_words(each)] for each in rows]
    columns = ["epsilon, method", "rate", "batch", "b0", "gamma", "C2", "epochs", "runs", "test error, %", "(paper)"]
    print_table(study.title, [*columns, "steps to match", "time to match", "CPU s"], shown)
    for plain, recursive in zip(rows[::2], rows[1::2], strict=True):
        ahead = "below" if recursive["error"][0] < plain["error"][0] else "not below"
        difference = recursive["error"][0] - plain["error"][0]
        console.print(
            f"epsilon {plain['epsilon']:g}: DP-SRM's test error is {ahead} DP-SGD's ({difference:+.2f} points; paper: "
            f"{(recursive['paper_error'] or math.nan) - (plain['paper_error'] or math.nan):+.2f})"
        )


def setting_in_words(each: dict[str, Any]) -> list[str]:
    momentum = each["momentum"]
    recursive = ["", "", ""]
    if momentum is not None:
        shares = (momentum["refresh"], momentum["difference_norm"])
        recursive = [str(momentum["first_batch_size"]), *(f"{share:g}" for share in shares)]
    epochs = f"{each['steps'] * each['batch'] / each['n']:.3g}"
    name = f"{each['epsilon']:g} {each['method']}"
    return [name, f"{each['learning_rate']:g}", str(each["batch"]), *recursive, epochs]


def outcome_in_words(each: dict[str, Any]) -> list[str]:
    told = each["paper_error"]
    return [
        str(each["last"]["runs"]),
        Spread(*each["error"], each["last"]["runs"]).show(2),
        "" if told is None else f"{told:.2f}",
        f"{each['steps_to_match']:.2f}",
        f"{each['time_to_match']:.2f}",
        f"{each['processor_seconds']:.0f}",
    ]


def draw_budget(panel: Any, groups: Groups, epsilon: float, *, by_time: bool = False) -> None:
    """Draw both methods for a budget."""
    for method in METHODS:
        draw(panel, groups[epsilon, method], method, by_time=by_time)
    axis = "processor time, s" if by_time else "step"
    panel.set(title=f"epsilon = {epsilon:g}", xlabel=axis, ylabel="test accuracy, %")
    panel.legend(fontsize=8)


def plot(groups: Groups, epsilons: Sequence[float], name: str) -> None:
    """Draw both methods by step and by time, with one column per budget."""
    figure = Figure(figsize=(5 * len(epsilons), 8), layout="constrained")
    panels = figure.subplots(2, len(epsilons), squeeze=False)
    for place, epsilon in enumerate(epsilons):
        draw_budget(panels[0, place], groups, epsilon)
        draw_budget(panels[1, place], groups, epsilon, by_time=True)
    save_figure(figure, name)


def run(study: Study, name: str, preset: str, workers: int) -> dict[str, Any]:
    """Compare both methods, print, write and draw the results, and return them."""
    begin = time.perf_counter()
    groups, rows = compared(study, workers)
    results = {
        "preset": preset,
        "runs": study.runs,
        "rows": without_nan(rows),
        "test_error_beside": beside(study, groups, workers),
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(f"{results['seconds']} s in all")
    full_name = name + ("" if preset == "standard" else f"_{preset}")
    write_results(full_name, results)
    plot(groups, study.epsilons, full_name)
    return results


def without_nan(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that can be written as JSON, with null instead of nan."""
    return [
        {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in each.items()}
        for each in rows
    ]
