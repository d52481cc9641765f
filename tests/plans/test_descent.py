import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit

from privet.plans import (
    Descent,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    OneUniform,
    PlanError,
    Poisson,
    RandomSkip,
    RandomStop,
    SecretOrder,
)
from privet.plans.contraction import ROUNDING
from privet.privacy import Adjacency, Budget, NoiseSource, enforced, gdp_epsilon, gdp_mu
from privet.privacy.analyses.accounting import epsilon as accounted
from privet.privacy.analyses.gaussian import gdp_delta
from privet.privacy.events import Composition, GaussianRelease, LastIterate, Secret
from privet.privacy.iteration import last_iterate_mu
from privet.privacy.noise.release import in_words

DELTA = 1e-5
BUDGET = Budget(1.0, DELTA)
DESCENT = Descent(1.0, 1.0)


def last(sampler, descent=DESCENT, **fields):
    return GradientPlan(
        sampler, fields.pop("steps", None), 1.0, fields.pop("noise", 4.0), release="last", descent=descent, **fields
    )


def charged(mu, noise):
    """Return a mu with the charge for rounding errors, at a noise multiplier: docs/proofs.md, section 16."""
    return mu + ROUNDING * (mu + 2.0**-13 * 2 / noise)


# -------------------------------------------------------------------------------------------------- contractions


@pytest.mark.parametrize("step_size", [0.01, 0.5, 1.0, 1.9, 2.0])
@pytest.mark.parametrize("strong_convexity", [0.0, 0.1, 1.0])
def test_no_two_points_are_driven_further_apart_than_the_factor(step_size, strong_convexity):
    """Quadratics of every curvature from m to beta, and sigmoids between them."""
    descent = Descent(step_size, 1.0, strong_convexity)
    x = np.linspace(-30, 30, 4001)
    for curvature in np.linspace(strong_convexity, 1.0, 5):
        y = x - step_size * curvature * x
        assert np.max(np.abs(np.diff(y) / np.diff(x))) <= descent.contraction + 1e-9
    y = x - step_size * (4 * (1 - strong_convexity) * expit(x) + strong_convexity * x)
    assert np.max(np.abs(np.diff(y) / np.diff(x))) <= descent.contraction + 1e-9
    ends = max(abs(1 - step_size * strong_convexity), abs(1 - step_size))
    assert descent.contraction == pytest.approx(ends, abs=1e-15)
    assert descent.contraction <= 1


def test_a_schedule_has_a_factor_for_each_step():
    sizes = [1.0, 0.5, 2.0]
    descent = Descent(sizes, 1.0, 0.2)
    assert descent.step_size == descent.step_sizes == (1.0, 0.5, 2.0)
    assert descent.contraction == pytest.approx((0.8, 0.9, 1.0))
    assert Descent(0.5, 1.0).step_sizes == (0.5,)
    assert isinstance(Descent(0.5, 1.0).contraction, float)


def test_the_best_step_for_both_constants():
    assert Descent(2 / (1.0 + 0.25), 1.0, 0.25).contraction == pytest.approx(0.6)


def test_the_description_names_the_cause_of_contraction():
    words = Descent((0.5, 0.25), 2.0, 0.1, diameter=3.0).in_words()
    for part in ("0.25 to 0.5", "0.1-strongly convex", "2-smooth", "ball of diameter 3"):
        assert part in words
    assert "strongly" not in Descent(0.5, 2.0).in_words()
    assert "ball" not in Descent(0.5, 2.0).in_words()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2.0001, 1.0), "exceeds 2/smoothness = 2"),
        (((0.1, 2.1, 0.1), 1.0), "exceeds 2/smoothness = 2"),
        ((0.1, 1.0, -1e-9), "needs a convex objective"),
        ((0.1, 1.0, 1.1), "strong_convexity cannot exceed smoothness"),
        ((0.1, 0.0), "^smoothness must be positive"),
        ((0.1, -1.0), "^smoothness"),
        ((0.1, math.nan), "^smoothness"),
        ((0.1, math.inf), "^smoothness"),
        ((0.0, 1.0), "^step_size must be positive"),
        ((-0.1, 1.0), "^step_size"),
        ((math.nan, 1.0), "^step_size"),
        ((math.inf, 1.0), "^step_size"),
        (((0.1, math.nan), 1.0), "^step_size"),
        (((0.1, 0.0), 1.0), "^step_size"),
        (((), 1.0), "step_size needs one number per step"),
        ((np.ones(3), 1.0), "^step_size"),
        ((0.1, 1.0, math.nan), "^strong_convexity"),
        ((0.1, 1.0, 0.1, 0.0), "^diameter must be positive"),
        ((0.1, 1.0, 0.1, -1.0), "^diameter"),
        ((0.1, 1.0, 0.1, math.nan), "^diameter"),
        ((0.1, 1.0, 0.1, math.inf), "^diameter"),
    ],
    ids=str,
)
def test_impossible_descents_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Descent(*arguments)


