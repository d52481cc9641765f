"""method="minibatch": DP-LSSGD over random batches, and the setting batch_size, which other methods share."""

import numpy as np
import pytest

from privet import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from privet.linear.methods import METHODS
from privet.linear.methods.minibatch import default_batch_size, minibatch_steps
from privet.privacy.events import FixedSizeGaussian, GaussianRelease


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 6)) / 3 + 0.2
    y = (X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(4000) > 0).astype(int)
    return X, y


def logistic(**fields):
    return PrivateLogisticRegression(**({"epsilon": 1.0, "method": "minibatch", "classes": [0, 1]} | fields))


def sampled(model):
    """Return the event of the random batches of a fitted model."""
    (found,) = [part for part in model.guarantee_.event.leaves() if isinstance(part, FixedSizeGaussian)]
    return found


def test_learns_and_promises_no_more_than_the_budget(table):
    model = logistic(random_state=0).fit(*table)
    assert model.score(*table) > 0.9
    assert 0.98 < model.guarantee_.epsilon <= 1.0
    assert not logistic(max_iter=2).fit(*table).guarantee_.is_conditional
    assert "a uniformly random batch of 250 of 4000" in model.guarantee_.statement(verbose=True)


def test_the_guarantee_is_that_of_the_batches_and_steps_that_ran(table):
    event = sampled(logistic(batch_size=100, max_iter=7).fit(*table))
    assert (event.size, event.n, event.steps) == (100, 4000, 7)
    full = logistic(batch_size=4000, max_iter=7, fit_intercept=False).fit(*table)
    assert isinstance(full.guarantee_.event, GaussianRelease)


def test_smaller_batches_add_less_noise_to_a_sum_and_more_to_the_mean(table):
    noise = {size: sampled(logistic(batch_size=size, max_iter=20).fit(*table)).noise_multiplier for size in (50, 500)}
    assert noise[50] < noise[500]
    assert noise[50] / 50 > noise[500] / 500


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor])
def test_regressions_learn(table, kind):
    X, _ = table
    target = X[:, 0] - X[:, 1]
    assert kind(2.0, method="minibatch", target_bound=3.0, random_state=0).fit(X, target).score(X, target) > 0.5


def test_several_classes_learn_with_smoothing_and_without_an_intercept(table):
    X, _ = table
    y = np.digitize(X[:, 0], [-0.1, 0.4])
    fields = {"epsilon": 3.0, "classes": [0, 1, 2], "random_state": 0}
    assert logistic(**fields, smoothing=0.1).fit(X, y).score(X, y) > 0.6
    assert logistic(**fields, fit_intercept=False).fit(X, y).score(X, y) > 0.4


def test_steps_that_are_far_too_long_at_first_do_not_spoil_the_result():
    """All rows lie on one line, which makes the objective as steep as its constants allow, and noise hardly matters."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (5000, 1))
    y = (rng.random(5000) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(int)
    model = logistic(epsilon=50.0, feature_norm=1.0, random_state=0).fit(X, y)
    assert model.coef_[0, 0] == pytest.approx(1.5, abs=0.3)


def test_the_defaults_follow_from_public_numbers_within_limits():
    assert [default_batch_size(n) for n in (1, 100, 1000, 32000)] == [1, 100, 128, 2000]
    assert minibatch_steps(1.0) == 15
    assert minibatch_steps(200.0) == 80
    assert minibatch_steps(1e9) == 300


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if "batch_size" in each.uses])
def test_every_method_with_batches_uses_the_size_and_refuses_more_records_than_there_are(table, method):
    X, y = (part[:60] for part in table)
    model = logistic(method=method, batch_size=20, max_iter=3).fit(X, y)
    assert "a uniformly random batch of 20 of 60" in model.guarantee_.statement(verbose=True)
    with pytest.raises(ValueError, match=r"batch_size = 61 exceeds the number of records, 60\. Set a smaller one"):
        logistic(method=method, batch_size=61).fit(X, y)


def test_methods_without_batches_refuse_a_batch_size(table):
    with pytest.raises(
        ValueError, match=r"'gradient' does not use batch_size \(got 20\)\. .*method='minibatch', 'random_round'"
    ):
        logistic(method="gradient", batch_size=20).fit(*table)
    with pytest.raises(ValueError, match="batch_size must be"):
        logistic(batch_size=0).fit(*table)
