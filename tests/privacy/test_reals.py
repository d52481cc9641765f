import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from privet.privacy.noise.reals import (
    LazyNorm,
    LazyUniform,
    LinearDraw,
    TailDraw,
    exponential,
    logarithm,
    nearest_integer,
    pi,
    square_root,
)

HALF = Fraction(1, 2)


def scripted(*words):
    left = list(words)
    return lambda: left.pop(0)


def no_bits():
    raise AssertionError("a decision drew bits that it did not need")


@pytest.mark.parametrize("bits", [64, 128, 300])
@pytest.mark.parametrize("x", [Fraction(1), Fraction(1, 3), Fraction(2**64 - 1, 2**64), Fraction(1, 2**70)])
def test_functions_are_enclosed_tightly(x, bits):
    for bounds, value in (
        (exponential(-x, bits), math.exp(-x)),
        (logarithm(x, bits), math.log(x)),
        (square_root(x, bits), math.sqrt(x)),
        (pi(bits), math.pi),
    ):
        low, high = bounds
        assert low <= high
        assert high - low < Fraction(100, 1 << bits)
        assert low - Fraction(1, 10**14) < Fraction(value) < high + Fraction(1, 10**14)


def test_pi_is_the_limit_of_a_series_with_alternating_terms():
    # Euler's arctan(1/2) + arctan(1/3) = pi/4, summed exactly: partial sums enclose the limit.
    sums = [
        4
        * sum(
            Fraction((-1) ** k, 2 * k + 1) * (Fraction(1, 2) ** (2 * k + 1) + Fraction(1, 3) ** (2 * k + 1))
            for k in range(terms)
        )
        for terms in (80, 81)
    ]
    low, high = pi(100)
    assert min(sums) - Fraction(1, 2**100) < low < high < max(sums) + Fraction(1, 2**99)


def test_a_clear_case_is_decided_without_further_bits():
    draw = LinearDraw(Fraction(0), Fraction(1), LazyUniform(3, 4, no_bits))  # in [3/16, 4/16]
    assert nearest_integer(Fraction(5), Fraction(1), draw) == 5
    assert nearest_integer(Fraction(-5), Fraction(-4), draw) == -6  # -5 - [3/4, 1]


@pytest.mark.parametrize(("word", "nearest"), [(0, 0), (2**63 - 1, 0), (2**63, 1), (2**64 - 1, 1)])
def test_a_case_at_a_boundary_is_decided_by_further_bits(word, nearest):
    # The number lies in [1/4, 3/4], and the boundary of rounding at 1/2.
    draw = LinearDraw(Fraction(1, 4), HALF, LazyUniform(0, 0, scripted(word, 1)))
    assert nearest_integer(Fraction(0), Fraction(1), draw) == nearest


def test_decisions_have_the_probabilities_of_the_real_number():
    # A uniform number in [0, 1), times 3, shifted: each of 2^8 words of one byte decides or needs another one.
    shift, factor = Fraction(1, 7), Fraction(3)
    lower = {value: Fraction(0) for value in range(5)}
    undecided = Fraction(0)
    for known in range(256):
        ends = [math.floor(shift + factor * Fraction(known + step, 256) + HALF) for step in (0, 1)]
        if ends[0] == ends[1]:
            place = LazyUniform(known, 8, no_bits)
            assert nearest_integer(shift, factor, LinearDraw(Fraction(0), Fraction(1), place)) == ends[0]
            lower[ends[0]] += Fraction(1, 256)
        else:
            undecided += Fraction(1, 256)
    exact = {
        0: (HALF - shift) / 3,
        1: Fraction(1, 3),
        2: Fraction(1, 3),
        3: 1 - Fraction(2, 3) - (HALF - shift) / 3,
        4: 0,
    }
    for value, probability in exact.items():
        assert lower[value] <= probability <= lower[value] + undecided


def test_a_tail_draw_is_finite_although_its_first_bits_are_zero():
    draw = TailDraw(-1, Fraction(4), LazyUniform(0, 64, scripted(0, 5)))
    low, high = draw.bounds()
    assert draw.place.bits == 192
    x = math.sqrt(16 - 2 * (math.log(5) - 192 * math.log(2)))
    assert float(low) <= -x * (1 - 0.02)
    assert float(high) >= -x * (1 + 0.02)
    assert low < high < -4


