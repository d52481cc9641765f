"""The tables of the CNN run from end to end on synthetic images, and --full is the configuration of the paper."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_cnn")


def test_quick_run(experiment, images, tmp_path, capsys):
    results = experiment.main(["--quick"])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        f"fed_cnn_quick.{kind}" for kind in ("json", "png")
    }
    assert json.loads((tmp_path / "results" / "fed_cnn_quick.json").read_text())["findings"] == results["findings"]
    kinds = [row["cell"][0] for row in results["rows"]]
    assert [kinds.count(kind) for kind in ("figure 6", "table 3", "table 5", "table 6")] == [2, 2, 4, 2]
    printed = capsys.readouterr().out
    assert "the paper has 604,388" in printed
    assert "64.88" in printed  # the paper's, z = 3, sigma 0, rate 0.1


def test_full_is_the_configuration_of_the_paper(experiment):
    full = experiment.PRESETS["full"]
    assert (full.rounds, full.clip_norm, full.clients_per_round, len(full.seeds)) == (200, 0.3, 100, 5)
    assert (full.local.epochs, full.local.batch_size, full.local.learning_rate) == (10, 64, 0.1)
    assert full.network.__name__ == "paper_cnn"
    assert (full.n_clients, full.n // full.n_clients) == (200, 100)
    assert (full.multipliers, full.high, full.rates) == (
        (2.4, 2.2, 2.0, 1.8),
        (3.0, 3.5, 4.0),
        (0.025, 0.05, 0.1, 0.125),
    )


def test_pretraining_gives_all_seeds_the_same_initial_weights(experiment, images):
    preset = experiment.PRESETS["quick"]
    runs = importlib.import_module("fed_runs")
    first, second = (runs.begun(experiment.prepared(preset), seed)[0].weight for seed in (1, 2))
    torch.testing.assert_close(first, second)
    assert not torch.equal(first, runs.begun(experiment.scratch(preset), 1)[0].weight)
