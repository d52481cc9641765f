import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privet.privacy import NoiseSource
from privet.privacy.noise import normals, release
from privet.privacy.noise.normals import PIECE
from privet.privacy.noise.release import grid_step

CHANCE = 1e-6
TYPES = [np.float32, np.float64]


def cell_probabilities(std, shift, reach):
    """Return the probabilities that round(shift + N) is -reach, ..., reach, or beyond on either side."""
    edges = (np.arange(-reach, reach + 2) - 0.5 - shift) / std
    below, above = stats.norm.cdf(edges), stats.norm.sf(edges)
    inner = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.concatenate([[below[0]], inner, [above[-1]]])


def assert_cells(counts, probabilities):
    """Chi-square over all cells, with those of fewer than ten expected draws joined to one on each side."""
    expected = probabilities * counts.sum()
    first, last = np.flatnonzero(expected >= 10)[[0, -1]]
    joined = [[part[: first + 1].sum(), *part[first + 1 : last], part[last:].sum()] for part in (counts, expected)]
    assert stats.chisquare(*joined).pvalue > CHANCE


def cell_counts(draws, reach):
    cells = np.clip(draws, -reach - 1, reach + 1).astype(np.int64) + reach + 1
    return np.bincount(cells, minlength=2 * reach + 3)


# The law, cell by cell


MILLION = 1 << 20


@pytest.mark.parametrize(
    ("std", "shift", "millions"), [(0.3, 0.0, 5), (2.0, 0.375, 96), (11.7, -0.5, 5), (11.7, 1000.25, 5)]
)
def test_draws_have_exact_cell_probabilities_with_tails_to_six_deviations(std, shift, millions):
    source, reach = NoiseSource(1), math.ceil(6 * std)
    counts = np.zeros(2 * reach + 3, dtype=np.int64)
    values = np.full(MILLION, shift)
    for _ in range(millions):
        counts += cell_counts(source.add_gaussian(values, std, grid=1.0) - math.floor(shift), reach)
    assert_cells(counts, cell_probabilities(std, shift - math.floor(shift), reach))


@pytest.mark.parametrize("std", [0.3, 2.0])
def test_the_slow_path_forced_for_every_draw_has_the_same_law(monkeypatch, std):
    monkeypatch.setattr(release, "ERROR", 1.0)
    monkeypatch.setattr(normals, "_CLOSE", 1.0)
    reach = math.ceil(6 * std)
    draws = NoiseSource(3).add_gaussian(np.full(12_000, 0.375), std, grid=1.0)
    assert_cells(cell_counts(draws, reach), cell_probabilities(std, 0.375, reach))


@pytest.mark.parametrize("add", ["add_gaussian", "add_k_norm"])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_slow_path_rounds_as_the_fast_one_does(monkeypatch, add, dtype):
    values = np.array([0.0, 1.0, -3.3, 1e6, 1e-9, 2.0**-30, 7.0], dtype=dtype)
    fast = getattr(NoiseSource(5), add)(values, 0.7)
    monkeypatch.setattr(release, "ERROR", 1.0)
    np.testing.assert_array_equal(getattr(NoiseSource(5), add)(values, 0.7), fast)


def test_many_draws_that_the_first_pass_leaves_open_are_decided_one_by_one(monkeypatch):
    calls = []
    decide = release.nearest_integer
    monkeypatch.setattr(release, "nearest_integer", lambda *given: calls.append(1) or decide(*given))
    fine = math.ldexp(1.0, -41)  # one draw in a hundred is open on such a grid
    values = np.linspace(-3, 3, 2_000)
    drawn = NoiseSource(6).add_gaussian(values, 1.0, grid=fine)
    assert 20 < len(calls) < 1500
    np.testing.assert_allclose(drawn, NoiseSource(6).add_gaussian(values, 1.0), atol=2 * grid_step(1.0))


