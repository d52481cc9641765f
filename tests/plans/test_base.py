"""What all plans have in common: the delta at which their guarantee is stated."""

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest

from privet.plans import (
    AdaptivePlan,
    CentredOutputPlan,
    CentredPlan,
    FullBatch,
    GradientPlan,
    MinimiserStability,
    ObjectivePlan,
    OutputPlan,
    RecursivePlan,
    TwoStagePlan,
)
from privet.plans.aggregation import AggregationPlan
from privet.preprocessing.quantiles import QuantilePlan
from privet.privacy import Budget, Unit, enforced

BUDGET = Budget(1.0, 1e-5)
STABILITY = MinimiserStability(n=100, lipschitz=1.0, strong_convexity=0.1, tolerance=1e-6)
LOSSES = {"n": 100, "lipschitz": 1.0, "smoothness": 0.25, "strong_convexity": 0.1}


def two_stage(budget):
    half = Budget(budget.epsilon / 2, budget.delta / 2)
    fit = ObjectivePlan.for_budget(half, **LOSSES)
    return TwoStagePlan(AdaptivePlan.for_budget(half), fit, delta=budget.delta)


MAKERS = {
    "adaptive": AdaptivePlan.for_budget,
    "aggregation": lambda b: AggregationPlan.for_budget(b, dimension=3, steps=2, sensitivity=1.0, largest=10.0),
    "centred": lambda b: CentredPlan.for_budget(b, steps=3, clip_norm=1.0, row_norm=1.0),
    "centred_output": lambda b: CentredOutputPlan.for_budget(b, stability=STABILITY, row_norm=1.0, centred_norm=1.0),
    "gradient": lambda b: GradientPlan.for_budget(b, sampler=FullBatch(), steps=3, clip_norm=1.0),
    "objective": lambda b: ObjectivePlan.for_budget(b, **LOSSES),
    "output": lambda b: OutputPlan.for_budget(b, stability=STABILITY),
    "quantiles": lambda b: QuantilePlan.for_budget(b, n_columns=2, quantiles=(0.5,), resolution=10),
    "recursive": lambda b: RecursivePlan.for_budget(
        b, sampler=FullBatch(), steps=3, clip_norm=1.0, difference_norm=0.1, refresh=0.3
    ),
    "two_stage": two_stage,
}


@pytest.fixture(params=MAKERS)
def plan(request):
    return MAKERS[request.param](BUDGET)


def test_a_plan_made_for_a_budget_states_its_guarantee_at_the_budgets_delta(plan):
    guarantee = plan.guarantee()
    assert plan.delta == guarantee.delta == BUDGET.delta
    assert 0 < guarantee.epsilon <= BUDGET.epsilon
    assert guarantee.adjacency is plan.adjacency
    assert getattr(plan, "tasks", 1) == 1
    assert guarantee.event.to_dict() == plan.event.to_dict()


def test_another_delta_can_be_given_by_position(plan):
    assert plan.guarantee(1e-4).delta == 1e-4
    assert plan.guarantee(1e-4).epsilon <= plan.guarantee(1e-5).epsilon


def test_without_any_delta_the_error_says_how_to_give_one(plan):
    with pytest.raises(ValueError, match=r"this plan has no delta.*guarantee\(delta\).*for_budget"):
        replace(plan, delta=None).guarantee()


def test_plans_that_differ_only_in_delta_are_equal(plan):
    other = replace(plan, delta=1e-3)
    assert other == plan
    assert repr(other) == repr(plan)
    assert other.delta == 1e-3


def test_a_plan_is_frozen(plan):
    with pytest.raises(FrozenInstanceError):
        plan.delta = 1e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda budget: GradientPlan.for_budget(budget, sampler=FullBatch(), steps=3, clip_norm=1.0),
        lambda budget: CentredPlan.for_budget(budget, steps=3, clip_norm=1.0, row_norm=1.0),
        AdaptivePlan.for_budget,
        lambda budget: RecursivePlan.for_budget(
            budget, sampler=FullBatch(), steps=3, clip_norm=1.0, difference_norm=0.1, refresh=0.3
        ),
    ],
)
def test_a_budget_may_be_a_pair(make):
    assert make((1.0, 1e-5)) == make(Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match=r"budget=1\.0 has no delta"):
        make(1.0)


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "quantiles"])
def test_how_noise_is_drawn_is_an_enforced_detail_and_the_bounds_are_assumed(name):
    conditions = MAKERS[name](BUDGET).guarantee().assumptions
    noises = [each for each in conditions if each.is_enforced]
    assert noises
    assert all(each.is_detail and "noise" in each.text for each in noises)
    assert any(not each.is_enforced for each in conditions)


UNITS = [name for name in MAKERS if name not in ("aggregation", "centred", "centred_output", "quantiles", "two_stage")]


