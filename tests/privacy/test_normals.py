"""Normal draws: which of them are decided exactly, and the pool from which small requests are served."""

import math
from fractions import Fraction

import numpy as np
import pytest

from privet.privacy import NoiseSource
from privet.privacy.noise import normals, release, ziggurat
from privet.privacy.noise.bits import Keystream
from privet.privacy.noise.normals import NormalStream
from privet.privacy.noise.reals import LazyUniform, TailDraw

TABLE = ziggurat.ziggurat()
TAIL = int(TABLE.choices[-1] - 1) << 2


def stream(seed=0):
    return NormalStream(Keystream(seed.to_bytes(32, "little")))


class Trials(Keystream):
    """Random words, except that the first trials are all the same."""

    def __init__(self, choice, place, level):
        super().__init__(bytes(32))
        self.given = np.repeat(np.array([choice, place, level], dtype=np.uint64), 18)

    def words(self, size):
        if size == self.given.size:
            return self.given.copy()
        return super().words(size)


@pytest.mark.parametrize(("place", "is_refined"), [((1 << 52) - 1, True), (1 << 52, False), (1 << 63, False)])
def test_small_uniform_numbers_of_the_tail_get_further_digits(place, is_refined):
    """Numbers below 2^-12 have too few digits for a precise logarithm."""
    drawn, found = NormalStream(Trials(TAIL, place, 0))._draw_outside(np.arange(1))
    assert bool(found.refined) == is_refined
    assert drawn[0] == pytest.approx(math.sqrt(TABLE.edges[0] ** 2 - 2 * math.log(place / 2**64)), rel=1e-12)


def test_tail_proposals_beyond_their_level_are_rejected():
    """With u = 2^-10, x = 5.48 is accepted for levels below reach / x, and floating point decides."""
    x = math.sqrt(TABLE.edges[0] ** 2 + 20 * math.log(2))
    for share, is_accepted in ((0.999, True), (1.001, False)):
        level = int(share * TABLE.reach / x * 2**64)
        values, boxes, places, known = NormalStream(Trials(TAIL, 1 << 54, level))._trials(18)
        assert values.size == boxes.size == places.size == (18 if is_accepted else 0)
        assert not known
        assert values == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize("box", [0, 5, 700])
def test_each_box_is_proposed_for_exactly_its_share_of_the_integers(box):
    """The integer of an entry proposes the next box, and the one before it the box of the entry."""
    for choice, proposed in ((int(TABLE.choices[box]) - 1, box), (int(TABLE.choices[box]), box + 1)):
        _, boxes, _, _ = NormalStream(Trials(choice << 2, 1 << 63, 0))._trials(18)
        assert boxes.tolist() == [proposed] * 18
    assert NormalStream(Trials(int(TABLE.choices[-1]) << 2, 1 << 63, 0))._trials(18)[0].size == 0


@pytest.mark.parametrize("chunk", [16, 64, 1 << 15])
def test_draws_outside_the_rectangles_keep_their_boxes_places_and_further_bits(monkeypatch, chunk):
    """They are made in several rounds of trials, of which the last ones give more than are needed."""
    monkeypatch.setattr(normals, "CHUNK", chunk)
    monkeypatch.setattr(normals, "_CLOSE", 2.0**-10.5)
    drawn, found = stream(11)._draw_outside(np.arange(100, 250))
    assert drawn.size == found.boxes.size == found.places.size == 150
    inside = found.boxes < TABLE.boxes
    places = found.places[inside] * 2.0**-64
    expected = TABLE.edges[found.boxes[inside] + 1] + TABLE.widths[found.boxes[inside]] * places
    np.testing.assert_allclose(drawn[inside], expected, rtol=1e-12)
    assert 0 < len(found.refined) < 150
    for which, place in found.refined.items():
        assert place.known >> place.bits - 64 == int(found.places[which])


def place_of(x):
    """Return a uniform number, with 320 bits, that the tail maps to x."""
    exponent = (float(TABLE.edges[0]) ** 2 - x**2) / 2
    bits = 320 + math.floor(exponent / math.log(2))
    return LazyUniform(int(Fraction(math.exp(exponent - (bits - 320) * math.log(2))) * 2**bits), 320, lambda: 0)


@pytest.mark.parametrize(("x", "is_far"), [(15.99, False), (16.01, True), (16.5, True)])
def test_draws_beyond_sixteen_have_no_approximation(x, is_far):
    place = place_of(x)
    low, high = TailDraw(1, Fraction(float(TABLE.edges[0])), place).bounds()
    assert x == pytest.approx(float((low + high) / 2), rel=1e-9)
    drawn, is_accepted = normals._decided(TABLE.boxes, place, LazyUniform(0, 64, lambda: 0))
    assert is_accepted
    assert math.isnan(drawn) == is_far
    assert is_far or drawn == pytest.approx(x, rel=1e-9)


