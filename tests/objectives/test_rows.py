import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import sparse

from privet.objectives import BoundedRows
from privet.objectives.matrices import stored_once

# By how much rounding may carry a norm above the bound, which is far less than the margins of any calibration.
EXCESS = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-6}
LARGEST = {np.float64: 1.7e308, np.float32: 3.4e38}


def dense(rows):
    """Return the bounded rows as a matrix of long doubles, read off the scores of unit vectors."""
    return rows.scores(np.eye(rows.dimension)).astype(np.longdouble)


def true_norms(matrix):
    return np.sqrt(np.sum(np.asarray(matrix, dtype=np.longdouble) ** 2, axis=1))


def matrices(dtype):
    """Matrices with rows of every size, ties and zeros among them."""
    top = LARGEST[dtype]
    entries = st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-200, 1e-40, 1e15, 1e140, 1e155, 1e300, top, -top]),
        st.floats(-2, 2),
        st.floats(-top, top),
    )
    fitting = entries.filter(lambda x: abs(x) <= top).map(lambda x: dtype(x).item())
    return arrays(dtype, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=fitting)


bounds = st.one_of(st.just(1.0), st.floats(1e-3, 1e3))
any_matrix = st.one_of(matrices(np.float64), matrices(np.float32))


# -------------------------------------------------------------------------------------------------------- the bound


@settings(max_examples=300, deadline=None)
@given(any_matrix, bounds, st.booleans())
@example(np.full((2, 4), 1.7e308), 1.0, False)
@example(np.full((2, 4), 5e-324), 1.0, True)
@example(np.zeros((2, 3)), 1.0, True)
@example(np.full((3, 5), 3.4e38, np.float32), 1e-3, True)
def test_every_row_lies_in_the_ball(X, bound, is_sparse):
    before = X.copy()
    stored = sparse.csr_array(X) if is_sparse else X
    with np.errstate(over="raise", invalid="raise"):
        rows = BoundedRows(stored, bound)
        bounded = dense(rows)
    limit = bound * (1 + EXCESS[X.dtype])
    assert (true_norms(bounded) <= limit).all()
    assert (rows.norms() <= limit).all()
    assert np.array_equal(stored.toarray() if is_sparse else stored, before)
    inside = true_norms(before) <= bound * (1 - 2 * EXCESS[X.dtype])
    assert np.array_equal(bounded[inside], before[inside])  # short rows are left as they are, to the bit


