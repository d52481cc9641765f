"""Table 2 runs from end to end on synthetic images, and --full is the configuration of the paper."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_logistic")


@pytest.fixture
def pixels(experiment, monkeypatch):
    """Replace MNIST by images with one of ten bright bands."""
    fed_data = importlib.import_module("fed_data")

    def made(n):
        generator = torch.Generator().manual_seed(0)
        y = torch.arange(n + 400) % 10
        X = 0.1 * torch.rand(n + 400, 784, generator=generator)
        for label in range(10):
            X[y == label, 78 * label : 78 * label + 40] += 0.5
        cuts = [slice(0, n), slice(n, n + 200), slice(n + 200, None)]
        return fed_data.Examples(*(each[cut] for cut in cuts for each in (X, y)))

    monkeypatch.setattr(experiment, "mnist_pixels", made)


def test_quick_run(experiment, pixels, tmp_path, capsys):
    results = experiment.main(["--quick"])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        f"fed_logistic_quick.{kind}" for kind in ("json", "png")
    }
    assert json.loads((tmp_path / "results" / "fed_logistic_quick.json").read_text())["rows"] == results["rows"]
    ours, *theirs = results["rows"]
    assert ours["epsilon"] <= ours["budget"] == 6.0
    assert ours["accuracy"]["mean"] > 80  # bands are easy
    assert [row["sigma"] for row in theirs] == [0.0, 1.0]
    assert all(row["epsilon"] < 6.0 for row in theirs)
    assert "paper 84.77" in capsys.readouterr().out


def test_full_is_the_configuration_of_the_paper(experiment):
    full = experiment.PRESETS["full"]
    assert (len(full.seeds), full.epsilons, full.sigmas) == (5, (6.0, 7.0, 8.0, 9.0), (0.0, 1.0, 2.0, 3.0))
    for sampling, n in (("uniform", 1000), ("poisson", 500)):
        setting = experiment.theirs(sampling, 6.0, 1.0, full)
        assert (setting.n_clients, setting.clients_per_round, setting.rounds) == (n, n // 20, 30)
        assert (setting.clip_norm, setting.is_by_theorem, setting.denoiser.sigma) == (0.4, True, 1.0)
        local = setting.local
        assert (local.learning_rate, local.batch_size, local.epochs, local.decay) == (0.1, 10, 5, 0.99)
        ours = experiment.ours(sampling, 6.0, full)
        assert (ours.n_clients, ours.delta, ours.is_by_theorem) == (n, setting.delta, False)


def test_the_best_entries_of_the_paper(experiment):
    best = {
        sampling: [max(column) for column in zip(*rows.values(), strict=True)]
        for sampling, rows in experiment.PAPER.items()
    }
    assert best == {"uniform": [84.77, 85.90, 86.40, 86.63], "poisson": [85.64, 86.51, 86.79, 87.23]}


def test_losses_of_consecutive_runs_are_averaged_by_round(experiment):
    assert experiment._mean_of([1.0, 2.0, 3.0, 4.0], runs=2) == [2.0, 3.0]
