import dataclasses
import math
import pickle

import numpy as np
import pytest

from privet.privacy import Adjacency, Budget, NoiseMultiplier, as_budget
from privet.privacy.budget import as_budget_or_noise, default_delta, given_budget, stated_delta

BAD_EPSILONS = [0, -1, math.nan, math.inf, -math.inf, True, "1", None]
BAD_DELTAS = [1, 1.5, -1e-9, math.nan, math.inf, False, "1e-5", None]


@pytest.mark.parametrize("epsilon", BAD_EPSILONS, ids=repr)
def test_bad_epsilon_is_named(epsilon):
    with pytest.raises(ValueError, match=r"^epsilon must [^\n]*$"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", BAD_DELTAS, ids=repr)
def test_bad_delta_is_named(delta):
    with pytest.raises(ValueError, match=r"^delta must [^\n]*$"):
        Budget(1.0, delta)


def test_budget_is_pure_only_without_delta():
    assert Budget(1).is_pure
    assert not Budget(1, 5e-324).is_pure


def test_budget_is_a_frozen_value():
    budget = Budget(1, 1e-5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 2.0
    assert budget == pickle.loads(pickle.dumps(budget))
    assert {budget: 1}[Budget(1.0, 1e-5)] == 1
    assert type(budget.epsilon) is float


def test_replacing_moves_a_sum_twice_as_far_as_adding():
    assert Adjacency.REPLACE_ONE.factor == 2
    assert Adjacency.ADD_OR_REMOVE.factor == 1


@pytest.mark.parametrize("adjacency", Adjacency)
def test_an_adjacency_is_restored_from_its_name_and_names_the_unit(adjacency):
    assert Adjacency(str(adjacency)) is adjacency
    assert "client" in adjacency.in_words.format(unit="client")


def test_a_budget_can_be_a_budget_an_epsilon_or_a_pair():
    budget = Budget(2.0, 1e-6)
    assert as_budget(budget) is budget
    assert as_budget((2.0, 1e-6)) == as_budget([2, 1e-6]) == budget
    assert as_budget(2, n=500) == as_budget(np.float64(2.0), n=500) == budget
    assert as_budget(2, n=10**8) == Budget(2.0, 1e-10)


@pytest.mark.parametrize("n", [*range(1, 20), *(k * 10**power for power in range(1, 12) for k in (2, 5, 7, 10))])
def test_at_the_default_delta_any_record_is_published_with_a_chance_of_at_most_one_percent(n):
    delta = default_delta(n)
    assert 0 < delta <= 1e-6
    assert n * delta <= 0.01 * (1 + 2**-52)  # up to the rounding of the quotient and the product
    assert delta == 1e-6 or n > 10_000  # small tables all have the same delta


def test_an_epsilon_without_a_number_of_records_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"^budget=3.0 has no delta[^\n]*Budget\(epsilon, delta\)[^\n]*$"):
        as_budget(3.0)


@pytest.mark.parametrize("value", [None, True, "1", (1.0,), (1.0, 1e-5, 2), {}], ids=repr)
def test_a_value_that_is_not_a_budget_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"^a budget must be [^\n]*$"):
        as_budget(value, n=10)


def test_a_pair_is_checked_like_a_budget():
    with pytest.raises(ValueError, match=r"^epsilon must be positive"):
        as_budget((-1.0, 1e-5))


def test_a_stated_delta_is_the_given_one_or_the_own_one_and_never_missing():
    assert (stated_delta(1e-5, 1e-6), stated_delta(0.0, 1e-6), stated_delta(None, 0.0)) == (1e-5, 0.0, 0.0)
    with pytest.raises(ValueError, match="no delta at which"):
        stated_delta(None, None)


# --- a noise multiplier in place of a budget ------------------------------------------------------------------------


@pytest.mark.parametrize("multiplier", [-1, -1e-9, math.nan, math.inf, True, "1", None], ids=repr)
def test_a_bad_noise_multiplier_is_named(multiplier):
    with pytest.raises(ValueError, match=r"^noise_multiplier must [^\n]*$"):
        NoiseMultiplier(multiplier)


