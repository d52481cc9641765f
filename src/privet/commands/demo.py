"""``privet demo``: train private models on real medical records and compare them with a model without privacy.

The table is that of the RAND Health Insurance Experiment: 20,190 person-years, in the public domain, included in
statsmodels. The task is to predict whether a person-year has more than one outpatient visit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from privet import __version__
from privet.commands.json_output import write_result
from privet.extras import remedy
from privet.linear import PrivateLogisticRegression, TableModel
from privet.progress import progress_bar
from privet.report import Report
from privet.report.figures import digest_of, test_figures
from privet.tables import Numeric, TableSchema, Target

EPSILONS = (0.1, 0.5, 1.0, 4.0)
METHODS = ("gradient", "output")
TITLE = "More than one outpatient visit per year: a private model of the RAND Health Insurance Experiment"

# These bounds come from the code book, not from the data. Coinsurance is 0 to 100 %. The other columns are logarithms
# of dollars up to a few thousand, indicators, and a count of chronic diseases.
SCHEMA = TableSchema(
    features=(
        Numeric("lncoins", 0.0, 4.62),
        Numeric("idp", 0, 1),
        Numeric("lpi", 0, 8),
        Numeric("fmde", 0, 9),
        Numeric("physlm", 0, 1),
        Numeric("disea", 0, 40),
        Numeric("hlthg", 0, 1),
        Numeric("hlthf", 0, 1),
        Numeric("hlthp", 0, 1),
    ),
    target=Target("visits", levels=("one or none", "more than one")),
)


@dataclass(frozen=True)
class Score:
    """Test accuracy of one setting over several seeds."""

    mean: float
    spread: float

    @classmethod
    def of(cls, accuracies: Sequence[float]) -> "Score":
        """Return the mean and standard deviation of accuracies."""
        return cls(float(np.mean(accuracies)), float(np.std(accuracies)))


def run(
    *,
    output: Path,
    report: Path,
    seeds: int,
    json: Path | None = None,
    verbose: bool = False,
    console: Console,
) -> dict[tuple[float, str], Score]:
    """Train all settings, print their accuracies, then train and save one model and print its guarantee."""
    train, test = train_test_split(load_records(), test_size=0.2, random_state=0)
    truth = SCHEMA.encode_target(test)
    console.print(
        f"RAND Health Insurance Experiment: {len(train):,} person-years for training, {len(test):,} for testing, "
        f"{len(SCHEMA.features)} columns.\nDoes a person-year have more than one outpatient visit?",
        highlight=False,
    )
    scores = _scores(train, test, truth, seeds, console)
    baseline = LogisticRegression(C=1e6, max_iter=1000)
    baseline.fit(SCHEMA.encode(train), SCHEMA.encode_target(train))
    plain = float(np.mean(baseline.predict(SCHEMA.encode(test)) == truth))
    guess = float(max(np.mean(truth), 1 - np.mean(truth)))
    console.print(_table(scores, plain, guess=guess, seeds=seeds))

    model = TableModel(SCHEMA, PrivateLogisticRegression(epsilon=1.0)).fit(train)
    model.save(output)
    console.print("\nThe saved model was trained once more at epsilon 1, with fresh secure noise. Its guarantee:\n")
    console.print(model.guarantee.statement(verbose), highlight=False, markup=False, soft_wrap=True)
    figures = test_figures(model, test)
    Report.of(model, title=TITLE, tests=figures, version=__version__, digest=digest_of(output)).save(report)
    console.print(
        f"\nModel written to {output}.\nReport for an ethics board written to {report}. Open it in a browser.\n\n"
        f"This table is public. On private data, each of the {1 + len(scores) * seeds} trainings above would count "
        "towards the privacy budget.",
        highlight=False,
        soft_wrap=True,
    )
    rows = [{"epsilon": epsilon, "method": name, **asdict(score)} for (epsilon, name), score in scores.items()]
    write_result(json, {"seeds": seeds, "test_accuracy": rows, "without_privacy": plain, "guessing": guess})
    return scores


def load_records() -> Any:
    """Return the table, with the target as two levels in words."""
    try:
        from statsmodels.datasets import randhie
    except ImportError as error:
        raise ModuleNotFoundError(
            f"The table of the demo is part of statsmodels. {remedy('statsmodels')}", name="statsmodels"
        ) from error
    frame = randhie.load_pandas().data
    target = SCHEMA.target
    assert target is not None and target.levels is not None
    few, many = target.levels
    return frame.assign(visits=np.where(frame["mdvis"] > 1, many, few)).drop(columns="mdvis")


def _scores(train: Any, test: Any, truth: Any, seeds: int, console: Console) -> dict[tuple[float, str], Score]:
    """Return the test accuracy of each epsilon and method over all seeds."""
    rows, codes, held_out = SCHEMA.encode(train), SCHEMA.encode_target(train), SCHEMA.encode(test)
    settings = [(epsilon, method) for epsilon in EPSILONS for method in METHODS]
    scores, done = {}, 0
    with progress_bar("training", console=console) as progress:
        for epsilon, method in settings:
            accuracies = []
            for seed in range(seeds):
                model = PrivateLogisticRegression(epsilon, method=method, classes=[0, 1], random_state=seed)
                accuracies.append(float(np.mean(model.fit(rows, codes).predict(held_out) == truth)))
                done += 1
                if progress is not None:
                    progress(done, len(settings) * seeds)
            scores[epsilon, method] = Score.of(accuracies)
    return scores


def _table(scores: dict[tuple[float, str], Score], plain: float, guess: float, seeds: int) -> Table:
    """Return the table of accuracies, with those of a model without privacy and of guessing."""
    table = Table(title=f"Test accuracy, mean and standard deviation over {seeds} seeds", title_justify="left")
    table.add_column("epsilon", justify="right")
    table.add_column("noise in every step")
    table.add_column("noise on the result")
    table.add_column("share of the gain over guessing", min_width=18)
    for epsilon in EPSILONS:
        cells = [f"{scores[epsilon, m].mean:.4f} ± {scores[epsilon, m].spread:.4f}" for m in METHODS]
        share = (scores[epsilon, "gradient"].mean - guess) / (plain - guess)
        table.add_row(f"{epsilon:g}", *cells, "█" * max(0, round(12 * share)) + f" {100 * share:.0f} %")
    table.add_row("no privacy", f"{plain:.4f}", f"{plain:.4f}", "█" * 12 + " 100 %")
    table.add_row("guessing", f"{guess:.4f}", f"{guess:.4f}", "")
    return table
