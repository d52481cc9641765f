"""The CNNs on CIFAR-10 train by all methods."""

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
    yield opened("cifar_cnn")
    importlib.import_module("deep_runs").images.cache_clear()


@pytest.mark.skipif(
    not (DATA / "cifar10_15k_3k.npz").exists(),
    reason="cifar10_15k_3k.npz is not available: set PRIVET_DATA to its folder",
)
def test_quick_run(experiment, tmp_path, capsys):
    results = experiment.main(["--quick", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"cifar_cnn_quick.{kind}" for kind in ("json", "png")}
    assert {each["method"] for each in results["figure6"]} == set(experiment.OPTIMISERS)
    assert {row["paper_error"] for row in results["cnn5"]} == {49.3, 47.1}
    assert all(math.isfinite(row["error"][0]) and row["spent_epsilon"] <= 10 for row in results["cnn5"])
    assert "1000 images" in capsys.readouterr().out


@pytest.mark.skipif(
    not (DATA / "cifar10_15k_3k.npz").exists(),
    reason="cifar10_15k_3k.npz is not available: set PRIVET_DATA to its folder",
)
def test_one_epsilon_runs_alone(experiment, tmp_path):
    results = experiment.main(["--quick", "--epsilon", "8", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"cifar_cnn_epsilon8_quick.{kind}" for kind in ("json", "png")}
    assert [row["paper_error"] for row in results["rows"]] == [50.2, 48.2]
    assert all(row["spent_epsilon"] <= 8 for row in results["rows"])


def test_full_is_the_configuration_of_the_paper(experiment):
    preset = experiment.PRESETS["full"]
    jobs = experiment.planned(preset)
    assert {(job.noise_multiplier, job.clip_norm, job.batch) for job in jobs} == {(2.0, 3.0, 256)}
    assert {job.learning_rate for job in jobs} == {0.15, 0.001}
    assert preset.study.epsilons == (6.0, 8.0, 10.0)
    assert {method: len(each) for method, each in preset.study.candidates.items()} == {"DP-SGD": 15, "DP-SRM": 315}


def test_other_presets_use_all_images(experiment):
    for name in ("standard", "full"):
        template = experiment.PRESETS[name].study.template
        assert (template.source, template.n, template.n_test) == ("cifar10.npz", 50_000, None)
