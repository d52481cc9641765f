"""``privet fit``: train a private model on a table and save it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from privet import cautions, names
from privet.checks import positive
from privet.files import check_writable
from privet.linear import BY_TARGET, MODELS, TableModel
from privet.linear.table_model import TableEstimator
from privet.privacy import Ledger
from privet.tables import NumericTarget, TableError, TableSchema, read_header, read_table

if TYPE_CHECKING:
    import pandas as pd

DISTANCES = ("threshold", "corner_width")
"""Settings that are errors of a prediction, in units of the target."""


def make_estimator(model: str, schema: TableSchema, **settings: Any) -> TableEstimator:
    """Return an untrained estimator for a table.

    Parameters
    ----------
    model : str
        A name in ``privet.linear.MODELS``, or in ``privet.linear.BY_TARGET``, whose names choose one model for classes
        and another one for numbers.
    schema : TableSchema
        The description of the table.
    **settings
        Parameters of the estimator. One that the estimator does not have must have its default. Those in ``DISTANCES``
        are in units of the target. ``epsilon`` is 1 if none of it, ``noise_multiplier`` and ``tpr`` is given.
    """
    if not names.given_noise(settings):
        settings["epsilon"] = 1.0
    if settings.get("loss") is None:
        settings.pop("loss", None)
    number = schema.target if isinstance(schema.target, NumericTarget) else None
    if model in BY_TARGET:
        model = BY_TARGET[model][number is not None]
    if model not in MODELS:
        raise ValueError(f"--model must be one of {', '.join([*BY_TARGET, *MODELS])}, got {model!r}.")
    known = MODELS[model]().get_params()
    for name, value in tuple(settings.items()):
        option = f"--{name.replace('_', '-')}"
        able = {other: kind().get_params()[name] for other, kind in MODELS.items() if name in kind().get_params()}
        if name not in known:
            del settings[name]
            if value in able.values():
                continue
            raise ValueError(f"{option} is not a setting of --model {model}. Leave it out, or use {' or '.join(able)}.")
        if name in DISTANCES and value is not None:
            positive(name, value)
            if len({each.half_width for each in schema.targets if isinstance(each, NumericTarget)}) > 1:
                raise ValueError(
                    f"{option} is in units of the target, but the targets have different bounds. Leave it out."
                )
            settings[name] = number.encode_distance(value) if number else value
    return MODELS[model](**settings)


def run(
    data: Path,
    schema: TableSchema,
    estimator: TableEstimator,
    *,
    output: Path,
    public: Path | None = None,
    ledger: Ledger | None = None,
    verbose: bool = False,
    console: Console,
) -> TableModel:
    """Record the cost of a model in the ledger, train it, save it, and print its guarantee.

    A cost that exceeds the ledger's limit is refused, and nothing is trained. Apart from the guarantee, nothing that
    depends on the data is printed but the names of undeclared columns.
    """
    if schema.target is None:
        raise TableError("No target column is declared. Use --target, or put target = ... into the schema file.")
    model = TableModel(schema, estimator)
    label = f"fit {data.name} -> {output.name}"
    check_writable(output)
    model.estimator._check_settings()
    cautions.about_existing_file(output)
    frame, known = read_table(data, schema), None if public is None else _read_public(public, schema)
    # The cost is recorded before any noise is drawn. A crash wastes budget but never forgets it.
    book = None if ledger is None else partial(ledger.spend, label=label)
    model.fit(frame, before_training=book, public=known)
    if ignored := schema.undeclared(read_header(data, schema)):
        console.print(f"Ignored columns that are not declared: {', '.join(ignored)}", highlight=False, markup=False)
    model.save(output)
    console.print(model.guarantee.statement(verbose), highlight=False, markup=False, soft_wrap=True)
    fitted = model.estimator
    steps = "1 step" if fitted.n_iter_ == 1 else f"{fitted.n_iter_} steps"
    console.print(
        f"Method: {fitted.method_} ({fitted.method_reason_}); {steps}.\n"
        f"Model written to {output}. Use it with: privet predict {output} TABLE",
        highlight=False,
        soft_wrap=True,
    )
    return model


def _read_public(path: Path, schema: TableSchema) -> "pd.DataFrame":
    """Read public records. Some methods do not use their targets, so these are read only if they are there."""
    try:
        names = read_header(path, schema)
        return read_table(path, schema, with_targets=all(target.name in names for target in schema.targets))
    except TableError as error:
        raise TableError(f"The table of public records does not fit: {error}") from error
