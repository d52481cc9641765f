"""Estimators with a noise multiplier in place of epsilon: the noise, the guarantee, and no noise at all."""

import math

import numpy as np
import pytest
from sklearn.base import clone

from privet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    load,
)
from privet.linear.methods import METHODS, usual_budget
from privet.privacy import Budget, Ledger, NoiseMultiplier, gdp_epsilon, gdp_mu

USERS = sorted(name for name, each in METHODS.items() if "noise_multiplier" in each.uses and not each.is_sparse)
OTHERS = sorted(name for name, each in METHODS.items() if "noise_multiplier" not in each.uses and not each.is_sparse)
DELTA = 1e-6
NONE = "No differential privacy: the noise multiplier is 0, so no record is protected."


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4)) / 3
    return X, (X[:, 0] - X[:, 1] > 0).astype(int)


def logistic(**fields):
    return PrivateLogisticRegression(**({"delta": DELTA, "classes": [0, 1], "max_iter": 5} | fields))


def seen_noise(monkeypatch):
    """Return a list that collects the plans of all steps that are run."""
    from privet.plans import GradientPlan

    plans, run = [], GradientPlan.run
    monkeypatch.setattr(
        GradientPlan, "run", lambda self, *given, **named: plans.append(self) or run(self, *given, **named)
    )
    return plans


@pytest.mark.parametrize("method", USERS)
@pytest.mark.parametrize("multiplier", [3.0, 60.0])
def test_the_gradients_get_the_given_noise_and_the_guarantee_is_that_of_the_plan(
    method, multiplier, table, monkeypatch
):
    plans = seen_noise(monkeypatch)
    model = logistic(method=method, noise_multiplier=multiplier, clip_norm=0.3).fit(*table)
    gradients = plans[-1]
    assert gradients.noise_multiplier == multiplier
    # DP-SRM adds up 0.4 of a gradient and 0.6 of a change, which is clipped to a tenth of the clip of gradients.
    assert gradients.clip_norm == pytest.approx(0.3 * (0.46 if method == "recursive_momentum" else 1.0))
    assert gradients.noise_std == pytest.approx(multiplier * gradients.clip_norm)
    parts = [plan.event.unsampled(plan.adjacency).mu for plan in plans]
    assert model.guarantee_.epsilon <= gdp_epsilon(math.hypot(*parts), DELTA) * (1 + 1e-9)
    again = logistic(method=method, epsilon=model.guarantee_.epsilon, clip_norm=0.3).fit(*table)
    if method != "random_round":  # which chooses the size of its batches by the budget
        assert plans[-1].noise_multiplier == pytest.approx(multiplier, rel=0.01)
    assert again.guarantee_.epsilon == pytest.approx(model.guarantee_.epsilon, rel=0.01)


def test_the_epsilon_of_full_batches_without_an_intercept_is_exact(table):
    model = logistic(method="gradient", noise_multiplier=40.0, fit_intercept=False).fit(*table)
    assert model.guarantee_.epsilon == pytest.approx(gdp_epsilon(2 * math.sqrt(5) / 40.0, DELTA))


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor, PrivateLinearSVC])
def test_all_dense_estimators_accept_it(kind, table):
    model = kind(noise_multiplier=50.0, max_iter=3).fit(*table)
    assert model.method_ == "gradient"
    assert 0 < model.guarantee_.epsilon < 1


def test_several_targets_share_one_guarantee_of_the_same_noise(table):
    X, y = table
    one = PrivateRidge(noise_multiplier=30.0, max_iter=4, delta=DELTA, fit_intercept=False)
    both = clone(one).fit(X, np.column_stack([y, 1 - y]))
    mu = 2 * math.sqrt(4) / 30.0
    assert one.fit(X, y).guarantee_.epsilon == pytest.approx(gdp_epsilon(mu, DELTA))
    assert both.guarantee_.epsilon == pytest.approx(gdp_epsilon(mu * math.sqrt(2), DELTA))


