"""Properties that every estimator must have. Estimators and methods are discovered, so new ones are tested too."""

import inspect
import pickle
import re
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import privet
from privet import linear
from privet.linear.base import PrivateLinearModel
from privet.linear.methods import METHODS
from privet.linear.sparse_model import SparseModel
from privet.privacy import NoiseSource
from privet.privacy.budget import default_delta

ESTIMATORS = sorted(
    (
        kind
        for kind in vars(linear).values()
        if inspect.isclass(kind) and issubclass(kind, PrivateLinearModel) and not inspect.isabstract(kind)
    ),
    key=lambda kind: kind.__name__,
)
# Settings with which each method learns something from sixty rows.
SETTINGS = {
    "minimiser": {"alpha": 0.1},
    "objective": {"alpha": 0.5},
    "frank_wolfe": {"n_nonzero": 2, "max_iter": 20},  # with fewer choices, two seeds might give the same result
}


LINEAR = [kind for kind in ESTIMATORS if not issubclass(kind, SparseModel)]
CASES = [(kind, method) for kind in ESTIMATORS for method in kind.offered_methods()]
PURE = [(kind, method) for kind, method in CASES if METHODS[method].is_pure]

each = pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
each_linear = pytest.mark.parametrize("kind", LINEAR, ids=lambda kind: kind.__name__)
each_method = pytest.mark.parametrize(("kind", "method"), CASES, ids=lambda value: getattr(value, "__name__", value))
each_pure = pytest.mark.parametrize(("kind", "method"), PURE, ids=lambda value: getattr(value, "__name__", value))


def targets(kind, y):
    """Return labels as they are for classifiers, numbers within the bound for regressors."""
    return np.asarray(y) if is_classifier(kind()) else 0.7 * np.asarray(y) - 0.3


def make(kind, method="auto", **fields):
    return kind(**({"method": method, "random_state": 0} | SETTINGS.get(method, {}) | fields))


def fit(model, X, y):
    """Return the model, fitted to labels or numbers, with public rows if the method requires them."""
    y = targets(type(model), y)
    if model.method == "knowledge_transfer":
        public = np.eye(X.shape[1])
        return model.fit(X, y, X_public=pd.DataFrame(public, columns=X.columns) if hasattr(X, "columns") else public)
    return model.fit(X, y)


def fitted(kind, binary, method="auto", **fields):
    return fit(make(kind, method, **fields), *binary)


def outputs(model, X):
    return model.decision_function(X) if is_classifier(model) else model.predict(X)


# ------------------------------------------------------------------------------------------------------ the contract


def test_all_promised_estimators_are_exported():
    names = {kind.__name__ for kind in ESTIMATORS}
    assert names >= {"PrivateLogisticRegression", "PrivateLinearSVC", "PrivateRidge", "PrivateHuberRegressor"}
    for name in names:
        assert getattr(privet, name) is getattr(linear, name)
        assert name in linear.__all__


@each
def test_the_signature_is_the_promised_one(kind):
    parameters = inspect.signature(kind).parameters
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == ["epsilon", "delta"]
    assert all(each.kind is each.KEYWORD_ONLY for name, each in parameters.items() if name not in positional)
    promised = {"epsilon": 1.0, "delta": None, "method": "auto", "feature_norm": 1.0, "fit_intercept": True}
    promised |= {"max_iter": None, "random_state": None}
    promised |= {"smoothing": 0.0} if kind in LINEAR else {"n_nonzero": None, "entry_bound": None}
    assert promised.items() <= {name: each.default for name, each in parameters.items()}.items()
    assert parameters["alpha"].default >= 0
    assert ("target_bound" in parameters) == (not is_classifier(kind()))
    assert ("classes" in parameters) == is_classifier(kind())


