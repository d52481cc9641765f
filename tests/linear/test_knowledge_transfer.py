"""Knowledge transfer in the sparse estimators: which teacher is chosen, what each finds, and what is refused."""

import math

import numpy as np
import pytest
from scipy import sparse

import privet
from privet import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.audit import replay
from privet.linear.methods.knowledge_transfer import TEACHERS
from privet.privacy import BudgetExceededError, Ledger

N, D, S = 6000, 60, 2
BOUNDS = {"feature_norm": 4.7, "entry_bound": 1.0, "random_state": 0}
each_teacher = pytest.mark.parametrize("teacher", TEACHERS)


def transfer(kind=PrivateSparseRegression, teacher="auto", epsilon=4.0, delta=1e-4, **fields):
    bound = {"target_bound": 5.0} if kind is PrivateSparseRegression else {"classes": [0, 1]}
    settings = {"n_nonzero": S, "method": "knowledge_transfer", "teacher": teacher} | BOUNDS | bound | fields
    return kind(epsilon, delta, **settings)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, D))
    scores = 2 * X[:, 5] - 1.5 * X[:, 40] + 1
    numbers = scores + 0.3 * rng.standard_normal(N)
    return X, numbers, (rng.random(N) < 1 / (1 + np.exp(-2 * scores))).astype(int), rng.uniform(-1, 1, (500, D))


@each_teacher
def test_each_teacher_finds_the_features_of_numbers_and_of_classes(table, teacher):
    X, numbers, labels, public = table
    regression = transfer(teacher=teacher).fit(X, numbers, X_public=public)
    assert regression.get_support(indices=True).tolist() == [5, 40]
    assert regression.score(X, numbers) > 0.85
    assert regression.intercept_ == pytest.approx([1.0], abs=0.3)
    assert f"teacher {teacher!r} (asked for)" in regression.method_reason_
    classes = transfer(PrivateSparseLogisticRegression, teacher).fit(X, labels, X_public=public)
    assert classes.get_support(indices=True).tolist() == [5, 40]
    assert classes.score(X, labels) > 0.8
    assert classes.coef_[0, 5] > 0 > classes.coef_[0, 40]
    for model in (regression, classes):
        assert model.guarantee_.epsilon <= 4.0
        assert "a noisy mean of the targets" in model.guarantee_.statement(verbose=True)


def test_the_teacher_is_chosen_from_public_numbers(table):
    X, numbers, _, public = table
    small = transfer(epsilon=0.5).fit(X[:1000], numbers[:1000], X_public=public)
    assert "teacher 'selected' (chosen from public numbers and rows)" in small.method_reason_
    for values in (numbers, 0 * numbers, numbers[::-1]):
        assert "teacher 'convex' (chosen" in transfer().fit(X, values, X_public=public).method_reason_
    assert "'selected'" in transfer().fit(X, numbers, X_public=public[: D - 1]).method_reason_  # fewer than columns


def test_correlated_features_are_found_where_the_convex_teacher_is_chosen():
    rng = np.random.default_rng(1)
    common = rng.uniform(-1, 1, (2 * N, 1))
    X = (rng.uniform(-1, 1, (2 * N, D)) + common) / 2
    y = X[:, 5] - X[:, 40] + X[:, 20]
    rows = {"feature_norm": 4.7, "target_bound": 2.0, "n_nonzero": 3}
    model = transfer(epsilon=8.0, **rows).fit(X[:N], y[:N], X_public=X[N:])
    assert "'convex'" in model.method_reason_
    assert model.get_support(indices=True).tolist() == [5, 20, 40]


def test_scores_of_a_noisy_student_do_not_exceed_the_targets(table):
    X, numbers, _, public = table
    model = transfer(teacher="disjoint", epsilon=0.01, fit_intercept=False).fit(X, numbers, X_public=public)
    assert np.sqrt(np.mean((public @ model.coef_) ** 2)) <= 0.5 * 5.0 * 1.02  # a few public rows are scaled down


