import re
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from privet import PrivateLogisticRegression
from privet.privacy import NoiseSource

ONE_LINE = re.compile(r"[^\n]+\Z")


# ------------------------------------------------------------------------------------------ scikit-learn's checks


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "fields",
    [{}, {"method": "output"}, {"method": "gradient", "smoothing": 1.0}, {"delta": 0.0}, {"fit_intercept": False}],
    ids=repr,
)
@pytest.mark.parametrize("seed", [None, 0])
def test_the_estimator_passes_the_checks_of_scikit_learn(fields, seed):
    estimator = PrivateLogisticRegression(random_state=seed, **fields)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert len(results) > 40
    assert not failed
    assert skipped <= {"check_pipeline_consistency", "check_array_api_input"}  # noise; an optional setting of scipy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fields", [{"delta": 0.0}, {"method": "output"}, {"smoothing": 1.0}], ids=repr)
def test_the_type_of_the_rows_is_kept(binary, dtype, fields):
    X, y = binary
    model = PrivateLogisticRegression(random_state=0, **fields).fit(X.astype(dtype), y)
    assert model.coef_.dtype == model.intercept_.dtype == dtype
    assert model.predict_proba(X.astype(dtype)).dtype == dtype


def test_single_and_double_precision_agree(binary):
    X, y = binary
    narrow, wide = (PrivateLogisticRegression(random_state=0).fit(X.astype(kind), y) for kind in (np.float32, float))
    assert narrow.coef_ == pytest.approx(
        wide.coef_, rel=5e-3
    )  # single precision needs 0.1 % more noise because of rounding


def test_it_is_cloned_without_what_it_learned(binary):
    model = PrivateLogisticRegression(2.0, 1e-5, smoothing=1.0, classes=[0, 1], random_state=3).fit(*binary)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "coef_")


def test_it_works_at_the_end_of_a_pipeline(binary):
    X, y = binary
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows / 4), PrivateLogisticRegression(1e4, random_state=0))
    assert pipeline.fit(X, y).score(X, y) > 0.8


def test_it_works_in_a_grid_search(binary):
    X, y = binary
    search = GridSearchCV(PrivateLogisticRegression(1e3), {"alpha": [1e-4, 1e-2]}, cv=2).fit(X, y)
    assert search.best_estimator_.guarantee_.epsilon <= 1e3


# ----------------------------------------------------------------------------------------------------- the model


def test_without_much_noise_it_is_logistic_regression(binary):
    X, y = binary
    X = X / 4
    model = PrivateLogisticRegression(1e7, alpha=0.01, max_iter=400, random_state=0).fit(X, y)
    # The intercept is the weight of a constant column that is regularised like the others, centred rows or not.
    wide = np.column_stack([X, np.full(len(X), 0.2)])
    reference = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-8).fit(wide, y)
    assert model.coef_ == pytest.approx(reference.coef_[:, :3], abs=0.02)
    assert model.intercept_ == pytest.approx(reference.coef_[:, 3] * 0.2, abs=0.02)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(wide), abs=0.01)


@pytest.mark.parametrize("fields", [{}, {"delta": 0.0}, {"smoothing": 0.5}], ids=repr)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_seeds_repeat_and_none_differs(binary, fields, n_classes):
    X, y = binary
    y = y + (X[:, 1] > 1) * (n_classes == 3)

    def fit(seed):
        return PrivateLogisticRegression(random_state=seed, **fields).fit(X, y).coef_

    assert np.array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))
    assert not np.array_equal(fit(None), fit(None))


def test_fitting_twice_does_not_continue_the_first(binary):
    X, y = binary
    model = PrivateLogisticRegression(random_state=0)
    first = model.fit(X, y).coef_.copy()
    assert np.array_equal(model.fit(X, y).coef_, first)


@pytest.mark.parametrize(
    "form", [np.asfortranarray, sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array]
)
def test_the_form_of_the_rows_makes_no_difference(binary, form):
    X, y = binary
    X = X * (np.abs(X) > 0.5)
    dense = PrivateLogisticRegression(random_state=0).fit(X, y)
    other = PrivateLogisticRegression(random_state=0).fit(form(X), y)
    assert other.coef_ == pytest.approx(dense.coef_, abs=1e-9)
    assert other.decision_function(form(X)) == pytest.approx(dense.decision_function(X), abs=1e-9)


def test_whole_numbers_are_accepted_as_floats(binary):
    X, y = (binary[0] * 3).astype(int), binary[1]
    dense = PrivateLogisticRegression(random_state=0).fit(X.astype(float), y)
    for whole in (X, X.astype(np.int8), sparse.csr_array(X)):
        assert PrivateLogisticRegression(random_state=0).fit(whole, y).coef_ == pytest.approx(dense.coef_)


