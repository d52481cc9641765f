"""Sorted tables: what samplers that take batches by position assume, and why a drawn order assumes nothing."""

import math

import numpy as np
import pytest

from privet.plans import (
    CentredPlan,
    Descent,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    OneUniform,
    Poisson,
    RandomSkip,
    RandomStop,
    RecursivePlan,
    SecretOrder,
)
from privet.privacy import Budget, NoiseSource, gdp_epsilon, gdp_mu
from privet.privacy.guarantees.guarantee import Unit

BUDGET = Budget(1.0, 1e-6)
BY_POSITION = [FixedOrder(12), FixedOrder(12, 3, 5, stop=2), RandomStop(12), RandomSkip(12, size=5)]
OTHERS = [
    FullBatch(),
    Poisson(1.0),
    FixedSize(3, 12),
    OneUniform(12),
    FixedOrder(12, size=12),
    FixedOrder(12, 3, 5, shuffled=True),
    RandomStop(12, shuffled=True),
    RandomSkip(12, shuffled=True),
    SecretOrder(12, 2),
]


def sorted_neighbours(n, size):
    """Return two sorted tables (key, value) in which one record differs, and value has one sign per batch.

    The record with the smallest key is replaced by one with the largest, so that all rows move up by one place.
    """
    table = np.column_stack([np.arange(n, dtype=float), np.where(np.arange(n) // size % 2, 1.0, -1.0)])
    other = np.concatenate([table[1:], [[float(n), -table[-1, 1]]]])
    return table, other


def sums(table, sampler, source=None):
    """Return the sums of the values of all batches."""
    batches = sampler.batches(len(table), sampler.implied_steps, source or NoiseSource(0))
    return np.array([table[batch, 1].sum() for batch in batches])


def true_epsilon(plan, one, other):
    """Return the exact epsilon of releasing these sums: the total squared distance over the noise."""
    return gdp_epsilon(float(np.linalg.norm(one - other)) / plan.noise_std, BUDGET.delta)


def conditions_on_the_order(guarantee):
    return [each for each in guarantee.assumptions if "does not depend on their content" in each.text]


class Drawn(NoiseSource):
    """A source that draws this order."""

    def __init__(self, order):
        super().__init__(0)
        self.order = order

    def permutation(self, n):
        assert n == len(self.order)
        return self.order


# -------------------------------------------------------------------------------------------------------- the problem


@pytest.mark.parametrize(("size", "true"), [(1, 62.8), (125, 3.1)])
def test_a_sorted_table_has_many_times_the_epsilon_of_the_plan(size, true):
    plan = GradientPlan.for_budget(BUDGET, sampler=FixedOrder(1000, size=size), clip_norm=1.0)
    table, other = sorted_neighbours(1000, size)
    one, two = sums(table, plan.sampler), sums(other, plan.sampler)
    assert np.all(np.abs(one - two) == 2.0)  # each sum moves within its bound, but every one of them moves
    assert true_epsilon(plan, one, two) == pytest.approx(true, abs=0.05)
    guarantee = plan.guarantee()
    assert guarantee.epsilon <= 1.0
    assert guarantee.is_conditional
    assert "not sorted by one of their values" in " ".join(guarantee.statement().split())


@pytest.mark.parametrize("size", [1, 125])
def test_in_a_drawn_order_one_sum_per_pass_moves(size):
    """All orders have the same probability, so the order of one table may be paired with any order of the other."""
    sampler = FixedOrder(1000, 2, size, shuffled=True)
    plan = GradientPlan.for_budget(BUDGET, sampler=sampler, clip_norm=1.0)
    table, other = sorted_neighbours(1000, size)
    other[-1, 1] = 1.0  # unlike the record that it replaces
    order = NoiseSource(1).permutation(1000)
    one, two = sums(table, sampler, Drawn(order)), sums(other, sampler, Drawn((order - 1) % 1000))
    assert np.count_nonzero(one != two) == 2  # bitwise: the others are sums of the same records in the same order
    assert true_epsilon(plan, one, two) <= plan.guarantee().epsilon * (1 + 1e-9) <= 1.0 + 1e-9


def test_a_drawn_order_is_uniform_and_the_same_in_every_pass():
    sampler, source = FixedOrder(3, 2, shuffled=True), NoiseSource(5)
    seen = {}
    for _ in range(600):
        batches = [int(batch[0]) for batch in sampler.batches(3, 6, source)]
        assert batches[:3] == batches[3:]
        seen[tuple(batches[:3])] = seen.get(tuple(batches[:3]), 0) + 1
    assert len(seen) == math.factorial(3)
    assert min(seen.values()) > 60


@pytest.mark.parametrize("kind", [FixedOrder, RandomSkip])
def test_public_units_stay_at_the_end(kind):
    batches = list(kind(5, public=3, shuffled=True).batches(8, 8, NoiseSource(0)))
    assert batches[-3:] == [slice(5, 6), slice(6, 7), slice(7, 8)]
    assert all(unit < 5 for batch in batches[:-3] for unit in batch)


# --------------------------------------------------------------------------------------------- what guarantees say


def runs(sampler):
    """Return the fields of plans with the sampler: all sums are released, or only the last iterate, if that works."""
    has_last = not isinstance(sampler, Poisson | FixedSize) and not getattr(sampler, "stop", None)
    return [{}, {"release": "last", "descent": Descent(1.0, 1.0)}] if has_last else [{}]


@pytest.mark.parametrize(
    ("sampler", "fields"), [(each, fields) for each in BY_POSITION + OTHERS for fields in runs(each)], ids=repr
)
def test_guarantees_assume_an_order_exactly_where_batches_are_taken_by_position(sampler, fields):
    steps = None if sampler.implied_steps else 2
    guarantee = GradientPlan(sampler, steps, 1.0, 3.0, **fields).guarantee(1e-5, unit=Unit.CLIENT)
    found = conditions_on_the_order(guarantee)
    assert sampler.relies_on_row_order == (sampler in BY_POSITION)
    assert len(found) == sampler.relies_on_row_order
    for condition in found:
        assert not condition.is_enforced
        assert "the order of the clients" in condition.text


def test_plans_of_several_parts_state_the_condition_once():
    order = FixedOrder(12, size=4)
    centred = CentredPlan.for_budget(BUDGET, sampler=order, clip_norm=1.0, row_norm=1.0)
    recursive = RecursivePlan(order, None, 1.0, 0.5, 0.5, 3.0, first=FixedOrder(12, size=4, stop=1))
    for guarantee in (centred.guarantee(), recursive.guarantee(1e-5)):
        assert len(conditions_on_the_order(guarantee)) == 1
    drawn = FixedOrder(12, size=4, shuffled=True)
    centred = CentredPlan.for_budget(BUDGET, sampler=drawn, clip_norm=1.0, row_norm=1.0)
    assert not conditions_on_the_order(centred.guarantee())


def test_a_recursive_plan_states_what_it_assumes_of_public_units():
    plan = RecursivePlan(FixedOrder(6, size=3, public=2), None, 1.0, 0.5, 0.5, 3.0, first=FullBatch())
    texts = [each.text for each in plan.guarantee(1e-5).assumptions if not each.is_enforced]
    assert any("the 2 public records need no protection" in text for text in texts)


@pytest.mark.parametrize("sampler", [FixedOrder(12, 2, 5), RandomStop(12), RandomSkip(12)], ids=repr)
def test_a_drawn_order_costs_the_same_as_a_given_one(sampler):
    drawn = type(sampler)(**{**vars(sampler), "shuffled": True})
    for fields in runs(sampler):
        plans = [GradientPlan(each, None, 1.0, 3.0, **fields) for each in (sampler, drawn)]
        one, two = (plan.guarantee(1e-5) for plan in plans)
        assert one.epsilon == two.epsilon
        assert "kept secret" in plans[1].drawn().text
    assert eval(repr(drawn)) == drawn != sampler


def test_epsilons_by_place_do_not_claim_to_be_those_of_rows():
    fields = {"release": "last", "descent": Descent(1.0, 1.0)}
    given, drawn, secret = (
        GradientPlan(order, None, 1.0, 3.0, **fields).guarantee(1e-5).per_record
        for order in (FixedOrder(30), FixedOrder(30, shuffled=True), SecretOrder(30))
    )
    assert np.array_equal(given.epsilons, drawn.epsilons)
    assert "the worst is record 29 with" in str(given)
    assert "the worst is at place 29 of a secret random order, with" in str(drawn)
    assert (given.is_by_row, drawn.is_by_row, secret.is_by_row) == (True, False, True)
    assert np.ptp(secret.epsilons) == 0
    several = GradientPlan(FixedOrder(30, shuffled=True), None, 1.0, 3.0, tasks=2, **fields)
    assert several.guarantee(1e-5).per_record is None  # a record has another place in each run
    assert gdp_mu(Budget(several.guarantee(1e-5).epsilon, 1e-5)) == pytest.approx(2 * math.sqrt(2) / 3, rel=2e-3)
