"""Noisy numbers of records per class, and the weights that follow: sensitivity, noise, range, and the share."""

import itertools
import math

import numpy as np
import pytest

from privet.plans.class_counts import COUNTS_SHARE, LEAST_WEIGHT, ClassCounts
from privet.privacy import Adjacency, Budget, NoiseSource, gdp_mu

BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize(("adjacency", "square"), [(Adjacency.REPLACE_ONE, 2), (Adjacency.ADD_OR_REMOVE, 1)])
def test_the_sensitivity_is_that_of_all_neighbours_and_attained(adjacency, square):
    found = 0
    for codes in itertools.product(range(3), repeat=3):
        counts = np.bincount(codes, minlength=3)
        is_removed = adjacency is Adjacency.ADD_OR_REMOVE
        others = [codes[:2]] if is_removed else [(*codes[:2], other) for other in range(3)]
        found = max(found, *(int(((counts - np.bincount(other, minlength=3)) ** 2).sum()) for other in others))
    plan = ClassCounts.for_budget(BUDGET, 3, adjacency).plan
    assert found == square
    assert math.sqrt(square) <= plan.stability.sensitivity <= math.sqrt(square) * (1 + 1e-15)
    assert plan.scale == pytest.approx(math.sqrt(square) / (gdp_mu(BUDGET) * math.sqrt(COUNTS_SHARE)), rel=1e-6)


def test_the_noise_has_the_size_that_the_event_accounts_for(monkeypatch):
    counts = ClassCounts.for_budget(BUDGET, 500, Adjacency.REPLACE_ONE)
    drawn = []
    noisy = type(counts.plan).noisy
    monkeypatch.setattr(type(counts.plan), "noisy", lambda *args: drawn.append(noisy(*args)) or drawn[-1])
    counts.weights(np.zeros(0, np.int64), NoiseSource(0))
    assert np.std(drawn[0]) == pytest.approx(math.sqrt(2) / counts.event.mu, rel=0.15)


@pytest.mark.parametrize("budget", [BUDGET, Budget(0.01), Budget(1000.0, 1e-6)])
def test_the_largest_weight_is_one_and_none_leaves_the_public_range(budget):
    for seed, codes in itertools.product(range(5), ([], [0], [0, 1, 2], [1] * 100_000, [0] * 5 + [1] * 50, [-1, 3, 9])):
        counts = ClassCounts.for_budget(budget, 3, Adjacency.ADD_OR_REMOVE)
        weights = counts.weights(np.array(codes, dtype=np.int64), NoiseSource(seed))
        assert weights.max() == 1.0
        assert weights.min() >= LEAST_WEIGHT


def test_weights_are_the_inverse_frequencies_where_the_noise_hardly_matters():
    codes = np.repeat([0, 1, 2], [80_000, 20_000, 10_000])
    counts = ClassCounts.for_budget(BUDGET, 3, Adjacency.REPLACE_ONE)
    np.testing.assert_allclose(counts.weights(codes, NoiseSource(0)), [1 / 8, 1 / 2, 1], rtol=0.05)


def test_counts_state_what_they_release():
    text = ClassCounts.for_budget(BUDGET, 3, Adjacency.ADD_OR_REMOVE).guarantee().statement(verbose=True)
    assert "noisy numbers of records of 3 classes" in text
    assert "adding or removing a record changes at most one count" in text
