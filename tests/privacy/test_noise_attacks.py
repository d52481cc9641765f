"""Attempts to break the exact noise: is what is released always a rounding of the real number that the bits stand for?

A release is compared with the interval in which the first random bits of its draws place the exact noisy number. Each
integer that is released must be the nearest one to a point of that interval, on grids so fine that wrong error bounds,
wrong positions and mixed-up bits are seen in a few thousand numbers.
"""

import copy
import math
import os
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from privet.plans import FullBatch, GradientPlan, OutputPlan
from privet.plans.gradient import Step
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.privacy.noise import normals, release, ziggurat
from privet.privacy.noise.bits import CHUNK, Keystream
from privet.privacy.noise.normals import ERROR, NormalStream
from privet.privacy.noise.reals import LazyUniform, TailDraw, square_root
from privet.privacy.noise.watch import Claim

CHANCE = 1e-6
FINE = 2.0**-41
TABLE = ziggurat.ziggurat()


def is_open(released, value, grid, std, *bounds):
    """Return whether the bounds leave open to which integer value + std * product is rounded.

    Assert that it is, or may be, the one that was released.
    """
    low = high = Fraction(std)
    for interval in bounds:
        ends = [one * other for one in (low, high) for other in interval]
        low, high = min(ends), max(ends)
    step = Fraction(grid)
    least, most = (math.floor((Fraction(float(value)) + end) / step + Fraction(1, 2)) for end in (low, high))
    assert most - least <= 1  # otherwise this test would not test much
    assert float(least * step) <= released <= float(most * step)
    return least < most


@pytest.fixture
def asked(monkeypatch):
    """Return a list of the places in the stream of all numbers about which exact arithmetic decided."""
    places = []
    real = normals.Normals.real

    def spy(drawn, position):
        places.append(drawn._first + position)
        return real(drawn, position)

    monkeypatch.setattr(normals.Normals, "real", spy)
    return places


@pytest.mark.parametrize("value", [0.0, 2.7])
def test_fine_releases_round_the_number_of_their_position(monkeypatch, asked, value):
    # On this grid one number in eight is decided exactly, in each of the blocks that are processed at a time.
    monkeypatch.setattr(release, "CHUNK", 500)
    values = np.full(1800, value)
    released = NoiseSource(12).add_gaussian(values, 1.99, grid=FINE)
    decided = set(asked)
    assert len(decided) == len(asked)  # each number is refined once
    drawn = NoiseSource(12).normals(values.size, 1.99, FINE)
    are_open = {
        position
        for position in range(values.size)
        if is_open(released[position], value, FINE, 1.99, drawn.real(position).bounds())
    }
    assert are_open or value
    assert are_open <= decided


def test_exact_decisions_about_draws_from_a_pool_use_the_draws_of_their_position(monkeypatch):
    monkeypatch.setattr(release, "ERROR", 1.0)
    source, same = NoiseSource(13), NoiseSource(13)
    from_outside = 0
    for _ in range(3):  # all from the first pool
        released = source.add_gaussian(np.full(700, 0.3), 0.7, grid=FINE)
        drawn = same.normals(700, 0.7, FINE)
        outside = np.flatnonzero((drawn._words & ziggurat.SHARES - 1) >= TABLE.boxes)
        from_outside += outside.size
        for position in [*range(50), *outside.tolist()]:
            low, high = drawn.real(position).bounds()
            is_open(released[position], 0.3, FINE, 0.7, (low, high))
            assert low - Fraction(ERROR) < Fraction(float(drawn._values[position])) < high + Fraction(ERROR)
    assert from_outside > 4


@pytest.mark.parametrize("error", [ERROR, 1.0], ids=["float", "exact"])
def test_fine_k_norm_releases_round_the_product_of_one_norm_with_each_draw(monkeypatch, error):
    monkeypatch.setattr(release, "ERROR", error)
    monkeypatch.setattr(release, "GRID_BITS", 39)
    margins, add_rounded = [], release._add_rounded

    def spy(values, result, noise, slope, margin, *rest):
        margins.append((noise * slope, margin))
        add_rounded(values, result, noise, slope, margin, *rest)

    monkeypatch.setattr(release, "_add_rounded", spy)
    size, scale = 20, 0.7
    source, stream = NoiseSource(14), NoiseSource(14)._normals()
    values, step = np.linspace(-1, 1, size), release.grid_step(scale * math.sqrt(size + 1))
    for _ in range(6):
        released = source.add_k_norm(values, scale)
        noise, margin = margins.pop()
        drawn, others = stream.take(size), stream.take(size + 1)
        ends = [others.real(position).bounds() for position in range(size + 1)]
        squares = [sorted((low**2, high**2)) for low, high in ends]
        norm = [square_root(sum(side), 256)[end] for end, side in enumerate(zip(*squares, strict=True))]
        for position in range(size):
            bounds = drawn.real(position).bounds()
            is_open(released[position], values[position], step, scale, norm, bounds)
            for product in (one * other for one in norm for other in bounds):
                assert abs(Fraction(scale / step) * product - Fraction(float(noise[position]))) < Fraction(margin)


