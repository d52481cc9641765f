"""Decimal numbers that are rounded outwards: their precision and their range."""

import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest

from privet.privacy.noise import enclosures


@pytest.mark.parametrize("bits", [1, 64, 128, 1000, 100_000])
def test_contexts_have_thirty_digits_more_than_the_bits_and_hardly_more(bits):
    for context in enclosures.directed(bits):
        assert 29 <= context.prec - bits * math.log10(2) <= 32 + bits / 1000


@pytest.mark.parametrize("value", [-(10**8), -2, 3, 10**8])
def test_exponentials_far_out_of_the_range_of_floats_are_enclosed(value):
    """Probabilities such as (1 - rate)^n are so small, and an underflow to 0 would lose them."""
    down, up = enclosures.directed(64)
    lower, upper = (enclosures.exp(Decimal(value), context) for context in (down, up))
    assert 0 < lower < upper < Decimal("Infinity")
    assert up.divide(up.subtract(upper, lower), lower) < Decimal("1e-45")
    with mpmath.workdps(100):
        assert mpmath.mpf(str(lower)) < mpmath.exp(value) < mpmath.mpf(str(upper))


def test_the_logarithm_of_zero_is_below_all_numbers():
    assert enclosures.log(Decimal(0), enclosures.directed(64)[0]) == Decimal("-Infinity")


def test_quotients_are_rounded_in_the_direction_of_their_context():
    down, up = enclosures.directed(64)
    for one, other in ((1, 3), (-1, 3), (2, 7)):
        lower, upper = (Fraction(context.divide(Decimal(one), Decimal(other))) for context in (down, up))
        assert lower < Fraction(one, other) < upper
