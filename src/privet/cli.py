"""The command line: ``privet demo | plan | fit | predict | audit | party | ledger``.

Only options are read here. The libraries that do the work load inside the commands, so that ``privet --help`` answers
at once.
"""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="privet",
    help="Train models on sensitive data with differential privacy: stated in full, calibrated tightly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Epsilon = Annotated[float, typer.Option(help="Privacy budget, above zero.")]
Delta = Annotated[float | None, typer.Option(help="Default: 1/n^1.1. 0 asks for pure epsilon.")]


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Where the model goes.")] = Path("rand_health.privet.json"),
    seeds: Annotated[int, typer.Option(min=2, help="Runs a setting.")] = 10,
) -> None:
    """Train private models on real medical records, beside the model without privacy."""
    from privet.commands import demo as command

    command.run(output=output, seeds=seeds, console=_console())


@app.command()
def plan(
    n: Annotated[int, typer.Option(help="Number of records.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 10,
    batch_size: Annotated[int | None, typer.Option(help="Leave out for the full batch.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Give the noise instead of epsilon, and see each analysis' epsilon.")
    ] = None,
) -> None:
    """Show noise and epsilon for each way of sampling and each analysis, side by side."""
    from privet.checks import count, positive
    from privet.commands import plan as command
    from privet.privacy import Budget
    from privet.privacy.budget import default_delta

    if noise_multiplier is not None:
        positive("noise multiplier", noise_multiplier)
    budget = Budget(epsilon, default_delta(count("n", n)) if delta is None else delta)
    command.run(n, budget, epochs=epochs, batch_size=batch_size, noise_multiplier=noise_multiplier, console=_console())


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table.")],
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    model: Annotated[
        str, typer.Option(help="auto, logistic, svm, ridge or huber. auto: logistic for classes, ridge for numbers.")
    ] = "auto",
    schema: Annotated[Path | None, typer.Option(help="TOML file with public bounds and levels.")] = None,
    bounds: Annotated[list[str] | None, typer.Option(help="Public bounds of a number: age=0:120. Repeat.")] = None,
    levels: Annotated[list[str] | None, typer.Option(help="Levels of a category: sex=female,male. Repeat.")] = None,
    target_bounds: Annotated[
        str | None, typer.Option(help="The target is a number with these public bounds: 0:5000.")
    ] = None,
    method: Annotated[str, typer.Option(help="auto, gradient, iteration, output, minimiser or objective.")] = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the l2 penalty.")] = 1e-4,
    smoothing: Annotated[float, typer.Option(help="Laplacian smoothing of noisy gradients.")] = 0.0,
    clip_norm: Annotated[
        float | None, typer.Option(help="Clip of a record's gradient, for rows of norm 1 and targets in [-1, 1].")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="huber: the error, in the target's units, from which the loss is linear.")
    ] = None,
    max_iter: Annotated[int | None, typer.Option(help="Steps; default: from n, columns and budget.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat a run; the guarantee then needs the seed secret.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.")] = Path("model.privet.json"),
    ledger: Annotated[Path | None, typer.Option(help="Book what is spent in this file.")] = None,
    limit: Annotated[float | None, typer.Option(help="Refuse if the ledger's total would exceed this.")] = None,
    limit_delta: Annotated[float, typer.Option(help="The delta at which the limit is read.")] = 1e-6,
) -> None:
    """Train a private classifier or regression on a table, and write it to a file."""
    from privet.commands import fit as command
    from privet.privacy import Budget
    from privet.tables import TableSchema

    if limit is not None and ledger is None:
        raise ValueError("--limit needs --ledger, the file whose total it limits")
    described = TableSchema.from_options(
        toml=schema, bounds=bounds or (), levels=levels or (), target=target, target_bounds=target_bounds
    )
    estimator = command.make_estimator(
        model,
        described,
        threshold=threshold,
        epsilon=epsilon,
        delta=delta,
        method=method,
        alpha=alpha,
        smoothing=smoothing,
        clip_norm=clip_norm,
        max_iter=max_iter,
        random_state=seed,
        verbose=int(sys.stderr.isatty()),
    )
    total = None if limit is None else Budget(limit, limit_delta)
    command.run(data, described, estimator, output=output, ledger=ledger, limit=total, console=_console())


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model that privet fit wrote.")],
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table with the same columns.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file; default: the screen.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each level.")] = False,
    score: Annotated[
        bool, typer.Option("--score", help="Also print accuracy or error, if the target is there.")
    ] = False,
) -> None:
    """Predict the target of each row of a table."""
    from privet.commands import predict as command

    command.run(model, data, output=output, with_probabilities=probabilities, score=score, console=_console())


