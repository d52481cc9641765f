import dataclasses
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare

from privet.plans import Descent, FixedOrder, GradientPlan, RandomSkip, RandomStop, SecretOrder
from privet.privacy import NoiseSource
from privet.privacy.events import Secret

RARELY = 1e-6


def drawn(sampler, n, seed):
    """Return the batches of a run as tuples of indices."""
    return [tuple(np.arange(n)[batch].tolist()) for batch in sampler.batches(n, 99, NoiseSource(seed))]


# ------------------------------------------------------------------------------------------------- what is drawn


@pytest.mark.parametrize(("n", "size"), [(5, 1), (7, 3), (1, 1), (4, 4)])
def test_a_random_stop_is_uniform_over_the_steps(n, size):
    sampler = RandomStop(n, size=size)
    whole = drawn(FixedOrder(n, size=size), n, 0)
    lengths = Counter()
    for seed in range(1500):
        batches = drawn(sampler, n, seed)
        assert batches == whole[: len(batches)]
        lengths[len(batches)] += 1
    places = len(whole)
    assert set(lengths) == set(range(1, places + 1))
    assert places == 1 or chisquare([lengths[k] for k in range(1, places + 1)]).pvalue > RARELY


@pytest.mark.parametrize(("n", "size"), [(5, 1), (6, 1), (7, 3), (1, 1)])
def test_a_random_skip_is_uniform_over_the_first_half(n, size):
    sampler = RandomSkip(n, size=size)
    whole = drawn(FixedOrder(n, size=size), n, 0)
    skipped = Counter()
    for seed in range(1500):
        batches = drawn(sampler, n, seed)
        assert batches == whole[len(whole) - len(batches) :]
        skipped[len(whole) - len(batches)] += 1
    most = len(whole) // 2
    assert set(skipped) == set(range(most + 1))
    assert most == 0 or chisquare([skipped[k] for k in range(most + 1)]).pvalue > RARELY


def test_the_skip_over_public_units_is_that_of_the_accounting():
    """The observed frequency with which a unit is used agrees with the probability in the guarantee of each record."""
    sampler = RandomSkip(3, public=4)
    seen = Counter(unit for seed in range(4000) for batch in drawn(sampler, 7, seed) for unit in batch)
    shares = [seen[unit] / 4000 for unit in range(7)]
    assert shares[:3] == pytest.approx([1 / 4, 2 / 4, 3 / 4], abs=0.05)
    assert shares[3:] == pytest.approx([1.0] * 4)


def test_a_secret_order_is_uniform_and_the_same_in_every_pass():
    sampler = SecretOrder(4, passes=3, public=2)
    orders = Counter()
    for seed in range(2400):
        batches = drawn(sampler, 6, seed)
        assert len(batches) == sampler.implied_steps == 18
        assert batches[:6] == batches[6:12] == batches[12:]
        assert batches[4:6] == [(4,), (5,)]
        orders[tuple(batch[0] for batch in batches[:4])] += 1
    assert chisquare([orders[order] for order in permutations(range(4))]).pvalue > RARELY


def test_a_secret_order_deals_batches_of_the_size():
    batches = drawn(SecretOrder(7, passes=2, size=3, public=4), 11, 1)
    assert [len(batch) for batch in batches] == [3, 3, 1, 3, 1] * 2
    assert sorted(sum(batches[:3], ())) == list(range(7))
    assert batches[3:5] == [(7, 8, 9), (10,)]


@pytest.mark.parametrize("sampler", [RandomStop(30), RandomSkip(30), SecretOrder(30)], ids=repr)
def test_secrets_come_from_the_source_alone(sampler):
    assert drawn(sampler, 30, 1) == drawn(sampler, 30, 1)
    assert len({tuple(drawn(sampler, 30, seed)) for seed in range(12)}) > 3
    secure = {tuple(map(str, sampler.batches(30, 30, NoiseSource()))) for _ in range(12)}
    assert len(secure) > 3


# ----------------------------------------------------------------------------------------------------- as samplers


@pytest.mark.parametrize(
    ("sampler", "secret", "word"),
    [
        (RandomStop(9, size=2), Secret.STOP, "random step that is kept secret"),
        (RandomSkip(9, size=2), Secret.SKIP, "first half that is kept secret"),
        (SecretOrder(9, 2, 2, 3), Secret.ORDER, "random order that is kept secret"),
    ],
    ids=repr,
)
def test_descriptions_name_the_secret(sampler, secret, word):
    assert sampler.secret is secret
    assert word in sampler.in_words()
    assert FixedOrder(9).secret is Secret.NOTHING
    plan = GradientPlan(sampler, None, 1.0, 4.0, release="last", descent=Descent(0.5, 1.0))
    assert word in plan.guarantee(1e-5).statement(verbose=True)
    assert plan.event.secret is secret
    assert sampler.nominal_size(9) == 2
    assert eval(repr(sampler)) == sampler != FixedOrder(9, sampler.passes, 2, sampler.public)


def test_a_secret_order_is_never_called_public():
    assert "fixed public order" not in SecretOrder(9).in_words()


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomStop(9, passes=2),
        lambda: RandomStop(9, public=1),
        lambda: RandomSkip(9, passes=2),
        lambda: RandomStop(0),
        lambda: RandomSkip(9, size=10),
        lambda: SecretOrder(9, passes=0),
        lambda: SecretOrder(9, public=-1),
        lambda: SecretOrder(9, public=1.5),
    ],
)
def test_impossible_secrets_are_refused(make):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        make()


@pytest.mark.parametrize("sampler", [RandomStop(9), RandomSkip(9), SecretOrder(9)], ids=repr)
def test_another_number_of_units_than_planned_is_refused(sampler):
    with pytest.raises(ValueError, match="n = 9 units, the data has 8"):
        list(sampler.batches(8, 9, NoiseSource(0)))


def test_a_secret_order_is_always_shuffled():
    """Its accounting averages over the places of a unit, which would be wrong in the order of the data."""
    assert SecretOrder(9).shuffled
    with pytest.raises(TypeError, match="shuffled"):
        SecretOrder(9, shuffled=False)
    with pytest.raises(ValueError, match="shuffled"):
        dataclasses.replace(SecretOrder(9), shuffled=False)
