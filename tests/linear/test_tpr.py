"""Estimators that are calibrated to a true-positive rate: what every method, share and setting makes of it."""

import warnings

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import privet
from privet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSparseLogisticRegression,
)
from privet.preprocessing import total_guarantee
from privet.privacy import AttackRate, Ledger

RATES = (0.01, 0.05)
DENSE = ["adaptive", "gradient", "iteration", "minibatch", "minimiser", "output", "random_round", "recursive_momentum"]
SPARSE = ["frank_wolfe", "hard_threshold", "peeling"]


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(3)
    X = generator.uniform(-0.4, 0.4, (300, 5))
    return X, (X @ [1.0, -2.0, 1.0, 0.0, 0.5] > 0).astype(int)


@pytest.mark.parametrize("method", DENSE)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_method_of_gaussian_releases_meets_the_rate_closely(method, fit_intercept, table):
    model = PrivateLogisticRegression(tpr=RATES, method=method, fit_intercept=fit_intercept, random_state=0).fit(*table)
    assert 0.99 * 0.05 < model.guarantee_.tpr(0.01) <= 0.05


@pytest.mark.parametrize("method", SPARSE)
def test_sparse_methods_meet_the_rate_closely(method, table):
    model = PrivateSparseLogisticRegression(tpr=RATES, method=method, n_nonzero=2, random_state=0).fit(*table)
    assert 0.99 * 0.05 < model.guarantee_.tpr(0.01) <= 0.05


@pytest.mark.parametrize("secret", ["order", "stop", "skip"])
def test_secrets_of_iteration_meet_the_rate_closely(secret, table):
    model = PrivateLogisticRegression(tpr=RATES, method="iteration", secret=secret, random_state=0).fit(*table)
    assert 0.98 * 0.05 < model.guarantee_.tpr(0.01) <= 0.05


@pytest.mark.parametrize("method", ["output", "minimiser"])
def test_pure_noise_has_the_exact_translation_of_randomised_response(method, table):
    model = PrivateLogisticRegression(tpr=RATES, delta=0, method=method, alpha=0.1, random_state=0).fit(*table)
    assert model.guarantee_.delta == 0
    assert 0.999 * 0.05 < model.guarantee_.tpr(0.01) <= 0.05
    assert model.guarantee_.epsilon == pytest.approx(np.log(5), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "method"), [(PrivateLogisticRegression, "objective"), (PrivateSparseLogisticRegression, "two_stage")]
)
def test_methods_of_which_only_an_epsilon_is_known_are_refused(kind, method, table):
    with pytest.raises(ValueError, match=rf"method='{method}' does not use tpr \(got \(0.01, 0.05\)\). Leave tpr out"):
        kind(tpr=RATES, method=method).fit(*table)


def test_a_method_that_misses_the_rate_is_stopped_before_it_draws_noise(table, monkeypatch):
    """Suppose that a method declares by mistake that it can be calibrated."""
    method = PrivateLogisticRegression.offered_methods()["objective"]
    changed = {"objective": type(method)(**{**vars(method), "uses": ("tpr",)})}
    monkeypatch.setattr("privet.linear.method_choice.METHODS", changed)
    model = PrivateLogisticRegression(tpr=RATES, method="objective", alpha=0.1)
    with pytest.raises(ValueError, match=r"an attack could have a true-positive rate of 0\.[12]"):
        model.fit(*table)
    assert not hasattr(model, "coef_")


def test_auto_does_not_choose_a_method_that_cannot_be_calibrated(table):
    for alpha in (1e-4, 0.1, 10.0):
        model = PrivateLogisticRegression(tpr=RATES, alpha=alpha, random_state=0).fit(*table)
        assert model.method_ != "objective"
        assert model.guarantee_.tpr(0.01) <= 0.05


@pytest.mark.parametrize("kind", [PrivateLinearSVC, PrivateRidge, PrivateHuberRegressor])
def test_all_dense_estimators_accept_it(kind, table):
    assert 0.0495 < kind(tpr=RATES, random_state=0).fit(*table).guarantee_.tpr(0.01) <= 0.05


def test_a_stricter_rate_needs_more_noise_and_delta_changes_none(table):
    def mu(tpr, delta=None):
        return PrivateLogisticRegression(tpr=(0.01, tpr), delta=delta, method="gradient").fit(*table).guarantee_.mu

    assert mu(0.05) == pytest.approx(ndtri(0.05) - ndtri(0.01), rel=1e-6)
    assert mu(0.02) < mu(0.05) < mu(0.2)
    assert mu(0.05, 1e-9) == pytest.approx(mu(0.05), rel=1e-6)


