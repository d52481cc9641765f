import copy
import dataclasses
import math
import pickle
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from privet.plans import (
    Descent,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    OneUniform,
    Poisson,
    RandomSkip,
    RandomStop,
    SecretOrder,
)
from privet.plans.samplers import named_sampler
from privet.privacy import Adjacency, NoiseSource
from privet.privacy.events import FixedSizeGaussian, GaussianRelease, PoissonGaussian

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE
RARELY = 1e-6  # Probability that a statistical test rejects correct code. Seeds are fixed, so the tests are not flaky.

ALL_SAMPLERS = [FullBatch(), Poisson(0.25), FixedSize(3, 12), OneUniform(12), FixedOrder(12, passes=2, size=5)]


def drawn(sampler, n, steps, seed=0):
    """Return the batches of a run as lists of indices."""
    return [np.arange(n)[batch] for batch in sampler.batches(n, steps, NoiseSource(seed))]


def included(batches, n):
    """Return how often each unit takes part."""
    return np.bincount(np.concatenate(batches), minlength=n)


# ------------------------------------------------------------------------------------------- the batches that run


def test_full_batches_take_everything_without_a_copy():
    assert list(FullBatch().batches(7, 3, NoiseSource(0))) == [slice(None)] * 3


def test_poisson_batches_take_each_unit_independently_at_the_rate():
    n, rate, steps = 30, 0.2, 4000
    batches = drawn(Poisson(rate), n, steps)
    deviations = (included(batches, n) - steps * rate) / math.sqrt(steps * rate * (1 - rate))
    assert chi2.sf(np.sum(deviations**2), n) > RARELY
    together = Counter(pair for batch in batches for pair in combinations(batch.tolist(), 2))
    expected, pairs = steps * rate**2, n * (n - 1) // 2
    counts = np.array([together[pair] for pair in combinations(range(n), 2)])
    assert abs(counts.mean() / expected - 1) < 0.03  # a batch of fixed size would have 0.966 of it
    assert counts.var() < 1.5 * expected
    assert len(counts) == pairs


@pytest.mark.parametrize("n", [1, 25])
def test_poisson_sizes_are_binomial(n):
    rate, steps = 0.03, 20_000
    sizes = np.array([len(batch) for batch in drawn(Poisson(rate), n, steps)])
    empty = (1 - rate) ** n
    assert abs((sizes == 0).mean() - empty) < 5 * math.sqrt(empty * (1 - empty) / steps)
    assert sizes.mean() == pytest.approx(n * rate, rel=0.1)
    assert sizes.var() == pytest.approx(n * rate * (1 - rate), rel=0.1)


@pytest.mark.parametrize("sampler", [FixedSize(3, 8), OneUniform(8), FixedSize(8, 8)], ids=repr)
def test_fixed_batches_are_uniform_sets_of_the_size(sampler):
    steps = 6000
    batches = drawn(sampler, 8, steps)
    sets = Counter(tuple(batch.tolist()) for batch in batches)
    possible = list(combinations(range(8), sampler.size))  # sorted, without repetition
    assert set(sets) <= set(possible)
    assert len(possible) == 1 or chisquare([sets[one] for one in possible]).pvalue > RARELY


@pytest.mark.parametrize("size", [1, 3, 5, 12])
def test_fixed_order_visits_each_unit_once_per_pass(size):
    sampler = FixedOrder(12, passes=4, size=size)
    batches = drawn(sampler, 12, sampler.implied_steps)
    assert len(batches) == sampler.implied_steps == 4 * math.ceil(12 / size)
    assert np.concatenate(batches).tolist() == list(range(12)) * 4
    assert max(map(len, batches)) == size


@pytest.mark.parametrize("sampler", ALL_SAMPLERS, ids=repr)
def test_batches_repeat_with_the_seed_alone(sampler):
    def run(seed):
        return np.concatenate(drawn(sampler, 12, 40, seed)).tolist()

    assert run(1) == run(1)
    assert isinstance(sampler, FullBatch | FixedOrder) == (run(1) == run(2))


