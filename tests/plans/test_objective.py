import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, gamma, kstest

from privet.plans.objective import ObjectivePlan
from privet.plans.tasks import black_box_share
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, compose, enforced, gaussian_sigma
from privet.privacy.analyses.objective_noise import objective_epsilon
from privet.privacy.events import ApproximateRelease, PureRelease

RARELY = 1e-6
CONSTANTS = {"n": 200, "lipschitz": 1.5, "smoothness": 0.25, "strong_convexity": 0.01}
NOISE = {"scale": 4.0, "tolerance": 1e-6, "output_scale": 1e-3}


def plan_of(*, is_pure=False, **changes):
    return ObjectivePlan(**(CONSTANTS | NOISE | changes), is_pure=is_pure)


def planned(budget, **changes):
    return ObjectivePlan.for_budget(budget, **(CONSTANTS | changes))


# --------------------------------------------------------------------------------------------------- calibration


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0.01, 20),
    st.one_of(st.just(0.0), st.floats(1e-12, 0.01)),
    st.floats(1e-3, 1e3),
    st.floats(0, 1e3),
    st.integers(1, 10**7),
    st.booleans(),
)
@example(1.0, 0.0, 1.0, 0.0, 1, False)
def test_the_noise_meets_the_budget_and_never_passes_it(epsilon, delta, lipschitz, smoothness, n, is_one_sided):
    alpha = max(2 * smoothness / (n * math.expm1(epsilon)), 1e-6)
    fields = {"n": n, "lipschitz": lipschitz, "smoothness": smoothness, "strong_convexity": alpha}
    plan = ObjectivePlan.for_budget(Budget(epsilon, delta), **fields, is_one_sided=is_one_sided)
    assert plan.is_pure == (delta == 0)
    assert plan.epsilon_at(delta) <= epsilon
    room = epsilon - plan.volume_loss
    if delta == 0 or room > 10 * delta:
        assert plan.epsilon_at(delta) - plan.volume_loss >= room * (1 - 1e-4)


def test_pure_noise_by_hand():
    """Chaudhuri, Monteleoni and Sarwate, with one logarithm: epsilon = log(1 + beta/(n m)) + 2L/s + 2 tol/(m s2)."""
    plan = planned(Budget(1.0))
    volume = math.log(1 + 0.25 / (200 * 0.01))
    assert plan.scale == pytest.approx(2 * 1.5 / (0.99 * (1 - volume)))
    assert plan.output_scale == pytest.approx(2 * plan.tolerance / (0.01 * 0.01 * (1 - volume)))
    assert plan.epsilon_at(0.0) == pytest.approx(1.0)
    assert plan.event_at(0.0) == PureRelease(plan.epsilon_at(0.0))


@pytest.mark.parametrize("is_one_sided", [True, False])
def test_gaussian_noise_by_hand(is_one_sided):
    """The std of one release of the sum of gradients, at what is left of epsilon, and half a percent for the output."""
    plan = planned(Budget(1.0, 1e-5), is_one_sided=is_one_sided)
    left = Budget(1 - math.log(1 + 0.25 / 2), 1e-5 if is_one_sided else 5e-6)
    assert plan.scale == pytest.approx(gaussian_sigma(2 * 1.5, left) / math.sqrt(0.99), rel=1e-6)
    assert plan.output_scale == pytest.approx(2 * plan.tolerance / 0.01 * plan.scale / 3.0 * math.sqrt(99), rel=1e-9)


def test_a_loss_counts_as_two_sided_unless_it_is_declared_one_sided():
    plan = planned(Budget(1.0, 1e-5))
    assert not plan.is_one_sided
    assert plan == planned(Budget(1.0, 1e-5), is_one_sided=False)
    assert plan.scale > planned(Budget(1.0, 1e-5), is_one_sided=True).scale


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), Budget(1.0)], ids=repr)
def test_noise_on_the_output_is_hardly_felt(budget):
    """The tilt moves the minimiser by b/(n h) along a direction of curvature h, at most beta + m."""
    plan = planned(budget)
    assert plan.output_scale == pytest.approx(0.1 * plan.scale / (200 * (0.25 + 0.01)))


