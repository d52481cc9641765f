"""The comparison of methods runs, and every method learns more than the majority class."""

import json

import numpy as np
import pytest


@pytest.fixture
def experiment(opened):
    return opened("methods_table")


@pytest.fixture
def made_up(experiment, monkeypatch):
    """Replace a9a by rows whose label depends on one of five columns."""
    rng = np.random.default_rng(0)
    X = rng.choice([0.0, 1.0], (4000, 5))
    y = np.where(rng.random(4000) < 0.05, 1 - X[:, 0], X[:, 0]).astype(int)
    split = experiment.Split(X[:2000], y[:2000], X[2000:], y[2000:])
    monkeypatch.setattr(experiment.support, "a9a", lambda: split)


def test_quick_run(experiment, made_up, tmp_path):
    rows = experiment.main(["--quick"])["rows"]
    assert [row["method"] for row in rows] == list(experiment.METHODS)
    for row in rows:
        assert row["accuracy"]["mean"] > row["majority"] + 10
        assert row["accuracy"]["runs"] == 2
    written = json.loads((tmp_path / "results" / "methods_table_quick.json").read_text())
    assert written["rows"] == rows
    assert written["quick"]


def test_methods_that_add_noise_in_every_step_are_compared(experiment):
    offered = experiment.PrivateLogisticRegression.offered_methods()
    assert set(experiment.METHODS) == set(offered) - {"minimiser", "objective", "output"}
