"""The linear layers of CNN6 train by DP-SGD and DP-SRM on the outputs of frozen convolutions."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))
FILES = ("cifar10_15k_3k.npz", "svhn_20k_5k.npz")

torch = pytest.importorskip("torch", reason="networks need PyTorch: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    yield opened("dp_srm_cnn6")
    importlib.import_module("deep_runs").images.cache_clear()


@pytest.mark.skipif(
    not all((DATA / name).exists() for name in FILES),
    reason=f"{' or '.join(FILES)} is not available: set PRIVET_DATA to their folder",
)
def test_quick_run(experiment, tmp_path):
    results = experiment.main(["--quick", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"dp_srm_cnn6_quick.{kind}" for kind in ("json", "png")}
    assert [row["paper_error"] for row in results["rows"]] == [31.2, 31.0]
    assert all(0 < row["error"][0] < 100 and 3.9 < row["spent_epsilon"] <= 4 for row in results["rows"])
    with np.load(tmp_path / ".experiments" / "data" / "cnn6_quick.npz") as features:
        assert features["x_train"].shape == (1000, 512)


def test_full_is_the_search_of_the_paper(experiment):
    _, study = experiment.PRESETS["full"]
    assert {method: len(each) for method, each in study.candidates.items()} == {"DP-SGD": 18, "DP-SRM": 18 * 27}
    assert {(epsilon, method) for epsilon in study.epsilons for method in study.candidates} == set(study.paper)
    assert study.template.clip_norm == 2.0


def test_the_three_linear_layers_have_74570_weights(experiment):
    top = importlib.import_module("deep_runs").NETS["cnn6_top"]()
    assert sum(weights.numel() for weights in top.parameters()) == 74_570
