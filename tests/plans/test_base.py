"""What all plans have in common: the delta at which their guarantee is stated."""

from dataclasses import FrozenInstanceError, replace

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
from privet.privacy import Budget

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
