"""The theorems of "Privacy Amplification by Iteration" in numbers, beside those of privet.

python experiments/iteration_curves.py [--runs 20] [--quick]

The paper has no experiments. Its figures here follow from its statements.

1. Epsilon against the number of epochs (Theorem 35): n = 1000, noise of 4 times the Lipschitz constant, delta 1e-5.
2. Epsilon by place in the order (Theorems 23, 30 and 35), of the same runs.
3. Excess population loss against the number m of public records (Corollary 31), at epsilon 1, delta 1e-5: logistic
   regression in ten dimensions on rows of norm 1, drawn from the model itself so that the minimum is known. Each run
   has its own 10,000 records, the last m of them public. The corollary lacks a factor of sqrt(2) in its noise; privet's
   is proportional to 1/sqrt(m + 1) exactly. The paper's runs begin at a random step (Skip-PNSGD). These take all steps
   of a known order, since privet has no secret skip with public records. Steps have the paper's size, sqrt(8) R /
   sqrt(n (L^2 + d sigma^2)) up to 2/beta, in a ball of radius R = 10 that holds the minimum. Steps of a fifth of that
   size are run too, a factor found by trials on other records of the model: the paper's steps are for the worst case.
   Excess is measured on 100,000 further records, beside that of zero weights and of training on the public records
   alone. A run draws the same records and the same noise, scaled, for every m.
4. Noise for k tasks on one dataset (Theorem 32): n = 1000, epsilon 1 (the end of the theorem's range), delta 1e-6.

Adjacency is replace-one throughout, and losses are 1-Lipschitz: one replacement moves a gradient by 2.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize
from support import Spread, console, print_table, save_figure, write_results

from privet import PrivateLogisticRegression
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import Descent, FixedOrder, GradientPlan, RandomStop, SecretOrder
from privet.privacy import Budget, NoiseSource, gdp_epsilon, gdp_mu, zcdp_epsilon
from privet.privacy.iteration import per_record_epsilon
from privet.solvers import Problem, Run, descent_of, projected_sgd

N, NOISE, DELTA = 1000, 4.0, 1e-5
LAST_ONLY: dict[str, Any] = {"clip_norm": 1.0, "release": "last", "descent": Descent(step_size=1.0, smoothness=1.0)}
TOLD_EPOCHS = (1, 10, 100, 1000)
# Independently computed figures for 1, 10, 100 and 1000 epochs, digit by digit.
EXPECTED = {
    "composition": ("1.99", "7.51", "33.1", "191.5"),
    "theorem_35": ("3.643",) * 4,
    "renyi": ("2.166", "2.177", "2.282", "3.188"),
    "last": ("1.993", "2.003", "2.101", "2.942"),
    "first": (".045", ".160", ".561", "1.993"),
    "secret_order": (".937", ".943", "1.007"),
}


def plain_conversion(rho: float, delta: float) -> float:
    """Return the minimum of rho a + ln(1/delta)/(a - 1) over orders a: the paper's Lemma 14."""
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def visited_rho(epochs: int, place: int) -> float:
    """Return rho for a divergence of rho a at order a, by the proof of Theorem 35, for any number of epochs."""
    return 2 / NOISE**2 * ((epochs - 1) / N + 1 / (N - place + 1))


# ------------------------------------------------------------------------------------------------------ 1: epochs


def epochs_part(quick: bool) -> list[dict[str, float]]:
    """Return epsilon by every analysis, for 1 to n epochs, and print those that have an expected value."""
    numbers = np.geomspace(1, N, 4 if quick else 31).round().astype(int).tolist()
    rows = [epochs_row(number) for number in sorted({*numbers, *TOLD_EPOCHS})]
    told = {row["epochs"]: row for row in rows if row["epochs"] in TOLD_EPOCHS}
    names = {
        "composition": "all iterates released: composition",
        "theorem_35": "paper: Theorem 35, Lemma 14",
        "paper": "paper: its proof at E epochs, Lemma 14",
        "renyi": "the taut string in RDP, better conversion",
        "last": "privet: the taut string in GDP, last place",
        "first": "privet: first place",
        "secret_order": "privet: secret random order",
    }
    lines, differences, count = [], [], 0
    for key, name in names.items():
        expected = EXPECTED.get(key, ())
        lines.append([name, *(f"{told[epochs][key]:.3f}" for epochs in TOLD_EPOCHS), " ".join(expected)])
        for epochs, text in zip(TOLD_EPOCHS, expected, strict=False):
            count += 1
            if round(told[epochs][key], len(text.split(".")[1])) != float(text):
                differences.append(f"{key} at E = {epochs}: {told[epochs][key]:.6f}, expected {text}")
    title = f"1. Epsilon against epochs E: n = {N}, sigma = {NOISE:g} L, delta = {DELTA:g}"
    print_table(title, ["", *(f"E = {epochs}" for epochs in TOLD_EPOCHS), "expected"], lines)
    agreeing = count - len(differences)
    console.print(f"{agreeing} of {count} figures are the expected ones, rounded. {'; '.join(differences)}")
    closed = 5 * math.sqrt(-math.log(DELTA)) / NOISE
    console.print(f"The paper's closed form, sigma = 5 L sqrt(ln(1/delta))/epsilon, gives {closed:.3f} at E = {N}.\n")
    return rows


