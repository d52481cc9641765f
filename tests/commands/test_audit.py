"""privet audit: models and settings attacked from the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from privet.cli import app
from privet.commands.audit import paired
from privet.plans import OutputPlan
from privet.privacy import Adjacency, Guarantee
from privet.privacy.events import GaussianRelease

COLUMNS = 100


@pytest.fixture
def tables(tmp_path):
    """Return random rows with random labels, which a model can only memorise."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (300, COLUMNS)), columns=[f"x{k}" for k in range(COLUMNS)])
    frame["sick"] = np.where(rng.random(300) < 0.5, "yes", "no")
    paths = tmp_path / "train.csv", tmp_path / "holdout.csv"
    frame[:150].to_csv(paths[0], index=False)
    frame[150:].to_csv(paths[1], index=False)
    return paths


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fitted(tables, path, **settings):
    bounds = [part for k in range(COLUMNS) for part in ("--bounds", f"x{k}=-1:1")]
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    done = run("fit", tables[0], "--target", "sick", *bounds, *options, "-o", path)
    assert done.exit_code == 0, done.output
    return path


def test_a_private_model_is_consistent(tables, tmp_path):
    model = fitted(tables, tmp_path / "m.json", epsilon=1)
    done = run("audit", model, "--train", tables[0], "--holdout", tables[1], "--json", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    assert "AUC" in done.output
    assert "consistent" in done.output
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["audit"]["claimed"] == pytest.approx(1.0)
    assert not found["audit"]["is_violation"]
    assert 0.3 < found["membership"]["auc"] < 0.8


def test_a_model_without_noise_is_a_violation_with_exit_code_1(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(OutputPlan, "noisy", lambda self, result, source: result)
    model = fitted(tables, tmp_path / "m.json", epsilon=0.1, method="minimiser", delta=1e-6)
    done = run("audit", model, "--train", tables[0], "--holdout", tables[1])
    assert done.exit_code == 1, done.output
    assert "VIOLATION: epsilon is above" in done.output


def test_settings_are_audited_and_a_planted_bug_ends_with_exit_code_1(tmp_path, monkeypatch):
    options = ("--estimator", "logistic", "--method", "output", "--runs", "100", "--json", tmp_path / "a.json")
    right = run("audit", *options)
    assert right.exit_code == 0, right.output
    assert "consistent: over 5 pairs" in right.output
    assert set(json.loads((tmp_path / "a.json").read_text())["audits"]) >= {"label flip", "outlier"}
    noisy = OutputPlan.noisy
    monkeypatch.setattr(
        OutputPlan, "noisy", lambda self, result, source: result + (noisy(self, result, source) - result) / 50
    )
    wrong = run("audit", *options)
    assert wrong.exit_code == 1, wrong.output
    assert "VIOLATION" in wrong.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either a model file"),
        (("m.json", "--estimator", "logistic"), "either a model file"),
        (("m.json",), "requires --train"),
        (("none.json", "--train", "a.csv", "--holdout", "b.csv"), "does not exist"),
        (("--estimator", "forest"), "must be one of logistic"),
        (("--estimator", "logistic", "--confidence", "1"), "must lie in"),
        (("--estimator", "logistic", "--json", "/nowhere/a.json"), "does not exist"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments, message):
    done = run("audit", *arguments)
    assert done.exit_code == 1
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)


def test_paired_rows_refute_a_claim_only_if_they_differ():
    guarantee = Guarantee.of(GaussianRelease(0.3), Adjacency.REPLACE_ONE, 1e-6, released="weights")
    rng = np.random.default_rng(1)
    same = paired(rng.standard_normal(500), rng.standard_normal(700), guarantee)
    assert not same.is_violation
    assert same.canaries == 500
    apart = paired(rng.standard_normal(500) + 5, rng.standard_normal(700), guarantee)
    assert apart.is_violation
    assert apart.lower_bound > 3