@each_method
def test_a_fit_returns_the_model_with_all_promised_attributes(kind, method, binary):
    X, y = binary
    model = make(kind, method)
    assert fit(model, X, y) is model
    shape = (1, 3) if is_classifier(model) else (3,)
    assert model.coef_.shape == shape
    assert model.intercept_.shape == (1,)
    assert model.method_ == method
    assert model.method_reason_
    assert model.n_iter_ >= 1
    assert model.n_features_in_ == 3
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(outputs(model, X)).all()


@each
def test_the_estimator_passes_the_checks_of_scikit_learn(kind):
    results = check_estimator(kind(), on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    assert len(results) > 40
    assert not failed


@each
def test_weights_of_records_are_refused_with_the_reason(kind, binary, no_noise):
    X, y = binary
    for weights in (np.ones(60), np.arange(60), 1.0):
        with pytest.raises(
            ValueError, match="sample_weight is not supported: a record of weight w would move the result w times"
        ):
            kind().fit(X, targets(kind, y), sample_weight=weights)
    with pytest.raises(TypeError, match="unexpected keyword argument 'spam'"):
        kind().fit(X, targets(kind, y), spam=1)


def test_sample_weight_none_changes_nothing(binary):
    for kind in ESTIMATORS:
        X, y = binary
        model = make(kind).fit(X, targets(kind, y), sample_weight=None)
        assert np.array_equal(model.coef_, fitted(kind, binary).coef_)


@each
def test_partial_fits_are_not_offered_with_the_reason(kind, binary):
    assert not hasattr(kind(), "partial_fit")
    assert not hasattr(fitted(kind, binary), "partial_fit")
    with pytest.raises(AttributeError, match=r"partial_fit: each call would .* spend the whole budget again"):
        kind().partial_fit(*binary)


# -------------------------------------------------------------------------------------------------- forms of the data


@each
def test_the_names_of_columns_are_kept_and_their_order_is_held(kind, binary):
    X, y = binary
    frame = pd.DataFrame(X, columns=["age", "income", "visits"])
    model = make(kind).fit(frame, pd.Series(targets(kind, y)))
    assert model.feature_names_in_.tolist() == ["age", "income", "visits"]
    assert model.coef_ == pytest.approx(fitted(kind, binary).coef_, rel=1e-9)
    for wrong in (frame[["income", "age", "visits"]], frame.rename(columns={"age": "years"})):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(wrong)


@each_method
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sparse_and_dense_rows_give_the_same_model(kind, method, binary, fit_intercept):
    X, y = binary
    X = X * (np.abs(X) > 0.5)
    dense, *others = (
        fit(make(kind, method, fit_intercept=fit_intercept), form(X), y)
        for form in (np.asarray, sparse.csr_array, sparse.csr_matrix, sparse.csc_array, np.asfortranarray)
    )
    scale = 1e-6 * np.abs(dense.coef_).max()
    for other in others:
        assert other.coef_ == pytest.approx(dense.coef_, abs=scale)
        assert other.intercept_ == pytest.approx(dense.intercept_, abs=scale)
        assert outputs(other, sparse.csr_array(X)) == pytest.approx(outputs(dense, X), abs=10 * scale)


@each_method
def test_single_precision_stays_single_and_agrees(kind, method, binary):
    X, y = binary
    wide = fit(make(kind, method), X, y)
    narrow = fit(make(kind, method), X.astype(np.float32), y)
    assert narrow.coef_.dtype == narrow.intercept_.dtype == outputs(narrow, X.astype(np.float32)).dtype == np.float32
    assert wide.coef_.dtype == np.float64
    assert narrow.coef_ == pytest.approx(wide.coef_, rel=1e-3, abs=1e-3 * np.abs(wide.coef_).max())


@each_method
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("extreme", [1e308, 1e160, 5e-324])
def test_extreme_rows_leave_the_model_finite(kind, method, binary, form, extreme):
    X, y = binary[0].copy(), binary[1]
    X[::7] = extreme
    with np.errstate(over="raise", invalid="raise"):
        model = fit(make(kind, method), form(X), y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


# ---------------------------------------------------------------------------------------------------------- randomness


@each_method
def test_seeds_repeat_and_none_differs(kind, method, binary):
    models = [fitted(kind, binary, method, random_state=seed) for seed in (1, 1, 2, None, None)]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    for one, other in ((1, 2), (2, 3), (3, 4)):
        assert not np.array_equal(models[one].coef_, models[other].coef_)
    assert models[0].guarantee_.is_conditional
    assert "seed" in models[0].guarantee_.statement(verbose=True)
    assert "seed" not in models[3].guarantee_.statement(verbose=True)


# ---------------------------------------------------------------------------------------------------------- guarantees


@each_method
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [None, 1e-7])
def test_the_guarantee_keeps_within_the_budget_and_uses_it(kind, method, binary, epsilon, delta):
    model = fitted(kind, binary, method, epsilon=epsilon, delta=delta, random_state=None)
    guarantee = model.guarantee_
    assert 0.95 * epsilon < guarantee.epsilon <= epsilon
    assert guarantee.epsilon_at(guarantee.delta) <= epsilon
    assert guarantee.delta == (default_delta(60) if delta is None else delta)
    assert str(guarantee.adjacency) == "replace-one"
    assert guarantee.is_conditional == is_classifier(model)  # only the set of labels, read from y, is assumed
    assert "feature_norm = 1" in guarantee.statement(verbose=True)


@each_pure
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_pure_epsilon_is_pure(kind, method, binary, epsilon, drawn):
    """No Gaussian noise is requested."""
    guarantee = fitted(kind, binary, method, epsilon=epsilon, delta=0.0, alpha=1.0).guarantee_
    assert guarantee.delta == 0
    assert 0.95 * epsilon < guarantee.epsilon <= epsilon
    assert "add_gaussian" not in drawn
    assert "real_gaussian" not in drawn


@each_linear
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("n", [6, 60, 600])
def test_pure_epsilon_needs_no_other_setting(kind, binary, epsilon, n):
    """The estimator chooses the method and all defaults, which must be compatible for every n and epsilon."""
    X, y = (np.resize(each, (n, *each.shape[1:])) for each in binary)
    model = make(kind, epsilon=epsilon, delta=0.0).fit(X, targets(kind, y))
    assert model.guarantee_.delta == 0
    assert model.guarantee_.epsilon <= epsilon
    assert np.isfinite(model.coef_).all()


@each_linear
def test_pure_epsilon_is_refused_by_methods_without_it(kind, no_noise):
    for method in [name for name, method in kind.offered_methods().items() if not method.is_pure]:
        with pytest.raises(ValueError, match=r"no pure epsilon guarantee\. Set delta > 0 .* or use method="):
            kind(1.0, 0.0, method=method).fit(np.ones((4, 2)), [0, 1, 0, 1])


@each_linear
def test_auto_takes_a_method_that_uses_the_settings(kind, binary):
    for fields, setting in (({"delta": 0.0}, {"clip_norm": 0.1}), ({}, {"smoothing": 2.0}), ({}, {"clip_norm": 0.1})):
        method = fitted(kind, binary, epsilon=50.0, alpha=1.0, **fields, **setting).method_
        assert set(setting) <= set(METHODS[method].uses)
    with pytest.raises(ValueError, match=r"smoothing is a setting of method=.* Set delta > 0, or leave smoothing out"):
        fitted(kind, binary, delta=0.0, smoothing=2.0)


@each
def test_a_method_that_is_not_offered_is_refused_with_the_reason(kind, no_noise, binary):
    X, y = binary
    for name, method in METHODS.items():
        if name not in kind.offered_methods() and method.is_sparse == kind._is_sparse:
            with pytest.raises(ValueError, match=rf"method='{name}' needs .* Use"):
                kind(method=name).fit(X, targets(kind, y))
    with pytest.raises(ValueError, match=r"method must be auto, .*got 'sgd'"):
        kind(method="sgd").fit(X, targets(kind, y))


@each_method
def test_method_steps_and_guarantee_do_not_depend_on_the_values(kind, method, binary):
    """Number of steps, method, noise and guarantee are the same for every table of the same shape."""
    X, y = binary
    found = set()
    for rows, labels in ((X, y), (0 * X, y), (1e300 * X, 1 - y), (X[::-1], np.arange(60) % 2)):
        model = fit(make(kind, method), rows, labels)
        found.add((model.n_iter_, model.method_, model.method_reason_, model.guarantee_.to_json()))
    assert len(found) == 1


# ------------------------------------------------------------------------------------------------- saving and refitting


@each_method
def test_a_model_loaded_from_its_file_equals_the_saved_one(kind, method, binary, tmp_path):
    X, _ = binary
    model = fitted(kind, binary, method, feature_norm=2.0, random_state=987_654_321)
    model.save(tmp_path / "model.json")
    back = privet.load(tmp_path / "model.json")
    assert type(back) is kind
    assert np.array_equal(outputs(back, X), outputs(model, X))
    assert back.predict(X).tolist() == model.predict(X).tolist()
    assert back.guarantee_ == model.guarantee_
    assert back.guarantee_.statement(verbose=True) == model.guarantee_.statement(verbose=True)
    assert back.get_params() == model.get_params() | {"random_state": None}
    assert {name for name in vars(back) if name.endswith("_")} == {name for name in vars(model) if name.endswith("_")}
    assert "987654321" not in (tmp_path / "model.json").read_text()


@each
def test_a_model_can_be_pickled_and_cloned(kind, binary):
    model = fitted(kind, binary)
    assert np.array_equal(outputs(pickle.loads(pickle.dumps(model)), binary[0]), outputs(model, binary[0]))
    assert not hasattr(clone(model), "coef_")
    assert clone(model).get_params() == model.get_params()


@each_method
def test_a_second_fit_replaces_all_results_of_the_first(kind, method, binary):
    X, y = binary
    fresh = fit(make(kind, method), X[:40, :2], y[:40])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = fit(make(kind, method), frame, y)
    fit(model, X[:40, :2], y[:40])
    assert np.array_equal(model.coef_, fresh.coef_)
    assert np.array_equal(model.intercept_, fresh.intercept_)
    assert model.guarantee_ == fresh.guarantee_
    assert not hasattr(model, "feature_names_in_")
    assert vars(model).keys() == vars(fresh).keys()


@each
def test_a_failed_fit_leaves_no_learned_attributes(kind, binary, monkeypatch):
    X, y = binary
    model = fitted(kind, binary)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no entropy"):
        patch.setattr(NoiseSource, "add_gaussian", Mock(side_effect=RuntimeError("no entropy")))
        model.fit(X[:, :2], targets(kind, y))
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model, "guarantee_")