def epochs_row(epochs: int) -> dict[str, float]:
    """Return epsilon by every analysis."""
    profile = per_record_epsilon(N, epochs, noise_multiplier=NOISE, delta=DELTA)
    hidden = GradientPlan(SecretOrder(N, epochs), None, noise_multiplier=NOISE, **LAST_ONLY)
    return {
        "epochs": epochs,
        "composition": gdp_epsilon(2 * math.sqrt(epochs) / NOISE, DELTA),
        "theorem_35": plain_conversion(4 / NOISE**2, DELTA),
        "paper": plain_conversion(visited_rho(epochs, N), DELTA),
        "renyi": zcdp_epsilon(visited_rho(epochs, N), DELTA),
        "last": float(profile[-1]),
        "first": float(profile[0]),
        "secret_order": hidden.guarantee(DELTA).epsilon,
    }


# ------------------------------------------------------------------------------------------------------ 2: places


def places_part() -> dict[str, Any]:
    """Return the profile of 1, 10 and 100 epochs, the paper's and privet's."""
    shown = (1, 501, 901, 991, 1000)
    places = np.union1d(N + 1 - np.geomspace(1, N, 61).round().astype(int), shown)
    local = 2 * math.sqrt(2 * math.log(1.25 / DELTA)) / NOISE
    profiles: dict[str, Any] = {
        "places": places.tolist(),
        "theorem_30": (local / np.sqrt(N + 1 - places)).tolist(),
        "epochs": {},
    }
    for epochs in TOLD_EPOCHS[:3]:
        found = per_record_epsilon(N, epochs, noise_multiplier=NOISE, delta=DELTA)
        paper = [plain_conversion(visited_rho(epochs, place), DELTA) for place in places.tolist()]
        profiles["epochs"][str(epochs)] = {"paper": paper, "privet": found[places - 1].tolist(), "mean": found.mean()}
    where = np.searchsorted(places, shown).tolist()
    lines = [["paper: Theorem 30 (one epoch)", *(f"{profiles['theorem_30'][at]:.3f}" for at in where), ""]]
    for epochs, profile in profiles["epochs"].items():
        lines.append([f"paper: Theorem 35's proof, E = {epochs}", *(f"{profile['paper'][at]:.3f}" for at in where), ""])
        figures = [f"{profile['privet'][at]:.3f}" for at in where]
        lines.append([f"privet, E = {epochs}", *figures, f"{profile['mean']:.3f}"])
    columns = ["epsilon of the record at place", *(str(places[at]) for at in where), "mean of all"]
    print_table("2. Epsilon by place in the order, of the same runs", columns, lines)
    return profiles


# ---------------------------------------------------------------------------------------------- 3: public records

BUDGET, DIMENSION, RADIUS = Budget(1.0, DELTA), 10, 10.0
PUBLIC = (0, 1, 3, 10, 30, 100, 300, 1000, 3000)
TRUTH = np.full(DIMENSION, 8 / math.sqrt(DIMENSION))
SHORTER = 5


@dataclass(frozen=True)
class Preset:
    """How much is run."""

    runs: int = 20
    n: int = 10_000
    held_out: int = 100_000
    public: tuple[int, ...] = PUBLIC


QUICK = Preset(runs=2, n=1000, held_out=5000, public=(0, 10, 100))


