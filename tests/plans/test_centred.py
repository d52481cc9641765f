import dataclasses
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privet.plans import CentredPlan, Descent, FixedOrder, FixedSize, FullBatch, GradientPlan, OneUniform, Poisson
from privet.privacy import Adjacency, Budget, NoiseSource, compose, enforced
from privet.privacy.events import GaussianRelease

ADD, REPLACE = Adjacency.ADD_OR_REMOVE, Adjacency.REPLACE_ONE
BUDGET = Budget(1.0, 1e-5)
FIELDS = {"steps": 20, "clip_norm": 0.4, "row_norm": 1.5}


def exact_delta(mu, epsilon):
    """Return delta(epsilon) of a Gaussian release, in fifty digits, from its definition."""
    with mpmath.workdps(50):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def mus(plan):
    """Return mu of mean and descent from noise and sensitivity alone: a record replaced moves a sum by 2C."""
    of_mean = 2 * plan.mean.clip_norm / plan.mean.noise_std
    of_descent = 2 * plan.gradients.clip_norm / plan.gradients.noise_std * math.sqrt(plan.gradients.steps)
    return of_mean, of_descent


budgets = st.builds(Budget, st.floats(1e-3, 50.0), st.floats(-12, -1).map(lambda x: 10.0**x))
steps = st.integers(1, 100_000)
shares = st.floats(1e-3, 1 - 1e-3)
sizes = st.floats(-9, 9).map(lambda x: 10.0**x)


# ---------------------------------------------------------------------------------------------------- the budget


