"""method="iteration": hidden iterates, public records, and what the model reports about them."""

import importlib
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from privet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    load,
)
from privet.linear.methods.iteration import BATCHES, decaying, iteration_passes, one_pass_batches
from privet.privacy import Budget, NoiseSource, gdp_mu


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 6)) / 3 + 0.2
    y = (X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(4000) > 0).astype(int)
    return X, y


def logistic(**fields):
    return PrivateLogisticRegression(**({"epsilon": 1.0, "method": "iteration", "classes": [0, 1]} | fields))


def test_learns_and_promises_no_more_than_the_budget(table):
    model = logistic().fit(*table)
    assert model.score(*table) > 0.9
    assert 0.99 < model.guarantee_.epsilon <= 1.0
    assert model.method_ == "iteration"
    assert not model.guarantee_.is_conditional
    assert "the last iterate, and no earlier one" in model.guarantee_.statement(verbose=True)


def test_early_records_are_hidden_better_and_the_worst_is_the_guarantee(table):
    guarantee = logistic().fit(*table).guarantee_
    epsilons = guarantee.per_record.epsilons
    assert len(epsilons) == 4000
    assert np.all(np.diff(epsilons) >= 0)
    assert epsilons[-1] == pytest.approx(guarantee.epsilon, rel=1e-6)
    assert epsilons[0] < 0.97 * epsilons[-1]
    assert len(np.unique(epsilons)) == BATCHES


def test_nothing_is_assumed_about_the_order_of_the_table_and_no_epsilon_is_that_of_a_row(table):
    model = logistic(max_iter=2).fit(*table)
    assert not model.guarantee_.is_conditional
    assert "one uniformly random order that is kept secret" in model.guarantee_.statement(verbose=True)
    assert not model.guarantee_.per_record.is_by_row
    assert not any("order" in name or "permutation" in name for name in vars(model))


@pytest.mark.parametrize("fields", [{}, {"fit_intercept": False}])
def test_every_order_of_a_table_gives_the_same_law(table, monkeypatch, fields):
    """Any table order, together with the drawn order that compensates for it, gives the same model bit by bit.

    Drawn orders are uniform, so the compensating one has the same probability.
    """
    (X, y), rows = (part[:100] for part in table), np.random.default_rng(0).permutation(100)
    drawn = NoiseSource.permutation
    model = logistic(random_state=5, max_iter=2, **fields).fit(X, y)
    other = logistic(random_state=5, max_iter=2, **fields).fit(X[rows], y[rows])
    assert not np.array_equal(model.coef_, other.coef_)
    monkeypatch.setattr(NoiseSource, "permutation", lambda source, n: np.argsort(rows)[drawn(source, n)])
    same = logistic(random_state=5, max_iter=2, **fields).fit(X[rows], y[rows])
    assert np.array_equal(model.coef_, same.coef_)
    assert np.array_equal(model.intercept_, same.intercept_)


def test_the_reason_states_the_noise_saved_and_when_composition_is_better(table):
    weak, strong = (logistic(alpha=alpha, max_iter=60).fit(*table).method_reason_ for alpha in (1e-6, 0.05))
    assert "saves" in weak
    assert "method='gradient'" in weak
    assert "of the noise of as many full-batch steps" in strong


def test_the_reason_counts_what_a_secret_saves(table):
    saved = {}
    for secret in (None, "order", "stop", "skip"):
        model = logistic(secret=secret, max_iter=40 if secret in ("stop", "skip") else 5, fit_intercept=False)
        reason = model.fit(*table).method_reason_
        saved[secret] = int(reason.split(" saves ")[1].split("%")[0])
    assert saved["order"] > saved[None] > 10
    assert saved["stop"] > 15
    assert saved["skip"] <= 1


def test_strong_convexity_reduces_the_noise():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((800, 3)) / 2, rng.integers(0, 2, 800)
    stds = []
    for alpha in (1e-6, 0.05, 0.2):
        model = logistic(alpha=alpha, max_iter=50, clip_norm=0.4).fit(X, y)
        stds.append(float(model.guarantee_.statement(verbose=True).split("standard deviation ")[-1].split()[0]))
    assert stds[0] > 1.1 * stds[1] > 1.2 * stds[2]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_sparse_and_dense_agree(table, form):
    X, y = table
    models = [logistic(random_state=3).fit(rows, y) for rows in (X, form(X))]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-8)


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor])
def test_regressions_learn(table, kind):
    X, _ = table
    target = X[:, 0] - X[:, 1]
    model = kind(2.0, method="iteration", target_bound=3.0).fit(X, target)
    assert model.score(X, target) > 0.5


def test_several_classes_are_not_clipped_and_a_clip_is_refused(table):
    X, _ = table
    y = np.digitize(X[:, 0], [-0.1, 0.4])
    model = PrivateLogisticRegression(2.0, method="iteration", classes=[0, 1, 2]).fit(X, y)
    assert model.score(X, y) > 0.5
    with pytest.raises(ValueError, match="clipped steps of a softmax do not contract"):
        PrivateLogisticRegression(2.0, method="iteration", clip_norm=0.1).fit(X, y)


