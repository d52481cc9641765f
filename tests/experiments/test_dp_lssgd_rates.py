"""Every method of the DP-LSSGD paper trains with the learning rate that is best on held-out images."""

import importlib
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))

pytest.importorskip("torch", reason="networks need PyTorch: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    yield opened("dp_lssgd_rates")
    importlib.import_module("deep_runs").images.cache_clear()


@pytest.mark.skipif(
    not (DATA / "mnist.npz").exists(), reason="mnist.npz is not available: set PRIVET_DATA to its folder"
)
def test_quick_run_chooses_rates_on_held_out_images_only(experiment, tmp_path):
    results = experiment.main(["--quick", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"dp_lssgd_rates_quick.{kind}" for kind in ("json", "png")}
    for row in results["rows"]:
        candidates = [each for each in results["candidates"] if each["method"] == row["method"]]
        found = {each["learning_rate"]: each["held_out_accuracy"] for each in candidates}
        assert found[row["learning_rate"]] == max(found.values())
    assert len(results["gains"]) == 2


def test_candidates_never_see_their_held_out_images_in_training(experiment):
    for size in experiment.SIZES.values():
        for each in experiment.trials(size):
            assert each.n + each.held_out == size.preset.n
            assert each.held_out > 0
            assert each.seed not in range(size.preset.runs)
