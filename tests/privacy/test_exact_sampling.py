"""Samples have exact probabilities: over all random bits where possible, and else where the result changes."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from randomgen import UserBitGenerator
from scipy import stats

from privet.privacy.noise import sampling
from privet.privacy.noise.sampling import bernoulli_indices, binomial, binomial_half, poisson_sample, weighted_index

CHANCE = 1e-6
TOP = (1 << 64) - 1


def generated(seed):
    generator = np.random.default_rng(seed)
    return lambda size: generator.integers(0, TOP, size, dtype=np.uint64, endpoint=True)


def scripted(uniform, bits):
    """Return the words of one uniform number, given as an integer of so many bits."""
    rounds = iter(range(bits - 64, -1, -64))
    return lambda size: np.array([(uniform >> next(rounds)) & TOP for _ in range(size)], dtype=np.uint64)


def assert_turns_at(draw, cumulative, bits, least):
    """Assert that draw(words) is the number of cumulative probabilities that a uniform number reaches.

    This is tested within ``least`` / 2^bits of the points where the number changes. Together with the fact that it does
    not fall as the uniform number grows, this determines the law.
    """
    for point in sorted({share for share in cumulative if 0 < share < 1}):
        turn = math.ceil(point * 2**bits)
        for uniform in (turn - least, turn + least - 1, turn - (1 << (bits - 64)), turn + (1 << (bits - 64))):
            if 0 <= uniform < 1 << bits:
                expected = sum(Fraction(uniform, 2**bits) >= share for share in cumulative)
                assert draw(scripted(uniform, bits)) == expected


# --- Poisson samples ------------------------------------------------------------------------------------------------


def byte_words(*rounds):
    """Return words that begin with given bytes, one list of bytes for each call."""
    left = iter(rounds)

    def words(size):
        drawn = np.zeros(8 * size, dtype=np.uint8)
        given = next(left)
        drawn[: len(given)] = given
        return drawn.view(np.uint64)

    return words


@pytest.mark.parametrize("numerator", [0x0001, 0x35A1, 0x3500, 0x00FF, 0xFFFF])
def test_one_unit_is_sampled_for_exactly_the_right_share_of_all_bits(numerator):
    rate = numerator / 2**16
    sampled = Fraction(0)
    for first in range(256):
        try:
            sampled += Fraction(bernoulli_indices(1, rate, byte_words([first])).size, 256)
        except StopIteration:  # a second byte was asked for
            sizes = [bernoulli_indices(1, rate, byte_words([first], [second])).size for second in range(256)]
            sampled += Fraction(sum(sizes), 2**16)
    assert sampled == Fraction(rate)


def test_units_are_compared_with_bytes_of_their_own():
    # The rate has the bytes 53, 161. Of the units with a first byte of 53, the second bytes decide.
    words = byte_words([53, 52, 54, 53, 53, 0], [161, 160, 5])
    assert bernoulli_indices(6, 0x35A1 / 2**16, words).tolist() == [1, 3, 4, 5]


@pytest.mark.parametrize("rate", [1e-300, 5e-324, 0.1, 1 - 2.0**-53, 0.5, 0.0])
def test_bytes_of_a_rate_are_its_exact_expansion(rate):
    digits = sampling._bytes_of(rate)
    assert sum(Fraction(digit, 256 ** (place + 1)) for place, digit in enumerate(digits)) == Fraction(rate)


@pytest.mark.parametrize("n", [0, 1, 2, 9, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 200_000])
def test_rates_of_zero_and_one_and_all_sizes(n):
    assert bernoulli_indices(n, 0.0, generated(1)).tolist() == []
    assert bernoulli_indices(n, 5e-324, generated(1)).tolist() == []
    np.testing.assert_array_equal(bernoulli_indices(n, 1.0, generated(1)), np.arange(n))
    chosen = bernoulli_indices(n, 0.25, generated(1))
    assert chosen.dtype == np.int64
    assert np.all(np.diff(chosen) > 0)
    assert stats.binomtest(chosen.size, n, 0.25).pvalue > CHANCE if n else not chosen.size


@pytest.mark.parametrize("rate", [1 / 1000, 0.05, 0.7])
def test_sampled_units_are_spread_evenly_and_their_number_is_binomial(rate):
    words, n, repeats = generated(8), 1000, 2000
    samples = [bernoulli_indices(n, rate, words) for _ in range(repeats)]
    counts = np.bincount(np.concatenate(samples) // 50, minlength=20)
    assert stats.binomtest(int(counts.sum()), n * repeats, rate).pvalue > CHANCE
    assert stats.chisquare(counts).pvalue > CHANCE
    sizes = np.array([sample.size for sample in samples])
    assert abs(sizes.var() / (n * rate * (1 - rate)) - 1) < 6 * math.sqrt(2.5 / repeats)


def test_a_small_sample_of_many_units_is_drawn_by_its_size():
    def subset(n, size):
        return np.arange(size) + n

    assert poisson_sample(100_000, 1e-4, generated(0), subset)[0] == 100_000
    assert poisson_sample(100_000, 0.2, generated(0), subset)[-1] < 100_000
    assert poisson_sample(1000, 1e-3, generated(2), subset).max(initial=0) < 1000
    assert poisson_sample(0, 0.5, generated(0), subset).size == 0
    np.testing.assert_array_equal(poisson_sample(100_000, 1.0, generated(0), subset), np.arange(100_000))


# --- binomial numbers -----------------------------------------------------------------------------------------------


def cumulative(n, rate):
    p, total = Fraction(rate), Fraction(0)
    for k in range(n):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        yield total


@pytest.mark.parametrize(
    ("n", "rate", "bits"),
    [
        (1, 0.5, 256),
        (1, 1e-3, 256),
        (2, 0.5, 256),
        (5, 0.3, 256),
        (12, 0.02, 256),
        (2, 1e-100, 768),
        (3, 1 - 2e-16, 256),
    ],
)
def test_binomial_numbers_turn_at_the_exact_points(n, rate, bits):
    assert_turns_at(lambda words: binomial(n, rate, words), list(cumulative(n, rate)), bits, least=1 << 70)


@pytest.mark.parametrize("bits", [64, 128, 512])
@pytest.mark.parametrize(("n", "rate"), [(30, 0.1), (7, 0.5), (50, 1e-9), (20, 0.999)])
def test_binomial_bounds_contain_the_probabilities_and_are_narrow(n, rate, bits):
    for exact, (lower, upper) in zip(cumulative(n, rate), sampling._cumulative(n, rate, bits), strict=True):
        assert lower <= exact * 2**bits <= upper <= lower + 2


@pytest.mark.parametrize(("n", "rate"), [(60_000, 256 / 60_000), (10**7, 1e-4)])
def test_large_binomial_tables_are_right(n, rate):
    table = np.array(sampling._table(n, rate), dtype=np.float64) / 2**64
    np.testing.assert_allclose(table, stats.binom.cdf(np.arange(table.size), n, rate), rtol=1e-7, atol=1e-18)
    lower, upper = zip(*itertools.islice(sampling._cumulative(n, rate, 64), table.size), strict=True)
    assert max(b - a for a, b in zip(lower, upper, strict=True)) <= 2
    words = generated(4)
    draws = np.array([binomial(n, rate, words) for _ in range(4000)])
    assert abs(draws.mean() - n * rate) < 6 * math.sqrt(n * rate / draws.size)
    assert abs(draws.var() / (n * rate * (1 - rate)) - 1) < 6 * math.sqrt(2 / draws.size)


def words_read(draw, *first):
    """Return how many words a draw reads, if it begins with these and goes on with random ones."""
    left, further, sizes = iter(first), generated(0), []

    def words(size):
        sizes.append(size)
        return np.array([next(left, None) or further(1)[0] for _ in range(size)], dtype=np.uint64)

    draw(words)
    return sum(sizes)


def test_the_first_word_of_a_binomial_number_decides_unless_it_meets_the_bounds_of_a_probability():
    """The bounds of a cumulative probability are at most two words apart."""
    n, rate = 30, 0.1
    table = sampling._table(n, rate)
    for lower in table[1:6]:
        reads = [words_read(lambda words: binomial(n, rate, words), lower + apart) for apart in (-1, 0, 1, 2)]
        assert reads == [1, 2, 2, 1]
    assert words_read(lambda words: binomial(n, rate, words), 1) == 1
    assert words_read(lambda words: binomial(n, rate, words), TOP) > 1  # beyond the end of the table


def test_a_table_ends_where_no_word_is_left():
    table = sampling._table(1000, 0.3)
    assert (1 << 64) - 2 <= table[-1] <= 1 << 64
    assert table[-2] < (1 << 64) - 2
    assert len(table) < 500
    assert list(table) == sorted(table)
    assert len(sampling._table(3, 0.5)) == 3  # P(number <= 3) = 1 is not needed


@pytest.mark.parametrize("n", [-1, 1.5, True, None])
def test_samples_need_a_number_of_units(n):
    for draw in (bernoulli_indices, binomial):
        with pytest.raises(ValueError, match="n must"):
            draw(n, 0.5, generated(0))


@pytest.mark.parametrize("rate", [-1e-9, 1 + 1e-9, math.nan])
def test_a_rate_is_a_probability(rate):
    for draw in (bernoulli_indices, binomial):
        with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\]"):
            draw(5, rate, generated(0))


@pytest.mark.parametrize(("n", "size"), [(0, 1), (1, 0), (1.5, 1), (1, None)])
def test_fair_coins_are_counted_for_positive_numbers(n, size):
    with pytest.raises(ValueError, match=r"n must|size must"):
        binomial_half(n, size, generated(0))


def test_every_fair_coin_counts_once_in_every_block(monkeypatch):
    """Words are read row by row. The last row contributes only as many bits as are left."""
    monkeypatch.setattr(sampling, "BLOCK", 3)
    given = generated(3)(3 * 7)
    left = iter([given[:9], given[9:18], given[18:]])
    drawn = binomial_half(150, 7, lambda size: next(left))
    for start, width, part in ((0, 3, given[:9]), (3, 3, given[9:18]), (6, 1, given[18:])):
        first, second, third = (part[row * width : (row + 1) * width].tolist() for row in range(3))
        for place in range(width):
            ones = first[place].bit_count() + second[place].bit_count() + (third[place] >> (192 - 150)).bit_count()
            assert drawn[start + place] == ones


def test_certain_numbers_need_no_randomness():
    assert binomial(0, 0.5, None) == 0
    assert binomial(7, 0.0, None) == 0
    assert binomial(7, 1.0, None) == 7


def test_fair_coins_are_counted_over_all_bits():
    counts = np.bincount(binomial_half(5, 32, lambda size: np.arange(32, dtype=np.uint64) << np.uint64(59)))
    assert counts.tolist() == [math.comb(5, k) for k in range(6)]
    full = binomial_half(200, 2, lambda size: np.array([TOP, 0] * 4, dtype=np.uint64))
    assert full.tolist() == [200, 0]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_numbers_of_heads_have_the_binomial_law(n):
    draws = binomial_half(n, (1 << 16) + 5, generated(n))
    spread = range(max(0, n // 2 - 9), min(n, n // 2 + 9) + 1)
    counts = np.array([np.sum(draws == k) for k in spread])
    expected = np.array([math.comb(n, k) / 2**n for k in spread])
    counts, expected = np.append(counts, draws.size - counts.sum()), np.append(expected, 1 - expected.sum())
    is_large = expected * draws.size > 5
    assert (
        stats.chisquare(counts[is_large], expected[is_large] * counts[is_large].sum() / expected[is_large].sum())[1]
        > CHANCE
    )


# --- one index with given weights -----------------------------------------------------------------------------------

WEIGHTS = [
    [1.0],
    [1.0, 1.0, 1.0],
    [1.0, 2.0, 5.0],
    [0.0, 0.3, 0.0, 0.0, 0.7, 0.0],
    [1e-300, 1.0, 1e-16, 5e-324],
    [5e-324, 5e-324, 1e-323],
    [1e307, 3e306, 1.0],
]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("margin", [1.0, 1e300], ids=["fast", "exact"])
def test_an_index_turns_at_the_exact_points(weights, margin, monkeypatch):
    monkeypatch.setattr(sampling, "MARGIN", margin)
    total = sum(map(Fraction, weights))
    shares = [end / total for end in itertools.accumulate(map(Fraction, weights))]
    assert_turns_at(lambda words: weighted_index(weights, words), shares, bits=2240, least=2)


def test_dyadic_weights_give_each_index_its_share_of_all_words():
    drawn = [weighted_index([1.0, 2.0, 0.0, 5.0], scripted(j << 61, 64)) for j in range(8)]
    assert np.bincount(drawn).tolist() == [1, 2, 0, 5]


def test_the_exact_path_is_rare_and_agrees_with_the_fast_one(monkeypatch):
    weights = np.random.default_rng(1).random(50)
    fast = [weighted_index(weights, generated(seed)) for seed in range(300)]
    exact = []
    monkeypatch.setattr(sampling, "MARGIN", 1e300)
    exact_index = sampling._exact_index
    monkeypatch.setattr(sampling, "_exact_index", lambda *args: exact.append(args) or exact_index(*args))
    assert [weighted_index(weights, generated(seed)) for seed in range(300)] == fast
    assert len(exact) == 300


@pytest.mark.parametrize("size", [3, 50])
@pytest.mark.parametrize(("share", "is_exact"), [(-1.1, False), (-0.9, True), (0.9, True), (1.1, False)])
def test_exact_arithmetic_decides_within_the_rounding_error_of_an_end_and_not_beyond(
    size, share, is_exact, monkeypatch
):
    """docs/proofs.md, section 27: the error is (n + 8) 2^-51 times the sum of all weights."""
    exact, exact_index = [], sampling._exact_index
    monkeypatch.setattr(sampling, "_exact_index", lambda *args: exact.append(1) or exact_index(*args))
    end = Fraction(size // 2, size) + Fraction(share) * (size + 8) / 2**51
    found = weighted_index(np.ones(size), scripted(math.floor(end * 2**128), 128))
    assert found == size // 2 - (share < 0)
    assert len(exact) == is_exact


def test_an_index_has_the_same_law_whatever_the_type_of_the_weights():
    for seed in range(20):
        drawn = {
            weighted_index(kind, generated(seed))
            for kind in ([1, 2, 5], np.array([1, 2, 5], dtype=np.uint8), np.array([1, 2, 5], dtype=np.float32))
        }
        assert drawn == {weighted_index(np.array([1.0, 2.0, 5.0]), generated(seed))}
    assert weighted_index(np.full(300, 255, dtype=np.uint8), scripted(TOP, 64)) == 299


def test_impossible_weights_are_refused():
    for weights in ([], [0.0], [-1.0, 2.0], [np.nan], [np.inf], [[1.0]], [1e308, 1e308]):
        with pytest.raises(ValueError, match="weights"):
            weighted_index(np.array(weights), generated(0))


# --- what is left to numpy ------------------------------------------------------------------------------------------


def numpy_generator(values):
    """Return numpy's generator over given 32-bit numbers."""
    left = iter(values)
    return np.random.Generator(UserBitGenerator(lambda _: next(left), 32))


def test_numpy_rejects_the_excess_of_a_range():
    # 2^32 = 3 (2^32 // 3) + 1, so that one of all 32-bit numbers, 0, has to be rejected.
    assert numpy_generator([0, (1 << 32) - 1]).integers(3) == 2
    for drawn, expected in ((1, 0), ((1 << 32) // 3, 0), ((1 << 32) // 3 + 1, 1), ((1 << 33) // 3 + 1, 2)):
        assert numpy_generator([drawn]).integers(3) == expected


def test_numpy_chooses_all_subsets_equally_often():
    counts = {}
    for first, second in itertools.product(range(3), range(4)):
        # Floyd's method takes one of 3 integers, then one of 4.
        words = [(2 * first + 1 << 31) // 3, (2 * second + 1 << 31) // 4]
        chosen = tuple(sorted(numpy_generator(words).choice(4, size=2, replace=False, shuffle=False).tolist()))
        counts[chosen] = counts.get(chosen, 0) + 1
    assert set(counts) == set(itertools.combinations(range(4), 2))
    assert set(counts.values()) == {2}