@pytest.mark.parametrize("delta", [value for value in BAD_DELTAS if value is not None], ids=repr)
def test_a_bad_delta_of_a_noise_multiplier_is_named(delta):
    with pytest.raises(ValueError, match=r"^delta must [^\n]*$"):
        NoiseMultiplier(1.0, delta)


def test_a_noise_multiplier_has_plain_numbers_and_no_negative_zero():
    given = NoiseMultiplier(np.float32(2), np.float32(0.5))
    assert (type(given.multiplier), type(given.delta)) == (float, float)
    assert (given.multiplier, given.delta) == (2.0, 0.5)
    assert math.copysign(1.0, NoiseMultiplier(-0.0).multiplier) == 1.0
    assert NoiseMultiplier(1.0).delta is None


def test_a_noise_multiplier_gets_the_default_delta_only_where_it_has_none_and_n_is_known():
    bare, own = NoiseMultiplier(1.5), NoiseMultiplier(1.5, 1e-4)
    assert as_budget_or_noise(bare) is bare
    assert as_budget_or_noise(own, 500) is own
    assert as_budget_or_noise(NoiseMultiplier(1.5, 0.0), 500) == NoiseMultiplier(1.5, 0.0)
    assert as_budget_or_noise(bare, 10**8) == NoiseMultiplier(1.5, 1e-10)
    assert as_budget_or_noise(2.0, 500) == Budget(2.0, 1e-6)
    assert as_budget_or_noise((2.0, 1e-3)) == Budget(2.0, 1e-3)


def test_a_noise_multiplier_is_refused_where_only_a_budget_determines_the_noise():
    with pytest.raises(ValueError, match=r"^NoiseMultiplier\(multiplier=1.5[^\n]*Give a Budget\(epsilon, delta\)\.$"):
        as_budget(NoiseMultiplier(1.5), 100)


@pytest.mark.parametrize(
    ("budget", "epsilon", "noise_multiplier"),
    [(None, None, None), (1.0, 1.0, None), (1.0, None, 1.0), (None, 1.0, 1.0), (1.0, 1.0, 1.0)],
)
def test_exactly_one_of_budget_epsilon_and_noise_multiplier_is_given(budget, epsilon, noise_multiplier):
    with pytest.raises(ValueError, match=r"^Give one of budget, epsilon and noise_multiplier, got [^\n]*$"):
        given_budget(budget, epsilon, None, noise_multiplier, 100)


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_a_budget_has_its_own_delta(delta):
    with pytest.raises(ValueError, match=r"^budget and delta cannot be given together"):
        given_budget(Budget(1.0, 1e-5), None, delta, None, 100)


def test_what_a_caller_gives_becomes_a_budget_or_a_noise_multiplier():
    assert given_budget(Budget(2.0, 1e-4), None, None, None, 100) == Budget(2.0, 1e-4)
    assert given_budget((2.0, 1e-4), None, None, None, 100) == Budget(2.0, 1e-4)
    assert given_budget(2.0, None, None, None, 10**8) == Budget(2.0, 1e-10)
    assert given_budget(NoiseMultiplier(3.0), None, None, None, 10**8) == NoiseMultiplier(3.0, 1e-10)
    assert given_budget(None, 2.0, None, None, 10**8) == Budget(2.0, 1e-10)
    assert given_budget(None, 2.0, 1e-3, None, 100) == Budget(2.0, 1e-3)
    assert given_budget(None, 2.0, 0.0, None, 100) == Budget(2.0, 0.0)
    assert given_budget(None, None, None, 3.0, 10**8) == NoiseMultiplier(3.0, 1e-10)
    assert given_budget(None, None, 1e-3, 3.0, 100) == NoiseMultiplier(3.0, 1e-3)


@pytest.mark.parametrize(("n", "delta"), [(0, 1e-6), (1, 1e-6), (10_000, 1e-6), (20_000, 5e-7), (10**6, 1e-8)])
def test_the_default_delta_is_a_hundredth_over_n_but_at_most_a_millionth(n, delta):
    assert default_delta(n) == pytest.approx(delta, rel=1e-15)
