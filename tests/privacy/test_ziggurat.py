import math

import numpy as np
import pytest
from scipy import stats

from privet.privacy.noise.ziggurat import CHUNK, SHARES, fill_normals, ziggurat

CHANCE = 1e-6  # a right sampler fails one such test in a million
TABLE = ziggurat()
COUNT = TABLE.inner.size
HALF_WIDTHS = TABLE.units[:COUNT] * 2.0**63
HALF_AREA = math.sqrt(math.pi / 2)


def random_words(seed):
    """Return a function that fills arrays with random words of numpy's generator, which suffices for these tests."""
    generator = np.random.default_rng(seed)

    def fill(words):
        words[:] = generator.integers(-(2**63), 2**63, words.size, dtype=np.int64)

    return fill


def given_words(*pieces):
    """Return a function that fills arrays with the given words."""
    left = [np.asarray(piece, dtype=np.uint64).view(np.int64) for piece in pieces]

    def fill(words):
        words[:] = left.pop(0)

    return fill


def normals(size, seed=0, dtype=np.float64, std=1.0):
    result = np.empty(size, dtype)
    fill_normals(result, std, random_words(seed))
    return result


def density(x):
    return np.exp(-0.5 * np.asarray(x) ** 2)


def area(low, high):
    """Return the area under exp(-x^2/2) between two points."""
    return 2 * HALF_AREA * (stats.norm.sf(low) - stats.norm.sf(high))


# The tables


def test_rectangles_have_one_share_each_and_touch_the_density_from_below():
    assert COUNT == 1021
    assert np.all(np.diff(HALF_WIDTHS) < 0)
    bottoms = np.concatenate([[0.0], TABLE.tops[:-1]])
    np.testing.assert_allclose(HALF_WIDTHS * (TABLE.tops - bottoms), HALF_AREA / SHARES, rtol=1e-10)
    np.testing.assert_allclose(TABLE.tops, density(HALF_WIDTHS), rtol=0, atol=2e-16)


def test_boxes_hold_all_that_rectangles_leave_but_the_tail():
    np.testing.assert_array_equal(TABLE.inner + TABLE.widths, HALF_WIDTHS)
    np.testing.assert_array_equal(TABLE.inner, np.append(HALF_WIDTHS[1:], 0.0))
    np.testing.assert_allclose(TABLE.tops + TABLE.heights, density(TABLE.inner), rtol=1e-15)
    assert TABLE.edge == HALF_WIDTHS[0]


def test_the_area_outside_the_rectangles_has_the_probability_of_its_shares():
    corners = area(TABLE.inner, HALF_WIDTHS) - TABLE.tops * TABLE.widths
    assert corners.min() > 0
    left = corners.sum() + area(TABLE.edge, math.inf)
    assert left / HALF_AREA == pytest.approx((SHARES - COUNT) / SHARES, rel=1e-10)


def test_trials_fall_into_boxes_by_their_areas_and_into_the_tail_by_its_envelope():
    tail = density(TABLE.edge) / TABLE.edge  # the integral of density(edge) / edge * x exp((edge^2 - x^2) / 2)
    areas = np.append(TABLE.widths * TABLE.heights, tail)
    np.testing.assert_allclose(np.diff(TABLE.chances, prepend=0.0), areas / areas.sum(), rtol=1e-9)
    assert TABLE.chances[-1] == 1.0


# The law


def test_a_million_draws_are_normal():
    draws = normals(3_000_000)
    assert stats.kstest(draws, "norm").pvalue > CHANCE
    assert stats.kstest(draws[-100_000:], "norm").pvalue > CHANCE
    assert abs(draws.mean()) * math.sqrt(draws.size) < 5
    assert abs(draws.var() - 1) * math.sqrt(draws.size / 2) < 5
    assert abs((draws**4).mean() - 3) * math.sqrt(draws.size / 96) < 5


def test_tails_hold_as_many_as_they_should():
    draws = normals(10_000_000, seed=1)
    for tail in (2.0, 3.0, 4.0, TABLE.edge, 4.5, 5.0):
        for count in (int(np.sum(draws > tail)), int(np.sum(draws < -tail))):
            assert stats.binomtest(count, draws.size, stats.norm.sf(tail)).pvalue > CHANCE


def test_draws_near_the_middle_and_at_the_joints_of_rectangles_are_as_likely_as_they_should_be():
    edges = np.concatenate([[0.0], HALF_WIDTHS[::-1][::50], [np.inf]])
    counts = np.histogram(np.abs(normals(4_000_000, seed=2)), edges)[0]
    expected = 2 * (stats.norm.sf(edges[:-1]) - stats.norm.sf(edges[1:]))
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > CHANCE


