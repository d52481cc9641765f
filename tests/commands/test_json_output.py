"""``--json FILE``, the same for every command that prints a table."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from privet.cli import app
from privet.commands import demo

WITH_TABLES = ("audit", "check", "demo", "plan", "predict", "schema", "show")
PLAN = ("plan", "--n", "1000", "--delta", "1e-5", "--epochs", "2")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_file_is_written_besides_the_text_and_a_dash_prints_it_in_place_of_the_text(tmp_path):
    beside, printed = run(*PLAN, "--json", tmp_path / "plan.json"), run(*PLAN, "--json", "-")
    assert beside.exit_code == printed.exit_code == 0, beside.output + printed.output
    assert "full batch" in beside.stdout and "noise multiplier" in beside.stdout
    assert json.loads(printed.stdout) == json.loads((tmp_path / "plan.json").read_text())


def test_the_plan_holds_every_row_and_what_the_papers_would_take():
    found = json.loads(run(*PLAN, "--dimension", 5, "--json", "-").stdout)
    assert {(row["analysis"], row["adjacency"]) for row in found["rows"]} >= {("exact", "replace-one")}
    assert all(row["epsilon"] <= 1 for row in found["rows"])
    assert {row["paper"] for row in found["papers"]} >= {"DP-LSSGD", "Dissertation (Wang)"}


def test_the_score_of_predictions_says_that_it_is_not_private(tmp_path):
    x = np.linspace(0, 1, 200)
    pd.DataFrame({"x": x, "late": np.where(x > 0.5, "yes", "no")}).to_csv(tmp_path / "t.csv", index=False)
    declared = ("--target", "late", "--levels", "late=no,yes", "--bounds", "x=0:1", "--epsilon", 9, "--seed", 0)
    assert run("fit", tmp_path / "t.csv", *declared, "-o", tmp_path / "m.json").exit_code == 0
    predict = ("predict", tmp_path / "m.json", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    found = json.loads(run(*predict, "--score", "--json", "-").stdout)
    assert found == {
        "rows": 200,
        "is_private": False,
        "scores": {"late": {"accuracy": found["scores"]["late"]["accuracy"]}},
    }
    assert found["scores"]["late"]["accuracy"] > 0.8
    for options, cause in (
        ((*predict, "--json", "-"), "requires --score"),
        ((*predict[:3], "--score", "--json", "-"), "cannot both go to standard output"),
    ):
        assert cause in str(run(*options).exception)


def test_the_demo_writes_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EPSILONS", (1.0,))
    output = tmp_path / "demo.json"
    page = tmp_path / "m.html"
    demo.run(output=tmp_path / "m.json", report=page, seeds=2, json=output, console=Console(file=io.StringIO()))
    assert page.exists()
    found = json.loads(output.read_text())
    assert {row["method"] for row in found["test_accuracy"]} == set(demo.METHODS)
    assert found["guessing"] < found["test_accuracy"][0]["mean"] < found["without_privacy"] + 0.01


@pytest.mark.parametrize("command", WITH_TABLES)
def test_commands_with_a_table_have_the_shared_option(command):
    (option,) = (each for each in get_command(app).commands[command].params if each.name == "json")
    assert "With - it is printed" in option.help


def test_a_file_that_cannot_be_written_is_refused_before_any_work():
    assert "does not exist" in str(run("audit", "--estimator", "logistic", "--json", "/nowhere/a.json").exception)
