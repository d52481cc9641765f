"""The exponential mechanism: every decision follows from the random bits as in real arithmetic."""

import itertools
import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from randomgen import UserBitGenerator
from scipy import stats

from privet.privacy.noise import choices, enclosures
from privet.privacy.noise.choices import race

CHANCE = 1e-6
TOP = (1 << 64) - 1


def generated(seed):
    generator = np.random.default_rng(seed)
    return lambda size: generator.integers(0, TOP, size, dtype=np.uint64, endpoint=True)


def scripted(uniforms, bits):
    """Return the words of uniform numbers, given as integers of so many bits, all of which are read side by side."""
    rounds = iter(range(bits - 64, -1, -64))

    def words(size):
        assert size == len(uniforms)
        shift = next(rounds)
        return np.array([(uniform >> shift) & TOP for uniform in uniforms], dtype=np.uint64)

    return words


def first_and_rest(drawn, rest):
    """Return given words at the first call, and later one word for all."""
    calls = iter([np.array(drawn, dtype=np.uint64)])
    return lambda size: next(calls, np.full(size, rest, dtype=np.uint64))


def key(score, scale, uniform, copies=1):
    """Return the ideal key, for a uniform number as an mpmath number."""
    return mpmath.mpf(float(score)) / mpmath.mpf(float(scale)) - mpmath.log(-mpmath.log(uniform) / int(copies))


@pytest.fixture
def slow_path(monkeypatch):
    monkeypatch.setattr(choices, "ULPS", 2.0**54)  # no float interval is shorter than 32


# --- single decisions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "bits"), [(0.0, 384), (2.5, 384), (60.0, 384), (800.0, 1536)])
@pytest.mark.parametrize("first", [1, (1 << 63) + 12345, TOP - 1])
def test_the_choice_turns_at_the_exact_point(gap, bits, first):
    # Given U_0 of the better candidate, the other one wins if and only if U_1 > exp(log(U_0) e^-gap 3/7).
    given, least = (first << (bits - 64)) + (1 << 100), 1 << 70
    with mpmath.workprec(3 * bits):
        point = int(mpmath.exp(mpmath.log(mpmath.mpf(given) / 2**bits) * mpmath.exp(-gap) * 3 / 7) * 2**bits)
    for offset, winner in ((-least, 0), (least, 1), (-(1 << (bits - 66)), 0)):
        if point + offset > 0:
            assert race([gap, 0.0], 1.0, 1, scripted([given, point + offset], bits), [7, 3]).tolist() == [winner]


SPECIAL = [0, 1, (1 << 63) + 9, TOP - (1 << 20), TOP]


@pytest.mark.parametrize("scores", [(0.0, 0.0, 0.0), (0.0, 50.0, 1e6), (1e-20, 0.0, 1e6)])
@pytest.mark.parametrize("rest", [1, 0xA5A5A5A5A5A5A5A5])
def test_all_combinations_of_special_words_are_decided_as_in_real_arithmetic(scores, rest):
    # All words after the first are `rest`, so that the uniform number is known.
    with mpmath.workprec(2000):
        tail = mpmath.mpf(rest) / TOP
        keys = {(score, word): key(score, 0.75, (word + tail) / 2**64) for score in scores for word in SPECIAL}
        for drawn in itertools.product(SPECIAL, repeat=3):
            truth = [keys[pair] for pair in zip(scores, drawn, strict=True)]
            if len(set(truth)) < 3:
                continue  # a tie is never decided, and has probability 0
            order = np.argsort(truth)[::-1]
            for number in (1, 2):
                assert race(scores, 0.75, number, first_and_rest(drawn, rest)).tolist() == sorted(order[:number])


@pytest.mark.parametrize("seed", range(4))
def test_float_intervals_contain_the_ideal_keys(seed):
    generator = np.random.default_rng(seed)
    drawn = generated(seed)(400) >> generator.integers(0, 50, 400).astype(np.uint64)
    drawn[::2] = ~drawn[::2]
    scores, scale = generator.normal(size=400) * 10.0 ** generator.integers(-3, 17, 400), 0.3
    copies = generator.integers(1, 10 ** generator.integers(1, 18, 400))
    lower, upper = choices._float_bounds(choices.Candidates(scores, copies, drawn), scale)
    assert np.mean(np.isfinite(lower)) > 0.6
    with mpmath.workprec(300):
        best = mpmath.mpf(scores.max()) / mpmath.mpf(scale)
        for i in range(400):
            for end in (mpmath.mpf(int(drawn[i])), mpmath.mpf(int(drawn[i]) + 1)):
                ideal = key(scores[i], scale, end / 2**64, copies[i]) - best if 0 < end < 2**64 else None
                assert ideal is None or lower[i] <= ideal <= upper[i]


