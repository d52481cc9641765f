import importlib

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import BoundedRows
from privet.objectives.operator_norm import operator_norm

module = importlib.import_module("privet.objectives.operator_norm")

RNG = np.random.default_rng(0)
MATRICES = {
    "one": np.array([[-3.0]]),
    "unit": np.eye(60),
    "rank one": np.outer(RNG.standard_normal(70), RNG.standard_normal(55)),
    "row": RNG.standard_normal((1, 9)),
    "column": RNG.standard_normal((9, 1)),
    "wide": RNG.uniform(-1, 1, (40, 90)),
    "tall": RNG.uniform(-1, 1, (200, 60)),
    "blocks": np.diag(np.r_[np.full(50, 1e-8), 1.0, 1e5]),
    "zero column": np.c_[np.zeros(60), RNG.uniform(0, 1, (60, 60))],
    "huge": 1e300 * RNG.uniform(-1, 1, (60, 60)),
    "tiny": 1e-300 * RNG.uniform(-1, 1, (60, 60)),
    "hilbert": 1 / (1.0 + np.add.outer(np.arange(60), np.arange(60))),
}


def exact(X):
    scale = np.abs(X).max()
    return scale * np.linalg.norm(X / scale, 2)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("name", MATRICES)
def test_the_bound_is_above_the_operator_norm_by_at_most_half_a_percent(name, form):
    X = MATRICES[name]
    assert 1 <= operator_norm(form(X)) / exact(X) * (1 + 1e-13) < 1.0051


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", MATRICES)
def test_large_matrices_are_bounded_by_the_norm_of_their_absolute_values(monkeypatch, name, form):
    monkeypatch.setattr(module, "LARGEST_GRAM", 0)
    X = MATRICES[name]
    bound = operator_norm(form(X))
    assert bound * (1 + 1e-13) >= exact(X)
    assert bound <= min(1.01 * exact(np.abs(X)), np.linalg.norm(X / np.abs(X).max()) * np.abs(X).max() * (1 + 1e-9))


def test_a_poor_eigenvalue_estimate_does_not_change_the_bound(monkeypatch):
    X = MATRICES["tall"]
    monkeypatch.setattr(module, "_largest_eigenvalue", lambda G: 0.0)
    assert 1 <= operator_norm(X) / exact(X) < 1.0051


def test_no_vector_is_stretched_by_more_than_the_bound():
    X = MATRICES["wide"]
    v = np.linalg.svd(X)[2][0]
    assert np.linalg.norm(X @ v) <= operator_norm(X)
    assert operator_norm(X.astype(np.float32)) == pytest.approx(operator_norm(X), rel=1e-5)


def test_zero_has_norm_zero_and_nan_is_refused():
    assert operator_norm(np.zeros((3, 4))) == 0
    assert operator_norm(sparse.csr_array((3, 4))) == 0
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            operator_norm(np.array([[1.0, bad]]))


# ------------------------------------------------------------------------------------------- columns of bounded rows


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_chosen_columns_are_scaled_down_from_the_original_rows(form):
    X = np.array([[3.0, 4.0, 0.0], [0.1, 0.0, 5.0], [0.0, 0.0, 0.0]])
    rows = BoundedRows(form(X), 1.0, 0.5).columns(np.array([0, 2]), 2.0)
    assert (rows.n, rows.n_features, rows.intercept, rows.row_norm) == (3, 2, 0.5, 2.0)
    scores = np.stack([rows.scores(w) for w in np.eye(3)], axis=1)
    length = np.hypot(0.1, 5.0)
    assert scores == pytest.approx(np.array([[2.0, 0.0, 0.5], [0.2 / length, 10 / length, 0.5], [0, 0, 0.5]]))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_largest_entry_agrees_with_the_largest_absolute_value(form):
    assert BoundedRows(form(np.array([[0.5, -3.0], [1.0, 0.0]])), 1.0).largest_entry == 3.0
    assert BoundedRows(form(np.array([[0.5, 0.7], [1.0, 0.0]])), 1.0).largest_entry == 1.0
    assert BoundedRows(form(np.zeros((2, 2))), 1.0).largest_entry == 0.0
    assert BoundedRows(form(np.array([[0.5, -3.0]])), 9.0, 1.0).centred(np.array([0.0, -2.0])).largest_entry == 5.0
