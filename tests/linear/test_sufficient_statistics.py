"""method="sufficient_statistics": least squares from noisy second moments through PrivateRidge."""

import warnings

import numpy as np
import pytest

import privet
from privet import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from privet.linear.methods import METHODS, Task
from privet.objectives import L2, BoundedRows, Squared
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem

NAME = "sufficient_statistics"


def table(n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, d))
    return X, np.clip(X @ np.linspace(-1, 1, d) + 0.1, -1, 1)


@pytest.mark.parametrize(
    ("n", "epsilon", "taken"), [(500, 0.5, "gradient"), (3000, 10.0, NAME), (3000, 0.5, "gradient")]
)
def test_auto_chooses_by_public_numbers(n, epsilon, taken):
    X, y = table(n)
    for data in ((X, y), (np.zeros_like(X), np.ones(n)), (100 * X, -y)):
        model = PrivateRidge(epsilon, 1e-6, feature_norm=1.0, target_bound=1.0, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert model.fit(*data).method_ == taken


def test_the_expected_excess_falls_with_the_budget_and_grows_with_columns():
    def excess(epsilon, d, n=1000):
        rows = BoundedRows(np.zeros((n, d)), 1.0, 0.5)
        problem = Problem(Squared(), L2(0.0), rows, np.zeros(n))
        return METHODS[NAME].excess(Task(problem, Budget(epsilon, 1e-6), NoiseSource(0)))

    assert excess(4.0, 5) < excess(1.0, 5) < excess(0.1, 5)
    assert excess(1.0, 5) < excess(1.0, 50)
    assert excess(1.0, 2000, n=2) == np.inf


def test_it_finds_the_coefficients_and_takes_one_step():
    X, y = table(20_000)
    model = PrivateRidge(10.0, 1e-6, method=NAME, alpha=0.0, random_state=0).fit(X, y)
    assert model.coef_ == pytest.approx(np.linspace(-1, 1, 4), abs=0.08)
    assert model.n_iter_ == 1
    assert 0.999 * 10 < model.guarantee_.epsilon <= 10


@pytest.mark.filterwarnings("ignore::privet.PrivetWarning")
def test_noise_is_calibrated_to_an_attack_rate():
    model = PrivateRidge(tpr=(0.01, 0.05), method=NAME).fit(*table(300))
    assert 0.99 * 0.05 < model.guarantee_.tpr(0.01) <= 0.05


@pytest.mark.parametrize("kind", [PrivateHuberRegressor, PrivateLogisticRegression])
def test_other_losses_are_refused_by_name(kind):
    X, _ = table(20)
    with pytest.raises(ValueError, match=f"{NAME}' needs the squared loss of numbers, which {kind.__name__} does not"):
        kind(method=NAME).fit(X, np.arange(20) % 2)


def test_pure_epsilon_and_settings_of_descents_are_refused():
    X, y = table(20)
    with pytest.raises(ValueError, match=r"delta=0 asks for pure epsilon"):
        PrivateRidge(1.0, 0.0, method=NAME).fit(X, y)
    with pytest.raises(ValueError, match="does not use clip_norm"):
        PrivateRidge(1.0, 1e-6, method=NAME, clip_norm=0.1).fit(X, y)


@pytest.mark.filterwarnings("ignore::privet.PrivetWarning")
def test_a_model_is_saved_and_loaded(tmp_path):
    X, y = table(200)
    model = PrivateRidge(2.0, 1e-6, method=NAME, random_state=0).fit(X, np.column_stack([y, -y]))
    model.save(tmp_path / "model.json")
    loaded = privet.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.method_ == NAME
    assert loaded.guarantee_.epsilon == model.guarantee_.epsilon
