import math
from fractions import Fraction

import numpy as np
import pytest

from privet.federated import updates
from privet.federated.updates import UpdateSum, clipped


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-101, 1e-3, 1.0, 1e10, 1e99, 1e101, 1e200, 1.7e308])
@pytest.mark.parametrize("clip_norm", [1e-6, 1.0, 1e6])
def test_clipping_holds_for_the_smallest_and_the_largest_numbers(scale, clip_norm):
    generator = np.random.default_rng(3)
    for _ in range(20):
        v = scale * generator.uniform(-1, 1, 50)
        found = clipped(v, clip_norm)
        assert np.linalg.norm(found) <= clip_norm * (1 + 1e-14)
        if scale >= 1e10:
            assert np.linalg.norm(found) >= clip_norm * (1 - 1e-14)  # scaled down, not set to zero
        if scale <= 1e-300:
            assert np.array_equal(found, v)


def test_a_vector_within_the_clipping_norm_is_unchanged():
    v = np.array([0.6, 0.8])
    assert np.array_equal(clipped(v, 1.0), v)
    assert np.array_equal(clipped(np.zeros(3), 1.0), np.zeros(3))
    assert clipped(np.zeros(0), 1.0).size == 0


@pytest.mark.parametrize("unit", [1e-170, 1e-99, 1.0, 1e99, 1e170])
def test_clipping_holds_if_squares_overflow_or_underflow(unit):
    assert np.allclose(
        clipped(unit * np.array([3.0, 4.0]), 1e-10 * unit) / unit, [0.6e-10, 0.8e-10], rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("entry", [1e30, 8e32, 2e48, 1e90])
@pytest.mark.parametrize("clip_norm", [1e-300, 1.88e-290, 4.2e-274])
def test_a_tiny_clipping_norm_holds_for_huge_updates(entry, clip_norm):
    """Their ratio is subnormal. As a single factor it would be wrong by several per cent."""
    found = clipped(np.full(10, entry), clip_norm)
    assert np.linalg.norm(found / clip_norm) == pytest.approx(1.0, rel=1e-9)


def test_one_more_update_moves_the_sum_by_at_most_the_clipping_norm_in_exact_arithmetic():
    """The running sum hovers at a power of two, and one more update at the start pushes all later sums across it."""
    clip_norm, n = 0.3, 4096
    for size in (1, 3):
        updates = np.full((n, size), 2 * clip_norm)
        updates[n // 2 + 1 :: 2] *= -1
        updates[n // 2 :] *= 1 + np.random.default_rng(0).uniform(0, 1e-9, (n // 2, 1))
        sums = []
        for first in (0, 1):
            found = UpdateSum(size, clip_norm)
            for update in updates[first:]:
                found.add(update)
            sums.append([Fraction(float(value)) for value in found.total()])
        square = sum((one - other) ** 2 for one, other in zip(*sums, strict=True))
        assert (Fraction(clip_norm) * Fraction(0.999985)) ** 2 <= square <= Fraction(clip_norm) ** 2


def test_sums_of_many_updates_are_those_of_single_blocks():
    generator = np.random.default_rng(1)
    updates = generator.normal(size=(3000, 4)) * 0.01
    found = UpdateSum(4, 10.0)
    for update in updates:
        found.add(update)
    assert np.allclose(found.total(), [math.fsum(column) for column in updates.T], rtol=0, atol=1e-12)


def test_a_factor_below_the_normal_range_makes_an_update_zero():
    assert np.array_equal(clipped(np.full(100, 1e300), 1e-307), np.zeros(100))


def error_of_a_sum(n):
    """Return the bound of docs/proofs.md, section 24, on the rounding error of n vectors of norm 1 in any order."""
    return n * (2 * n + 8) / 3 * 2.0**-53


def test_the_room_for_rounding_errors_covers_the_longest_sum():
    """Blocks err as sums of their updates, and the total as a sum of its blocks. Both neighbours err."""
    block, longest = updates._BLOCK, updates._LARGEST_SUM
    blocks = longest // block
    error = blocks * error_of_a_sum(block) + block * error_of_a_sum(blocks)
    assert updates.ROOM * (1 + 1e-8 + 2 * error) <= 1
    assert longest == 2**22  # as the guarantee of the server states


def test_more_updates_than_the_error_bound_covers_are_refused(monkeypatch):
    monkeypatch.setattr(updates, "_LARGEST_SUM", 3)
    found = UpdateSum(2, 1.0)
    for _ in range(3):
        found.add(np.array([0.1, 0.0]))
    with pytest.raises(ValueError, match="More than 3 clients"):
        found.add(np.array([0.1, 0.0]))


def test_sums_are_added_up_in_blocks(monkeypatch):
    """The total is that of the blocks before, plus the updates since, and asking for it changes nothing."""
    monkeypatch.setattr(updates, "_BLOCK", 3)
    found = UpdateSum(1, 1e30)
    given = [1e16, 1.0, 1.0, 1.0, 0.0, 0.0, -1e16, 0.25]
    totals = []
    for update in given:
        found.add(np.array([update]))
        totals.append(float(found.total()[0]))
        assert float(found.total()[0]) == totals[-1]
    first, second = (1e16 + 1.0) + 1.0, 1.0  # each sum of 1e16 and 1 is rounded to 1e16
    assert totals[2] == first
    assert totals[5] == first + second
    assert totals[7] == (first + second) + (-1e16 + 0.25)


@pytest.mark.parametrize("clip_norm", [1e-120, 1e-99, 1.0])
@pytest.mark.parametrize("length", [1e-99, 1e-101, 1e-130, 1.0, 1e99, 1e101])
def test_clipped_vectors_keep_their_direction_and_have_the_clipping_norm(clip_norm, length):
    vector = length * np.array([0.6, 0.0, -0.8])
    found = clipped(vector, clip_norm)
    expected = vector if length <= clip_norm else clip_norm * np.array([0.6, 0.0, -0.8])
    np.testing.assert_allclose(found / min(length, clip_norm), expected / min(length, clip_norm), rtol=1e-12)


def test_the_smallest_normal_factor_is_used():
    tiny = float(np.finfo(np.float64).tiny)
    assert clipped(np.array([1e300, 0.0]), tiny).tolist() == [tiny, 0.0]
    assert clipped(np.array([1e300, 0.0]), tiny / 2).tolist() == [0.0, 0.0]
