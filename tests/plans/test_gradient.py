import dataclasses
import json
import math
from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.integrate import quad
from scipy.stats import chi2, norm

from privet.plans import FixedOrder, FixedSize, FullBatch, GradientPlan, OneUniform, PlanError, Poisson
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, Unit, enforced, gaussian_epsilon
from privet.privacy.events import GaussianRelease

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE
BUDGET = Budget(1.0, 1e-5)
RARELY = 1e-6


def plan_of(sampler=None, steps=5, clip_norm=0.5, noise_multiplier=2.0, adjacency=None):
    return GradientPlan(sampler or FullBatch(), steps, clip_norm, noise_multiplier, adjacency)


def has_std(sample, std):
    """Return whether a normal sample of known mean zero can have this standard deviation."""
    energy = np.sum(np.square(sample / std))
    return min(chi2.cdf(energy, sample.size), chi2.sf(energy, sample.size)) > RARELY


# --------------------------------------------------------------------------------------------- calibration


def test_the_example_in_the_documentation():
    plan = GradientPlan.for_budget(BUDGET, sampler=Poisson(rate=0.01), steps=2000, clip_norm=1.0)
    guarantee = plan.guarantee(delta=1e-5)
    assert 0.99 < guarantee.epsilon <= 1.0
    assert guarantee.delta == 1e-5
    assert guarantee.adjacency is ADD
    assert guarantee.unit is Unit.RECORD
    independent = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(plan.noise_multiplier)
    independent.compose(dp_accounting.PoissonSampledDpEvent(0.01, gaussian), 2000)
    assert 0.98 < independent.get_epsilon(1e-5) < 1.01


@pytest.mark.parametrize(("adjacency", "factor"), [(REPLACE, 2), (ADD, 1)])
@pytest.mark.parametrize("steps", [1, 7, 400])
@pytest.mark.parametrize(("epsilon", "inverse_mu"), [(1.0, 3.7306), (0.5, 7.0318)])
def test_full_batch_noise_is_that_of_the_errata(adjacency, factor, steps, epsilon, inverse_mu):
    budget = Budget(epsilon, 1e-5)
    plan = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=steps, clip_norm=3.0, adjacency=adjacency)
    assert plan.noise_multiplier == pytest.approx(factor * math.sqrt(steps) * inverse_mu, rel=2e-5)
    assert plan.noise_std == pytest.approx(3.0 * plan.noise_multiplier)
    assert plan.guarantee(1e-5).epsilon == pytest.approx(epsilon, rel=1e-8)
    assert plan.guarantee(1e-5).epsilon <= epsilon


def test_a_fixed_order_costs_one_release_per_pass_not_per_step():
    plan = GradientPlan.for_budget(BUDGET, sampler=FixedOrder(100, passes=4), clip_norm=1.0)
    assert plan.steps == 400
    assert plan.noise_multiplier == pytest.approx(2 * 2 * 3.7306, rel=2e-5)


def test_fixed_size_noise_against_dp_accounting_whose_multiplier_is_relative_to_twice_the_clip():
    """One record at C among others at -C attains the losses of a Poisson pair at half the multiplier."""
    plan = GradientPlan.for_budget(Budget(0.5, 1e-6), sampler=FixedSize(100, 32_561), steps=977, clip_norm=1.0)
    independent = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 3e-5)
    gaussian = dp_accounting.GaussianDpEvent(plan.noise_multiplier / 2)
    independent.compose(dp_accounting.PoissonSampledDpEvent(100 / 32_561, gaussian), 977)
    assert 0.5 / 1.25 < independent.get_epsilon(1e-6) < 0.501


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1), FixedSize(2, 20), OneUniform(20)], ids=repr)
@pytest.mark.parametrize("budget", [Budget(0.1, 1e-6), Budget(3.0, 1e-3)], ids=repr)
def test_calibration_lands_just_within_the_budget(sampler, budget):
    plan = GradientPlan.for_budget(budget, sampler=sampler, steps=30, clip_norm=1.0)
    assert 0.99 < plan.guarantee(budget.delta).epsilon / budget.epsilon <= 1.0


