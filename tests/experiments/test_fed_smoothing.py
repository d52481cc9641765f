"""The comparison of smoothed and plain federated training runs from end to end on synthetic images."""

import json
import math

import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_smoothing")


def test_quick_run(experiment, images, tmp_path, capsys):
    results = experiment.main(["--quick"])
    written = tmp_path / "results" / "fed_smoothing_quick.json"
    assert json.loads(written.read_text())["rows"] == results["rows"]
    assert written.with_suffix(".png").exists()
    assert [(row["sampling"], row["sigma"]) for row in results["rows"]] == [
        ("poisson", 0.0),
        ("poisson", 1.0),
        ("uniform", 0.0),
        ("uniform", 1.0),
    ]
    for plain, smooth in (results["rows"][:2], results["rows"][2:]):
        assert plain["gain"] == [0.0, 0.0]
        assert smooth["gain"][0] == pytest.approx(smooth["test"][0] - plain["test"][0])
    assert results["majority"] == 10.0
    assert results["without_noise"]["epsilon"] is None
    assert results["noise_to_clip"] == pytest.approx(1.8 * math.sqrt(22_682) / 2)
    assert "84.40" in capsys.readouterr().out  # the paper's, uniform, sigma 1


def test_the_setting_is_that_of_the_paper_where_it_can_be(experiment):
    grid = experiment.PRESETS["standard"]
    setting = grid.template.setting
    assert (setting.n_clients, setting.clients_per_round, setting.rounds, setting.clip_norm) == (2000, 100, 200, 0.3)
    assert {("poisson", 1.8), ("uniform", 1.8)} <= {(sampling, z) for sampling, z, _ in grid.settings}
    assert all(0.0 in sigmas for _, _, sigmas in grid.settings)


def test_images_are_standardised_one_by_one(opened):
    digits = opened("fed_digits")
    X = torch.rand(3, 3, 8, 8)
    alone, together = digits.standardised(X[:1]), digits.standardised(X)
    torch.testing.assert_close(alone, together[:1])
    assert float(together[1].mean()) == pytest.approx(0, abs=1e-6)
    assert float(together[1].std()) == pytest.approx(1)
