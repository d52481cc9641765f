"""Fast random orders: all are equally likely, and different rows and purposes are independent."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from privet.privacy.noise.orders import OrderSource

# What these orders have always been, so that runs can be repeated with other versions and on other machines.
SEED, ORDERS = 4157519260231042253, [[0, 1, 5, 4, 3, 2], [1, 5, 4, 2, 3, 0]]


def drawn(seed, purpose="", rows=2, n=40):
    return OrderSource(seed, purpose).orders(rows, n)


@pytest.mark.parametrize("n", [1, 2, 60, 1000])
def test_every_row_is_an_order(n):
    orders = drawn(3, rows=4, n=n)
    assert orders.dtype == np.int64
    assert (np.sort(orders, axis=1) == np.arange(n)).all()


def test_all_orders_are_equally_likely_and_rows_independent():
    pairs = OrderSource(0).orders(2 * 7200, 3).reshape(7200, 6)
    counts = Counter(map(tuple, pairs.tolist()))
    assert len(counts) == 36
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_orders_repeat_for_the_same_seed_and_purpose_only():
    assert np.array_equal(drawn(3, "a"), drawn(3, "a"))
    different = [drawn(3, "a"), drawn(4, "a"), drawn(3, "b"), drawn(3, "a")[::-1]]
    assert len({each.tobytes() for each in different}) == 4


@pytest.mark.system_noise
def test_unseeded_sources_differ():
    assert len({drawn(None).tobytes() for _ in range(50)}) == 50


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="seed"):
        OrderSource(-1)
    with pytest.raises(ValueError, match="rows"):
        drawn(0, rows=0)
    with pytest.raises(ValueError, match="n must"):
        drawn(0, n=0)


def test_seeds_depend_on_key_purpose_and_unit():
    seeds = [
        OrderSource(0).seed(),
        OrderSource(1).seed(),
        OrderSource(0, "client {}", 3).seed(),
        OrderSource(0, "client {}", 4).seed(),
        OrderSource().seed(),
    ]
    assert len(set(seeds)) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert OrderSource(0, "client {}", 3).seed() == OrderSource(0, "client 3").seed()


def test_seeds_have_63_bits_and_the_same_value_on_every_machine():
    seeds = [OrderSource(number).seed() for number in range(64)]
    assert sum(seed >= 2**62 for seed in seeds) > 16
    assert sum(seed % 2 for seed in seeds) > 16
    assert OrderSource(5, "client {}", 2).seed() == SEED
    assert OrderSource(5, "client 2").orders(2, 6).tolist() == ORDERS


def test_orders_of_one_source_begin_alike_and_are_repeated():
    source = OrderSource(1)
    np.testing.assert_array_equal(source.orders(3, 5), source.orders(3, 5))
    np.testing.assert_array_equal(source.orders(3, 5)[:1], source.orders(1, 5))


def test_braces_are_replaced_only_if_there_is_a_unit():
    assert OrderSource(0, "client {}").seed() != OrderSource(0, "client {}", 0).seed()
    assert OrderSource(0, "client {}", 0).seed() == OrderSource(0, "client 0").seed()
