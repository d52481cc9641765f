import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.checks import quotient_above
from privet.plans import DescentStability, OutputPlan
from privet.plans.stabilities.minimiser import MinimiserStability, default_tolerance
from privet.privacy import Adjacency, Budget, enforced, gdp_epsilon
from privet.privacy.events import GaussianRelease, PureRelease

FIELDS = {"n": 50, "lipschitz": 1.0, "strong_convexity": 0.1, "tolerance": 1e-4}


def stability_of(**changes):
    return MinimiserStability(**(FIELDS | changes))


def test_the_sensitivity_is_that_of_the_exact_minimiser_and_of_two_errors():
    assert stability_of(tolerance=0.0).sensitivity == pytest.approx(2 * 1.0 / (50 * 0.1))
    assert stability_of().sensitivity == pytest.approx(0.4 + 2 * 1e-4 / 0.1)


def test_the_exact_minimiser_is_where_descent_never_ends():
    descent = DescentStability(50, 1.0, 1.0, 0.1, step_size=0.7, steps=10**9)
    assert stability_of(tolerance=0.0).sensitivity == pytest.approx(descent.sensitivity)


def test_the_noise_of_the_errata():
    """(b): m = 100 parties of n = 500, lambda = .01, eps = .5, delta = 1e-5: std .0281 for Gaussian noise."""
    stability = stability_of(n=500 * 100, strong_convexity=0.01, tolerance=0.0)
    assert OutputPlan.for_budget(Budget(0.5, 1e-5), stability=stability).scale == pytest.approx(0.0281, abs=5e-5)
    pure = OutputPlan.for_budget(Budget(0.5), stability=stability).scale
    assert math.sqrt(122 + 1) * pure == pytest.approx(0.0887, abs=5e-5)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**9), st.floats(1e-6, 1e6), st.floats(1e-9, 1e6))
def test_the_default_tolerance_adds_a_hundredth(n, lipschitz, strong_convexity):
    fields = {"n": n, "lipschitz": lipschitz, "strong_convexity": strong_convexity}
    exact = stability_of(**fields, tolerance=0.0).sensitivity
    assert stability_of(**fields, tolerance=default_tolerance(n, lipschitz)).sensitivity == pytest.approx(1.01 * exact)


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), Budget(0.3)], ids=repr)
def test_output_plans_accept_the_stability_of_a_minimiser(budget):
    stability = stability_of()
    plan = OutputPlan.for_budget(budget, stability=stability)
    ratio = quotient_above(stability.sensitivity, plan.scale)
    assert plan.event == (PureRelease(ratio) if budget.is_pure else GaussianRelease(ratio))
    guarantee = plan.guarantee(budget.delta)
    assert budget.epsilon * (1 - 1e-6) <= guarantee.epsilon <= budget.epsilon
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    assert guarantee.is_conditional
    assert "the minimiser of a 0.1-strongly convex objective of 50 records" in guarantee.statement(verbose=True)
    assert not plan.guarantee(budget.delta, bound=enforced("rows are bounded")).is_conditional


def test_every_constant_increases_epsilon():
    plan = OutputPlan(stability_of(), 0.5, is_pure=False)
    base = plan.guarantee(1e-5).epsilon
    assert base == gdp_epsilon((0.4 + 0.002) / 0.5, 1e-5)
    for louder in ({"n": 40}, {"lipschitz": 1.1}, {"strong_convexity": 0.09}, {"tolerance": 1e-3}):
        assert dataclasses.replace(plan, stability=stability_of(**louder)).guarantee(1e-5).epsilon > base


@pytest.mark.parametrize(
    "field",
    [
        {"n": 0},
        {"lipschitz": 0.0},
        {"lipschitz": math.inf},
        {"strong_convexity": 0.0},
        {"strong_convexity": -0.1},
        {"tolerance": -1e-9},
        {"tolerance": math.nan},
    ],
    ids=repr,
)
def test_impossible_constants_are_named(field):
    with pytest.raises(ValueError, match=f"^{next(iter(field))} "):
        stability_of(**field)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        stability_of().n = 3
