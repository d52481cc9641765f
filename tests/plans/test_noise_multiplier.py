"""A noise multiplier in place of a budget: the plan adds this noise, and the guarantee states what it costs."""

import json
import math

import numpy as np
import pytest

from privet.plans import (
    AdaptivePlan,
    CentredPlan,
    Descent,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    MinimiserStability,
    ObjectivePlan,
    OutputPlan,
    Poisson,
    RecursivePlan,
)
from privet.plans.aggregation import AggregationPlan
from privet.plans.gradient import Step
from privet.privacy import Budget, Guarantee, NoiseMultiplier, NoiseSource, compose, gdp_epsilon
from privet.privacy.budget import given_budget

DELTA = 1e-5
MAKERS = {
    "centred": lambda b: CentredPlan.for_budget(b, steps=3, clip_norm=1.0, row_norm=1.0),
    "gradient": lambda b: GradientPlan.for_budget(b, sampler=FullBatch(), steps=3, clip_norm=1.0),
    "recursive": lambda b: RecursivePlan.for_budget(
        b, sampler=FullBatch(), steps=3, clip_norm=1.0, difference_norm=0.1, refresh=0.3
    ),
}
STABILITY = MinimiserStability(n=100, lipschitz=1.0, strong_convexity=0.1, tolerance=1e-6)
OTHERS = {
    "adaptive": AdaptivePlan.for_budget,
    "aggregation": lambda b: AggregationPlan.for_budget(b, dimension=3, steps=2, sensitivity=1.0, largest=10.0),
    "objective": lambda b: ObjectivePlan.for_budget(b, n=9, lipschitz=1.0, smoothness=0.25, strong_convexity=0.1),
    "output": lambda b: OutputPlan.for_budget(b, stability=STABILITY),
}
NONE = "No differential privacy: the noise multiplier is 0, so no record is protected."


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
def test_the_multiplier_of_a_budget_gives_the_plan_of_the_budget(name, epsilon):
    planned = MAKERS[name](Budget(epsilon, DELTA))
    multiplier = (planned.gradients if name == "centred" else planned).noise_multiplier
    again = MAKERS[name](NoiseMultiplier(multiplier, DELTA))
    if name == "centred":
        assert again.gradients == planned.gradients
        assert again.mean.noise_multiplier == pytest.approx(planned.mean.noise_multiplier)
    else:
        assert again == planned
    assert again.delta == DELTA
    assert again.guarantee().epsilon == pytest.approx(planned.guarantee().epsilon)
    assert 0.99 * epsilon < again.guarantee().epsilon <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1), FixedSize(5, 50), FixedOrder(50, 3, 10)], ids=repr)
@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_the_noise_is_the_multiplier_times_the_bound(sampler, multiplier):
    steps = None if sampler.implied_steps else 4
    plan = GradientPlan.for_budget(NoiseMultiplier(multiplier, DELTA), sampler=sampler, steps=steps, clip_norm=3.0)
    assert plan.noise_multiplier == multiplier
    assert plan.noise_std == 3.0 * multiplier
    assert plan.event == sampler.event(multiplier, plan.steps, plan.adjacency)


def test_the_epsilon_of_full_batches_is_that_of_their_mu():
    plan = GradientPlan.for_budget(NoiseMultiplier(4.0, DELTA), sampler=FullBatch(), steps=9, clip_norm=1.0)
    assert plan.guarantee().epsilon == pytest.approx(gdp_epsilon(2 * 3 / 4.0, DELTA))


def test_the_mean_of_a_centred_plan_gets_its_share():
    plan = CentredPlan.for_budget(NoiseMultiplier(6.0, DELTA), steps=16, clip_norm=0.5, row_norm=2.0, share=0.2)
    assert plan.gradients.noise_multiplier == 6.0
    mean, descent = plan.mean.event.mu**2, plan.gradients.event.mu**2
    assert mean / (mean + descent) == pytest.approx(0.2)


def test_the_mean_gets_about_its_share_beside_random_batches():
    fields = {"sampler": FixedSize(10, 100), "steps": 40, "clip_norm": 0.5, "row_norm": 1.0}
    planned = CentredPlan.for_budget(Budget(1.0, DELTA), **fields)
    for delta, tolerance in ((DELTA, 0.05), (None, 0.1)):
        again = CentredPlan.for_budget(NoiseMultiplier(planned.gradients.noise_multiplier, delta), **fields)
        assert again.gradients.noise_multiplier == planned.gradients.noise_multiplier
        assert again.mean.noise_multiplier == pytest.approx(planned.mean.noise_multiplier, rel=tolerance)


def test_the_multiplier_of_a_recursive_plan_is_that_of_later_sums():
    fields = {"sampler": FullBatch(), "steps": 5, "clip_norm": 2.0, "difference_norm": 0.5, "refresh": 0.5}
    for ratio in (0.25, 3.0):
        plan = RecursivePlan.for_budget(NoiseMultiplier(2.0, DELTA), first_noise_ratio=ratio, **fields)
        assert (plan.noise_multiplier, plan.first_noise_multiplier) == (2.0, 2.0 * ratio)
        assert plan.later_plan.noise_std == 2.0 * 1.25


@pytest.mark.parametrize("name", OTHERS)
def test_a_plan_without_a_noise_multiplier_asks_for_a_budget(name):
    with pytest.raises(ValueError, match=r"NoiseMultiplier\(.*cannot be used here.*Give a Budget\(epsilon, delta\)"):
        OTHERS[name](NoiseMultiplier(1.0, DELTA))


