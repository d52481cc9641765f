"""The plan of an additive model: its noise and its guarantee against independent calculations."""

import math

import numpy as np
import pytest

from privet.plans.additive import AdditivePlan, half_move_of_counts
from privet.privacy import Budget, NoiseMultiplier, gdp_epsilon, gdp_mu

BUDGET = Budget(1.0, 1e-6)


def make(budget=BUDGET, **fields):
    return AdditivePlan.for_columns(
        budget, **({"n_columns": 14, "steps": 120, "clip_norm": 0.3, "share": 0.05} | fields)
    )


def test_the_noise_costs_the_budget_and_is_divided_by_the_share():
    plan = make()
    counts = math.sqrt(2 * 14) / plan.mean.noise_std
    gradients = math.sqrt(120) * 2 * 0.3 / plan.gradients.noise_std
    mu = gdp_mu(BUDGET)
    assert math.isclose(math.hypot(counts, gradients), mu, rel_tol=1e-6)
    assert math.isclose(counts**2 / mu**2, 0.05, rel_tol=1e-3)
    assert plan.guarantee().epsilon <= 1.0
    assert math.isclose(plan.guarantee().epsilon, gdp_epsilon(math.hypot(counts, gradients), 1e-6), rel_tol=1e-6)


def test_replacing_a_record_moves_counts_as_far_as_the_plan_says():
    generator = np.random.default_rng(0)
    farthest = 0.0
    for _ in range(200):
        one, other = generator.integers(0, 3, (2, 5))
        move = np.linalg.norm([*(np.eye(3)[one] - np.eye(3)[other]).ravel()])
        assert move <= 2 * half_move_of_counts(5)
        farthest = max(farthest, move)
    assert math.isclose(farthest, 2 * half_move_of_counts(5), rel_tol=1e-9)


def test_given_noise_determines_the_epsilon():
    plan = make(NoiseMultiplier(50.0, 1e-6))
    assert plan.gradients.noise_multiplier == 50
    assert plan.guarantee().epsilon < make(NoiseMultiplier(20.0, 1e-6)).guarantee().epsilon
    assert not make(NoiseMultiplier(0.0, 1e-6)).guarantee().is_private


def test_pure_epsilon_is_refused():
    with pytest.raises(ValueError, match="delta > 0"):
        make(Budget(1.0))
