import math
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from privet.objectives import BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared
from privet.objectives.glm import clipped

FORMS = [np.ascontiguousarray, np.asfortranarray, sparse.csr_array]


def name_of(objective):
    return type(objective).__name__


def factors_of(rows):
    return np.ones(rows.n) if rows._factors is None else rows._factors


def centred_table(X, row_norm, centre, intercept):
    """Return what the centred rows should be, in long doubles, from the definition."""
    X = np.asarray(X, dtype=np.longdouble)
    sizes = np.sqrt(np.sum(X**2, axis=1, keepdims=True))
    bounded = X * np.minimum(1, row_norm / np.maximum(sizes, np.finfo(np.float64).tiny))
    return np.column_stack([bounded - centre, np.full(len(X), intercept)])


def exact_norm(row, factor, centre, intercept):
    """Return the exact norm of factor * row - centre, including the constant column."""
    square = Fraction(float(intercept)) ** 2
    for entry, shift in zip(row, centre, strict=True):
        square += (Fraction(float(factor)) * Fraction(float(entry)) - Fraction(float(shift))) ** 2
    return root(square)


def root(square):
    with mpmath.workdps(60):
        return mpmath.sqrt(mpmath.mpf(square.numerator) / mpmath.mpf(square.denominator))


def exact_length(vector):
    return root(sum((Fraction(float(entry)) ** 2 for entry in np.ravel(vector)), Fraction(0)))


def draw_centre(rng, rows, X, kind, row_norm):
    """Return a centre on a row, next to one, opposite one, anywhere, or very far away."""
    row = factors_of(rows)[0] * X[0]
    return {
        "on a row": row,
        "an ulp off": np.nextafter(row, np.inf),
        "nearly on it": row * (1 + 1e-8 * rng.standard_normal(row.size)),
        "opposite": -row,
        "anywhere": 0.5 * row_norm * rng.standard_normal(row.size),
        "far": row_norm * 10.0 ** rng.uniform(0, 12) * rng.standard_normal(row.size),
    }[kind]


CENTRES = ["on a row", "an ulp off", "nearly on it", "opposite", "anywhere", "far"]


# ------------------------------------------------------------------------------------------- the naive computation


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("scale", [1e-200, 0.05, 3.0, 1e30], ids=["tiny", "inside", "scaled down", "huge"])
def test_scores_sums_and_norms_agree_with_explicitly_centred_rows(form, dtype, outputs, scale):
    rng = np.random.default_rng(0)
    X = (scale * rng.standard_normal((30, 6)) * (rng.random((30, 6)) < 0.7)).astype(dtype)
    X[3], X[4] = 0, X[5]  # a row of zeros, and a duplicate
    centre = 0.4 * rng.standard_normal(6)
    rows = BoundedRows(form(X), 1.5, 0.3).centred(centre)
    naive = centred_table(X, 1.5, centre, 0.3).astype(float)
    shape = () if outputs is None else (outputs,)
    weights, coefficients = rng.standard_normal((7, *shape)), rng.standard_normal((30, *shape))
    assert rows.scores(weights) == pytest.approx(naive @ weights, abs=1e-12)
    assert rows.combine(coefficients) == pytest.approx(naive.T @ coefficients, abs=1e-12)
    assert rows.norms() == pytest.approx(np.linalg.norm(naive, axis=1), rel=1e-12)
    assert rows.total() == pytest.approx(naive[:, :6].sum(axis=0), abs=1e-12)
    assert (rows.n, rows.dimension, rows.n_features) == (30, 7, 6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [slice(None), slice(2, 9), np.array([0, 4, 5]), np.empty(0, dtype=np.int64)], ids=str)
def test_a_batch_of_centred_rows_is_centred(form, batch):
    rng = np.random.default_rng(1)
    X, centre = rng.standard_normal((12, 4)), rng.standard_normal(4)
    naive = centred_table(X, 1.0, centre, 0.5).astype(float)[batch]
    weights, coefficients = rng.standard_normal(5), rng.standard_normal(12)[batch]
    whole = BoundedRows(form(X), 1.0, 0.5)
    for rows in (whole.centred(centre).take(batch), whole.take(batch).centred(centre)):
        assert rows.scores(weights) == pytest.approx(naive @ weights, abs=1e-12)
        assert rows.combine(coefficients) == pytest.approx(naive.T @ coefficients, abs=1e-12)
        assert rows.norms() == pytest.approx(np.linalg.norm(naive, axis=1), rel=1e-12)


