"""method="adaptive": DP-AGD through the estimators."""

import numpy as np
import pytest

from privet import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privet.privacy import Budget, gdp_mu
from privet.privacy.events import GaussianRelease


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)) / 2
    return X, (X[:, 0] - X[:, 1] > 0).astype(int)


def logistic(**fields):
    return PrivateLogisticRegression(**({"epsilon": 1.0, "method": "adaptive", "classes": [0, 1]} | fields))


def test_learns_and_spends_the_budget_exactly(table):
    model = logistic(delta=1e-6, random_state=0).fit(*table)
    assert model.score(*table) > 0.9
    assert model.guarantee_.epsilon == pytest.approx(1.0, rel=1e-6)
    assert isinstance(model.guarantee_.event, GaussianRelease)
    assert model.guarantee_.event.mu == pytest.approx(gdp_mu(Budget(1.0, 1e-6)), rel=1e-6)
    assert not logistic(max_iter=2).fit(*table).guarantee_.is_conditional


def test_max_iter_is_the_expected_number_of_steps(table):
    assert 1 <= logistic(max_iter=5, random_state=0).fit(*table).n_iter_ <= 10


def test_the_clip_is_used_and_stated(table):
    text = logistic(clip_norm=0.123, max_iter=3).fit(*table).guarantee_.statement(verbose=True)
    assert "gradient has l2 norm at most 0.123" in text


def test_other_losses_learn(table):
    X, y = table
    assert PrivateLinearSVC(1.0, method="adaptive", classes=[0, 1], random_state=0).fit(X, y).score(X, y) > 0.9
    model = PrivateHuberRegressor(3.0, method="adaptive", target_bound=2.0, random_state=0).fit(X, X[:, 0])
    assert model.score(X, X[:, 0]) > 0.5
    three = np.digitize(X[:, 0], [-0.3, 0.3])
    model = logistic(classes=[0, 1, 2], epsilon=5.0, max_iter=20, random_state=0).fit(X, three)
    assert model.score(X, three) > 0.5


def test_the_squared_loss_is_refused_because_the_line_search_compares_losses(table):
    with pytest.raises(ValueError, match="'adaptive' needs a loss with bounded gradients"):
        PrivateRidge(method="adaptive").fit(*table)