# --- no noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", USERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_without_noise_fits_repeat_and_nothing_is_promised(method, fit_intercept, table, tmp_path):
    settings = {"method": method, "noise_multiplier": 0, "fit_intercept": fit_intercept, "max_iter": 8}
    model = logistic(**settings).fit(*table)
    assert model.guarantee_.epsilon == math.inf
    assert str(model.guarantee_).splitlines()[0] == NONE
    if method == "gradient":  # the others draw an order or batches
        assert np.array_equal(model.coef_, logistic(**settings).fit(*table).coef_)
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.guarantee_ == model.guarantee_
    assert again.noise_multiplier == 0


def test_without_noise_descent_finds_the_minimum(table):
    from sklearn.linear_model import LogisticRegression

    X, y = table
    model = logistic(noise_multiplier=0, max_iter=None, alpha=0.01, fit_intercept=False, feature_norm=3.0).fit(X, y)
    exact = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-10).fit(X, y)
    assert np.allclose(model.coef_, exact.coef_, rtol=0.02, atol=0.02)


def test_a_ledger_refuses_a_fit_without_noise_before_training(table, tmp_path, monkeypatch):
    plans = seen_noise(monkeypatch)
    model = logistic(noise_multiplier=0)
    model.before_training = Ledger(tmp_path / "ledger").check
    with pytest.raises(ValueError, match="no noise, and thus no differential privacy"):
        model.fit(*table)
    assert not plans


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize("multiplier", [0, 0.0, 2.0])
def test_methods_without_a_noise_multiplier_refuse_it(method, multiplier, table):
    make = PrivateRidge if METHODS[method].needs_squared else logistic
    with pytest.raises(ValueError, match=rf"method='{method}' does not use noise_multiplier \(got {multiplier:g}\)"):
        make(method=method, noise_multiplier=multiplier).fit(*table)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 2.0, "noise_multiplier": 0}, r"epsilon=2\.0 and noise_multiplier=0 cannot be given together"),
        ({"epsilon": None}, "epsilon must be a number, got None"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must not be negative"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be finite"),
        ({"noise_multiplier": "1"}, "noise_multiplier must be a number"),
        ({"noise_multiplier": 1.0, "delta": 0}, "delta=0 asks for pure epsilon"),
    ],
)
def test_impossible_settings_are_refused(settings, message, table):
    with pytest.raises(ValueError, match=message):
        logistic(**settings).fit(*table)


def test_epsilon_may_be_none_or_its_default(table):
    for epsilon in (None, 1.0):
        model = logistic(epsilon=epsilon, noise_multiplier=5.0).fit(*table)
        assert model.guarantee_.epsilon > 1.5
        assert clone(model).get_params()["noise_multiplier"] == 5.0


def test_seeds_give_different_noise_for_different_multipliers(table):
    models = [logistic(noise_multiplier=z, random_state=0).fit(*table) for z in (50.0, 50.0, 51.0)]
    one, same, other = (model.coef_.ravel() for model in models)
    assert np.array_equal(one, same)
    assert np.linalg.norm(one - other) > 0.05 * np.linalg.norm(one)  # with the same noise, it would be 2 %


@pytest.mark.parametrize("tasks", [1, 3])
def test_defaults_follow_what_fifty_full_batch_steps_would_cost(tasks):
    budget = usual_budget(NoiseMultiplier(30.0, DELTA), tasks)
    assert gdp_mu(budget) == pytest.approx(2 * math.sqrt(50 * tasks) / 30.0)
    for tiny in (0.0, 1e-300, 1e-3):
        assert gdp_mu(usual_budget(NoiseMultiplier(tiny, DELTA), tasks)) == pytest.approx(100.0)
    assert isinstance(budget, Budget)


def test_columns_with_different_numbers_of_classes_need_a_budget(table, no_noise):
    X, y = table
    columns = np.column_stack([y, np.arange(len(y)) % 3])
    with pytest.raises(ValueError, match="different numbers of classes, which share a budget"):
        logistic(method="gradient", classes=None, noise_multiplier=3.0).fit(X, columns)
