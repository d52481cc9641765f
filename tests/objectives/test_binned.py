"""Rows of an additive model: scores and sums against dense rows, exact sums, and clips."""

import math
from fractions import Fraction

import numpy as np
import pytest

from privet.objectives import Logistic, Multinomial
from privet.objectives.binned import BinnedRows, bins_of
from privet.objectives.curves import CELLS, Curve, Pair, lay_out
from privet.objectives.summation import ROUNDING

N = 500


def make(seed=0, clip=0.3, n=N, pairs=((0, 1),)):
    generator = np.random.default_rng(seed)
    cells = np.column_stack([generator.integers(0, CELLS, n), generator.integers(0, 3, n)])
    counts = [np.bincount(cells[:, 0], minlength=CELLS) * 1.0, np.bincount(cells[:, 1], minlength=3) * 1.0]
    curves = [lay_out(counts[0], 1.0, n, is_ordered=True), lay_out(counts[1], 1.0, n, is_ordered=False)]
    terms = [Pair.of(pair, *(curves[j] for j in pair)) for pair in pairs]
    return cells, curves, terms, BinnedRows(cells, curves, clip, terms)


def dense(cells, curves, terms, rows):
    """Return the rows as a dense matrix, computed in another way."""
    bins = bins_of(cells, curves, terms)
    parts = [features[found] for features, found in zip(rows.features, bins, strict=True)]
    return np.column_stack([*parts, np.full(len(cells), rows.intercept)])


def test_scores_sums_and_norms_are_those_of_dense_rows():
    cells, curves, terms, rows = make()
    X = dense(cells, curves, terms, rows)
    generator = np.random.default_rng(1)
    weights, coefficients = generator.standard_normal(rows.dimension), generator.uniform(-0.2, 0.2, N)
    assert np.allclose(rows.scores(weights), X @ weights)
    assert np.allclose(rows.combine(coefficients), X.T @ coefficients, atol=1e-4)
    assert np.allclose(rows.norms(), np.linalg.norm(X, axis=1))
    assert rows.largest_norm >= rows.norms().max() * (1 - 1e-12)
    several = generator.standard_normal((rows.dimension, 3))
    assert np.allclose(rows.scores(several), X @ several)
    assert rows.combine(generator.uniform(-0.1, 0.1, (N, 3))).shape == several.shape


def test_the_typical_row_has_norm_1():
    _, _, _, rows = make(pairs=())
    assert math.isclose(float(np.mean(rows.norms() ** 2)), 1, rel_tol=0.05)


@pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)])
def test_the_contribution_of_a_record_never_exceeds_the_clip(objective):
    """The sum of all records minus the sum of all others is what one record contributes."""
    clip = 0.05
    cells, curves, terms, _ = make(clip=clip, n=40)
    generator = np.random.default_rng(2)
    y = generator.integers(0, 2, 40) * (1.0 if isinstance(objective, Logistic) else 1)
    rows = BinnedRows(cells, curves, clip, terms)
    weights = 30 * generator.standard_normal(objective.start(rows.dimension).shape)
    total = objective.gradient_sum(weights, rows, y, clip)
    longest = 0.0
    for left_out in range(40):
        others = np.arange(40) != left_out
        fewer = BinnedRows(cells[others], curves, clip, terms)
        move = float(np.linalg.norm(total - objective.gradient_sum(weights, fewer, y[others], clip)))
        assert move <= clip
        longest = max(longest, move)
    assert longest > 0.99 * clip


def test_sums_over_records_are_exact_and_do_not_depend_on_the_order():
    cells, curves, terms, rows = make()
    coefficients = np.random.default_rng(3).uniform(-0.25, 0.25, N)
    order = np.random.default_rng(4).permutation(N)
    shuffled = BinnedRows(cells[order], curves, 0.3, terms)
    assert np.array_equal(rows.combine(coefficients), shuffled.combine(coefficients[order]))
    exact = sum(Fraction(int(np.trunc(value / rows._grid))) * Fraction(rows._grid) for value in coefficients)
    assert rows.combine(coefficients)[-1] == rows.intercept * float(exact)


def test_several_parts_give_the_same_sum(monkeypatch):
    cells, curves, terms, rows = make()
    coefficients = np.random.default_rng(5).uniform(-0.25, 0.25, N)
    monkeypatch.setattr("privet.objectives.binned._PART", 64)
    assert np.array_equal(BinnedRows(cells, curves, 0.3, terms).combine(coefficients), rows.combine(coefficients))


def test_a_million_levels_are_refused_because_sums_could_be_rounded_too_far(monkeypatch):
    cells, curves, _, _ = make(n=20, pairs=())
    monkeypatch.setattr("privet.objectives.binned._UNIT_ROUNDOFF", ROUNDING)
    with pytest.raises(ValueError, match="levels and the table 20 rows"):
        BinnedRows(cells, curves, 0.3)


def test_only_full_batches_are_supported():
    *_, rows = make()
    assert rows.take(slice(None)) is rows
    with pytest.raises(ValueError, match="full batches"):
        rows.take(np.arange(3))


def test_points_and_bins_follow_the_counts():
    counts = np.zeros(CELLS)
    counts[0], counts[200:400], counts[900] = 5000, 20, 1000
    curve = lay_out(counts, 10.0, 10_000, is_ordered=True)
    assert curve.is_point[0] and curve.bin_of_cell[1] == 1
    place = curve.bin_of_cell[900]
    assert curve.is_point[place] and curve.bin_of_cell[899] < place < curve.bin_of_cell[901]
    assert np.all(np.diff(curve.bin_of_cell) >= 0) and math.isclose(curve.shares.sum(), 1)
    levels = lay_out(np.array([100.0, -50.0, 3.0]), 10.0, 100, is_ordered=False)
    assert levels.n_bins == 3 and np.all(levels.shares > 0)


def test_strong_noise_leaves_few_bins():
    generator = np.random.default_rng(0)
    counts = np.full(CELLS, 10.0)
    bins = [
        lay_out(counts + std * generator.standard_normal(CELLS), std, 10_240, is_ordered=True).n_bins
        for std in (0.1, 2000.0)
    ]
    assert bins[0] > 40 and bins[1] < 40


def test_features_are_centred_and_smooth_along_the_curve():
    curve = lay_out(np.full(CELLS, 10.0), 0.0, 10_240, is_ordered=True)
    features = curve.features()
    assert np.abs(curve.shares @ features).max() < 1e-9
    kernel = features @ features.T
    middle = kernel[curve.n_bins // 4]
    near, far = middle[curve.n_bins // 4 + 1], middle[-1]
    assert near > far  # noise in one bin is shared with its neighbours, and less with distant bins


def test_the_terms_of_a_pair_have_the_shares_of_independent_columns():
    one = Curve(np.arange(3), np.array([0.5, 0.3, 0.2]), np.zeros(3, dtype=bool), False)
    other = lay_out(np.full(CELLS, 10.0), 0.0, 10_240, is_ordered=True)
    pair = Pair.of((0, 1), one, other)
    assert math.isclose(pair.curve.shares.sum(), 1)
    assert pair.curve.n_bins == 3 * 6
    assert pair.bins(np.array([2]), np.array([other.n_bins - 1])).max() < pair.curve.n_bins