# --------------------------------------------------------------------------------------- plans that release the last


def test_the_event_of_a_fixed_order_carries_every_field():
    descent = Descent(0.5, 2.0, 0.2, diameter=3.0)
    plan = GradientPlan(FixedOrder(7, 3, 2, 5), None, 0.7, 4.0, release="last", descent=descent, tasks=2)
    assert plan.event == LastIterate(
        4.0,
        n=7,
        passes=3,
        size=2,
        public=5,
        contraction=0.9,
        step_size=0.5,
        diameter=3.0 * 2 / (2 * 0.7),
        runs=2,
        rounding=ROUNDING,
    )
    assert plan.steps == plan.event.steps == 3 * (4 + 3)


def test_the_event_of_full_batches_is_that_of_one_unit():
    plan = last(FullBatch(), Descent(0.5, 2.0, 0.2, diameter=3.0), steps=9, public_n=50)
    one = LastIterate(4.0, n=1, passes=9, contraction=0.9, step_size=0.5, diameter=3.0 * 50 / 2, rounding=ROUNDING)
    assert plan.event == one


@pytest.mark.parametrize(
    ("sampler", "secret"),
    [(RandomStop(9), Secret.STOP), (RandomSkip(9), Secret.SKIP), (SecretOrder(9, passes=2), Secret.ORDER)],
    ids=repr,
)
def test_secrets_are_part_of_the_event_of_a_last_iterate_only(sampler, secret):
    assert last(sampler).event.secret is secret
    everything = GradientPlan(sampler, None, 1.0, 4.0)
    assert everything.event == GradientPlan(FixedOrder(9, sampler.passes), None, 1.0, 4.0).event


@pytest.mark.parametrize("sampler", [FixedOrder(6, 2, 2, 1), FullBatch()], ids=repr)
@pytest.mark.parametrize("descent", [Descent(0.5, 2.0, 0.2), Descent(0.5, 2.0, diameter=0.9)], ids=repr)
def test_the_mu_is_that_of_the_explicit_steps_and_the_charge_for_rounding(sampler, descent):
    """Shift 2 eta C over the divisor where the worst record is visited; noise eta z C over the divisor everywhere."""
    clip_norm, n = 0.7, 7
    steps = None if sampler.implied_steps else 8
    plan = GradientPlan(sampler, steps, clip_norm, 3.0, public_n=n, release="last", descent=descent)
    divisor = plan.divisor(n)
    batches = list(sampler.batches(n, plan.steps, NoiseSource(0)))
    mus = []
    for record in range(n - getattr(sampler, "public", 0)):
        visited = np.array([record in np.arange(n)[batch] for batch in batches])
        shifts = visited * 2 * 0.5 * clip_norm / divisor
        noise = 0.5 * plan.noise_std / divisor
        mus.append(last_iterate_mu(shifts, noise, descent.contraction, diameter=descent.diameter))
    assert plan.event.unsampled(plan.adjacency).mu == pytest.approx(charged(max(mus), 3.0), rel=1e-9)


def test_public_records_at_the_end_divide_the_noise_by_the_root_of_their_number_and_one():
    """Corollary 31 as corrected in docs/errata.md (e): sigma = 2L/(mu* sqrt(m + 1))."""
    for public in (0, 1, 3, 99, 1000):
        plan = GradientPlan.for_budget(
            BUDGET, sampler=FixedOrder(50, public=public), clip_norm=1.0, release="last", descent=DESCENT
        )
        noise = charged(2 / math.sqrt(public + 1), 1.0) / gdp_mu(BUDGET)
        assert plan.noise_multiplier == pytest.approx(noise, rel=1e-9)
        assert 1 - 1e-6 < plan.guarantee(DELTA).epsilon <= 1.0


