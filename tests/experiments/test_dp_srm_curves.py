"""STORM descends, and the curves of all methods are drawn on a part of the data."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from privet.objectives import BoundedRows, Logistic, SaturatingPenalty
from privet.solvers import Problem

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))
needs_a9a = pytest.mark.skipif(not (DATA / "a9a.npz").exists(), reason="a9a.npz is not available: set PRIVET_DATA")


@pytest.fixture
def experiment(opened):
    return opened("dp_srm_curves")


def test_storm_reduces_the_gradient(experiment):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5)) / 3
    problem = Problem(Logistic(), SaturatingPenalty(0.001), BoundedRows(X, 2.0), (X[:, 0] > 0).astype(float))
    run = experiment.storm(problem, 1.0 / problem.smoothness, seed=0)
    assert len(run) == experiment.STORM_PASSES * 3
    assert problem.gradient_norm(run[-1]) < 0.7 * problem.gradient_norm(problem.start())


@needs_a9a
def test_quick_run(experiment, tmp_path):
    results = ROOT / "docs" / "results" / "dp_srm_table42.json"
    (tmp_path / "docs" / "results").mkdir(parents=True)
    shutil.copy(results, tmp_path / "docs" / "results")
    found = experiment.main(["--quick"])["figures"]["Figure 4.1"]
    assert {row["method"] for row in found} == {*experiment.SHOWN, "STORM (not private)"}
    assert all(0 < row["last_gradient"] < 1 and len(row["passes"]) == len(row["gradient"]) for row in found)
    assert (tmp_path / "results" / "dp_srm_curves_quick.png").exists()