def test_sparse_duplicates_count_as_their_sum(binary):
    X, y = binary
    once = sparse.csr_array(X)
    twice = sparse.csr_array((np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2), shape=X.shape)
    one, two = (PrivateLogisticRegression(random_state=0).fit(each, y).coef_ for each in (once, twice))
    assert two == pytest.approx(one)


def test_multinomial_probabilities_and_shapes():
    X, y = load_iris(return_X_y=True)
    model = PrivateLogisticRegression(100.0, feature_norm=10.0, random_state=0).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert model.decision_function(X).shape == (150, 3)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sure_predictions_have_finite_logarithms(binary, n_classes, dtype):
    X, y = binary
    X, y = X.astype(dtype), y + (X[:, 1] > 1) * (n_classes == 3)
    model = PrivateLogisticRegression(1e3, random_state=0).fit(X, y)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        logs = model.predict_log_proba(X * dtype(1e6))
    assert np.isfinite(logs).all()
    assert np.log(model.predict_proba(X)) == pytest.approx(model.predict_log_proba(X), abs=1e-4)


# ---------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [3, 7], [False, True], [1.0, 2.0], ["c", "a", "b"], np.array(["x", "y"], dtype=object)],
    ids=str,
)
def test_predictions_have_the_type_of_the_labels(labels):
    y = np.tile(labels, 20)
    X = np.eye(len(labels))[np.arange(len(y)) % len(labels)]
    model = PrivateLogisticRegression(1e4, random_state=0).fit(X, y)
    assert model.classes_.tolist() == sorted(labels)
    assert model.predict(X).tolist() == y.tolist()
    assert model.guarantee_.is_conditional


def test_a_declared_class_may_be_missing_from_the_data(binary):
    X, y = binary
    model = PrivateLogisticRegression(classes=[2, 0, 1, 9]).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert model.predict_proba(X).shape == (60, 4)
    assert PrivateLogisticRegression(classes=["no", "yes"]).fit(X, np.full(60, "no")).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("classes", "y"), [([0, 1], [0, 1, 2]), (["a", "b"], ["a", "b", "c"]), (["a", "b"], [0, 1, 0])]
)
def test_an_undeclared_label_is_refused(no_noise, classes, y):
    with pytest.raises(ValueError, match="not among the declared classes"):
        PrivateLogisticRegression(classes=classes).fit(np.ones((3, 1)), y)


@pytest.mark.parametrize("classes", [[0], [], [1, 1], [[0, 1], [1, 2]], [0, 1, np.nan], {0, 1}, "ab"], ids=str)
def test_declared_classes_that_are_not_a_list_of_two_labels_are_refused(no_noise, binary, classes):
    with pytest.raises(ValueError, match="classes"):
        PrivateLogisticRegression(classes=classes).fit(*binary)


# --------------------------------------------------------------------------------------------------- column names


def test_the_names_of_columns_are_kept_and_their_order_is_held(binary):
    X, y = binary
    frame = pd.DataFrame(X, columns=["age", "income", "visits"])
    model = PrivateLogisticRegression(random_state=0).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["age", "income", "visits"]
    assert model.coef_ == pytest.approx(PrivateLogisticRegression(random_state=0).fit(X, y).coef_)
    for wrong in (frame[["income", "age", "visits"]], frame.rename(columns={"age": "years"})):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(wrong)


# ------------------------------------------------------------------------------------------------------- accuracy


@pytest.fixture(scope="module")
def cancer():
    """Return the breast cancer table, mapped from bounds that a clinician could state beforehand to the unit ball."""
    X, y = load_breast_cancer(return_X_y=True)
    highest = np.array([30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1] * 3)
    highest[10:20] = [3, 5, 22, 550, 0.04, 0.14, 0.4, 0.06, 0.08, 0.03]
    highest[20:] = [40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21]
    return np.clip(X / highest, 0, 1) * 2 - 1, y


def mean_score(X, y, seeds=5, **fields):
    """Return the mean accuracy on held-out rows. Floors were measured at delta = 1/n^1.1."""
    split = np.arange(len(y)) % 3 > 0
    fields.setdefault("delta", split.sum() ** -1.1)
    scores = []
    for seed in range(seeds):
        model = PrivateLogisticRegression(random_state=seed, **fields).fit(X[split], y[split])
        scores.append(model.score(X[~split], y[~split]))
    return np.mean(scores)


@pytest.mark.parametrize(
    ("floor", "fields"),
    [
        (0.72, {"epsilon": 1.0}),
        (0.88, {"epsilon": 8.0}),
        (0.70, {"epsilon": 8.0, "delta": 0.0}),
        (0.68, {"method": "output", "epsilon": 4.0}),
    ],
    ids=str,
)
def test_accuracy_on_breast_cancer(cancer, floor, fields):
    assert mean_score(*cancer, feature_norm=np.sqrt(30), **fields) > floor