# ------------------------------------------------------------------------------------------------------------ bad input


GOOD = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])


def with_cell(value):
    X = GOOD.astype(object)
    X[2, 1] = value
    return X


BAD_DATA = {
    "not a number": (with_cell(np.nan).astype(float), Y, "NaN"),
    "infinite": (with_cell(np.inf).astype(float), Y, "infinity"),
    "sparse, not a number": (sparse.csr_array(with_cell(np.nan).astype(float)), Y, "NaN"),
    "a word": (with_cell("spam"), Y, "spam"),
    "nothing": (with_cell(None), Y, "NaN|None|real number"),
    "complex": (GOOD * 1j, Y, "[Cc]omplex"),
    "no rows": (GOOD[:0], Y[:0], "0 sample"),
    "no columns": (GOOD[:, :0], Y, "0 feature"),
    "three dimensions": (GOOD[:, :, None], Y, "dim 3"),
    "one dimension": (GOOD[:, 0], Y, "1D array|2D array"),
    "other lengths": (GOOD, Y[:4], "inconsistent numbers"),
    "no target": (GOOD, None, "requires y"),
    "targets of three dimensions": (GOOD, np.stack([Y, Y])[None].T, "dim 3"),
    "target not a number": (GOOD, [0, 1, np.nan, 1, 0, 1], "NaN"),
    "target infinite": (GOOD, [0, 1, np.inf, 1, 0, 1], "infinity"),
    "target missing": (GOOD, np.array([0.0, 1.0, None, 1.0, 0.0, 1.0], dtype=object), "y|target|label"),
    "target complex": (GOOD, Y * 1j, "[Cc]omplex"),
}


