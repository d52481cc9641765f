"""method="random_round": RRPSGD through the estimators."""

import numpy as np
import pytest

from privet import PrivateLogisticRegression, PrivateRidge
from privet.linear.methods.random_round import batch_size, late_stop, random_round_steps
from privet.privacy.events import FixedSizeGaussian


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)) / 2
    return X, (X[:, 0] - X[:, 1] > 0).astype(int)


def logistic(**fields):
    return PrivateLogisticRegression(**({"epsilon": 2.0, "method": "random_round", "classes": [0, 1]} | fields))


def test_learns_within_the_budget_and_reports_where_it_stopped(table):
    models = [logistic(random_state=seed).fit(*table) for seed in range(5)]
    assert np.median([model.score(*table) for model in models]) > 0.9
    model = models[0]
    assert 1.98 < model.guarantee_.epsilon <= 2.0
    assert f"stopped after {model.n_iter_}" in model.method_reason_
    assert len({model.n_iter_ for model in models}) > 1


def test_the_guarantee_covers_every_step_that_could_have_been_taken(table):
    model = logistic(max_iter=40, random_state=1).fit(*table)
    event = model.guarantee_.event
    assert isinstance(event, FixedSizeGaussian)
    assert event.steps == 40 >= model.n_iter_
    assert event.n == 3000
    assert f"on batches of {event.size}" in model.method_reason_


def test_the_number_of_steps_of_the_paper_gives_its_batches_of_one_record(table):
    X, y = (part[:30] for part in table)
    model = logistic(epsilon=1.0, max_iter=30**2).fit(X, y)
    assert model.guarantee_.event.size == 1
    assert model.guarantee_.event.steps == 900


def test_several_classes_and_regressions_learn(table):
    X, _ = table
    y = np.digitize(X[:, 0], [-0.3, 0.3])
    assert logistic(classes=[0, 1, 2], epsilon=5.0, random_state=0).fit(X, y).score(X, y) > 0.5
    model = PrivateRidge(5.0, method="random_round", target_bound=2.0, random_state=0).fit(X, X[:, 0])
    assert model.score(X, X[:, 0]) > 0.3


def test_the_defaults_follow_from_public_numbers_within_limits():
    assert random_round_steps(1.0, scale=1.0) == 50
    assert 50 < random_round_steps(1e-3, scale=1.0) < random_round_steps(5e-4, scale=1.0) < 20_000
    assert random_round_steps(1e-12, scale=1.0) == 20_000
    assert batch_size(1000, mu=1.0, steps=100) == 100
    assert batch_size(1000, mu=0.5, steps=1000**2) == 1
    assert batch_size(5, mu=50.0, steps=1) == 5


def test_early_stops_are_rare_and_every_step_is_short_enough():
    sizes = late_stop(4.0, 1001)
    chances = sizes * (2 - 4.0 * sizes)
    assert np.all(sizes < 2 / 4.0)
    assert np.all(chances > 0)
    assert chances[:500].sum() / chances.sum() == pytest.approx(0.19 / 1.19, abs=0.01)
    assert late_stop(4.0, 1) == pytest.approx([0.25])


def test_pure_epsilon_smoothing_and_secrets_are_refused(table):
    with pytest.raises(ValueError, match="no pure epsilon"):
        logistic(delta=0).fit(*table)
    with pytest.raises(ValueError, match="does not use smoothing"):
        logistic(smoothing=1.0).fit(*table)
    with pytest.raises(ValueError, match="does not use secret"):
        logistic(secret="order").fit(*table)