@settings(max_examples=100, deadline=None)
@given(budgets, steps, shares, sizes, sizes)
@example(Budget(1e-6, 1e-9), 1, 1e-3, 1.0, 1.0)
@example(Budget(300.0, 1e-9), 7, 0.999, 1e-9, 1e9)
def test_mean_and_descent_together_keep_within_the_budget_and_use_it_up(budget, steps, share, clip_norm, row_norm):
    plan = CentredPlan.for_budget(budget, steps=steps, clip_norm=clip_norm, row_norm=row_norm, share=share)
    of_mean, of_descent = mus(plan)
    total = math.sqrt(of_mean**2 + of_descent**2)
    assert exact_delta(total, budget.epsilon) <= budget.delta
    assert exact_delta(total * (1 + 1e-6), budget.epsilon) >= budget.delta
    assert plan.guarantee(budget.delta).epsilon <= budget.epsilon
    assert of_mean**2 / total**2 == pytest.approx(share, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(budgets, steps, shares, st.floats(-12, -1).map(lambda x: 10.0**x))
def test_the_stated_epsilon_is_that_of_the_exact_profile_at_every_delta(budget, steps, share, delta):
    plan = CentredPlan.for_budget(budget, steps=steps, clip_norm=0.4, row_norm=1.5, share=share)
    total, epsilon = math.hypot(*mus(plan)), plan.guarantee(delta).epsilon
    assert exact_delta(total, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 1e-6:
        assert exact_delta(total, epsilon * (1 - 1e-6)) > delta


def test_the_noise_by_hand():
    """mu* of (1, 1e-5) is 0.2680 (Balle and Wang): 5 % of its square to the mean, the rest over 20 gradients."""
    plan = CentredPlan.for_budget(BUDGET, **FIELDS)
    mu = 0.26805
    assert plan.mean.noise_std == pytest.approx(2 * 1.5 / (mu * math.sqrt(0.05)), rel=1e-3)
    assert plan.gradients.noise_std == pytest.approx(2 * 0.4 * math.sqrt(20) / (mu * math.sqrt(0.95)), rel=1e-3)
    assert (plan.mean.steps, plan.gradients.steps) == (1, 20)
    assert (plan.mean.clip_norm, plan.gradients.clip_norm) == (1.5, 0.4)
    assert plan.mean.adjacency is plan.gradients.adjacency is REPLACE


def test_it_is_one_gaussian_release_and_composes_as_one():
    plan = CentredPlan.for_budget(BUDGET, **FIELDS)
    together = compose([plan.guarantee(1e-5), plan.guarantee(1e-5)], delta=1e-5)
    alone = GradientPlan(FullBatch(), 1, 1.0, 2 / (math.sqrt(2) * math.hypot(*mus(plan))))
    assert together.epsilon == pytest.approx(alone.guarantee(1e-5).epsilon, rel=1e-9)
    assert plan.event.events == (plan.mean.event, plan.gradients.event)
    assert all(isinstance(part, GaussianRelease) for part in plan.event.events)


@pytest.mark.parametrize("which", ["mean", "gradients"])
def test_the_noise_that_is_drawn_is_the_noise_that_is_planned(which):
    part = getattr(CentredPlan.for_budget(BUDGET, **FIELDS), which)
    drawn = np.concatenate([step.noisy(np.zeros(20_000)) for step in part.run(5, NoiseSource(0))])
    expected = {"mean": 2 * 1.5 / 0.26805 / math.sqrt(0.05), "gradients": 2 * 0.4 * math.sqrt(20 / 0.95) / 0.26805}[
        which
    ]
    assert drawn.std() == pytest.approx(expected, rel=5 / math.sqrt(2 * drawn.size) + 1e-3)


# ------------------------------------------------------------------------------------------------- other descents


@pytest.mark.parametrize(
    ("sampler", "adjacency"),
    [(FixedSize(3, 12), REPLACE), (OneUniform(12), REPLACE), (FixedOrder(12, 2), REPLACE), (Poisson(0.2), ADD)],
    ids=repr,
)
def test_a_descent_on_samples_is_no_worse_than_one_on_all_and_no_better_than_none(sampler, adjacency):
    mean = GradientPlan(FullBatch(), 1, 1.0, 10.0, adjacency)
    n_steps = 24 if isinstance(sampler, FixedOrder) else 5
    sampled = CentredPlan(mean, GradientPlan(sampler, n_steps, 1.0, 3.0, adjacency)).guarantee(1e-6)
    whole = CentredPlan(mean, GradientPlan(FullBatch(), n_steps, 1.0, 3.0, adjacency)).guarantee(1e-6)
    assert mean.guarantee(1e-6).epsilon < sampled.epsilon <= whole.epsilon
    assert sampled.adjacency is adjacency


def test_the_guarantee_says_what_is_released_and_on_what_it_rests():
    plan = CentredPlan.for_budget(BUDGET, **FIELDS)
    open_guarantee = plan.guarantee(1e-5)
    assert open_guarantee.is_conditional
    assert "noisy mean" in open_guarantee.released
    assert "gradients" in open_guarantee.released
    held = plan.guarantee(1e-5, bounds=(enforced("rows are short"), enforced("gradients are clipped")))
    assert not held.is_conditional
    for words in (
        "rows are short",
        "gradients are clipped",
        f"{plan.mean.noise_std:.6g}",
        f"{plan.gradients.noise_std:.6g}",
    ):
        assert words in held.statement(verbose=True)


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        *(({"steps": value}, "steps must be") for value in (0, -1, 2.5, "a", True)),
        *(({"clip_norm": value}, "clip_norm must be") for value in (0, -1.0, math.inf, math.nan, "a", None)),
        *(({"row_norm": value}, "^row_norm must be") for value in (0, -1.0, math.inf, math.nan, "a", None)),
        *(({"share": value}, "share must") for value in (0, 1, -0.1, 1e-4, 0.9999, 2, math.nan, "a", None)),
    ],
    ids=str,
)
def test_impossible_fields_are_refused_by_name_in_one_line(fields, cause):
    with pytest.raises(ValueError, match=cause) as error:
        CentredPlan.for_budget(BUDGET, **(FIELDS | fields))
    assert "\n" not in str(error.value)


def test_pure_epsilon_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="no pure epsilon guarantee: set delta > 0"):
        CentredPlan.for_budget(Budget(1.0), **FIELDS)


@pytest.mark.parametrize("epsilon", [1e18, 1e100, 1e300])
def test_a_budget_without_noise_is_refused(epsilon):
    with pytest.raises(ValueError, match="hardly any noise"):
        CentredPlan.for_budget(Budget(epsilon, 1e-5), **FIELDS).guarantee(1e-5)


