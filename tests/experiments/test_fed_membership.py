"""Models are attacked, and the attack detects a model that has memorised its images."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_membership")


def test_quick_run(experiment, images, tmp_path, capsys):
    results = experiment.main(["--quick"])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        f"fed_membership_quick.{kind}" for kind in ("json", "png")
    }
    assert json.loads((tmp_path / "results" / "fed_membership_quick.json").read_text())["rows"] == results["rows"]
    assert [row["model"] for row in results["rows"]] == [
        "no privacy",
        "poisson, z 1.8, sigma 0",
        "poisson, z 1.8, sigma 1",
    ]
    assert results["rows"][0]["epsilon"] is None
    assert results["rows"][1]["first_attack"]["n_in"] == results["rows"][1]["first_attack"]["n_out"] == 300
    assert "81.45" in capsys.readouterr().out  # the paper's


def test_the_attack_detects_a_model_that_memorised_its_images(experiment):
    fed_data = importlib.import_module("fed_data")
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(120, 30, generator=generator)
    y = torch.randint(0, 2, (120,), generator=generator)  # independent of X
    data = experiment.Populace(fed_data.Examples(X[:40], y[:40], X[40:80], y[40:80], X[80:], y[80:]), X[40:], y[40:])
    torch.manual_seed(0)
    model = torch.nn.Linear(30, 2)
    assert not data.attack(model).is_significant
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(X[:40]), y[:40]).backward()
        optimizer.step()
    found = data.attack(model)
    assert found.is_significant
    assert (found.n_in, found.n_out) == (40, 40)


def test_members_and_other_images_are_disjoint(experiment, images):
    preset = experiment.PRESETS["quick"]
    data = experiment.Populace.of(preset)
    assert (len(data.members.y), len(data.y_out)) == (preset.n, preset.attacked)
    both = torch.cat([data.members.X, data.X_out]).flatten(1)
    assert len(torch.unique(both, dim=0)) == preset.n + preset.attacked


def test_full_is_the_configuration_of_the_paper(experiment):
    full = experiment.PRESETS["full"]
    assert set(full.cases) == {(sampling, z) for sampling in ("uniform", "poisson") for z in (1.8, 2.2)}
    assert (full.share, full.rounds, full.clip_norm, len(full.seeds)) == (0.2, 200, 0.3, 5)
