"""``privet predict``: predict the target of each row of a table."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from privet.files import check_writable
from privet.linear import TableModel
from privet.tables import NumericTarget, read_table


def run(
    model_path: Path, data: Path, *, output: Path | None, with_probabilities: bool, score: bool, console: Console
) -> None:
    """Write one line per row: the predicted number or level and, on request, the probability of each level."""
    if not model_path.is_file():
        raise ValueError(f"The model file {model_path} does not exist.")
    if output is not None:
        check_writable(output)
    model = TableModel.load(model_path)
    frame = read_table(data)
    predictions = model.predict(frame)
    is_number = isinstance(model.target, NumericTarget)
    columns: dict[str, Any] = {"prediction" if is_number else model.target.name: predictions}
    if with_probabilities:
        probabilities = model.predict_proba(frame)
        columns |= {f"probability={level}": probabilities[:, k] for k, level in enumerate(model.levels)}
    _write(columns, output, console)
    if score:
        truth = model.schema.true_target(frame)
        found = _errors(predictions, truth) if is_number else f"accuracy {np.mean(predictions == truth):.4f}"
        Console(stderr=True).print(
            f"{found} on {len(truth):,} rows (this number is not private: it describes this table)",
            highlight=False,
            soft_wrap=True,
        )


def _errors(predictions: NDArray[Any], truth: NDArray[Any]) -> str:
    """Return the mean absolute error, compared with that of predicting the median for all rows."""
    error, constant = np.mean(np.abs(predictions - truth)), np.mean(np.abs(np.median(truth) - truth))
    return f"mean absolute error {error:.6g} (always predicting the median: {constant:.6g})"


def _write(columns: dict[str, Any], output: Path | None, console: Console) -> None:
    import pandas as pd

    text = pd.DataFrame(columns).to_csv(index=False)
    if output is None:
        console.file.write(text)
        return
    output.write_text(text, encoding="utf-8")
