"""Sparse estimators: the features they find, the form of their results, and the input they refuse."""

import math
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression

import privet
from privet import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.methods._sparse import default_n_nonzero, legibility
from privet.linear.methods.peeling import peeling_rounds, residual_clips
from privet.linear.sparse_rows import bounded_entries, scaled_to_norm
from privet.objectives import L2, BoundedRows, Logistic, TamedLogistic
from privet.plans import AdaptivePlan
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.solvers import Problem, Run
from privet.solvers.hard_threshold import peeled_threshold

SPARSE_METHODS = PrivateSparseRegression.offered_methods()
KINDS = [PrivateSparseLogisticRegression, PrivateSparseRegression]
each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
each_method = pytest.mark.parametrize("method", SPARSE_METHODS)

N, D, S = 3000, 400, 8


def uniform_data(n=N, d=D, s=S, seed=0, offset=0.0):
    """Return rows in [-1, 1]^d, weights of s features, and scores."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    weights = np.zeros(d)
    weights[rng.choice(d, s, replace=False)] = rng.choice([-1, 1], s) * rng.uniform(0.5, 1.5, s)
    return X, weights, X @ weights + offset


@pytest.fixture(scope="module")
def numbers():
    X, weights, scores = uniform_data()
    return X, scores + 0.3 * np.random.default_rng(1).standard_normal(N), weights


@pytest.fixture(scope="module")
def labels():
    X, weights, scores = uniform_data()
    return X, (np.random.default_rng(1).random(N) < 1 / (1 + np.exp(-2 * scores))).astype(int), 2 * weights


@pytest.fixture(scope="module")
def words():
    """Return a sparse table of 300 rows and 40 columns, with labels."""
    X = sparse.random_array((300, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
    return X, (X[:, [0]].toarray().ravel() + X[:, [1]].toarray().ravel() > 0.1).astype(int)


def model_of(kind, epsilon=2.0, delta=1e-4, **fields):
    common = {"n_nonzero": S, "feature_norm": 12.0, "entry_bound": 1.0, "random_state": 0}
    bound = {} if is_classifier(kind()) else {"target_bound": 5.0}
    return kind(epsilon, delta, **(common | bound | fields))


def public_for(method, X):
    return {"X_public": X} if SPARSE_METHODS[method].uses_public else {}


def target(kind, y):
    return y if is_classifier(kind()) else 0.7 * y - 0.3


# ------------------------------------------------------------------------------------------------------ what is found


def test_a_regression_finds_the_features_and_their_weights(numbers):
    X, y, weights = numbers
    for seed in range(3):
        model = model_of(PrivateSparseRegression, random_state=seed).fit(X, y)
        assert np.array_equal(model.get_support(), weights != 0)
        assert np.linalg.norm(model.coef_ - weights) < 0.15 * np.linalg.norm(weights)
        assert model.score(X, y) > 0.9


def test_a_classifier_finds_the_features_and_calibrated_weights(labels):
    X, y, weights = labels
    model = model_of(PrivateSparseLogisticRegression, 200.0, max_iter=40).fit(X, y)
    assert np.array_equal(model.get_support(), weights != 0)
    reference = LogisticRegression(C=np.inf, fit_intercept=False, max_iter=1000).fit(X[:, weights != 0], y)
    found = model.coef_[0, weights != 0]
    # A residual that is merely clipped to 1/2 would give weights up to twice too large.
    assert found == pytest.approx(reference.coef_[0], rel=0.15)
    chances = model.predict_proba(X)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert np.exp(model.predict_log_proba(X)) == pytest.approx(chances)
    assert np.array_equal(model.predict(X), (chances[:, 1] > 0.5).astype(int))


def test_peeling_is_the_best_of_the_methods(numbers):
    X, y, _ = numbers
    scores = {
        method: model_of(PrivateSparseRegression, 1.0, method=method)
        .fit(X, y, **public_for(method, X[:200]))
        .score(X, y)
        for method in SPARSE_METHODS
    }
    assert max(scores, key=scores.get) == "peeling"
    assert model_of(PrivateSparseRegression).fit(X, y).method_ == "peeling"


@each
@each_method
def test_no_method_keeps_more_features_than_asked(kind, method, words):
    X, y = words
    for n_nonzero, max_iter in ((1, None), (7, None), (7, 30), (40, 2)):
        model = model_of(kind, method=method, n_nonzero=n_nonzero, max_iter=max_iter)
        model.fit(X, target(kind, y), **public_for(method, X[:50]))
        assert model.get_support().sum() <= n_nonzero
        assert model.n_nonzero_ == n_nonzero
        assert model.guarantee_.epsilon <= 2.0


def test_features_are_found_among_larger_ones_where_one_class_is_rare():
    """Without a noisy mean first, the columns with the largest sums would be chosen, useful or not."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.uniform(0, 1, (N, 10)), rng.uniform(0, 0.5, (N, 90))])
    y = (rng.random(N) < 1 / (1 + np.exp(2 - 10 * (X[:, 50] - 0.25) + 10 * (X[:, 60] - 0.25)))).astype(int)
    assert y.mean() < 0.25
    model = PrivateSparseLogisticRegression(4.0, 1e-4, n_nonzero=2, feature_norm=4.0, entry_bound=1.0, random_state=0)
    assert model.fit(X, y).get_support(indices=True).tolist() == [50, 60]
    assert "a noisy mean of the targets" in model.guarantee_.statement(verbose=True)
    assert model.fit(X, 1 - y).get_support(indices=True).tolist() == [50, 60]
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(1 - y.mean(), abs=0.06)