def test_float_intervals_contain_all_keys_that_unseen_bits_leave_possible():
    """Of these words only fifteen bits are not zero, so that the unseen bits matter most."""
    drawn = np.arange((1 << 14) + 1, (1 << 14) + 200, dtype=np.uint64)
    zeros, ones = np.zeros(drawn.size), np.ones(drawn.size, dtype=np.int64)
    lower, upper = choices._float_bounds(choices.Candidates(zeros, ones, drawn), 1.0)
    assert np.isfinite(lower).all()
    with mpmath.workprec(200):
        for word, low, high in zip(drawn.tolist(), lower, upper, strict=True):
            for end in (mpmath.mpf(word), mpmath.mpf(word + 1)):
                assert low <= key(0.0, 1.0, end / 2**64, 1) <= high


@pytest.mark.parametrize("bits", [64, 128, 640])
def test_decimal_intervals_contain_the_ideal_keys_and_shrink(bits):
    for uniform in (1, 5 << (bits - 60), (1 << (bits - 1)) + 3, (1 << bits) - 2):
        lower, upper = choices._decimal_bounds(-3.7, 11.5, 0.3, 7, uniform, bits)
        with mpmath.workprec(4 * bits + 200):
            relative = (mpmath.mpf(-3.7) - mpmath.mpf(11.5)) / mpmath.mpf(0.3)
            low, high = (
                relative - mpmath.log(-mpmath.log(mpmath.mpf(u) / 2**bits) / 7) for u in (uniform, uniform + 1)
            )
            ends = mpmath.mpf(str(lower)), mpmath.mpf(str(upper))
            assert ends[0] < low < high < ends[1]
            assert ends[1] - ends[0] < (high - low) * (1 + mpmath.mpf(10) ** -8)
    assert choices._decimal_bounds(0.0, 0.0, 1.0, 1, 0, bits)[0] == -math.inf
    assert choices._decimal_bounds(0.0, 0.0, 1.0, 1, (1 << bits) - 1, bits)[1] == math.inf


@pytest.mark.parametrize("value", ["0.3", "0.7", "0.99999", "2", "3.5", "17"])
def test_decimal_functions_are_rounded_outwards(value):
    down, up = enclosures.directed(64)
    with mpmath.workprec(500):
        for bound, exact in ((enclosures.log, mpmath.log), (enclosures.exp, mpmath.exp)):
            lower, upper = (mpmath.mpf(str(bound(Decimal(value), context))) for context in (down, up))
            assert lower < exact(mpmath.mpf(value)) < upper
            assert upper - lower < abs(upper) * mpmath.mpf(10) ** -45


def test_the_logarithm_of_numpy_is_as_accurate_as_assumed():
    generator = np.random.default_rng(3)
    values = np.concatenate(
        [generator.random(1500), 1 - generator.random(500) * 2.0 ** -generator.integers(1, 40, 500)]
    )
    values = np.concatenate([values, 2.0 ** -generator.uniform(0, 50, 500), -np.log(values[:500])])
    with mpmath.workprec(120):
        ulps = [abs(mpmath.log(v) - y) / np.spacing(abs(y)) for v, y in zip(values, np.log(values), strict=True) if y]
    assert max(ulps) < choices.ULPS / 2


def float_bounds(scores, copies, drawn, scale=1.0):
    scores, copies = np.asarray(scores, dtype=np.float64), np.asarray(copies, dtype=np.int64)
    return choices._float_bounds(choices.Candidates(scores, copies, np.asarray(drawn, dtype=np.uint64)), scale)