def test_numbers_beyond_the_digits_of_float64_are_rounded_once_to_an_integer_and_once_to_a_float():
    values = np.full(150, 2.0**34)  # 2^54 steps of the grid, where floats are four steps apart
    released = NoiseSource(15).add_gaussian(values, 1.0)
    drawn, step = NoiseSource(15).normals(150, 1.0), Fraction(release.grid_step(1.0))
    for position in range(150):
        low, high = (math.floor((2**34 + end) / step + Fraction(1, 2)) for end in drawn.real(position).bounds())
        assert released[position] in (float(low) * step, float(high) * step)


@pytest.mark.parametrize("chunk", [CHUNK, 64], ids=["one batch", "many batches"])
def test_bits_that_acceptance_used_stay_with_their_draw(monkeypatch, chunk):
    monkeypatch.setattr(normals, "_CLOSE", 2.0**-10.5)  # exact arithmetic decides about some proposals
    monkeypatch.setattr(normals, "CHUNK", chunk)
    drawn = NormalStream(Keystream(bytes(range(32))))._draw(60_000)
    outside = drawn._outside
    assert 20 < len(outside.refined) < outside.positions.size - 20
    for which, position in enumerate(outside.positions.tolist()):
        real = drawn.real(position)
        if which in outside.refined:
            assert real.place is outside.refined[which]
            assert real.place.known >> real.place.bits - 64 == int(outside.places[which])
        low, high = real.bounds()
        approximation = Fraction(float(drawn._values[position]))
        assert max(abs(approximation - low), abs(approximation - high)) < Fraction(ERROR)


@pytest.mark.parametrize(
    ("distance", "is_close"),
    [
        (-(2.0**-45), True),
        (2.0**-45, True),
        (-(2.0**-36.3), True),
        (2.0**-36.3, True),
        (-(2.0**-35.7), False),
        (2.0**-35.7, False),
        (-(2.0**-30), False),
    ],
)
def test_exact_arithmetic_decides_about_proposals_close_to_the_density_and_no_others(monkeypatch, distance, is_close):
    boxes = np.flatnonzero(TABLE.heights > 2.0**-20)[::4]
    choices = (TABLE.choices[boxes].astype(np.uint64) - 1) << np.uint64(64 - ziggurat.CHOICE_BITS)
    places = np.random.default_rng(0).integers(1 << 62, 3 << 62, boxes.size, dtype=np.uint64)
    x = TABLE.edges[boxes + 1] + TABLE.widths[boxes] * places * 2.0**-64
    levels = (np.exp(-0.5 * x * x) + distance - TABLE.tops[boxes]) / TABLE.heights[boxes]
    inside = (levels > 0) & (levels < 0.999)
    drawn = [choices[inside], places[inside], (levels[inside] * 2.0**64).astype(np.uint64)]
    scripted = iter([np.concatenate(drawn)])
    stream, further = NormalStream(Keystream(bytes(32))), Keystream(bytes(32))
    stream._bits = SimpleNamespace(words=lambda size: next(scripted, None) if size > 1 else further.words(size))
    decided, exactly = [], normals._decided
    monkeypatch.setattr(normals, "_decided", lambda box, *uniforms: decided.append(box) or exactly(box, *uniforms))
    _, accepted, _, _ = stream._trials(int(inside.sum()))
    assert inside.sum() > 20
    assert decided == (boxes[inside].tolist() if is_close else [])
    assert accepted.tolist() == (boxes[inside].tolist() if distance < 0 else [])


def test_signs_outside_the_rectangles_do_not_depend_on_the_place_or_the_share():
    drawn = NormalStream(Keystream(bytes(range(1, 33))))._draw(1 << 20)
    outside = drawn._outside
    inside = outside.boxes < TABLE.boxes
    positions, boxes = outside.positions[inside], outside.boxes[inside]
    values, words = drawn._values[positions], drawn._words[positions]
    is_positive = values > 0
    places = (np.abs(values) - TABLE.edges[boxes + 1]) / TABLE.widths[boxes]
    assert places.min() >= 0
    assert places.max() <= 1
    assert stats.ks_2samp(places[is_positive], places[~is_positive]).pvalue > CHANCE
    assert stats.ks_2samp(boxes[is_positive], boxes[~is_positive]).pvalue > CHANCE
    for digit in range(64):
        agreeing = int(np.sum((outside.places[inside] >> np.uint64(digit) & np.uint64(1) == 1) == is_positive))
        assert stats.binomtest(agreeing, positions.size).pvalue > CHANCE
    for share in range(TABLE.boxes, ziggurat.SHARES):
        chosen = is_positive[words & ziggurat.SHARES - 1 == share]
        assert stats.binomtest(int(chosen.sum()), chosen.size).pvalue > CHANCE


def test_further_bits_are_fresh_for_every_number():
    # Two numbers that are refined, and a later draw, must not share words.
    stream = NormalStream(Keystream(bytes(32)))
    seen = []
    given = stream._bits.words
    stream._bits.words = lambda size: (seen.extend((words := given(size)).tolist()), words)[1]
    drawn = stream._draw(3000)
    for position in range(100):
        real = drawn.real(position)
        real.refine()
        assert real.place.known & 2**64 - 1 == seen[-1]
    seen.extend(stream._draw(3000)._words.view(np.uint64).tolist())
    seen.extend(drawn._words.view(np.uint64).tolist())
    assert len(set(seen)) == len(seen)