def test_an_intercept_is_learned_for_any_features():
    X, _, scores = uniform_data(offset=2.0)
    model = model_of(PrivateSparseRegression, target_bound=6.0).fit(X, scores)
    assert model.intercept_ == pytest.approx([2.0], abs=0.2)
    rng = np.random.default_rng(2)
    y = (rng.random(N) < 1 / (1 + np.exp(-scores))).astype(int)
    classifier = model_of(PrivateSparseLogisticRegression, 6.0).fit(X, y)
    assert classifier.intercept_[0] > 0.8
    without = model_of(PrivateSparseRegression, fit_intercept=False).fit(X, scores)
    assert without.intercept_ == 0


# --------------------------------------------------------------------------------------------------------- the defaults


def test_the_number_of_features_is_computed_from_public_numbers():
    budget = Budget(1.0, 1e-6)
    for n, d, ratio in ((1000, 100, 9), (50_000, 5000, 60), (50_000, 5000, 10), (10**7, 20, 1)):
        wanted = n * gdp_mu(budget) * min(1, math.sqrt(3 / d) * ratio) / (16 * math.log(2 * d))
        assert default_n_nonzero(budget, n, d, ratio) == max(1, min(d, round(wanted)))
    assert default_n_nonzero(Budget(1e-9, 1e-9), 5, 10, 1) == 1
    assert default_n_nonzero(Budget(1e300, 0.1), 10**9, 7, 1) == 7
    chosen = default_n_nonzero(budget, 50_000, 5000, 60)
    assert legibility(budget, 50_000, 5000, chosen, 60) == pytest.approx(16, rel=0.05)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_default_number_of_features_is_near_the_best(numbers, epsilon):
    X, y, _ = numbers
    scores = {
        number: np.mean(
            [model_of(PrivateSparseRegression, epsilon, n_nonzero=number, random_state=seed).fit(X, y).score(X, y)
             for seed in range(3)]
        )
        for number in (None, 1, 2, 4, 8, 16, 32, 64)
    }  # fmt: skip
    assert scores[None] > max(scores.values()) - 0.1