def test_the_noise_of_corollary_31_as_printed_is_too_small():
    """docs/errata.md (e): sigma = 2 sqrt(ln(1.25/delta)/m)/epsilon at m = 100 gives 1.092 for a claim of 1."""
    for claim, truth in ((1.0, 1.092), (0.5, 0.512)):
        noise = 2 * math.sqrt(math.log(1.25 / DELTA) / 100) / claim
        plan = last(FixedOrder(50, public=100), noise=noise)
        assert plan.guarantee(DELTA).epsilon == pytest.approx(truth, abs=2e-3)


@pytest.mark.parametrize(
    "sampler",
    [FixedOrder(40), FixedOrder(40, passes=5, size=3, public=7), RandomStop(40), RandomSkip(40), SecretOrder(40, 3)],
    ids=repr,
)
@pytest.mark.parametrize("budget", [Budget(0.1, 1e-6), Budget(3.0, 1e-3)], ids=repr)
@pytest.mark.parametrize("tasks", [1, 3])
def test_calibration_lands_just_within_the_budget(sampler, budget, tasks):
    plan = GradientPlan.for_budget(
        budget, sampler=sampler, clip_norm=1.0, release="last", descent=Descent(0.5, 1.0), tasks=tasks
    )
    assert 0.99 < plan.guarantee(budget.delta).epsilon / budget.epsilon <= 1.0
    everything = GradientPlan.for_budget(budget, sampler=sampler, clip_norm=1.0, tasks=tasks)
    assert plan.noise_multiplier <= everything.noise_multiplier * charged(1.0, 2.0) * (1 + 1e-9)


def test_many_tasks_with_a_secret_stop_need_little_more_noise_than_one():
    """Theorem 32: up to about n/log(n) tasks the noise hardly grows. Without the secret it grows as sqrt(k)."""

    def noise(sampler, tasks):
        return GradientPlan.for_budget(
            Budget(1.0, 1e-6), sampler=sampler, clip_norm=1.0, release="last", descent=DESCENT, tasks=tasks
        ).noise_multiplier

    numbers = (1, 4, 16, 64)
    stopped = [noise(RandomStop(1000), k) for k in numbers]
    plain = [noise(FixedOrder(1000), k) for k in numbers]
    assert plain == pytest.approx([plain[0] * math.sqrt(k) for k in numbers], rel=1e-9)
    assert all(one < more for one, more in pairwise(stopped))
    assert stopped[-1] < 3 * stopped[0] < plain[-1] / 2


def test_tasks_multiply_events_of_either_release():
    descent = Descent(0.5, 1.0)
    one, three = (last(FixedOrder(9), descent, tasks=k).guarantee(DELTA) for k in (1, 3))
    assert three.epsilon == pytest.approx(gdp_epsilon(charged(0.5, 4.0) * math.sqrt(3), DELTA), rel=1e-8)
    assert one.epsilon < three.epsilon
    assert three.released.startswith("of 3 tasks")
    everything = [GradientPlan(Poisson(0.1), 5, 1.0, 2.0, tasks=k).guarantee(DELTA).epsilon for k in (1, 3)]
    assert everything[1] == pytest.approx(GradientPlan(Poisson(0.1), 15, 1.0, 2.0).guarantee(DELTA).epsilon, rel=1e-6)
    assert everything[0] < everything[1]


def test_the_guarantee_assumes_what_the_plan_cannot_see():
    guarantee = last(FixedOrder(9), Descent(0.5, 2.0, diameter=3.0)).guarantee(DELTA)
    assert guarantee.is_conditional
    vouched = [assumption.text for assumption in guarantee.assumptions if not assumption.is_enforced]
    assert any("2-smooth" in text for text in vouched)
    assert "last iterate" in guarantee.released
    assert "no earlier one" in guarantee.statement(verbose=True)


def test_strongly_convex_full_batches_stop_costing():
    plans = [last(FullBatch(), Descent(0.5, 1.0, 0.2), steps=steps) for steps in (10, 100, 10_000, 10**9)]
    found = [plan.guarantee(DELTA).epsilon for plan in plans]
    assert found[0] < found[1] < found[2] == pytest.approx(found[3], rel=1e-9)
    assert found[3] == pytest.approx(gdp_epsilon(charged(2 / 4 * math.sqrt(1.9 / 0.1), 4.0), DELTA), rel=1e-8)


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("sampler", [Poisson(0.1), FixedSize(2, 9), OneUniform(9)], ids=repr)
def test_random_batches_are_refused_with_the_remedy(sampler):
    adjacency = sampler.adjacencies[0]
    message = "replace-one" if adjacency is Adjacency.ADD_OR_REMOVE else "full batches and fixed orders"
    with pytest.raises(ValueError, match=message):
        last(sampler, steps=5, adjacency=adjacency)


