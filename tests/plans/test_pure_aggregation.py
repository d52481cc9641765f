"""The plan of sums over parties with pure epsilon: its noise, its steps, and that it fits the l2 sensitivity."""

import asyncio
import dataclasses
import math

import numpy as np
import pytest

from privet.multiparty import JointProblem, SimulatedAggregator, gradient_plan, joint_gradient_descent
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.privacy.noise.k_norm import KNormLaw
from privet.privacy.noise.laplace import BinaryLaplace
from privet.privacy.noise.lattice import rounded
from privet.solvers import Problem

FIELDS = {"dimension": 104, "steps": 1, "sensitivity": 2.0, "largest": 1e5}


def planned(epsilon=1.0, **changed):
    return AggregationPlan.for_budget(Budget(epsilon), **(FIELDS | changed))


@pytest.mark.parametrize("jointly", [True, False])
@pytest.mark.parametrize(
    ("epsilon", "changed"),
    [
        (1.0, {}),
        (0.01, {"steps": 100}),
        (20.0, {"dimension": 1}),
        (1.0, {"dimension": 10_000, "steps": 50}),
        (0.5, {"sensitivity": 1e-6, "largest": 1.0}),
        (0.5, {"sensitivity": 1e6, "largest": 1e-6}),
    ],
)
def test_epsilon_is_never_above_the_budget_and_nearly_uses_it_up(epsilon, changed, jointly):
    plan = planned(epsilon, jointly=jointly, **changed)
    guarantee = plan.guarantee()
    assert 0.999 * epsilon < guarantee.epsilon <= epsilon
    assert guarantee.delta == 0
    assert dataclasses.replace(plan, scale=1.01 * plan.scale).guarantee(0.0).epsilon > epsilon
    assert dataclasses.replace(plan, steps=plan.steps + 1).guarantee(0.0).epsilon > epsilon
    assert plan.guarantee(1e-6).epsilon <= guarantee.epsilon * (1 + 1e-9)


def test_the_noise_fits_the_l2_sensitivity():
    """Of one step, K-norm noise has sqrt(d + 1) times sensitivity/epsilon, and Laplace noise sqrt(2 d) times that."""
    apart, jointly = planned(jointly=False), planned(jointly=True)
    assert 1.0 < apart.noise_std / (2 * math.sqrt(105)) < 1.01
    assert 1.0 < jointly.noise_std / (2 * math.sqrt(2 * 104)) < 1.04
    assert (type(apart.law), type(jointly.law)) == (KNormLaw, BinaryLaplace)
    assert isinstance(planned(steps=3, jointly=False).law, KNormLaw)
    for plan in (apart, jointly):
        assert plan.claim().bound / plan.claim().scale == pytest.approx(plan.guarantee().epsilon)


def test_the_worst_move_on_the_lattice_costs_no_more_than_epsilon():
    """A record that moves every coordinate equally, and all roundings with it, costs the whole epsilon of the plan."""
    plan = planned()
    move = np.full(104, plan.sensitivity / math.sqrt(104))
    steps = np.abs(rounded(np.full(104, 0.49 / plan.scale) + move, plan.scale)).sum()
    assert 0.97 * plan.guarantee().epsilon < steps * plan.law.epsilon <= plan.guarantee().epsilon


def test_the_noise_relative_to_that_of_a_small_delta():
    """Against Gaussian noise of the same epsilon and delta = 1e-6, as docs/multiparty.md says."""
    gaussian = 2 / gdp_mu(Budget(1.0, 1e-6))
    assert planned(jointly=False).noise_std / gaussian == pytest.approx(2.42, abs=0.02)
    assert planned(jointly=True).noise_std / gaussian == pytest.approx(3.48, abs=0.02)


@pytest.mark.parametrize("jointly", [True, False])
def test_a_simulated_descent_has_the_noise_and_states_pure_epsilon(jointly):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), rng.integers(0, 2, 90).astype(float)
    parties = [Problem(Logistic(), L2(0.1), BoundedRows(X[i::3], 1.0, 0.5), y[i::3]) for i in range(3)]
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, Budget(2.0), steps=50, jointly=jointly)
    opened = []

    class Kept(SimulatedAggregator):
        async def _opened(self, summand):
            opened.append(
                await super()._opened(summand) - await SimulatedAggregator(plan, parties, None)._opened(summand)
            )
            return opened[-1]

    release = asyncio.run(joint_gradient_descent(problem, Kept(plan, parties, NoiseSource(1))))
    assert (release.guarantee.epsilon, release.guarantee.delta) == (plan.guarantee().epsilon, 0)
    assert release.guarantee.statement().startswith("(2, 0)-differential privacy")
    assert np.std(opened) == pytest.approx(plan.law.std, rel=0.35)
    assert len({tuple(each) for each in opened}) == 50


def test_pure_epsilon_that_the_lattice_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"more noise than the lattice can hold|do not fit the lattice"):
        planned(1e-9, steps=10_000, dimension=10_000)