def test_float_intervals_have_the_lengths_of_the_proof():
    """docs/proofs.md, section 27: four times what moves the logarithm, four times its error, and 2^-50 of the score."""
    generator = np.random.default_rng(7)
    drawn = np.concatenate([generated(7)(300), [1 << 15, (1 << 64) - (1 << 26)]]).astype(np.uint64)
    scores = generator.normal(size=302) * 10.0 ** generator.integers(-3, 9, 302)
    scores[-2:] = scores.max()  # nothing but the logarithm counts there
    copies = generator.integers(1, 10**6, 302)
    lower, upper = float_bounds(scores, copies, drawn, 0.3)
    uniform = (drawn.astype(np.float64) + 0.5) * 2.0**-64
    logs = np.log(-np.log(uniform) / copies)
    length = 4 * (2.0**-51 * uniform + 2.0**-64) / (uniform * -np.log(uniform))
    length += 2.0**-46 * (1 + np.abs(logs)) + 2.0**-50 * (scores.max() - scores) / 0.3
    np.testing.assert_allclose((upper - lower) / 2, length, rtol=0.25)  # the ends are rounded, too
    np.testing.assert_allclose((upper + lower) / 2, (scores - scores.max()) / 0.3 - logs, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("word", "is_finite"),
    [
        (0, False),
        ((1 << 14) - 1, False),  # a uniform number just below 2^-50
        (1 << 14, True),
        ((1 << 64) - (1 << 24) - (1 << 12), True),  # just below 1 - 2^-40
        ((1 << 64) - (1 << 24) + (1 << 12), False),
        (TOP, False),
    ],
)
def test_the_first_word_decides_nothing_near_the_ends_of_the_unit_interval(word, is_finite):
    lower, upper = float_bounds([0.0], [1], [word])
    assert bool(np.isfinite(lower[0])) == bool(np.isfinite(upper[0])) == is_finite
    assert is_finite or (lower[0], upper[0]) == (-math.inf, math.inf)


def test_quotients_that_overflow_are_bounded_from_above_only():
    lower, upper = float_bounds([1e308, -1e308, 0.0], [1, 1, 1], [1 << 63] * 3, 1e-5)
    assert lower[1:].tolist() == [-math.inf] * 2
    assert np.isfinite(lower[0])
    assert (upper[1:] < -1e300).all()
    lower, upper = float_bounds([1.7e308, -1.7e308], [1, 1], [1 << 63] * 2, 1e308)  # only the difference overflows
    assert lower[1] == -math.inf
    ideal = -3.4 - math.log(math.log(2))
    assert ideal <= upper[1] < 0


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, list])
def test_scores_of_every_type_are_compared_as_exact_numbers(kind):
    """In float32 the difference of the scores over the scale would be rounded to 24 bits."""
    bits, given = 256, 12345 << 240
    values = [3, 1] if kind in (np.int64, list) else np.array([0.7, 0.1], dtype=kind)
    scores = values if kind is list else np.array(values, dtype=kind)
    better, worse = map(float, values)
    with mpmath.workprec(800):
        gap = (mpmath.mpf(better) - mpmath.mpf(worse)) / mpmath.mpf(0.3)
        point = int(mpmath.exp(mpmath.log(mpmath.mpf(given) / 2**bits) * mpmath.exp(-gap)) * 2**bits)
    for offset, winner in ((-(1 << 210), 0), (1 << 210, 1)):
        assert race(scores, 0.3, 1, scripted([given, point + offset], bits)).tolist() == [winner]


def test_an_index_stands_for_one_candidate_unless_copies_are_given():
    ones = np.ones(5, dtype=np.int64)
    for seed in range(50):
        assert (
            race(SCORES, SCALE, 2, generated(seed)).tolist() == race(SCORES, SCALE, 2, generated(seed), ones).tolist()
        )


@pytest.mark.parametrize("copies", [[1, 1], [1, 1, 0], [1, 1, -1], [[1, 1, 1]]])
def test_copies_that_are_not_one_positive_number_per_score_are_refused(copies):
    with pytest.raises(ValueError, match="copies must be 3 positive integers"):
        race([0.0, 1.0, 2.0], 1.0, 1, generated(0), copies)


# --- the law --------------------------------------------------------------------------------------------------------

SCORES, SCALE = np.array([0.0, 1.0, -0.5, 1.2, 0.4]), 0.8


def probabilities_of_sets(number):
    weights = np.exp(SCORES / SCALE)
    sets = dict.fromkeys(itertools.combinations(range(5), number), 0.0)
    for order in itertools.permutations(range(5), number):
        left, product = weights.sum(), 1.0
        for place in order:
            product *= weights[place] / left
            left -= weights[place]
        sets[tuple(sorted(order))] += product
    return sets


