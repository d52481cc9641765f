"""``privet fit``: a table, its public description and a budget in; a private model in a file out."""

from pathlib import Path
from typing import Any

from rich.console import Console

from privet.checks import positive
from privet.commands.files import check_writable
from privet.linear import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    TableModel,
)
from privet.linear.base import PrivateLinearModel
from privet.privacy import Budget, Ledger
from privet.tables import NumericTarget, TableError, TableSchema, read_table

MODELS: dict[str, type[PrivateLinearModel]] = {
    "logistic": PrivateLogisticRegression,
    "svm": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}


def make_estimator(
    model: str, schema: TableSchema, *, threshold: float | None = None, **settings: Any
) -> PrivateLinearModel:
    """Return the estimator of that name; ``auto`` takes logistic for classes and ridge for numbers.

    ``threshold``, where Huber's loss turns linear, is in the units of the target.
    """
    number = schema.target if isinstance(schema.target, NumericTarget) else None
    if model == "auto":
        model = "ridge" if number else "logistic"
    if model not in MODELS:
        raise ValueError(f"model must be auto, {', '.join(list(MODELS)[:-1])} or {list(MODELS)[-1]}, got {model!r}")
    if threshold is not None:
        if model != "huber":
            raise ValueError(f"--threshold is where Huber's loss turns linear, and {model} has none: add --model huber")
        positive("threshold", threshold)
        settings["threshold"] = number.encode_distance(threshold) if number else threshold
    return MODELS[model](**settings)


def run(
    data: Path,
    schema: TableSchema,
    estimator: PrivateLinearModel,
    *,
    output: Path,
    ledger: Path | None = None,
    limit: Budget | None = None,
    console: Console,
) -> TableModel:
    """Train, book the budget, write the model, and say what was promised. Nothing else about the data is printed."""
    if schema.target is None:
        raise TableError("no target column: give --target or put target = ... into the schema file")
    model = TableModel(schema, estimator)
    check_writable(output)
    if ledger is not None:
        check_writable(ledger)
    frame = read_table(data)
    ignored = schema.undeclared(frame)
    if ignored:
        console.print(f"Ignored columns, not declared: {', '.join(ignored)}", highlight=False)
    model.fit(frame)
    if ledger is not None:
        # Booked before the model leaves this process: a crash in between wastes budget, and never forgets it.
        Ledger(ledger, limit).spend(model.guarantee, label=f"fit {data.name} -> {output.name}")
    model.save(output)
    console.print(model.guarantee.statement(), highlight=False, soft_wrap=True)
    fitted = model.estimator
    console.print(f"Method: {fitted.method_} ({fitted.method_reason_}); {fitted.n_iter_} steps.", highlight=False)
    console.print(f"Model written to {output}. Use it with: privet predict {output} TABLE", highlight=False)
    return model