def test_sums_over_many_blocks_agree_with_one_product():
    rng = np.random.default_rng(2)
    X, centre = rng.standard_normal((140_000, 2)) * 0.1, np.array([0.3, -0.2])
    coefficients = rng.standard_normal(140_000)
    naive = (X - centre).T @ coefficients
    for form in FORMS:
        combined = BoundedRows(form(X), 5.0, 0.5).centred(centre).combine(coefficients)
        assert combined == pytest.approx([*naive, 0.5 * coefficients.sum()], rel=1e-9)


def test_centring_does_not_change_the_original_rows():
    X, centre = np.random.default_rng(3).standard_normal((5, 3)), np.array([0.1, 0.2, 0.3])
    rows, before = BoundedRows(X, 1.0, 0.5), X.copy()
    scores, norms, weights = rows.scores(np.ones(4)), rows.norms().copy(), rows.weight_in_total
    centred = rows.centred(centre)
    centre[:] = 1e9  # the rows keep their own copy
    assert centred.norm_bound < 10
    assert np.array_equal(rows.scores(np.ones(4)), scores)
    assert np.array_equal(rows.norms(), norms)
    assert rows.weight_in_total == weights
    assert np.array_equal(X, before)
    with pytest.raises(ValueError, match="read-only"):
        centred.norms()[0] = 0.0


@pytest.mark.parametrize("scale", [0.2, 5.0], ids=["inside", "scaled down"])
def test_centring_twice_is_refused_and_recentring_uses_the_last_centre(scale):
    """Norms of differences differ from norms of rows, and clipping by the wrong ones would exceed the bound."""
    rng = np.random.default_rng(4)
    X = scale * rng.standard_normal((6, 3))
    once = BoundedRows(X, 1.0, 0.1)
    first, second = once._X[0] * factors_of(once)[0], 2 * rng.standard_normal(3)
    try:
        twice = once.centred(first).centred(second)
    except ValueError as refusal:
        assert "centred" in str(refusal)
    else:
        matrix = twice.scores(np.eye(4))
        assert (twice.norms() >= np.linalg.norm(matrix, axis=1) * (1 - 1e-12)).all()
        assert (twice.norms() <= twice.norm_bound).all()


def test_rows_without_a_constant_column_cannot_be_centred():
    with pytest.raises(ValueError, match="Fit an intercept"):
        BoundedRows(np.ones((2, 2)), 1.0).centred(np.zeros(2))


@pytest.mark.parametrize("centre", [np.zeros(3), np.zeros(1), np.zeros((2, 1))], ids=lambda centre: str(centre.shape))
def test_a_centre_of_the_wrong_shape_is_refused(centre):
    rows = BoundedRows(np.ones((4, 2)), 1.0, 0.5)
    with pytest.raises(ValueError):
        rows.centred(centre).combine(np.ones(4))


# ------------------------------------------------------------------------------------------------- never densified


def test_a_wide_sparse_matrix_is_centred_without_a_copy(no_dense):
    n, d = 20_000, 47_000
    X = sparse.random_array((n, d), density=0.002, format="csr", rng=np.random.default_rng(5))
    stored = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    rows = BoundedRows(X, 1.0, 0.5)
    tracemalloc.start()
    centred = rows.centred(np.full(d, 1e-3))
    centred.combine(centred.scores(np.zeros(d + 1)))
    centred.total()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < stored / 4
    sample = centred.take(np.arange(3))
    assert sample.norms() == pytest.approx(centred.norms()[:3])


# ------------------------------------------------------------------------------------------------------- the norms


@pytest.mark.parametrize("kind", CENTRES)
def test_norms_are_never_below_the_exact_ones(kind):
    rng = np.random.default_rng(6)
    closest = math.inf
    for _ in range(60):
        d, row_norm = int(rng.choice([1, 2, 7, 60])), float(rng.choice([1e-10, 0.3, 7.3, 1e10]))
        intercept = row_norm * 10.0 ** rng.uniform(-12, 1)
        X = row_norm * 10.0 ** rng.uniform(-18, 3) * rng.standard_normal((2, d))
        if rng.random() < 0.3:
            X = np.round(X / row_norm * 4) * row_norm / 4  # ties, zeros and exact sums
        rows = BoundedRows(X, row_norm, intercept)
        centre = draw_centre(rng, rows, X, kind, row_norm)
        centred = rows.centred(centre)
        for i in range(2):
            exact = exact_norm(X[i], factors_of(rows)[i], centre, intercept)
            assert float(centred.norms()[i]) >= exact
            closest = min(closest, float(centred.norms()[i] / exact))
    assert closest < 1 + 1e-9  # for some of these, the norm is not far above the exact one


