"""method="recursive_momentum": DP-SRM through the estimators."""

import math

import numpy as np
import pytest

from privet import PrivateLogisticRegression, PrivateRidge
from privet.linear.methods.recursive_momentum import recursive_steps


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 6)) / 3
    return X, (X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(4000) > 0).astype(int)


def logistic(**fields):
    return PrivateLogisticRegression(**({"epsilon": 1.0, "method": "recursive_momentum", "classes": [0, 1]} | fields))


def test_learns_and_promises_no_more_than_the_budget(table):
    model = logistic(random_state=0).fit(*table)
    assert model.score(*table) > 0.9
    assert 0.98 < model.guarantee_.epsilon <= 1.0
    assert not logistic(max_iter=2).fit(*table).guarantee_.is_conditional


def test_the_guarantee_states_the_clips_of_gradients_and_of_their_changes(table):
    model = logistic(clip_norm=0.3, max_iter=20, batch_size=500).fit(*table)
    text = model.guarantee_.statement(verbose=True)
    assert "at most 0.3 to the first sum and 0.138 to a later one" in text  # 0.4 * 0.3 + 0.6 * 0.03
    assert "first release: each step takes a uniformly random batch of 500 of 4000" in text
    assert "each of 19 sums" in text
    assert model.n_iter_ == 20


def test_several_classes_and_regressions_learn(table):
    X, _ = table
    y = np.digitize(X[:, 0], [-0.2, 0.2])
    assert logistic(classes=[0, 1, 2], epsilon=5.0, random_state=0).fit(X, y).score(X, y) > 0.6
    model = PrivateRidge(5.0, method="recursive_momentum", target_bound=2.0, random_state=0).fit(X, X[:, 0])
    assert model.score(X, X[:, 0]) > 0.5


def test_long_steps_do_not_spoil_the_result_where_noise_hardly_matters():
    """All rows lie on one line, which makes the objective as steep as its constants allow."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (5000, 1))
    y = (rng.random(5000) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(int)
    model = logistic(epsilon=50.0, feature_norm=1.0, random_state=0).fit(X, y)
    assert model.coef_[0, 0] == pytest.approx(1.5, abs=0.3)


def test_the_number_of_steps_follows_from_public_numbers_and_is_at_least_two(table):
    assert [recursive_steps(value) for value in (1.0, 500.0, 1e9)] == [40, 100, 300]
    with pytest.raises(ValueError, match="steps must be at least 2"):
        logistic(max_iter=1).fit(*table)


def test_what_the_method_does_not_use_is_refused(table):
    with pytest.raises(ValueError, match="does not use smoothing"):
        logistic(smoothing=1.0).fit(*table)
    with pytest.raises(ValueError, match="no pure epsilon"):
        logistic(delta=0).fit(*table)
    assert math.isfinite(logistic(max_iter=2).fit(*table).coef_[0, 0])
