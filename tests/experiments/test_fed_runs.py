"""Settings become plans that keep their budgets, and averaging without privacy is the mean of the clients' updates."""

import importlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module("fed_runs")


@pytest.fixture
def task(runs):
    """Return 300 points of three classes for 30 clients, which softmax regression can classify."""
    from privet.federated import Partitioned, accuracy
    from privet.federated.partition import iid

    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 300)
    X = (generator.normal(size=(300, 5)) + 3 * np.eye(5)[y]).astype(np.float32)

    def clients(number, seed):
        return Partitioned((X, y), iid(300, number, np.random.default_rng(seed)))

    return runs.Task(lambda: torch.nn.Linear(5, 3), clients, lambda model: 100 * accuracy(X, y)(model))


@pytest.fixture
def setting(runs):
    from privet.federated import LocalTraining

    return runs.Setting(30, 15, 5, 1.0, LocalTraining(0.5, batch_size=10, steps=3), epsilon=20.0)


@pytest.mark.parametrize("sampling", ["uniform", "poisson"])
def test_the_accountant_stays_within_the_budget(setting, sampling):
    chosen = replace(setting, sampling=sampling)
    plan = chosen.plan()
    assert 19.5 < plan.guarantee(chosen.delta).epsilon <= 20.0
    assert chosen.delta == pytest.approx(30**-1.1)


@pytest.mark.parametrize(("sampling", "n"), [("uniform", 1000), ("poisson", 500)])
def test_the_noise_of_the_paper_follows_its_theorem(setting, sampling, n):
    chosen = replace(
        setting, n_clients=n, clients_per_round=n // 20, rounds=30, sampling=sampling, epsilon=7.0, is_by_theorem=True
    )
    plan = chosen.plan()
    constant, rate, log = {"uniform": 14, "poisson": 2}[sampling], 0.05, math.log(1 / chosen.delta)
    least = min(
        rate / 7 * math.sqrt(constant * 30 / split * (log / (1 - split) + 7)) for split in np.linspace(0.01, 0.99, 999)
    )
    assert plan.noise_multiplier >= 0.999 * least  # without the side conditions it would be this
    assert plan.guarantee(chosen.delta).epsilon < 7.0


def test_a_noise_multiplier_is_used_unchanged(setting):
    chosen = replace(setting, epsilon=None, noise_multiplier=3.0)
    assert chosen.plan().noise_multiplier == 3.0
    with pytest.raises(ValueError, match="either epsilon or noise_multiplier"):
        replace(setting, noise_multiplier=3.0).plan()


def test_repeated_trainings_learn_and_are_reproducible(runs, task, setting, capsys):
    cell = runs.repeated("name", task, setting, (1, 2), task.test)
    assert cell.accuracy.mean > 60
    assert cell.outcomes[0].epsilon <= 20.0
    assert len(cell.curve) == setting.rounds
    assert cell.summary()["accuracies"] == [round(outcome.accuracy, 3) for outcome in cell.outcomes]
    assert "name: " in capsys.readouterr().out
    assert runs.train(task, setting, 1).accuracy == cell.outcomes[0].accuracy


def test_gain_compares_trainings_with_the_same_seed(runs):
    def cell(*accuracies):
        return runs.Cell(tuple(runs.Outcome(each, [], 1.0, 1.0, 0.0, torch.nn.Linear(1, 1)) for each in accuracies))

    low, high = cell(50.0, 60.0), cell(51.0, 61.0)
    assert runs.gain(high, low) == "yes (56.00 against 55.00: +1.00, standard error 0.00)"
    assert runs.gain(low, high).startswith("no (")
    assert runs.gain(cell(1.0), cell(1.0)).startswith("no (1.00 against 1.00: +0.00, one seed")
    assert runs.best_of([low, high]) is high


def test_smoothed_sets_the_denoiser_of_the_server(setting):
    assert setting.smoothed(0.0).denoiser is None
    assert setting.smoothed(1.5).denoiser.sigma == 1.5


def test_without_privacy_the_model_changes_by_the_mean_update(runs, task, setting):
    from torch import nn

    from privet.federated import ClientTrainer
    from privet.federated.local_training import order_source
    from privet.networks import trained_weights

    everybody = replace(setting, clients_per_round=30)
    ((number, update, weights),) = runs.without_privacy(task, everybody, seed=4, rounds=1)
    begun = trained_weights(runs.begun(task, 4))
    trainer = ClientTrainer(task.network(), nn.CrossEntropyLoss(), setting.local, math.inf)
    clients = task.clients(30, 4)
    single = [trainer.update(begun, clients[client], 0, order_source(4, 0, client)) for client in range(30)]
    assert number == 1
    np.testing.assert_allclose(update["weight"], np.mean([each["weight"] for each in single], axis=0), atol=1e-5)
    np.testing.assert_allclose(weights["weight"], begun["weight"] + update["weight"], atol=1e-6)


def test_a_client_that_fails_without_privacy_is_an_error(runs, task, setting):
    gone = replace(task, clients=lambda number, seed: [None] * number)
    with pytest.raises(RuntimeError, match="failed to train"):
        runs.trained_without_privacy(gone, setting, 1)