@pytest.mark.parametrize("sampler", [FixedSize(3, 12), OneUniform(12), FixedOrder(12)], ids=repr)
@pytest.mark.parametrize("n", [11, 13])
def test_another_number_of_units_than_planned_is_refused(sampler, n):
    with pytest.raises(ValueError, match=rf"n = 12 units, the data has {n}"):
        next(sampler.batches(n, 4, NoiseSource(0)))


@pytest.mark.parametrize(("n", "public", "size"), [(4, 3, 1), (5, 4, 3), (3, 7, 2), (6, 1, 6)])
def test_public_units_come_last_in_every_pass_and_in_separate_batches(n, public, size):
    sampler = FixedOrder(n, passes=3, size=size, public=public)
    batches = drawn(sampler, n + public, sampler.implied_steps)
    assert len(batches) == sampler.implied_steps == 3 * (math.ceil(n / size) + math.ceil(public / size))
    assert np.concatenate(batches).tolist() == list(range(n + public)) * 3
    assert all(len({bool(unit >= n) for unit in batch}) == 1 for batch in batches)
    assert sampler.expected_n == n + public
    with pytest.raises(ValueError, match=f"n = {n + public} units, the data has {n}"):
        next(sampler.batches(n, 4, NoiseSource(0)))


# ------------------------------------------------------------------------------------------ the events they make


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_full_batch_is_an_exact_gaussian_release(adjacency):
    mu = {REPLACE: 2, ADD: 1}[adjacency] * math.sqrt(9) / 1.5
    assert FullBatch().event(1.5, 9, adjacency) == GaussianRelease(mu)


def test_sampled_events_carry_every_field_of_the_sampler():
    assert Poisson(0.1).event(1.5, 7, ADD) == PoissonGaussian(1.5, 0.1, 7)
    assert FixedSize(3, 8).event(1.5, 7, REPLACE) == FixedSizeGaussian(1.5, 8, 3, 7)
    assert OneUniform(8).event(1.5, 7, REPLACE) == FixedSizeGaussian(1.5, 8, 1, 7)


def test_sampling_everything_is_no_sampling():
    assert Poisson(1.0).event(1.5, 7, ADD) == FullBatch().event(1.5, 7, ADD)
    assert FixedSize(8, 8).event(1.5, 7, REPLACE) == FullBatch().event(1.5, 7, REPLACE)


@pytest.mark.parametrize(("n", "passes", "size"), [(3, 1, 1), (3, 4, 1), (5, 2, 2), (4, 3, 4)])
def test_the_mu_of_a_fixed_order_is_that_of_the_worst_unit_in_the_chain(n, passes, size):
    """Brute force: every noisy sum of +-C is released, so neighbours are two Gaussians with known means."""
    clip_norm, multiplier = 0.5, 1.7
    plan = GradientPlan(FixedOrder(n, passes, size), None, clip_norm, multiplier)
    batches = list(plan.sampler.batches(n, plan.steps, NoiseSource(0)))

    def means(data):
        return np.array([data[batch].sum() for batch in batches])

    data = np.full(n, clip_norm)
    distances = []
    for unit in range(n):
        neighbour = data.copy()
        neighbour[unit] = -clip_norm
        distances.append(np.linalg.norm(means(data) - means(neighbour)) / plan.noise_std)
    assert plan.event.mu == pytest.approx(max(distances), rel=1e-12)
    assert plan.event.mu == pytest.approx(2 * math.sqrt(passes) / multiplier, rel=1e-12)


def test_public_units_change_nothing_where_all_is_released():
    assert FixedOrder(5, 3, 2, 4).event(1.5, 15, REPLACE) == FixedOrder(5, 3, 2).event(1.5, 9, REPLACE)
    assert "4 public ones at the end" in FixedOrder(5, 3, 2, 4).in_words()
    assert "public ones" not in FixedOrder(5, 3, 2).in_words()


@pytest.mark.parametrize(
    ("sampler", "size"),
    [(FullBatch(), 12), (Poisson(0.25), 3), (FixedSize(3, 12), 3), (OneUniform(12), 1), (FixedOrder(12, 1, 5), 5)],
    ids=repr,
)
def test_the_nominal_size_is_public(sampler, size):
    assert sampler.nominal_size(12) == size


