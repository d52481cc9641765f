"""The rule is sought among clear gains, and the script reads the results of all federated comparisons."""

import json

import pytest

pytest.importorskip("torch", reason="clients train networks: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_rule")


def compared(experiment, ratio, gain, error=0.1):
    return experiment.Comparison("task", "setting", ratio, ratio, ratio, gain, error, 3)


def test_the_threshold_separates_gains_from_losses(experiment):
    found = [compared(experiment, ratio, ratio - 4) for ratio in (1.0, 3.0, 5.0, 9.0)]
    best, right = experiment.threshold(found, "noise_to_clip")
    assert 3 < best < 5
    assert right == 4


def test_unclear_gains_do_not_count(experiment):
    found = [compared(experiment, 1.0, -1.0), compared(experiment, 2.0, 5.0, error=3.0), compared(experiment, 3.0, 1.0)]
    best, right = experiment.threshold(found, "noise_to_clip")
    assert 1 < best < 3
    assert right == 2


def test_numbers_are_those_of_the_docstring(experiment):
    numbers = experiment.Sizes(10_000, 50, 100, 0.5).numbers(2.0)
    assert numbers == {"noise_to_clip": pytest.approx(4.0), "accumulated": pytest.approx(0.2)}


def test_a_model_that_stays_at_its_start_has_lost_everything(experiment):
    assert experiment.share_lost([20.0, 20.0], without_noise=60.0, start=20.0) == 1.0
    assert experiment.share_lost([50.0], without_noise=60.0, start=20.0) == pytest.approx(0.25)


def test_all_results_are_read(experiment, monkeypatch, tmp_path):
    monkeypatch.setattr(experiment, "logistic_without_noise", lambda _: {"without_noise": 90.0, "start": 10.0})
    grid_row = {"sampling": "poisson", "noise_multiplier": 4.0, "gain": [2.0, 0.5], "tests": [1.0, 2.0, 3.0]}
    grid_row["test"] = [2.0, 1.0]
    cell = {"rate": 0.1, "noise_multiplier": 4.0, "gain": [1.0, 0.2], "test": [1.5, 0.5]}
    rows = {
        "fed_logistic": [
            {"part": "theorem", "sampling": "uniform", "budget": 6.0, "noise_multiplier": 2.0, **each}
            for each in ({"sigma": 0.0, "accuracies": [80.0, 81.0]}, {"sigma": 1.0, "accuracies": [81.0, 82.5]})
        ],
        "fed_smoothing": [{"sigma": sigma, **grid_row} for sigma in (0.0, 1.0)],
        "fed_lstm": [{"sigma": sigma, **grid_row} for sigma in (0.0, 1.0)],
        "fed_cnn": [
            {"table": table, "varied": varied, "sigma": sigma, **cell, "tests": [1.0 + sigma, 2.0]}
            for table, varied in (("Table H.8", "clip 0.3"), ("Table H.11", "z = 4, rate 0.1"))  # the same training
            for sigma in (0.0, 1.0)
        ],
    }
    (tmp_path / "results").mkdir()
    for name, found in rows.items():
        told = {
            "weights": 8_364,
            "rows": found,
            "small_clip": found,
            "start": 10.0,
            "without_noise": {"test": [50.0, 1.0]},
        }
        told |= {"controls": [{"noise_multiplier": 4.0, "test": [30.0, 1.0]}]} if name == "fed_lstm" else {}
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(told))
    results = experiment.main()
    tasks = ["logistic regression", "CNN, 200 rounds", "CNN", "LSTM", "LSTM"]
    assert [each["task"] for each in results["comparisons"]] == tasks
    assert results["comparisons"][0]["gain"] == pytest.approx(1.25)
    assert results["controls"] == [
        {"experiment": "fed_lstm", "noise_multiplier": 4.0, "plain": 2.0, "smoothed": 2.0, "small_step": 30.0}
    ]
    assert (tmp_path / "results" / "fed_rule.png").exists()
