"""The options of ``privet fit``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.early import check_files, check_ledger, check_model, check_settings
from privet.cli.options import (
    Decimal,
    Delta,
    Encoding,
    Ledger,
    Limit,
    LimitDelta,
    Method,
    Model,
    OptionalEpsilon,
    Output,
    Quiet,
    Sep,
    Tpr,
    Verbose,
    directions,
    open_ledger,
    pairs_of,
    rates,
)
from privet.commands.json_output import plain_console


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
    tpr: Tpr = None,
    model: Annotated[str, Model] = "auto",
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
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="What missing cells are: refuse, level (a level of their own), or a public constant for one column, "
            "as in age=40. Can be repeated.",
            show_default="refuse",
        ),
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(help="Column that is never used, and copied to the predictions. Can be repeated."),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    method: Annotated[str, Method] = "auto",
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
    pair: Annotated[
        list[str] | None,
        typer.Option(help="For --model additive: two columns with a joint term, as in age,sex. Can be repeated."),
    ] = None,
    monotone: Annotated[
        list[str] | None,
        typer.Option(
            help="For --model additive: a curve that only rises or only falls, as in age=+1. Can be repeated."
        ),
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
        str | None,
        typer.Option(
            help="For --model svm: how the corner of the hinge is smoothed, parabola (the default) or gaussian. For "
            "--model additive and a number: squared (the default), huber, or poisson for counts."
        ),
    ] = None,
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
    quiet: Quiet = False,
) -> None:
    """Train a private classifier or regression model on a table and save it to a file."""
    settings = {
        "threshold": threshold,
        "corner_width": corner_width,
        "loss": loss,
        "pairs": pairs_of(pair),
        "monotone": directions(monotone),
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "tpr": rates(tpr),
        "method": method,
        "alpha": alpha,
        "smoothing": smoothing,
        "clip_norm": clip_norm,
        "n_nonzero": n_nonzero,
        "secret": secret,
        "batch_size": batch_size,
        "max_iter": max_iter,
        "random_state": seed,
    }
    check_model(model)
    check_settings(settings, model)
    from privet.tables import FileForm, TableSchema, check_header

    described = TableSchema.from_options(
        toml=schema,
        bounds=bounds or (),
        levels=levels or (),
        target=target,
        target_bounds=target_bounds,
        missing=missing or (),
        ids=id or (),
        form=FileForm(sep, decimal, encoding),
    )
    if not described.targets:
        raise ValueError("No target column is declared. Use --target, or put target = ... into the schema file.")
    check_files(read={"table": data, "schema file": schema, "table of public records": public}, written=output)
    check_ledger(ledger, limit, limit_delta, written=output)
    check_header(data, described)
    from privet.commands import fit as command

    command.run(
        data,
        described,
        command.make_estimator(model, described, verbose=int(sys.stderr.isatty()), **settings),
        output=output,
        public=public,
        ledger=open_ledger(ledger, limit, limit_delta),
        verbose=verbose,
        console=plain_console(),
    )