def test_the_model_reports_method_and_number_of_features(numbers):
    X, y, _ = numbers
    model = model_of(PrivateSparseRegression, n_nonzero=None).fit(X, y)
    assert model.n_nonzero_ == default_n_nonzero(Budget(2.0, 1e-4), N, D, 12.0)
    assert f"{model.n_nonzero_} of {D} features (chosen from n, d, the bounds and the budget)" in model.method_reason_
    assert "8 of 400 features (asked for)" in model_of(PrivateSparseRegression).fit(X, y).method_reason_


def test_rounds_grow_with_the_signal_that_the_budget_allows():
    for is_bounded in (True, False):
        rounds = [peeling_rounds(value, is_bounded) for value in (0.1, 3, 6, 10, 20, 100, 1e4, math.inf)]
        assert rounds[0] == 1
        assert rounds == sorted(rounds)
        assert rounds[-1] <= 12
    clips = residual_clips(12, 10.0)
    assert clips[0] == 6.0
    assert clips == sorted(clips, reverse=True)
    assert clips[-1] == 0.6


def test_rounds_and_clips_are_those_of_the_guarantee(numbers):
    X, y, _ = numbers
    model = model_of(PrivateSparseRegression, max_iter=3).fit(X, y)
    assert model.n_iter_ == 3
    assert "residuals clipped to 3, 2, 1.33333 in turn" in model.guarantee_.statement(verbose=True)
    assert "target_bound = 5" in model.guarantee_.statement(verbose=True)
    assert "entry_bound = 1 is clipped" in model.guarantee_.statement(verbose=True)
    assert "feature_norm = 12" in model.guarantee_.statement(verbose=True)


def test_the_first_step_of_the_tamed_loss_is_that_of_the_logistic_one(labels):
    X, y, _ = labels
    releases = [
        peeled_threshold(
            Problem(objective, L2(1e-4), BoundedRows(X, 12.0), y.astype(float)),
            Run(replace(AdaptivePlan(5.0), delta=1e-4), NoiseSource(0)),
            n_nonzero=S,
            entry_bound=1.0,
            residual_clips=[0.5],
        )
        for objective in (Logistic(), TamedLogistic())
    ]
    assert releases[0].weights == pytest.approx(releases[1].weights)


# ------------------------------------------------------------------------------------------------------- bounds on rows


def test_entries_are_clipped_independently_and_the_input_is_not_changed(words):
    X, y = words
    wild = X.copy()
    wild.data[::5] *= 100
    kept = wild.data.copy()
    tame = wild.copy()
    tame.data = np.clip(tame.data, -0.4, 0.4)
    models = [
        model_of(kind, entry_bound=0.4).fit(rows, y) for kind in KINDS[:1] for rows in (wild, tame, wild.toarray())
    ]
    for other in models[1:]:
        assert other.coef_ == pytest.approx(models[0].coef_, rel=1e-9)
        assert other.decision_function(tame) == pytest.approx(models[0].decision_function(wild.toarray()))
    assert np.array_equal(wild.data, kept)
    assert np.shares_memory(bounded_entries(X, 1.0, 2.0).data, X.data)  # nothing is clipped, so nothing is copied


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_without_a_bound_on_entries_rows_keep_their_directions(form):
    X = np.array([[3.0, 4.0, 0.0], [0.1, -0.2, 0.3], [0.0, 0.0, 0.0], [0.6, 0.9, 0.0], [1e308, 1e308, -5e307]])
    bounded = bounded_entries(form(X), 1.0, None)
    dense = bounded.toarray() if sparse.issparse(bounded) else bounded
    assert np.abs(dense).max() <= 1.0
    assert dense[0] == pytest.approx([0.75, 1.0, 0.0])
    assert np.array_equal(dense[1:4], X[1:4])
    assert dense[4] == pytest.approx([1.0, 1.0, -0.5])
    scores = [BoundedRows(rows, 1.0).scores(np.array([1.0, 2.0, -1.0])) for rows in (form(X), bounded)]
    assert scores[0] == pytest.approx(scores[1])
    assert np.linalg.norm(scaled_to_norm(dense, 1.0), axis=1).max() <= 1 + 1e-12
    short = scaled_to_norm(form(X[:4]), 1.0)
    assert (short.toarray() if sparse.issparse(short) else short)[0] == pytest.approx([0.6, 0.8, 0.0])


