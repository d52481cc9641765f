import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privet.privacy.noise import normals, ziggurat
from privet.privacy.noise.bits import Keystream
from privet.privacy.noise.normals import ERROR, NormalStream
from privet.privacy.noise.reals import exponential, pi, square_root
from privet.privacy.noise.ziggurat import CHOICE_BITS, SHARES

CHANCE = 1e-6  # a right sampler fails one such test in a million
TABLE = ziggurat.ziggurat()
BITS = 128
EDGES = [Fraction(float(edge)) for edge in TABLE.edges]
DENSITY = [exponential(-(edge**2) / 2, BITS) for edge in EDGES]


def stream(seed=0):
    return NormalStream(Keystream(seed.to_bytes(32, "little")))


class Scripted(Keystream):
    """Words that are given in advance, and random ones after these."""

    def __init__(self, *given):
        super().__init__(bytes(32))
        self.given = [np.asarray(words, dtype=np.uint64).view(np.int64) for words in given]

    def fill(self, words):
        if self.given and self.given[0].size == words.size:
            words[:] = self.given.pop(0)
        else:
            super().fill(words)


# What the proof requires of the tables, in exact arithmetic


@pytest.fixture(scope="module")
def tops():
    """Return bounds of the height of the stack of rectangles below each box."""
    low, high = (square_root(end / 2, BITS)[side] / SHARES for side, end in enumerate(pi(BITS)))
    sums = np.cumsum([1 / edge for edge in EDGES[:-1]])
    return [(low * total, high * total) for total in sums]


def test_rectangles_become_narrower_and_lie_under_the_density(tops):
    assert TABLE.boxes == 1021
    assert all(one > other for one, other in itertools.pairwise(EDGES))
    assert EDGES[-1] == 0
    assert all(top[1] < density[0] for top, density in zip(tops, DENSITY[:-1], strict=True))
    low, high = TABLE.top(7, BITS)
    assert low <= tops[7][0] < tops[7][1] <= high


def test_boxes_cover_the_density(tops):
    for box, top in enumerate(tops):
        assert top[0] + TABLE.height(box) > DENSITY[box + 1][1]


def test_the_tail_is_covered_and_all_proposals_have_a_probability():
    assert TABLE.tail_reach(BITS)[1] < EDGES[0]
    chances = np.diff(TABLE.choices.astype(object), prepend=0)
    assert min(chances) > 0
    assert TABLE.choices[-1] < 1 << CHOICE_BITS


def test_the_area_of_each_box_is_its_share_of_the_proposals():
    """Exactly, in units of 2^-69: a height that is off by one proposal would change the law."""
    chances = np.diff(TABLE.choices.astype(object), prepend=0)
    for box in range(TABLE.boxes):
        assert TABLE.height(box) * TABLE.width(box) * 2**69 == chances[box]
    low, high = exponential(-(EDGES[0] ** 2) / 2, BITS)
    assert TABLE.tail_reach(BITS) == (low * 2**69 / chances[-1], high * 2**69 / chances[-1])


def test_approximate_tables_are_close_to_the_exact_ones(tops):
    for box, top in enumerate(tops):
        assert abs(TABLE.tops[box] - float(top[0])) < 1e-12
        assert TABLE.heights[box] == pytest.approx(float(TABLE.height(box)), rel=1e-14)
        assert TABLE.widths[box] == pytest.approx(float(TABLE.width(box)), rel=1e-14)
    np.testing.assert_array_equal(TABLE.units[: TABLE.boxes] * 2.0**63, TABLE.edges[:-1])
    assert not TABLE.units[TABLE.boxes :].any()
    assert TABLE.reach == pytest.approx(float(TABLE.tail_reach(BITS)[0]), rel=1e-14)


# The law


def test_millions_of_draws_are_normal():
    draws = stream().take(5_000_000).spend()
    assert stats.kstest(draws, "norm").pvalue > CHANCE
    assert abs(draws.mean()) * math.sqrt(draws.size) < 5
    assert abs(draws.var() - 1) * math.sqrt(draws.size / 2) < 5
    assert abs((draws**4).mean() - 3) * math.sqrt(draws.size / 96) < 5
    for tail in (2.0, 3.0, 4.0, TABLE.edges[0], 4.5, 5.0):
        for number in (int(np.sum(draws > tail)), int(np.sum(draws < -tail))):
            assert stats.binomtest(number, draws.size, stats.norm.sf(tail)).pvalue > CHANCE
    joints = np.concatenate([[0.0], TABLE.edges[:-1][::-1][::50], [np.inf]])
    counts = np.histogram(np.abs(draws), joints)[0]
    expected = 2 * (stats.norm.sf(joints[:-1]) - stats.norm.sf(joints[1:]))
    assert stats.chisquare(counts, expected * draws.size).pvalue > CHANCE
    for values in (draws, draws**2):
        for lag in (1, 2, 1 << 15):
            assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) * math.sqrt(draws.size) < 6


def rest_beyond(x):
    """Return the area between rectangles and density beyond x, on the right side."""
    x = np.asarray(x, dtype=np.float64)
    boxes = np.concatenate(
        [[0.0], np.cumsum((TABLE.edges[:-1] - TABLE.edges[1:]) * TABLE.tops)]
    )  # from the edge inwards
    box = np.clip(np.searchsorted(-TABLE.edges, -x, side="right") - 1, 0, TABLE.boxes - 1)
    stacked = boxes[box] + np.maximum(TABLE.edges[box] - x, 0) * TABLE.tops[box]
    return math.sqrt(2 * math.pi) * stats.norm.sf(x) - np.where(x < TABLE.edges[0], stacked, 0.0)


