import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, gamma, kstest

from privet.plans import DescentStability, OutputPlan
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, enforced, gdp_epsilon
from privet.privacy.events import GaussianRelease, PureRelease

RARELY = 1e-6
# The constants with which docs/errata.md (f) was simulated.
CORRECTED = {"n": 50, "lipschitz": 1.0, "smoothness": 1.0, "step_size": 0.7, "steps": 40}


def stability_of(**changes):
    return DescentStability(**({"strong_convexity": 0.1} | CORRECTED | changes))


# ------------------------------------------------------------------------------------------- how far descent moves


@pytest.mark.parametrize(
    ("strong_convexity", "simulated", "paper"), [(0.0, 1.120, 1.68), (0.1, 0.37805, 1.10)], ids=["convex", "ridge"]
)
def test_the_sensitivities_of_the_errata(strong_convexity, simulated, paper):
    sensitivity = stability_of(strong_convexity=strong_convexity).sensitivity
    assert sensitivity == pytest.approx(simulated, abs=5e-6 if strong_convexity else 1e-12)
    assert sensitivity < paper


def test_the_noise_of_the_errata():
    """n = 1000, mu = 0.1, beta = 1, T = 100, epsilon = 1, delta = 1e-3: .0515 where the paper has .2144."""
    stability = stability_of(n=1000, step_size=1 / 1.1, steps=100)
    plan = OutputPlan.for_budget(Budget(1.0, 1e-3), stability=stability)
    assert plan.scale == pytest.approx(0.0515, abs=5e-5)


constants = st.fixed_dictionaries(
    {
        "n": st.integers(1, 10**7),
        "lipschitz": st.floats(1e-3, 1e3),
        "smoothness": st.floats(1e-3, 1e3),
        "steps": st.integers(1, 300),
    }
)


@settings(max_examples=200, deadline=None)
@given(constants, st.floats(0, 1), st.floats(1e-3, 1))
@example(CORRECTED | {"step_size": None}, 0.0, 1.0)
@example(CORRECTED | {"step_size": None}, 1.0, 0.5)  # strong convexity = smoothness, step 1/beta: c = 0
@example(CORRECTED | {"step_size": None}, 1e-17, 0.5)
def test_the_sensitivity_is_the_recursion_of_the_lemma(fields, convexity, pace):
    fields = fields | {
        "strong_convexity": convexity * fields["smoothness"],
        "step_size": pace * 2 / fields["smoothness"],
    }
    stability = DescentStability(**fields)
    c = max(
        abs(1 - stability.step_size * stability.strong_convexity), abs(1 - stability.step_size * stability.smoothness)
    )
    distance = 0.0
    for _ in range(stability.steps):
        distance = c * distance + 2 * stability.step_size * stability.lipschitz / stability.n
    assert stability.sensitivity == pytest.approx(distance, rel=1e-9)
    assert stability.sensitivity <= 2 * stability.lipschitz * stability.steps * stability.step_size / stability.n * (
        1 + 1e-12
    )


def test_strong_convexity_bounds_any_number_of_steps():
    assert stability_of(steps=10**9).sensitivity == pytest.approx(2 / (50 * 0.1))


@pytest.mark.parametrize("excess", [1e-9, 0.5])
def test_a_step_above_two_over_smoothness_is_refused(excess):
    assert stability_of(step_size=2.0).contraction == 1.0
    with pytest.raises(ValueError, match="exceeds 2/smoothness"):
        stability_of(step_size=2.0 + excess)


@pytest.mark.parametrize(
    "field",
    [
        {"n": 0},
        {"steps": 0},
        {"lipschitz": 0.0},
        {"smoothness": math.nan},
        {"step_size": -1.0},
        {"strong_convexity": -1e-9},
        {"strong_convexity": 1.5},
    ],
    ids=repr,
)
def test_impossible_constants_are_named(field):
    with pytest.raises(ValueError, match=f"^{next(iter(field))} "):
        stability_of(**field)


# -------------------------------------------------------------------------------------------------- calibration


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-3, 50), st.one_of(st.just(0.0), st.floats(1e-12, 0.1)), constants)
def test_the_noise_never_overspends_the_budget_nor_wastes_it(epsilon, delta, fields):
    budget = Budget(epsilon, delta)
    stability = DescentStability(strong_convexity=0.0, step_size=1 / fields["smoothness"], **fields)
    plan = OutputPlan.for_budget(budget, stability=stability)
    assert plan.is_pure == (delta == 0)
    assert epsilon * (1 - 1e-6) <= plan.guarantee(delta).epsilon <= epsilon


