import math
from fractions import Fraction

import numpy as np
import pytest

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
        assert (Fraction(clip_norm) * Fraction(0.9999)) ** 2 <= square <= Fraction(clip_norm) ** 2


def test_sums_of_many_updates_are_those_of_single_blocks():
    generator = np.random.default_rng(1)
    updates = generator.normal(size=(3000, 4)) * 0.01
    found = UpdateSum(4, 10.0)
    for update in updates:
        found.add(update)
    assert np.allclose(found.total(), [math.fsum(column) for column in updates.T], rtol=0, atol=1e-12)


def test_a_factor_below_the_normal_range_makes_an_update_zero():
    assert np.array_equal(clipped(np.full(100, 1e300), 1e-307), np.zeros(100))
