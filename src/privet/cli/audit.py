"""The options of ``privet audit``."""

from pathlib import Path
from typing import Annotated

import typer

from privet import names
from privet.cli.early import check_files, check_filled, check_settings
from privet.cli.options import Decimal, Encoding, Epsilon, Json, Method, Sep
from privet.commands.json_output import console_for


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
        str | None,
        typer.Option(
            help=f"Audit settings instead of a saved model, by repeated fits: {', '.join(names.MODELS)}.",
            autocompletion=lambda: list(names.MODELS),
        ),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Annotated[float, typer.Option(help="Use 0 for pure epsilon.")] = 1e-5,
    method: Annotated[str, Method] = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the l2 penalty.")] = 1e-4,
    rows: Annotated[int, typer.Option(min=2, help="Number of rows of the worst-case tables.")] = 3,
    columns: Annotated[int, typer.Option(min=1, help="Number of columns of the worst-case tables.")] = 2,
    runs: Annotated[int, typer.Option(min=100, help="Number of fits per table.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Confidence of the verdict, between 0 and 1.")] = 0.95,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = None,
) -> None:
    """Attack a trained model, or an estimator's settings, and compare what leaks with what was promised.

    The exit code is 1 if the promise is refuted.
    """
    if (model is None) == (estimator is None):
        raise ValueError(
            "Give either a script for --replay, or --estimator."
            if replay
            else "Give either a model file with --train and --holdout, or --estimator."
        )
    if not 0 < confidence < 1:
        raise ValueError(f"--confidence must lie in (0, 1), got {confidence:g}.")
    if estimator is not None and estimator not in names.MODELS:
        raise ValueError(f"--estimator must be one of {', '.join(names.MODELS)}, got {estimator!r}.")
    check_settings({"epsilon": epsilon, "delta": delta, "method": method, "alpha": alpha})
    if model is not None and not replay and (train is None or holdout is None):
        raise ValueError(
            "Auditing a model requires --train, rows that it was trained on, and --holdout, rows that it was not."
        )
    check_files(read={"script" if replay else "model file": model, "table": train, "table of other rows": holdout})
    check_filled(train, holdout)
    console = console_for(json)
    if model is not None and replay:
        from privet.commands import replay as replays

        leaks = replays.run_script(model, output=json, console=console)
    elif model is not None:
        assert train is not None and holdout is not None
        from privet.tables import FileForm

        form = FileForm(sep, decimal, encoding)
        from privet.commands import audit as command

        leaks = command.run_model(model, train, holdout, form=form, confidence=confidence, output=json, console=console)
    else:
        from privet.linear import MODELS

        assert estimator is not None
        kind = MODELS[estimator]
        given = {"epsilon": epsilon, "delta": delta, "method": method, "alpha": alpha}
        subject = kind(**{name: value for name, value in given.items() if name in kind().get_params()})
        sizes = {"rows": rows, "columns": columns}
        if replay:
            from privet.commands import replay as replays

            leaks = replays.run_estimator(subject, **sizes, output=json, console=console)
        else:
            from privet.commands import audit as command

            leaks = command.run_estimator(
                subject, **sizes, runs=runs, confidence=confidence, output=json, console=console
            )
    if leaks:
        raise typer.Exit(1)
