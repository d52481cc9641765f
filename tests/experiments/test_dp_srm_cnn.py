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
    assert "3.62" in capsys.readouterr().out


def test_full_is_the_search_of_the_paper(experiment):
    study = experiment.PRESETS["full"]
    assert {method: len(each) for method, each in study.candidates.items()} == {"DP-SGD": 15, "DP-SRM": 315}
    assert study.epsilons == (1.2, 3.0, 7.0)
    assert {(epsilon, method) for epsilon in study.epsilons for method in study.candidates} == set(study.paper)
    assert math.isclose(study.template.clip_norm, 1.5)


def test_the_chosen_settings_are_in_the_grid_of_the_paper(experiment):
    for settings, searched in zip(experiment.FOUND.values(), experiment.SEARCH.values(), strict=True):
        tuned = {(each.learning_rate, each.batch, each.refresh, each.first) for each in searched}
        assert {(each.learning_rate, each.batch, each.refresh, each.first) for each in settings} <= tuned
