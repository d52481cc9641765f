"""A two-dimensional y: one model per column, conventions of scikit-learn, and one guarantee that covers all of them."""

import json
import math
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import r2_score
from sklearn.multioutput import MultiOutputClassifier

import privet
from privet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSparseRegression,
)
from privet.audit import replay
from privet.privacy import Budget, gdp_mu
from privet.privacy.noise.watch import watching

REGRESSORS = (PrivateRidge, PrivateHuberRegressor)
CLASSIFIERS = (PrivateLogisticRegression, PrivateLinearSVC)
CASES = [
    (kind, method.name, is_pure)
    for kind in REGRESSORS + CLASSIFIERS
    for method in kind.offered_methods().values()
    for is_pure in ((False, True) if method.is_pure else (False,))
]
rng = np.random.default_rng(0)
X = 0.5 * rng.standard_normal((600, 3))
SCORES = X @ np.array([[1.0, 0.0, -0.5], [0.3, -0.8, 0.0], [0.0, 0.4, 0.9]])
NUMBERS = np.clip(SCORES, -1, 1)
LABELS = (SCORES > 0).astype(int)
THREE = np.digitize(SCORES[:, 0], [-0.3, 0.3])


def targets_of(kind):
    return LABELS if kind in CLASSIFIERS else NUMBERS


class Recorder:
    """Keeps each request for noise, and the noise that it got."""

    def __init__(self):
        self.requests, self.noise = [], []

    def sample(self, source, kind, n, draw):
        return draw()

    def release(self, request, draw):
        drawn = draw()
        self.requests.append(request)
        self.noise.append((drawn - request.values) / request.scale)
        return drawn

    def tilt(self, request, draw):
        self.requests.append(request)
        return draw()

    def secret(self, draw):
        return draw()

    def unit(self, place):
        return place

    @property
    def mu(self):
        """The mu of all recorded releases together, from what a record can move and the noise that was drawn."""
        return math.sqrt(sum((each.claim.bound / each.scale) ** 2 for each in self.requests))

    @property
    def pure_epsilon(self):
        return sum(each.claim.bound / each.scale + (each.claim.volume or 0.0) for each in self.requests)


@contextmanager
def recorded():
    recorder = Recorder()
    with watching(recorder):
        yield recorder


# ---------------------------------------------------------------------------------------------------------- guarantees


