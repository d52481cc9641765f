"""The CNN of the dissertation trains by DP-SGD and DP-SRM, paper and privet side by side."""

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
    yield opened("dp_srm_cnn")
    importlib.import_module("deep_runs").images.cache_clear()


@pytest.mark.skipif(
    not (DATA / "mnist.npz").exists(), reason="mnist.npz is not available: set PRIVET_DATA to its folder"
)
def test_quick_run(experiment, tmp_path, capsys):
    results = experiment.main(["--quick", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"dp_srm_cnn_quick.{kind}" for kind in ("json", "png")}
    plain, recursive = results["rows"]
    assert (plain["method"], recursive["method"]) == ("DP-SGD", "DP-SRM")
    assert (plain["paper_error"], recursive["paper_error"]) == (3.81, 3.62)
    assert all(0 < row["error"][0] < 100 and 2.9 < row["spent_epsilon"] <= 3 for row in results["rows"])
    told = capsys.readouterr().out
    assert "3.62" in told
    beside = results["test_error_beside"]
    assert f"most frequent class {beside['majority']:.1f} %" in told
    assert beside["majority"] == pytest.approx(100 - 100 * 67 / 500)  # 67 of the first 500 test images are ones
    assert beside["without_noise"][0] < beside["majority"]


def test_full_is_the_search_of_the_paper(experiment):
    study = experiment.PRESETS["full"]
    assert {method: len(each) for method, each in study.candidates.items()} == {"DP-SGD": 15, "DP-SRM": 315}
    assert study.epsilons == (1.2, 3.0, 7.0)
    assert {(epsilon, method) for epsilon in study.epsilons for method in study.candidates} == set(study.paper)
    assert math.isclose(study.template.clip_norm, 1.5)


def test_both_methods_have_as_many_candidates(experiment):
    candidates = experiment.PRESETS["standard"].candidates
    assert {len(each) for each in candidates.values()} == {3}
    assert all(setting.momentum is None for setting in candidates["DP-SGD"])
    assert all(setting.momentum.difference_norm == 0.01 for setting in candidates["DP-SRM"])
