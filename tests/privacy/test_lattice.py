"""The law of noise made from fair bits, and the privacy that it gives."""

import math
from fractions import Fraction
from itertools import accumulate

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import norm

from privet.privacy import Adjacency, NoiseSource, gdp_epsilon
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.events import Composition, GaussianRelease, NearlyGaussian, PoissonGaussian, event_from_dict
from privet.privacy.noise import lattice
from privet.privacy.noise.lattice import LatticeLaw, _check_log_concave, rounded, rounded_shift

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE


def by_hand(law):
    """Return the law as exact fractions of 2^bits_drawn, computed one bit at a time."""
    counts = [1]
    for weight in law.weights().tolist():
        longer = counts + [0] * weight
        for place, number in enumerate(counts):
            longer[place + weight] += number
        counts = longer
    return counts


@pytest.mark.parametrize("law", [LatticeLaw(3, 2, 1), LatticeLaw(12, 2, 3), LatticeLaw(40, 4, 4), LatticeLaw(90, 6, 3)])
def test_the_law_is_that_of_its_bits(law):
    counts = by_hand(law)
    assert len(counts) == 2 * law.reach + 1
    exact = np.array([math.log(number) for number in counts]) - law.bits_drawn * math.log(2)
    np.testing.assert_allclose(np.log(law.masses()), exact, rtol=0, atol=1e-10)
    values = np.arange(-law.reach, law.reach + 1)
    assert law.masses() @ values == pytest.approx(0, abs=1e-9)
    assert law.masses() @ values**2 == pytest.approx(law.std**2, rel=1e-12)


def hockey_stick(p, q, eps):
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


def shifted(masses, shift):
    moved = np.zeros_like(masses)
    moved[shift:] = masses[: masses.size - shift]
    return moved


@settings(max_examples=60, deadline=None)
@given(
    coarse=st.integers(20, 120),
    bits=st.integers(2, 6),
    share=st.floats(0.01, 2.0),
    tail=st.sampled_from([1e-2, 1e-4, 1e-6]),
    eps=st.floats(-1.0, 3.0),
)
def test_one_coordinate_keeps_within_its_claimed_profile(coarse, bits, share, tail, eps):
    law = LatticeLaw(coarse, 6, bits)
    step, distance = law.comparison(tail)
    assert distance <= tail
    masses = np.pad(law.masses(), (0, 4 * law.reach))
    shift = max(1, round(share * law.std))
    mu = step * shift
    profile = norm.cdf(-eps / mu + mu / 2) - math.exp(eps) * norm.cdf(-eps / mu - mu / 2)
    allowed = profile + distance * (1 + math.exp(eps))
    moved = shifted(masses, shift)
    assert hockey_stick(masses, moved, eps) <= allowed + 1e-12
    assert hockey_stick(moved, masses, eps) <= allowed + 1e-12


@pytest.mark.parametrize("shifts", [(7, 0), (5, 5), (1, 7), (3, -4)])
@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0])
def test_two_coordinates_keep_within_their_claimed_profile(shifts, eps):
    law = LatticeLaw(30, 6, 2)
    step, distance = law.comparison(1e-3)
    one, other = (np.pad(law.masses(), 10) for _ in shifts)
    moved = np.multiply.outer(*(np.roll(np.pad(law.masses(), 10), shift) for shift in shifts))
    together = np.multiply.outer(one, other)
    mu = step * math.hypot(*shifts)
    profile = norm.cdf(-eps / mu + mu / 2) - math.exp(eps) * norm.cdf(-eps / mu - mu / 2)
    assert hockey_stick(together, moved, eps) <= profile + 2 * distance * (1 + math.exp(eps))


def test_the_comparison_is_tight():
    """A Gaussian of the same std has steps of 1/std, and those of the default law are only a few percent longer."""
    law = LatticeLaw()
    step, _ = law.comparison(1e-9)
    assert 1 / law.std < step < 1.05 / law.std
    fine = LatticeLaw(800, 6, 8)
    assert fine.comparison(1e-9)[0] * fine.std < 1.013
    # and the whole line of steps, by their definition
    masses = law.masses()
    below = np.cumsum(masses)
    inner = (below > 1e-9) & (below < 0.5)
    assert np.diff(ndtri(below[inner])).max() <= step


@pytest.mark.parametrize(("law", "tail"), [(LatticeLaw(20, 6, 3), 1e-4), (LatticeLaw(90, 6, 3), 1e-9)])
def test_the_comparison_is_rounded_up(law, tail):
    """Both numbers are at least the exact ones, which need more digits than floating point has."""
    step, distance = law.comparison(tail)
    upper = by_hand(law)[law.reach :]
    survival = list(accumulate(upper[::-1]))[::-1]  # 2^bits_drawn times P(X >= x)
    total = 1 << law.bits_drawn
    inside = next(x for x, mass in enumerate(survival) if 2 * mass <= Fraction(tail) * total)
    assert Fraction(distance) >= Fraction(2 * survival[inside], total)
    with mpmath.workdps(40):

        def z(mass):  # where a standard normal exceeds with this probability
            return mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(mass) / total)

        exact = max(upper[x] / (total * mpmath.npdf(z(survival[x + 1]))) for x in range(inside))
        assert exact <= step <= exact * (1 + mpmath.mpf("2e-9"))


