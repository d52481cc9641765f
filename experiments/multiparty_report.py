"""Tables, the results page and the plots of experiments/multiparty.py."""

import re
from collections.abc import Sequence
from typing import Any

import multiparty_noise
from matplotlib.figure import Figure
from multiparty_methods import BASELINES, CENTRAL, DESCENTS, METHODS, MPC_GRAD, MPC_OUT, PATHAK
from support import console, print_table, save_figure

from privet.privacy import Budget, gdp_epsilon, gdp_mu
from privet.privacy.analyses.gaussian import gdp_delta

# What the chapter's text says about its figures: optimality gap and loss of accuracy (or mean squared error).
PAPER = {
    ("KDD Cup 99", MPC_GRAD): "order of 1e-3, 1e-4 (m = 1,000)",
    ("KDD Cup 99", MPC_OUT): "the same range (m = 1,000)",
    ("Adult", MPC_GRAD): "order of 1e-2, 1e-4 (any m)",
    ("Adult", MPC_OUT): "worse with fewer rows each",
    ("Bike", MPC_GRAD): "KDD Cup 98: order of 1e-3, 1e-2 (m = 1,000)",
    ("Bike", MPC_OUT): "KDD Cup 98: worse with fewer rows each",
}
COLOURS = {method: f"C{place}" for place, method in enumerate(METHODS)}


def show(results: dict[str, Any]) -> None:
    """Print one table per data set, and how the targets were met."""
    for dataset, lines, columns in tables(results["rows"]):
        print_table(f"{dataset}: optimality gap / {measure_of(results['rows'], dataset)}", columns, lines)
    for line in findings(results):
        console.print(line, markup=False)


def tables(rows: Sequence[dict[str, Any]]) -> list[tuple[str, list[list[str]], list[str]]]:
    """Return the lines and headings of a table for each data set."""
    found = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        mine = [row for row in rows if row["dataset"] == dataset]
        counts = list(dict.fromkeys(row["parties"] for row in mine))
        lines = []
        for method in METHODS:
            cells = [row for row in mine if row["method"] == method]
            lines.append([method, PAPER.get((dataset, method), ""), *(_cell(row) for row in cells)])
        first = [next(row for row in mine if row["parties"] == count) for count in counts]
        zero = [f"{row['gap_of_zero_weights']:.3g} / {row['loss_of_zero_weights']:.3g}" for row in first]
        lines.append(["w = 0", "", *zero])
        found.append((dataset, lines, ["method", "the chapter says", *(f"{count:,} parties" for count in counts)]))
    return found


def measure_of(rows: Sequence[dict[str, Any]], dataset: str) -> str:
    """Return the name of the measure on the test part."""
    is_regression = next(row["is_regression"] for row in rows if row["dataset"] == dataset)
    return "mean squared error added" if is_regression else "accuracy lost"


def _cell(row: dict[str, Any]) -> str:
    gap, loss = (f"{row[name]['mean']:.3g} ± {row[name]['std']:.1g}" for name in ("gap", "loss"))
    knobs = row["knobs"]
    setting = f"T = {knobs['steps']}" if row["method"] in DESCENTS else f"λ = {knobs['alpha']:g}"
    mark = "†" if row["epsilon"] == 0 else ""
    return f"{gap} / {loss} ({setting}, ε = {row['epsilon']:.3g}{mark})"


def why_zero(settings: dict[str, Any], parties: int = 100) -> str:
    """Return why the epsilon of Pathak et al. is 0."""
    delta = settings["delta"]
    mu = gdp_mu(Budget(settings["epsilon"], delta))
    return (
        f"† This is not a misprint. {PATHAK} et al. add to the average of all models the noise that the model of one "
        f"party needs. A record moves the average of m models m times less than its own party's model, so m times less "
        f"noise would do. At ε = {settings['epsilon']:g} and δ = {delta:g}, one party's model is {mu:.3f}-Gaussian-DP, "
        f"and the average of m = {parties} is {mu / parties:.5f}-Gaussian-DP. One record then changes the probability "
        f"of any outcome by at most {gdp_delta(mu / parties, 0.0):.5f}. This is less than δ, so the release is (0, δ)-"
        f"DP: nothing remains for ε to cover. The release is not perfectly private: at δ = 1e-06, its ε is "
        f"{gdp_epsilon(mu / parties, 1e-6):.4f}. The method spends far less than its budget, and is as inaccurate as "
        "that suggests."
    )


def findings(results: dict[str, Any]) -> list[str]:
    """Return in sentences how the targets were met."""
    lines = []
    for row in results["against_central"]:
        unit = "of mean squared error" if row["is_regression"] else "points of accuracy"
        factor = 1 if row["is_regression"] else 100
        lines.append(
            f"{row['dataset']}, {row['parties']:,} parties: {MPC_GRAD} loses {factor * row['lost']:+.3g} "
            f"± {factor * row['spread']:.1g} {unit} against {CENTRAL} with the same steps and budget."
        )
    for method in (MPC_OUT, MPC_GRAD):
        mine = [verdict for verdict in results["verdicts"] if verdict["method"] == method]
        for dataset, parties in dict.fromkeys((verdict["dataset"], verdict["parties"]) for verdict in mine):
            here = [verdict for verdict in mine if (verdict["dataset"], verdict["parties"]) == (dataset, parties)]
            lines.append(f"{dataset}, {parties:,} parties: {method} {_against_baselines(here)}.")
    return lines


