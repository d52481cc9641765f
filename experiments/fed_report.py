"""Tables, findings and options of the federated experiments, and the page of all: docs/results/federated.md.

python experiments/fed_report.py

The page is made of the results that lie in docs/results, whatever configuration they are of, and says which it is.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import support
from support import console, print_table, write_results

EXPERIMENTS = {  # title, and what must be known to read the tables
    "fed_logistic": (
        "Logistic regression on MNIST: Table 2, figure 3",
        "Settings of our own were found on validation images taken from the training images, at epsilon 6, and fixed "
        "before these runs; the test images chose nothing. The paper's noise is that of its Theorems 1 and 2 as "
        "printed. It costs a fraction of the epsilon that they state: see the rows of what is spent. Why accuracies "
        "with that noise are above the paper's is not known; first weights are zero here, and the paper's not told.",
    ),
    "fed_cnn": (
        "A CNN on SVHN: Tables 3, 5, 6, H.11 (figure 6)",
        "A subset and, by default, a small network that begins with weights trained on MNIST, also in figure 6, where "
        "the paper begins with random ones. The numbers of clients a round were chosen by trials of one seed. "
        "Validation accuracy without and with smoothing (sigma 1): 100 a round, z = 3, 10 rounds: 47.2, 45.6; 50 a "
        "round, 30 rounds, z = 3: 54.5, 51.1, z = 4: 47.2, 48.7; 20 a round, z = 3: 12.4, 26.9, z = 4: 9.6, 13.9; 10 a "
        "round, z = 3: 9.7, 11.6. Smoothing helps where the noise on a mean is large, and costs where it is not.",
    ),
    "fed_lstm": (
        "An LSTM on Shakespeare's plays: Table 4",
        "Another edition than the paper's, with other roles; by default a small network that sees few characters. Its "
        "accuracies are to be compared with that of the commonest character and of training without noise.",
    ),
    "fed_membership": (
        "Membership attacks: figure 7, Table H.12",
        "The paper has the areas as a picture only. Attacks bound no epsilon.",
    ),
    "fed_frequency": (
        "Spectra of mean updates: figure 2",
        "Training without noise and clip. The paper has plots, which fall off at high frequencies.",
    ),
}
OPENING = """# Federated learning with client-level privacy: the paper's tables and privet's

"Differentially Private Federated Learning with Laplacian Smoothing" (DP-Fed-LS). Written by
`python experiments/fed_report.py` from the results of the experiments beside it. Paper and privet stand side by side;
where the data or the configuration is smaller than the paper's, columns are to be compared with each other, not with
the paper. ± is the standard deviation over seeds; one seed has none. Epsilons are certified by accountant, for a whole
client: against exchange of a client under uniform sampling, against adding or removing one under Poisson sampling."""


@dataclass(frozen=True)
class Shown:
    """A table for the screen and for the page."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def print(self) -> "Shown":
        """Print it, and return it."""
        print_table(self.title, self.columns, self.rows)
        return self


def told(what: str, paper: str, privet: str) -> str:
    """Return, and print, a line that says what the paper found and what was found here."""
    line = f"{what}: paper {paper}; privet {privet}"
    console.print(line, markup=False)
    return line


def yes(found: bool) -> str:
    """Return a truth as a word."""
    return "yes" if found else "no"


def options(description: str | None, arguments: Sequence[str] | None, default: str = "preset") -> argparse.Namespace:
    """Return ``configuration``, one of full, preset and quick, and ``runs``, None where it is not given."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    kinds = parser.add_mutually_exclusive_group()
    for kind, meaning in {
        "full": "the paper's configuration",
        "preset": "what ends within 25 minutes on two cores",
        "quick": "seconds, for tests",
    }.items():
        shown = f"{meaning} (the default)" if kind == default else meaning
        kinds.add_argument(f"--{kind}", dest="configuration", action="store_const", const=kind, help=shown)
    parser.add_argument("--runs", type=int, help="trainings of each setting")
    chosen = parser.parse_args(arguments)
    chosen.configuration = chosen.configuration or default
    return chosen


def result_name(experiment: str, configuration: str) -> str:
    """Return the name of the files of results: that of the experiment is kept for what the page shows."""
    shown = "full" if experiment == "fed_logistic" else "preset"
    return experiment if configuration == shown else f"{experiment}_{configuration}"


def keep(name: str, tables: Sequence[Shown], **content: Any) -> dict[str, Any]:
    """Write results, and return them."""
    results = {**content, "tables": [vars(table) for table in tables]}
    write_results(name, results)
    return results


# --------------------------------------------------------------------------------------------------------------- page


def page(folder: Path) -> str:
    """Return the page of all results in a folder."""
    sections = [OPENING]
    for name, (title, note) in EXPERIMENTS.items():
        file = folder / f"{name}.json"
        if file.exists():
            results = json.loads(file.read_text())
            sections.append(section(title, note, name, results, (folder / f"{name}.png").exists()))
        else:
            sections.append(f"## {title}\n\nNot run yet: `python experiments/{name}.py`.")
    return "\n\n".join(sections) + "\n"


def section(title: str, note: str, name: str, results: dict[str, Any], has_figure: bool) -> str:
    """Return the part of one experiment."""
    ran = f"`python experiments/{name}.py`. {results['ran']}. {results['seconds']} s in all, on a busy machine."
    parts = [f"## {title}", ran, note]
    if "subset" in results:
        parts.append(results["subset"])
    parts += [f"**{table['title']}**\n\n{_lines(table['columns'], table['rows'])}" for table in results["tables"]]
    parts.append("\n".join(f"- {line}" for line in results["findings"]))
    if has_figure:
        parts.append(f"![{title}]({name}.png)")
    return "\n\n".join(parts)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = [columns, ["---"] * len(columns)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [*head, *rows])


def main() -> Path:
    """Write the page."""
    target = support.RESULTS / "federated.md"
    target.write_text(page(support.RESULTS), encoding="utf-8")
    console.print(f"Written: {target.relative_to(support.ROOT)}")
    return target


if __name__ == "__main__":
    main()