def test_several_targets_meet_the_rate_together(table):
    X, y = table
    both = np.column_stack([y, 1 - y])
    for method in ("gradient", "minibatch", "output"):
        model = PrivateLogisticRegression(tpr=RATES, method=method, random_state=0).fit(X, both)
        assert 0.0495 < model.guarantee_.tpr(0.01) <= 0.05


@pytest.mark.parametrize("method", ["gradient", "minibatch"])
def test_targets_with_different_numbers_of_classes_share_the_rate(method, table):
    X, y = table
    three = (X[:, 0] > 0.1).astype(int) + (X[:, 0] > -0.1)
    model = PrivateLogisticRegression(tpr=RATES, method=method, random_state=0).fit(X, np.column_stack([y, three]))
    assert 0.03 < model.guarantee_.tpr(0.01) <= 0.05
    assert model.guarantee_.tpr(0.01) > 0.0495 or method == "minibatch"


def test_the_statement_says_what_was_calibrated_to(table):
    text = PrivateLogisticRegression(tpr=RATES).fit(*table).guarantee_.statement()
    words = " ".join(text.split())
    assert "calibrated, by itself, so that attacks with 1 % false alarms find at most 5 %" in words
    assert "calibrated" not in PrivateLogisticRegression().fit(*table).guarantee_.statement()


def test_a_pipeline_that_pays_for_scaling_has_a_larger_rate_in_total(table):
    scaler = PrivateScaler(epsilon=0.5, lower=-1, upper=1, random_state=1)
    pipeline = make_pipeline(scaler, PrivateLogisticRegression(tpr=RATES, random_state=0)).fit(*table)
    alone = pipeline[-1].guarantee_
    assert alone.tpr(0.01) <= 0.05 < total_guarantee(pipeline).tpr(0.01)
    assert "calibrated, by itself" in " ".join(total_guarantee(pipeline).statement(verbose=True).split())


def test_a_ledger_books_the_calibrated_cost(table, tmp_path):
    ledger = Ledger(tmp_path / "ledger.txt")
    model = PrivateLogisticRegression(tpr=RATES, ledger=ledger).fit(*table)
    assert ledger.total(1e-6).epsilon == pytest.approx(model.guarantee_.epsilon_at(1e-6), rel=1e-6)


def test_settings_survive_clone_and_saving(table, tmp_path):
    model = PrivateLogisticRegression(epsilon=None, tpr=RATES, random_state=0)
    assert clone(model).get_params() == model.get_params()
    model.fit(*table).save(tmp_path / "model.json")
    loaded = privet.load(tmp_path / "model.json")
    assert tuple(loaded.tpr) == RATES
    assert loaded.guarantee_ == model.guarantee_
    assert clone(loaded).fit(*table).guarantee_.tpr(0.01) <= 0.05


def test_seeds_give_different_noise_for_different_rates(table):
    def weights(**settings):
        return PrivateLogisticRegression(random_state=0, method="gradient", **settings).fit(*table).coef_

    assert np.array_equal(weights(tpr=RATES), weights(tpr=RATES))
    assert not np.array_equal(weights(tpr=RATES), weights(tpr=(0.01, 0.0500001)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 2.0, "tpr": RATES}, r"epsilon=2.0 and tpr=\(0.01, 0.05\) cannot be given together"),
        ({"noise_multiplier": 2.0, "tpr": RATES}, "noise_multiplier=2.0 and tpr=.* cannot be given together"),
        ({"tpr": (0.05, 0.01)}, r"tpr must be a false-positive rate and a larger true-positive rate.*\(0.05, 0.01\)"),
        ({"tpr": (0.0, 0.5)}, "both between 0 and 1"),
        ({"tpr": (0.5, 1.0)}, "both between 0 and 1"),
        ({"tpr": (0.5, float("nan"))}, "the true-positive rate of tpr must be finite"),
        ({"tpr": 0.05}, "tpr must be a pair"),
        ({"tpr": "0.01"}, "tpr must be a pair"),
        ({"tpr": (0.01, 0.05, 1e-6)}, "tpr must be a pair"),
        ({"tpr": (0.3, 0.3000006)}, "leaves less room than delta"),
    ],
)
def test_impossible_settings_are_refused(settings, message, table):
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        PrivateLogisticRegression(**settings).fit(*table)


def test_a_rate_is_shared_so_that_gaussian_releases_compose_to_it():
    rate = AttackRate(0.01, 0.2, 1e-6)
    mus = [rate.shared(share).mu for share in (0.2, 0.3, 0.5)]
    assert np.hypot.reduce(mus) == pytest.approx(rate.mu, rel=1e-6)
    assert np.hypot.reduce(mus) <= rate.mu
    assert ndtr(ndtri(0.01) + rate.mu) <= 0.2
