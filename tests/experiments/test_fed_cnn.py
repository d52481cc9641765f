"""The tables of the CNN at high noise run from end to end on synthetic images."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture
def experiment(opened):
    return opened("fed_cnn")


def test_quick_run(experiment, images, tmp_path, capsys):
    results = experiment.main(["--quick"])
    written = tmp_path / "results" / "fed_cnn_quick.json"
    assert json.loads(written.read_text())["rows"] == results["rows"]
    assert written.with_suffix(".png").exists()
    tables = [row["table"] for row in results["rows"]]
    counts = {table: tables.count(table) for table in tables}
    assert counts == {"Table 5": 4, "Table 6": 2, "Table H.8": 8, "Table H.9": 6, "control": 2, "Table H.11": 10}
    assert results["majority"] == 10.0
    assert results["without_noise"]["epsilon"] is None
    assert "64.88" in capsys.readouterr().out  # the paper's, z = 3, sigma 0, rate 0.1
    check_gains(results["rows"])


def check_gains(rows):
    """A gain is the difference to the same training without smoothing."""
    clips = {(row["varied"], row["sigma"]): row for row in rows if row["table"] == "Table H.8"}
    plain, smooth = clips["clip 0.7", 0.0], clips["clip 0.7", 1.0]
    assert plain["gain"] == [0.0, 0.0]
    assert smooth["gain"][0] == pytest.approx(smooth["test"][0] - plain["test"][0])
    base = clips["clip 0.3", 0.0]
    stein = next(row for row in rows if row["varied"] == "James-Stein")
    assert stein["gain"][0] == pytest.approx(stein["test"][0] - base["test"][0])


def test_every_cell_of_the_written_results_has_three_seeds(experiment):
    written = json.loads((RESULTS / "fed_cnn.json").read_text())
    assert experiment.PRESETS["standard"].seeds == 3
    assert len(written["rows"]) == len(experiment.cells(experiment.BASE))
    assert {len(row["tests"]) for row in written["rows"]} == {3}


def test_a_variant_changes_the_setting_that_it_names(experiment):
    base = experiment.BASE
    changed = replace(base, epochs=2, batch_size=5, denoiser="soft threshold", order="OHWI", step_size=0.5).setting
    assert (changed.local.epochs, changed.local.batch_size, changed.order, changed.step_size) == (2, 5, "OHWI", 0.5)
    assert type(changed.denoiser).__name__ == "SoftThreshold"
    assert base.setting.denoiser is None
    assert replace(base, sigma=1.0).setting.denoiser.sigma == 1.0