@pytest.mark.parametrize(("close", "number"), [(normals._CLOSE, 500_000), (9.0, 2000)], ids=["float", "exact"])
def test_draws_outside_the_rectangles_have_the_law_of_what_is_left(monkeypatch, close, number):
    monkeypatch.setattr(normals, "_CLOSE", close)
    draws, outside = stream(1)._draw_outside(np.arange(number))
    assert draws.size == outside.boxes.size == outside.places.size == number
    assert (len(outside.refined) == number) == (close == 9.0)
    total = rest_beyond(0.0)
    assert total == pytest.approx(math.sqrt(math.pi / 2) * (SHARES - TABLE.boxes) / SHARES, rel=1e-9)
    assert stats.kstest(draws, lambda x: 1 - rest_beyond(x) / total).pvalue > CHANCE


def test_draws_beyond_the_edge_have_fair_signs():
    draws = stream(5).take(4_000_000).spend()
    beyond = draws[np.abs(draws) > TABLE.edges[0]]
    assert stats.binomtest(int(np.sum(beyond > 0)), beyond.size).pvalue > CHANCE


# Approximations, and the real numbers that they stand for


def test_approximations_are_close_to_their_real_numbers():
    drawn = stream(2).take(300_000, 7.0)
    values = drawn.spend()
    outside = drawn._outside.positions
    tails = outside[drawn._outside.boxes == TABLE.boxes]
    assert tails.size > 5
    for position in [*range(500), *outside[:300], *tails]:
        real = drawn.real(int(position))
        for _ in range(2):
            low, high = real.bounds()
            approximation = Fraction(float(values[position])) / 7
            assert max(abs(approximation - low), abs(approximation - high)) < Fraction(ERROR)
            real.refine()
        assert real.bounds()[1] - real.bounds()[0] < Fraction(1, 1 << 100)


def test_refining_narrows_the_same_interval():
    drawn = stream(3).take(2000)
    for position in range(2000):
        real = drawn.real(position)
        low, high = real.bounds()
        real.refine()
        assert low <= real.bounds()[0] < real.bounds()[1] <= high


@pytest.mark.parametrize("share", [0, 1, TABLE.boxes - 1])
def test_the_least_and_the_largest_words_give_the_ends_of_their_rectangle(share):
    words = [share, 2**63 - SHARES + share, 2**63 + share, 2**64 - SHARES + share]
    drawn = NormalStream(Scripted(words))._draw(4)
    values = drawn.spend()
    half = EDGES[share]
    ends = [0, half, -half, 0]
    for position, end in enumerate(ends):
        low, high = drawn.real(position).bounds()
        assert low <= end <= high
        assert high - low == half / 2**53
        assert abs(values[position] - float(end)) <= float(half) * 2.0**-52


LAST = 2**64 - 1
TAIL = int(TABLE.choices[-1] - 1) << 2


def trials(choice, place, level):
    """Return the words of trials that are all the same."""
    return np.repeat(np.array([choice, place, level], dtype=np.uint64), 18)


def outside(*script):
    draws, found = NormalStream(Scripted(*script))._draw_outside(np.arange(1))
    return float(draws[0]), found


@pytest.mark.parametrize(("place", "expected"), [(LAST, TABLE.edges[0]), (1, None), (0, None)])
def test_the_tail_begins_at_its_edge_and_has_no_end(place, expected):
    draw, found = outside(trials(TAIL, place, 0))
    if expected is None:  # further bits were drawn
        place = next(iter(found.refined.values()))
        assert place.bits >= 128
        expected = math.sqrt(TABLE.edges[0] ** 2 - 2 * (math.log(place.known + 0.5) - place.bits * math.log(2)))
        assert draw > 10
    assert draw == pytest.approx(float(expected), rel=1e-12)


def test_a_proposal_above_the_density_or_of_nothing_is_made_again():
    inner = float(TABLE.edges[1])
    accepted = trials(0, 0, 0)
    for rejected in (trials(0, LAST, LAST), trials(LAST, 0, 0), trials(TAIL, 1 << 40, LAST)):
        assert outside(rejected, accepted)[0] == inner


def test_acceptance_at_the_boundary_is_decided_by_further_bits():
    # The level is that at which a point in the middle of box 9 lies on the density, up to 64 bits.
    middle = EDGES[10] + TABLE.width(9) / 2
    level = (exponential(-(middle**2) / 2, 256)[0] - TABLE.top(9, 256)[0]) / TABLE.height(9)
    choice = int(TABLE.choices[9] - 1) << 2
    outcomes = set()
    for seed in range(40):
        bits = Scripted(trials(choice, 1 << 63, math.floor(level * 2**64)), trials(0, 0, 0))
        bits._begin(seed.to_bytes(32, "little"))
        _, found = NormalStream(bits)._draw_outside(np.arange(1))
        outcomes.add(int(found.boxes[0]))
        if found.boxes[0] == 9:
            assert found.refined[0].bits > 64
    assert outcomes == {0, 9}


def test_requests_of_any_size_continue_the_stream():
    one = stream(4)
    parts = [one.take(size).spend() for size in (1, 1000, 1024, 1025, 3, 5000)]
    assert [part.size for part in parts] == [1, 1000, 1024, 1025, 3, 5000]
    assert np.unique(np.concatenate(parts)).size == sum(part.size for part in parts)
    again = stream(4)
    np.testing.assert_array_equal(parts[0], again.take(1).spend())
