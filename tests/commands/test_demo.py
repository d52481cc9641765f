import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from privet.commands import demo
from privet.linear import TableModel
from privet.linear.base import PrivateLinearModel


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str, Path]:
    output = tmp_path_factory.mktemp("demo") / "model.privet.json"
    console = Console(record=True, width=100, file=io.StringIO())
    scores = demo.run(output=output, report=output.with_name("report.html"), seeds=3, console=console)
    return scores, console.export_text(), output


def test_the_table_has_the_declared_columns() -> None:
    records = demo.load_records()
    assert len(records) == 20_190
    assert set(records["visits"]) == {"one or none", "more than one"}
    assert demo.SCHEMA.undeclared(records) == ()


def test_accuracy_grows_with_the_budget_and_beats_guessing(ran: tuple[dict, str, Path]) -> None:
    scores, _, _ = ran
    gradient = [scores[epsilon, "gradient"].mean for epsilon in demo.EPSILONS]
    assert gradient[0] > 0.55  # guessing: 0.511
    assert gradient[2] > 0.595  # epsilon 1; without privacy 0.613
    assert gradient[0] < gradient[-1]
    assert scores[4.0, "output"].mean > 0.58


def test_the_guarantee_is_printed(ran: tuple[dict, str, Path]) -> None:
    _, text, _ = ran
    for phrase in ("no privacy", "guessing", "over 3 seeds", "(replace-one).", "Released:", "Enforced:"):
        assert phrase in text
    assert "Assumed:" not in text


def test_the_saved_model_loads_and_predicts(ran: tuple[dict, str, Path]) -> None:
    _, _, output = ran
    model = TableModel.load(output)
    assert isinstance(model.estimator, PrivateLinearModel)
    assert model.guarantee.epsilon <= 1.0
    records = demo.load_records()
    assert np.mean(model.predict(records) == records["visits"]) > 0.57


def test_the_report_of_the_model_is_written_and_its_place_is_printed(ran: tuple[dict, str, Path]) -> None:
    _, text, output = ran
    page = output.with_name("report.html").read_text(encoding="utf-8")
    assert "RAND Health Insurance Experiment" in page
    assert "Accuracy" in page
    assert hashlib.sha256(output.read_bytes()).hexdigest() in page
    assert "report.html" in " ".join(text.split())