@pytest.mark.parametrize(("floor", "epsilon"), [(0.5, 1.0), (0.85, 8.0)])
def test_accuracy_on_digits(floor, epsilon):
    X, y = load_digits(return_X_y=True)
    assert mean_score(X / 16, y, feature_norm=4.0, epsilon=epsilon) > floor


def test_accuracy_on_iris():
    X, y = load_iris(return_X_y=True)
    assert mean_score(X / 8, y, epsilon=20.0) > 0.55


# ------------------------------------------------------------------------------------------------------ guarantees


@pytest.mark.parametrize("fields", [{}, {"method": "output"}, {"delta": 0.0}, {"delta": 1e-6}], ids=repr)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_the_guarantee_keeps_within_the_budget(binary, fields, epsilon):
    guarantee = PrivateLogisticRegression(epsilon, **fields).fit(*binary).guarantee_
    assert 0.999 * epsilon < guarantee.epsilon <= epsilon
    assert guarantee.delta == fields.get("delta", 1e-6)
    assert str(guarantee.adjacency) == "replace-one"


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("classes", [None, [0, 1]])
@pytest.mark.parametrize("method", ["gradient", "output"])
def test_the_guarantee_is_conditional_only_on_seed_and_labels(binary, seed, classes, method):
    model = PrivateLogisticRegression(method=method, classes=classes, random_state=seed).fit(*binary)
    text = model.guarantee_.statement(verbose=True)
    assert model.guarantee_.is_conditional == (seed is not None or classes is None)
    assert ("provided that" in text.splitlines()[0]) == model.guarantee_.is_conditional
    assert ("seed" in text) == (seed is not None)
    assert ("read from y, is public" in text) == (classes is None)
    assert ("declared beforehand" in text) == (classes is not None)
    assert "each row whose norm exceeds feature_norm = 1 is scaled down to that norm" in text
    assert str(seed) not in re.findall(r"\bseed\W+(\d+)", text)


def test_a_seeded_guarantee_warns_of_using_the_seed_again(binary):
    """Two fits with one seed share their noise, and the difference of the results cancels it without the seed."""
    X, y = binary
    flipped = y.copy()
    flipped[0] = 1 - y[0]
    one, other = (PrivateLogisticRegression(method="output", random_state=1).fit(X, labels) for labels in (y, flipped))
    quiet = np.abs(one.coef_ - other.coef_).max()
    assert quiet < 0.2 * np.abs(one.coef_).max()  # the noise has cancelled
    assumed = [part.text for part in one.guarantee_.assumptions if not part.is_enforced and "seed" in part.text]
    assert re.search(r"\bonce\b|again|reuse|other run|no other", " ".join(assumed))


def test_the_default_method_is_chosen_with_a_reason(binary):
    model = PrivateLogisticRegression().fit(*binary)
    assert model.method_ == "gradient"
    assert "by public numbers, its result is expected to be" in model.method_reason_
    assert "objective: " in model.method_reason_
    assert PrivateLogisticRegression(delta=0.0).fit(*binary).method_ == "objective"


def test_the_number_of_steps_does_not_depend_on_the_values(binary):
    X, y = binary
    steps = {PrivateLogisticRegression().fit(rows, y).n_iter_ for rows in (X, 0 * X, 1e300 * X, X[::-1])}
    assert len(steps) == 1
    assert PrivateLogisticRegression(max_iter=7).fit(X, y).n_iter_ == 7


