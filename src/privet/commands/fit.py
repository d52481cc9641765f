"""``privet fit``: a table, its public description and a budget in; a private model in a file out."""

from pathlib import Path

from rich.console import Console

from privet.commands.files import check_writable
from privet.linear import PrivateLogisticRegression, TableModel
from privet.privacy import Budget, Ledger
from privet.tables import TableError, TableSchema, read_table


def run(
    data: Path,
    schema: TableSchema,
    estimator: PrivateLogisticRegression,
    *,
    output: Path,
    ledger: Path | None = None,
    limit: Budget | None = None,
    console: Console,
) -> TableModel:
    """Train, book the budget, write the model, and say what was promised. Nothing else about the data is printed."""
    if schema.target is None:
        raise TableError("no target column: give --target or put target = ... into the schema file")
    check_writable(output)
    if ledger is not None:
        check_writable(ledger)
    frame = read_table(data)
    ignored = schema.undeclared(frame)
    if ignored:
        console.print(f"Ignored columns, not declared: {', '.join(ignored)}", highlight=False)
    model = TableModel(schema, estimator).fit(frame)
    if ledger is not None:
        # Booked before the model leaves this process: a crash in between wastes budget, and never forgets it.
        Ledger(ledger, limit).spend(model.guarantee, label=f"fit {data.name} -> {output.name}")
    model.save(output)
    console.print(model.guarantee.statement(), highlight=False, soft_wrap=True)
    fitted = model.estimator
    console.print(f"Method: {fitted.method_} ({fitted.method_reason_}); {fitted.n_iter_} steps.", highlight=False)
    console.print(f"Model written to {output}. Use it with: privet predict {output} TABLE", highlight=False)
    return model
