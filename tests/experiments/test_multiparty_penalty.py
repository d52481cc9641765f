"""MPC Out-P with the penalty of Local Obj-P, on made-up rows, and the results that were written."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "multiparty_penalty.json"


def test_only_the_penalty_differs(opened):
    experiment = opened("multiparty_penalty")
    data, rng = sys.modules["multiparty_data"], np.random.default_rng(0)
    X = data.in_unit_ball(rng.normal(size=(260, 6)))
    y = np.clip(X @ np.linspace(-1, 1, 6), -1, 1)
    own, given, local = experiment.examined(data.Study("made up", X[:240], y[:240], X[240:], y[240:]), 24, seeds=4)
    assert own["penalty"] == experiment.ALPHA < given["penalty"] == local["penalty"]
    assert all(0.49 < row["epsilon"] <= 0.5 for row in (own, given, local))
    assert own["noise_std"] / given["noise_std"] == pytest.approx(given["penalty"] / own["penalty"], rel=1e-3)
    assert own["gap_without_noise"] < given["gap_without_noise"] < given["gap"]["mean"] < own["gap"]["mean"]


def test_with_equal_penalties_joint_noise_is_better_on_bike_and_noise_is_the_reason():
    rows = {(row["parties"], row["method"]): row for row in json.loads(RESULTS.read_text())["rows"][-9:]}
    for parties in (100, 1000, 13_000):
        own = rows[parties, "MPC Out-P, lambda 0.001"]
        given = rows[parties, "MPC Out-P, penalty of Local Obj-P"]
        local = rows[parties, "Local Obj-P"]
        assert {row["dataset"] for row in (own, given, local)} == {"Bike"}
        error = np.hypot(given["gap"]["std"], local["gap"]["std"]) / np.sqrt(local["gap"]["runs"])
        assert given["gap"]["mean"] < local["gap"]["mean"] - 2 * error
        assert own["gap"]["mean"] > own["gap_of_zero_weights"]
        assert own["gap_of_quadratic_noise"] > own["gap_of_zero_weights"]
