"""The rule is sought among clear gains, and the script reads the results of all federated comparisons."""

import json

import pytest

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("fed_rule")


def compared(experiment, ratio, gain, error=0.1):
    return experiment.Comparison("task", "setting", ratio, ratio, gain, error, 3)


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


def test_all_results_are_read(experiment, tmp_path):
    grid_row = {"sampling": "poisson", "noise_multiplier": 4.0, "gain": [2.0, 0.5], "tests": [1.0, 2.0, 3.0]}
    cell = {"rate": 0.1, "noise_multiplier": 4.0, "gain": [1.0, 0.2], "tests": [1.0, 2.0]}
    rows = {
        "fed_logistic": [
            {"part": "theorem", "sampling": "uniform", "budget": 6.0, "noise_multiplier": 2.0, **each}
            for each in ({"sigma": 0.0, "accuracies": [80.0, 81.0]}, {"sigma": 1.0, "accuracies": [81.0, 82.5]})
        ],
        "fed_smoothing": [{"sigma": sigma, **grid_row} for sigma in (0.0, 1.0)],
        "fed_lstm": [{"sigma": sigma, **grid_row} for sigma in (0.0, 1.0)],
        "fed_cnn": [
            {"table": "Table H.8", "varied": "clip 0.3", "sigma": 1.0, **cell},
            {"table": "Table H.11", "varied": "z = 4, rate 0.1", "sigma": 1.0, **cell},  # the same training
            {"table": "Table 5", "varied": "OHWI", "sigma": 1.0, **cell},
        ],
    }
    (tmp_path / "results").mkdir()
    for name, found in rows.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps({"rows": found}))
    results = experiment.main()
    assert [each["task"] for each in results["comparisons"]] == [
        "logistic regression",
        "CNN, 200 rounds",
        "CNN",
        "LSTM",
    ]
    assert results["comparisons"][0]["gain"] == pytest.approx(1.25)
    assert (tmp_path / "results" / "fed_rule.png").exists()
