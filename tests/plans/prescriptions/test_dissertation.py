"""Prescriptions of the dissertation against simulations and identities."""

import math

import numpy as np
import pytest

from privet.plans.prescriptions import hard_threshold_descent, recursive_momentum, transfer_penalty
from privet.privacy import Budget, gdp_mu

SPARSE = {"n_true": 3, "lipschitz": 3.0, "smoothness": 1.2, "strong_convexity": 0.8, "norm": 1.5}


def ight(rows, targets, prescription, rng):
    """Run DP-IGHT on squared loss, without clipping."""
    weights = np.zeros(rows.shape[1])
    for _ in range(prescription.steps):
        gradient = rows.T @ (rows @ weights - targets) / len(rows)
        moved = weights - prescription.step_size * (gradient + prescription.noise * rng.normal(size=weights.size))
        weights = np.where(np.abs(moved) >= np.sort(np.abs(moved))[-prescription.n_nonzero], moved, 0.0)
    return weights


def test_the_error_of_hard_threshold_descent_is_below_its_bound_and_of_its_order():
    n, d = 3000, 100
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(n, d))
    truth = np.zeros(d)
    truth[[4, 40, 77]] = 1.5 / np.sqrt(3)
    prescription = hard_threshold_descent(n, d, (2.0, 1e-3), **SPARSE)
    errors = [np.sum((ight(rows, rows @ truth, prescription, rng) - truth) ** 2) for _ in range(10)]
    assert prescription.error / 100 <= np.mean(errors) <= prescription.error


def test_hard_threshold_descent_has_the_rate_of_the_theorem():
    small, large = (hard_threshold_descent(n, 1000, (1.0, 1e-6), **SPARSE) for n in (10**5, 10**6))
    assert large.error / small.error == pytest.approx(1e-2 * large.steps / small.steps)
    assert small.n_nonzero == 7  # kappa^2 s* = 6.75


def test_hard_threshold_descent_refuses_what_its_theorem_does_not_cover():
    with pytest.raises(ValueError, match="needs delta > 0"):
        hard_threshold_descent(1000, 100, (1.0, 0.0), **SPARSE)
    with pytest.raises(ValueError, match="exceeds smoothness"):
        hard_threshold_descent(1000, 100, (1.0, 1e-6), **{**SPARSE, "smoothness": 0.5})


def srm(n, **settings):
    taken = recursive_momentum(n, 123, (0.5, 1e-5), lipschitz=1.0, smoothness=0.25, gap=0.7, **settings)
    # Noise as if all records were used in every step, which is more than sampled batches need.
    scale = 2 * math.sqrt(taken.steps + 1) / (n * gdp_mu(Budget(0.5, 1e-5)))
    bound = (1 - taken.momentum) * taken.difference_bound + taken.momentum * taken.lipschitz
    return taken, taken.gradient_norm(scale * taken.lipschitz, scale * bound)


def test_recursive_momentum_reaches_its_rate_and_the_printed_shortening_does_not():
    ratios = [norm / taken.accuracy for taken, norm in (srm(n) for n in (10**5, 10**7, 10**9))]
    assert 6 < min(ratios) < max(ratios) < 15
    for n in (10**5, 10**9):
        accuracy = srm(n)[0].accuracy
        taken, norm = srm(n, shortening=0.25 * 0.7 / accuracy)
        assert norm > 4 * 0.25 * 0.7 * 0.9  # 4 L gap, whatever n is
        assert taken.batch_size < srm(n)[0].batch_size


def test_recursive_momentum_converges_below_its_bound():
    n, d, rng = 10**5, 5, np.random.default_rng(9)
    taken = recursive_momentum(n, d, (1.0, 1e-5), lipschitz=1.0, smoothness=1.0, gap=0.5)
    scale = 2 * math.sqrt(taken.steps + 1) / (n * gdp_mu(Budget(1.0, 1e-5)))
    bound = (1 - taken.momentum) * taken.difference_bound + taken.momentum
    weights, norms = np.ones(d) / math.sqrt(d), []  # objective ||w||^2/2, records with shifts of norm below 1
    shift = rng.normal(size=d) / math.sqrt(d * taken.first_batch_size)
    estimate = weights + shift + scale * rng.normal(size=d)
    for _ in range(taken.steps):
        norms.append(np.linalg.norm(weights))
        size = np.linalg.norm(estimate)
        before = weights
        weights = weights - min(taken.accuracy / (taken.shortening * size), 1 / (2 * taken.shortening)) * estimate
        shift = rng.normal(size=d) / math.sqrt(d * taken.batch_size)
        kept = (1 - taken.momentum) * (estimate - before - shift)
        estimate = weights + shift + kept + scale * bound * rng.normal(size=d)
    limit = taken.gradient_norm(scale, scale * bound)
    assert limit / 100 <= np.mean(norms) <= limit


def test_recursive_momentum_refuses_a_problem_on_which_it_says_nothing():
    with pytest.raises(ValueError, match="which every point has"):
        recursive_momentum(100, 1000, (0.1, 1e-5), lipschitz=1.0, smoothness=1.0, gap=1.0)


def test_the_transfer_penalty_shrinks_with_the_root_of_n():
    small, large = (transfer_penalty(n, 1000, (1.0, 1e-5), n_true=10, gradient_bound=1.0) for n in (1000, 4000))
    assert large == pytest.approx(small / 2)
    # At this penalty the two errors of the theorem are equal: lambda^2 and s log(d) log(1/delta)/(n eps lambda)^2.
    assert small**4 == pytest.approx(10 * math.log(1000) * math.log(1e5) / 1000**2)


def test_the_privacy_error_of_hard_threshold_descent_by_hand():
    found = hard_threshold_descent(3000, 100, (2.0, 1e-3), **SPARSE)
    assert found.privacy_error == pytest.approx(1.5**2 * 3 * math.log(100) / 0.8**2 * found.noise**2)