@pytest.mark.parametrize("fields", [{}, {"delta": 0.0}], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("dtype", "extreme"), [(np.float64, 1e308), (np.float64, 1e160), (np.float32, 3e38), (np.float64, 5e-324)]
)
def test_extreme_rows_leave_the_model_finite(binary, fields, form, dtype, extreme):
    X, y = binary[0].astype(dtype), binary[1]
    X[::7] = dtype(extreme)
    with np.errstate(over="raise", invalid="raise"):
        model = PrivateLogisticRegression(random_state=0, **fields).fit(form(X), y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


# ------------------------------------------------------------------------------------------------------- bad input


GOOD = np.arange(12.0).reshape(6, 2)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def with_cell(value):
    X = GOOD.astype(object)
    X[2, 1] = value
    return X


@pytest.mark.parametrize(
    ("X", "y", "cause"),
    [
        (with_cell(np.nan).astype(float), LABELS, "NaN"),
        (with_cell(np.inf).astype(float), LABELS, "infinity"),
        (with_cell(-np.inf).astype(float), LABELS, "infinity"),
        (sparse.csr_array(with_cell(np.nan).astype(float)), LABELS, "NaN"),
        (with_cell("many"), LABELS, "column 1 of X contains text: could not convert string to float"),
        (pd.DataFrame(with_cell("many")[:, :2], columns=["age", "sex"]), LABELS, "column 'sex' of X .*TableSchema"),
        (with_cell(None), LABELS, "NaN|None|not a string or a real number"),
        (GOOD[:0], LABELS[:0], "0 sample"),
        (GOOD[:, :0], LABELS, "0 feature"),
        (GOOD[:, :, None], LABELS, "dim 3"),
        (GOOD, LABELS[:4], "inconsistent numbers"),
        (GOOD, LABELS * 0, "only one class"),
        (GOOD, np.full(6, "yes"), "only one class"),
        (GOOD, LABELS + 0.5, "continuous|label type"),
        (GOOD, [0, 1, np.nan, 1, 0, 1], "NaN"),
        (GOOD, np.array(["a", "b", None, "a", "b", "a"], dtype=object), "label"),
        (GOOD, np.array(["a", 1, "a", 1, "a", 1], dtype=object), "label"),
        (GOOD, None, "requires y"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_data_is_named_in_one_line_before_any_noise_is_drawn(no_noise, X, y, cause):
    with pytest.raises(ValueError, match=cause) as error:
        PrivateLogisticRegression().fit(X, y)
    assert ONE_LINE.match(str(error.value))


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        *(({"epsilon": value}, "epsilon must") for value in (0, -1.0, np.nan, np.inf, "1", None, True)),
        *(({"delta": value}, "delta must") for value in (-1e-9, 1.0, 2, np.nan, "0.1", False)),
        *(({"alpha": value}, "alpha must") for value in (-1, np.nan, None)),
        *(({"feature_norm": value}, "feature_norm must") for value in (0, -1, np.inf, None, 1e200, 1e-200)),
        *(({"intercept_scaling": value}, "intercept_scaling must") for value in (0, -1, np.inf)),
        *(({"smoothing": value}, "smoothing must") for value in (-1, np.nan, None)),
        *(({"max_iter": value}, "max_iter must") for value in (0, -5, 2.5, True)),
        *(({"random_state": value}, "random_state") for value in (-1, 0.5, "seed")),
        ({"method": "sgd"}, "method must be"),
        ({"method": "gradient", "delta": 0}, "no pure epsilon"),
        ({"method": "gradient", "delta": 0.0}, "no pure epsilon"),
        ({"method": "output", "smoothing": 1.0}, "smoothing"),
        ({"delta": 0.0, "smoothing": 1.0}, "smoothing"),
    ],
    ids=str,
)
def test_an_impossible_setting_is_named_before_the_data_is_touched(no_noise, fields, cause):
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"the data was touched: {name}")

    with pytest.raises(ValueError, match=cause) as error:
        PrivateLogisticRegression(**fields).fit(Untouchable(), Untouchable())
    assert ONE_LINE.match(str(error.value))


def test_the_fixture_no_noise_notices_noise(no_noise, binary):
    with pytest.raises(AssertionError, match="noise was drawn"):
        PrivateLogisticRegression().fit(*binary)


def test_predicting_before_fitting_raises_not_fitted_error(binary):
    with pytest.raises(NotFittedError):
        PrivateLogisticRegression().predict(binary[0])


def test_a_failed_fit_never_leaves_a_partial_model(binary, monkeypatch):
    X, y = binary
    for bad_X, bad_y, broken_noise in ((X[:, :2], 0 * y, False), (X[:, :2], np.where(y, "b", "a"), True)):
        model = PrivateLogisticRegression(random_state=0).fit(X, y)
        before, guarantee = model.predict(X), model.guarantee_
        with monkeypatch.context() as patch, pytest.raises((ValueError, RuntimeError)):
            if broken_noise:
                patch.setattr(NoiseSource, "add_gaussian", Mock(side_effect=RuntimeError("no entropy")))
            model.fit(bad_X, bad_y)
        try:
            after = model.predict(X)
        except NotFittedError:
            assert not hasattr(model, "guarantee_")
        else:
            assert after.tolist() == before.tolist()
            assert model.guarantee_ == guarantee


def test_showing_progress_changes_nothing(binary):
    quiet = PrivateLogisticRegression(random_state=0).fit(*binary)
    shown = PrivateLogisticRegression(random_state=0, verbose=1).fit(*binary)
    assert np.array_equal(quiet.coef_, shown.coef_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_long_rows_are_scaled_in_prediction_as_in_training(binary, n_classes):
    X, y = binary
    y = y + (X[:, 1] > 1) * (n_classes == 3)
    model = PrivateLogisticRegression(50.0, random_state=0).fit(X, y)
    inside = X / np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
    assert model.decision_function(X) == pytest.approx(model.decision_function(inside), abs=1e-9)
    assert model.decision_function(100 * X) == pytest.approx(
        model.decision_function(X / np.linalg.norm(X, axis=1)[:, None]), abs=1e-9
    )