def test_add_or_remove_is_refused():
    with pytest.raises(ValueError, match="replace-one adjacency"):
        last(FullBatch(), steps=5, adjacency=Adjacency.ADD_OR_REMOVE)


@pytest.mark.parametrize("make", [GradientPlan, None], ids=["plan", "for_budget"])
def test_release_last_and_a_descent_require_each_other(make):
    def plan(**fields):
        if make is None:
            return GradientPlan.for_budget(BUDGET, sampler=FixedOrder(9), clip_norm=1.0, **fields)
        return GradientPlan(FixedOrder(9), None, 1.0, 4.0, **fields)

    with pytest.raises(ValueError, match=r"needs the sizes of the steps: give descent=Descent"):
        plan(release="last")
    with pytest.raises(ValueError, match=r'a Descent has an effect only with release="last"'):
        plan(descent=DESCENT)
    with pytest.raises(ValueError, match="'first'"):
        plan(release="first", descent=DESCENT)


def test_full_batches_within_a_ball_need_the_number_of_records():
    descent = replace(DESCENT, diameter=2.0)
    with pytest.raises(ValueError, match="public_n"):
        last(FullBatch(), descent, steps=5)
    assert last(FullBatch(), descent, steps=5, public_n=20).event.diameter == 20.0
    assert last(FixedOrder(20), descent).event.diameter == 1.0


def test_there_must_be_a_step_size_for_each_planned_step():
    for sizes in ((0.1,) * 8, (0.1,) * 10, (0.1,)):
        with pytest.raises(ValueError, match=rf"one number for each of 9 steps, got {len(sizes)}"):
            last(FixedOrder(9), Descent(sizes, 1.0))
    assert last(FixedOrder(9), Descent((0.1,) * 9, 1.0)).steps == 9


@pytest.mark.parametrize("sampler", [RandomStop(3), RandomSkip(3)], ids=repr)
def test_a_secret_stop_or_skip_requires_steps_of_one_size(sampler):
    with pytest.raises(ValueError, match="steps of one size only"):
        last(sampler, Descent((0.1, 0.2, 0.3), 1.0))


def test_a_secret_order_averages_over_the_places_of_a_schedule_of_step_sizes():
    sizes = (0.9, 0.8, 0.5, 0.4, 0.3, 0.1)
    event = last(SecretOrder(5, 2, 2), Descent(sizes, 1.0, 0.2), noise=1.5).event
    deltas = []
    for place, share in enumerate((2 / 5, 2 / 5, 1 / 5)):
        shifts = np.array([2 * size * (step % 3 == place) for step, size in enumerate(sizes)])
        factors = [max(1 - 0.2 * size, 1 - size) for size in sizes]
        mu = last_iterate_mu(shifts, 1.5 * np.array(sizes), factors) + event.rounding_mu()
        deltas.append(share * gdp_delta(mu, 1.0))
    assert accounted(event, Adjacency.REPLACE_ONE, sum(deltas)) == pytest.approx(1.0, rel=1e-6)


def test_a_secret_order_and_a_gaussian_release_compose_as_the_average_of_their_compositions():
    order = last(SecretOrder(20, 3, 4), noise=2.0).event
    both = Composition((GaussianRelease(0.4), order))
    found = accounted(both, Adjacency.REPLACE_ONE, 1e-5)
    by_losses = accounted(both, Adjacency.REPLACE_ONE, 1e-5, analysis="pld")
    assert found <= by_losses <= found * 1.01
    mus, chances = order.mixture()
    deltas = [gdp_delta(math.hypot(mu, 0.4), found) for mu in mus]
    assert chances @ deltas == pytest.approx(1e-5, rel=1e-6)


def test_a_last_iterate_is_refused_for_a_pure_budget():
    with pytest.raises(ValueError, match="no pure epsilon"):
        GradientPlan.for_budget(Budget(1.0), sampler=FixedOrder(9), clip_norm=1.0, release="last", descent=DESCENT)
    assert last(FixedOrder(9)).guarantee(0.0).epsilon == math.inf


@pytest.mark.parametrize("tasks", [0, -1, 1.5, True, math.nan])
def test_invalid_numbers_of_tasks_are_refused(tasks):
    with pytest.raises(ValueError, match=r"^tasks must"):
        last(FixedOrder(9), tasks=tasks)