def test_an_entry_that_is_stored_in_pieces_is_clipped_as_a_whole():
    pieces = sparse.csr_array(
        (np.array([0.8, 0.8, -2.0, 0.5]), np.array([1, 1, 0, 0]), np.array([0, 2, 4])), shape=(2, 3)
    )
    assert bounded_entries(pieces, 9.0, 1.0).toarray().tolist() == [[0, 1.0, 0], [-1.0, 0, 0]]
    assert pieces.nnz == 4


def test_single_precision_is_widened_before_it_is_clipped():
    narrow = sparse.csr_array(np.array([[5.0, 0.0]], dtype=np.float32))
    clipped = bounded_entries(narrow, 9.0, 0.1)
    assert clipped.dtype == np.float64
    assert clipped.data[0] == 0.1  # the nearest single-precision number is larger


@each_method
@each
def test_a_sparse_table_is_never_made_dense(kind, method, words, monkeypatch):
    X, y = words
    model = model_of(kind, method=method, n_nonzero=5)
    for name in ("toarray", "todense"):
        for form in (sparse.csr_array, sparse.csc_array):
            monkeypatch.setattr(form, name, lambda *_, **__: pytest.fail("a sparse matrix was made dense"))
    if method == "knowledge_transfer":
        pytest.skip("the certified norm of public rows is computed from a small dense matrix")
    model.fit(X, target(kind, y)).predict(X)
    model.fit(sparse.csr_matrix(X), target(kind, y))


# ------------------------------------------------------------------------------------------------------- the support


@each
def test_get_support_behaves_as_in_feature_selectors(kind, words):
    X, y = words
    model = model_of(kind, n_nonzero=5).fit(X, target(kind, y))
    mask = model.get_support()
    assert mask.dtype == bool
    assert mask.shape == (40,)
    assert mask.sum() == 5
    assert model.get_support(indices=True).tolist() == np.flatnonzero(mask).tolist()
    assert np.array_equal(mask, np.atleast_2d(model.coef_)[0] != 0)


@each
def test_coefficients_become_sparse_on_request_and_back(kind, words, tmp_path):
    X, y = words
    model = model_of(kind, n_nonzero=5).fit(X, target(kind, y))
    dense, predicted, support = model.coef_, model.predict(X), model.get_support()
    assert model.sparsify() is model
    assert sparse.issparse(model.coef_)
    assert model.coef_.shape == (1, 40)
    assert model.coef_.nnz == 5
    assert np.array_equal(model.predict(X), predicted)
    assert np.array_equal(model.get_support(), support)
    model.save(tmp_path / "model.json")
    back = privet.load(tmp_path / "model.json")
    assert type(back) is kind
    assert sparse.issparse(back.coef_)
    assert np.array_equal(back.predict(X), predicted)
    assert np.array_equal(back.densify().coef_, dense)
    assert np.array_equal(model.sparsify().densify().coef_, dense)


@each
def test_a_damaged_file_of_sparse_coefficients_is_refused(kind, words):
    X, y = words
    fields = model_of(kind, n_nonzero=5).fit(X, target(kind, y)).sparsify().to_dict()
    parts = fields["learned"]["coef_"]["__csr__"]
    for name, value in (("indices", [0, 1, 2, 3, 99]), ("indptr", [0, 9]), ("data", [1.0])):
        damaged = parts | {name: parts[name] | {"__array__": value}}
        learned = fields["learned"] | {"coef_": fields["learned"]["coef_"] | {"__csr__": damaged}}
        with pytest.raises(ValueError, match="not a valid privet model"):
            kind.from_dict(fields | {"learned": learned})
    wide = fields["learned"]["coef_"] | {"shape": [1, 50]}
    with pytest.raises(ValueError, match="50 weights for 40 features"):
        kind.from_dict(fields | {"learned": fields["learned"] | {"coef_": wide}})


