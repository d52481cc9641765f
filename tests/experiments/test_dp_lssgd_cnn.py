"""The CNN of the DP-LSSGD paper trains by all four optimisers, and every panel has its runs."""

import importlib
import math
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))

pytest.importorskip("torch", reason="networks need PyTorch: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    yield opened("dp_lssgd_cnn")
    importlib.import_module("deep_runs").images.cache_clear()


@pytest.mark.skipif(
    not (DATA / "mnist.npz").exists(), reason="mnist.npz is not available: set PRIVET_DATA to its folder"
)
def test_quick_run(experiment, tmp_path, capsys):
    results = experiment.main(["--quick", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"dp_lssgd_cnn_quick.{kind}" for kind in ("json", "png")}
    found = {each["method"]: each for each in results["settings"]}
    assert set(found) == set(experiment.METHODS)
    assert all(0 < each["last"]["mean"] < 100 and each["spent_epsilon"] > 0 for each in results["settings"])
    assert len({each["spent_epsilon"] for each in results["settings"]}) == 1  # the four optimisers spend alike
    assert {each["paper_gain"] for each in results["figure7_right"]} == {3.2, 5.0}
    assert "Preset quick" in capsys.readouterr().out


def test_every_panel_has_its_runs(experiment):
    for preset in (experiment.STANDARD, experiment.FULL):
        jobs = experiment.planned(preset)
        assert len(set(jobs)) == len(jobs)
        main = [job for job in jobs if experiment.setting(job) == ("DP-LSSGD", 10.0, 0.15, 1.0)]
        assert len(main) == preset.runs >= 3
        methods = {(job.method, job.noise_multiplier) for job in jobs}
        assert methods == {(method, noise) for method in experiment.METHODS for noise in preset.noises}
        assert {job.learning_rate for job in jobs if job.method == "DP-SGD"} == {0.15, *preset.rates}
        assert {job.smoothing for job in jobs if "SGD" in job.method} == set(preset.sigmas)


def test_full_is_the_configuration_of_the_paper(experiment):
    job = experiment.planned(experiment.FULL)[0]
    assert (job.n, job.batch, job.clip_norm, job.decay_at) == (60_000, 256, 1.0, 10_000)
    assert job.steps == math.floor(60 * 60_000 / 256)