# The grid


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("std", [1e-30, 3.7e-5, 1.0, 1.999, 2.0, 1e12])
def test_releases_are_multiples_of_the_public_step(std, dtype):
    step = grid_step(std)
    assert math.frexp(step)[0] == 0.5
    assert 2**20 <= std / step < 2**21
    values = (np.random.default_rng(0).normal(size=1000) * 5 * std).astype(dtype)
    steps = NoiseSource(2).add_gaussian(values, std).astype(np.float64) / step
    if dtype == np.float64:
        assert np.array_equal(steps, np.rint(steps))
        assert {int(k) % 2 for k in steps} == {0, 1}
    else:  # numbers below 2^24 steps need no more than the 24 bits of float32
        small = steps[np.abs(steps) < 2**24]
        assert np.array_equal(small, np.rint(small))


def test_the_step_depends_on_the_scale_and_the_dimension_only():
    for values in (np.zeros(9), np.full(9, 1e9), np.linspace(-1, 1, 9)):
        step = grid_step(0.3 * math.sqrt(10))
        released = NoiseSource(4).add_k_norm(values, 0.3) / step
        assert np.array_equal(released, np.rint(released))


def test_float32_results_are_rounded_from_float64_results():
    values = np.random.default_rng(1).normal(size=(300, 7)).astype(np.float32)
    wide = NoiseSource(8).add_gaussian(values.astype(np.float64), 1e-3)
    np.testing.assert_array_equal(NoiseSource(8).add_gaussian(values, 1e-3), wide.astype(np.float32))


@pytest.mark.parametrize("value", [2.0**53, 1e20, -1e300, 2.0**-1074, 1e-310, math.nextafter(1, 2)])
def test_extreme_values_are_rounded_correctly(value):
    # The ideal sum is computed in exact arithmetic, from the same bits.
    released = NoiseSource(9).add_gaussian(np.array([value]), 1.0)[0]
    draw = NoiseSource(9).normals(1, 1.0).real(0)
    for _ in range(4):
        draw.refine()
    step = Fraction(grid_step(1.0))
    low, high = (math.floor((Fraction(value) + end) / step + Fraction(1, 2)) for end in draw.bounds())
    assert low == high
    assert released == float(low * step)


def test_values_that_differ_by_less_than_the_grid_give_different_probabilities_and_the_same_support():
    for value in (0.0, 0.25, 0.5, 0.999):
        draws = NoiseSource(7).add_gaussian(np.full(200_000, value), 1.5, grid=1.0)
        assert set(np.unique(draws)) >= set(np.arange(-4.0, 6.0))
        assert stats.binomtest(int(np.sum(draws <= 0)), draws.size, stats.norm.cdf((0.5 - value) / 1.5)).pvalue > CHANCE


# Draws that are prepared, sizes, and errors


@pytest.mark.parametrize("size", [0, 1, 5, 1024, 1025, (1 << 15) + 3, PIECE + 1, 2 * PIECE + 7])
def test_every_number_gets_noise_of_its_own(size):
    released = NoiseSource(3).add_gaussian(np.zeros(size), 1.0)
    assert released.shape == (size,)
    assert np.mean(released == 0) < 0.5 if size else True
    assert np.unique(released).size >= 0.8 * size
    for other in (released[1:], released[7:], released[PIECE:]):
        if other.size > 100:
            assert np.mean(released[: other.size] == other) < 0.01


def test_prepared_draws_give_the_same_release(monkeypatch):
    values = np.linspace(-1, 1, 70_000)
    expected = NoiseSource(3).add_gaussian(values, 0.5)
    source = NoiseSource(3)
    prepared = source.normals(values.size, 0.5)
    np.testing.assert_array_equal(source.add_gaussian(values, 0.5, prepared=prepared), expected)


def test_what_was_not_prepared_is_drawn():
    source = NoiseSource(3)
    released = source.add_gaussian(np.zeros(10_000), 2.0, prepared=source.normals(4000, 2.0))
    assert abs(released[:4000].std() - 2) < 0.2
    assert abs(released[4000:].std() - 2) < 0.2
    assert np.unique(released).size > 9_900


