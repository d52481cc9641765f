"""Integer noise with pure epsilon: the law of its bits, its epsilon for all residues and shifts, and its draws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2, gamma, kstest

from privet.privacy import NoiseSource
from privet.privacy.noise import laplace, release
from privet.privacy.noise.bits import Keystream
from privet.privacy.noise.k_norm import KNormLaw, integers
from privet.privacy.noise.laplace import BinaryLaplace, ratio
from privet.privacy.noise.law import Bits
from privet.privacy.noise.normals import NormalStream

RARE = 1e-6  # probability that a correct distribution fails a test
CHANCES = [
    ((1, 1),),
    ((7, 4), (3, 4)),
    ((1, 1), (3, 3), (1, 3)),
    ((15, 5), (7, 4), (1, 2), (1, 4)),
    ((3, 8), (1, 1), (1, 6)),
]


def wrapped(chances, modulus, reset):
    """Return the exact probability of each residue, by adding one pair of bits after the other."""
    masses = [Fraction(1, modulus << reset) if reset is not None else Fraction(0)] * modulus
    masses[0] += 1 - (Fraction(1, 1 << reset) if reset is not None else 0)
    for level, (ones, digits) in enumerate(chances):
        one = Fraction(ones, 1 << digits)
        for weight, chance in ((1 << level, one), (-(1 << level), one)):
            masses = [(1 - chance) * masses[x] + chance * masses[(x - weight) % modulus] for x in range(modulus)]
    assert sum(masses) == 1
    return masses


def worst(masses, shift=1):
    """Return the largest ratio of the probabilities of residues that are ``shift`` apart, or infinity."""
    pairs = [(each, masses[(place + shift) % len(masses)]) for place, each in enumerate(masses)]
    if any((one == 0) != (other == 0) for one, other in pairs):
        return math.inf
    return max(max(one / other, other / one) for one, other in pairs if one)


def calibrated(levels, modulus, reset):
    """Return the probabilities that the package would choose for a small modulus."""
    chances, bound = [], ratio((), modulus, reset)
    for _ in range(levels):
        chances.insert(0, laplace._cheapest(bound))
        bound = ratio(chances, modulus, reset)
    return chances


# -------------------------------------------------------------------------------------------------------- Laplace noise


@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize("modulus", [5, 8, 13, 31, 64])
@pytest.mark.parametrize("reset", [1, 3, 8])
def test_no_residue_and_no_shift_exceeds_the_claimed_ratio(chances, modulus, reset):
    masses, bound = wrapped(chances, modulus, reset), ratio(chances, 64, reset)
    for shift in range(1, modulus // 2 + 1):
        assert worst(masses, shift) <= bound**shift


@pytest.mark.parametrize(("modulus", "reset", "levels"), [(61, 6, 4), (101, 8, 5), (256, 12, 6)])
def test_the_claimed_ratio_is_nearly_attained(modulus, reset, levels):
    chances = calibrated(levels, modulus, reset)
    claimed, attained = ratio(chances, modulus, reset), worst(wrapped(chances, modulus, reset))
    assert attained <= claimed
    assert math.log(attained) > 0.99 * math.log(claimed)


def test_without_wrapping_or_with_a_digit_that_never_occurs_nothing_is_promised():
    chances = calibrated(4, 61, 6)
    assert worst(wrapped(chances, 1 << 10, None)) == math.inf  # results beyond the reach tell neighbours apart
    assert worst(wrapped(chances, 1 << 10, 6)) < math.inf
    for wrong in ((0, 8), (256, 8), (2, 8)):
        with pytest.raises(ValueError, match="with ones odd and between"):
            Bits((1,), *wrong)
        with pytest.raises(ValueError, match="with ones odd and between"):
            BinaryLaplace(((1, 1), wrong))


@pytest.mark.parametrize("levels", [1, 8, 18, 30])
def test_the_law_is_almost_as_narrow_as_an_ideal_laplace_law_and_needs_few_bits(levels):
    law = BinaryLaplace.of_width(levels)
    assert len(law.chances) == levels
    assert law.reach == 2**levels - 1
    assert all(0 < ones / 2**digits <= 0.5 for ones, digits in law.chances)
    assert law.recipe().bits_drawn < 500
    if levels >= 8:
        ratio_of_ideal = 1 / math.exp(law.epsilon)
        ideal = math.sqrt(2 * ratio_of_ideal) / (1 - ratio_of_ideal)
        assert 1 < law.std / ideal < 1.02
    exact = ratio(law.chances)
    assert math.log1p(float(exact - 1)) < law.epsilon < math.log1p(float(exact - 1)) * (1 + 1e-11)


def test_every_rounded_probability_is_charged():
    """A law whose probabilities are off by one unit has another epsilon, and a coarse one a much larger epsilon."""
    law = BinaryLaplace.of_width(18)
    for level, (ones, digits) in enumerate(law.chances):
        for moved in {max(1, ones - 2), ones + 2} - {ones}:
            if 2 * moved <= 1 << digits:
                changed = BinaryLaplace((*law.chances[:level], (moved, digits), *law.chances[level + 1 :]))
                assert changed.epsilon > law.epsilon
    coarse = BinaryLaplace((*law.chances[:-2], (1, 12), (1, 12)))  # in place of 2^-26 and 2^-52
    assert coarse.epsilon > 1.2 * law.epsilon


def test_the_cost_is_that_of_the_l1_norm():
    law = BinaryLaplace.of_width(10)
    for dimension in (1, 2, 104):
        along_the_diagonal = dimension * law.epsilon  # a shift by 1 in all coordinates, of l2 norm sqrt(dimension)
        assert law.cost(dimension, 0.0) * math.sqrt(dimension) == pytest.approx(along_the_diagonal, rel=1e-11)
        assert law.cost(dimension, 0.0) * math.sqrt(dimension) >= along_the_diagonal
        event = law.event(math.sqrt(dimension), dimension, 3, 0.0)
        assert sum(leaf.epsilon for leaf in event.leaves()) == pytest.approx(3 * along_the_diagonal, rel=1e-11)


def test_the_recipe_has_every_weight_once_with_its_probability():
    law = BinaryLaplace.of_width(18)
    found = {}
    for group in law.recipe().bits:
        found |= dict.fromkeys(group.weights, (group.ones, group.digits))
    assert found == {sign << level: chance for level, chance in enumerate(law.chances) for sign in (1, -1)}
    assert law.recipe().reset == laplace.RESET


def chi_square(drawn, masses):
    """Return the probability of so large a chi-square statistic. Rare values share a cell."""
    usual = [value for value, mass in masses.items() if mass * drawn.size >= 20]
    expected = np.array([float(masses[value]) for value in usual]) * drawn.size
    counts = np.array([np.count_nonzero(drawn == value) for value in usual], dtype=float)
    expected, counts = (np.append(each, max(drawn.size - each.sum(), 1.0)) for each in (expected, counts))
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(usual))


SMALL = BinaryLaplace(((7, 4), (3, 3), (1, 4)))


def masses_of(law):
    """Return the probability of each value, without the rare uniformly random numbers."""
    size = 4 * law.reach
    masses = wrapped(law.chances, size, None)
    return {(value + size // 2) % size - size // 2: mass for value, mass in enumerate(masses) if mass}


def test_this_process_draws_the_law():
    drawn = NoiseSource(3).lattice(40_000, SMALL)
    assert chi_square(drawn, masses_of(SMALL)) > RARE
    assert chi_square(drawn // 2, masses_of(SMALL)) < RARE


def test_a_rare_coordinate_is_replaced_by_a_uniformly_random_number(monkeypatch):
    monkeypatch.setattr(laplace, "RESET", 2)
    drawn = NoiseSource(5).lattice(20_000, SMALL)
    far = drawn[np.abs(drawn) > SMALL.reach]
    assert far.size == pytest.approx(5_000, abs=5 * math.sqrt(20_000 * 3 / 16))
    assert kstest(far / 2.0**64 + 0.5, "uniform").pvalue > RARE


# --------------------------------------------------------------------------------------------------------- K-norm noise


def stream(seed):
    return NormalStream(Keystream(seed.to_bytes(32, "little")))


@pytest.mark.parametrize("scale", [0.01, 1.0, 37.5, 1e9])
def test_the_noise_is_the_ideal_k_norm_vector_rounded_to_integers(scale):
    """The same draws, added to zeros by the K-norm mechanism on a grid of step 1, give the same numbers."""
    for seed in range(20):
        zeros, expected = np.zeros(50), np.empty(50)
        release.add_k_norm(zeros, expected, stream(seed), scale, 1.0)
        np.testing.assert_array_equal(integers(50, scale, stream(seed)), expected.astype(np.int64))


def test_the_length_has_a_gamma_distribution_and_the_direction_is_uniform():
    drawn = NoiseSource(2).lattice(5 * 4000, KNormLaw(5, 1e6)).reshape(-1, 5)
    lengths = np.linalg.norm(drawn, axis=1)
    assert kstest(lengths / 1e6, gamma(5).cdf).pvalue > RARE
    assert kstest(lengths / 1.1e6, gamma(5).cdf).pvalue < RARE
    assert kstest((drawn[:, 1] / lengths + 1) / 2, "beta", (2, 2)).pvalue > RARE
    assert drawn.std() == pytest.approx(KNormLaw(5, 1e6).std, rel=0.05)


def test_one_coordinate_has_a_rounded_laplace_law():
    """P(0) = 1 - exp(-1/(2 scale)), and P(k) falls by exp(-1/scale) per step."""
    scale = 2.0
    drawn = NoiseSource(8).lattice(4000, KNormLaw(1, scale))
    masses = {0: 1 - math.exp(-0.5 / scale)}
    for k in range(1, 60):
        masses[k] = masses[-k] = math.sinh(0.5 / scale) * math.exp(-k / scale)
    assert chi_square(drawn, masses) > RARE


def test_noise_beyond_64_bits_wraps_around_in_exact_arithmetic():
    """Whether it does must not depend on the sum that gets it, so float64 must not round it."""
    scale = 2.0**70
    drawn = np.concatenate([integers(1, scale, stream(seed)) for seed in range(300)])
    assert kstest(drawn / 2.0**64 + 0.5, "uniform").pvalue > RARE
    assert len({int(each) % 1024 for each in drawn}) > 150


def test_the_cost_of_k_norm_noise_is_its_scale():
    law = KNormLaw(104, 50.0)
    (leaf,) = law.event(10.0, 104, 1, 0.0).leaves()
    assert 0.2 <= leaf.epsilon < 0.2 * (1 + 1e-12)
    with pytest.raises(ValueError, match="vectors of length 104, not 7"):
        law.event(10.0, 7, 1, 0.0)
    with pytest.raises(ValueError, match="cannot be drawn jointly"):
        law.recipe()
    with pytest.raises(ValueError, match="not vectors of length 104"):
        NoiseSource(0).lattice(105, law)