@pytest.mark.parametrize("bound", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_long_row_of_the_largest_floats_lies_in_the_ball(bound, is_sparse):
    X = np.full((1, 47_000), 3e38, dtype=np.float32)
    rows = BoundedRows(sparse.csr_array(X) if is_sparse else X, bound)
    assert np.linalg.norm(rows.combine(np.ones(1, np.float32)).astype(np.float64)) <= bound * (1 + 1e-6)


@pytest.mark.parametrize(("entry", "bound"), [(5.1e307, 1e-10), (1e-162, 1e-163), (1e-200, 1e-250), (1.0, 1e200)])
def test_a_bound_far_from_one_holds_or_is_refused(entry, bound):
    try:
        rows = BoundedRows(np.full((1, 4), entry), bound)
    except ValueError as refusal:
        assert "norm" in str(refusal)
    else:
        assert true_norms(dense(rows)) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_long_row_keeps_its_direction_and_reaches_the_bound(dtype):
    rows = BoundedRows(np.array([[3, 4], [0.3, 0.4], [3e30, 4e30]], dtype=dtype), 2.0)
    assert dense(rows).astype(float) == pytest.approx(np.array([[1.2, 1.6], [0.3, 0.4], [1.2, 1.6]]), rel=3e-6)


@pytest.mark.parametrize("intercept", [0.0, 0.5, 3.0])
def test_the_constant_column_counts_towards_the_bound(intercept):
    rows = BoundedRows(np.array([[30.0, 40.0], [0.0, 0.0]]), 1.0, intercept)
    assert np.hypot(1.0, intercept) < rows.norm_bound < np.hypot(1.0, intercept) * (1 + 2e-4)
    assert rows.dimension == (3 if intercept else 2)
    assert true_norms(dense(rows)).astype(float) == pytest.approx([rows.largest_norm, intercept], rel=1e-12)
    assert rows.norms() == pytest.approx([rows.largest_norm, intercept], rel=1e-12)
    assert rows.norms().max() <= rows.norm_bound


# ------------------------------------------------------------------------------------------ each row by itself


@pytest.mark.parametrize("kind", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intruder", ["long", "huge", "zero"])
def test_a_row_is_bounded_without_regard_to_the_others(kind, dtype, intruder):
    rng = np.random.default_rng(0)
    X = (0.2 * rng.standard_normal((40, 7))).astype(dtype)
    X[3] *= 100
    changed = X.copy()
    changed[17] = {"long": dtype(1e3), "huge": dtype(LARGEST[dtype]), "zero": dtype(0)}[intruder]
    others = np.arange(40) != 17
    weights = rng.standard_normal((8, 3)).astype(dtype)
    before, after = (BoundedRows(kind(each), 1.0, 0.5).scores(weights) for each in (X, changed))
    assert np.array_equal(before[others], after[others])


# ------------------------------------------------------------------------------------------------ sparse matrices


def test_rows_with_entries_stored_twice_are_bounded_by_their_sum():
    """(0.7, 0.7) in one place is an entry of 1.4: a row of norm 1.4, not of norm 0.99."""
    X = sparse.csr_array((np.array([0.7, 0.7, 0.1]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert not X.has_canonical_format
    rows = BoundedRows(X, 1.0)
    assert (true_norms(dense(rows)) <= 1.0).all()
    assert X.nnz == 3


def test_entries_stored_twice_are_added_in_a_copy():
    halves = sparse.csr_array((np.array([3.0, 3.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert stored_once(halves).data.tolist() == [6.0]
    assert halves.data.tolist() == [3.0, 3.0]
    assert stored_once(clean := sparse.csr_array(np.eye(2))) is clean


def test_entries_stored_twice_that_add_up_to_infinity_are_refused():
    halves = sparse.csr_array((np.full(2, 1.5e308), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    with pytest.raises(ValueError, match="add up to infinity"):
        stored_once(halves)


def test_explicit_zeros_empty_rows_and_unsorted_columns_change_nothing():
    data, columns = np.array([3.0, 0.0, -4.0, 0.2, 0.0]), np.array([2, 0, 1, 1, 0])
    X = sparse.csr_array((data, columns, np.array([0, 3, 3, 5])), shape=(3, 3))
    assert not X.has_sorted_indices
    messy, tidy = BoundedRows(X, 1.0, 0.5), BoundedRows(X.toarray(), 1.0, 0.5)
    weights, coefficients = np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2)
    assert messy.scores(weights) == pytest.approx(tidy.scores(weights))
    assert messy.combine(coefficients) == pytest.approx(tidy.combine(coefficients))
    assert messy.norms() == pytest.approx(tidy.norms())


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "batch", [slice(None), slice(2, 5), np.array([0, 4, 5]), np.empty(0, dtype=np.int64)], ids=repr
)
def test_sparse_and_dense_agree_on_every_batch(form, dtype, batch):
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((6, 4)) * (rng.random((6, 4)) < 0.5)).astype(dtype)
    weights, coefficients = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 3), (6, 3)))
    results = []
    for each in (form(X), X):
        rows = BoundedRows(each, 0.8, 0.5).take(batch)
        results.append((rows.scores(weights), rows.combine(coefficients[batch]), rows.norms()))
        assert rows.n == len(coefficients[batch])
    for one, other in zip(*results, strict=True):
        assert type(one) is np.ndarray
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)


def test_taking_all_rows_makes_no_copy():
    rows = BoundedRows(np.ones((3, 2)), 1.0)
    assert rows.take(slice(None)) is rows


def test_a_wide_sparse_matrix_is_never_densified():
    X = sparse.random_array((20_000, 47_000), density=0.002, format="csr", rng=np.random.default_rng(2))
    stored = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    tracemalloc.start()
    rows = BoundedRows(X, 1.0, 0.5)
    rows.combine(rows.scores(np.zeros(47_001)))
    rows.take(np.arange(0, 20_000, 7)).norms()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * stored < 20_000 * 47_000 * 8 / 100


# ------------------------------------------------------------------------------------------------------ as algebra


@settings(max_examples=100, deadline=None)
@given(matrices(np.float64), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5]))
def test_combine_is_the_transpose_of_scores(X, seed, intercept):
    rows = BoundedRows(X, 1.0, intercept)
    rng = np.random.default_rng(seed)
    weights, coefficients = rng.standard_normal(rows.dimension), rng.standard_normal(rows.n)
    assert coefficients @ rows.scores(weights) == pytest.approx(rows.combine(coefficients) @ weights, abs=1e-9)


@pytest.mark.parametrize("X", [np.array([[1, 2]]), np.ones((1, 2), np.float16), sparse.csr_array(np.eye(2, dtype=int))])
def test_rows_that_are_not_floats_are_refused(X):
    with pytest.raises((TypeError, ValueError), match="float"):
        BoundedRows(X, 1.0)


@pytest.mark.parametrize("view", ["every other column", "reversed rows"])
def test_a_huge_row_does_not_change_the_scores_of_other_rows_of_a_view(view):
    rng = np.random.default_rng(0)
    given = rng.standard_normal((60, 60))
    changed = given.copy()
    changed[5] = 1e200
    weights = rng.standard_normal(30 if view == "every other column" else 60)
    scores = []
    for X in (given, changed):
        rows = BoundedRows(X[:, ::2] if view == "every other column" else X[::-1], 1.0)
        scores.append(np.delete(rows.scores(weights), [5, 54]))
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_long_row_has_the_same_norm_and_score_alone_and_among_others(order):
    X = np.asarray(np.random.default_rng(0).standard_normal((3, 10_001)), order=order)
    weights = np.linspace(-1, 1, 10_001)
    rows = BoundedRows(X, 1.0)
    for place in range(3):
        alone = BoundedRows(X[place : place + 1], 1.0)
        assert alone.norms()[0] == rows.norms()[place]
        several = rows.take(np.arange(3), alone=True).scores(weights)
        assert rows.take(np.array([place]), alone=True).scores(weights)[0] == several[place]