def test_a_tolerance_that_is_asked_for_is_paid_for():
    one, ten = (planned(Budget(1.0, 1e-5), tolerance=tolerance) for tolerance in (1e-6, 1e-5))
    assert ten.scale == one.scale
    assert ten.output_scale == pytest.approx(10 * one.output_scale)
    assert ten.epsilon_at(1e-5) == pytest.approx(one.epsilon_at(1e-5), rel=1e-12)


@pytest.mark.parametrize("budget", [Budget(0.1, 1e-5), Budget(0.1)], ids=repr)
def test_too_little_alpha_is_refused_with_the_least_that_works(budget):
    with pytest.raises(ValueError, match="Any alpha above") as refusal:
        planned(budget, strong_convexity=1e-3)
    least = 0.25 / (200 * math.expm1(0.1))
    assert f"{least:.6g}" in str(refusal.value)
    with pytest.raises(ValueError, match="costs epsilon"):
        planned(budget, strong_convexity=0.999 * least)
    assert planned(budget, strong_convexity=1.001 * least).epsilon_at(budget.delta) <= 0.1
    added = planned(budget, strong_convexity=1e-3, added_alpha=1.001 * least - 1e-3)
    assert added.epsilon_at(budget.delta) <= 0.1
    assert "additional penalty of" in added.guarantee(budget.delta).statement(verbose=True)


def test_added_alpha_counts_as_alpha():
    one = planned(Budget(1.0, 1e-5), strong_convexity=0.03)
    other = planned(Budget(1.0, 1e-5), strong_convexity=0.01, added_alpha=0.02)
    assert other.modulus == pytest.approx(one.modulus)
    assert other.scale == pytest.approx(one.scale)
    assert "penalty" not in one.guarantee(1e-5).statement(verbose=True)


# ------------------------------------------------------------------------------------------------- the guarantee


def test_the_guarantee_is_computed_from_the_fields():
    plan = plan_of()
    guarantee = plan.guarantee(1e-5)
    assert guarantee.epsilon == objective_epsilon(1e-5, 0.75, 0.2, volume=plan.volume_loss, is_one_sided=False)
    assert guarantee.event == ApproximateRelease(guarantee.epsilon, 1e-5)
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    for louder in (
        {"n": 150},
        {"lipschitz": 1.6},
        {"smoothness": 0.3},
        {"strong_convexity": 0.009},
        {"scale": 3.9},
        {"tolerance": 1.1e-6},
        {"output_scale": 0.9e-3},
    ):
        for is_pure in (False, True):
            quiet, loud = plan_of(is_pure=is_pure), plan_of(is_pure=is_pure, **louder)
            assert loud.guarantee(1e-5).epsilon > quiet.guarantee(1e-5).epsilon
    assert plan_of(is_one_sided=True).guarantee(1e-5).epsilon < guarantee.epsilon
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_epsilon_falls_as_delta_grows():
    epsilons = [plan_of().guarantee(delta).epsilon for delta in (1e-9, 1e-6, 1e-3, 0.1)]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] >= plan_of().volume_loss


def test_two_releases_compose():
    guarantee = planned(Budget(0.5, 1e-6)).guarantee(1e-6)
    both = compose([guarantee, guarantee])
    assert 0.5 < both.epsilon <= 1.0
    assert both.delta == pytest.approx(2e-6)


def test_gaussian_noise_has_no_pure_guarantee():
    assert plan_of().epsilon_at(0.0) == math.inf
    with pytest.raises(ValueError, match="delta > 0"):
        plan_of().guarantee(0.0)
    assert plan_of(is_pure=True).guarantee(0.0).epsilon == pytest.approx(plan_of().volume_loss + 0.75 + 0.2)


@pytest.mark.parametrize(("is_pure", "law"), [(True, "K-norm noise of scale 4"), (False, "Gaussian noise of std 4")])
def test_the_guarantee_names_noise_and_argument(is_pure, law):
    plan = plan_of(is_pure=is_pure, is_one_sided=True)
    bare = plan.guarantee(1e-5)
    assert bare.is_conditional
    for words in (
        law,
        "200 losses",
        "1.5-Lipschitz",
        "0.25-smooth",
        "0.01-strongly convex",
        "never point in opposite directions",
    ):
        assert words in bare.statement(verbose=True)
    assert not plan.guarantee(1e-5, bound=enforced("rows are bounded")).is_conditional


