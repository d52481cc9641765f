"""The command line: ``privet demo | plan | fit | predict | audit | party | ledger``.

This file only reads options. The libraries that do the work are imported inside the commands, so that
``privet --help`` answers quickly.
"""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from privet.commands.options import Delta, DescribedCommand, Epsilon, Ledger, Output, Verbose

StudyFile = Annotated[Path, typer.Argument(help="The study: a TOML file that is the same for all parties.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for a message of another party.")]


class _RunsByDefault(TyperGroup):
    """A group whose subcommand ``run`` may be left out: ``privet party study.toml --index 0``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` if the first argument is not a subcommand."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="privet",
    help="Train models on sensitive data with differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
party = typer.Typer(
    cls=_RunsByDefault,
    help="Train one model with other data owners, without showing them your rows.",
    no_args_is_help=True,
)
app.add_typer(party, name="party")


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Train models on sensitive data with differential privacy."""
    if version:
        from privet import __version__

        print(f"privet {__version__}")
        raise typer.Exit()


@app.command()
def demo(
    output: Output = Path("rand_health.privet.json"),
    seeds: Annotated[int, typer.Option(min=2, help="Number of runs per setting.")] = 10,
    verbose: Verbose = False,
) -> None:
    """Train private models on real medical records and compare them with a model without privacy."""
    from privet.commands import demo as command

    command.run(output=output, seeds=seeds, verbose=verbose, console=Console())


@app.command()
def plan(
    n: Annotated[int, typer.Option(help="Number of records.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    epochs: Annotated[int, typer.Option(help="Number of passes over the data.")] = 10,
    batch_size: Annotated[int | None, typer.Option(help="Batch size. Without it, every step uses all records.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Fix the noise instead of epsilon, and show the epsilon of each analysis.")
    ] = None,
) -> None:
    """Show how much noise training needs with each sampling scheme and each privacy analysis."""
    from privet.checks import count, positive
    from privet.commands import plan as command
    from privet.privacy import Budget
    from privet.privacy.budget import default_delta

    if noise_multiplier is not None:
        positive("noise multiplier", noise_multiplier)
    budget = Budget(epsilon, default_delta(count("n", n)) if delta is None else delta)
    command.run(n, budget, epochs=epochs, batch_size=batch_size, noise_multiplier=noise_multiplier, console=Console())


@app.command(cls=DescribedCommand)
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table.")],
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    model: Annotated[
        str, typer.Option(help="One of auto, {models}. auto chooses logistic for classes and ridge for numbers.")
    ] = "auto",
    schema: Annotated[Path | None, typer.Option(help="TOML file with public bounds and levels.")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(help="Public bounds of a numeric column: age=0:120. Can be repeated.")
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(
            help="Levels of a categorical column or of the target: sex=female,male. Can be repeated. If the levels of "
            "the target are not given, they are read from the table, and the guarantee assumes that they are public."
        ),
    ] = None,
    target_bounds: Annotated[str | None, typer.Option(help="Public bounds of a numeric target: 0:5000.")] = None,
    method: Annotated[str, typer.Option(help="One of auto, {methods}.")] = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the l2 penalty.")] = 1e-4,
    smoothing: Annotated[float, typer.Option(help="Strength of the Laplacian smoothing of noisy gradients.")] = 0.0,
    clip_norm: Annotated[
        float | None,
        typer.Option(help="Bound on the norm of a record's gradient, for rows of norm 1 and targets in [-1, 1]."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="For --model huber: the error beyond which the loss is linear, in units of the target."),
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option(help="Number of steps. Default: chosen from n, the number of columns and the budget.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Make the run repeatable. The guarantee then holds only if the seed is secret.")
    ] = None,
    output: Output = Path("model.privet.json"),
    ledger: Ledger = None,
    limit: Annotated[
        float | None, typer.Option(help="Refuse to train if the ledger's total epsilon would exceed this limit.")
    ] = None,
    limit_delta: Annotated[
        float,
        typer.Option(help="The delta at which --limit applies. The total epsilon is larger at a smaller delta."),
    ] = 1e-6,
    verbose: Verbose = False,
) -> None:
    """Train a private classifier or regression model on a table and save it to a file."""
    from privet.commands import fit as command
    from privet.privacy import Budget
    from privet.tables import TableSchema

    if limit is not None and ledger is None:
        raise ValueError("--limit requires --ledger, the file whose total it limits.")
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
    command.run(
        data,
        described,
        estimator,
        output=output,
        ledger=ledger,
        limit=None if limit is None else Budget(limit, limit_delta),
        verbose=verbose,
        console=Console(),
    )


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model saved by privet fit or privet party.")],
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table with the same columns.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write. Default: print the predictions.")
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each level.")] = False,
    score: Annotated[
        bool, typer.Option("--score", help="Also print the accuracy or error, if the table has the target column.")
    ] = False,
) -> None:
    """Predict the target of each row of a table."""
    from privet.commands import predict as command

    command.run(model, data, output=output, with_probabilities=probabilities, score=score, console=Console())


