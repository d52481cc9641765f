"""``privet predict``: a model and a table in, predictions out."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from privet.commands.files import check_writable
from privet.linear import TableModel
from privet.tables import read_table


def run(
    model_path: Path, data: Path, *, output: Path | None, with_probabilities: bool, score: bool, console: Console
) -> None:
    """Write one line a row: the predicted level, and on request the probability of every level."""
    if not model_path.is_file():
        raise ValueError(f"there is no model file {model_path}")
    if output is not None:
        check_writable(output)
    model = TableModel.load(model_path)
    frame = read_table(data)
    columns: dict[str, Any] = {_target(model): model.predict(frame)}
    if with_probabilities:
        probabilities = model.predict_proba(frame)
        columns |= {f"probability={level}": probabilities[:, k] for k, level in enumerate(model.levels)}
    _write(columns, output, console)
    if score:
        codes = model.schema.encode_target(frame)
        hits = float(np.mean(np.asarray(model.levels, dtype=object)[codes] == columns[_target(model)]))
        error = Console(stderr=True)
        error.print(
            f"accuracy {hits:.4f} on {len(codes):,} rows (a fact about this table: not private)", highlight=False
        )


def _target(model: TableModel) -> str:
    assert model.schema.target is not None
    return model.schema.target.name


def _write(columns: dict[str, Any], output: Path | None, console: Console) -> None:
    import pandas as pd

    text = pd.DataFrame(columns).to_csv(index=False)
    if output is None:
        console.file.write(text)
        return
    output.write_text(text, encoding="utf-8")