def test_the_event_is_sensitivity_over_scale():
    stability = stability_of()
    ratio = stability.sensitivity / 0.5
    assert OutputPlan(stability, 0.5, is_pure=False).event == GaussianRelease(ratio)
    assert OutputPlan(stability, 0.5, is_pure=True).event == PureRelease(ratio)


def test_the_guarantee_is_computed_from_the_fields():
    plan = OutputPlan(stability_of(), 0.5, is_pure=False)
    guarantee = plan.guarantee(1e-5)
    assert guarantee.epsilon == gdp_epsilon(plan.stability.sensitivity / 0.5, 1e-5)
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    for louder in (
        dataclasses.replace(plan, scale=0.4),
        dataclasses.replace(plan, stability=stability_of(n=40)),
        dataclasses.replace(plan, stability=stability_of(steps=60)),
        dataclasses.replace(plan, stability=stability_of(lipschitz=1.1)),
    ):
        assert louder.guarantee(1e-5).epsilon > guarantee.epsilon
    assert plan.guarantee(0.0).epsilon == math.inf
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


@pytest.mark.parametrize(("is_pure", "law"), [(True, "K-norm noise"), (False, "Gaussian noise of std 0.5")])
def test_the_guarantee_names_noise_and_argument(is_pure, law):
    plan = OutputPlan(stability_of(), 0.5, is_pure)
    bare = plan.guarantee(1e-5)
    assert bare.is_conditional
    assert "40 steps of gradient descent" in bare.statement(verbose=True)
    assert law in bare.statement(verbose=True)
    assert not plan.guarantee(1e-5, bound=enforced("rows are bounded")).is_conditional


@pytest.mark.parametrize("field", ["stability", "scale", "is_pure"])
def test_a_plan_is_frozen(field):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(OutputPlan(stability_of(), 0.5, is_pure=False), field, 1)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale must be"):
        OutputPlan(stability_of(), scale, is_pure=False)


# ------------------------------------------------------------------------------------------------------ the noise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("wrong", "fits"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_gaussian_noise_has_the_planned_std(dtype, wrong, fits):
    plan = OutputPlan(stability_of(), 0.5, is_pure=False)
    result = np.full((4000, 3), 2.0, dtype=dtype)
    noisy = plan.noisy(result, NoiseSource(1))
    assert noisy.dtype == dtype
    assert (result == 2.0).all()
    energy = np.sum(((noisy - result).astype(np.float64) / (0.5 * wrong)) ** 2)
    assert (min(chi2.cdf(energy, result.size), chi2.sf(energy, result.size)) > RARELY) == fits


@pytest.mark.parametrize("shape", [(1,), (2, 3)])
def test_pure_noise_has_a_gamma_radius(shape):
    plan = OutputPlan(stability_of(), 0.5, is_pure=True)
    source = NoiseSource(2)
    radii = [np.linalg.norm(plan.noisy(np.full(shape, 2.0), source) - 2.0) for _ in range(4000)]
    for wrong, fits in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        assert (kstest(radii, gamma(np.prod(shape), scale=0.5 * wrong).cdf).pvalue > RARELY) == fits


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_first_step_counts_by_its_own_bound(steps, alpha):
    fields = {"n": 4, "lipschitz": 1.0, "smoothness": 1.0, "strong_convexity": alpha, "step_size": 1.0, "steps": steps}
    stability = DescentStability(**fields, first_lipschitz=0.5)
    distance = 0.0
    for place in range(steps):  # the recursion itself
        distance = stability.contraction * distance + 2 * 1.0 / 4 * (0.5 if place == 0 else 1.0)
    assert stability.sensitivity == pytest.approx(distance, rel=1e-12)
    assert DescentStability(**fields, first_lipschitz=2.0).sensitivity == DescentStability(**fields).sensitivity


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_bound_on_the_first_gradient_is_refused(bound):
    """A negative one would lower the sensitivity, and with it the noise."""
    with pytest.raises(ValueError, match="first_lipschitz must be"):
        DescentStability(4, 1.0, 1.0, 0.0, step_size=1.0, steps=3, first_lipschitz=bound)
