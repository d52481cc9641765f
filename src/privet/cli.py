"""The command line: ``privet demo | plan | fit | predict | ledger``.

Only options are read here. The libraries that do the work load inside the commands, so that ``privet --help`` answers
at once.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from privet.linear.defaults import default_delta
    from privet.privacy import Budget

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
    method: Annotated[str, typer.Option(help="auto, gradient, output, minimiser or objective.")] = "auto",
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
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger that privet fit --ledger wrote.")],
    delta: Annotated[float | None, typer.Option(help="Delta of the total; default: the sum of the entries'.")] = None,
) -> None:
    """Show what has been spent on a dataset, and the total."""
    from privet.commands import ledger as command

    command.run(path, delta=delta, console=_console())


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
