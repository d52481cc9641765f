"""Table 4 runs from end to end on synthetic roles, and --full is the configuration of the paper."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_lstm")


def test_quick_run(experiment, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(experiment, "role_texts", lambda: {f"role {place}": "abcd" * 60 for place in range(25)})
    results = experiment.main(["--quick"])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        f"fed_lstm_quick.{kind}" for kind in ("json", "png")
    }
    assert json.loads((tmp_path / "results" / "fed_lstm_quick.json").read_text())["rows"] == results["rows"]
    assert [row["cell"] for row in results["rows"]] == [["poisson", 1.0, 0.0], ["poisson", 1.0, 1.0]]
    assert "20 roles" in results["ran"]
    assert "41.49" in capsys.readouterr().out  # the paper's


def test_the_network_learns_from_roles(experiment):
    from dataclasses import replace

    fed_data, fed_runs = (importlib.import_module(name) for name in ("fed_data", "fed_runs"))
    preset = replace(experiment.PRESETS["quick"], rounds=10)
    texts = {f"role {place}": "abcd" * 60 for place in range(10)}
    roles = fed_data.roles_of(texts, preset.length, 100, most=1000)
    task = experiment.task_of(roles, preset)
    model = fed_runs.trained_without_privacy(task, experiment.setting(preset, roles, "poisson", 1.0), 1)
    assert task.test(model) > 90 > experiment.commonest(roles.test) + 60


def test_full_is_the_configuration_of_the_paper(experiment):
    full = experiment.PRESETS["full"]
    assert (full.length, full.units, full.layers, full.rounds, full.share) == (80, 256, 2, 100, 0.2)
    assert (full.local.learning_rate, full.local.batch_size, full.local.epochs) == (1.47, 50, 5)
    assert (full.clip_norm, full.multipliers, len(full.seeds)) == (5.0, (1.4, 1.2, 1.0, 0.8), 5)