@pytest.mark.parametrize(
    ("sampler", "adjacencies"),
    [
        (FullBatch(), (REPLACE, ADD)),
        (Poisson(0.1), (ADD,)),
        (FixedSize(3, 8), (REPLACE,)),
        (OneUniform(8), (REPLACE,)),
        (FixedOrder(8), (REPLACE,)),
    ],
    ids=repr,
)
def test_every_sampler_has_the_right_adjacencies(sampler, adjacencies):
    assert sampler.adjacencies == adjacencies


# --------------------------------------------------------------------------------------------------- as values


@pytest.mark.parametrize("sampler", ALL_SAMPLERS, ids=repr)
def test_samplers_are_frozen_values(sampler):
    assert copy.deepcopy(sampler) == pickle.loads(pickle.dumps(sampler)) == sampler
    assert len({sampler, copy.copy(sampler)}) == 1
    assert eval(repr(sampler)) == sampler
    for field in dataclasses.fields(sampler):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(sampler, field.name, 1)


def test_one_uniform_differs_from_a_fixed_size_of_one():
    assert repr(OneUniform(5)) == "OneUniform(n=5)"
    assert OneUniform(5) == OneUniform(n=5) != OneUniform(6)
    assert OneUniform(5) != FixedSize(1, 5)


@pytest.mark.parametrize("sampler", ALL_SAMPLERS, ids=repr)
def test_a_field_can_be_replaced(sampler):
    fields = {"n": 24} if hasattr(sampler, "n") else {}
    changed = dataclasses.replace(sampler, **fields)
    assert type(changed) is type(sampler)
    assert (changed == sampler) == (not fields)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(0.0),
        lambda: Poisson(1.1),
        lambda: Poisson(math.nan),
        lambda: Poisson("0.1"),
        lambda: FixedSize(0, 5),
        lambda: FixedSize(6, 5),
        lambda: FixedSize(2.0, 5),
        lambda: OneUniform(0),
        lambda: FixedOrder(0),
        lambda: FixedOrder(5, passes=0),
        lambda: FixedOrder(5, passes=True),
        lambda: FixedOrder(5, size=6),
        lambda: FixedOrder(5, public=-1),
        lambda: FixedOrder(5, public=1.0),
        lambda: FixedOrder(5, public=math.nan),
    ],
)
def test_impossible_samplers_are_refused(make):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        make()


# ------------------------------------------------------------------------------------------- runs that end early


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.25), FixedSize(3, 12), OneUniform(12)], ids=repr)
def test_samplers_without_implied_steps_need_no_truncation(sampler):
    assert sampler.truncated(3) is sampler


@pytest.mark.parametrize("order", [FixedOrder(12, passes=3, size=5, public=2), SecretOrder(12, passes=3, size=5)])
def test_a_truncated_order_makes_the_first_steps_and_pays_for_the_passes_it_began(order):
    per_pass = order.implied_steps // 3
    whole = [list(batch) for batch in drawn(order, order.expected_n, order.implied_steps)]
    for steps in range(1, order.implied_steps + 1):
        short = order.truncated(steps)
        assert short.implied_steps == steps
        assert [list(batch) for batch in drawn(short, order.expected_n, steps)] == whole[:steps]
        begun = math.ceil(steps / per_pass)
        assert short.event(2.0, steps, REPLACE) == dataclasses.replace(order, passes=begun).event(2.0, steps, REPLACE)
    assert order.truncated(order.implied_steps) == order


def test_the_plan_of_a_truncated_order_states_a_guarantee():
    plan = GradientPlan(FixedOrder(8, passes=4), None, 1.0, 2.0, delta=1e-5)
    first = plan.truncated(1)
    assert first.guarantee().epsilon == GradientPlan(FixedOrder(8), None, 1.0, 2.0, delta=1e-5).guarantee().epsilon
    assert first.guarantee().epsilon < plan.guarantee().epsilon
    assert "on the sum" in first.guarantee().statement(verbose=True)


