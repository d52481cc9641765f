import dataclasses
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privet.plans import CentredOutputPlan, DescentStability, FixedSize, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Adjacency, Budget, NoiseMultiplier, NoiseSource, compose, enforced
from privet.privacy.events import GaussianRelease

BUDGET = Budget(1.0, 1e-5)
MU = 0.26805  # of (1, 1e-5), by Balle and Wang
# By hand: 2 * 0.5 * 0.4/100 * (1 + 1 + ... + 1), twenty times.
STABILITY = DescentStability(n=100, lipschitz=0.4, smoothness=1.0, strong_convexity=0.0, step_size=0.5, steps=20)
SENSITIVITY = 0.08
FIELDS = {"stability": STABILITY, "row_norm": 1.5, "centred_norm": 0.7}


def exact_delta(mu, epsilon):
    """Return delta(epsilon) of a Gaussian release, in fifty digits, from its definition."""
    with mpmath.workdps(50):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def mus(plan):
    """Return mu of the mean and of all results, from noise and sensitivities alone."""
    of_mean = 2 * plan.mean.clip_norm / plan.mean.noise_std
    return of_mean, math.sqrt(plan.tasks) * plan.output.stability.sensitivity / plan.output.scale


budgets = st.builds(Budget, st.floats(1e-3, 50.0), st.floats(-12, -1).map(lambda x: 10.0**x))
shares = st.floats(1e-3, 1 - 1e-3)
sizes = st.floats(-6, 6).map(lambda x: 10.0**x)


# ---------------------------------------------------------------------------------------------------- the budget


@settings(max_examples=60, deadline=None)
@given(budgets, shares, sizes, sizes, st.integers(1, 9))
@example(Budget(1e-5, 1e-9), 1e-3, 1.0, 1.0, 1)
@example(Budget(300.0, 1e-9), 0.999, 1e-6, 1e6, 3)
def test_mean_and_results_together_keep_within_the_budget_and_use_it_up(budget, share, lipschitz, row_norm, tasks):
    stability = dataclasses.replace(STABILITY, lipschitz=lipschitz)
    plan = CentredOutputPlan.for_budget(
        budget, stability=stability, row_norm=row_norm, centred_norm=0.7, share=share, tasks=tasks
    )
    total = math.hypot(*mus(plan))
    assert exact_delta(total, budget.epsilon) <= budget.delta
    assert exact_delta(total * (1 + 1e-6), budget.epsilon) >= budget.delta
    assert 0.999 * budget.epsilon <= plan.guarantee().epsilon <= budget.epsilon
    assert mus(plan)[0] ** 2 / total**2 == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_noise_by_hand(tasks):
    """5 % of the squared mu pays for the mean, which is released once, and the rest for the results of all tasks."""
    plan = CentredOutputPlan.for_budget(BUDGET, tasks=tasks, **FIELDS)
    assert plan.mean.noise_std == pytest.approx(2 * 1.5 / (MU * math.sqrt(0.05)), rel=1e-3)
    assert plan.output.scale == pytest.approx(SENSITIVITY * math.sqrt(tasks) / (MU * math.sqrt(0.95)), rel=1e-3)
    assert plan.tasks == plan.output.tasks == tasks
    assert plan.mean.tasks == 1
    assert plan.adjacency is Adjacency.REPLACE_ONE
    assert (plan.mean.clip_norm, plan.centred_norm) == (1.5, 0.7)


def test_the_noise_that_is_drawn_is_the_noise_that_is_planned():
    plan, zeros = CentredOutputPlan.for_budget(BUDGET, **FIELDS), np.zeros(20_000)
    (of_mean,) = (step.noisy(zeros) for step in plan.mean.run(5, NoiseSource(0)))
    of_result = plan.output.noisy(zeros, NoiseSource(1))
    margin = 5 / math.sqrt(2 * zeros.size) + 1e-3
    assert of_mean.std() == pytest.approx(3.0 / (MU * math.sqrt(0.05)), rel=margin)
    assert of_result.std() == pytest.approx(SENSITIVITY / (MU * math.sqrt(0.95)), rel=margin)


# ------------------------------------------------------------------------------------------------- the guarantee


