import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privet.commands import predict
from privet.linear import PrivateLogisticRegression, PrivateRidge, TableModel
from privet.tables import Numeric, NumericTarget, TableSchema, Target

X = np.linspace(0, 1, 200)
FRAME = pd.DataFrame({"x": X, "number": 400 * X - 100, "word": np.where(X > 0.5, "late", "early")})
FEATURES = (Numeric("x", 0, 1),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    numbers = TableModel(TableSchema(FEATURES, NumericTarget("number", -100, 300)), PrivateRidge(20.0, random_state=0))
    numbers.fit(FRAME).save(tmp_path / "number.json")
    words = TableModel(TableSchema(FEATURES, Target("word", ("late", "early"))), PrivateLogisticRegression(20.0))
    words.fit(FRAME).save(tmp_path / "word.json")
    return tmp_path


def run(folder: Path, model: str, frame: pd.DataFrame, *, probabilities: bool = False, score: bool = False):
    """Return what the command writes to the screen, as a table."""
    frame.to_csv(folder / "t.csv", index=False)
    console = Console(file=io.StringIO())
    options = {"output": None, "with_probabilities": probabilities, "score": score, "console": console}
    predict.run(folder / model, folder / "t.csv", **options)
    return pd.read_csv(io.StringIO(console.file.getvalue()))


def test_predicted_numbers_are_written_with_full_precision(folder):
    written = run(folder, "number.json", FRAME[["x"]])
    assert list(written) == ["prediction"]
    assert written["prediction"].tolist() == TableModel.load(folder / "number.json").predict(FRAME).tolist()


def test_predicted_levels_are_in_the_column_of_the_target(folder):
    written = run(folder, "word.json", FRAME[["x"]], probabilities=True)
    assert list(written) == ["word", "probability=late", "probability=early"]
    assert (written["word"] == FRAME["word"]).mean() > 0.8


def test_the_error_uses_the_targets_without_clipping(folder, capsys):
    wild = FRAME.assign(number=FRAME["number"].where(FRAME.index > 0, 40_000))  # far beyond the bounds
    written = run(folder, "number.json", wild, score=True)
    error = np.abs(written["prediction"] - wild["number"]).mean()
    constant = np.abs(wild["number"].median() - wild["number"]).mean()
    line = capsys.readouterr().err
    assert f"mean absolute error {error:.6g} (always predicting the median: {constant:.6g}) on 200 rows" in line
    assert "not private" in line


def test_score_prints_the_accuracy_of_classes(folder, capsys):
    written = run(folder, "word.json", FRAME, score=True)
    share = (written["word"] == FRAME["word"]).mean()
    assert f"accuracy {share:.4f} on 200 rows" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["number.json", "word.json"])
def test_score_requires_the_target_column(folder, model):
    with pytest.raises(ValueError, match="no column"):
        run(folder, model, FRAME[["x"]], score=True)


def test_probabilities_of_a_number_are_refused(folder):
    with pytest.raises(ValueError, match="'number' is a number, which is predicted without probabilities"):
        run(folder, "number.json", FRAME, probabilities=True)
