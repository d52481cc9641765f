"""``privet predict``: predict the target of each row of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from privet.commands.json_output import write_result
from privet.files import check_writable
from privet.linear import TableModel
from privet.tables import RECOGNISED, FileForm, NumericTarget, read_table, write_csv


def run(
    model_path: Path,
    data: Path,
    *,
    output: Path | None,
    with_probabilities: bool,
    score: bool,
    json: Path | None = None,
    ids: Sequence[str] | None = None,
    form: FileForm = RECOGNISED,
    console: Console,
) -> None:
    """Write one line per row: its IDs, the predicted number or level and, on request, the probability of each level.

    ``json`` is where ``--json`` writes what ``score`` finds. ``ids`` and ``form``, if given, replace
    the columns of IDs that the model copies, and what it says about the form of its files.
    """
    if not model_path.is_file():
        raise ValueError(f"The model file {model_path} does not exist.")
    if output is not None:
        check_writable(output)
    model = TableModel.load(model_path)
    schema = model.schema if ids is None else replace(model.schema, ids=tuple(ids))
    frame = read_table(data, schema, form=form, with_targets=score)
    rows = model.encode(frame)
    targets, predictions = schema.targets, model.predict_encoded(rows)
    columns: dict[str, Any] = {}
    for target, predicted in zip(targets, np.atleast_2d(predictions.T), strict=True):
        is_only_number = len(targets) == 1 and isinstance(target, NumericTarget)
        columns["prediction" if is_only_number else target.name] = predicted
    if with_probabilities:
        probabilities = model.predict_proba_encoded(rows)
        for target, chances in zip(targets, [probabilities] if len(targets) == 1 else probabilities, strict=True):
            of = "" if len(targets) == 1 else f" of {target.name}"
            columns |= {f"probability{of}={level}": chances[:, k] for k, level in enumerate(target.levels or ())}
    for name in schema.ids:
        if name in columns:
            raise ValueError(
                f"The column of IDs {name!r} has the name of a column of predictions. Rename it in the table and give "
                "the new name with --id."
            )
    columns = {name: frame[name] for name in schema.ids} | columns
    if output is None:
        write_csv(columns, console.file)
    else:
        with output.open("w", encoding="utf-8", newline="") as file:
            write_csv(columns, file)
    if score:
        truths = np.atleast_2d(schema.true_target(frame).T)
        scores = {}
        for target, predicted, truth in zip(targets, np.atleast_2d(predictions.T), truths, strict=True):
            is_number = isinstance(target, NumericTarget)
            found = _errors(predicted, truth) if is_number else {"accuracy": float(np.mean(predicted == truth))}
            scores[target.name] = found
            name = "" if len(targets) == 1 else f"{target.name}: "
            Console(stderr=True).print(
                f"{name}{_in_words(found)} on {len(truth):,} rows (this number is not private: it describes this "
                "table)",
                highlight=False,
                soft_wrap=True,
            )
        write_result(json, {"rows": len(frame), "is_private": False, "scores": scores})


def _errors(predictions: NDArray[Any], truth: NDArray[Any]) -> dict[str, float]:
    """Return the mean absolute error, and that of predicting the median for all rows."""
    error, constant = np.mean(np.abs(predictions - truth)), np.mean(np.abs(np.median(truth) - truth))
    return {"mean_absolute_error": float(error), "error_of_median": float(constant)}


def _in_words(score: Mapping[str, float]) -> str:
    if "accuracy" in score:
        return f"accuracy {score['accuracy']:.4f}"
    error, constant = score["mean_absolute_error"], score["error_of_median"]
    return f"mean absolute error {error:.6g} (always predicting the median: {constant:.6g})"
