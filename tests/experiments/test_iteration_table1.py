"""Table 1 of "Privacy Amplification by Iteration" in numbers: noise, local privacy, and a run from end to end."""

import json

import numpy as np
import pytest

from privet.privacy import Budget


@pytest.fixture
def experiment(opened):
    return opened("iteration_table1")


def test_a_secret_stop_needs_little_more_noise_for_many_tasks_and_noisy_sgd_much_more(experiment):
    budget = Budget(1.0, experiment.DELTA)
    ratios = {
        method: experiment.noise_of(method, budget, 500, 25) / experiment.noise_of(method, budget, 500, 1)
        for method in (experiment.LOCAL, experiment.THEIRS)
    }
    assert ratios[experiment.LOCAL] == pytest.approx(5.0)
    assert 1 < ratios[experiment.THEIRS] < 2


def test_without_noise_all_methods_learn_the_direction_of_the_truth(experiment):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 400, 10)) / np.sqrt(10)
    y = (X @ experiment.TRUTH > 0).astype(float)
    for method in experiment.METHODS:
        weights = experiment.trained(method, X, y, 0.0, 1, seed=3)
        assert weights.shape == (2, 10)
        assert np.all(weights @ experiment.TRUTH > 0)
        assert np.all(np.linalg.norm(weights, axis=1) <= experiment.RADIUS * (1 + 1e-12))


def test_quick_run(experiment, tmp_path):
    results = experiment.main(["--quick"])
    written = json.loads((tmp_path / "results" / "iteration_table1_quick.json").read_text())
    assert written["rows"] == results["rows"]
    local = {row["method"]: row["local_epsilon"] for row in results["rows"] if row["tasks"] == 1}
    assert local[experiment.OUTPUT] == "infinite"
    assert local[experiment.LOCAL] == pytest.approx(1.0, rel=1e-2)
    assert local[experiment.LOCAL] < local[experiment.THEIRS] < local[experiment.SAMPLED]