@pytest.mark.parametrize(("kind", "method", "is_pure"), CASES)
def test_one_guarantee_covers_all_tasks_and_uses_the_whole_budget(kind, method, is_pure):
    model = kind(1.0, 0.0 if is_pure else 1e-6, method=method, alpha=0.1).fit(X, targets_of(kind))
    assert 0.99 < model.guarantee_.epsilon <= 1.0
    assert "of 3 tasks: " in model.guarantee_.released
    is_counted = any("runs are counted: 3" in each.text for each in model.guarantee_.assumptions)
    assert is_counted == (method != "sufficient_statistics")  # one run, which releases the moments of all targets
    assert model.predict(X).shape == (600, 3)


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
@pytest.mark.parametrize("method", ["gradient", "output"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_noise_that_is_drawn_is_that_of_all_tasks_together(kind, method, fit_intercept):
    """If each task were calibrated alone, the mu of what is released would be sqrt(3) times that of the budget."""
    with recorded() as seen:
        model = kind(1.0, 1e-6, method=method, max_iter=4, fit_intercept=fit_intercept).fit(X, targets_of(kind))
    assert seen.mu == pytest.approx(gdp_mu(Budget(1.0, 1e-6)), rel=1e-4)
    centres = "the noisy mean of the rows" in model.guarantee_.released
    assert len(seen.requests) == 3 * (4 if method == "gradient" else 1) + centres  # the mean of the rows is shared


@pytest.mark.parametrize("method", ["output", "minimiser", "objective"])
def test_pure_epsilons_of_the_noise_that_is_drawn_add_up_to_the_budget(method):
    with recorded() as seen:
        PrivateHuberRegressor(1.0, 0.0, method=method, alpha=0.1).fit(X, NUMBERS)
    assert seen.pure_epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("method", ["gradient", "output", "iteration"])
def test_columns_with_different_numbers_of_classes_share_the_budget(method):
    Y = np.column_stack([LABELS[:, 0], THREE, LABELS[:, 1]])
    with recorded() as seen:
        model = PrivateLogisticRegression(1.0, 1e-6, method=method, fit_intercept=False).fit(X, Y)
    assert 0.99 < model.guarantee_.epsilon <= 1.0
    assert model.guarantee_.released.startswith("of 3 tasks, in 2 groups with different numbers of classes")
    assert [each.shape for each in model.coef_] == [(1, 3), (3, 3), (1, 3)]
    if method != "iteration":  # where later noise hides earlier releases
        assert seen.mu == pytest.approx(gdp_mu(Budget(1.0, 1e-6)), rel=1e-4)


def test_columns_in_groups_whose_epsilons_cannot_be_split_are_refused(no_noise):
    Y = np.column_stack([LABELS[:, 0], THREE])
    with pytest.raises(ValueError, match="needs a loss of one score per record"):
        PrivateLogisticRegression(method="objective").fit(X, Y)


@pytest.mark.parametrize("Y", [LABELS, np.column_stack([LABELS[:, 0], THREE])], ids=["one group", "two groups"])
def test_the_total_is_shown_once_before_any_noise_is_drawn(Y, no_noise):
    shown = []

    def stop(guarantee):
        shown.append(guarantee)
        raise RuntimeError("the limit would be exceeded")

    model = PrivateLogisticRegression(1.0, 1e-6)
    model.before_training = stop
    with pytest.raises(RuntimeError, match="limit"):
        model.fit(X, Y)
    assert len(shown) == 1
    assert 0.99 < shown[0].epsilon <= 1.0
    assert not hasattr(model, "coef_")


def test_fits_of_one_and_of_several_targets_do_not_share_noise_under_one_seed():
    """If they did, their difference would reveal the gradients without noise."""
    noises = []
    for Y in (NUMBERS[:, 0], NUMBERS[:, :2], NUMBERS):
        with recorded() as seen:
            PrivateRidge(1.0, 1e-6, max_iter=1, fit_intercept=False, random_state=3).fit(X, Y)
        noises += seen.noise
    flat = np.array(noises)
    assert len(flat) == len(np.unique(np.round(flat[:, 0], 6))) == 6


@pytest.mark.parametrize(("kind", "method", "is_pure"), CASES)
def test_replays_of_two_tasks_are_consistent_with_the_guarantee(kind, method, is_pure):
    table, Y = X[:20], targets_of(kind)[:20, :2]
    other, other_Y = table.copy(), Y.copy()
    other[7], other_Y[7] = -5 * table[7], 1 - Y[7]
    options = {"classes": (0, 1)} if kind in CLASSIFIERS else {}

    def train(data):
        return kind(3.0, 0.0 if is_pure else 1e-5, method=method, alpha=2.0, **options).fit(*data)

    found = replay(train, (table, Y), (other, other_Y))
    assert not found.is_violation, found
    assert found.releases > (method != "sufficient_statistics")


# --------------------------------------------------------------------------------------------------------- conventions


@pytest.mark.parametrize("kind", REGRESSORS)
def test_a_regressor_has_one_row_of_weights_per_target(kind):
    model = kind(1000.0, fit_intercept=True, random_state=0).fit(X, NUMBERS)
    assert model.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert model.n_outputs_ == 3
    predicted = model.predict(X)
    assert predicted.shape == NUMBERS.shape
    assert (r2_score(NUMBERS, predicted, multioutput="raw_values") > 0.9).all()
    assert model.score(X, NUMBERS) == pytest.approx(r2_score(NUMBERS, predicted))
    for place, one in enumerate(model.models_by_target()):
        np.testing.assert_array_equal(one.predict(X), predicted[:, place])


def test_a_regression_on_one_feature_keeps_its_axis():
    model = PrivateRidge(1.0).fit(X[:, :1], NUMBERS)
    assert model.coef_.shape == (3, 1)
    assert model.predict(X[:, :1]).shape == (600, 3)


def test_a_classifier_follows_multi_output_classifier():
    Y = np.column_stack([LABELS[:, 0], THREE])
    ours = PrivateLogisticRegression(1000.0, random_state=0).fit(X, Y)
    theirs = MultiOutputClassifier(PrivateLogisticRegression(1000.0)).fit(X, Y)
    assert isinstance(ours.classes_, list)
    for mine, other in zip(ours.classes_, theirs.classes_, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert ours.predict(X).shape == theirs.predict(X).shape
    assert [each.shape for each in ours.predict_proba(X)] == [each.shape for each in theirs.predict_proba(X)]
    for chances, log, labels, column in zip(
        ours.predict_proba(X), ours.predict_log_proba(X), ours.classes_, ours.predict(X).T, strict=True
    ):
        np.testing.assert_allclose(np.exp(log), chances)
        np.testing.assert_array_equal(labels[chances.argmax(axis=1)], column)
    assert [each.shape for each in ours.decision_function(X)] == [(600,), (600, 3)]
    assert ours.score(X, Y) == np.mean((ours.predict(X) == Y).all(axis=1)) > 0.8


def test_labels_of_different_kinds_keep_their_kind_and_columns_their_names():
    Y = pd.DataFrame({"risk": LABELS[:, 0], "grade": np.array(["a", "b", "c"])[THREE]})
    model = PrivateLogisticRegression(100.0).fit(X, Y)
    assert list(model.target_names_) == ["risk", "grade"]
    assert model.predict(X).dtype == object
    assert {type(value) for value in model.predict(X)[:, 0]} == {int}
    assert set(model.predict(X)[:, 1]) <= {"a", "b", "c"}
    assert model.score(X, Y) > 0.5
    assert not hasattr(PrivateLogisticRegression().fit(X, Y.to_numpy()), "target_names_")


def test_classes_are_declared_for_all_columns_or_for_each():
    Y = np.column_stack([LABELS[:, 0], THREE])
    each = PrivateLogisticRegression(classes=[[0, 1], [0, 1, 2, 3]]).fit(X, Y)
    assert [len(labels) for labels in each.classes_] == [2, 4]
    assert not each.guarantee_.is_conditional
    both = PrivateLogisticRegression(classes=[0, 1, 2]).fit(X, Y)
    assert [len(labels) for labels in both.classes_] == [3, 3]
    with pytest.raises(ValueError, match="labels of 3 columns, but y has 2"):
        PrivateLogisticRegression(classes=[[0, 1]] * 3).fit(X, Y)
    with pytest.raises(ValueError, match="Column 'b' of y: y has the label 2, which is not among the declared"):
        PrivateLogisticRegression(classes=[0, 1]).fit(X, pd.DataFrame(Y, columns=["a", "b"]))


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
def test_one_column_is_treated_as_a_list_of_targets(kind):
    y = targets_of(kind)[:, 0]
    with pytest.warns(DataConversionWarning, match="1d array"):
        column = kind(random_state=1).fit(X, y[:, None])
    flat = kind(random_state=1).fit(X, y)
    np.testing.assert_array_equal(column.coef_, flat.coef_)
    assert column.coef_.shape == flat.coef_.shape
    assert not hasattr(column, "n_outputs_")


def test_a_second_fit_with_one_target_forgets_the_several():
    model = PrivateRidge().fit(X, pd.DataFrame(NUMBERS)).fit(X, NUMBERS[:, 0])
    assert not hasattr(model, "n_outputs_")
    assert not hasattr(model, "target_names_")
    assert model.predict(X).shape == (600,)


def test_public_records_have_the_columns_of_y():
    public = {"X_public": X[:50], "y_public": LABELS[:50]}
    model = PrivateLogisticRegression(1.0, method="iteration").fit(X[50:], LABELS[50:], **public)
    assert model.predict(X).shape == (600, 3)
    assert model.guarantee_.epsilon <= 1.0
    with pytest.raises(ValueError, match="y_public must have the columns of y, 3"):
        PrivateLogisticRegression(method="iteration").fit(X, LABELS, X[:50], LABELS[:50, 0])


def test_sparse_models_refuse_several_targets(no_noise):
    with pytest.raises(ValueError, match=r"fits one target at a time, got y of shape \(600, 3\)"):
        PrivateSparseRegression(n_nonzero=1).fit(X, NUMBERS)


# -------------------------------------------------------------------------------------------------------------- saving


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
def test_a_saved_model_predicts_the_same(kind, tmp_path):
    names = ["a", "b", "c"]
    model = kind(method="output").fit(X, pd.DataFrame(targets_of(kind), columns=names))
    model.save(tmp_path / "model.json")
    loaded = privet.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert list(loaded.target_names_) == names
    assert loaded.guarantee_ == model.guarantee_


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("n_outputs_", 2, "weights of 2 targets"),
        ("target_names_", ["a"], "names of 3 targets"),
        ("classes_", [{"__array__": [0, 1, 2], "dtype": "<i8"}] * 3, "2 classes"),
        ("intercept_", [{"__array__": [math.inf], "dtype": "<f8"}] * 3, "finite"),
    ],
)
def test_a_damaged_file_is_refused(name, value, cause):
    fields = json.loads(json.dumps(PrivateLogisticRegression().fit(X, LABELS).to_dict()))
    fields["learned"][name] = value
    with pytest.raises(ValueError, match=cause):
        PrivateLogisticRegression.from_dict(fields)
