"""Prescriptions of the dissertation against simulations and identities."""

import numpy as np
import pytest

from privet.plans.prescriptions import hard_threshold_descent

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
