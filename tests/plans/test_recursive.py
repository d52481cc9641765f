import dataclasses
import math
from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import chi2

from privet.plans import FixedOrder, FixedSize, FullBatch, GradientPlan, OneUniform, PlanError, Poisson
from privet.plans.recursive import RecursivePlan, balanced_ratio
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, Unit, enforced
from privet.privacy.events import Composition, FixedSizeGaussian, GaussianRelease, PoissonGaussian

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE
BUDGET = Budget(0.5, 1e-5)
BOUNDS = {
    "clip_norm": 1.0,
    "difference_norm": 0.1,
    "refresh": 0.3,
}  # of docs/errata.md (i): each later unit weighs 0.37
SAMPLERS = [FullBatch(), Poisson(0.1), FixedSize(3, 30), OneUniform(30), FixedOrder(30, 2, 5)]


def plan_of(sampler=None, steps=5, noise_multiplier=2.0, **fields):
    sampler = sampler or FullBatch()
    if sampler.implied_steps:
        steps, fields = None, {"first": FullBatch()} | fields
    return RecursivePlan(sampler, steps, noise_multiplier=noise_multiplier, **(BOUNDS | fields))


def has_std(sample, std):
    energy = np.sum(np.square(np.asarray(sample) / std))
    return min(chi2.cdf(energy, np.size(sample)), chi2.sf(energy, np.size(sample))) > 1e-6


# -------------------------------------------------------------------------------- noise, calculated independently


@pytest.mark.parametrize("first_size", [100, 400])
def test_fixed_size_noise_against_dp_accounting_whose_multiplier_is_relative_to_twice_the_bound(first_size):
    n = 32_561
    first = FixedSize(first_size, n)
    plan = RecursivePlan.for_budget(BUDGET, sampler=FixedSize(100, n), steps=300, first=first, **BOUNDS)
    independent = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 3e-5)
    first_gaussian = dp_accounting.GaussianDpEvent(plan.first_plan.noise_std / (2 * 1.0))
    gaussian = dp_accounting.GaussianDpEvent(plan.later_plan.noise_std / (2 * 0.37))
    independent.compose(dp_accounting.PoissonSampledDpEvent(first_size / n, first_gaussian))
    independent.compose(dp_accounting.PoissonSampledDpEvent(100 / n, gaussian), 299)
    assert 0.5 / 1.25 < independent.get_epsilon(1e-5) < 0.501  # the losses of one record at its bound


@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_poisson_noise_against_the_loss_distributions_of_dp_accounting(rate):
    plan = RecursivePlan.for_budget(BUDGET, sampler=Poisson(0.01), first=Poisson(rate), steps=300, **BOUNDS)
    independent = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    first = dp_accounting.GaussianDpEvent(plan.first_plan.noise_std / 1.0)
    later = dp_accounting.GaussianDpEvent(plan.later_plan.noise_std / 0.37)
    independent.compose(dp_accounting.PoissonSampledDpEvent(rate, first))
    independent.compose(dp_accounting.PoissonSampledDpEvent(0.01, later), 299)
    assert 0.98 * 0.5 < independent.get_epsilon(1e-5) < 1.01 * 0.5


@pytest.mark.parametrize(("adjacency", "factor"), [(REPLACE, 2), (ADD, 1)])
@pytest.mark.parametrize("ratio", [None, 0.5, 1.0, 3.0])
def test_full_batch_noise_is_exact(adjacency, factor, ratio):
    """The squared mus of all releases, computed from their sensitivities, add up to the square of 1/7.0318."""
    fields = {"steps": 10, "adjacency": adjacency, "first_noise_ratio": ratio}
    plan = RecursivePlan.for_budget(BUDGET, sampler=FullBatch(), **fields, **BOUNDS)
    first, later = factor * 1.0 / plan.first_plan.noise_std, factor * 0.37 / plan.later_plan.noise_std
    assert 1 / math.sqrt(first**2 + 9 * later**2) == pytest.approx(7.0318, rel=2e-5)
    assert BUDGET.epsilon * (1 - 1e-6) < plan.guarantee(1e-5).epsilon <= BUDGET.epsilon