# ----------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "field",
    [
        {"n": 0},
        {"lipschitz": 0.0},
        {"lipschitz": math.inf},
        {"smoothness": -0.1},
        {"smoothness": math.inf},
        {"strong_convexity": -0.1},
        {"scale": 0.0},
        {"tolerance": 0.0},
        {"output_scale": math.nan},
        {"added_alpha": -0.1},
    ],
    ids=repr,
)
def test_impossible_fields_are_named(field):
    name = next(iter(field))
    with pytest.raises(ValueError, match=f"^{name} "):
        plan_of(**({"strong_convexity": 1.0} if name == "added_alpha" else {}) | field)


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), Budget(1.0)], ids=repr)
@pytest.mark.parametrize(
    ("field", "cause"),
    [
        ({"n": 0}, "n must"),
        ({"lipschitz": math.inf}, "lipschitz must be finite"),
        ({"smoothness": math.nan}, "smoothness must be finite"),
        ({"strong_convexity": 0.0}, "needs strong convexity"),
        ({"strong_convexity": -0.5, "added_alpha": 1.0}, "strong_convexity must not be negative"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
    ],
    ids=repr,
)
def test_no_plan_is_made_of_impossible_constants(budget, field, cause):
    with pytest.raises(ValueError, match=cause):
        planned(budget, **field)


def test_without_strong_convexity_there_is_no_plan():
    with pytest.raises(ValueError, match="needs strong convexity"):
        plan_of(strong_convexity=0.0)
    assert plan_of(strong_convexity=0.0, added_alpha=0.1).modulus == 0.1


def test_a_plan_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan_of().scale = 1.0


# ------------------------------------------------------------------------------------------------------ the noise


@pytest.mark.parametrize(("wrong", "fits"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_gaussian_noise_has_the_planned_stds(wrong, fits):
    plan = plan_of()
    result = np.full(5000, 2.0)
    tilt, noisy = plan.linear_term((5000,), NoiseSource(1))[0], plan.noisy(result, NoiseSource(1))
    assert (result == 2.0).all()
    for noise, scale in ((tilt, 4.0), (noisy - result, 1e-3)):
        energy = np.sum((noise / (scale * wrong)) ** 2)
        assert (min(chi2.cdf(energy, 5000), chi2.sf(energy, 5000)) > RARELY) == fits


def test_pure_noise_has_gamma_radii():
    plan, source, result = plan_of(is_pure=True), NoiseSource(2), np.full(6, 2.0)
    tilts = [np.linalg.norm(plan.linear_term((6,), source)[0]) for _ in range(3000)]
    outputs = [np.linalg.norm(plan.noisy(result, source) - result) for _ in range(3000)]
    for radii, scale in ((tilts, 4.0), (outputs, 1e-3)):
        for wrong, fits in ((1.0, True), (2 / 3, False), (3 / 2, False)):
            assert (kstest(radii, gamma(6, scale=scale * wrong).cdf).pvalue > RARELY) == fits


@pytest.mark.parametrize("size", [1, 10, 100_000])
def test_no_linear_term_is_ever_longer_than_the_longest(size):
    assert chi2.logsf((plan_of().longest_term(size) / 4.0) ** 2, size) < math.log(1e-300)
    assert gamma.logsf(plan_of(is_pure=True).longest_term(size) / 4.0, size) < math.log(1e-300)


@pytest.mark.parametrize("is_pure", [False, True])
def test_seeds_repeat(is_pure):
    plan = plan_of(is_pure=is_pure)
    one, other, third = (plan.linear_term((5,), NoiseSource(seed))[0] for seed in (3, 3, 4))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_the_longest_terms_and_errors_are_as_long_as_the_documentation_says():
    """Longer ones would be safe, and would cost tolerance."""
    for size in (1, 10, 100_000):
        assert plan_of().longest_term(size) == pytest.approx(4.0 * (math.sqrt(size) + 40))
        assert plan_of(is_pure=True).longest_term(size) == pytest.approx(4.0 * (2 * size + 1500))
        assert plan_of().largest_error(size) == pytest.approx(plan_of().longest_term(size) * 2.0**-44)


class Strange(NoiseSource):
    """A source whose linear terms have a given entry and a given error."""

    drawn = 0.0, 0.0

    def real_gaussian(self, shape, std, claim=None, objective=None):
        return np.full(shape, self.drawn[0]), self.drawn[1]


def test_a_linear_term_that_is_too_long_or_too_inexact_is_refused():
    plan, source = plan_of(), Strange(0)
    longest, largest = plan.longest_term(4), plan.largest_error(4)
    for entry, error in ((0.499 * longest, 0.0), (0.0, largest)):
        source.drawn = entry, error
        term, found = plan.linear_term((2, 2), source)
        assert (term == entry).all()
        assert found == error
    for entry, error in ((0.501 * longest, 0.0), (0.0, 1.001 * largest), (math.nan, 0.0), (0.0, math.nan)):
        source.drawn = entry, error
        with pytest.raises(RuntimeError, match="too long for the tolerance"):
            plan.linear_term((2, 2), source)


@pytest.mark.parametrize("name", ["scale", "output_scale"])
def test_noise_whose_square_overflows_is_refused(name):
    assert getattr(plan_of(**{name: 1e100}), name) == 1e100
    with pytest.raises(ValueError, match="exceeds the range of floating point"):
        plan_of(**{name: 1.001e100})


def test_an_epsilon_that_needs_noise_beyond_floating_point_is_refused():
    constants = {"n": 200, "lipschitz": 1e-9, "smoothness": 0.0, "strong_convexity": 1.0, "tolerance": 1e-9}
    assert ObjectivePlan.for_budget(Budget(1e-90), **constants).scale > 1e80
    assert ObjectivePlan.for_budget(Budget(1.01e-100), **constants).scale > 1e90
    for epsilon in (0.99e-100, 1e-120):
        with pytest.raises(ValueError, match="needs noise beyond the range of floating point"):
            ObjectivePlan.for_budget(Budget(epsilon), **constants)


@pytest.mark.parametrize("is_pure", [False, True])
def test_several_releases_are_each_stated_at_half_of_their_share_of_delta(is_pure):
    plan = plan_of(is_pure=is_pure, tasks=3)
    one = plan.event_at(6e-6).events
    if is_pure:
        assert one == (PureRelease(plan.epsilon_at(0.0)),) * 3
    else:
        assert one == (ApproximateRelease(plan.epsilon_at(1e-6), 1e-6),) * 3
    assert dataclasses.replace(plan, delta=6e-6).event == plan.event_at(6e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_several_releases_for_a_budget_get_the_noise_of_their_shares(delta):
    budget = Budget(2.0, delta)
    plan = planned(budget, tasks=3)
    alone = planned(black_box_share(budget, 3))
    assert (plan.scale, plan.tolerance, plan.output_scale) == (alone.scale, alone.tolerance, alone.output_scale)
    assert (plan.tasks, plan.delta) == (3, delta)
    assert plan.guarantee().epsilon <= 2.0


def test_every_constant_of_a_planned_objective_is_kept():
    plan = planned(Budget(1.0, 1e-5), is_one_sided=True, added_alpha=0.02, tolerance=1e-7)
    assert (plan.n, plan.lipschitz, plan.smoothness, plan.strong_convexity) == (200, 1.5, 0.25, 0.01)
    assert (plan.is_one_sided, plan.added_alpha, plan.tolerance, plan.tasks) == (True, 0.02, 1e-7, 1)
    assert planned(Budget(1.0, 1e-5)).added_alpha == 0.0
    assert plan_of() == plan_of(is_one_sided=False, added_alpha=0.0, tasks=1)


def test_words_on_an_added_penalty_are_not_a_detail():
    shown = plan_of(added_alpha=0.5).guarantee(1e-5).statement()
    assert "additional penalty of 0.5/2 ||w||^2" in shown
    assert "linear term" not in shown


def test_rounding_adds_to_pure_noise_a_few_units_in_the_last_place_at_most():
    """Some of these epsilons need more noise than the formula gives in floating point."""
    for hundredths in range(20, 220):
        epsilon = hundredths / 100
        plan = planned(Budget(epsilon), tolerance=1e-6)
        ratio = 0.99 * (epsilon - plan.volume_loss)
        assert plan.epsilon_at(0.0) <= epsilon
        assert plan.scale == pytest.approx(2 * 1.5 / ratio, rel=1e-13)
        assert plan.output_scale == pytest.approx(2 * 1e-6 / (0.01 * ratio / 99), rel=1e-13)
