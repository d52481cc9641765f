"""Table 1 of "Privacy Amplification by Iteration": four methods of one pass, for one task and for k tasks.

python experiments/iteration_table1.py [--quick]

The table of the paper has rates only. Here its columns are numbers, for logistic regression in ten dimensions on the
model of iteration_curves.py:

- the noise per step, in Lipschitz constants, that k tasks on the same n records need together, from privet's plans;
- the local epsilon of one task, against whoever sees the state right after a record's step;
- the excess population loss of one of the k tasks, beside that of zero weights and of the same SGD without noise.

The methods: noisy SGD that samples a record per step with replacement and releases all iterates; noisy SGD in a known
order that releases all iterates, each record being used once; one pass of SGD with noise on its result; and the
paper's method, a pass in a known order that stops at a secret random step and releases only the last iterate
(Stop-PNSGD). The first two and the third release the mean of the iterates, the paper's method its last one. Steps have
the paper's size, sqrt(8) R / sqrt(n (L^2 + d sigma^2)) up to 2/beta, a fifth and a 25th of it; the best of the three
is shown for every method. Adjacency is replace-one.
"""

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from iteration_curves import DIMENSION, RADIUS, TRUTH, drawn
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import Spread, print_table, save_figure, write_results

from privet.plans import Descent, FixedOrder, GradientPlan, OneUniform, RandomStop
from privet.privacy import Budget, gaussian_epsilon, gdp_mu

DELTA = 1e-6
SAMPLED, LOCAL, OUTPUT, THEIRS = "noisy SGD, sampled", "noisy SGD", "output perturbation", "the paper's: secret stop"
METHODS = (SAMPLED, LOCAL, OUTPUT, THEIRS)
SHORTER = (1, 5, 25)
SMOOTHNESS, LIPSCHITZ = 0.25, 1.0  # of the logistic loss on rows of norm 1


def noise_of(method: str, budget: Budget, n: int, tasks: int) -> float:
    """Return the noise of a step in Lipschitz constants; for output perturbation, that of the result per step size."""
    mu = gdp_mu(budget)
    if method in (LOCAL, OUTPUT):  # one Gaussian release of sensitivity 2 per task
        return 2 * math.sqrt(tasks) / mu
    if method == SAMPLED:
        return GradientPlan.for_budget(
            budget, sampler=OneUniform(n), steps=n, clip_norm=1.0, tasks=tasks
        ).noise_multiplier
    descent = Descent(step_size=1.0, smoothness=1.0)
    sampler = RandomStop(n)
    plan = GradientPlan.for_budget(budget, sampler=sampler, tasks=tasks, clip_norm=1.0, release="last", descent=descent)
    return plan.noise_multiplier


def local_epsilon(method: str, noise: float, n: int) -> float:
    """Return the epsilon of one task against whoever sees the state after each of a record's steps."""
    if method == OUTPUT:
        return math.inf
    if method == SAMPLED:  # in the worst case the record is drawn in every step
        return gaussian_epsilon(2 * math.sqrt(n), noise, DELTA)
    plan = GradientPlan(
        FixedOrder(n), None, 1.0, noise, release="last", descent=Descent(1.0, smoothness=1.0), delta=DELTA
    )
    local = plan.guarantee().local
    if local is None:
        raise AssertionError("A pass with one record per step has a local guarantee.")
    return local.epsilon


def trained(method: str, X: NDArray[Any], y: NDArray[Any], noise: float, shorter: int, seed: int) -> NDArray[Any]:
    """Return the released weights of all runs, one row each. X has one table of records per run."""
    rng = np.random.default_rng(seed)
    runs, n, d = X.shape
    per_step = 0.0 if method == OUTPUT else noise
    step = RADIUS * math.sqrt(8 / (n * (LIPSCHITZ**2 + d * per_step**2)))
    step = min(step, 2 / SMOOTHNESS) / shorter
    order = rng.integers(0, n, n) if method == SAMPLED else np.arange(n)
    stops = rng.integers(1, n + 1, runs) if method == THEIRS else np.full(runs, n)
    weights, total, last = np.zeros((runs, d)), np.zeros((runs, d)), np.zeros((runs, d))
    for number, place in enumerate(order, 1):
        rows = X[:, place]
        errors = 1 / (1 + np.exp(-np.einsum("rd,rd->r", rows, weights))) - y[:, place]
        gradient = errors[:, None] * rows + (per_step * rng.standard_normal((runs, d)) if per_step else 0.0)
        weights = weights - step * gradient
        weights *= np.minimum(1.0, RADIUS / np.maximum(np.linalg.norm(weights, axis=1), 1e-300))[:, None]
        total += weights
        last[stops == number] = weights[stops == number]
    if method == THEIRS:
        return last
    mean: NDArray[Any] = total / n
    return mean + (step * noise * rng.standard_normal((runs, d)) if method == OUTPUT else 0.0)