@pytest.mark.parametrize(("law", "tail"), [(LatticeLaw(20, 6, 3), 1e-4), (LatticeLaw(9, 6, 2), 0.3)])
def test_no_step_of_a_geometric_tail_is_longer_than_those_before_it(law, tail):
    """The law of the comparison continues with a constant ratio, so that its steps can be computed one by one."""
    step, _ = law.comparison(tail)
    upper = law.masses()[law.reach :]
    survival = np.cumsum(upper[::-1])[::-1]
    inside = int(np.flatnonzero(survival <= tail / 2)[0])
    ratio = survival[inside] / survival[inside - 1]
    beyond = survival[inside] * ratio ** np.arange(20)  # P(X >= x) for x = inside, inside + 1, ...
    assert np.diff(norm.isf(beyond)).max() < step


def test_tails_heavier_than_geometric_are_refused(monkeypatch):
    """A law that falls fast and then has a plateau: a geometric tail of the same mass would not be log-concave."""
    upper = np.array([0.3, 0.2, 0.05, *[0.004] * 25])
    monkeypatch.setattr(lattice, "_masses", lambda law: np.concatenate([upper[:0:-1], upper]))
    monkeypatch.setattr(lattice, "_check_log_concave", lambda law, until: None)
    law = LatticeLaw(3, 2, 4)
    assert law.reach >= upper.size - 1
    monkeypatch.setattr(LatticeLaw, "reach", upper.size - 1)
    lattice._comparison.cache_clear()
    with pytest.raises(ValueError, match="tails heavier than geometric beyond 3"):
        law.comparison(0.21)
    lattice._comparison.cache_clear()


def test_twice_the_step_would_be_refuted():
    """The bound is tight: a law that is half as wide violates it."""
    law, narrow = LatticeLaw(60, 6, 4), LatticeLaw(60, 6, 3)
    step, distance = law.comparison(1e-6)
    shift, eps = round(law.std), 1.0
    mu = step * shift
    profile = norm.cdf(-eps / mu + mu / 2) - math.exp(eps) * norm.cdf(-eps / mu - mu / 2)
    masses = np.pad(narrow.masses(), (0, 4 * narrow.reach))
    assert hockey_stick(masses, shifted(masses, shift), eps) > profile + distance * (1 + math.exp(eps))


@pytest.mark.parametrize(("law", "tail"), [(LatticeLaw(200, 2, 8), 1e-6), (LatticeLaw(200, 4, 8), 1e-10)])
def test_laws_that_are_not_log_concave_are_refused(law, tail):
    """Between steps of 2^bits they have bumps, which a shift reveals although the distribution function does not."""
    with pytest.raises(ValueError, match="not log-concave"):
        law.comparison(tail)


@pytest.mark.parametrize(
    "law", [LatticeLaw(12, 2, 3), LatticeLaw(9, 4, 3), LatticeLaw(20, 2, 2), LatticeLaw(3, 6, 4), LatticeLaw(1, 2, 1)]
)
def test_laws_are_log_concave_up_to_the_first_bump_and_not_further(law):
    counts = [0, *by_hand(law), 0]
    bumps = [
        x
        for x in range(law.reach + 1)
        if counts[law.reach + x] * counts[law.reach + x + 2] >= counts[law.reach + x + 1] ** 2
    ]
    for until in bumps[:3]:
        with pytest.raises(ValueError, match="not log-concave"):
            _check_log_concave(law, until)
    _check_log_concave(law, min(bumps, default=law.reach + 1) - 1)


@pytest.mark.parametrize("tail", [1.0, 1e-300, 0.0])
def test_tails_that_contain_the_whole_law_are_refused(tail):
    with pytest.raises(ValueError, match="tail"):
        LatticeLaw(20, 6, 3).comparison(tail)


@pytest.mark.parametrize(
    "wrong", [{"coarse": 0}, {"fine": 3}, {"fine": 0}, {"bits": 0}, {"bits": 20}, {"coarse": 10**6}, {"bits": 1.5}]
)
def test_impossible_laws_are_refused(wrong):
    with pytest.raises(ValueError):
        LatticeLaw(**wrong)


def test_a_law_may_reach_as_far_as_it_can_be_tabulated():
    assert LatticeLaw(2**23 - 1, 2, 1).reach == 2**23
    with pytest.raises(ValueError, match="too wide to be tabulated"):
        LatticeLaw(2**23, 2, 1)


def test_the_default_law_has_six_uniforms_of_ten_bits():
    """Results state the noise of the default law, which must not change unnoticed."""
    assert LatticeLaw() == LatticeLaw(coarse=200, fine=6, bits=10)
    assert LatticeLaw().bits_drawn == 260