@pytest.mark.parametrize("kind", CENTRES)
def test_with_a_large_constant_column_norms_err_far_less_than_the_room_for_rounding(kind):
    rng = np.random.default_rng(7)
    for _ in range(60):
        X = 10.0 ** rng.uniform(-6, 1) * rng.standard_normal((2, 3))
        rows = BoundedRows(X, 1.0, 10.0 ** rng.uniform(1, 15))
        centre = draw_centre(rng, rows, X, kind, 1.0)
        centred = rows.centred(centre)
        for i in range(2):
            exact = exact_norm(X[i], factors_of(rows)[i], centre, rows.intercept)
            assert float(centred.norms()[i]) * (1 + 1e-5 * centred.rounding) >= exact


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_norms_of_rows_with_many_entries_are_never_below_the_exact_norms(form):
    rng = np.random.default_rng(8)
    for scale, intercept in ((1e-4, 1e-3), (1.0, 1e-6), (30.0, 0.2)):
        X = scale * rng.standard_normal((1, 3_000)) * (rng.random((1, 3_000)) < 0.1)
        rows = BoundedRows(form(X), 1.0, intercept)
        for centre in (factors_of(rows)[0] * X[0], 0.01 * rng.standard_normal(3_000)):
            exact = exact_norm(X[0], factors_of(rows)[0], centre, intercept)
            assert float(rows.centred(centre).norms()[0]) >= exact


def test_no_row_is_longer_than_the_bound_and_the_farthest_attains_it():
    rng = np.random.default_rng(9)
    for length in (0.0, 0.5, 3.0):
        direction = np.array([0.6, 0.8])
        X = np.vstack([-100 * direction, 100 * direction, 0 * direction, rng.standard_normal((40, 2))])
        rows = BoundedRows(X, 2.0, 0.4).centred(length * direction)
        assert rows.norms().max() <= rows.norm_bound
        assert rows.norm_bound == pytest.approx(math.hypot(2.0 + length, 0.4), rel=0.02)
        assert rows.norms()[0] == pytest.approx(rows.norm_bound, rel=0.02)


# --------------------------------------------------------------------------------- one record's part, rounding included


def one_record(rng):
    """Return rows of one record and its table entry, with everything that makes differences lose digits."""
    d, row_norm = int(rng.choice([1, 2, 5, 40])), float(rng.choice([1e-10, 1.0, 7.3, 1e10]))
    intercept = row_norm * 10.0 ** rng.uniform(-9, 6)
    X = row_norm * 10.0 ** rng.uniform(-18, 3) * rng.standard_normal((1, d))
    rows = BoundedRows(X, row_norm, intercept)
    return rows, rows.centred(draw_centre(rng, rows, X, str(rng.choice(CENTRES)), row_norm))


@pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge(), Huber(2.0), Squared(), Multinomial(3)], ids=name_of)
def test_a_clipped_record_never_exceeds_the_clip_even_by_rounding(objective):
    rng = np.random.default_rng(10)
    largest = 0.0
    for _ in range(150):
        rows, centred = one_record(rng)
        weights = (
            rng.choice([0.0, 1.0, 1e6]) / rows.row_norm * rng.standard_normal(objective.start(rows.dimension).shape)
        )
        clip_norm = rows.row_norm * 10.0 ** rng.uniform(-6, 1)
        target = rng.integers(0, 2, 1)
        target = target if isinstance(objective, Multinomial) else 1e3 * (2.0 * target - 1)
        if isinstance(objective, Logistic | SmoothedHinge):
            target = (target > 0).astype(float)
        part = objective.gradient_sum(weights, centred, target, clip_norm)
        length = exact_length(part)
        assert length <= clip_norm
        largest = max(largest, float(length / clip_norm))
    assert largest > 0.999


def test_the_clip_bounds_the_residual_of_an_adversarial_record():
    """Residuals have any size, as no loss gives them, and the clip must hold for all of them."""
    rng = np.random.default_rng(11)
    for _ in range(400):
        _, centred = one_record(rng)
        residual = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-20, 300, size=1)
        clip_norm = 10.0 ** rng.uniform(-9, 9)
        part = centred.combine(clipped(residual, centred, clip_norm))
        assert exact_length(part) <= clip_norm


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=6),
    st.floats(-1e6, 1e6),
    st.floats(-9, 3),
    st.floats(1e-6, 10),
    st.sampled_from([1.0, -1.0, 1 + 2**-52, 0.0]),
)
@example([1.0], 0.0, -9.0, 1.0, 1.0)
@example([1.0, 1e-8], 1e6, -9.0, 1e-3, 1.0)
def test_the_clip_holds_when_the_centre_is_a_multiple_of_a_row(entries, shift, decades, clip_norm, multiple):
    X = np.array([entries])
    rows = BoundedRows(X, 1.0, 10.0**decades)
    centred = rows.centred(multiple * factors_of(rows)[0] * X[0] + shift)
    for residual in (1e-3, -1.0, 1e9):
        part = centred.combine(clipped(np.array([residual]), centred, clip_norm))
        assert exact_length(part) <= clip_norm


