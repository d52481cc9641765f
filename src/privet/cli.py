"""The command line: ``privet demo | plan | fit | predict | audit | party | ledger``.

This file only reads options. The libraries that do the work are imported inside the commands, so that
``privet --help`` answers quickly.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privet.commands.options import (
    Delta,
    DescribedCommand,
    Epsilon,
    Ledger,
    Limit,
    LimitDelta,
    OptionalEpsilon,
    Output,
    Verbose,
    open_ledger,
)
from privet.commands.party_group import party

app = typer.Typer(
    name="privet",
    help="Train models on sensitive data with differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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
    dimension: Annotated[
        int | None, typer.Option(help="Number of weights. With it, also show what the papers' theorems would take.")
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
    if dimension is not None:
        from privet.commands.plan_papers import print_advice

        print_advice(n, dimension, budget, batch_size, Console())


@app.command(cls=DescribedCommand)
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet table.")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="Column to predict. Can be repeated: one model per column, under one guarantee."),
    ] = None,
    epsilon: OptionalEpsilon = None,
    delta: Delta = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="Fix the noise instead of epsilon: its standard deviation on a sum of gradients, divided by the clip. "
            "The guarantee states the epsilon that results. 0 trains without privacy, for comparison."
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="One of auto, sparse, {models}. auto chooses logistic for classes and ridge for numbers, and sparse "
            "chooses sparse_logistic or sparse_regression."
        ),
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
    secret: Annotated[
        str | None,
        typer.Option(help="For --method iteration: what else stays secret, one of order, stop, skip."),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            help="A table of records that need no protection, with the same columns, for methods that learn from them: "
            "iteration, or knowledge_transfer for sparse models, which does not use their target."
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Number of records in each random batch, for methods that draw batches.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="For --model huber: the error beyond which the loss is linear, in units of the target."),
    ] = None,
    corner_width: Annotated[
        float | None,
        typer.Option(help="For --model absolute: the error up to which the loss is smooth, in units of the target."),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="For --model svm: how the corner of the hinge is smoothed, parabola or gaussian.")
    ] = "parabola",
    n_nonzero: Annotated[
        int | None,
        typer.Option(
            help="For --model sparse: how many encoded columns keep a weight. Default: chosen from n, the number of "
            "columns and the budget."
        ),
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option(help="Number of steps. Default: chosen from n, the number of columns and the budget.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Make the run repeatable. The guarantee then holds only if the seed is secret.")
    ] = None,
    output: Output = Path("model.privet.json"),
    ledger: Ledger = None,
    limit: Limit = None,
    limit_delta: LimitDelta = 1e-6,
    verbose: Verbose = False,
) -> None:
    """Train a private classifier or regression model on a table and save it to a file."""
    from privet.commands import fit as command
    from privet.tables import TableSchema

    described = TableSchema.from_options(
        toml=schema, bounds=bounds or (), levels=levels or (), target=target, target_bounds=target_bounds
    )
    estimator = command.make_estimator(
        model,
        described,
        threshold=threshold,
        corner_width=corner_width,
        loss=loss,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        method=method,
        alpha=alpha,
        smoothing=smoothing,
        clip_norm=clip_norm,
        n_nonzero=n_nonzero,
        secret=secret,
        batch_size=batch_size,
        max_iter=max_iter,
        random_state=seed,
        verbose=int(sys.stderr.isatty()),
    )
    command.run(
        data,
        described,
        estimator,
        output=output,
        public=public,
        ledger=open_ledger(ledger, limit, limit_delta),
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
    model: Annotated[
        Path | None, typer.Argument(help="A model saved by privet fit, or with --replay a training script.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Replay the training of a script, or of --estimator, on neighbouring data. A script defines "
            "train(data) and data, and may define neighbour, neighbours, guarantee and folder.",
        ),
    ] = False,
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
        raise ValueError(
            "Give either a script for --replay, or --estimator."
            if replay
            else "Give either a model file with --train and --holdout, or --estimator."
        )
    if not 0 < confidence < 1:
        raise ValueError(f"--confidence must lie in (0, 1), got {confidence:g}.")
    if model is not None and replay:
        from privet.commands import replay as replays

        leaks = replays.run_script(model, output=json, console=Console())
    elif model is not None:
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
        sizes = {"rows": rows, "columns": columns}
        if replay:
            from privet.commands import replay as replays

            leaks = replays.run_estimator(subject, **sizes, output=json, console=Console())
        else:
            leaks = command.run_estimator(
                subject, **sizes, runs=runs, confidence=confidence, output=json, console=Console()
            )
    if leaks:
        raise typer.Exit(1)


@app.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger written by privet fit --ledger or privet party --ledger.")],
    delta: Annotated[
        float | None, typer.Option(help="Delta of the total. Default: the sum of the entries' deltas.")
    ] = None,
    drop_cut_line: Annotated[
        bool,
        typer.Option(
            "--drop-cut-line", help="First remove the last line if a crash cut it off. Its release was not made."
        ),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show what has been spent on a dataset, and the total."""
    from privet.commands import ledger as command

    command.run(path, delta=delta, drop_cut_line=drop_cut_line, verbose=verbose, console=Console())


def main() -> None:
    """Run the command line. A mistake in the input is reported in one line on standard error, with exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        from privet.commands.options import with_options

        message = str(error).strip() or type(error).__name__
        print(f"privet: {with_options(message.splitlines()[0])}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        from privet.commands.options import with_extra

        remedy = with_extra(error)
        if remedy is None:
            raise
        print(f"privet: {remedy}", file=sys.stderr)
        sys.exit(2)