@pytest.mark.parametrize("name", UNITS)
def test_a_solver_may_say_what_it_bounds_what_it_releases_and_whom_it_protects(name):
    plan = MAKERS[name](BUDGET)
    bare = plan.guarantee()
    assert bare.unit is Unit.RECORD
    told = plan.guarantee(bound=enforced("rows are short"), released="some weights", unit=Unit.CLIENT)
    assert told.unit is Unit.CLIENT
    assert told.released == "some weights"
    assert enforced("rows are short") in told.assumptions
    assert not told.is_conditional
    assert told.epsilon == bare.epsilon


SEVERAL = {
    "adaptive": lambda b, k: AdaptivePlan.for_budget(b, tasks=k),
    "centred": lambda b, k: CentredPlan.for_budget(b, steps=3, clip_norm=1.0, row_norm=1.0, tasks=k),
    "centred_output": lambda b, k: CentredOutputPlan.for_budget(
        b, stability=STABILITY, row_norm=1.0, centred_norm=1.0, tasks=k
    ),
    "gradient": lambda b, k: GradientPlan.for_budget(b, sampler=FullBatch(), steps=3, clip_norm=1.0, tasks=k),
    "objective": lambda b, k: ObjectivePlan.for_budget(b, **LOSSES, tasks=k),
    "output": lambda b, k: OutputPlan.for_budget(b, stability=STABILITY, tasks=k),
    "recursive": lambda b, k: RecursivePlan.for_budget(
        b, sampler=FullBatch(), steps=3, clip_norm=1.0, difference_norm=0.1, refresh=0.3, tasks=k
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_all_tasks_together_stay_within_the_budget_and_nearly_use_it_up(name):
    plan = SEVERAL[name](BUDGET, 3)
    guarantee = plan.guarantee()
    assert plan.tasks == 3
    assert 0.95 * BUDGET.epsilon < guarantee.epsilon <= BUDGET.epsilon
    assert "of 3 tasks: " in guarantee.released
    assert SEVERAL[name](BUDGET, 1) == MAKERS[name](BUDGET)
    assert MAKERS[name](BUDGET).tasks == 1
    assert "tasks" not in MAKERS[name](BUDGET).guarantee().released
    with pytest.raises(ValueError, match="tasks must be at least 1"):
        SEVERAL[name](BUDGET, 0)


@pytest.mark.parametrize("name", ["adaptive", "gradient", "objective", "output", "recursive"])
def test_a_number_of_tasks_is_checked_wherever_it_is_given(name):
    with pytest.raises(ValueError, match="tasks must be at least 1"):
        replace(MAKERS[name](BUDGET), tasks=0)


@pytest.mark.parametrize("tasks", range(2, 30))
def test_noise_for_several_tasks_is_at_least_the_root_of_their_number_times_that_of_one(tasks):
    """In exact arithmetic, and with a margin of a few parts in 10^12 at most."""
    stability = MinimiserStability(n=100, lipschitz=1.0, strong_convexity=0.1, tolerance=0.0)
    one, more = (OutputPlan.for_budget(BUDGET, stability=stability, tasks=k).scale for k in (1, tasks))
    assert 1 <= Fraction(more) ** 2 / (tasks * Fraction(one) ** 2) < 1 + Fraction(1, 10**11)
    total, share = (AdaptivePlan.for_budget(BUDGET, tasks=k).mu for k in (1, tasks))
    assert 1 - Fraction(1, 10**11) < tasks * Fraction(share) ** 2 / Fraction(total) ** 2 <= 1


def test_pure_noise_for_several_tasks_is_that_of_an_equal_share_of_epsilon():
    plans = [OutputPlan.for_budget(Budget(0.7), stability=STABILITY, tasks=k) for k in (1, 7)]
    assert plans[1].scale == pytest.approx(7 * plans[0].scale, rel=1e-14)
    assert plans[1].guarantee().epsilon <= 0.7
    assert plans[1].guarantee().delta == plans[1].delta == 0.0


def test_plans_take_delta_and_tasks_by_name():
    for make in (
        lambda: AdaptivePlan(0.5, 2),
        lambda: OutputPlan(STABILITY, 1.0, False, 1, 1e-5),
        lambda: ObjectivePlan(100, 1.0, 0.25, 0.1, 1.0, 1e-6, 1e-3, False, False, 0.0, 1, 1e-5),
        lambda: TwoStagePlan(two_stage(BUDGET).selection, two_stage(BUDGET).fit, 1e-5),
        lambda: CentredPlan(MAKERS["gradient"](BUDGET), MAKERS["gradient"](BUDGET), 1e-5),
    ):
        with pytest.raises(TypeError, match="positional argument"):
            make()


def test_plans_show_what_decides_their_noise_and_nothing_else():
    assert repr(AdaptivePlan(0.5, tasks=2)) == "AdaptivePlan(mu=0.5, tasks=2)"
    plan = MAKERS["gradient"](BUDGET)
    assert f"noise_multiplier={plan.noise_multiplier!r}" in repr(plan)
    assert "1e-05" not in repr(plan)