@each
def test_the_names_of_features_lead_to_those_that_matter(kind, words):
    X, y = words
    frame = pd.DataFrame.sparse.from_spmatrix(X, columns=[f"word {place}" for place in range(40)])
    model = model_of(kind, 200.0, n_nonzero=2).fit(frame.sparse.to_dense(), target(kind, y))
    assert set(model.feature_names_in_[model.get_support()]) == {"word 0", "word 1"}


# --------------------------------------------------------------------------------------------------------- public rows


@each
def test_public_rows_are_for_knowledge_transfer_only(kind, words, no_noise):
    X, y = words
    for method in ("auto", *(name for name, entry in SPARSE_METHODS.items() if not entry.uses_public)):
        with pytest.raises(
            ValueError, match=rf"method='{method}' does not learn from public data\. Use method='knowledge_tr"
        ):
            model_of(kind, method=method).fit(X, target(kind, y), X_public=X)
    with pytest.raises(ValueError, match=r"'knowledge_transfer' learns from public rows\. Give X_public"):
        model_of(kind, method="knowledge_transfer").fit(X, target(kind, y))
    with pytest.raises(ValueError, match="y_public is not used"):
        model_of(kind, method="knowledge_transfer").fit(X, target(kind, y), X, y)
    with pytest.raises(ValueError, match="features"):
        model_of(kind, method="knowledge_transfer").fit(X, target(kind, y), X_public=X[:, :30])


@each
def test_public_rows_are_bounded_as_private_ones_are(kind, words):
    X, y = words
    wild = X.copy()
    wild.data = wild.data * 1e6
    model = model_of(kind, method="knowledge_transfer", n_nonzero=5).fit(X, target(kind, y), X_public=wild)
    assert np.isfinite(model.coef_).all()
    assert "teacher 'selected' (chosen from public numbers and rows)" in model.method_reason_


# ----------------------------------------------------------------------------------------------------------- bad input


@each
@pytest.mark.parametrize("method", ["auto", *SPARSE_METHODS])
def test_pure_epsilon_is_refused_with_the_reason(kind, method, words, no_noise):
    with pytest.raises(ValueError, match=r"adds Gaussian noise, which gives no pure epsilon guarantee\. Set delta > 0"):
        kind(1.0, 0.0, method=method).fit(*words)


@each
def test_impossible_settings_are_named(kind, words, no_noise):
    X, y = words
    for number in (0, -1, 2.5, True, "five"):
        with pytest.raises(ValueError, match="n_nonzero must be"):
            kind(n_nonzero=number).fit(X, y)
    with pytest.raises(ValueError, match="n_nonzero=41 is more than the 40 features"):
        kind(n_nonzero=41).fit(X, y)
    for bound in (0, -1.0, math.nan, math.inf, "1", 1e200):
        with pytest.raises(ValueError, match="entry_bound must"):
            kind(entry_bound=bound).fit(X, y)
    with pytest.raises(ValueError, match=r"method must be auto, frank_wolfe, hard_threshold.*, got 'gradient'"):
        kind(method="gradient").fit(X, y)
    with pytest.raises(ValueError, match=r"exceeds the range of floating point\. Raise epsilon"):
        kind(1e-300, 1e-300).fit(X, y)


