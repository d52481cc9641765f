"""The plan of sums over parties: its epsilon, its noise, its lattice."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privet.plans.aggregation import AggregationPlan
from privet.privacy import Adjacency, Budget, compose, enforced, gaussian_sigma, gdp_mu
from privet.privacy.events import NearlyGaussian
from privet.privacy.noise.lattice import LatticeLaw

BUDGET = Budget(1.0, 1e-5)
FIELDS = {"dimension": 10, "steps": 20, "sensitivity": 2.0, "largest": 1e4}
PLAN = AggregationPlan.for_budget(BUDGET, **FIELDS)

budgets = st.builds(Budget, st.floats(0.2, 10.0), st.floats(-9, -2).map(lambda x: 10.0**x))
sizes = st.floats(-6, 6).map(lambda x: 10.0**x)


def planned(budget=BUDGET, **changed):
    return AggregationPlan.for_budget(budget, **(FIELDS | changed))


def overhead(plan, budget):
    """Return the noise over that of the exact Gaussian mechanism for the same sums."""
    exact = gaussian_sigma(plan.sensitivity, budget) * math.sqrt(plan.steps)
    return plan.noise_std / exact


# ----------------------------------------------------------------------------------------------------------- the budget


@settings(max_examples=12, deadline=None)
@given(budgets, st.integers(1, 300), st.integers(1, 1000), sizes, sizes)
@example(Budget(0.5, 1e-3), 104, 1500, 2.0, 1e5)
@example(Budget(20.0, 1e-9), 1, 1, 1e-6, 1e6)
@example(Budget(1e-3, 1e-4), 30, 10, 1e6, 1e-6)
def test_epsilon_is_never_above_the_budget_and_nearly_uses_it_up(budget, dimension, steps, sensitivity, largest):
    plan = planned(budget, dimension=dimension, steps=steps, sensitivity=sensitivity, largest=largest)
    assert 0.99 * budget.epsilon < plan.guarantee(budget.delta).epsilon <= budget.epsilon
    assert plan.sensitivity == sensitivity
    assert (plan.dimension, plan.steps, plan.largest) == (dimension, steps, largest)
    # a law that is one part in a hundred narrower, or one step more, is too much
    assert dataclasses.replace(plan, scale=1.02 * plan.scale).guarantee(budget.delta).epsilon > budget.epsilon
    more = dataclasses.replace(plan, steps=steps + max(1, steps // 30))
    assert more.guarantee(budget.delta).epsilon > budget.epsilon


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 3.0])
@pytest.mark.parametrize(("dimension", "steps"), [(1, 1), (104, 1), (104, 100)])
def test_the_noise_is_within_a_tenth_of_an_exact_gaussian_s(epsilon, dimension, steps):
    budget = Budget(epsilon, 1e-5)
    plan = planned(budget, dimension=dimension, steps=steps)
    assert 1.0 < overhead(plan, budget) < 1.1


def test_the_noise_by_hand():
    """mu* of (1, 1e-5) is 0.26805 (Balle and Wang): a sum of sensitivity 2 needs 2 sqrt(20) / mu*, and some more."""
    assert 1.0 < PLAN.noise_std / (2 * math.sqrt(20) / 0.26805) < 1.1


def test_the_event_is_that_of_the_law_and_the_shift():
    step, distance = PLAN.law.comparison(PLAN.tail)
    assert PLAN.event == NearlyGaussian(step * PLAN.shift * math.sqrt(20), 20 * 10 * distance)
    assert PLAN.adjacency is Adjacency.REPLACE_ONE
    two = compose([PLAN.guarantee(1e-5), PLAN.guarantee(1e-5)], delta=1e-5)
    longer = dataclasses.replace(PLAN, steps=40)
    assert two.epsilon == pytest.approx(longer.guarantee(1e-5).epsilon, rel=1e-6)


def test_the_shift_includes_the_rounding():
    """On a coarser lattice with as much noise in its own units, epsilon is larger."""
    law = LatticeLaw(bits=10)
    fine = AggregationPlan(10_000, 1, 2.0, 1.0, 2000.0, law, 1e-12)
    coarse = AggregationPlan(10_000, 1, 2.0, 1.0, 2000.0 / 64, LatticeLaw(bits=4), 1e-12)
    assert fine.noise_std == pytest.approx(coarse.noise_std, rel=1e-3)
    assert fine.shift == pytest.approx(2.0 * 2000 + 100, rel=1e-9)
    assert coarse.shift == pytest.approx(2.0 * 2000 / 64 + 100, rel=1e-9)
    assert coarse.guarantee(1e-5).epsilon > 2 * fine.guarantee(1e-5).epsilon


def test_the_event_includes_the_mass_of_the_tails():
    event = dataclasses.replace(PLAN, tail=1e-8).event
    assert 0 < event.distance <= 20 * 10 * 1e-8
    lax = dataclasses.replace(PLAN, tail=1e-6)
    assert lax.event.distance > 1e-5
    assert lax.guarantee(1e-5).epsilon == math.inf


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 50), st.floats(0.5, 3.0), st.randoms(use_true_random=False))
def test_a_move_by_the_sensitivity_is_rounded_to_at_most_the_shift(dimension, sensitivity, random):
    plan = planned(dimension=dimension, sensitivity=sensitivity, largest=100.0)
    rng = np.random.default_rng(random.getrandbits(32))
    for _ in range(50):
        one = rng.uniform(-50, 50, dimension)
        move = rng.normal(size=dimension) * (rng.random(dimension) < 0.5)
        move *= sensitivity / max(np.linalg.norm(move), 1e-9)
        moved = plan.on_lattice(one + move) - plan.on_lattice(one)
        assert np.linalg.norm(moved) <= plan.shift


SMALL = Budget(0.005, 1e-6)
TIGHT = AggregationPlan.for_budget(SMALL, **FIELDS)  # Hardly anything of its budget is left.


class MovesFurther(AggregationPlan):
    """A plan whose sums move a little further than ``for_budget`` computes, so that its first scale is too large."""

    def __post_init__(self):
        super().__post_init__()
        assert self.scale <= TIGHT.scale  # a larger scale would move the sums further still

    @property
    def shift(self):
        return super().shift * (1 + 1e-7)


def test_a_scale_that_exceeds_the_budget_is_lowered_until_it_does_not():
    plan = MovesFurther.for_budget(SMALL, **FIELDS)
    assert plan.guarantee().epsilon <= SMALL.epsilon < dataclasses.replace(plan, scale=TIGHT.scale).guarantee().epsilon
    assert (1 - 1e-5) * TIGHT.scale < plan.scale < TIGHT.scale


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("budget", "changed", "match"),
    [
        (Budget(1e-4, 1e-9), {"steps": 10_000}, "more noise than the lattice can hold: use fewer steps"),
        (Budget(1e-3, 1e-9), {"dimension": 10**6}, "more noise than the lattice can hold"),
        (Budget(100.0, 1e-9), {}, "use a smaller epsilon or a larger delta"),
        (Budget(1000.0, 1e-9), {}, "use a smaller epsilon or a larger delta"),
        (Budget(1.0, 1e-200), {}, "use a smaller epsilon or a larger delta"),
        (BUDGET, {"dimension": 0}, "dimension"),
        (BUDGET, {"steps": 0}, "steps"),
        (BUDGET, {"steps": 1.5}, "steps"),
        (BUDGET, {"sensitivity": 0.0}, "sensitivity"),
        (BUDGET, {"sensitivity": math.nan}, "sensitivity"),
        (BUDGET, {"largest": math.inf}, "largest"),
        (BUDGET, {"largest": -1.0}, "largest"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_cause(budget, changed, match):
    with pytest.raises(ValueError, match=match):
        planned(budget, **changed)


def test_an_epsilon_that_no_scale_can_reach_is_an_error_and_not_an_endless_search(monkeypatch):
    monkeypatch.setattr(AggregationPlan, "event", NearlyGaussian(1.0, 0.5))
    with pytest.raises(ValueError, match="tails of the noise have more probability than delta = 1e-05 allows"):
        planned()


@pytest.mark.parametrize("changed", [{"sensitivity": 1e-12}, {"largest": 1e18}, {"largest": 1e300}])
def test_sums_that_floats_cannot_round_exactly_are_refused(changed):
    with pytest.raises(ValueError, match="do not fit the lattice"):
        planned(**changed)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(-300, 300).map(lambda x: 10.0**x),
    st.floats(-300, 300).map(lambda x: 10.0**x),
    st.integers(1, 1000),
    st.floats(-1, 1),
)
def test_whatever_the_sizes_sums_fit_or_the_plan_is_refused(largest, scale, dimension, share):
    law = LatticeLaw(bits=6)
    try:
        plan = AggregationPlan(dimension, 1, 1.0, largest, scale, law, 1e-6)
    except ValueError as error:
        assert "do not fit" in str(error)
        assert largest * scale + law.reach > 2.0**50 * (1 - 1e-9)
        return
    value = share * largest
    rounded = plan.on_lattice(np.full(dimension, value))
    assert np.abs(rounded).max() + law.reach <= plan.reach + 0.5 <= 2**50 + 1
    exact = int(rounded[0])  # an integer, of which no digit was lost
    assert abs(exact - value * scale) <= 0.5 + 2.0**-52 * abs(value * scale)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (np.full(10, np.nan), "not finite, or larger"),
        (np.r_[np.zeros(9), np.inf], "not finite, or larger"),
        (np.r_[np.zeros(9), -np.inf], "not finite, or larger"),
        (np.r_[np.zeros(9), 1e4 * (1 + 1e-9)], "larger than the 10000 that the plan allows"),
        (np.r_[-1e5, np.zeros(9)], "larger than the 10000 that the plan allows"),
        (np.zeros(9), r"length 10, got an array of shape \(9,\)"),
        (np.zeros((10, 1)), r"shape \(10, 1\)"),
        (np.zeros((1, 10)), r"shape \(1, 10\)"),
        (0.0, r"shape \(\)"),
    ],
)
def test_summands_that_do_not_fit_are_refused(values, match):
    with pytest.raises(ValueError, match=match):
        PLAN.on_lattice(values)


def test_the_largest_allowed_summand_is_accepted():
    for sign in (1, -1):
        taken = PLAN.on_lattice(np.full(10, sign * 1e4))
        assert taken.dtype == np.int64
        np.testing.assert_array_equal(taken, sign * round(1e4 * PLAN.scale))


def test_values_are_recovered_from_the_lattice():
    values = np.linspace(-100, 100, 10)
    back = PLAN.off_lattice(PLAN.on_lattice(values))
    np.testing.assert_allclose(back, values, rtol=0, atol=0.5 / PLAN.scale * (1 + 1e-9))
    assert np.abs(back - values).max() > 0  # it was rounded


# --------------------------------------------------------------------------------------------------------- what it says


def test_the_guarantee_says_what_was_done():
    guarantee = PLAN.guarantee(1e-5)
    assert guarantee.is_conditional  # the plan does not see what is summed
    assert "a replaced record moves a sum by at most 2" in guarantee.statement(verbose=True)
    held = PLAN.guarantee(1e-5, bound=enforced("gradients are clipped"), released="a mean")
    assert not held.is_conditional
    assert held.released == "a mean"
    law = PLAN.law
    assert (
        f"{law.coarse} fair bits of 2^{law.bits} and {law.fine} uniform numbers of {law.bits} bits"
        in held.statement(verbose=True)
    )
    assert "not of a Gaussian" in held.statement(verbose=True)


def test_plans_are_frozen_and_equal_by_value():
    assert planned() == PLAN
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAN.scale = 1.0


# ------------------------------------------------------------------------------------------------- how it is calibrated


@pytest.mark.parametrize(
    ("budget", "changed"),
    [(BUDGET, {}), (Budget(0.3, 1e-7), {"dimension": 300}), (Budget(4.0, 1e-4), {"steps": 3, "largest": 1.0})],
)
def test_the_lattice_is_the_coarsest_on_which_rounding_adds_a_fiftieth(budget, changed):
    """A hundredth of delta goes to the tails, of which e^epsilon + 1 times as much counts."""
    plan = planned(budget, **changed)
    tail = 0.01 * budget.delta / (1 + math.exp(budget.epsilon)) / (plan.steps * plan.dimension)
    assert plan.tail == pytest.approx(tail)
    mu = gdp_mu(Budget(budget.epsilon, 0.99 * budget.delta))

    def hidden(bits):
        return mu / (LatticeLaw(bits=bits).comparison(plan.tail)[0] * math.sqrt(plan.steps))

    assert plan.law == LatticeLaw(bits=plan.law.bits)
    assert math.sqrt(plan.dimension) <= 0.02 * hidden(plan.law.bits)
    assert plan.law.bits == 2 or math.sqrt(plan.dimension) > 0.02 * hidden(plan.law.bits - 1)
    # The shift is what the law hides, up to a margin for rounding.
    assert 1 - 4e-9 <= plan.shift / hidden(plan.law.bits) <= 1 - 0.5e-9


def test_a_law_has_at_most_fifteen_bits():
    """Rounding to the finest lattice may add more than a fiftieth."""
    plan = planned(Budget(0.02, 1e-6), dimension=10**4, steps=5)
    assert plan.law.bits == 15
    assert math.sqrt(plan.dimension) > 0.02 * plan.shift
    assert plan.guarantee().epsilon <= 0.02


def test_a_sum_of_exactly_two_to_the_fifty_steps_fits():
    law = LatticeLaw(bits=6)
    largest = 2.0**50 - law.reach
    assert AggregationPlan(3, 1, 1.0, largest, 1.0, law, 1e-6).reach == 2.0**50
    with pytest.raises(ValueError, match="do not fit the lattice"):
        AggregationPlan(3, 1, 1.0, largest + 1, 1.0, law, 1e-6)


@pytest.mark.parametrize("name", ["dimension", "steps", "sensitivity", "largest", "scale", "tail"])
def test_impossible_fields_are_named(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        dataclasses.replace(PLAN, **{name: 0})