def assert_law(number, draws, seed):
    words, expected = generated(seed), probabilities_of_sets(number)
    counts = dict.fromkeys(expected, 0)
    for _ in range(draws):
        counts[tuple(race(SCORES, SCALE, number, words).tolist())] += 1
    expected = np.array(list(expected.values()))
    assert stats.chisquare(list(counts.values()), expected * draws).pvalue > CHANCE


@pytest.mark.parametrize("number", [1, 2, 4])
def test_sets_have_the_probabilities_of_one_choice_after_the_other(number):
    assert_law(number, 3000, seed=number)


def test_the_slow_path_has_the_same_law(slow_path):
    assert_law(2, 250, seed=9)


@pytest.mark.parametrize("number", [1, 3])
def test_the_slow_path_decides_as_the_fast_path_does(number, monkeypatch):
    fast = [race(SCORES, SCALE, number, generated(seed)).tolist() for seed in range(60)]
    slow, decimal_race = [], choices._decimal_race
    monkeypatch.setattr(choices, "ULPS", 2.0**54)
    monkeypatch.setattr(choices, "_decimal_race", lambda *args: slow.append(args) or decimal_race(*args))
    assert [race(SCORES, SCALE, number, generated(seed)).tolist() for seed in range(60)] == fast
    assert len(slow) == 60


def test_many_candidates_are_chosen_like_by_sorting_ideal_keys():
    scores, words = np.random.default_rng(0).normal(size=10_000) * 3, generated(5)
    drawn = generated(5)(10_000)
    keys = scores / 0.7 - np.log(-np.log((drawn.astype(np.float64) + 0.5) * 2.0**-64))
    np.testing.assert_array_equal(race(scores, 0.7, 25, words), np.sort(np.argsort(-keys)[:25]))


def test_copies_multiply_the_weight():
    words, copies, draws = generated(6), np.array([1, 3, 10**15]), 3000
    scores = np.array([0.0, 0.5, -math.log(5e14)])
    counts = np.bincount([race(scores, 1.0, 1, words, copies).item() for _ in range(draws)], minlength=3)
    weights = copies * np.exp(scores)
    assert stats.chisquare(counts, weights / weights.sum() * draws).pvalue > CHANCE
    for wrong in ([1, 2], [1, 0, 1]):
        with pytest.raises(ValueError, match="copies"):
            race(scores, 1.0, 1, words, wrong)


# --- extremes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-310, 1e-12, 1.0, 1e9, 1e300])
def test_extreme_scores_are_compared_without_overflow(scale):
    scores = np.array([1e308, -1e308, 0.0, 1e-300, -1e-300, 5e-324, 1e308, 3.0])
    for number in range(1, 9):
        chosen = race(scores, scale, number, generated(number))
        assert chosen.size == np.unique(chosen).size == number
        if scale <= 1.0:
            assert number < 2 or {0, 6} <= set(chosen.tolist())
            assert (1 in chosen) == (number == 8)


def test_a_difference_that_overflows_may_be_moderate_relative_to_the_scale():
    words, draws, scores = generated(2), 2000, [1.7e308, -1.7e308]
    lost = sum(race(scores, 1e308, 1, words).item() for _ in range(draws))
    assert stats.binomtest(lost, draws, 1 / (1 + math.exp(3.4))).pvalue > CHANCE


def test_a_dominating_score_leaves_the_choice_among_the_others_as_it_is():
    for seed in range(200):
        drawn = generated(seed)(6)
        alone = race(SCORES, SCALE, 2, lambda size, drawn=drawn: drawn[1:].copy())
        both = race(np.append(1e18, SCORES), SCALE, 3, lambda size, drawn=drawn: drawn.copy())
        assert both.tolist() == [0, *(alone + 1)]


