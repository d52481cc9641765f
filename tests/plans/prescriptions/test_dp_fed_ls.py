"""The prescriptions of DP-Fed-LS: errors against simulated rounds, rounds against the accountant, and the risk."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privet.denoise import laplacian_smoothing
from privet.plans import FixedSize
from privet.plans.prescriptions import (
    FederatedProblem,
    federated_nonconvex_steps,
    federated_steps,
    largest_useful_rounds,
    rounds_within,
    smoothing_risk,
)
from privet.privacy import Adjacency
from privet.privacy.analyses.accounting import epsilon

DIMENSION, CURVATURE = 12, 0.4


def problem(smoothing=0.0):
    # Clients minimise CURVATURE/2 ||w - centre_j||^2. Their centres differ from the mean by 0.5.
    return FederatedProblem(
        n_clients=40,
        clients_per_round=10,
        local_steps=3,
        dimension=DIMENSION,
        lipschitz=1.5,
        smoothness=CURVATURE,
        smoothing=smoothing,
        dissimilarity=0.5 * CURVATURE,
    )


def simulate(rounds, noise_multiplier, steps, smoothing, rng):
    """Run Algorithm 1 without gradient noise, and return iterates minus the minimiser, which is at distance 1."""
    setting = problem(smoothing)
    centres = rng.normal(size=(setting.n_clients, DIMENSION))
    centres -= centres.mean(axis=0)
    centres *= 0.5 / np.linalg.norm(centres, axis=1, keepdims=True)
    best = np.ones(DIMENSION) / math.sqrt(DIMENSION)
    centres += best - centres.mean(axis=0)
    weights, iterates = np.zeros(DIMENSION), []
    for _ in range(rounds):
        iterates.append(weights)
        active = rng.choice(setting.n_clients, setting.clients_per_round, replace=False)
        local = np.tile(weights, (active.size, 1))
        for _ in range(setting.local_steps):
            local -= steps.local_step * CURVATURE * (local - centres[active])
        total = np.sum(local - weights, axis=0) + noise_multiplier * steps.clip_norm * rng.normal(size=DIMENSION)
        weights = weights + steps.global_step / active.size * laplacian_smoothing(total, smoothing)
    return np.array(iterates) - best


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_errors_of_simulated_rounds_are_below_the_bounds(smoothing):
    rounds, noise, rng = 1000, 2.0, np.random.default_rng(6)
    setting = problem(smoothing)
    convex = federated_steps(setting, rounds, noise, distance=1.0)
    moved = simulate(rounds, noise, convex, smoothing, rng)
    excess = CURVATURE / 2 * np.sum(moved.mean(axis=0) ** 2)
    assert convex.error / 1000 <= excess <= convex.error
    assert convex.clip_norm == pytest.approx(convex.local_step * 3 * 1.5)
    rough = federated_nonconvex_steps(setting, rounds, noise, gap=CURVATURE / 2)
    gradients = CURVATURE * simulate(rounds, noise, rough, smoothing, rng)
    squared = np.mean([g @ laplacian_smoothing(g, smoothing) for g in gradients])
    assert rough.error / 1000 <= squared <= rough.error


def test_a_strongly_convex_loss_is_bounded_by_the_weighted_average():
    rounds, noise, mu = 2000, 0.5, CURVATURE
    strong = federated_steps(problem(), rounds, noise, distance=1.0, strong_convexity=mu)
    moved = simulate(rounds, noise, strong, 0.0, np.random.default_rng(7))
    shrink = 1 - mu * strong.local_step * strong.global_step * 3 / 2
    weights = shrink ** np.arange(rounds)[::-1]
    excess = CURVATURE / 2 * np.sum((weights @ moved / weights.sum()) ** 2)
    assert excess <= strong.error <= federated_steps(problem(), rounds, noise, distance=1.0).error
    with pytest.raises(ValueError, match="Theorem 4 needs at least"):
        federated_steps(problem(), 1, noise, distance=1.0, strong_convexity=mu)


def test_the_largest_useful_number_of_rounds_balances_noise_and_the_other_errors():
    # At this T the noise of Theorem 1 contributes L^2 nu^2 d/S^2 <= d/S, as the other terms of H do.
    n, s, budget = 1000, 50, (2.0, 1e-5)
    rounds = largest_useful_rounds(n, s, budget, lipschitz=1.0)
    split = 2 - math.sqrt(2)
    nu2 = (s / n / 2.0) ** 2 * 14 * rounds / split * (math.log(1e5) / (1 - split) + 2.0)
    assert 0.5 / s < nu2 / s**2 <= 1.01 / s
    assert all(largest_useful_rounds(n, s, budget, lipschitz=1.0, split=x) <= rounds for x in (0.3, 0.5, 0.7))
    with pytest.raises(ValueError, match="epsilon <= log"):
        largest_useful_rounds(n, s, (12.0, 1e-5), lipschitz=1.0)


def test_rounds_within_a_budget_are_certified_by_the_accountant_too():
    noise, budget = 6.0, (4.0, 1e-4)
    rounds = rounds_within(0.01, noise, budget)
    assert rounds > 100
    event = FixedSize(10, 1000).event(noise, rounds, Adjacency.REPLACE_ONE)
    assert epsilon(event, Adjacency.REPLACE_ONE, 1e-4, analysis="rdp") <= 4.0
    assert rounds_within(0.01, 1.6, budget) == 0  # below the noise floor, nu^2 >= 8/3


def test_the_risk_is_that_of_smoothing_a_noisy_signal():
    signal = np.sin(np.linspace(0, 30, 500))
    bias, variance = smoothing_risk(signal, 0.3, 4.0)
    assert bias == pytest.approx(np.sum((laplacian_smoothing(signal, 4.0) - signal) ** 2))
    kernel = laplacian_smoothing(np.eye(500)[0], 4.0)
    assert variance == pytest.approx(0.09 * 500 * np.sum(kernel**2))
    assert smoothing_risk(signal, 0.3, 0.0) == (0.0, pytest.approx(45.0))


def test_constants_out_of_range_are_refused():
    with pytest.raises(ValueError, match="dissimilarity_factor >= 1"):
        FederatedProblem(10, 5, 1, 3, 1.0, 1.0, dissimilarity_factor=0.5)
    with pytest.raises(ValueError, match="clients_per_round must be at most 10"):
        FederatedProblem(10, 11, 1, 3, 1.0, 1.0)
    with pytest.raises(ValueError, match="vector of finite numbers"):
        smoothing_risk([[1.0]], 1.0, 1.0)


def test_clients_who_all_take_part_add_no_variance_by_their_differences():
    everyone = replace(problem(), clients_per_round=40)
    assert everyone.variance(0.0) == 0.0
    assert problem().variance(0.0) == pytest.approx(4 / 10 * (1 - 10 / 40) * (0.5 * CURVATURE) ** 2)
