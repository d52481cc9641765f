"""The recipe for MNIST runs from end to end on a part of the data, and the features of an image depend on it alone."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))

torch = pytest.importorskip("torch", reason="the recipe trains a network: install the extra deep")


@pytest.fixture
def experiment(opened):
    return opened("mnist_recipe")


def test_features_of_an_image_do_not_depend_on_the_others(experiment):
    images = torch.rand(7, 28, 28, generator=torch.Generator().manual_seed(0))
    found = experiment.features(images, part=3)
    assert found.shape == (7, 81, 7, 7)
    changed = images.clone()
    changed[[0, 1, 3, 4, 5, 6]] = 0.0
    torch.testing.assert_close(experiment.features(changed)[2], found[2], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(experiment.features(images[2:3])[0], found[2], rtol=1e-4, atol=1e-4)


def test_wavelets_have_mean_zero_and_averages_keep_constants(experiment):
    assert experiment.morlet(0.8, 7).sum((1, 2, 3)).abs().max() < 1e-6
    assert experiment.averaging(1.6, 10).sum() == pytest.approx(1.0)


@pytest.mark.skipif(not (DATA / "mnist.npz").exists(), reason=f"mnist.npz is not in {DATA}: set PRIVET_DATA")
def test_quick_run(experiment, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PRIVET_DATA", str(DATA))
    results = experiment.main(["--quick"])
    assert json.loads((tmp_path / "results" / "mnist_recipe_quick.json").read_text())["rows"] == results["rows"]
    assert [row["epsilon"] for row in results["rows"]] == [1.2, 3.0]
    assert all(row["epsilon_certified"] <= row["epsilon"] for row in results["rows"])
    assert all(row["privet"]["mean"] > 50 for row in results["rows"])
    assert "96.38" in capsys.readouterr().out  # the paper's