def test_the_mean_is_one_release_over_all_rows():
    descent = GradientPlan(FullBatch(), 5, 1.0, 3.0)
    for mean in (GradientPlan(FullBatch(), 2, 1.0, 3.0), GradientPlan(FixedSize(3, 9), 1, 1.0, 3.0)):
        with pytest.raises(ValueError, match="one release over all rows"):
            CentredPlan(mean, descent)


def test_adjacencies_do_not_mix():
    mean = GradientPlan(FullBatch(), 1, 1.0, 3.0)
    for descent in (GradientPlan(FullBatch(), 5, 1.0, 3.0, ADD), GradientPlan(Poisson(0.1), 5, 1.0, 3.0)):
        with pytest.raises(ValueError, match="same adjacency"):
            CentredPlan(mean, descent)


def test_a_plan_cannot_be_changed():
    plan = CentredPlan.for_budget(BUDGET, **FIELDS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.gradients = plan.mean


@pytest.mark.parametrize("sampler", [FixedSize(100, 1600), FixedSize(800, 1600)])
def test_the_mean_takes_its_share_also_beside_random_batches(sampler):
    alone = GradientPlan.for_budget(BUDGET, sampler=sampler, steps=50, clip_norm=0.4)
    plan = CentredPlan.for_budget(BUDGET, sampler=sampler, share=0.05, steps=50, clip_norm=0.4, row_norm=1.5)
    # Without the mean, the gradients would need sqrt(0.95) of their noise.
    assert plan.gradients.noise_multiplier == pytest.approx(alone.noise_multiplier / math.sqrt(0.95), rel=0.02)
    assert 0.98 < plan.guarantee(BUDGET.delta).epsilon <= 1.0


# ------------------------------------------------------------------------------------------------------ its parts


def test_the_descent_of_a_planned_budget_states_its_own_guarantee_at_the_same_delta():
    plan = CentredPlan.for_budget(BUDGET, **FIELDS)
    assert plan.delta == plan.gradients.delta == BUDGET.delta
    assert plan.gradients.guarantee().epsilon < 1.0


def test_a_hidden_descent_on_centred_rows_says_so_and_may_enforce_its_contraction():
    descent = Descent(0.5, 1.0)
    plan = CentredPlan.for_budget(
        BUDGET, sampler=FixedOrder(9, shuffled=True), clip_norm=0.4, row_norm=1.5, release="last", descent=descent
    )
    assert plan.gradients.release == "last"
    bounds = (enforced("rows are short"), enforced("gradients are clipped"))
    assert "the last iterate, and no earlier one" in plan.guarantee(bounds=bounds).released
    assert plan.guarantee(bounds=bounds).is_conditional
    assert not plan.guarantee(bounds=bounds, contracts=enforced("steps contract")).is_conditional


def test_shares_at_both_ends_are_allowed():
    for share in (1e-3, 1 - 1e-3):
        plan = CentredPlan.for_budget(BUDGET, **FIELDS | {"share": share})
        of_mean, of_gradients = (mu**2 for mu in mus(plan))
        assert of_mean / (of_mean + of_gradients) == pytest.approx(share, rel=1e-6)
    for share in (0.999e-3, 1 - 0.999e-3):
        with pytest.raises(ValueError, match=r"share must lie in \[0.001, 0.999\]"):
            CentredPlan.for_budget(BUDGET, **FIELDS | {"share": share})
    explicit = CentredPlan.for_budget(BUDGET, **FIELDS | {"share": 0.05, "sampler": FullBatch()})
    assert CentredPlan.for_budget(BUDGET, **FIELDS) == explicit


def test_noise_in_one_of_two_parts_is_refused():
    plan = CentredPlan.for_budget(BUDGET, **FIELDS)
    for part in ("mean", "gradients"):
        silent = dataclasses.replace(getattr(plan, part), noise_multiplier=0.0)
        with pytest.raises(ValueError, match="Add noise to all of them or to none"):
            dataclasses.replace(plan, **{part: silent})
