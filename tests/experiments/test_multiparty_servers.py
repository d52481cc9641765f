"""Points of chapter 6 through real servers, on made-up rows, and the results that were written."""

import json
import os
import sys
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc", reason="owners call servers over gRPC: install the extra multiparty")

from privet.multiparty import make_keys
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, NoiseSource

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
PRELOADED = Path(__file__).resolve().parents[1] / "multiparty"


@pytest.fixture
def experiment(opened, monkeypatch):
    # Servers start quickly if the process from which they are forked has loaded the package. See tests/multiparty.
    monkeypatch.setenv("PYTHONPATH", str(PRELOADED), prepend=os.pathsep)
    forkserver.set_forkserver_preload(["preloaded"])
    return opened("multiparty_servers")


def rows_of(experiment, owners, rows, columns=60):
    """Return rows in the unit ball, whose first entry decides the class."""
    rng = np.random.default_rng(0)
    data = sys.modules["multiparty_data"]
    X = data.in_unit_ball(rng.uniform(-1, 1, (owners * rows + 20, columns)))
    y = (X[:, [0]].toarray().ravel() > 0).astype(int)
    n = owners * rows
    return experiment.Deal(data.Study("made up", X[:n], y[:n], X[n:], y[n:]), owners)


def test_a_descent_through_real_servers_is_its_simulation(experiment, tmp_path):
    owners, steps = 4, 2
    keys = make_keys(tmp_path / "keys", [f"server {index}" for index in range(3)], owners=["a", "b", "c", "d"])
    deal = rows_of(experiment, owners, 5)
    row = experiment.examined(experiment.Point(experiment.MPC_GRAD, owners, steps), deal, keys, seeds=30)
    assert row["owners_who_took_part"] == owners
    assert row["noise"]["coordinates"] == steps * 60
    assert abs(row["noise"]["ratio"] - 1) < 5 * row["noise"]["error"]  # false once in a million runs
    assert abs(row["gap"]["deviations"]) < 6
    assert row["bytes_per_owner_and_server"] < steps * 10_000


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.5])
def test_noise_that_is_not_that_of_the_plan_is_noticed(experiment, factor):
    plan = AggregationPlan.for_budget(Budget(0.5, 1e-3), dimension=500, steps=2, sensitivity=2.0, largest=100.0)
    observed = experiment.Observed(plan)
    observed.handed_in += np.arange(500)
    noise = NoiseSource(0).lattice(1000, plan.law).reshape(2, 500) * factor
    observed.opened += list(plan.off_lattice(observed.handed_in + np.rint(noise).astype(int)))
    ratio, error = np.sqrt(np.mean(observed.noise() ** 2)), 1 / np.sqrt(2 * 1000)
    assert (abs(ratio - 1) < 5 * error) == (factor == 1.0)


def test_the_written_results_cover_the_figures_and_agree():
    written = json.loads((RESULTS / "multiparty_servers.json").read_text())
    points = {(row["dataset"], row["owners"], row["method"]) for row in written["rows"]}
    assert len(points) == 3 * 2 * 2
    assert all(row["owners_who_took_part"] == row["owners"] and row["figure"] for row in written["rows"])
    for row in written["rows"]:
        assert abs(row["noise"]["ratio"] - 1) < 3 * row["noise"]["error"]
        for name in ("gap", "loss"):
            assert abs(row[name]["deviations"]) < 3
            spread = row[name]["simulated"]
            expected = (row[name]["servers"] - spread["mean"]) / spread["std"]
            assert row[name]["deviations"] == pytest.approx(expected)