def test_a_run_must_state_that_it_hides_its_iterates():
    plan = last(FixedOrder(9))
    with pytest.raises(PlanError, match="releases 'all', but the plan accounts for release='last'"):
        next(plan.run(9, NoiseSource(0)))
    with pytest.raises(PlanError, match="releases 'last'"):
        next(GradientPlan(FixedOrder(9), None, 1.0, 4.0).run(9, NoiseSource(0), release="last"))
    assert len(list(plan.run(9, NoiseSource(0), release="last"))) == 9


# -------------------------------------------------------------------------------------------------------- boundaries


def test_constants_at_their_limits_are_allowed():
    assert Descent(2.0, 1.0, 1.0).contraction == 1.0
    assert Descent(1.0, 1.0, 1.0).contraction == 0.0
    assert Descent(0.5, 2.0, 0.0, None) == Descent(0.5, 2.0)
    for smoothness in (0.3, 0.7, 3.0):
        assert Descent(2 / smoothness, smoothness).contraction <= 1.0


def test_a_truncated_schedule_has_its_first_steps():
    descent = Descent((0.5, 0.25, 0.125), 2.0, 0.1, diameter=3.0)
    assert descent.truncated(2) == Descent((0.5, 0.25), 2.0, 0.1, diameter=3.0)
    same = Descent(0.5, 2.0)
    assert same.truncated(2) is same


def test_words_on_steps_name_one_size_or_the_range_and_the_charge_for_rounding():
    assert "steps of size 0.5 on a convex, 2-smooth" in Descent((0.5, 0.5), 2.0).in_words()
    assert "steps of size 0.25 to 0.5 on" in Descent((0.5, 0.25), 2.0).in_words()
    assert "0.05% of mu is charged" in Descent(0.5, 2.0).in_words()


def test_the_words_on_noise_differ_for_hidden_and_released_iterates():
    hidden = last(FixedOrder(9)).drawn().text
    assert hidden.endswith("drawn exactly, on a public grid")
    shown = GradientPlan(FixedOrder(9), None, 1.0, 4.0).drawn("first: ").text
    assert shown.startswith("first: units are visited once")
    assert shown.endswith(in_words(4.0))
    assert "no noise is added" in GradientPlan(FixedOrder(9), None, 1.0, 0.0).drawn("first: ").text


def test_a_guarantee_of_a_hidden_descent_may_name_what_is_enforced_and_released():
    told = last(FixedOrder(9, shuffled=True)).guarantee(
        DELTA, bound=enforced("clipped"), contracts=enforced("contracts"), released="weights"
    )
    assert told.released == "weights"
    assert not told.is_conditional
    assert [each.text for each in told.assumptions][::2] == ["clipped", "contracts"]


def test_a_plan_of_a_budget_keeps_all_fields():
    descent = Descent(0.5, 1.0, diameter=2.0)
    fields = {"sampler": FullBatch(), "clip_norm": 0.7, "public_n": 30, "release": "last", "descent": descent}
    plan = GradientPlan.for_budget(BUDGET, steps=4, tasks=2, **fields)
    explicit = GradientPlan(FullBatch(), 4, 0.7, plan.noise_multiplier, Adjacency.REPLACE_ONE, 30, "last", descent, 2)
    assert plan == explicit
    assert plan.delta == BUDGET.delta
    assert explicit.delta is None
    plain = GradientPlan(FullBatch(), 4, 0.7, 2.0)
    assert plain == GradientPlan(FullBatch(), 4, 0.7, 2.0, Adjacency.REPLACE_ONE, None, "all", None, 1, None)


@pytest.mark.parametrize("name", ["clip_norm", "public_n"])
def test_numbers_of_a_plan_are_checked(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        replace(GradientPlan(FullBatch(), 4, 0.7, 2.0), **{name: 0})


def test_noise_out_of_range_is_refused():
    with pytest.raises(ValueError, match="scale must"):
        GradientPlan(FullBatch(), 4, 1e300, 1e300)


def test_a_truncated_plan_has_between_one_and_all_steps():
    plan = GradientPlan(FullBatch(), 4, 0.7, 2.0)
    assert plan.truncated(4) == plan
    for steps in (0, 5):
        with pytest.raises(ValueError, match=r"^steps must be at"):
            plan.truncated(steps)