def test_what_is_drawn_outside_the_rectangles_has_the_law_of_what_they_leave():
    draws = TABLE.outside(2_000_000, random_words(3))
    assert draws.size == 2_000_000
    corners = (area(TABLE.inner, HALF_WIDTHS) - TABLE.tops * TABLE.widths)[::-1]
    counts = np.histogram(draws, np.concatenate([TABLE.inner[::-1], [TABLE.edge, np.inf]]))[0]
    areas = np.append(corners, area(TABLE.edge, math.inf))
    assert stats.chisquare(counts, areas / areas.sum() * draws.size).pvalue > CHANCE
    tail = draws[draws > TABLE.edge]
    assert stats.binomtest(tail.size, draws.size, areas[-1] / areas.sum()).pvalue > CHANCE
    assert stats.kstest(tail, lambda x: 1 - stats.norm.sf(x) / stats.norm.sf(TABLE.edge)).pvalue > CHANCE
    cap = draws[draws < HALF_WIDTHS[-1]]
    assert stats.kstest(cap, lambda x: (area(0.0, x) - TABLE.tops[-1] * x) / corners[0]).pvalue > CHANCE


def test_neighbours_and_their_sizes_are_not_correlated():
    draws = normals(2_000_000, seed=4)
    for values in (draws, np.abs(draws), draws**2):
        for lag in (1, 2, 3, CHUNK):
            correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
            assert abs(correlation) * math.sqrt(draws.size) < 6


def test_the_sign_of_rare_draws_is_fair():
    draws = normals(8_000_000, seed=5)
    beyond = draws[np.abs(draws) > TABLE.edge]
    assert stats.binomtest(int(np.sum(beyond > 0)), beyond.size).pvalue > CHANCE


@pytest.mark.parametrize("std", [0.0, 1e-300, 0.3, 1e300])
def test_draws_scale_with_the_standard_deviation(std):
    np.testing.assert_array_equal(normals(70_000, seed=6, std=std), std * normals(70_000, seed=6))


@pytest.mark.parametrize("size", [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_any_size_is_filled_and_single_precision_is_rounded(size):
    drawn = normals(size, seed=7)
    assert np.unique(drawn).size == size
    np.testing.assert_array_equal(normals(size, seed=7), drawn)
    np.testing.assert_array_equal(normals(size, seed=7, dtype=np.float32), drawn.astype(np.float32))


# The extremes


def test_the_least_and_the_largest_words_give_the_ends_of_their_rectangle():
    for share in (0, 1, COUNT - 1):
        words = np.array([share, 2**63 - SHARES + share, 2**63 + share, 2**64 - SHARES + share], dtype=np.uint64)
        result = np.empty(4)
        fill_normals(result, 1.0, given_words(words))
        half = HALF_WIDTHS[share]
        np.testing.assert_allclose(result, [0.0, half, -half, 0.0], rtol=1e-15, atol=half * 2.0**-53)
        assert np.abs(result).max() <= half


LAST = 2**64 - 1


def trial(choice, place, level):
    """Return the words of trials that are all the same."""
    return [np.full(18, word, dtype=np.uint64) for word in (choice, place, level)]


def test_the_tail_begins_at_its_edge_and_reaches_beyond_nine_deviations():
    for place, expected in ((0, TABLE.edge), (LAST, math.sqrt(TABLE.edge**2 + 2 * 53 * math.log(2)))):
        draw = TABLE.outside(1, given_words(*trial(LAST, place, 0)))
        assert draw == pytest.approx(expected, rel=1e-12)
    assert 9.4 < draw[0] < 9.5


@pytest.mark.parametrize(("sign", "word"), [(1, LAST >> 1), (-1, LAST)])
def test_the_farthest_draw_on_either_side(sign, word):
    result = np.empty(1)
    fill_normals(result, 2.0, given_words([word], *trial(LAST, LAST, 0)))
    assert 18.8 < sign * result[0] < 19.0


def test_words_of_zeros_give_finite_draws_outside_the_rectangles():
    draw = TABLE.outside(1, given_words(*trial(0, 0, 0)))
    assert draw == TABLE.inner[0]


def test_a_trial_above_the_density_is_made_again():
    corner = trial(0, LAST, LAST)  # the upper outer one of the first box
    np.testing.assert_array_equal(TABLE.outside(1, given_words(*corner, *trial(0, 0, 0))), TABLE.inner[0])
    far = trial(LAST, LAST, 1 << 63)  # 9.5 deviations out a trial is kept with probability edge / 9.5 = 0.42
    np.testing.assert_array_equal(TABLE.outside(1, given_words(*far, *trial(0, 0, 0))), TABLE.inner[0])


def test_many_draws_outside_take_more_than_one_round():
    assert TABLE.outside(3 * CHUNK, random_words(8)).size == 3 * CHUNK
