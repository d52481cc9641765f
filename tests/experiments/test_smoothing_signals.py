"""Expected errors of smoothing agree with drawn noise, and the experiment runs from end to end."""

import json

import numpy as np
import pytest

from privet.denoise import laplacian_smoothing


@pytest.fixture
def experiment(opened):
    return opened("smoothing_signals")


@pytest.mark.parametrize(("level", "sigma"), [(0.02, 2.0), (0.3, 1.0)])
def test_the_expected_share_agrees_with_drawn_noise(experiment, level, sigma):
    rng = np.random.default_rng(0)
    noisy = experiment.WAVE + level * rng.normal(size=(200, 500))
    smoothed = np.array([laplacian_smoothing(each, sigma) for each in noisy])
    errors = [np.mean((each - experiment.WAVE) ** 2) for each in (noisy, smoothed)]
    assert 1 - errors[1] / errors[0] == pytest.approx(experiment.removed(level, sigma), abs=0.02)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_smoothing_neither_adds_nor_removes_error_at_break_even(experiment, sigma):
    assert experiment.removed(experiment.break_even(sigma), sigma) == pytest.approx(0.0, abs=1e-9)


def test_quick_run(experiment, tmp_path):
    results = experiment.main(["--quick"])
    written = json.loads((tmp_path / "results" / "smoothing_signals_quick.json").read_text())
    assert written["paths"] == results["paths"]
    assert [row["signal"] for row in results["figure2"]] == ["1D", "2D"]
    assert all(row["after"] < row["before"] for row in results["figure2"])
    assert (tmp_path / "results" / "smoothing_signals_quick.png").exists()