def test_a_truncated_order_is_shown_as_such_and_cannot_hide_its_iterates():
    order = FixedOrder(8)
    assert repr(order) == "FixedOrder(n=8, passes=1, size=1, public=0)"
    assert repr(order.truncated(3)) == "FixedOrder(n=8, passes=1, size=1, public=0, stop=3)"
    with pytest.raises(ValueError, match="whole passes only"):
        GradientPlan(order.truncated(3), None, 1.0, 2.0, release="last", descent=Descent(1.0, 1.0))
    with pytest.raises(ValueError, match="stop = 9 exceeds the 8 batches"):
        order.truncated(9)


# ---------------------------------------------------------------------------------------------------------- names


def test_every_sampler_has_a_unique_name():
    kinds = [FullBatch, Poisson, FixedSize, OneUniform, FixedOrder, RandomStop, RandomSkip, SecretOrder]
    assert len({kind.name for kind in kinds}) == len(kinds)


def test_one_sum_is_not_called_each_of_several():
    for steps, words in ((1, "on the sum (noise multiplier"), (60, "on each of 60 sums (noise multiplier")):
        plan = GradientPlan(FullBatch(), steps, 1.0, 2.0)
        assert words in plan.guarantee(1e-5).statement(verbose=True).replace("\n", " ").replace("  ", " ")


# ---------------------------------------------------------------------------------------------------------- shares


@pytest.mark.parametrize(
    ("sampler", "share"),
    [
        (FullBatch(), 1.0),
        (Poisson(0.3), 0.3),
        (FixedSize(3, 12), 0.25),
        (OneUniform(8), 0.125),
        (FixedOrder(10, size=2, public=5), 0.2),
    ],
    ids=repr,
)
def test_a_batch_takes_a_share_of_the_protected_units(sampler, share):
    assert sampler.batch_share == pytest.approx(share)


def test_named_samplers_take_batches_of_the_size_on_average_or_exactly():
    assert named_sampler("poisson", 3, 12) == Poisson(0.25)
    assert named_sampler("uniform", 3, 12) == FixedSize(3, 12)
    with pytest.raises(ValueError, match="sampling must be one of poisson, uniform, got 'shuffle'"):
        named_sampler("shuffle", 3, 12)


@pytest.mark.parametrize(
    ("size", "public", "batches"), [(1, 0, 12), (5, 0, 3), (4, 0, 3), (5, 2, 4), (5, 5, 4), (5, 6, 5), (12, 1, 2)]
)
def test_private_and_public_units_fill_batches_of_their_own(size, public, batches):
    order = FixedOrder(12, 2, size, public)
    assert order.batches_per_pass == batches
    assert order.implied_steps == 2 * batches == len(drawn(order, 12 + public, 2 * batches))


def test_an_order_can_stop_after_its_last_batch_and_not_after_a_further_one():
    assert FixedOrder(12, 2, 5, stop=6).implied_steps == 6
    for stop in (0, 7):
        with pytest.raises(ValueError, match=r"stop must be at least 1|stop = 7 exceeds the 6 batches"):
            FixedOrder(12, 2, 5, stop=stop)


def test_by_default_an_order_makes_one_pass_unit_by_unit():
    assert FixedOrder(12) == FixedOrder(12, passes=1, size=1, public=0, stop=None, shuffled=False)


def test_a_truncated_order_of_whole_passes_is_an_order_without_a_stop():
    order = FixedOrder(12, passes=3, size=5)
    assert order.truncated(6) == FixedOrder(12, passes=2, size=5)
    assert order.truncated(7) == FixedOrder(12, passes=3, size=5, stop=7)
    assert order.truncated(2) == FixedOrder(12, passes=3, size=5, stop=2)


@pytest.mark.parametrize("sampler", [FullBatch(), FixedOrder(6, 2)], ids=repr)
def test_rounding_errors_of_hidden_iterates_are_charged_half_a_thousandth(sampler):
    steps = sampler.implied_steps or 4
    assert sampler.last_iterate(3.0, steps, Descent(0.5, 1.0), None).rounding == pytest.approx(5e-4, rel=0.03)
