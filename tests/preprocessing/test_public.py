import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from privet.preprocessing import PublicScaler

ROWS = np.array([[30.0, 85.0], [60.0, 35.0], [-5.0, 10.0]])


@pytest.mark.parametrize("center", [True, False])
def test_the_scaler_passes_the_checks_of_scikit_learn(center):
    results = check_estimator(PublicScaler(-10, 10, center=center), on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert len(results) > 40
    assert not failed
    assert skipped <= {"check_array_api_input"}


def test_the_bounds_are_mapped_to_minus_one_and_one():
    scaler = PublicScaler([0, 10], [120, 60])
    assert scaler.fit_transform(ROWS) == pytest.approx(np.array([[-0.5, 1.0], [0.0, 0.0], [-1.0, -1.0]]))
    assert scaler.guarantee_ is None
    assert scaler.row_norm_ == math.sqrt(2)


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (0, 5, [0, 0.2, 1]),
        (-10, 5, [-0.3, 0.1, 0.5]),
        (-2, 8, [-0.25, 0.125, 0.625]),
        (1, 5, [0, 0, 1]),
        (-9, -4, [1, 1, 1]),
    ],
)
def test_without_centring_zeros_stay_zero_if_the_bounds_include_zero(lower, upper, expected):
    X = np.array([[-3.0], [1.0], [5.0]])
    X = X if lower != -2 else np.array([[-2.0], [1.0], [5.0]])
    scaler = PublicScaler(lower, upper, center=False).fit(X)
    assert scaler.transform(X).ravel() == pytest.approx(expected)
    assert scaler.row_norm_ == pytest.approx(1.0)
    if lower <= 0 <= upper:
        assert scaler.transform([[0.0]]) == 0


def test_no_row_is_longer_than_the_stated_norm():
    X = np.random.default_rng(0).normal(size=(500, 7)) * 1e3
    for center in (True, False):
        scaler = PublicScaler(-np.arange(1, 8) / 3, np.arange(1, 8) * 0.7, center=center).fit(X)
        assert np.linalg.norm(scaler.transform(X), axis=1).max() <= scaler.row_norm_ * (1 + 1e-15)
        assert scaler.row_norm_ <= math.sqrt(7)


def test_the_fit_does_not_depend_on_the_entries():
    one, other = (PublicScaler(-1, [1, 2]).fit(X) for X in (ROWS, -ROWS * 1e9))
    assert vars(one).keys() == vars(other).keys()
    for name in ("center_", "scale_", "lower_", "upper_"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


# ----------------------------------------------------------------------------------------------- names and types


def test_feature_names_are_kept():
    frame = pd.DataFrame(ROWS, columns=["age", "bmi"], index=[7, 8, 9])
    scaler = PublicScaler({"bmi": 10, "age": 0}, pd.Series({"age": 120, "bmi": 60})).set_output(transform="pandas")
    out = scaler.fit_transform(frame)
    assert out.columns.tolist() == scaler.get_feature_names_out().tolist() == ["age", "bmi"]
    assert out.index.tolist() == [7, 8, 9]
    assert out.to_numpy() == pytest.approx(PublicScaler([0, 10], [120, 60]).fit_transform(ROWS))
    with pytest.raises(ValueError, match="feature names"):
        scaler.transform(frame[["bmi", "age"]])
    with pytest.raises(ValueError, match="no bound for column 'bmi'"):
        PublicScaler({"age": 0}, 1000).fit(frame)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_the_dtype_of_the_rows_is_kept(dtype, form):
    scaler = PublicScaler(-1, [3, 7], center=form is np.asarray).fit(form(ROWS.astype(dtype)))
    for out in (scaler.transform(form(ROWS.astype(dtype))), scaler.inverse_transform(form(ROWS.astype(dtype)))):
        assert out.dtype == dtype
        assert isinstance(out, type(form(ROWS)))


def test_inverse_transform_undoes_transform():
    scaler = PublicScaler([0, 10], [120, 60]).fit(ROWS)
    inside = np.array([[3.0, 11.0], [119.0, 42.0]])
    assert scaler.inverse_transform(scaler.transform(inside)) == pytest.approx(inside)
    assert scaler.inverse_transform(scaler.transform([[-50.0, 99.0]])) == pytest.approx(np.array([[0.0, 60.0]]))
    flat = PublicScaler(-1, 4, center=False).fit(sparse.csr_array(inside))
    assert flat.inverse_transform(flat.transform(sparse.csr_array([[2.0, -3.0]]))).toarray().tolist() == [[2.0, -1.0]]


def test_clones_and_pickled_copies_work():
    scaler = PublicScaler(pd.Series([0, 10]), [120, 60], center=False).fit(ROWS)
    assert not hasattr(clone(scaler), "scale_")
    back = pickle.loads(pickle.dumps(scaler))
    assert np.array_equal(back.transform(ROWS), scaler.transform(ROWS))


# ------------------------------------------------------------------------------------------------------- sparse rows


def test_sparse_rows_stay_sparse_and_equal_dense_ones():
    X = sparse.random_array((50, 20), density=0.1, rng=np.random.default_rng(0), format="csr") * 9 - 0
    scaler = PublicScaler(-2, np.arange(1, 21), center=False).fit(X)
    out = scaler.transform(X)
    assert out.nnz == X.nnz
    assert out.toarray() == pytest.approx(scaler.transform(X.toarray()))
    assert sparse.issparse(scaler.transform(X.tocsc()))


def test_sparse_rows_that_would_become_dense_are_refused():
    X = sparse.csr_array(ROWS)
    with pytest.raises(ValueError, match=r"does not accept sparse rows.*would make them dense.*center=False"):
        PublicScaler(0, 1).fit(X)
    with pytest.raises(ValueError, match=r"Sparse rows need bounds that include zero.*Column 1 has bounds \[10, 60\]"):
        PublicScaler([0, 10], [120, 60], center=False).fit(X)
    with pytest.raises(ValueError, match="does not accept sparse rows"):
        PublicScaler(0, 1).fit(ROWS).transform(X)
    fitted_dense = PublicScaler([0, 10], [120, 60], center=False).fit(ROWS)
    centred = PublicScaler(0, 1).fit(ROWS).set_params(center=False)
    for scaler in (fitted_dense, centred):
        for use in (scaler.transform, scaler.inverse_transform):
            with pytest.raises(ValueError, match="Sparse rows need bounds that include zero, and no centre"):
                use(X)


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("X", "cause"), [([[np.nan, 1.0]], "NaN.*public constant"), ([[np.inf, 1.0]], "infinity"), ([["a", 1]], "convert")]
)
def test_bad_rows_are_refused_in_one_line(X, cause):
    with pytest.raises(ValueError, match=cause) as error:
        PublicScaler(0, 1).fit(X)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=cause):
        PublicScaler(0, 1).fit(ROWS).transform(X)


def test_a_failed_fit_leaves_no_attributes():
    scaler = PublicScaler(0, 1).fit(ROWS)
    with pytest.raises(ValueError, match="lower must be below"):
        scaler.set_params(lower=2).fit(ROWS)
    for use in (lambda: scaler.transform(ROWS), lambda: scaler.row_norm_):
        with pytest.raises(NotFittedError):
            use()