def test_weights_are_not_too_small_despite_the_penalty(table):
    X, numbers, _, public = table
    for teacher in ("convex", "selected"):
        weights = transfer(teacher=teacher, epsilon=20.0).fit(X, numbers, X_public=public).coef_[[5, 40]]
        assert weights == pytest.approx([2.0, -1.5], rel=0.1)


# ------------------------------------------------------------------------------------------------------------- privacy


@each_teacher
@pytest.mark.parametrize("kind", [PrivateSparseRegression, PrivateSparseLogisticRegression])
def test_a_replay_finds_nothing_that_depends_too_much_on_a_record(kind, teacher):
    rng = np.random.default_rng(2)
    X, y = 3 * rng.uniform(-1, 1, (60, 4)), rng.integers(0, 2, 60)
    other = (np.vstack([1e6 * np.ones(4), X[1:]]), np.append(1 - y[0], y[1:]))
    model = transfer(kind, teacher, n_nonzero=2, feature_norm=2.0, random_state=None)
    found = replay(lambda data: model.fit(*data, X_public=np.eye(4)), (X, y), other)
    assert not found.is_violation, found
    assert found.releases >= 2


@pytest.mark.parametrize("method", ["peeling", "hard_threshold", "frank_wolfe", "knowledge_transfer"])
def test_a_ledger_is_asked_about_the_whole_cost_before_any_noise(table, tmp_path, method, no_noise):
    """The mean of the targets and the rest are two releases, but the limit applies to both together."""
    X, numbers, _, public = table
    model = transfer(method=method)
    seen = []
    model.before_training = seen.append
    with pytest.raises(AssertionError, match="noise was drawn"):
        model.fit(X, numbers, **({"X_public": public} if method == "knowledge_transfer" else {}))
    assert len(seen) == 1
    assert seen[0].epsilon == pytest.approx(4.0)
    ledger = Ledger(tmp_path / "small.ledger", limit=(3.9, 1e-4))
    model.before_training = ledger.check
    with pytest.raises(BudgetExceededError):
        model.fit(X, numbers, **({"X_public": public} if method == "knowledge_transfer" else {}))


# ------------------------------------------------------------------------------------------------------------ bad input


def test_teachers_that_do_not_fit_are_refused(table, no_noise):
    X, numbers, _, public = table
    for teacher in ("forest", None, 3):
        with pytest.raises(ValueError, match="teacher must be one of 'auto', 'hard_threshold', 'convex', 'disjoint', "):
            transfer(teacher=teacher).fit(X, numbers, X_public=public)
    with pytest.raises(ValueError, match=r"does not use teacher \(got 'convex'\)\. .*, or use method='knowl"):
        transfer(teacher="convex", method="peeling").fit(X, numbers)
    for teacher in ("auto", *TEACHERS):
        with pytest.raises(ValueError, match="operator norm of X_public must be positive"):
            transfer(teacher=teacher, fit_intercept=False).fit(X, numbers, X_public=np.zeros((5, D)))


@each_teacher
def test_few_or_sparse_public_rows_and_few_records_give_a_model(teacher):
    rng = np.random.default_rng(3)
    X = sparse.random_array((40, 30), density=0.2, rng=rng, format="csr")
    for public in (X[:1], X):
        model = transfer(teacher=teacher, n_nonzero=3).fit(X, rng.uniform(-5, 5, 40), X_public=public)
        assert np.isfinite(model.coef_).all()
        assert model.get_support().sum() <= 3


def test_the_teacher_is_saved_with_the_model(table, tmp_path):
    X, numbers, _, public = table
    model = transfer(teacher="selected").fit(X, numbers, X_public=public)
    model.save(tmp_path / "model.json")
    back = privet.load(tmp_path / "model.json")
    assert back.teacher == "selected"
    assert np.array_equal(back.predict(X), model.predict(X))
    assert math.isfinite(back.guarantee_.epsilon)