def _against_baselines(verdicts: Sequence[dict[str, Any]]) -> str:
    clear = [verdict for verdict in verdicts if verdict["is_better"] and verdict["is_clear"]]
    total = f"is clearly better than the private baselines in {len(clear)} of {len(verdicts)} comparisons"
    names = {"gap": "gap", "loss": "test"}
    doubtful, worse = (
        [
            f"{verdict['baseline']} ({names[verdict['measure']]}, {-verdict['better_by']:+.2g})"
            for verdict in verdicts
            if (verdict["is_better"], verdict["is_clear"]) in kinds
        ]
        for kinds in ({(True, False), (False, False)}, {(False, True)})
    )
    words = [f"within two standard errors of {', '.join(doubtful)}"] if doubtful else []
    words += [f"clearly worse than {', '.join(worse)}"] if worse else []
    return "; ".join([total, *words])


def page(results: dict[str, Any], name: str, explanation: str) -> str:
    """Return the page for docs/results: tables, plots, targets and explanations."""
    rows = results["rows"]
    parts = [
        "# Several parties, one model: joint noise and the methods with which it is compared",
        f"Written by `python experiments/multiparty.py{_flag(results)}`: {results['settings']['told']}. "
        f"{results['seconds']} s. epsilon = {results['settings']['epsilon']:g}, delta = "
        f"{results['settings']['delta']:g}. All private methods are simulated with the exact noise.",
        "Cells: optimality gap on the training part / loss on the test part, mean ± standard deviation over "
        f"{results['settings']['seeds']} seeds of the noise; in brackets the steps or the lambda during training, and "
        "the epsilon that is really spent at that delta.",
    ]
    for dataset, lines, columns in tables(rows):
        parts += [f"## {dataset}: optimality gap / {measure_of(rows, dataset)}", _markdown(columns, lines)]
        parts.append(f"![{dataset}]({figure_name(name, dataset)}.png)")
    if any(row["epsilon"] == 0 for row in rows):
        parts.append(why_zero(results["settings"]))
    parts += ["## How the targets were met", "\n".join(f"- {line}" for line in findings(results))]
    parts.append(
        f"Private baselines: {', '.join(BASELINES)}, in both measures. A comparison is clear if it is by more than "
        "two standard errors. In brackets: the result of the protocol minus that of the baseline; lower is better."
    )
    lines61 = [multiparty_noise.cells(line) for line in multiparty_noise.table()]
    parts += [f"## {multiparty_noise.TITLE}", _markdown(multiparty_noise.HEADINGS, lines61)]
    parts.append((multiparty_noise.__doc__ or "").split("\n\n", 1)[1].strip())
    parts += ["## How to read it", explanation]
    return "\n\n".join(parts) + "\n"


def _flag(results: dict[str, Any]) -> str:
    return "" if results["preset"] == "default" else f" --{results['preset']}"


def _markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    table = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def figure_name(name: str, dataset: str) -> str:
    """Return the file name of a data set's plot."""
    return f"{name}_{re.sub('[^a-z0-9]+', '', dataset.lower())}"


def plot(rows: Sequence[dict[str, Any]], name: str) -> None:
    """Draw one plot per data set: gap and loss against steps, with one column per number of parties."""
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        mine = [row for row in rows if row["dataset"] == dataset]
        counts = list(dict.fromkeys(row["parties"] for row in mine))
        figure = Figure(figsize=(4.5 * len(counts), 8), layout="constrained")
        panels = figure.subplots(2, len(counts), squeeze=False)
        for column, parties in enumerate(counts):
            here = [row for row in mine if row["parties"] == parties]
            for place, measure in enumerate(("gap", "loss")):
                _panel(panels[place][column], here, measure)
            rows_each = here[0]["rows_each"]
            panels[0][column].set_title(f"{dataset}, {parties:,} parties, {rows_each} row{'s' * (rows_each > 1)} each")
        panels[0][0].set_ylabel("optimality gap")
        panels[1][0].set_ylabel(measure_of(rows, dataset))
        panels[0][0].legend(fontsize=7)
        save_figure(figure, figure_name(name, dataset))


def _panel(panel: Any, rows: Sequence[dict[str, Any]], measure: str) -> None:
    longest = max(row["curve"]["steps"][-1] for row in rows)
    for row in rows:
        steps, values = row["curve"]["steps"], row["curve"][measure]
        if len(steps) == 1:
            steps, values = [0, longest], values * 2  # Noise was added once.
        style = ":" if row["method"] == CENTRAL else "--" if row["method"] not in (MPC_GRAD, MPC_OUT) else "-"
        panel.plot(steps, values, style, color=COLOURS[row["method"]], label=row["method"], lw=1.5)
    if measure == "gap":
        panel.set_yscale("log")
    else:
        panel.set_yscale("symlog", linthresh=1e-3)
    panel.set_xlabel("steps")