def test_pure_epsilon_is_refused():
    with pytest.raises(ValueError, match="no pure epsilon"):
        GradientPlan.for_budget(Budget(1.0), sampler=FullBatch(), steps=3, clip_norm=1.0)


# ------------------------------------------------------------------- the guarantee, by brute force, from what runs


def mixture(x, rate, mean, std):
    return (1 - rate) * norm.pdf(x, 0, std) + rate * norm.pdf(x, mean, std)


def hockey_stick(p, q, epsilon, reach):
    return quad(lambda x: max(p(x) - math.exp(epsilon) * q(x), 0.0), -reach, reach, limit=400)[0]


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_one_poisson_step_against_the_two_densities(rate):
    plan = GradientPlan.for_budget(Budget(1.0, 1e-3), sampler=Poisson(rate), steps=1, clip_norm=2.0)
    epsilon, std = plan.guarantee(1e-3).epsilon, plan.noise_std
    deltas = [
        hockey_stick(p, q, epsilon, 40 * std)
        for p, q in [
            (lambda x: mixture(x, rate, 2.0, std), lambda x: norm.pdf(x, 0, std)),
            (lambda x: norm.pdf(x, 0, std), lambda x: mixture(x, rate, 2.0, std)),
        ]
    ]
    assert 0.9e-3 < max(deltas) <= 1e-3 * (1 + 1e-6)


@pytest.mark.parametrize(("size", "n"), [(1, 4), (2, 4), (3, 4)])
def test_one_step_of_fixed_size_against_the_densities_of_a_hard_pair(size, n):
    plan = GradientPlan.for_budget(Budget(1.0, 1e-3), sampler=FixedSize(size, n), steps=1, clip_norm=2.0)

    def delta(std):
        p, q = (lambda x, mean=mean: mixture(x, size / n, mean, std) for mean in (2.0, -2.0))
        return hockey_stick(p, q, plan.guarantee(1e-3).epsilon, 40 * std)

    assert delta(plan.noise_std) <= 1e-3 < delta(plan.noise_std / 4)


@pytest.mark.parametrize(
    ("sampler", "n", "adjacency", "share"),
    [
        (FullBatch(), 4, REPLACE, 1.0),
        (FullBatch(), 4, ADD, 1.0),
        (FixedOrder(4, passes=3), 4, REPLACE, 0.25),
        (FixedSize(2, 4), 4, REPLACE, 0.5),
        (Poisson(0.3), 4, ADD, 0.3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("wrong", [1.0, 2 / 3, 3 / 2])
def test_what_a_run_reveals_of_one_unit_is_what_the_event_says(sampler, n, adjacency, share, wrong):
    """Measure, on the sums that a plan releases, how often a unit takes part and how large the noise is on it."""
    plan = GradientPlan(sampler, sampler.implied_steps or 3, 0.5, 1.3, adjacency)
    noises, visits = [], []
    for seed in range(400):
        for step in plan.run(n, NoiseSource(seed)):
            visits.append(0 in np.arange(n)[step.batch])
            noises.append(step.noisy(np.zeros(10)))
    accounted = plan.event
    if isinstance(accounted, GaussianRelease):
        releases = sum(visits) / 400
        multiplier = adjacency.factor * math.sqrt(releases) / accounted.mu
    else:
        multiplier = accounted.noise_multiplier
        rate = accounted.rate if isinstance(sampler, Poisson) else accounted.size / accounted.n
        assert rate == share
    assert np.mean(visits) == pytest.approx(share, abs=5 * math.sqrt(0.25 / len(visits)) * (share < 1))
    assert has_std(np.concatenate(noises), wrong * multiplier * plan.clip_norm) == (wrong == 1.0)


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1), FixedSize(3, 30), OneUniform(30)], ids=repr)
def test_the_guarantee_follows_noise_and_steps(sampler):
    def epsilon(**changes):
        fields = {"sampler": sampler, "steps": 20, "noise_multiplier": 2.0} | changes
        return plan_of(**fields).guarantee(1e-5).epsilon

    assert all(more > less for more, less in pairwise(epsilon(noise_multiplier=z) for z in (1.0, 2.0, 4.0)))
    assert all(less < more for less, more in pairwise(epsilon(steps=steps) for steps in (10, 20, 40)))
    assert epsilon(clip_norm=7.0) == epsilon()  # the multiplier is relative to the clip