@pytest.mark.parametrize("sampler", SAMPLERS[:4], ids=repr)
@pytest.mark.parametrize("first", [None, FullBatch()], ids=repr)
@pytest.mark.parametrize("refresh", [0.0, 0.05, 1.0])
def test_calibration_lands_just_within_the_budget(sampler, first, refresh):
    budget, bounds = Budget(0.3, 1e-6), BOUNDS | {"refresh": refresh}
    plan = RecursivePlan.for_budget(budget, sampler=sampler, first=first, steps=30, **bounds)
    assert 0.99 < plan.guarantee(1e-6).epsilon / 0.3 <= 1.0


def test_very_unequal_batches_can_be_calibrated():
    for first, later in ((OneUniform(100_000), FullBatch()), (FullBatch(), OneUniform(100_000))):
        plan = RecursivePlan.for_budget(BUDGET, sampler=later, first=first, steps=3, **BOUNDS)
        assert 0.98 < plan.guarantee(1e-5).epsilon / 0.5 <= 1.0


def test_pure_epsilon_is_refused():
    with pytest.raises(ValueError, match="no pure epsilon"):
        RecursivePlan.for_budget(Budget(1.0), sampler=FullBatch(), steps=3, **BOUNDS)


# ------------------------------------------------------------------------------ how the budget is shared out


def test_the_balanced_ratio_equalises_the_costs_of_releases_up_to_their_importance():
    def ratio(first, sampler, clip_norm=1.0, difference_norm=1.0):
        bounds = {"clip_norm": clip_norm, "difference_norm": difference_norm, "refresh": 0.0}
        return balanced_ratio(plan_of(sampler, first=first, **bounds))

    assert ratio(FixedSize(10, 100), FixedSize(10, 100)) == 1.0
    assert ratio(FixedSize(40, 100), FixedSize(10, 100)) == 4.0
    assert ratio(FullBatch(), FixedSize(10, 100), 1.0, 0.25) == 5.0
    assert ratio(FullBatch(), Poisson(0.5), 2.0, 0.5) == 1.0
    assert ratio(FullBatch(), FixedOrder(100, 1, 20)) == 5.0


@pytest.mark.parametrize("refresh", [0.05, 0.3])
@pytest.mark.parametrize("sampler", [FullBatch(), FixedSize(500, 10_000)], ids=repr)
def test_no_other_ratio_leaves_much_less_noise_in_the_estimates(refresh, sampler):
    """Compare by the recursion itself: the noise in v_t is noise_t + (1 - g) times the noise in v_(t-1)."""

    def noise_in_estimates(ratio):
        bounds = {"clip_norm": 1.0, "difference_norm": 0.05, "refresh": refresh}
        plan = RecursivePlan.for_budget(BUDGET, sampler=sampler, steps=200, first_noise_ratio=ratio, **bounds)
        carried, total = plan.first_plan.noise_std**2, 0.0
        for _ in range(plan.steps):
            total += carried
            carried = plan.later_plan.noise_std**2 + (1 - refresh) ** 2 * carried
        return total

    best = min(noise_in_estimates(ratio) for ratio in np.geomspace(0.05, 5, 21))
    assert noise_in_estimates(None) < 1.03 * best
    if refresh == 0.05:
        assert noise_in_estimates(1.0) > 1.04 * best


# ---------------------------------------------------------------------------------------------- the guarantee


def test_the_event_composes_the_first_release_with_the_others():
    plan = plan_of(FixedSize(3, 30), steps=20, first=FixedSize(6, 30), first_noise_multiplier=7.0)
    assert plan.event == Composition((FixedSizeGaussian(7.0, 30, 6, 1), FixedSizeGaussian(2.0, 30, 3, 19)))
    plan = plan_of(Poisson(0.1), steps=20, first=FullBatch(), first_noise_multiplier=7.0)
    assert plan.adjacency is ADD
    assert plan.event == Composition((GaussianRelease(1 / 7.0), PoissonGaussian(2.0, 0.1, 19)))