@each
@each_method
def test_tables_with_empty_rows_or_columns_are_handled(kind, method, words):
    X, y = words
    y = target(kind, y)
    public = public_for(method, X[:50])
    hollow = X.tolil()
    hollow[:, 3] = 0
    hollow[5] = 0
    hollow = sparse.csr_array(hollow)
    assert hollow[[5]].nnz == 0
    whole = X.copy()
    whole.data = np.ceil(whole.data)
    tables = {
        "an empty column and an empty row": hollow,
        "nothing but zeros": sparse.csr_array(X.shape),
        "whole numbers": whole.astype(np.int64),
        "single precision": X.astype(np.float32),
        "columns first": X.tocsc(),
        "zeros that are stored": sparse.csr_array((X.data * 0, X.indices, X.indptr), shape=X.shape),
    }
    for name, table in tables.items():
        model = model_of(kind, method=method, n_nonzero=5).fit(table, y, **public)
        assert np.isfinite(np.atleast_2d(model.coef_)).all(), name
        assert np.isfinite(model.intercept_).all(), name
    exact = model_of(kind, method=method, n_nonzero=5).fit(whole, y, **public)
    assert np.array_equal(
        model_of(kind, method=method, n_nonzero=5).fit(whole.astype(int), y, **public).coef_, exact.coef_
    )


@each
def test_a_sparse_table_with_a_hole_is_refused_with_the_cause(kind, words, no_noise):
    X, y = words
    for value, cause in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = X.copy()
        bad.data[7] = value
        with pytest.raises(ValueError, match=cause):
            kind().fit(bad, y)


def test_one_class_or_three_are_refused_with_the_cause(words, no_noise):
    X, y = words
    with pytest.raises(ValueError, match="y has only one class"):
        PrivateSparseLogisticRegression().fit(X, 0 * y)
    with pytest.raises(
        ValueError, match=r"Only binary classification is supported\. y has 3 classes\. Use PrivateLogistic"
    ):
        PrivateSparseLogisticRegression().fit(X, np.arange(300) % 3)
    with pytest.raises(ValueError, match="which is not among the declared classes"):
        PrivateSparseLogisticRegression(classes=[0, 2]).fit(X, y)


def test_declared_classes_may_be_absent(words):
    X, _ = words
    model = PrivateSparseLogisticRegression(classes=["no", "yes"]).fit(X, np.full(300, "no"))
    assert model.classes_.tolist() == ["no", "yes"]
    assert not model.guarantee_.is_conditional
    assert set(model.predict(X)) <= {"no", "yes"}


def test_the_choice_of_a_method_has_its_reason(words):
    model = PrivateSparseLogisticRegression().fit(*words)
    assert model.method_ == "peeling"
    assert "the only method that fits the settings" in model.method_reason_
    assert "asked for" in PrivateSparseLogisticRegression(method="two_stage").fit(*words).method_reason_


# ---------------------------------------------------------------------------------------------------------- performance


def long_table(n, d, per_row, seed=0):
    """Return sparse rows with a few entries in [-1, 1] each, without creating a dense matrix."""
    rng = np.random.default_rng(seed)
    places = np.sort(rng.integers(0, d, (n, per_row)), axis=1)
    X = sparse.csr_array((rng.uniform(-1, 1, places.size), places.ravel(), np.arange(n + 1) * per_row), shape=(n, d))
    X.sum_duplicates()
    return X, rng.integers(0, 2, n)


@pytest.mark.parametrize(("method", "max_iter"), [("hard_threshold", 50), ("peeling", 50), ("peeling", None)])
def test_fifty_thousand_features_take_seconds_and_little_memory(method, max_iter, takes_less_than):
    X, y = long_table(20_000, 50_000, 100)
    model = PrivateSparseLogisticRegression(
        method=method, n_nonzero=500, feature_norm=6.0, entry_bound=1.0, max_iter=max_iter
    )
    assert takes_less_than(10.0, lambda: model.fit(X, y))
    tracemalloc.start()
    model.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6
    assert model.get_support().sum() == 500


def test_the_cost_grows_no_faster_than_the_number_of_entries():
    def seconds(per_row):
        X, y = long_table(10_000, 5000, per_row)
        model = PrivateSparseLogisticRegression(method="peeling", n_nonzero=50, feature_norm=9.0, max_iter=10)
        times = []
        for _ in range(3):
            start = time.process_time()
            model.fit(X, y)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(200) < 10 * seconds(40)