def test_without_an_intercept(table):
    X, y = table
    model = logistic(fit_intercept=False).fit(X - 0.2, y)
    assert model.score(X - 0.2, y) > 0.9
    assert model.guarantee_.per_record is not None


def test_saves_and_loads_with_every_record_s_guarantee(table, tmp_path):
    model = logistic().fit(*table)
    model.save(tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert again.guarantee_.per_record.epsilons == pytest.approx(model.guarantee_.per_record.epsilons)


DATA = Path(os.environ.get("PRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "a9a.npz"


@pytest.mark.skipif(not DATA.exists(), reason="a9a.npz is not available: set PRIVET_DATA to the folder that holds it")
@pytest.mark.parametrize("alpha", [1e-4, 1e-3])
def test_reaches_at_least_the_accuracy_of_composed_steps_on_a9a(alpha, monkeypatch):
    """Both methods run with epsilon 0.5, delta 1e-6, three seeds, and the same penalty and bounds."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "experiments"))
    pytest.importorskip("matplotlib", reason="the loader of the data is that of the experiments")
    split = importlib.import_module("support").a9a()
    means = {}
    for method in ("gradient", "iteration"):
        settings = {"feature_norm": 14**0.5, "alpha": alpha, "method": method, "classes": [0, 1]}
        models = [PrivateLogisticRegression(0.5, 1e-6, random_state=seed, **settings) for seed in range(3)]
        scores = [model.fit(split.X, split.y).score(split.X_test, split.y_test) for model in models]
        means[method] = np.mean(scores)
    assert means["iteration"] >= means["gradient"] - 5e-4
    assert means["iteration"] > 0.848


# ------------------------------------------------------------------------------------------------------------ secrets


@pytest.mark.parametrize("secret", ["order", "stop", "skip"])
def test_every_secret_learns_within_the_budget_and_is_named_in_the_guarantee(table, secret, tmp_path):
    for fit_intercept in (True, False):
        model = logistic(epsilon=2.0, secret=secret, fit_intercept=fit_intercept, random_state=3).fit(*table)
        assert model.score(*table) > 0.7
        assert 1.98 < model.guarantee_.epsilon <= 2.0
        words = {"order": "one uniformly random order", "stop": "up to a random step", "skip": "from a random step"}
        assert words[secret] in model.guarantee_.statement(verbose=True)
    model.save(tmp_path / "m.json")
    assert load(tmp_path / "m.json").secret == secret


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_secret_order_needs_less_noise_than_the_worst_place_of_a_known_one(table, fit_intercept):
    models = [logistic(secret=secret, fit_intercept=fit_intercept, max_iter=5) for secret in (None, "order")]
    texts = [model.fit(*table).guarantee_.statement(verbose=True) for model in models]
    known, secret = (float(text.split("standard deviation ")[-1].split()[0]) for text in texts)
    assert 0.6 * known < secret < 0.95 * known
    epsilons = models[1].guarantee_.per_record.epsilons
    assert epsilons == pytest.approx(np.full(4000, models[1].guarantee_.epsilon), rel=1e-3)


def test_a_secret_stop_or_skip_makes_one_pass_over_as_many_batches_as_asked_for(table):
    for secret in ("stop", "skip"):
        assert logistic(secret=secret, max_iter=40).fit(*table).n_iter_ == 40
        assert logistic(secret=secret, max_iter=10**6).fit(*(part[:30] for part in table)).n_iter_ == 30
    assert logistic(secret="order", max_iter=3).fit(*table).n_iter_ == 3 * BATCHES


def test_batches_of_one_pass_grow_with_data_and_budget_within_limits():
    assert one_pass_batches(1.0, scale=1.0) == BATCHES
    assert BATCHES < one_pass_batches(1e-3, scale=1.0) < one_pass_batches(1e-4, scale=1.0)
    assert one_pass_batches(1e-9, scale=1.0) == one_pass_batches(1e-12, scale=1.0)


def test_secrets_that_do_not_exist_or_do_not_fit_are_refused_before_any_noise(table, monkeypatch):
    monkeypatch.setattr(NoiseSource, "add_gaussian", None)
    monkeypatch.setattr(NoiseSource, "permutation", None)
    for wrong in ("nothing", "", 3, True):
        with pytest.raises(ValueError, match=r"secret must be one of 'order', 'stop', 'skip', got"):
            logistic(secret=wrong).fit(*table)
    for method in ("auto", "gradient", "output", "minimiser", "objective"):
        with pytest.raises(ValueError, match=r"does not use secret \(got 'stop'\)\. .* or use method='iteration'"):
            logistic(method=method, secret="stop").fit(*table)
    with pytest.raises(ValueError, match=r"secret='stop' cannot learn from public records.* Use secret='skip'"):
        logistic(secret="stop").fit(*table, X_public=table[0], y_public=table[1])


def test_public_records_help_a_secret_skip_and_a_secret_order(table):
    X, y = table
    public = {"X_public": X[1000:3000], "y_public": y[1000:3000]}
    for secret in ("skip", "order"):
        texts = []
        for extra in ({}, public):
            model = logistic(secret=secret, max_iter=8).fit(X[:800], y[:800], **extra)
            texts.append(model.guarantee_.statement(verbose=True))
        alone, helped = (float(text.split("standard deviation ")[-1].split()[0]) for text in texts)
        assert helped < 0.8 * alone


# ------------------------------------------------------------------------------------------------------ public records


def test_public_records_help_a_small_budget(table):
    X, y = table
    private, public = slice(0, 300), slice(300, 600)
    alone, helped = [], []
    for seed in range(6):
        alone.append(logistic(epsilon=0.1, delta=0.002, random_state=seed).fit(X[private], y[private]).score(X, y))
        model = logistic(epsilon=0.1, delta=0.002, random_state=seed)
        helped.append(model.fit(X[private], y[private], X_public=X[public], y_public=y[public]).score(X, y))
    assert np.mean(helped) > np.mean(alone) + 0.1
    assert len(model.guarantee_.per_record) == 300


def test_public_records_reduce_the_noise(table):
    X, y = table
    models = [
        logistic(max_iter=5).fit(X[:400], y[:400], X_public=X[1000 : 1000 + m], y_public=y[1000 : 1000 + m])
        for m in (1, 200, 2000)
    ]
    stds = [
        float(model.guarantee_.statement(verbose=True).split("standard deviation ")[-1].split()[0]) for model in models
    ]
    assert stds[0] > 1.1 * stds[1] > 1.3 * stds[2]


def test_public_records_come_last_and_outweigh_a_few_private_ones(table):
    X, y = table
    public = {"X_public": X[1000:3000], "y_public": y[1000:3000]}
    models = [logistic(epsilon=50.0, max_iter=1, alpha=0.01, random_state=seed) for seed in range(9)]
    scores = [model.fit(X[:50], 1 - y[:50], **public).score(X, y) for model in models]
    assert np.median(scores) > 0.75


@pytest.mark.parametrize("method", ["auto", "gradient", "output", "minimiser", "objective"])
def test_other_methods_refuse_public_records(table, method):
    with pytest.raises(ValueError, match=r"does not learn from public data\. Use method='iteration'"):
        logistic(method=method).fit(*table, X_public=table[0], y_public=table[1])


def test_bad_public_records_are_refused(table):
    X, y = table
    with pytest.raises(ValueError, match="go together"):
        logistic().fit(X, y, X_public=X)
    with pytest.raises(ValueError, match="go together"):
        logistic().fit(X, y, y_public=y)
    with pytest.raises(ValueError, match="features"):
        logistic().fit(X, y, X_public=X[:, :3], y_public=y)
    with pytest.raises(ValueError, match="label 2, which does not occur in y"):
        logistic().fit(X, y, X_public=X, y_public=y + 1)
    with pytest.raises(ValueError, match="NaN"):
        logistic().fit(X, y, X_public=np.where(X > 1, np.nan, X), y_public=y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        logistic().fit(X, y, X_public=X[:5], y_public=y)


def test_pure_epsilon_and_smoothing_are_refused(table):
    with pytest.raises(ValueError, match="no pure epsilon"):
        logistic(delta=0).fit(*table)
    with pytest.raises(ValueError, match="does not use smoothing"):
        logistic(smoothing=1.0).fit(*table)


@pytest.mark.parametrize("kind", [PrivateLinearSVC, PrivateLogisticRegression])
@pytest.mark.parametrize("n", [2, 3, 7, 8, 9])
def test_tiny_tables_give_finite_models(kind, n):
    rng = np.random.default_rng(n)
    model = kind(5.0, method="iteration", classes=[0, 1]).fit(rng.standard_normal((n, 2)), np.arange(n) % 2)
    assert np.isfinite(model.coef_).all()
    assert len(model.guarantee_.per_record or range(n)) == n


# ------------------------------------------------------------------------------------------------------------ defaults


def test_passes_grow_with_data_and_budget_within_limits():
    def passes(epsilon, n):
        return iteration_passes(7.0 * 2 * 0.4 / (n * gdp_mu(Budget(epsilon, 1e-6))), scale=1.0)

    assert passes(0.01, 100) == 5
    assert 5 < passes(0.5, 20_000) < passes(1.0, 20_000) <= passes(1.0, 10**6) == 150


def test_steps_decay_over_their_second_half():
    sizes = decaying(0.5, 100)
    assert len(sizes) == 100
    assert sizes[:50] == (0.5,) * 50
    assert 0 < sizes[-1] < 0.011
    assert all(late < early for early, late in pairwise(sizes[50:]))
    assert decaying(0.5, 1) == (0.5,)
