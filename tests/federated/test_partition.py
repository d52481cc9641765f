import numpy as np
import pytest

from privet.federated.partition import by_key, dirichlet, iid


def generator(seed=0):
    return np.random.default_rng(seed)


def shares(labels, parts, clients):
    return np.array([np.bincount(labels[part], minlength=10) / len(part) for part in parts]).reshape(clients, 10)


def is_partition(parts, n):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


@pytest.mark.parametrize(("n", "clients"), [(60, 6), (61, 6), (5, 5)])
def test_iid_uses_every_row_once_in_parts_of_equal_size(n, clients):
    parts = iid(n, clients, generator())
    assert is_partition(parts, n)
    assert {len(part) for part in parts} <= {n // clients, n // clients + 1}
    assert n == clients or not all(np.array_equal(part, np.arange(part[0], part[0] + len(part))) for part in parts)


def test_by_key_makes_one_client_per_key():
    keys = np.array(["Puck", "Oberon", "Puck", "Helena", "Oberon", "Puck"])
    assert [list(part) for part in by_key(keys)] == [[3], [1, 4], [0, 2, 5]]
    assert [list(part) for part in by_key(keys, minimum=2)] == [[1, 4], [0, 2, 5]]


@pytest.mark.parametrize("concentration", [1e-3, 0.1, 1.0, 1000.0])
def test_dirichlet_uses_every_row_once_in_parts_of_equal_size(concentration):
    labels = generator(1).integers(0, 10, 1003)
    parts = dirichlet(labels, 20, concentration, generator())
    assert is_partition(parts, 1003)
    assert {len(part) for part in parts} == {50, 51}


def test_a_small_concentration_skews_labels_and_a_large_one_does_not():
    labels = np.repeat(np.arange(10), 500)
    largest = {
        concentration: np.median(shares(labels, dirichlet(labels, 50, concentration, generator()), 50).max(axis=1))
        for concentration in (0.05, 1000.0)
    }
    assert largest[0.05] > 0.6
    assert largest[1000.0] < 0.25


@pytest.mark.parametrize("make", [lambda g: iid(100, 7, g), lambda g: dirichlet(np.arange(100) % 4, 7, 0.5, g)])
def test_partitions_depend_only_on_the_generator(make):
    one, same, other = make(generator(0)), make(generator(0)), make(generator(1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: iid(3, 4, generator()), "each client needs at least one"),
        (lambda: dirichlet([0, 1], 3, 1.0, generator()), "each client needs at least one"),
        (lambda: dirichlet([0, 1], 2, 0.0, generator()), "concentration"),
        (lambda: dirichlet([[0, 1]], 1, 1.0, generator()), "one label"),
        (lambda: by_key([]), "one key"),
        (lambda: by_key([1, 1, 2], minimum=3), "largest has 2"),
    ],
)
def test_invalid_partitions_are_refused(make, cause):
    with pytest.raises(ValueError, match=cause):
        make()
