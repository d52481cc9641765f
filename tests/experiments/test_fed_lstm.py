"""Tables 4 and H.10 run from end to end on synthetic roles, and --full is the configuration of the paper."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened, monkeypatch):
    module = opened("fed_lstm")
    texts = {f"role {place}": "abcd" * 60 for place in range(25)}
    monkeypatch.setattr(module, "role_texts", lambda: texts)
    yield module
    module.roles.cache_clear()


def test_quick_run(experiment, tmp_path, capsys):
    results = experiment.main(["--quick"])
    written = tmp_path / "results" / "fed_lstm_quick.json"
    assert json.loads(written.read_text())["rows"] == results["rows"]
    assert written.with_suffix(".png").exists()
    assert [(row["sampling"], row["sigma"]) for row in results["rows"]] == [
        ("poisson", 0.0),
        ("poisson", 1.0),
        ("uniform", 0.0),
        ("uniform", 1.0),
    ]
    plain, smooth = results["rates"]
    assert smooth["gain"][0] == pytest.approx(smooth["test"][0] - plain["test"][0])
    assert [(row["clip"], row["sigma"]) for row in results["small_clip"]] == [(0.7, 0.0), (0.7, 1.0)]
    (control,) = results["controls"]
    assert control["gain"][0] == pytest.approx(control["test"][0] - plain["test"][0])
    assert (results["roles"], results["majority"]) == (20, 50.0)  # two of the four letters follow
    assert results["without_noise"]["epsilon"] is None
    printed = capsys.readouterr().out
    assert "41.49" in printed  # the paper's, z = 1, sigma 0
    assert "39.49" in printed  # the paper's, rate 1.87, sigma 1


def test_the_network_learns_from_roles(experiment):
    run = replace(experiment.PRESETS["quick"].grid.template, rate=2.0, rounds=15, seed=1)
    assert experiment.outcome(run)["test"] > 90 > experiment.commonest(experiment.data_of(run).test) + 30


def test_the_small_network_is_an_lstm(opened):
    data = opened("fed_data")
    torch.manual_seed(0)
    small = data.SmallLSTM(5, units=4)
    reference = torch.nn.LSTM(8, 4, batch_first=True)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(small.inputs.weight)
        reference.weight_hh_l0.copy_(small.hidden.weight)
        reference.bias_ih_l0.copy_(small.inputs.bias)
        reference.bias_hh_l0.zero_()
    characters = torch.randint(0, 5, (3, 6))
    states, _ = reference(small.embedding(characters))
    torch.testing.assert_close(small(characters), small.scores(states[:, -1]))


def test_full_is_the_configuration_of_the_paper(experiment):
    grid = experiment.PRESETS["full"].grid
    full = grid.template
    assert (full.length, full.units, full.layers, full.rounds) == (80, 256, 2, 100)
    assert (full.rate, full.batch_size, full.epochs, full.clip_norm) == (1.47, 50, 5, 5.0)
    assert ({z for _, z, _ in grid.settings}, len(grid.seeds)) == ({1.4, 1.2, 1.0, 0.8}, 5)