def study(n: int, runs: int, epsilons: Sequence[float], tasks: Sequence[int], held_out: int) -> dict[str, Any]:
    """Return the numbers of every method, epsilon and number of tasks, and those to compare them with."""
    generator = np.random.default_rng(2018)
    test = drawn(held_out, generator)
    least = test.value(TRUTH)
    problems = [drawn(n, generator) for _ in range(runs)]
    X = np.array([problem.rows.scores(np.eye(DIMENSION)) for problem in problems])
    y = np.array([problem.targets for problem in problems])

    def excess(method: str, noise: float) -> dict[str, Any]:
        found = {}
        for shorter in SHORTER:
            weights = trained(method, X, y, noise, shorter, seed=1)
            spread = Spread.of([test.value(each) - least for each in weights])
            found[f"steps / {shorter}"] = [spread.mean, spread.std]
        return {"excess": found, "best": min(mean for mean, _ in found.values())}

    rows = []
    for epsilon in epsilons:
        for method in METHODS:
            for number in tasks:
                noise = noise_of(method, Budget(epsilon, DELTA), n, number)
                local = local_epsilon(method, noise, n) if number == 1 else None
                row = {"epsilon": epsilon, "method": method, "tasks": number, "noise": noise, "local_epsilon": local}
                rows.append(row | excess(method, noise))
    return {
        "n": n,
        "runs": runs,
        "zero_weights": test.value(np.zeros(DIMENSION)) - least,
        "without_noise": excess(LOCAL, 0.0),
        "rows": rows,
    }


def plot(results: dict[str, Any], name: str) -> None:
    """Draw noise and excess loss against the number of tasks."""
    epsilons = list(dict.fromkeys(row["epsilon"] for row in results["rows"]))
    figure = Figure(figsize=(5 * len(epsilons), 8), layout="constrained")
    panels = figure.subplots(2, len(epsilons), squeeze=False)
    for column, epsilon in enumerate(epsilons):
        for method in METHODS:
            mine = [row for row in results["rows"] if (row["epsilon"], row["method"]) == (epsilon, method)]
            tasks = [row["tasks"] for row in mine]
            panels[0, column].loglog(tasks, [row["noise"] for row in mine], ".-", label=method)
            panels[1, column].loglog(tasks, [row["best"] for row in mine], ".-", label=method)
        panels[1, column].axhline(results["zero_weights"], color="grey", linestyle=":", label="zero weights")
        panels[0, column].set(title=f"epsilon {epsilon:g}", xlabel="tasks", ylabel="noise / Lipschitz constant")
        panels[1, column].set(xlabel="tasks", ylabel="excess loss, the best of three step sizes")
    panels[1, 0].legend(fontsize=8)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 records, two runs, in seconds")
    is_quick = parser.parse_args(arguments).quick
    begin = time.perf_counter()
    sizes = (200, 2, (1.0,), (1, 5), 2000) if is_quick else (10_000, 10, (1.0, 4.0), (1, 10, 100), 50_000)
    results = study(*sizes)
    lines = [
        [f"{row['epsilon']:g}", row["method"], str(row["tasks"]), f"{row['noise']:.2f}"]
        + ["" if row["local_epsilon"] is None else f"{row['local_epsilon']:.2f}"]
        + [f"{mean:.3f}" for mean, _ in row["excess"].values()]
        for row in results["rows"]
    ]
    columns = ["epsilon", "method", "tasks", "noise", "local epsilon", "excess loss", "steps / 5", "steps / 25"]
    print_table(f"Table 1 in numbers: n = {results['n']:,}, delta 1e-6", columns, lines)
    for row in results["rows"]:
        if row["local_epsilon"] == math.inf:
            row["local_epsilon"] = "infinite"  # JSON has no infinity
    results["seconds"] = round(time.perf_counter() - begin)
    name = "iteration_table1" + ("_quick" if is_quick else "")
    write_results(name, results)
    plot(results, name)
    return results


if __name__ == "__main__":
    main()