def test_equal_releases_cost_what_as_many_steps_of_a_gradient_plan_do():
    for sampler in (FullBatch(), FixedSize(3, 30), Poisson(0.1)):
        plain = GradientPlan(sampler, 20, 0.37, 2.0).guarantee(1e-5).epsilon
        assert plan_of(sampler, steps=20).guarantee(1e-5).epsilon == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("sampler", SAMPLERS[:4], ids=repr)
def test_the_guarantee_follows_noise_and_steps(sampler):
    def epsilon(**changes):
        fields = {"sampler": sampler, "steps": 20, "first_noise_multiplier": 3.0} | changes
        return plan_of(**fields).guarantee(1e-5).epsilon

    assert all(more > less for more, less in pairwise(epsilon(noise_multiplier=z) for z in (1.0, 2.0, 4.0)))
    assert all(more > less for more, less in pairwise(epsilon(first_noise_multiplier=z) for z in (1.0, 2.0, 4.0)))
    assert all(less < more for less, more in pairwise(epsilon(steps=steps) for steps in (10, 20, 40)))
    assert epsilon(clip_norm=7.0, difference_norm=3.0, refresh=0.5) == epsilon()  # multipliers are relative to them


def test_the_guarantee_says_what_is_assumed_and_what_is_enforced():
    plan = plan_of(FixedSize(3, 30), steps=20, first=FullBatch(), first_noise_multiplier=9.0)
    bare = plan.guarantee(1e-5)
    assert bare.is_conditional
    for words in ("at most 1 to the first sum", "at most 0.37 to each later one"):
        assert words in bare.statement(verbose=True)
    clipped = plan.guarantee(1e-5, bound=enforced("gradients are clipped"), unit=Unit.CLIENT, released="sums")
    assert not clipped.is_conditional
    assert clipped.epsilon == bare.epsilon
    assert clipped.unit is Unit.CLIENT
    for words in (
        "gradients are clipped",
        "first release: every step uses every unit; Gaussian noise of standard deviation 9 on the sum",
        "later releases: each step takes a uniformly random batch of 3 of 30",
        "standard deviation 0.74 on each of 19 sums (noise multiplier 2)",
        "Released: sums",
    ):
        assert words in clipped.statement(verbose=True)


def test_the_guarantee_of_numpy_numbers_can_be_written_down():
    plan = plan_of(FixedSize(np.int64(3), np.int64(30)), steps=np.int64(5), refresh=np.float32(0.25))
    guarantee = plan.guarantee(1e-5)
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


# ------------------------------------------------------------------------------------------------------ running


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_run_makes_exactly_the_planned_steps(sampler):
    plan = plan_of(sampler, steps=9)
    assert plan.steps == (sampler.implied_steps or 8) + 1
    assert len(list(plan.run(30, NoiseSource(0)))) == plan.steps


def test_each_step_adds_noise_to_one_sum():
    for step in plan_of().run(3, NoiseSource(0)):
        step.noisy(np.zeros(2))
        with pytest.raises(PlanError, match="accounts for one noisy sum per step"):
            step.noisy(np.zeros(2))


def test_steps_that_are_over_give_no_noise():
    for step in list(plan_of().run(3, NoiseSource(0))):
        with pytest.raises(PlanError):
            step.noisy(np.zeros(2))


