"""Table 3 of "Efficient Private ERM for Smooth Objectives": error and time of private empirical risk minimisation.

Logistic regression on BANK, ADULT and CreditCard with mu 0 and 0.1, Huber regression on WINE and BIKE with mu 0 and 0.5
(the penalty is mu/2 ||w||^2), epsilon from 0.1 to 2, delta 0.001, one record replaced. The error is F(w_priv) less
F(w_hat), the minimum, which L-BFGS finds; the norm of the gradient there is kept. The paper's numbers ("ours", and
Bassily et al.) are shown beside four methods, which efficient_erm_methods.py describes. ``gradient`` is compared with
the paper's. ``printed``, the paper's algorithm run here, shows whether the data are on the paper's scale. For mu > 0,
where its noise decides, its errors on the classifications are those of the paper within a factor of 1.5. WINE and BIKE
must have been on other scales: here the error is a quarter of the paper's on WINE, and eight times the paper's on BIKE
for epsilon 0.1 and mu > 0, and also for mu = 0. For mu = 0 everything depends on the number of steps, whose constant
the paper does not state.

What differs from the paper: scales, thresholds and some columns, which it does not state (efficient_erm_data.py). It
prints the logistic loss as log(1 + exp(1 + y<w,x>)), a misprint; here it is log(1 + exp(-y<w,x>)). It averages over 100
runs, as ``--runs 100`` does. Its seconds were measured on its own machine. The rule (centring, 100 steps, an average of
one half, a clip of one half) and the encoding were chosen by trials on these datasets, once for all forty rows. As in
most papers, the privacy cost of these trials is not counted.
"""

import argparse
import itertools
import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from efficient_erm_data import FILES, NAMES, load
from efficient_erm_methods import EPSILONS, SETTINGS, Study, algorithm1, gradient, minimum, sgd
from matplotlib.figure import Figure
from rich.progress import track
from support import Spread, console, data_file, print_table, save_figure, write_results
from threadpoolctl import threadpool_limits

from privet.privacy import Budget

LABELS = {
    "printed": "Alg. 1 printed",
    "output": "privet output",
    "gradient": "privet gradient",
    "sgd": "privet SGD",
}
# Columns: dataset, mu, epsilon; errors of "ours" and of Bassily et al.; seconds of both.
PAPER = """
    BANK 0 0.1 0.3983 2.2552 12.613 518.67
    BANK 0 0.5 0.2231 1.4585 36.796 519.33
    BANK 0 1 0.1459 1.0203 58.305 519.02
    BANK 0 2 0.0838 0.7824 92.501 518.27
    BANK 0.1 0.1 0.2566 0.4829 20.483 518.03
    BANK 0.1 0.5 0.0106 0.409 40.541 519.44
    BANK 0.1 1 0.0025 0.3387 49.311 516.73
    BANK 0.1 2 0.0005 0.2475 57.947 520.17
    ADULT 0 0.1 0.0499 0.6229 23.813 250.5
    ADULT 0 0.5 0.0208 0.6081 69.536 254.14
    ADULT 0 1 0.0122 0.4781 110.2 254.18
    ADULT 0 2 0.0065 0.3691 175.01 253.72
    ADULT 0.1 0.1 3.2039 5.2166 112.09 256.7
    ADULT 0.1 0.5 0.1287 5.1532 193.98 255.36
    ADULT 0.1 1 0.0309 5.1148 229.23 255.69
    ADULT 0.1 2 0.0080 5.1009 264.23 257.23
    CreditCard 0 0.1 0.0293 0.4106 4.9595 190.3
    CreditCard 0 0.5 0.0102 0.422 14.591 190.89
    CreditCard 0 1 0.0053 0.314 22.983 188.67
    CreditCard 0 2 0.0024 0.2708 36.721 188.86
    CreditCard 0.1 0.1 0.3643 1.3271 13.664 190.36
    CreditCard 0.1 0.5 0.0141 1.2973 22.012 189.97
    CreditCard 0.1 1 0.0035 1.2792 25.743 188.81
    CreditCard 0.1 2 0.0008 1.2501 29.256 187.97
    WINE 0 0.1 0.6061 6.1755 0.1672 6.3859
    WINE 0 0.5 0.2487 4.19 0.4328 6.3828
    WINE 0 1 0.1713 3.0972 0.7469 6.4234
    WINE 0 2 0.1110 1.3609 1.1719 6.3016
    WINE 0.5 0.1 1.0842 8.29 0.0922 6.4328
    WINE 0.5 0.5 0.0364 7.9584 0.1437 6.3625
    WINE 0.5 1 0.0101 6.5471 0.1891 6.5391
    WINE 0.5 2 0.0024 5.3811 0.1812 6.4484
    BIKE 0 0.1 5.4659 35.279 0.1531 6.4953
    BIKE 0 0.5 4.0404 30.822 0.4375 6.2375
    BIKE 0 1 3.2768 27.196 0.6922 6.2734
    BIKE 0 2 2.4081 23.865 1.1766 6.3969
    BIKE 0.5 0.1 0.0555 3.077 0.1031 6.5766
    BIKE 0.5 0.5 0.0301 3.0448 0.1578 6.5094
    BIKE 0.5 1 0.0242 2.1792 0.1625 6.4094
    BIKE 0.5 2 0.0232 1.0406 0.1984 6.3625
"""