def test_the_guarantee_follows_rate_size_passes_and_adjacency():
    def epsilon(sampler, adjacency=None, steps=20):
        return plan_of(sampler, steps, adjacency=adjacency).guarantee(1e-5).epsilon

    assert epsilon(Poisson(0.05)) < epsilon(Poisson(0.1)) < epsilon(Poisson(0.2))
    assert epsilon(FixedSize(3, 60)) < epsilon(FixedSize(3, 30)) < epsilon(FixedSize(6, 30))
    assert epsilon(FixedOrder(10, 1), steps=None) < epsilon(FixedOrder(10, 2), steps=None)
    assert epsilon(FullBatch(), ADD) == pytest.approx(gaussian_epsilon(math.sqrt(20), 2.0, 1e-5))
    assert epsilon(FullBatch(), REPLACE) == pytest.approx(gaussian_epsilon(2 * math.sqrt(20), 2.0, 1e-5))


def test_the_guarantee_says_what_is_assumed_and_what_is_enforced():
    plan = plan_of(FixedSize(3, 30), steps=20)
    bare = plan.guarantee(1e-5)
    assert bare.is_conditional
    assert "provided that" in bare.statement(verbose=True).splitlines()[0]
    assert "at most 0.5" in bare.statement(verbose=True)
    clipped = plan.guarantee(1e-5, bound=enforced("gradients are clipped"), unit=Unit.CLIENT, released="sums")
    assert not clipped.is_conditional
    assert clipped.epsilon == bare.epsilon
    assert clipped.unit is Unit.CLIENT
    for words in ("gradients are clipped", "batch of 3 of 30", "noise multiplier 2", "20 sums", "Released: sums"):
        assert words in clipped.statement(verbose=True)


@pytest.mark.parametrize("sampler", [FixedSize(np.int64(3), np.int64(30)), Poisson(np.float32(0.25))], ids=repr)
def test_the_guarantee_of_numpy_numbers_can_be_written_down(sampler):
    guarantee = plan_of(sampler).guarantee(1e-5)
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
    assert json.loads(guarantee.to_json())["epsilon"] == guarantee.epsilon


# ----------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize(
    "sampler", [FullBatch(), Poisson(0.01), FixedSize(3, 12), OneUniform(12), FixedOrder(12, 2, 5)], ids=repr
)
def test_a_run_makes_exactly_the_planned_steps(sampler):
    plan = GradientPlan(sampler, sampler.implied_steps or 9, 1.0, 1.0)
    assert len(list(plan.run(12, NoiseSource(0)))) == plan.steps


def test_a_step_adds_noise_to_one_sum():
    step = next(plan_of().run(3, NoiseSource(0)))
    step.noisy(np.zeros(2))
    with pytest.raises(PlanError, match="accounts for one noisy sum per step"):
        step.noisy(np.zeros(2))


def test_a_step_that_is_over_gives_no_noise():
    first, *_ = list(plan_of().run(3, NoiseSource(0)))
    with pytest.raises(PlanError):
        first.noisy(np.zeros(2))


@pytest.mark.parametrize("n", [-1, 2.5, True])
def test_a_run_needs_a_number_of_units(n):
    with pytest.raises(ValueError, match="n must be"):
        next(plan_of().run(n, NoiseSource(0)))


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.5)], ids=repr)
def test_an_empty_table_gets_noise_like_any_other(sampler):
    steps = list(plan_of(sampler, adjacency=ADD).run(0, NoiseSource(0)))
    assert [np.arange(0)[step.batch].size for step in steps] == [0] * 5