@pytest.mark.parametrize(("wrong", "fits"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_every_release_has_the_noise_of_its_own_bound(sampler, wrong, fits):
    plan = plan_of(sampler, steps=6, noise_multiplier=2.0, first_noise_multiplier=5.0)
    first, *later = [step.noisy(np.full(3000, 11.0)) - 11.0 for step in plan.run(30, NoiseSource(1))]
    assert has_std(first, wrong * 5.0 * 1.0) == fits
    assert all(has_std(noise, wrong * 2.0 * 0.37) == fits for noise in later)


def test_the_first_batch_has_the_size_of_its_own_sampler():
    plan = plan_of(FixedSize(3, 30), first=FixedSize(12, 30))
    assert [len(step.batch) for step in plan.run(30, NoiseSource(0))] == [12, 3, 3, 3, 3]


def test_under_add_or_remove_the_divisors_do_not_depend_on_the_number_of_units():
    plan = plan_of(Poisson(0.1), first=Poisson(0.5), public_n=1000)
    assert {plan.first_plan.divisor(n) for n in (0, 999, 1000, 1001)} == {500.0}
    assert {plan.later_plan.divisor(n) for n in (0, 999, 1000, 1001)} == {100.0}
    assert dataclasses.replace(plan, public_n=7).guarantee(1e-5) == plan.guarantee(1e-5)
    with pytest.raises(ValueError, match="public_n"):
        plan_of(Poisson(0.1)).later_plan.divisor(1000)


@pytest.mark.parametrize("first", [None, FullBatch()], ids=repr)
def test_a_run_over_another_number_of_units_is_refused_before_anything_is_drawn(first):
    with pytest.raises(ValueError, match="n = 12 units, the data has 13"):
        next(plan_of(FixedSize(3, 12), first=first).run(13, NoiseSource(0)))


def test_public_units_count_among_those_of_the_data():
    """The data of FixedOrder(6, public=2) has 8 units. A second, separate check once refused every number of units."""
    plan = plan_of(FixedOrder(6, size=3, public=2), None, first=FullBatch())
    assert len(list(plan.run(8, NoiseSource(0)))) == 4
    with pytest.raises(ValueError, match="n = 8 units, the data has 6"):
        next(plan.run(6, NoiseSource(0)))


@pytest.mark.parametrize("n", [-1, 2.5, True])
def test_a_run_needs_a_number_of_units(n):
    with pytest.raises(ValueError, match="n must be"):
        next(plan_of().run(n, NoiseSource(0)))


# ----------------------------------------------------------------------------------------------- contradictions


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("clip_norm", 0.0),
        ("clip_norm", math.inf),
        ("difference_norm", 0.0),
        ("difference_norm", math.nan),
        ("refresh", -0.1),
        ("refresh", 1.1),
        ("refresh", math.nan),
        ("noise_multiplier", -0.5),
        ("first_noise_multiplier", -1.0),
        ("public_n", 0),
    ],
)
def test_impossible_numbers_are_named(field, bad):
    with pytest.raises(ValueError, match=f"^{field} must"):
        plan_of(**{field: bad})
    if "noise" not in field:
        with pytest.raises(ValueError, match=f"^{field} must"):
            RecursivePlan.for_budget(BUDGET, sampler=FullBatch(), steps=3, **(BOUNDS | {field: bad}))


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan])
def test_an_impossible_ratio_is_named(ratio):
    with pytest.raises(ValueError, match=r"^first_noise_ratio must"):
        RecursivePlan.for_budget(BUDGET, sampler=FullBatch(), steps=3, first_noise_ratio=ratio, **BOUNDS)


@pytest.mark.parametrize("steps", [0, 1, 2.0, True])
def test_a_recursion_needs_at_least_two_steps(steps):
    with pytest.raises(ValueError, match="steps must be"):
        plan_of(steps=steps)


def test_a_sampler_that_implies_its_steps_comes_after_a_first_step_of_another():
    order = FixedOrder(10, passes=2, size=5)
    assert RecursivePlan(order, None, noise_multiplier=2.0, first=FullBatch(), **BOUNDS).steps == 5
    assert RecursivePlan(order, 5, noise_multiplier=2.0, first=FullBatch(), **BOUNDS).steps == 5
    with pytest.raises(ValueError, match="make 5 steps, not 4: leave steps out"):
        RecursivePlan(order, 4, noise_multiplier=2.0, first=FullBatch(), **BOUNDS)
    with pytest.raises(ValueError, match="makes 4 steps, not one"):
        RecursivePlan(order, None, noise_multiplier=2.0, **BOUNDS)
    with pytest.raises(ValueError, match="needs a number of steps"):
        RecursivePlan(FullBatch(), None, noise_multiplier=2.0, **BOUNDS)