def test_no_draws_can_be_prepared_for_an_empty_array():
    source = NoiseSource(3)
    prepared = source.normals(0, 2.0)
    assert len(prepared) == 0
    assert source.add_gaussian(np.zeros(0), 2.0, prepared=prepared).shape == (0,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", TYPES)
def test_values_that_are_not_finite_are_refused(bad, dtype):
    values = np.array([0.0, bad, 1.0], dtype=dtype)
    for add in (NoiseSource().add_gaussian, NoiseSource().add_k_norm):
        with pytest.raises(ValueError, match="finite numbers only"), np.errstate(invalid="ignore"):
            add(values, 1.0)


@pytest.mark.parametrize("grid", [0.0, -1.0, 3.0, 0.1, math.nan, math.inf])
def test_a_grid_must_be_a_power_of_two(grid):
    with pytest.raises(ValueError, match="power of two"):
        NoiseSource().add_gaussian(np.zeros(2), 1.0, grid=grid)


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_grids_have_at_most_2_to_the_42_steps_per_scale_and_the_reverse(scale):
    for bits in (-42, 42):
        assert release.checked_grid(scale, scale * 2.0**bits) == scale * 2.0**bits
    for bits in (-43, 43):
        with pytest.raises(ValueError, match="too fine or too coarse"):
            release.checked_grid(scale, scale * 2.0**bits)


def test_scales_lie_between_1e_minus_290_and_1e290():
    for scale in (1 / 1e290, 1e290):
        assert 2**20 <= scale / release.checked_grid(scale) < 2**21
    for scale in (math.nextafter(1 / 1e290, 0), math.nextafter(1e290, math.inf)):
        with pytest.raises(ValueError, match="cannot be drawn exactly"):
            release.checked_grid(scale)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, None])
def test_a_scale_that_is_not_positive_is_named(scale):
    with pytest.raises(ValueError, match=r"^scale must be"):
        release.checked_grid(scale)
    with pytest.raises(ValueError, match=r"^std must be"):
        release.checked_grid(scale, None, "std")


def test_the_norm_of_draws_has_the_error_of_the_proof():
    drawn = np.array([3.0, 4.0, 12.0])
    assert release.approximate_norm(drawn) == pytest.approx((13.0, math.sqrt(3) * 2.0**-47 + 2.0**-51 * 13), rel=1e-12)
    assert release.approximate_norm(np.zeros(1)) == (0.0, 2.0**-47)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_the_largest_float_are_infinite_with_their_sign(sign):
    assert release._multiple(sign * 2**40, 2.0**1000) == sign * math.inf
    assert release._multiple(sign * 2**1000, 2.0**-10) == sign * 2.0**990


def test_a_grid_that_is_too_fine_is_refused():
    with pytest.raises(ValueError, match="too fine or too coarse for noise of scale 1"):
        NoiseSource().add_gaussian(np.zeros(2), 1.0, grid=2.0**-43)


# K-norm noise


@pytest.mark.parametrize("error", [release.ERROR, 1.0], ids=["float", "exact"])
def test_k_norm_noise_in_one_dimension_has_the_cell_probabilities_of_laplace_noise(monkeypatch, error):
    monkeypatch.setattr(release, "ERROR", error)
    monkeypatch.setattr(release, "grid_step", lambda std: 1.0)
    release.checked_grid.cache_clear()
    source = NoiseSource(11)
    draws = np.array([source.add_k_norm(np.full(1, 0.375), 1.5)[0] for _ in range(1500 if error == 1 else 30_000)])
    edges = np.arange(-12, 13) + 0.5
    below = stats.laplace.cdf(edges, loc=0.375, scale=1.5)
    counts = np.bincount(np.clip(draws, -12, 13).astype(int) + 12, minlength=26)
    assert_cells(counts, np.diff(below, prepend=0.0, append=1.0))
    release.checked_grid.cache_clear()


def test_approximate_draws_for_a_tilt_come_with_a_bound_on_their_error():
    for draw, scale in (("real_gaussian", 3.0), ("real_k_norm", 0.2)):
        values, error = getattr(NoiseSource(2), draw)((40, 3), scale)
        assert values.shape == (40, 3)
        assert 0 < error < 1e-11 * np.linalg.norm(values)


def test_the_error_of_approximate_gaussian_draws_is_what_it_is_said_to_be():
    values, error = NoiseSource(2).real_gaussian((50,), 3.0)
    drawn = NoiseSource(2)._normals().take(50)
    squares = Fraction(0)
    for position, value in enumerate(values):
        low, high = drawn.real(position).bounds()
        squares += max(abs(Fraction(value) - 3 * low), abs(Fraction(value) - 3 * high)) ** 2
    assert squares < Fraction(error) ** 2
