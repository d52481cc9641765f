"""The prescriptions for several parties: simulated runs, the noise, and a counterexample to Theorem 6.5.3."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from privet.plans.prescriptions import joint_descent, joint_output_excess
from privet.privacy import Budget, gdp_mu

CONSTANTS = {"lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.1}


def test_a_simulated_joint_descent_is_below_its_bound_and_of_its_order():
    d, rng = 6, np.random.default_rng(8)
    taken = joint_descent([500] * 4, d, (0.5, 1e-4), gap=1.0, **CONSTANTS)
    curvature = np.linspace(0.1, 0.5, d)
    start = np.ones(d) * math.sqrt(2.0 / curvature.sum())
    excesses = []
    for _ in range(200):
        weights = start
        for _ in range(taken.steps):
            weights = weights - taken.step_size * (curvature * weights + taken.noise * rng.normal(size=d))
        excesses.append(weights @ (curvature * weights) / 2)
    assert taken.excess / 10 <= np.mean(excesses) <= taken.excess
    assert taken.noise == pytest.approx(2 * math.sqrt(taken.steps) / (2000 * gdp_mu(Budget(0.5, 1e-4))))


def test_the_noise_is_below_the_papers_where_both_hold():
    taken = joint_descent([500] * 100, 122, (0.5, 1e-3), gap=1.0, **CONSTANTS)
    assert 1.5 < math.sqrt(8 * taken.steps * math.log(1e3)) / (50_000 * 0.5) / taken.noise < 1.7


def test_parties_with_different_data_refute_theorem_653():
    """The parties' minimisers do not come together as their numbers of records grow."""
    penalty = 0.01

    def minimiser(share):  # of logistic losses at x = 1, where this share of labels is positive
        return brentq(lambda w: 1 / (1 + math.exp(-w)) - share + penalty * w, -100, 100)

    def objective(w, share=0.8):
        return share * math.log1p(math.exp(-w)) + (1 - share) * math.log1p(math.exp(w)) + penalty / 2 * w * w

    local, joint = (minimiser(1.0) + minimiser(0.6)) / 2, minimiser(0.8)
    claimed = 1.0 * (2 - 1) / (10_000 * penalty)  # G (m - 1)/(n lambda) for n = 10,000
    assert abs(local - joint) > 30 * claimed
    bound = joint_output_excess(
        [10_000] * 2, 1, (1.0, 1e-6), lipschitz=1.0, smoothness=0.25 + penalty, strong_convexity=penalty
    )
    assert objective(local) - objective(joint) <= bound


def test_joint_output_excess_is_that_of_its_noise_if_parties_agree():
    pure, gaussian = (
        joint_output_excess(
            [500] * 100, 122, (0.5, delta), spread=0.0, lipschitz=1.0, smoothness=1.0, strong_convexity=0.01
        )
        for delta in (0.0, 1e-5)
    )
    assert math.sqrt(2 * pure / 122) == pytest.approx(0.0887, rel=1e-2)
    assert math.sqrt(2 * gaussian / 122) == pytest.approx(0.0281, rel=1e-2)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="at least one party"):
        joint_descent([], 3, Budget(1.0, 1e-5), gap=1.0, **CONSTANTS)