def test_the_norm_is_enclosed_even_if_an_entry_has_no_sign_yet():
    around_zero = LinearDraw(Fraction(-1), Fraction(2), LazyUniform(0, 0, scripted(2**63, 0)))
    three = LinearDraw(Fraction(3), Fraction(0), LazyUniform(0, 0, scripted(0, 0)))
    norm = LazyNorm([around_zero, three])
    low, high = norm.bounds()
    assert low <= 3
    assert 10 <= high**2 < 10 + 1e-9
    norm.refine()
    low, high = norm.bounds()
    assert 3 - 1e-9 < low < high < 3 + 1e-9


def test_products_of_draws_are_rounded_as_their_values_are():
    generator = np.random.default_rng(0)
    for one, other in generator.uniform(-9, 9, (200, 2)):
        draws = [LinearDraw(Fraction(value), Fraction(1, 2**40), LazyUniform(1, 1, no_bits)) for value in (one, other)]
        assert nearest_integer(Fraction(0.25), Fraction(3), *draws) == round(0.25 + 3 * one * other)


# --- enclosures, compared with many more digits than they have ------------------------------------------------------


def exact(x):
    """Return a fraction as an mpmath number."""
    return mpmath.mpf(x.numerator) / x.denominator


@pytest.mark.parametrize("bits", [64, 128, 300])
@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(6, 7), Fraction(2**64 - 1, 2**64), Fraction(3, 2**70)])
def test_bounds_of_functions_lie_on_both_sides_of_the_exact_number(x, bits):
    with mpmath.workprec(4 * bits + 500):
        for (low, high), value in (
            (exponential(-x, bits), mpmath.exp(-exact(x))),
            (exponential(-100 * x, bits), mpmath.exp(-100 * exact(x))),
            (logarithm(x, bits), mpmath.log(exact(x))),
            (square_root(x, bits), mpmath.sqrt(exact(x))),
            (pi(bits), mpmath.pi),
        ):
            assert exact(low) < value < exact(high)


@pytest.mark.parametrize("bits", [64, 300])
def test_bounds_are_as_far_apart_as_stated(bits):
    low, high = square_root(Fraction(2), bits)
    assert high - low == Fraction(1, 1 << bits)
    low, high = pi(bits)
    assert high - low == Fraction(2, 1 << bits)


def test_a_perfect_square_has_its_root_as_a_bound():
    assert square_root(Fraction(9, 4), 64)[0] == Fraction(3, 2)
    assert square_root(Fraction(0), 64)[0] == 0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("known", [1, 2**40 + 3, 2**63, 2**64 - 2])
def test_a_tail_draw_is_enclosed_where_its_roundings_matter_most(sign, known):
    """The edges are such that one end of the interval is almost a multiple of 2^-64, to which square roots go."""
    for end, beside in ((known + 1, -1), (known, 1)):
        with mpmath.workdps(200):
            log_end = mpmath.log(mpmath.mpf(end) / 2**64)
            edge = mpmath.sqrt((16 + mpmath.mpf(7) / 2**64 + beside * mpmath.mpf(10) ** -120) ** 2 + 2 * log_end)
            edge = Fraction(int(edge * 2**500), 2**500)
            near, far = (
                mpmath.sqrt(exact(edge) ** 2 - 2 * mpmath.log(mpmath.mpf(place) / 2**64))
                for place in (known + 1, known)
            )
            low, high = TailDraw(sign, edge, LazyUniform(known, 64, no_bits)).bounds()
            inner, outer = (low, high) if sign > 0 else (-high, -low)
            assert exact(inner) < near < far < exact(outer)
            assert exact(outer) - exact(inner) < far - near + mpmath.mpf(4) / 2**64


def constant(value):
    return LinearDraw(Fraction(value), Fraction(0), LazyUniform(0, 0, lambda: 0))


def test_a_norm_becomes_more_precise_with_each_refinement():
    """Otherwise a decision that needs more digits of the norm would never end."""
    norm = LazyNorm([constant(1), constant(-1)])
    for bits in (128, 192, 256):
        low, high = norm.bounds()
        assert low**2 < 2 < high**2
        assert high - low == Fraction(1, 1 << bits)
        norm.refine()


@pytest.mark.parametrize(
    ("base", "slope", "least", "most"),
    [(HALF, 2, HALF, Fraction(5, 2)), (-HALF, -2, HALF, Fraction(5, 2)), (-1, 3, 0, 2)],
)
def test_the_norm_of_one_number_is_its_absolute_value(base, slope, least, most):
    number = LinearDraw(Fraction(base), Fraction(slope), LazyUniform(0, 0, no_bits))
    low, high = LazyNorm([number]).bounds()
    assert least - Fraction(1, 2**100) < low <= least
    assert most <= high < most + Fraction(1, 2**100)
