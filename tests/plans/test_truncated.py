"""What holds after t of T steps: the plan of the first steps, for each plan of several steps."""

import math

import pytest

from privet.plans import (
    CentredPlan,
    Descent,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    Poisson,
    RandomStop,
    RecursivePlan,
)
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.privacy.analyses.gaussian import gdp_epsilon

BUDGET = Budget(1.0, 1e-5)


@pytest.mark.parametrize("steps", [1, 10, 99, 100])
def test_full_batches_have_the_exact_epsilon_of_the_corollary(steps):
    """Corollary 6.3.5 bounds it by sqrt(t/T) epsilon. The claim (t/T) epsilon, made for DP-SRM, would be too small."""
    plan = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=100, clip_norm=1.0)
    epsilon = plan.truncated(steps).guarantee().epsilon
    assert epsilon == pytest.approx(gdp_epsilon(gdp_mu(BUDGET) * math.sqrt(steps / 100), 1e-5), rel=1e-6)
    assert steps / 100 * (1 - 1e-6) <= epsilon <= math.sqrt(steps / 100)


@pytest.mark.parametrize("sampler", [Poisson(0.1), FixedSize(3, 30)], ids=repr)
def test_random_batches_have_the_epsilon_of_a_plan_of_as_many_steps(sampler):
    fields = {"clip_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    plan = GradientPlan(sampler, 40, **fields)
    assert plan.truncated(10) == GradientPlan(sampler, 10, **fields)
    assert plan.truncated(10).guarantee().epsilon < plan.truncated(20).guarantee().epsilon < plan.guarantee().epsilon


@pytest.mark.parametrize("step_size", [0.5, tuple(1 / (1 + t) for t in range(24))], ids=["constant", "decaying"])
def test_a_hidden_descent_can_end_after_whole_passes(step_size):
    def plan(passes, sizes):
        order = FixedOrder(8, passes=passes)
        return GradientPlan(order, None, 1.0, 2.0, release="last", descent=Descent(sizes, 1.0), delta=1e-5)

    whole, first = plan(3, step_size), plan(2, step_size[:16] if isinstance(step_size, tuple) else step_size)
    assert whole.truncated(16) == first
    assert whole.truncated(24) == whole
    with pytest.raises(ValueError, match="whole passes only"):
        whole.truncated(17)


@pytest.mark.parametrize(("stop", "steps", "first"), [(20, 16, FixedOrder(8, 2)), (20, 10, FixedOrder(8, 3, stop=10))])
def test_a_run_that_stops_early_can_be_truncated_further(stop, steps, first):
    order = FixedOrder(8, 3, stop=stop)
    assert order.truncated(steps) == first
    assert order.truncated(steps).implied_steps == steps


def test_a_secret_stop_cannot_be_truncated():
    plan = GradientPlan(RandomStop(8), None, 1.0, 2.0, release="last", descent=Descent(0.5, 1.0))
    with pytest.raises(ValueError, match="whole passes only"):
        plan.truncated(3)


def test_a_centred_plan_pays_for_its_mean_in_any_case():
    plan = CentredPlan.for_budget(BUDGET, steps=50, clip_norm=1.0, row_norm=1.0, share=0.1)
    mu = gdp_mu(BUDGET)
    for steps in (1, 25, 50):
        expected = gdp_epsilon(mu * math.sqrt(0.1 + 0.9 * steps / 50), 1e-5)
        assert plan.truncated(steps).guarantee().epsilon == pytest.approx(expected, rel=1e-5)


def test_recursive_momentum_begins_with_its_first_release():
    fields = {"clip_norm": 1.0, "difference_norm": 0.1, "refresh": 0.2, "first_noise_ratio": 0.5}
    plan = RecursivePlan.for_budget(BUDGET, sampler=FullBatch(), steps=21, tasks=2, **fields)
    first, later = 2 / plan.first_noise_multiplier, 2 / plan.noise_multiplier
    for steps in (1, 2, 11, 21):
        expected = gdp_epsilon(math.sqrt(2 * (first**2 + (steps - 1) * later**2)), 1e-5)
        assert plan.truncated(steps).guarantee().epsilon == pytest.approx(expected, rel=1e-6)
    assert plan.truncated(1).guarantee().epsilon > 1 / 21  # not the share of the steps


@pytest.mark.parametrize("steps", [0, 101, 2.5])
def test_a_number_of_steps_outside_the_plan_is_refused(steps):
    plan = GradientPlan(FullBatch(), 100, 1.0, 2.0)
    with pytest.raises(ValueError, match="steps must"):
        plan.truncated(steps)


def test_a_truncated_plan_makes_that_many_steps():
    plan = RecursivePlan(Poisson(0.5), 6, 1.0, 0.1, 0.2, 2.0, public_n=10)
    assert len(list(plan.truncated(4).run(10, NoiseSource(0)))) == 4