def test_event_and_guarantee_agree_and_compose_as_one_gaussian_release():
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    assert plan.event.events == (plan.mean.event, plan.output.event)
    assert all(isinstance(part, GaussianRelease) for part in plan.event.events)
    assert plan.guarantee(1e-5).event == plan.event
    twice = compose([plan.guarantee(1e-5), plan.guarantee(1e-5)], delta=1e-5)
    alone = OutputPlan(STABILITY, SENSITIVITY / (math.sqrt(2) * math.hypot(*mus(plan))), is_pure=False)
    assert twice.epsilon == pytest.approx(alone.guarantee(1e-5).epsilon, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_the_guarantee_can_be_stated_at_other_deltas(delta):
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    epsilon = plan.guarantee(delta).epsilon
    assert exact_delta(math.hypot(*mus(plan)), epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("part", ["mean", "output"])
def test_less_noise_in_either_part_costs_more(part):
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    mean = dataclasses.replace(plan.mean, noise_multiplier=plan.mean.noise_multiplier / 2)
    output = dataclasses.replace(plan.output, scale=plan.output.scale / 2)
    louder = dataclasses.replace(plan, **{part: {"mean": mean, "output": output}[part]})
    assert louder.guarantee(1e-5).epsilon > plan.guarantee(1e-5).epsilon


def test_the_guarantee_says_what_is_released_and_on_what_it_rests():
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    assert plan.guarantee().is_conditional
    for words in ("noisy mean", "final weights"):
        assert words in plan.guarantee().released
    held = plan.guarantee(bounds=(enforced("rows are short"), enforced("the result is stable")))
    assert not held.is_conditional
    noise = f"{plan.mean.noise_std:.6g}", f"{plan.output.scale:.6g}"
    for words in ("rows are short", "the result is stable", *noise):
        assert words in held.statement(verbose=True)


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        *(({"row_norm": value}, "row_norm must be") for value in (0, -1.0, math.inf, math.nan, "a", None)),
        *(({"centred_norm": value}, "centred_norm must be") for value in (0, -1.0, math.inf, math.nan, "a", None)),
        *(({"share": value}, "share must") for value in (0, 1, -0.1, 1e-4, 0.9999, 2, math.nan, "a", None)),
        *(({"tasks": value}, "tasks must be") for value in (0, -1, 1.5)),
    ],
    ids=str,
)
def test_impossible_fields_are_refused_by_name_in_one_line(fields, cause):
    with pytest.raises(ValueError, match=cause) as error:
        CentredOutputPlan.for_budget(BUDGET, **(FIELDS | fields))
    assert "\n" not in str(error.value)


def test_pure_epsilon_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="no pure epsilon guarantee: set delta > 0"):
        CentredOutputPlan.for_budget(Budget(1.0), **FIELDS)


def test_a_noise_multiplier_is_no_budget_of_two_different_releases():
    with pytest.raises((TypeError, ValueError)):
        CentredOutputPlan.for_budget(NoiseMultiplier(2.0, 1e-5), **FIELDS)


@pytest.mark.parametrize("mean", [GradientPlan(FullBatch(), 2, 1.0, 3.0), GradientPlan(FixedSize(3, 9), 1, 1.0, 3.0)])
def test_the_mean_is_one_release_over_all_rows(mean):
    with pytest.raises(ValueError, match="one release over all rows"):
        CentredOutputPlan(mean, OutputPlan(STABILITY, 1.0, is_pure=False), 0.7)


def test_adjacencies_do_not_mix():
    mean = GradientPlan(FullBatch(), 1, 1.0, 3.0, Adjacency.ADD_OR_REMOVE)
    with pytest.raises(ValueError, match="same adjacency"):
        CentredOutputPlan(mean, OutputPlan(STABILITY, 1.0, is_pure=False), 0.7)


def test_a_plan_cannot_be_changed():
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.centred_norm = 2.0


def test_a_mean_without_noise_is_refused():
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    with pytest.raises(ValueError, match="the mean has no noise"):
        dataclasses.replace(plan, mean=dataclasses.replace(plan.mean, noise_multiplier=0.0))


def test_the_result_of_a_planned_budget_states_its_own_guarantee_at_the_same_delta():
    plan = CentredOutputPlan.for_budget(BUDGET, **FIELDS)
    assert plan.output.delta == BUDGET.delta
    assert not plan.output.is_pure
    assert plan.output.guarantee().epsilon < 1.0
    assert plan == CentredOutputPlan.for_budget(BUDGET, **FIELDS, share=0.05, tasks=1)
    assert CentredOutputPlan.for_budget((1.0, 1e-5), **FIELDS) == plan


@pytest.mark.parametrize("share", [1e-3, 1 - 1e-3])
def test_shares_at_both_ends_are_allowed(share):
    of_mean, of_result = (mu**2 for mu in mus(CentredOutputPlan.for_budget(BUDGET, **FIELDS, share=share)))
    assert of_mean / (of_mean + of_result) == pytest.approx(share, rel=1e-6)