@app.command()
def audit(
    model: Annotated[Path | None, typer.Argument(help="A model that privet fit wrote.")] = None,
    train: Annotated[Path | None, typer.Option(help="The table that the model was trained on.")] = None,
    holdout: Annotated[Path | None, typer.Option(help="Rows like it that the model has not seen.")] = None,
    estimator: Annotated[
        str | None, typer.Option(help="Instead of a model: logistic, svm, ridge or huber, fitted over and over.")
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    method: Annotated[str, typer.Option(help="auto, gradient, iteration, output, minimiser or objective.")] = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the l2 penalty.")] = 1e-4,
    rows: Annotated[int, typer.Option(min=2, help="Rows of the worst-case tables.")] = 3,
    columns: Annotated[int, typer.Option(min=1, help="Columns of the worst-case tables.")] = 2,
    runs: Annotated[int, typer.Option(min=100, help="Fits on each table of each pair.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Of the verdict.")] = 0.95,
    json: Annotated[Path | None, typer.Option(help="Also write the findings to this file.")] = None,
) -> None:
    """Attack a trained model, or an estimator's settings, and compare what leaks with what was promised.

    Exit code 1 says that the promise is refuted.
    """
    from privet.commands import audit as command

    if (model is None) == (estimator is None):
        raise ValueError("give a model file with --train and --holdout, or settings with --estimator: one of the two")
    if not 0 < confidence < 1:
        raise ValueError(f"--confidence must lie in (0, 1), got {confidence:g}")
    if model is not None:
        if train is None or holdout is None:
            raise ValueError("a model is attacked with --train, the rows it has seen, and --holdout, rows it has not")
        leaks = command.run_model(model, train, holdout, confidence=confidence, output=json, console=_console())
    else:
        from privet.commands.fit import MODELS

        if estimator not in MODELS:
            raise ValueError(f"--estimator must be one of {', '.join(MODELS)}, got {estimator!r}")
        subject = MODELS[estimator](epsilon=epsilon, delta=delta, method=method, alpha=alpha)
        sizes = {"rows": rows, "columns": columns, "runs": runs}
        leaks = command.run_estimator(subject, **sizes, confidence=confidence, output=json, console=_console())
    if leaks:
        raise typer.Exit(1)


@app.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger that privet fit --ledger wrote.")],
    delta: Annotated[float | None, typer.Option(help="Delta of the total; default: the sum of the entries'.")] = None,
) -> None:
    """Show what has been spent on a dataset, and the total."""
    from privet.commands import ledger as command

    command.run(path, delta=delta, console=_console())


class _RunsByDefault(TyperGroup):
    """A group whose ``run`` may be left out: ``privet party study.toml --index 0``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in its place."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


party = typer.Typer(
    cls=_RunsByDefault,
    help="Train one model with other data owners, without showing them your rows.",
    no_args_is_help=True,
)
app.add_typer(party, name="party")

StudyFile = Annotated[Path, typer.Argument(help="The study: a TOML file, the same for all parties.")]


@party.command("run")
def party_run(
    study: StudyFile,
    index: Annotated[int, typer.Option(help="Which party of the study this is, from 0.")],
    data: Annotated[
        Path | None, typer.Option(help="This party's CSV or Parquet table. None: it brings no data.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with this party's key and certificate.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.")] = Path("study.privet.json"),
    ledger: Annotated[Path | None, typer.Option(help="Book what is spent in this file.")] = None,
    connect_timeout: Annotated[float, typer.Option(help="Seconds for all parties to arrive.")] = 300.0,
    timeout: Annotated[float, typer.Option(help="Seconds that a party may be silent.")] = 60.0,
    at: Annotated[list[str] | None, typer.Option(hidden=True, help="Other addresses than the study's.")] = None,
) -> None:
    """Take part in a study: `privet party study.toml --index 0 --data hospital.csv --keys keys`."""
    from privet.commands import party as command
    from privet.multiparty.study import Study, parse_address

    agreed = Study.read(study)
    command.run(
        agreed.moved([parse_address(each) for each in at]) if at else agreed,
        index,
        data,
        keys=keys,
        output=output,
        ledger=ledger,
        connect_timeout=connect_timeout,
        timeout=timeout,
        console=_console(),
    )


@party.command("keygen")
def party_keygen(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")] = Path("keys"),
    days: Annotated[float, typer.Option(help="How long the certificates are valid.")] = 90.0,
) -> None:
    """Make a key and a certificate for every party of a study."""
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.keygen(Study.read(study), output, days, _console())


@party.command("local")
def party_local(
    study: StudyFile,
    data: Annotated[list[Path], typer.Option(help="A party's table, in order. Repeat.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the parties' models.")] = Path("results"),
    timeout: Annotated[float, typer.Option(help="Seconds that a party may be silent.")] = 60.0,
) -> None:
    """Try a study out: all parties on this machine, a process each."""
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.local(study, Study.read(study), data, output=output, timeout=timeout, console=_console())


@party.command("verify")
def party_verify(
    model: Annotated[Path, typer.Argument(help="A model that privet party wrote.")],
    ca: Annotated[Path | None, typer.Option(help="The study's ca.crt.")] = None,
    on: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The day of the study: its certificates may have expired since."),
    ] = None,
) -> None:
    """Check that all parties of a study signed a model, and read its guarantee out."""
    from privet.commands import party as command

    command.verify_result(model, ca, on, _console())


def main() -> None:
    """Run the command line; a mistake in the input is one line on standard error and exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        message = str(error).strip() or type(error).__name__
        print(f"privet: {message.splitlines()[0]}", file=sys.stderr)
        sys.exit(2)


def _console() -> "Console":
    from rich.console import Console

    return Console()