@pytest.mark.parametrize(
    ("first", "sampler", "adjacency", "words"),
    [
        (None, Poisson(0.1), REPLACE, "add-or-remove adjacency, not replace-one"),
        (FullBatch(), FixedSize(3, 12), ADD, "replace-one adjacency, not add-or-remove"),
        (FixedSize(3, 12), Poisson(0.1), None, "no common adjacency"),
    ],
    ids=repr,
)
def test_adjacencies_never_mix(first, sampler, adjacency, words):
    with pytest.raises(ValueError, match=words):
        plan_of(sampler, first=first, adjacency=adjacency)


def test_the_adjacency_is_one_that_both_samplers_know():
    assert plan_of(FullBatch()).adjacency is REPLACE
    assert plan_of(FullBatch(), first=Poisson(0.5)).adjacency is ADD
    assert plan_of(FullBatch(), adjacency="add-or-remove").adjacency is ADD


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(RecursivePlan)])
def test_a_plan_is_frozen(field):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(plan_of(), field, 1)


def test_a_changed_copy_has_its_own_guarantee():
    plan = plan_of()
    assert plan == plan_of()
    assert hash(plan) == hash(plan_of())
    assert plan.contribution_norm == pytest.approx(0.37)
    changed = dataclasses.replace(plan, refresh=1.0, noise_multiplier=1.0)
    assert changed.contribution_norm == changed.later_plan.clip_norm == 1.0
    assert changed.guarantee(1e-5).epsilon > plan.guarantee(1e-5).epsilon


def test_a_clip_of_differences_that_never_binds_is_allowed():
    assert plan_of(difference_norm=5.0).contribution_norm == pytest.approx(0.3 + 0.7 * 5)


def test_a_plan_of_a_budget_keeps_all_fields():
    fields = {"sampler": FullBatch(), "steps": 4, "first": Poisson(0.5), "public_n": 30, "tasks": 2}
    plan = RecursivePlan.for_budget(BUDGET, adjacency=ADD, first_noise_ratio=1.5, **fields, **BOUNDS)
    noise = {"noise_multiplier": plan.noise_multiplier, "first_noise_multiplier": 1.5 * plan.noise_multiplier}
    assert plan == RecursivePlan(**fields, **BOUNDS, **noise, adjacency=ADD)
    assert plan.delta == BUDGET.delta
    assert 0.99 * BUDGET.epsilon < plan.guarantee().epsilon <= BUDGET.epsilon
    assert plan.adjacency is plan.first_plan.adjacency is plan.later_plan.adjacency is ADD
    assert plan.first_plan.public_n == plan.later_plan.public_n == 30


def test_the_first_release_is_like_the_others_by_default():
    assert plan_of() == plan_of(first_noise_multiplier=2.0, first=FullBatch(), adjacency=REPLACE, tasks=1)
    assert plan_of().public_n is None
    assert plan_of().delta is None


def test_two_steps_and_any_share_of_fresh_gradients_are_allowed():
    assert plan_of(steps=2).later_plan.steps == 1
    assert plan_of(refresh=0).contribution_norm == pytest.approx(0.1)
    assert plan_of(refresh=1).contribution_norm == pytest.approx(1.0)


@pytest.mark.parametrize("steps", [0, 6])
def test_a_truncated_plan_has_between_one_and_all_steps(steps):
    plan = plan_of(public_n=30, tasks=2)
    assert plan.truncated(5) == plan
    alone = GradientPlan(FullBatch(), 1, 1.0, 2.0, public_n=30, tasks=2)
    assert plan.truncated(1) == alone
    with pytest.raises(ValueError, match=r"^steps must be at"):
        plan.truncated(steps)


def test_a_recursion_cannot_hide_its_iterates():
    with pytest.raises(PlanError, match="releases 'last'"):
        next(plan_of().run(3, NoiseSource(0), release="last"))


def test_a_truncated_recursion_over_a_fixed_order_ends_after_as_many_batches_and_the_first():
    plan = plan_of(FixedOrder(30, 2, 5))
    assert plan.steps == 13
    for steps in (2, 4, 7, 12):
        short = plan.truncated(steps)
        assert (short.steps, short.sampler.implied_steps) == (steps, steps - 1)
        assert len(list(short.run(30, NoiseSource(0)))) == steps