@pytest.mark.parametrize(
    ("size", "number"), [(2, 1), (2, 2), (9, 3), (50, 50), (50, 49), (900, 1), (900, 30), (900, 800)]
)
def test_intervals_decide_exactly_what_they_can(size, number):
    """A candidate wins or loses only if it does so wherever the keys are within their intervals."""
    random = np.random.default_rng(size)
    lower = random.integers(0, size, size).astype(float)
    upper = lower + random.integers(0, size, size) * random.uniform(0, 1, size).round(1)
    others = ~np.eye(size, dtype=bool)
    loses = ((lower > upper[:, None]) & others).sum(axis=1) >= number
    wins = ((upper >= lower[:, None]) & others).sum(axis=1) < number
    are_winners, are_open = choices._compared(lower, upper, number)
    np.testing.assert_array_equal(are_winners, wins)
    np.testing.assert_array_equal(are_open, ~wins & ~loses)


@pytest.mark.parametrize("number", [1, 40, 700, 1999])
def test_intervals_of_many_rivals_decide_exactly_what_they_can(number):
    random = np.random.default_rng(number)
    lower = random.permutation(np.linspace(0, 1, 2000))
    upper = lower + random.choice([1e-9, 0.4], 2000)
    # A key that is below all but k - 1 upper ends wins, and one that is below k lower ends loses, whoever these are.
    wins = np.array([np.sum(upper >= low) - 1 < number for low in lower])
    loses = np.array([np.sum(lower > high) >= number for high in upper])
    are_winners, are_open = choices._compared(lower, upper, number)
    np.testing.assert_array_equal(are_winners, wins)
    np.testing.assert_array_equal(are_open, ~wins & ~loses)


def test_a_candidate_whose_interval_touches_that_of_a_rival_has_not_won():
    are_winners, are_open = choices._compared(np.array([5.0, 0.0]), np.array([9.0, 5.0]), 1)
    assert are_winners.tolist() == [False, False]
    assert are_open.tolist() == [True, True]
    are_winners, are_open = choices._compared(np.array([5.0, 0.0]), np.array([9.0, 4.9]), 1)
    assert are_winners.tolist() == [True, False]
    assert not are_open.any()


def test_one_candidate_ties_and_all_candidates():
    assert race([7.0], 1.0, 1, generated(0)).tolist() == [0]
    assert race(np.zeros(4), 1.0, 4, generated(0)).tolist() == [0, 1, 2, 3]
    first = [race([2.0, 2.0], 1.0, 1, generated(seed)).item() for seed in range(400)]
    assert stats.binomtest(sum(first), 400, 0.5).pvalue > CHANCE
    assert race(np.zeros(3, dtype=np.float32), 1.0, 2, generated(0)).dtype == np.int64


def test_impossible_races_are_refused():
    for scores, number in (([1.0, np.nan], 1), ([1.0, np.inf], 1), ([[1.0]], 1), ([1.0], 2), ([1.0], 0), ([], 1)):
        with pytest.raises(ValueError, match=r"scores|number"):
            race(np.array(scores), 1.0, number, generated(0))
    with pytest.raises(ValueError, match="scale"):
        race(np.zeros(2), 0.0, 1, generated(0))


def test_float_gumbel_noise_makes_choices_impossible_that_ideal_noise_makes():
    # Planted: numpy's Gumbel numbers, driven through all values of the uniform number at both ends of [0, 1).
    def float_gumbel(word):
        return np.random.Generator(UserBitGenerator(lambda _: int(word), 64)).gumbel()

    most = max(float_gumbel(word << 11) for word in (1, 2, (1 << 53) - 1, (1 << 53) - 2, 1 << 52))
    least = min(float_gumbel(word << 11) for word in (1, 2, (1 << 53) - 1, (1 << 53) - 2, 1 << 52))
    assert 36.7 < most < 36.8
    assert -3.7 < least < -3.5
    # A candidate that is 41 behind has probability e^-41, but it can never win a race with float noise, and one that is
    # 40 behind can. Scores of neighbours that differ by 1 can thus be told apart with certainty.
    assert most - least < 41
    # With ideal noise it wins if its uniform number is close enough to 1, for which 64 bits are not enough.
    bits = 256
    ordinary, close = 1 << (bits - 1), (1 << bits) - (1 << (bits - 70))
    assert race([41.0, 0.0], 1.0, 1, scripted([ordinary, close], bits)).tolist() == [1]
    assert race([60.0, 0.0], 1.0, 1, scripted([ordinary, close], bits)).tolist() == [0]
    closer = (1 << bits) - (1 << (bits - 100))
    assert race([60.0, 0.0], 1.0, 1, scripted([ordinary, closer], bits)).tolist() == [1]