@dataclass(frozen=True)
class Job:
    """One problem at all epsilons."""

    name: str
    mu: float
    runs: int


def paper_rows() -> dict[tuple[str, float, float], dict[str, float]]:
    """Return Table 3 as printed, by dataset, mu and epsilon."""
    rows = {}
    for line in PAPER.split("\n")[1:-1]:
        name, mu, epsilon, *values = line.split()
        fields = zip(("ours", "bassily", "ours_seconds", "bassily_seconds"), map(float, values), strict=True)
        rows[name, float(mu), float(epsilon)] = dict(fields)
    return rows


def work(job: Job) -> list[dict[str, Any]]:
    """Return the four rows of one problem."""
    data = load(job.name)
    problem = data.problem(job.mu)
    least, gradient_norm = minimum(problem)
    study = Study(data, problem, job.mu, least, job.runs)
    facts = {
        "dataset": job.name,
        "mu": job.mu,
        "n": problem.rows.n,
        "d": problem.rows.dimension,
        "minimum": least,
        "gradient_norm_at_minimum": gradient_norm,
        "error_of_zero_weights": study.error(problem.start()),
    }
    descents = algorithm1(study)
    rows = []
    for epsilon in EPSILONS:
        budget = Budget(epsilon, SETTINGS["delta"])
        outcomes = descents[epsilon] | {"gradient": gradient(study, budget), "sgd": sgd(study, budget)}
        paper = paper_rows()[job.name, job.mu, epsilon]
        found = Spread(**outcomes["gradient"]["error"])
        verdict = {
            "is_below_paper": found.mean < paper["ours"],
            "is_clearly_below_paper": found.mean + 2 * found.std / math.sqrt(found.runs) < paper["ours"],
        }
        rows.append(facts | {"epsilon": epsilon, "paper": paper} | verdict | outcomes)
    return rows