# -------------------------------------------------------------------------------------- sums of many, rounding included


def exact_sum(X, factors, centre, intercept, coefficients):
    """Return the sum of coefficient * (factor * row - centre, intercept), in Fractions."""
    weights = [Fraction(float(each)) for each in coefficients]
    total = []
    for column, shift in zip(np.asarray(X).T, centre, strict=True):
        entries = [Fraction(float(x)) * Fraction(float(f)) for x, f in zip(column, factors, strict=True)]
        total.append(sum(w * (x - Fraction(float(shift))) for w, x in zip(weights, entries, strict=True)))
    return [*total, Fraction(float(intercept)) * sum(weights)]


@pytest.mark.parametrize("n", [2, 50, 1500])
@pytest.mark.parametrize("far", [0.0, 1.0, 1e6])
def test_the_rounding_error_of_a_sum_is_within_the_declared_bound(n, far):
    """Each of two neighbours has half of the claimed error. Large rows cancel, and coefficients have every size."""
    rng = np.random.default_rng(n)
    for intercept in (1e-4, 0.2):
        X = rng.standard_normal((n, 2)) * 10.0 ** rng.uniform(-6, 3, (n, 1))
        X[n // 2 :] = -X[: n - n // 2]
        rows = BoundedRows(X, 1.0, intercept)
        centre = np.array([0.3, -0.7]) * (1 + far)
        centred = rows.centred(centre)
        residuals = clipped(rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-9, 9, n), centred, 1.0)
        computed = centred.combine(residuals)
        exact = exact_sum(X, factors_of(rows), centre, intercept, residuals)
        error = exact_length([Fraction(float(one)) - other for one, other in zip(computed, exact, strict=True)])
        assert error <= centred.rounding / 2


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [1e-6, 0.2, 30.0])
@pytest.mark.parametrize("n", [3, 70_000])
def test_computed_sums_of_neighbours_are_no_farther_apart_than_twice_the_clip(form, intercept, n):
    """The replaced record is clipped to opposite ends in both tables, and the other sums cross powers of two."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((n, 2))
    centre = np.array([0.4, 0.1])
    residuals = np.where(np.arange(n) % 3, 1.0, -1.9)
    sums = []
    for row, residual in (([50.0, 1.0], 1e9), ([50.0, 1.0], -1e9)):
        X[0], residuals[0] = row, residual
        rows = BoundedRows(form(X), 1.0, intercept).centred(centre)
        sums.append(rows.combine(clipped(residuals, rows, 0.3)))
    apart = exact_length(sums[0] - sums[1])
    assert 0.6 * (1 - 3 * rows.rounding) < apart <= 0.6


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("length", [0.0, 2.0, 1e4])
def test_totals_of_neighbours_are_no_farther_apart_than_twice_the_weight_of_a_row(form, length):
    rng = np.random.default_rng(13)
    direction = np.array([0.6, 0.8])
    for n in (1, 2, 3, 70_000):
        X = 3 * rng.standard_normal((n, 2))
        sums = []
        for sign in (1, -1):
            X[0] = sign * 1e200 * direction
            rows = BoundedRows(form(X), 1.0, 0.2)
            rows = rows.centred(length * direction) if length else rows
            sums.append(rows.total())
        apart = float(exact_length(sums[0] - sums[1]))
        assert 2 * (1 - 1e-5) < apart <= 2 * rows.weight_in_total
        assert 1 + length < rows.weight_in_total < 1.5 * (1 + length)
        alone = BoundedRows(form(X[:1]), 1.0, 0.2).centred(length * direction)
        assert exact_length(alone.total()) <= alone.weight_in_total


def test_declared_bounds_depend_on_public_numbers_only():
    """The bound, the room for rounding and the weight of a row are the same for every table of a shape."""
    rng = np.random.default_rng(14)
    centre = rng.standard_normal(3)
    claims = set()
    for X in (np.zeros((5, 3)), rng.standard_normal((5, 3)), np.full((5, 3), 1e300), np.full((5, 3), 5e-324)):
        for form in FORMS:
            rows = BoundedRows(form(X), 1.0, 0.2)
            centred = rows.centred(centre)
            claims.add((rows.weight_in_total, centred.weight_in_total, centred.rounding, centred.norm_bound))
    assert len(claims) == 1