def drawn(n: int, generator: np.random.Generator) -> Problem:
    """Return records of the model: random directions, and labels with the odds that TRUTH gives."""
    X = generator.standard_normal((n, DIMENSION))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (generator.random(n) * (1 + np.exp(-X @ TRUTH)) < 1).astype(np.float64)
    return Problem(Logistic(), L2(0.0), BoundedRows(X, 1.0), y)


def descended(problem: Problem, public: int, noise: float, shorter: float, seed: int) -> NDArray[Any]:
    """Return the last iterate with the paper's steps for this noise, or shorter ones."""
    n, lipschitz = problem.rows.n, problem.lipschitz
    step = RADIUS * math.sqrt(8 / (n * (lipschitz**2 + DIMENSION * noise**2)))
    descent = descent_of(problem, min(step, 2 / problem.smoothness) / shorter, 2 * RADIUS)
    sampler = FixedOrder(n - public, public=public)
    if noise > 0:
        plan = GradientPlan.for_budget(BUDGET, sampler=sampler, clip_norm=lipschitz, release="last", descent=descent)
        if not math.isclose(plan.noise_std, noise, rel_tol=1e-3):  # the plan also pays for rounding
            raise AssertionError(f"the plan's noise is {plan.noise_std}, not {noise}")
    else:  # practically no noise, for comparison
        plan = GradientPlan(sampler, None, lipschitz, 1e-3, release="last", descent=descent, delta=DELTA)
    return projected_sgd(problem, Run(plan, NoiseSource(seed))).weights


