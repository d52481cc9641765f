"""Figures 5 and 7 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in ... ERM": a CNN on MNIST.

python experiments/dp_lssgd_cnn.py [--full | --quick] [--runs 3] [--workers 2]

The network is the CNN of TensorFlow Privacy's tutorial (26,010 weights, initialised as in TensorFlow), trained on
60,000 images with batches of 256, gradients clipped to norm 1, and delta 1e-5. The learning rate is 0.15 for DP-SGD and
DP-LSSGD and 0.001 for DP-Adam and DP-LSAdam, divided by ten from step 10,000.

- Figure 5: the four optimisers by noise multiplier.
- Figure 7, left: DP-LSSGD by the strength sigma of the smoothing; middle: DP-SGD and DP-LSSGD by learning rate; both
  at noise multiplier 10. Right: the best accuracy of these runs within an epsilon.

The paper shows its results only as pictures. Its text claims the following, which is printed next to our findings: at a
large noise multiplier, DP-SGD rises, then oscillates and decays, and DP-LSSGD less so; DP-Adam is above DP-LSSGD, and
DP-LSAdam above DP-Adam; DP-LSSGD is above DP-SGD at every learning rate, and gains 3.2 points at epsilon 0.4 and 5.0 at
0.2. The text does not state the noise multipliers of figure 5, the learning rates, or sigma except in the left panel of
figure 7. Here --full uses noise multipliers 2, 5 and 10, learning rates 0.05, 0.15 and 0.5, sigma 1, and 60 epochs. The
standard preset has eight epochs, noise multipliers 2 and 10, and fewer sigmas and learning rates.

Results of the standard preset (docs/results/dp_lssgd_cnn.json): at noise multiplier 10, DP-LSSGD is above DP-SGD with
every seed, DP-SGD falls from its best and DP-LSSGD less so, and both kinds of Adam are level and above both kinds of
SGD. At noise multiplier 2, which gives the best accuracy at epsilon 0.2 and 0.4, smoothing costs SGD three to five
points.

Differences from the paper: sampling is Poisson instead of batches of fixed size. Smoothing follows the order in which
PyTorch stores the weights, where neighbours belong to the same filter. In TensorFlow they belong to different filters.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from deep_runs import DELTA, Job, Runs, draw, grouped, options, plan_of, run_all
from matplotlib.figure import Figure
from support import console, data_file, print_table, save_figure, write_results

LARGE_NOISE = 10.0
RATE, ADAM_RATE, SIGMA = 0.15, 0.001, 1.0
METHODS = ("DP-SGD", "DP-LSSGD", "DP-Adam", "DP-LSAdam")
EVERY_SEED = "it ends above with every seed"  # not stated in the paper
PAPER_GAINS = {0.2: 5.0, 0.4: 3.2}  # gain of DP-LSSGD over DP-SGD in percentage points, by epsilon
Setting = tuple[str, float, float, float]  # method, noise multiplier, learning rate, sigma
Groups = dict[Setting, Runs]


@dataclass(frozen=True)
class Preset:
    """The size of the experiment: ``runs`` seeds of the four methods, ``few_runs`` of other sigmas and rates."""

    name: str
    steps: int
    runs: int
    few_runs: int
    noises: tuple[float, ...] = (LARGE_NOISE,)
    sigmas: tuple[float, ...] = (0.0, 1.0, 3.0)
    rates: tuple[float, ...] = (0.15, 0.5)
    n: int = 60_000
    n_test: int | None = None
    batch: int = 256

    def in_words(self) -> str:
        """Return a description of what is run."""
        epochs = self.steps * self.batch / self.n
        return (
            f"Preset {self.name}: {self.n} images, {self.steps} steps ({epochs:.3g} epochs), {self.runs} runs of every "
            f"method and noise multiplier, {self.few_runs} of other sigmas and learning rates"
        )


STANDARD = Preset("standard", steps=1800, runs=3, few_runs=1, noises=(2.0, LARGE_NOISE))
FULL = Preset(
    "full",
    steps=60 * 60_000 // 256,
    runs=5,
    few_runs=5,
    noises=(2.0, 5.0, 10.0),
    sigmas=(0.0, 0.5, 1.0, 2.0, 3.0),
    rates=(0.05, 0.15, 0.5),
)
QUICK = Preset("quick", steps=6, runs=2, few_runs=1, rates=(0.15,), n=2000, n_test=500, batch=64)


def job(method: str, preset: Preset, noise: float, rate: float | None = None, sigma: float = SIGMA) -> Job:
    """Return a training by one of the four methods."""
    adam = method.endswith("Adam")
    return Job(
        method,
        source="mnist.npz",
        scale="from_zero_to_one",
        n=preset.n,
        net="mnist_cnn",
        steps=preset.steps,
        batch=preset.batch,
        clip_norm=1.0,
        learning_rate=rate or (ADAM_RATE if adam else RATE),
        noise_multiplier=noise,
        adam=adam,
        smoothing=sigma if "LS" in method else 0.0,
        decay_at=10_000,
        tensorflow=True,
        n_test=preset.n_test,
    )


def planned(preset: Preset) -> list[Job]:
    """Return the jobs of all panels without repetition, starting with those of the main claim."""
    main = [job(method, preset, noise) for noise, method in itertools.product(preset.noises[::-1], METHODS)]
    others = [job("DP-LSSGD", preset, LARGE_NOISE, sigma=sigma) for sigma in preset.sigmas if sigma]
    others += [job(m, preset, LARGE_NOISE, rate) for rate, m in itertools.product(preset.rates, METHODS[:2])]
    seeded = [replace(each, seed=seed) for seed in range(preset.runs) for each in main]
    seeded += [replace(each, seed=seed) for seed in range(preset.few_runs) for each in others]
    return list(dict.fromkeys(seeded))


def setting(each: Job) -> Setting:
    """Return the key of a job's setting."""
    return each.method, each.noise_multiplier or math.nan, each.learning_rate, each.smoothing


