"""Spectra distinguish smooth layers from noise, and the experiment runs from end to end on synthetic images."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_frequency")


def test_noise_is_flat_and_a_smooth_layer_is_not(experiment):
    noise = np.random.default_rng(1).normal(size=4000)
    flat = experiment.Spectrum("CNN", "0.weight", 1, experiment.magnitudes_of(noise))
    assert flat.low_share == pytest.approx(0.1, abs=0.03)
    assert flat.slope == pytest.approx(0.0, abs=0.1)
    smooth = experiment.Spectrum("CNN", "0.weight", 1, experiment.magnitudes_of(np.cumsum(noise)))
    assert smooth.low_share > 0.9
    assert smooth.slope < -0.6


def test_magnitudes_keep_the_energy(experiment):
    layer = np.random.default_rng(1).normal(size=(3, 7))
    magnitudes = experiment.magnitudes_of(layer)  # of an odd number: each frequency stands for two
    assert 2 * np.sum(magnitudes**2) == pytest.approx(np.sum((layer - layer.mean()) ** 2))


def test_quick_run(experiment, images, monkeypatch, tmp_path, capsys):
    def pixels():
        made = images(2000, 28)
        return type(made)(made.X[:, 0].flatten(1), made.y, *(made.X_test[:, 0].flatten(1), made.y_test) * 2)

    monkeypatch.setattr(experiment, "mnist_pixels", pixels)
    results = experiment.main(["--quick"])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        f"fed_frequency_quick.{kind}" for kind in ("json", "png")
    }
    assert json.loads((tmp_path / "results" / "fed_frequency_quick.json").read_text())["rows"] == results["rows"]
    assert [row["round"] for row in results["rows"]] == [1, 1, 2, 2, 1]
    assert "first full layer" in capsys.readouterr().out


def test_full_analyses_the_rounds_of_the_paper(experiment):
    assert experiment.PRESETS["full"].rounds == (1, 50, 100, 200)