def run_all(jobs: Sequence[Job], workers: int) -> list[dict[str, Any]]:
    """Run the jobs, one thread each, and return their rows."""
    title = f"{len(jobs)} problems"
    if workers == 1:
        with threadpool_limits(1):
            results = [work(job) for job in track(jobs, title, console=console)]
    else:
        with ProcessPoolExecutor(workers, initializer=threadpool_limits, initargs=(1,)) as pool:
            results = list(track(pool.map(work, jobs), title, len(jobs), console=console))
    return list(itertools.chain.from_iterable(results))


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print errors and times."""
    errors, times = [], []
    for row in rows:
        head, paper = [row["dataset"], f"{row['mu']:g}", f"{row['epsilon']:g}"], row["paper"]
        mean = {kind: f"{row[kind]['error']['mean']:.4f}" for kind in LABELS}
        start = [f"{row['error_of_zero_weights']:.4f}", f"{paper['ours']:.4f}", mean["printed"], mean["output"]]
        verdict = [Spread(**row["gradient"]["error"]).show(5), "yes" if row["is_below_paper"] else "NO"]
        errors.append([*head, *start, *verdict, f"{paper['bassily']:.4f}", mean["sgd"]])
        seconds = [f"{row[kind]['seconds']:.3f}" for kind in ("output", "gradient", "sgd")]
        times.append([*head, f"{paper['ours_seconds']:.2f}", f"{paper['bassily_seconds']:.2f}", *seconds])
    head = ["", "mu", "eps"]
    columns = ["w = 0", "paper ours", LABELS["printed"], LABELS["output"], LABELS["gradient"], "below"]
    print_table("Minimisation error", [*head, *columns, "Bassily", LABELS["sgd"]], errors)
    columns = ["paper ours", "Bassily", LABELS["output"], LABELS["gradient"], LABELS["sgd"]]
    print_table("Processor time, s", [*head, *columns], times)


def plot(rows: Sequence[dict[str, Any]], name: str) -> None:
    """Draw errors against epsilon, one panel per problem."""
    problems = list(dict.fromkeys((row["dataset"], row["mu"]) for row in rows))
    figure = Figure(figsize=(2.2 + 1.5 * len(problems), 7), layout="constrained")
    panels = figure.subplots(2, math.ceil(len(problems) / 2), squeeze=False).T.ravel()
    for panel, problem in zip(panels, problems, strict=False):
        some = [row for row in rows if (row["dataset"], row["mu"]) == problem]
        epsilons = [row["epsilon"] for row in some]
        panel.plot(epsilons, [row["paper"]["ours"] for row in some], "k-o", label="paper: ours")
        panel.plot(epsilons, [row["paper"]["bassily"] for row in some], "k:^", label="paper: Bassily et al.")
        for place, (kind, label) in enumerate(LABELS.items()):
            means, stds = ([row[kind]["error"][field] for row in some] for field in ("mean", "std"))
            bars = [np.minimum(stds, 0.9 * np.array(means)), stds]  # a logarithmic axis has no zero
            style = "--" if kind == "printed" else "-"
            panel.errorbar(epsilons, means, bars, label=label, marker="s", ls=style, color=f"C{place}", capsize=3, lw=1)
        panel.set(title=f"{problem[0]}, mu = {problem[1]:g}", xscale="log", yscale="log", xlabel="epsilon")
        panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        panel.minorticks_off()
    panels[0].set_ylabel("minimisation error")
    panels[0].legend(fontsize=7)
    save_figure(figure, name)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, help="runs of each method, a fifth of them of SGD; the paper has 100")
    parser.add_argument("--quick", action="store_true", help="two runs, one process")
    parser.add_argument("--datasets", nargs="+", choices=NAMES, default=list(NAMES))
    chosen = parser.parse_args(arguments)
    for name in chosen.datasets:
        data_file(FILES[name])
    preset, runs = ("quick", 2) if chosen.quick else ("standard", 50)
    runs = chosen.runs or runs
    console.print(f"Preset {preset}, {runs} runs (the paper: 100), {', '.join(chosen.datasets)}")
    problems = dict.fromkeys((name, mu) for name, mu, _ in paper_rows() if name in chosen.datasets)
    begin = time.perf_counter()
    rows = run_all([Job(name, mu, runs) for name, mu in problems], workers=1 if chosen.quick else 2)
    show(rows)
    below, clearly = (sum(row[f"is_{how}_paper"] for row in rows) for how in ("below", "clearly_below"))
    results = {
        "preset": preset,
        "runs": runs,
        "settings": SETTINGS,
        "rows": rows,
        "rows_below_paper": below,
        "rows_clearly_below_paper": clearly,
        "seconds": round(time.perf_counter() - begin),
    }
    console.print(
        f"privet's gradient method errs less than the paper's in {below} of {len(rows)} rows, in {clearly} of them by "
        f"more than two standard errors; {results['seconds']} s in all"
    )
    is_whole = len(problems) == len(NAMES) * 2
    name = "efficient_erm_table3" + ("" if is_whole else "_part") + ("_quick" if chosen.quick else "")
    write_results(name, results)
    plot(rows, name)
    return results


if __name__ == "__main__":
    main()