def test_one_draw_without_approximation_is_reported(monkeypatch):
    monkeypatch.setattr(normals, "_CLOSE", 9.0)
    monkeypatch.setattr(normals, "FARTHEST", 4.2)
    drawn = stream(3).take(60_000, 2.0)
    far = np.flatnonzero(np.isnan(drawn._values))
    assert 0 < far.size < drawn._outside.positions.size
    assert drawn.is_far
    assert drawn.part(5, 3).is_far
    filled = drawn.spend_filled()
    assert (np.abs(filled[far]) > 2 * 4.2).all()
    assert not stream(5).take(2000).is_far


def test_small_requests_take_consecutive_numbers_of_a_pool():
    one, pools = stream(5), []
    draw = one._draw
    one._draw = lambda *given: pools.append(draw(*given)) or pools[-1]
    parts = [one.take(1000) for _ in range(5)]
    assert len(pools) == 2
    first, second = (pool._values for pool in pools)
    np.testing.assert_array_equal(np.concatenate([part.spend() for part in parts[:4]]), first[:4000])
    np.testing.assert_array_equal(parts[4].spend(), second[:1000])  # too few were left of the first pool
    assert len(pools[1]) > len(pools[0])
    for place, part in enumerate(parts[:4]):
        for position in (0, 999):
            same = pools[0].real(1000 * place + position)
            assert part.real(position).bounds() == same.bounds()
    assert [part.scale for part in parts] == [1.0] * 5


def test_requests_of_exactly_what_is_left_use_up_the_pool():
    one, pools = stream(6), []
    draw = one._draw
    one._draw = lambda *given: pools.append(draw(*given)) or pools[-1]
    one.take(1)
    left = len(pools[0]) - 1
    sizes = [1024] * (left // 1024) + [left % 1024]
    parts = [one.take(size) for size in sizes]
    assert len(pools) == 1
    np.testing.assert_array_equal(np.concatenate([part.spend() for part in parts]), pools[0]._values[1:])
    one.take(1)
    assert len(pools) == 2


def test_many_numbers_are_multiplied_while_they_are_made():
    plain, scaled = stream(7).take(70_000), stream(7).take(70_000, 8.0)
    assert (plain.scale, scaled.scale) == (1.0, 8.0)
    np.testing.assert_array_equal(8 * plain.spend(), scaled.spend())
    assert stream(7).take(3, 8.0).scale == 1.0  # numbers of a pool are multiplied later


def test_draws_know_their_number():
    assert len(stream(8).take(5)) == 5
    assert len(stream(8).take(2000)) == 2000


@pytest.mark.parametrize("size", [0, 1])
def test_a_request_may_be_empty(size):
    assert stream(9).take(size).spend().shape == (size,)


# --- how often exact arithmetic decides a rounding ------------------------------------------------------------------


@pytest.fixture
def decided(monkeypatch):
    """Return a list that grows with each rounding that exact arithmetic decides."""
    calls, decide = [], release.nearest_integer
    monkeypatch.setattr(release, "nearest_integer", lambda *given: calls.append(1) or decide(*given))
    return calls


def test_the_error_of_a_draw_counts_twice_in_units_of_the_grid(decided):
    """docs/proofs.md, section 26: the code allows 2^-46 std/h on each side of a boundary, here 1/16."""
    NoiseSource(1).add_gaussian(np.zeros(4000), 1.0, grid=2.0**-42)
    assert 0.11 < len(decided) / 4000 < 0.14


def test_the_norm_of_the_values_counts_in_the_error_of_a_sum(decided):
    """docs/proofs.md, section 26: the code allows 2^-51 ||S/h|| on each side of a boundary, here 1/4."""
    source = NoiseSource(2)
    for _ in range(400):
        source.add_gaussian(np.array([2.0**48 * 0.6, 2.0**48 * 0.8]) * 2, 1000.3, grid=1.0)
    assert 0.45 < len(decided) / 800 < 0.65


def test_the_error_of_a_norm_counts_in_the_error_of_k_norm_noise(monkeypatch):
    """docs/proofs.md, section 26: twice (error of the norm)(|g| + 1) plus twice 2^-47 of the norm, in steps."""
    margins, slopes, add_rounded = [], [], release._add_rounded

    def spy(values, result, noise, slope, margin, *rest):
        margins.append(margin)
        slopes.append((slope, float(np.abs(noise).max())))
        add_rounded(values, result, noise, slope, margin, *rest)

    monkeypatch.setattr(release, "_add_rounded", spy)
    for size in (1, 30):
        NoiseSource(3).add_k_norm(np.zeros(size), 0.7)
        (slope, longest), margin = slopes.pop(), margins.pop()
        steps = 0.7 / release.grid_step(0.7 * math.sqrt(size + 1))
        norm = slope / steps
        norm_error = 2.0**-47 * math.sqrt(size + 1) + 2.0**-51 * norm
        expected = 2 * steps * (norm_error * (longest + 1) + 2.0**-47 * norm)
        assert expected <= margin < 1.001 * expected