def test_under_add_or_remove_the_divisor_does_not_depend_on_the_number_of_units():
    plan = GradientPlan.for_budget(BUDGET, sampler=Poisson(0.1), steps=5, clip_norm=1.0, public_n=1000)
    assert {plan.divisor(n) for n in (0, 999, 1000, 1001)} == {100.0}
    assert dataclasses.replace(plan, public_n=7).guarantee(1e-5) == plan.guarantee(1e-5)
    for unknown in (plan_of(Poisson(0.1)), plan_of(FullBatch(), adjacency=ADD)):
        with pytest.raises(ValueError, match="public_n"):
            unknown.divisor(1000)


def test_under_replace_one_the_number_of_units_is_public():
    assert plan_of(FullBatch()).divisor(30) == 30
    assert plan_of(FixedSize(3, 30)).divisor(30) == 3


def test_a_run_over_another_number_of_units_is_refused_before_anything_is_drawn():
    with pytest.raises(ValueError, match="n = 12 units, the data has 13"):
        next(plan_of(FixedSize(3, 12)).run(13, NoiseSource(0)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20_000,), (4000, 5)])
def test_the_noise_on_a_sum_has_the_planned_std(dtype, shape):
    plan = plan_of(clip_norm=0.7, noise_multiplier=3.0)
    total = np.full(shape, 11.0, dtype=dtype)
    noisy = next(plan.run(3, NoiseSource(5))).noisy(total)
    assert noisy.dtype == dtype
    assert noisy.shape == shape
    assert (total == 11.0).all()
    noise = (noisy - total).astype(np.float64)
    assert has_std(noise, 2.1)
    assert not has_std(noise, 2.1 * 2 / 3)
    assert not has_std(noise, 2.1 * 3 / 2)


def test_each_step_draws_its_own_noise():
    noises = [step.noisy(np.zeros(500)) for step in plan_of(steps=4).run(3, NoiseSource(5))]
    assert np.abs(np.corrcoef(noises) - np.eye(4)).max() < 0.25


# ---------------------------------------------------------------------------------------------- contradictions


def test_a_sampler_that_implies_its_steps_allows_no_other_number():
    order = FixedOrder(10, passes=2, size=5)
    assert plan_of(order, steps=None) == plan_of(order, steps=4)
    for make in (
        lambda: plan_of(order, steps=5),
        lambda: GradientPlan.for_budget(BUDGET, sampler=order, steps=5, clip_norm=1.0),
    ):
        with pytest.raises(ValueError, match="makes 4 steps, not 5"):
            make()


def test_a_sampler_that_implies_no_number_of_steps_needs_one():
    with pytest.raises(ValueError, match="needs a number of steps"):
        GradientPlan.for_budget(BUDGET, sampler=FullBatch(), clip_norm=1.0)


@pytest.mark.parametrize(
    ("sampler", "adjacency"), [(Poisson(0.1), REPLACE), (FixedSize(3, 12), ADD), (FixedOrder(12), ADD)], ids=repr
)
def test_adjacencies_never_mix(sampler, adjacency):
    with pytest.raises(ValueError, match=f"not {adjacency}"):
        GradientPlan(sampler, sampler.implied_steps or 5, 1.0, 1.0, adjacency)


@pytest.mark.parametrize(
    "field", [{"clip_norm": 0.0}, {"clip_norm": math.inf}, {"noise_multiplier": -1}, {"noise_multiplier": math.nan}]
)
@pytest.mark.parametrize("steps", [5])
def test_impossible_numbers_are_named(field, steps):
    with pytest.raises(ValueError, match=f"^{next(iter(field))} must (not )?be"):
        plan_of(steps=steps, **field)


@pytest.mark.parametrize("steps", [0, -3, 2.0, True])
def test_invalid_numbers_of_steps_are_refused(steps):
    with pytest.raises(ValueError, match="steps must be"):
        plan_of(steps=steps)


@pytest.mark.parametrize("field", ["sampler", "steps", "clip_norm", "noise_multiplier", "adjacency", "public_n"])
def test_a_plan_is_frozen(field):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(plan_of(), field, 1)


def test_a_changed_copy_has_its_own_guarantee():
    plan = plan_of()
    quieter = dataclasses.replace(plan, noise_multiplier=1.0)
    assert quieter.guarantee(1e-5).epsilon > plan.guarantee(1e-5).epsilon