def test_masses_cannot_be_changed_by_who_reads_them():
    """They are kept for the next time."""
    with pytest.raises(ValueError, match="read-only"):
        LatticeLaw(3, 2, 1).masses()[0] = 1.0


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, list])
def test_values_of_every_type_are_rounded_in_double_precision(kind):
    values = np.array([1000.5, -77.25, 3.0, 2047.0])
    values = np.floor(values) if kind is np.int32 else values
    given = values.tolist() if kind is list else values.astype(kind)
    expected = [round(Fraction(float(value)) * Fraction(1234.567)) for value in values]
    found = rounded(given, 1234.567)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_tails_must_leave_some_of_the_law_on_both_sides():
    law = LatticeLaw(20, 6, 3)
    masses = law.masses()
    survival = np.cumsum(masses[::-1])[::-1][law.reach :]  # P(X >= x) for x = 0, 1, ...
    step, distance = law.comparison(2 * survival[2])
    assert distance == pytest.approx(2 * survival[2], rel=1e-8)
    assert step > 1 / (2 * law.std)
    for tail in (min(1.0, 2 * survival[1]), 2 * survival[0]):
        with pytest.raises(ValueError, match="tail"):
            law.comparison(min(tail, 1.0))


def test_rounding_is_part_of_the_shift():
    rng = np.random.default_rng(0)
    for _ in range(300):
        dimension, scale = int(rng.integers(1, 9)), float(rng.uniform(0.01, 50))
        one = rng.normal(size=dimension) * 10
        move = rng.normal(size=dimension)
        move *= 2.0 / np.linalg.norm(move)
        moved = rounded(one + move, scale) - rounded(one, scale)
        assert np.linalg.norm(moved) <= rounded_shift(2.0, scale, dimension, 1e4 * scale)
    # and it is attained: all coordinates cross a boundary at once
    values = np.full(100, 0.4999)
    moved = rounded(values + 0.0002, 1.0) - rounded(values, 1.0)
    assert np.linalg.norm(moved) == 10 > 0.98 * rounded_shift(0.002, 1.0, 100, 1.0)


class TestAccounting:
    def test_without_a_distance_it_is_a_gaussian(self):
        assert epsilon(NearlyGaussian(0.3, 0.0), REPLACE, 1e-5) == gdp_epsilon(0.3, 1e-5)

    def test_a_distance_costs_delta(self):
        found = epsilon(NearlyGaussian(0.3, 1e-6), REPLACE, 1e-5)
        exact = gdp_epsilon(0.3, 1e-5)
        assert exact < found
        assert found == pytest.approx(gdp_epsilon(0.3, 1e-5 - 1e-6 * (1 + math.exp(found))), rel=1e-6)
        assert found >= gdp_epsilon(0.3, 1e-5 - 1e-6 * (1 + math.exp(found)))

    @pytest.mark.parametrize("distance", [5e-6, 1e-5, 0.1])
    def test_a_distance_as_large_as_delta_leaves_nothing(self, distance):
        assert epsilon(NearlyGaussian(0.3, distance), REPLACE, 1e-5) == math.inf
        assert epsilon(NearlyGaussian(0.3, 1e-9), REPLACE, 0.0) == math.inf

    def test_parts_add_up(self):
        parts = (NearlyGaussian(0.3, 1e-7), NearlyGaussian(0.4, 2e-7), GaussianRelease(1.2))
        both = epsilon(Composition(parts), REPLACE, 1e-5)
        assert both == pytest.approx(epsilon(NearlyGaussian(1.3, 3e-7), REPLACE, 1e-5), rel=1e-9)

    def test_beside_sampled_releases(self):
        other = PoissonGaussian(1.0, 0.01, 100)
        exact = epsilon(Composition((other, GaussianRelease(0.2))), ADD, 1e-5)
        near = epsilon(Composition((other, NearlyGaussian(0.2, 1e-8))), ADD, 1e-5)
        assert exact <= near < 1.01 * exact

    def test_a_dictionary_restores_the_event(self):
        event = NearlyGaussian(0.3, 1e-7)
        assert event_from_dict(event.to_dict()) == event


def test_the_shift_allows_for_the_rounding_of_products():
    """Near 2^50, products with the scale are rounded to eighths, so that a sum moves by more than 1 beyond its move."""
    scale, one, other = 3.1, 363193518335842.75, 363193518335855.94
    moved = abs(rounded(np.array([other]), scale) - rounded(np.array([one]), scale)).item()
    assert moved > (Fraction(other) - Fraction(one)) * Fraction(scale) + Fraction(11, 10)
    assert moved <= rounded_shift(other - one, scale, 1, 2.0**50)
    for sensitivity, dimension in ((1.7, 1), (1e-3, 4)):
        per_coordinate = 1 + Fraction(2**50) / 2**52
        exact = Fraction(sensitivity) * Fraction(scale) + math.isqrt(dimension) * per_coordinate
        found = Fraction(rounded_shift(sensitivity, scale, dimension, 2.0**50))
        assert exact <= found <= exact * (1 + Fraction(1, 10**11))


def test_every_coordinate_draws_its_own_bits():
    law = LatticeLaw(4, 2, 8)
    drawn = NoiseSource(1).lattice(400, law) + law.reach
    assert len(np.unique(drawn % (1 << law.bits))) > 100  # the fine bits
    assert len(np.unique(drawn >> law.bits)) == law.coarse + law.fine  # with the carries of the fine bits