@app.command(cls=DescribedCommand)
def audit(
    model: Annotated[Path | None, typer.Argument(help="A model saved by privet fit.")] = None,
    train: Annotated[Path | None, typer.Option(help="The table that the model was trained on.")] = None,
    holdout: Annotated[Path | None, typer.Option(help="Similar rows that the model was not trained on.")] = None,
    estimator: Annotated[
        str | None, typer.Option(help="Audit settings instead of a saved model, by repeated fits: {models}.")
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Annotated[float, typer.Option(help="Use 0 for pure epsilon.")] = 1e-5,
    method: Annotated[str, typer.Option(help="One of auto, {methods}.")] = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the l2 penalty.")] = 1e-4,
    rows: Annotated[int, typer.Option(min=2, help="Number of rows of the worst-case tables.")] = 3,
    columns: Annotated[int, typer.Option(min=1, help="Number of columns of the worst-case tables.")] = 2,
    runs: Annotated[int, typer.Option(min=100, help="Number of fits per table.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Confidence of the verdict, between 0 and 1.")] = 0.95,
    json: Annotated[Path | None, typer.Option(help="Also write the findings to this JSON file.")] = None,
) -> None:
    """Attack a trained model, or an estimator's settings, and compare what leaks with what was promised.

    The exit code is 1 if the promise is refuted.
    """
    from privet.commands import audit as command

    if (model is None) == (estimator is None):
        raise ValueError("Give either a model file with --train and --holdout, or --estimator.")
    if not 0 < confidence < 1:
        raise ValueError(f"--confidence must lie in (0, 1), got {confidence:g}.")
    if model is not None:
        if train is None or holdout is None:
            raise ValueError(
                "Auditing a model requires --train, rows that it was trained on, and --holdout, rows that it was not."
            )
        leaks = command.run_model(model, train, holdout, confidence=confidence, output=json, console=Console())
    else:
        from privet.linear import MODELS

        if estimator not in MODELS:
            raise ValueError(f"--estimator must be one of {', '.join(MODELS)}, got {estimator!r}.")
        subject = MODELS[estimator](epsilon=epsilon, delta=delta, method=method, alpha=alpha)
        sizes = {"rows": rows, "columns": columns, "runs": runs}
        leaks = command.run_estimator(subject, **sizes, confidence=confidence, output=json, console=Console())
    if leaks:
        raise typer.Exit(1)


@app.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger written by privet fit --ledger.")],
    delta: Annotated[
        float | None, typer.Option(help="Delta of the total. Default: the sum of the entries' deltas.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Show what has been spent on a dataset, and the total."""
    from privet.commands import ledger as command

    command.run(path, delta=delta, verbose=verbose, console=Console())


@party.command("run")
def run(
    study: StudyFile,
    index: Annotated[int, typer.Option(help="Position of this party in the study, starting from 0.")],
    data: Annotated[
        Path | None, typer.Option(help="This party's CSV or Parquet table. Leave it out if the party has no data.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with this party's key and certificate.")] = None,
    output: Output = Path("study.privet.json"),
    ledger: Ledger = None,
    connect_timeout: Annotated[float, typer.Option(help="Seconds to wait for all parties to connect.")] = 300.0,
    timeout: Timeout = 60.0,
    at: Annotated[
        list[str] | None, typer.Option(hidden=True, help="Addresses to use instead of those in the study.")
    ] = None,
    verbose: Verbose = False,
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
        verbose=verbose,
        console=Console(),
    )


@party.command("keygen")
def keygen(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")] = Path("keys"),
    days: Annotated[float, typer.Option(help="Number of days for which the certificates are valid.")] = 90.0,
) -> None:
    """Create a key and a certificate for every party of a study."""
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.keygen(Study.read(study), output, days, Console())


@party.command("local")
def local(
    study: StudyFile,
    data: Annotated[list[Path], typer.Option(help="Table of a party. Repeat it in the order of the parties.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the parties' models.")] = Path("results"),
    timeout: Timeout = 60.0,
) -> None:
    """Try a study on this machine, with one process per party."""
    from privet.commands import party as command
    from privet.multiparty.study import Study

    command.local(study, Study.read(study), data, output=output, timeout=timeout, console=Console())


@party.command("verify")
def verify(
    model: Annotated[Path, typer.Argument(help="A model saved by privet party.")],
    ca: Annotated[Path | None, typer.Option(help="The study's ca.crt.")] = None,
    on: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="Day of the study, if its certificates have expired since. Default: today."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Check that all parties of a study signed a model, and print its guarantee."""
    from privet.commands import party as command

    command.verify_result(model, ca, on, verbose=verbose, console=Console())


def main() -> None:
    """Run the command line. A mistake in the input is reported in one line on standard error, with exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        from privet.commands.options import with_options

        message = str(error).strip() or type(error).__name__
        print(f"privet: {with_options(message.splitlines()[0])}", file=sys.stderr)
        sys.exit(2)