def fitted_openly(problem: Problem, first: int) -> NDArray[Any]:
    """Return the penalised minimiser on the records from ``first`` on, without privacy."""
    part = Problem(Logistic(), L2(0.0), problem.rows.take(slice(first, None)), problem.targets[first:])
    alpha = DIMENSION / (RADIUS**2 * part.rows.n)

    def both(weights: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        gradient = part.objective.gradient_sum(weights, part.rows, part.targets, math.inf) / part.rows.n
        return part.value(weights) + alpha / 2 * float(weights @ weights), gradient + alpha * weights

    return np.asarray(minimize(both, part.start(), jac=True, method="L-BFGS-B").x)


def public_part(preset: Preset) -> dict[str, Any]:
    """Return noise and excess loss for each number of public records, and for the methods that use none."""
    generator = np.random.default_rng(2018)
    test = drawn(preset.held_out, generator)
    problems = [drawn(preset.n, generator) for _ in range(preset.runs)]
    least = test.value(TRUTH)

    def excess(weights: Sequence[NDArray[Any]]) -> Spread:
        return Spread.of([test.value(each) - least for each in weights])

    rows = [public_row(problems, m, excess) for m in preset.public]
    full = [
        PrivateLogisticRegression(
            BUDGET.epsilon, DELTA, method="gradient", feature_norm=1.0, fit_intercept=False, random_state=seed
        )
        .fit(problem.rows.scores(np.eye(DIMENSION)), problem.targets)
        .coef_.ravel()
        for seed, problem in enumerate(problems)
    ]
    beside = {
        "zero_weights": excess([np.zeros(DIMENSION)]),
        "full_batch": excess(full),
        "without_noise": excess([descended(each, 0, 0.0, 1.0, seed) for seed, each in enumerate(problems)]),
        "without_noise_shorter": excess([descended(each, 0, 0.0, SHORTER, seed) for seed, each in enumerate(problems)]),
        "minimum": excess([fitted_openly(each, 0) for each in problems]),
    }
    slopes = {key: slope(rows, key) for key in ("excess", "excess_shorter")}
    show_public(preset, rows, beside, slopes)
    return {
        "n": preset.n,
        "runs": preset.runs,
        "least_loss": least,
        "rows": [plain(row) for row in rows],
        "beside": plain(beside),
        "slopes": slopes,
    }


def public_row(problems: Sequence[Problem], m: int, excess: Any) -> dict[str, Any]:
    """Return noise, the paper's bound and the excess loss with m public records."""
    n, lipschitz = problems[0].rows.n, problems[0].lipschitz
    noise = 2 * lipschitz / (gdp_mu(BUDGET) * math.sqrt(m + 1))
    printed = 2 * math.sqrt(math.log(1.25 / DELTA) / m) / BUDGET.epsilon if m else None
    return {
        "public": m,
        "printed_noise": printed,
        "printed_epsilon": gdp_epsilon(2 / (printed * math.sqrt(m + 1)), DELTA) if printed else None,
        "noise": noise,
        "bound": 4 * math.sqrt(2 * (1 + DIMENSION * noise**2) / n) * RADIUS,
        "excess": excess([descended(each, m, noise, 1.0, seed) for seed, each in enumerate(problems)]),
        "excess_shorter": excess([descended(each, m, noise, SHORTER, seed) for seed, each in enumerate(problems)]),
        "public_alone": excess([fitted_openly(each, n - m) for each in problems]) if m else None,
    }


def slope(rows: Sequence[dict[str, Any]], key: str) -> float:
    """Return the exponent of m + 1 that fits the excess best, from m = 10 on: -1/2 is the paper's law."""
    kept = [row for row in rows if row["public"] >= 10]
    return float(np.polyfit(*np.log([(row["public"] + 1, row[key].mean) for row in kept]).T, 1)[0])


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return spreads as [mean, deviation]."""
    return {key: [value.mean, value.std] if isinstance(value, Spread) else value for key, value in values.items()}


def show_public(
    preset: Preset, rows: list[dict[str, Any]], beside: dict[str, Spread], slopes: dict[str, float]
) -> None:
    """Print the table, and the results to compare it with."""
    lines = [
        [
            str(row["public"]),
            f"{row['printed_noise']:.3f}" if row["public"] else "",
            f"{row['printed_epsilon']:.3f}" if row["public"] else "",
            f"{row['noise']:.3f}",
            f"{row['bound']:.3f}",
            row["excess"].show(),
            row["excess_shorter"].show(),
            row["public_alone"].show() if row["public"] else "",
        ]
        for row in rows
    ]
    columns = ["m", "paper: noise", "its epsilon", "privet: noise", "paper: bound", "privet: excess", "steps / 5"]
    title = f"3. Excess loss with m of {preset.n:,} records public, epsilon 1, {preset.runs} runs"
    print_table(title, [*columns, "public alone, open"], lines)
    console.print(
        f"Excess falls as (m + 1)^{slopes['excess']:.2f} from m = 10 on, with steps / 5 as "
        f"(m + 1)^{slopes['excess_shorter']:.2f}; the paper's law is -0.5. Zero weights: "
        f"{beside['zero_weights'].mean:.4f}."
    )
    console.print(
        f"Full-batch noisy gradient descent (PrivateLogisticRegression, method gradient) at the same budget, no record "
        f"public: {beside['full_batch'].show()}."
    )
    console.print(
        f"Not private: the same SGD without noise {beside['without_noise'].show()}, with steps / 5 "
        f"{beside['without_noise_shorter'].show()}, the minimum on all records {beside['minimum'].show()}.\n"
    )


# ------------------------------------------------------------------------------------------------------- 4: tasks

TASKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
TASK_BUDGET = Budget(1.0, 1e-6)


def tasks_part(quick: bool) -> list[dict[str, float]]:
    """Return the noise that k tasks need by each analysis, relative to the Lipschitz constant."""
    rows = [tasks_row(tasks) for tasks in (TASKS[::3] if quick else TASKS)]
    columns = ["tasks", "paper: Theorem 32", "its epsilon, by privet", "known order, composed", "privet: secret stop"]
    keys = ("theorem_32", "theorem_32_epsilon", "known_order", "secret_stop")
    lines = [[str(row["tasks"]), *(f"{row[key]:.3f}" for key in keys), f"{row['ratio']:.2f}"] for row in rows]
    title = f"4. Noise sigma/L of k tasks on {N} records, epsilon 1, delta 1e-6"
    print_table(title, [*columns, "paper / privet"], lines)
    return rows


def tasks_row(tasks: int) -> dict[str, float]:
    """Return the noise for one k by each analysis."""
    log = -math.log(TASK_BUDGET.delta)
    paper = 4 * math.sqrt(max(2 * tasks * math.log(N) / N, 2 * log) * log) / TASK_BUDGET.epsilon
    same = GradientPlan(RandomStop(N), None, noise_multiplier=paper, tasks=tasks, **LAST_ONLY)
    known, secret = (
        GradientPlan.for_budget(TASK_BUDGET, sampler=sampler, tasks=tasks, **LAST_ONLY).noise_multiplier
        for sampler in (FixedOrder(N), RandomStop(N))
    )
    return {
        "tasks": tasks,
        "theorem_32": paper,
        "theorem_32_epsilon": same.guarantee(TASK_BUDGET.delta).epsilon,
        "known_order": known,
        "secret_stop": secret,
        "ratio": paper / secret,
    }


# --------------------------------------------------------------------------------------------------------- figure


def plot(results: dict[str, Any], name: str) -> None:
    """Draw the four parts."""
    figure = Figure(figsize=(12, 9))
    (epochs, places), (public, tasks) = figure.subplots(2, 2)
    curves = {
        "composition": ("all iterates: composition", "C7-"),
        "theorem_35": ("paper: Theorem 35", "C3--"),
        "paper": ("paper: its proof at E", "C3-"),
        "renyi": ("taut string, RDP", "C1-"),
        "last": ("privet: last place", "C0-"),
        "secret_order": ("privet: secret order", "C2-"),
        "first": ("privet: first place", "C0:"),
    }
    for key, (label, style) in curves.items():
        epochs.plot([row["epochs"] for row in results["epochs"]], [row[key] for row in results["epochs"]], style)
        epochs.lines[-1].set_label(label)
    epochs.set(xscale="log", yscale="log", xlabel="epochs", ylabel="epsilon", title="1. Epochs")

    left = N + 1 - np.asarray(results["places"]["places"])
    for colour, (number, profile) in enumerate(results["places"]["epochs"].items()):
        places.plot(left, profile["privet"], f"C{colour}-", label=f"privet, E = {number}")
        places.plot(left, profile["paper"], f"C{colour}--", label=f"paper, E = {number}")
    places.invert_xaxis()
    places.set(xscale="log", yscale="log", ylabel="epsilon", title="2. Place in the order")
    places.set_xlabel("steps from the record's to the end of a pass (1: last place)")

    rows = results["public"]["rows"]
    kept = [row["public"] + 1 for row in rows]
    public.plot(kept, [row["bound"] for row in rows], "C3--", label="paper: bound, noise repaired")
    public.plot(kept, [row["noise"] for row in rows], "C7:", label="noise: 1/sqrt(m + 1)")
    measured = {"excess": "privet: excess", "excess_shorter": "privet, steps / 5", "public_alone": "public alone, open"}
    for (key, label), style in zip(measured.items(), ("C0o-", "C2o-", "C1^:"), strict=True):
        shown = [(row["public"] + 1, *row[key]) for row in rows if row[key]]
        public.errorbar(*zip(*shown, strict=True), fmt=style, label=label, capsize=2, markersize=4)
    full = results["public"]["beside"]["full_batch"][0]
    public.axhline(full, color="C4", label="full-batch noisy descent, m = 0")
    public.set(xscale="log", yscale="log", ylabel="excess loss (noise: sigma/L)", title="3. Public records")
    public.set_xlabel("m + 1")

    known = {"theorem_32": ("paper: Theorem 32", "C3--"), "known_order": ("known order, composed", "C7-")}
    for key, (label, style) in (known | {"secret_stop": ("privet: secret stop", "C0-")}).items():
        tasks.plot([row["tasks"] for row in results["tasks"]], [row[key] for row in results["tasks"]], style)
        tasks.lines[-1].set_label(label)
    tasks.set(xscale="log", yscale="log", xlabel="tasks", ylabel="sigma/L", title="4. Tasks at one budget")
    for axis in (epochs, places, public, tasks):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.suptitle("Privacy amplification by iteration: the paper and privet")
    figure.tight_layout()
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, help="runs of part 3, 20 by default")
    parser.add_argument("--quick", action="store_true", help="two runs of 1,000 records in part 3, fewer points")
    chosen = parser.parse_args(arguments)
    preset = QUICK if chosen.quick else Preset(runs=chosen.runs or Preset.runs)
    begin = time.perf_counter()
    results = {
        "quick": chosen.quick,
        "epochs": epochs_part(chosen.quick),
        "places": places_part(),
        "public": public_part(preset),
        "tasks": tasks_part(chosen.quick),
    }
    results["seconds"] = round(time.perf_counter() - begin)
    console.print(f"{results['seconds']} s in all")
    name = "iteration_curves" + ("_quick" if chosen.quick else "")
    write_results(name, results)
    plot(results, name)
    return results


if __name__ == "__main__":
    main()