def of(groups: Groups, method: str, noise: float = LARGE_NOISE, rate: float | None = None) -> Runs:
    """Return the runs of a method with the default sigma."""
    return groups[setting(job(method, QUICK, noise, rate))]


def fall(runs: Runs) -> float:
    """Return the difference between the best and the final mean accuracy."""
    _, mean, _ = runs.curve
    return float(mean.max() - mean[-1])


def oscillation(runs: Runs) -> float:
    """Return the typical change of accuracy between measurements in the second half of the steps, over all runs."""
    halves = [np.array(outcome.accuracy[len(outcome.accuracy) // 2 :]) for outcome in runs.outcomes]
    return float(np.mean([np.abs(np.diff(half)).mean() for half in halves]))


# ------------------------------------------------------------------------------------------------------------- tables


def row(label: list[str], runs: Runs) -> list[str]:
    """Return a row of the tables: final accuracy, last quarter, best accuracy, and the fall from best to final."""
    accuracies = [spread.show(2) for spread in (runs.last, runs.late, runs.best)]
    return [*label, str(runs.last.runs), *accuracies, f"{fall(runs):.2f}", f"{oscillation(runs):.2f}"]


def show_settings(groups: Groups, preset: Preset) -> None:
    """Print figures 5 and 7 as tables."""
    columns = ["runs", "accuracy in the end, %", "last quarter, %", "best look, %", "fall", "oscillation"]
    rows = [
        row([f"{noise:g}", method, f"{of(groups, method, noise).outcomes[0].epsilon:.3f}"], of(groups, method, noise))
        for noise, method in itertools.product(preset.noises, METHODS)
    ]
    print_table("Figure 5: by noise multiplier", ["noise multiplier", "method", "epsilon", *columns], rows)
    left = {sigma: groups["DP-LSSGD" if sigma else "DP-SGD", LARGE_NOISE, RATE, sigma] for sigma in preset.sigmas}
    print_table(
        f"Figure 7, left: by sigma, noise multiplier {LARGE_NOISE:g} (0 is DP-SGD)",
        ["sigma", *columns],
        [row([f"{sigma:g}"], runs) for sigma, runs in left.items()],
    )
    middle = itertools.product(preset.rates, METHODS[:2])
    print_table(
        f"Figure 7, middle: by learning rate, noise multiplier {LARGE_NOISE:g}",
        ["learning rate", "method", *columns],
        [row([f"{rate:g}", method], of(groups, method, rate=rate)) for rate, method in middle],
    )


def spent(groups: Groups) -> dict[float, dict[int, float]]:
    """Return epsilon by noise multiplier and step, at the points of the curves. It is the same for all methods."""
    first = {noise: runs for (_, noise, _, _), runs in groups.items()}
    return {
        noise: {steps: plan_of(runs.job, steps).guarantee(DELTA).epsilon for steps in runs.outcomes[0].steps}
        for noise, runs in first.items()
    }


def best_within(groups: Groups, epsilons: dict[float, dict[int, float]], method: str, epsilon: float) -> float:
    """Return the best mean accuracy of a method over settings and numbers of steps within an epsilon, or nan."""
    found = [
        float(mean)
        for (name, noise, _, _), runs in groups.items()
        for steps, mean in zip(*runs.curve[:2], strict=True)
        if name == method and epsilons[noise][int(steps)] <= epsilon
    ]
    return max(found, default=math.nan)


def show_right(groups: Groups, epsilons: dict[float, dict[int, float]]) -> list[dict[str, Any]]:
    """Print figure 7's right panel, and return its points."""
    kept = [
        {"epsilon": epsilon, "paper_gain": gain}
        | {method: best_within(groups, epsilons, method, epsilon) for method in METHODS}
        for epsilon, gain in PAPER_GAINS.items()
    ]
    shown = [
        [
            f"{each['epsilon']:g}",
            *(f"{each[method]:.2f}" for method in METHODS),
            f"{each['DP-LSSGD'] - each['DP-SGD']:+.2f}",
            f"{each['paper_gain']:+.1f}",
        ]
        for each in kept
    ]
    columns = ["epsilon at most", *METHODS, "DP-LSSGD above DP-SGD", "(paper)"]
    most = max(spent for by_steps in epsilons.values() for spent in by_steps.values())
    title = f"Figure 7, right: best accuracy over settings and steps, %; no run here spends more than {most:.2g}"
    print_table(title, columns, shown)
    return kept


def claims(groups: Groups, preset: Preset) -> list[dict[str, Any]]:
    """Return the paper's claims about large noise, and whether these runs agree, judged by their last quarters."""
    plain, smooth, adam, smooth_adam = (of(groups, method) for method in METHODS)
    by_rate = [[of(groups, method, rate=rate).late.mean for method in METHODS[:2]] for rate in preset.rates]
    by_seed = zip(plain.outcomes, smooth.outcomes, strict=True)
    told = {
        "DP-LSSGD is above DP-SGD": plain.late.mean < smooth.late.mean,
        EVERY_SEED: all(one.last < other.last for one, other in by_seed),
        "DP-SGD falls from its best": fall(plain) > 0.5,
        "DP-LSSGD falls less": fall(smooth) < fall(plain),
        "DP-LSSGD oscillates less": oscillation(smooth) < oscillation(plain),
        "DP-Adam is above DP-LSSGD": smooth.late.mean < adam.late.mean,
        "DP-LSAdam is above DP-Adam": adam.late.mean < smooth_adam.late.mean,
        "DP-LSSGD is above DP-SGD at every learning rate": all(one < other for one, other in by_rate),
    }
    return [{"claim": claim, "holds": bool(holds)} for claim, holds in told.items()]


def show_claims(told: list[dict[str, Any]]) -> None:
    """Print the claims."""
    rows = [
        [each["claim"], "" if each["claim"] == EVERY_SEED else "yes", "yes" if each["holds"] else "no"] for each in told
    ]
    print_table(f"At noise multiplier {LARGE_NOISE:g}", ["", "paper", "privet"], rows)


# -------------------------------------------------------------------------------------------------------------- plots


def plot(groups: Groups, epsilons: dict[float, dict[int, float]], preset: Preset, name: str) -> None:
    """Draw figure 5, with epsilon dashed, and figure 7's left and middle panels."""
    figure = Figure(figsize=(5 * (len(preset.noises) + 2), 4), layout="constrained")
    *noisy, left, middle = figure.subplots(1, len(preset.noises) + 2, sharey=True)
    for panel, noise in zip(noisy, preset.noises, strict=True):
        for method in METHODS:
            draw(panel, of(groups, method, noise), method)
        twin = panel.twinx()
        twin.plot([*epsilons[noise]], [*epsilons[noise].values()], "r--", linewidth=1)
        twin.set_ylabel("epsilon (dashed)")
        panel.set_title(f"figure 5: noise multiplier {noise:g}")
    for sigma in preset.sigmas:
        draw(left, groups["DP-LSSGD" if sigma else "DP-SGD", LARGE_NOISE, RATE, sigma], f"sigma = {sigma:g}")
    for place, rate in enumerate(preset.rates):
        for method, style in zip(METHODS[:2], ("--", "-"), strict=True):
            runs = of(groups, method, rate=rate)
            draw(middle, runs, f"{method}, rate {rate:g}", linestyle=style, color=f"C{place}")
    left.set_title("figure 7, left: by sigma")
    middle.set_title("figure 7, middle: by learning rate")
    for panel in (*noisy, left, middle):
        panel.set_xlabel("step")
        panel.legend(fontsize=8)
    noisy[0].set_ylabel("test accuracy, %")
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the experiment, print and write its results, and return them."""
    chosen = options(__doc__, arguments)
    preset = {"standard": STANDARD, "full": FULL, "quick": QUICK}[chosen.preset]
    preset = replace(preset, runs=chosen.runs or preset.runs)
    data_file("mnist.npz")
    console.print(preset.in_words())
    begin = time.perf_counter()
    outcomes = run_all(planned(preset), chosen.workers)
    groups = grouped(outcomes, setting)
    epsilons = spent(groups)
    show_settings(groups, preset)
    results = {
        "preset": asdict(preset),
        "settings": [runs.summary() for runs in groups.values()],
        "figure7_right": show_right(groups, epsilons),
        "claims": claims(groups, preset),
        "processor_seconds": round(sum(outcome.seconds for outcome in outcomes.values())),
        "seconds": round(time.perf_counter() - begin),
    }
    show_claims(results["claims"])
    console.print(f"{results['processor_seconds']} s of one core, {results['seconds']} s in all")
    name = "dp_lssgd_cnn" + ("" if preset.name == "standard" else f"_{preset.name}")
    write_results(name, results)
    plot(groups, epsilons, preset, name)
    return results


if __name__ == "__main__":
    main()