@each
@pytest.mark.parametrize(("X", "y", "cause"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data_is_named_in_one_line_before_any_noise_is_drawn(kind, X, y, cause, no_noise):
    with pytest.raises(ValueError, match=cause) as error:
        kind().fit(X, y)
    assert re.fullmatch(r"[^\n]+", str(error.value))


COMMON = [
    *(({"epsilon": value}, "epsilon must") for value in (0, -1.0, np.nan, np.inf, "1", None, True)),
    *(({"delta": value}, "delta must") for value in (-1e-9, 1.0, 2, np.nan, "0.1", False)),
    *(({"alpha": value}, "alpha must") for value in (-1, np.nan, None)),
    *(({"feature_norm": value}, "feature_norm must") for value in (0, -1, np.inf, None, 1e200, 1e-200)),
    *(({"intercept_scaling": value}, "intercept_scaling must") for value in (0, -1, np.inf, 1e-320, 1e-200, 1e200)),
    *(({"smoothing": value}, "smoothing must") for value in (-1, np.nan, None)),
    *(({"clip_norm": value}, "clip_norm must") for value in (0, -1, np.nan, np.inf, "a")),
    *(({"max_iter": value}, "max_iter must") for value in (0, -5, 2.5, True)),
    *(({"random_state": value}, "random_state") for value in (-1, 0.5, "seed")),
    ({"method": "output", "smoothing": 1.0}, "smoothing"),
    ({"delta": 0.0, "smoothing": 1.0}, "smoothing"),
]


IMPOSSIBLE = [
    (kind, fields, cause)
    for kind in ESTIMATORS
    for fields, cause in COMMON
    if fields.keys() <= inspect.signature(kind).parameters.keys()
]


@pytest.mark.parametrize(
    ("kind", "fields", "cause"), IMPOSSIBLE, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_an_impossible_setting_is_named_before_the_data_is_touched(kind, fields, cause, no_noise):
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"the data was touched: {name}")

    with pytest.raises(ValueError, match=cause) as error:
        kind(**fields).fit(Untouchable(), Untouchable())
    assert re.fullmatch(r"[^\n]+", str(error.value))


@each_method
@pytest.mark.parametrize(
    "fields",
    [{"epsilon": 1e-300, "delta": 1e-300}, {"epsilon": 1e-200, "delta": 1e-200}, {"epsilon": 1e18}, {"epsilon": 1e300}],
    ids=str,
)
def test_a_budget_beyond_floating_point_is_refused_before_any_noise_or_kept(kind, method, fields, binary, drawn):
    """Extreme budgets give a model within the budget, or an error before any noise is drawn."""
    try:
        model = fitted(kind, binary, method, **fields)
    except ValueError as error:
        assert not drawn
        assert re.search(r"noise|epsilon|budget|floating point|finite", str(error))
    else:
        assert model.guarantee_.epsilon <= fields["epsilon"]
        assert np.isfinite(model.coef_).all()


@each
def test_defaults_work_for_much_data_and_a_large_budget(kind):
    """With little noise the defaults change to fewer clips and more steps, which must be compatible too."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 3)) / 3
    y = (X[:, 0] > 0).astype(int)
    for epsilon in (10.0, 1e4, 1e8):
        model = make(kind, epsilon=epsilon, delta=1e-6).fit(X, targets(kind, y))
        assert model.guarantee_.epsilon <= epsilon
        assert np.isfinite(model.coef_).all()
        assert model.score(X, targets(kind, y)) > 0.5