def test_without_a_delta_the_plan_has_none():
    plan = GradientPlan.for_budget(NoiseMultiplier(1.0), sampler=FullBatch(), steps=1, clip_norm=1.0)
    assert plan.delta is None
    with pytest.raises(ValueError, match="this plan has no delta"):
        plan.guarantee()


@pytest.mark.parametrize("name", MAKERS)
def test_pure_epsilon_is_refused(name):
    with pytest.raises(ValueError, match="Gaussian noise gives no pure epsilon"):
        MAKERS[name](NoiseMultiplier(1.0, 0.0))


# --- no noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, np.float32(0)], ids=repr)
@pytest.mark.parametrize("name", MAKERS)
def test_without_noise_the_guarantee_says_that_there_is_none(name, zero):
    guarantee = MAKERS[name](NoiseMultiplier(zero, DELTA)).guarantee()
    assert guarantee.epsilon == math.inf
    assert not guarantee.is_private
    for verbose in (False, True):
        assert guarantee.statement(verbose).splitlines()[0] == NONE
        assert "provided" not in guarantee.statement(verbose)


@pytest.mark.parametrize("name", MAKERS)
def test_no_privacy_survives_files_and_composition(name):
    guarantee, private = (MAKERS[name](NoiseMultiplier(z, DELTA)).guarantee() for z in (0, 5))
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
    for parts in ([guarantee, private], [private, guarantee], [guarantee, guarantee]):
        together = compose(parts, delta=0.5)
        assert together.epsilon == math.inf
        assert str(together).startswith(NONE)
        assert not Guarantee.from_json(together.to_json()).is_private
    assert compose([private, private]).is_private
    edited = json.loads(guarantee.to_json()) | {"epsilon": 1.0}
    with pytest.raises(ValueError, match="its event gives epsilon = inf"):
        Guarantee.from_dict(edited)


@pytest.mark.parametrize("size", [1, 1 << 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_noise_a_sum_is_released_as_it_is(size, dtype):
    plan = GradientPlan(FullBatch(), 2, 0.3, 0.0)
    total = np.random.default_rng(0).standard_normal(size).astype(dtype) * 1e-30
    for step in plan.run(3, NoiseSource()):
        step.prepare(size)
        found = step.noisy(total, scale=0.5, grid=0.25)
        assert found.dtype == dtype
        assert np.array_equal(found, total)
        assert found is not total
        with pytest.raises(RuntimeError, match="one noisy sum"):
            step.noisy(total)


def test_without_noise_non_finite_sums_are_refused_as_with_noise():
    for multiplier in (0.0, 1.0):
        (step,) = GradientPlan(FullBatch(), 1, 1.0, multiplier).run(3, NoiseSource())
        step = Step(step.clip_norm, step._noise_std, step._claim, step._source)
        with pytest.raises(ValueError, match="finite numbers only"):
            step.noisy(np.array([1.0, math.nan]))


def test_a_plan_that_hides_iterates_may_have_no_noise():
    order, descent = FixedOrder(6, 2, 3), Descent(0.1, 1.0)
    plan = GradientPlan(order, None, 1.0, 0.0, release="last", descent=descent, delta=DELTA)
    assert plan.guarantee().epsilon == math.inf
    with pytest.raises(ValueError, match="amplification by iteration is established for"):
        GradientPlan(FixedSize(2, 6), 2, 1.0, 0.0, release="last", descent=descent)


@pytest.mark.parametrize("tiny", [5e-324, 1e-300])
def test_tiny_noise_never_becomes_no_noise(tiny):
    with pytest.raises(ValueError, match="scale"):
        GradientPlan(FullBatch(), 1, 0.1, tiny)
    with pytest.raises(ValueError, match=r"^mu must be"):
        CentredPlan.for_budget(NoiseMultiplier(tiny, DELTA), steps=400, clip_norm=0.1, row_norm=0.1, share=0.9)


def test_noise_in_one_part_only_is_refused():
    mean, gradients = GradientPlan(FullBatch(), 1, 1.0, 0.0), GradientPlan(FullBatch(), 3, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"noise multipliers 0 and 1\. Add noise to all"):
        CentredPlan(mean, gradients)
    for first, later in ((0.0, 1.0), (1.0, 0.0)):
        with pytest.raises(ValueError, match="Add noise to all"):
            RecursivePlan(FullBatch(), 3, 1.0, 0.5, 0.5, later, first)


@pytest.mark.parametrize("multiplier", [-1e-9, math.nan, math.inf, None, False, "1"], ids=repr)
def test_a_multiplier_must_be_a_number_of_at_least_zero(multiplier):
    with pytest.raises(ValueError, match=r"^noise_multiplier must [^\n]*$"):
        NoiseMultiplier(multiplier)


def test_only_one_of_budget_epsilon_and_multiplier_is_accepted():
    assert given_budget(None, None, None, 0, n=10) == NoiseMultiplier(0.0, 1e-6)
    assert given_budget(None, None, 1e-3, 2.0, n=10) == NoiseMultiplier(2.0, 1e-3)
    assert given_budget(NoiseMultiplier(2.0), None, None, None, n=10**6) == NoiseMultiplier(2.0, 1e-8)
    for given in ((None, None, None, None), ((1.0, 1e-5), None, None, 0.0), (None, 1.0, None, 1.0)):
        with pytest.raises(ValueError, match="Give one of budget, epsilon and noise_multiplier, got budget="):
            given_budget(*given, n=10)


def test_negative_zero_is_the_noise_multiplier_zero():
    assert math.copysign(1.0, NoiseMultiplier(-0.0).multiplier) == 1.0