# Findings of attacks that succeeded before


@pytest.mark.parametrize("add", ["add_gaussian", "add_k_norm"])
@pytest.mark.parametrize("largest", [0.0, 2.0**49, 2.0**51])
def test_zero_has_one_sign_whatever_the_other_values_are(add, largest, monkeypatch):
    monkeypatch.setattr(release, "grid_step", lambda std: 1.0)
    release.checked_grid.cache_clear()
    values = np.zeros(2000 if add == "add_gaussian" else 60)
    values[0] = largest
    released = getattr(NoiseSource(1), add)(values, 1.0 if add == "add_gaussian" else 0.2)
    release.checked_grid.cache_clear()
    assert np.sum(released == 0) > 10
    assert not np.signbit(released[released == 0]).any()


@pytest.mark.parametrize("second", [1, 2**20, 2**51])
def test_tail_draws_with_many_leading_zeros_are_known_precisely(second):
    place = LazyUniform(0, 64, iter([second, 7, 9, 11, 13]).__next__)
    x, _ = normals._decided(TABLE.boxes, place, LazyUniform(0, 64, iter([0] * 9).__next__))
    low, high = TailDraw(1, Fraction(float(TABLE.edges[0])), place).bounds()
    assert max(abs(Fraction(x) - low), abs(Fraction(x) - high)) < Fraction(ERROR)


@pytest.mark.parametrize("seed", [None, 3])
def test_prepared_noise_is_not_used_in_two_processes(seed):
    values = np.zeros(1 << 15)  # few numbers are not prepared
    step = Step(1.0, 1.0, Claim(2.0, np.arange(3), 3), NoiseSource(seed))
    step.prepare(values.size)
    step._noise.wait()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            answer = step.noisy(values)[:4].tobytes()
        except RuntimeError:
            answer = b"refused"
        os.write(writing, answer)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 99) != step.noisy(values)[:4].tobytes()


def test_prepared_draws_are_refused_a_second_time():
    source = NoiseSource(3)
    prepared = source.normals(3, 1.0)
    source.add_gaussian(np.zeros(3), 1.0, prepared=prepared)
    with pytest.raises(RuntimeError, match="only once"):
        source.add_gaussian(np.ones(3), 1.0, prepared=prepared)
    with pytest.raises(TypeError, match="copied"):
        copy.copy(prepared)


def test_masked_arrays_are_refused():
    values = np.ma.array([1.0, 123.456], mask=[False, True])
    with pytest.raises(ValueError, match="plain numpy arrays, not to MaskedArray"):
        NoiseSource(1).add_gaussian(values, 1.0)


def test_a_grid_on_which_the_noise_underflows_is_refused():
    with pytest.raises(ValueError, match="grid"):
        NoiseSource(1).add_gaussian(np.zeros(2), 1e-100, grid=2.0**1000)


def test_the_epsilon_of_pure_output_noise_is_not_exceeded_by_rounding():
    for sensitivity, epsilon in np.random.default_rng(0).uniform(0.1, 5, (50, 2)).tolist():
        stability = SimpleNamespace(sensitivity=sensitivity, adjacency=Adjacency.REPLACE_ONE)
        plan = OutputPlan.for_budget(Budget(epsilon, 0.0), stability=stability)
        assert Fraction(sensitivity) / Fraction(plan.scale) <= Fraction(plan.event.epsilon) <= Fraction(epsilon)


def test_the_noise_of_a_plan_is_not_below_its_multiplier_times_the_clip():
    for multiplier, clip in np.random.default_rng(1).uniform(0.1, 5, (50, 2)).tolist():
        plan = GradientPlan(FullBatch(), 1, clip, multiplier)
        assert Fraction(plan.noise_std) >= Fraction(multiplier) * Fraction(clip)


@pytest.mark.filterwarnings("ignore")
def test_finite_values_near_the_largest_float_are_released():
    released = NoiseSource(1).add_gaussian(np.array([1e308, 0.0]), 1.0)
    assert released[0] == 1e308
    assert 0 < abs(released[1]) < 9


@pytest.mark.parametrize("add", ["add_gaussian", "add_k_norm"])
def test_draws_too_far_for_approximations_are_decided_exactly(add, monkeypatch):
    monkeypatch.setattr(normals, "_CLOSE", 9.0)  # all draws outside the rectangles are accepted by exact arithmetic
    fast = getattr(NoiseSource(2), add)(np.linspace(-1, 1, 3000), 0.5)
    monkeypatch.setattr(normals, "FARTHEST", 4.0)  # all draws of the tail are now too far
    np.testing.assert_array_equal(getattr(NoiseSource(2), add)(np.linspace(-1, 1, 3000), 0.5), fast)
    assert np.isfinite(NoiseSource(2).real_gaussian((3000,), 1.0)[0]).all()
