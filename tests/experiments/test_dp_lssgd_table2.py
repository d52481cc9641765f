"""The DP-LSSGD experiment runs, its numbers are finite, and its estimator is the one that is shipped."""

import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")
if not (DATA / "mnist.npz").exists():
    pytest.skip(f"mnist.npz is not in {DATA}: set PRIVET_DATA to the folder that holds it", allow_module_level=True)


@pytest.fixture
def experiment(opened):
    yield opened("dp_lssgd_table2")
    descents = sys.modules["dp_lssgd_descents"]
    descents.images.cache_clear()  # a gigabyte that no other test needs
    descents.bounded.cache_clear()


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, float) else []


def test_quick_run(experiment, tmp_path):
    results = experiment.main(["--quick"])
    found = numbers(results)
    assert len(found) > 300
    assert all(map(math.isfinite, found))
    assert all(row["privet"]["mean"] > 50 for row in results["table2"])
    assert all(row["privet"]["mean"] > row["text"]["mean"] for row in results["table2"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"dp_lssgd_{name}" for name in FILES}

    # Watching the estimator does not change it.
    fitted = sys.modules["dp_lssgd_descents"].fitted
    job = experiment.Job("privet", 0.10, 2, 7, experiment.QUICK)
    watched = fitted(replace(job, with_curve=True))
    assert len(watched) > 10
    np.testing.assert_array_equal(watched[-1], fitted(job)[-1])


FILES = ("table2_quick.json", "table2_quick.png", "figure3_quick.png", "figure4_quick.png")


def test_the_published_noise_does_not_give_the_published_epsilon(experiment):
    """The noise suffices for Poisson sampling, but the authors' code shuffles and does not clip records."""
    for row in experiment.certified():
        assert row["clipped_and_drawn"] < row["claimed"] < row["clipped"] < row["as_it_is"]


def test_the_number_of_runs_multiplies_the_jobs(experiment):
    preset = experiment.options(["--full", "--runs", "2"])
    jobs = experiment.planned(preset)
    assert len(set(jobs)) == len(jobs)
    table = [job for job in jobs if job.a == 1]
    assert len(table) == 4 * 5 * 4 * 2
    assert {job.preset.epochs for job in jobs} == {50}


def test_step_of_the_published_code(experiment):
    choose = sys.modules["dp_lssgd_descents"].EpochStep(2.0, epoch=3).start(0.0)
    sizes = [choose(np.zeros(1)) for _ in range(7)]
    assert sizes == [2.0] * 3 + [2.0 / 4] * 3 + [2.0 / 7]
