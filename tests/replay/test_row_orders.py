"""Replays on sorted tables: batches by position are refuted, batches in a drawn order are not."""

import importlib
from dataclasses import replace

import numpy as np
import pytest

from privet import PrivateLogisticRegression
from privet.audit import replay
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import CentredPlan, FixedOrder, GradientPlan, RandomSkip, RandomStop, RecursivePlan, SecretOrder
from privet.privacy import NoiseSource
from privet.replay import Units
from privet.solvers import (
    Problem,
    Run,
    centred_gradient_descent,
    descent_of,
    noisy_gradient_descent,
    projected_sgd,
    recursive_momentum,
)

N, SIZE = 24, 3


@pytest.fixture
def tables():
    """Return two tables that are sorted by their first column. The smallest record is replaced by a largest one."""
    keys, signs = np.arange(N) / (100 * N), np.where(np.arange(N) // SIZE % 2, 1.0, -1.0) * 0.99
    X, y = np.column_stack([keys, signs]), np.ones(N)
    other = np.append(X[1:], [[0.02, -0.99]], axis=0)
    return (X, y), (other, y)


def problem_of(data, intercept=0.0):
    return Problem(Logistic(), L2(0.1), BoundedRows(data[0], 1.0, intercept), data[1])


def hidden(order):
    def train(data):
        problem = problem_of(data)
        plan = GradientPlan(order, None, 0.5, 2.0, release="last", descent=descent_of(problem), delta=1e-5)
        return projected_sgd(problem, Run(plan, NoiseSource()))

    return train


def visible(order):
    def train(data):
        plan = GradientPlan(order, None, 0.5, 2.0, delta=1e-5)
        return noisy_gradient_descent(problem_of(data), Run(plan, NoiseSource()), step_size=0.5)

    return train


def centred(order):
    def train(data):
        problem = problem_of(data, 1.0)
        plan = CentredPlan.for_budget((1.0, 1e-5), sampler=order, clip_norm=1.5, row_norm=1.1)
        return centred_gradient_descent(problem, Run(plan, NoiseSource()), step_size=0.5)

    return train


def recursive(order):
    def train(data):
        plan = RecursivePlan(order, None, 1.0, 0.5, 0.5, 3.0, first=replace(order, stop=1), delta=1e-5)
        return recursive_momentum(problem_of(data), Run(plan, NoiseSource()), step_size=0.5)

    return train


@pytest.mark.parametrize("train", [hidden, visible, centred, recursive])
def test_a_sorted_table_refutes_the_order_of_its_rows_and_no_drawn_one(tables, train):
    found = replay(train(FixedOrder(N, 1, SIZE)), *tables)
    assert "although the differing unit is not in its batch" in found.verdict
    assert found.moved >= N // SIZE
    for order in (FixedOrder(N, 2, SIZE, shuffled=True), SecretOrder(N, 2, SIZE)):
        assert replay(train(order), *tables).verdict == "consistent"


@pytest.mark.parametrize("train", [hidden, visible])
def test_the_total_alone_refutes_batches_of_which_each_moves_within_its_bound(tables, train):
    """Rows of two batches differ by at least half of the bound, so eight batches cost at least twice the claim."""
    found = replay(train(FixedOrder(N, 1, SIZE)), *tables, units=Units.unknown())
    assert found.spent > 1.9
    assert "all releases together move by" in found.verdict.lower()
    assert len(found.problems) == 1


@pytest.mark.parametrize("kind", [RandomStop, RandomSkip])
def test_secret_stops_and_skips_need_a_drawn_order(tables, kind):
    shown = [replay(hidden(kind(N)), *tables) for _ in range(3)]
    assert any(each.is_violation for each in shown)
    for _ in range(3):
        assert replay(hidden(kind(N, shuffled=True)), *tables).verdict == "consistent"


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_estimator_is_refuted_only_if_it_does_not_shuffle(tables, monkeypatch, fit_intercept):
    def train(data):
        fields = {"method": "iteration", "max_iter": 3, "classes": [0, 1], "fit_intercept": fit_intercept}
        return PrivateLogisticRegression(1.0, **fields).fit(*data)

    assert replay(train, *tables).verdict == "consistent"
    module = importlib.import_module("privet.linear.methods.iteration")

    def in_row_order(*fields, shuffled):
        assert shuffled
        return FixedOrder(*fields)

    monkeypatch.setattr(module, "FixedOrder", in_row_order)
    found = replay(train, *tables)
    assert "although the differing unit is not in its batch" in found.verdict
