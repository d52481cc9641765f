"""The accuracy of the start is measured on the test images of the trainings that begin there."""

import json

import pytest

pytest.importorskip("torch", reason="clients train networks: install the extra deep")


@pytest.fixture
def experiment(opened):
    return opened("fed_start")


def test_quick_run(experiment, images, tmp_path, capsys):
    results = experiment.main(["--quick"])
    assert json.loads((tmp_path / "results" / "fed_start_quick.json").read_text())["accuracy"] == results["accuracy"]
    assert results["most_common_digit"] == 10.0  # the synthetic images have ten classes of equal size
    assert 0 <= results["accuracy"] <= 100
    assert "Untouched" in capsys.readouterr().out
