"""The prescriptions of DP-LSSGD: bounds against a simulated run, the best T, and conditions."""

import math

import numpy as np
import pytest

from privet.denoise import gamma, laplacian_smoothing
from privet.plans.prescriptions import smoothed_descent, smoothed_nonconvex_descent

CONVEX = {"batch_size": 100, "lipschitz": 2.0, "smoothness": 1.0, "distance": 1.0}
NONCONVEX = {"batch_size": 100, "lipschitz": 2.0, "smoothness": 1.0, "gap": 0.5}


def run(prescription, noise, smoothing, rng, d):
    """Descend on ||w - best||^2/2 with sampling noise of the size that the proof allows, and return all iterates."""
    best = np.ones(d) / math.sqrt(d)  # smooth, so that its norm in A is its Euclidean norm
    sampling = prescription.lipschitz / math.sqrt(prescription.batch_size * d)
    weights, iterates = np.zeros(d), []
    for _ in range(prescription.steps):
        iterates.append(weights)
        gradient = weights - best + sampling * rng.normal(size=d) + noise * rng.normal(size=d)
        weights = weights - prescription.step_size * laplacian_smoothing(gradient, smoothing)
    return np.array(iterates) - best


@pytest.mark.parametrize("smoothing", [0.0, 2.0])
def test_a_simulated_run_stays_below_the_bounds_and_near_them(smoothing):
    n, d, budget, rng = 1000, 50, (1.0, 1e-5), np.random.default_rng(1)
    convex = smoothed_descent(n, d, budget, smoothing=smoothing, **CONVEX)
    noise = 3.73 * 2 * convex.lipschitz * math.sqrt(convex.steps) / n  # full batches, without amplification
    excess = np.mean([np.sum(run(convex, noise, smoothing, rng, d).mean(axis=0) ** 2) / 2 for _ in range(2)])
    assert convex.error_at(noise) / 300 <= excess <= convex.error_at(noise)
    rough = smoothed_nonconvex_descent(n, d, budget, smoothing=smoothing, **NONCONVEX)
    noise = 3.73 * 2 * rough.lipschitz * math.sqrt(rough.steps) / n
    gradients = run(rough, noise, smoothing, rng, d)
    squared = np.mean([g @ laplacian_smoothing(g, smoothing) for g in gradients])
    assert rough.error_at(noise) / 100 <= squared <= rough.error_at(noise)


def test_the_number_of_steps_balances_start_and_noise_at_the_best_constant():
    # With noise^2 = c T, the bound (a + b c T)/sqrt(T) is least at T = a/(b c), where it is 2 sqrt(a b c).
    d, n = 200, 10_000
    taken = smoothed_descent(n, d, (0.5, 1e-6), smoothing=1.0, **CONVEX)
    c = (taken.lipschitz * math.sqrt(-math.log(1e-6)) / (n * 0.5)) ** 2
    assert taken.error_at(math.sqrt(c * taken.steps)) == pytest.approx(
        2 * math.sqrt(taken.start * taken.noise_weight * c), rel=1e-3
    )
    assert taken.noise_weight == 1.5 * gamma(d, 1.0) * d


def test_smoothing_lowers_the_bound_by_the_root_of_gamma_if_the_start_is_as_near():
    plain, smooth = (smoothed_descent(100_000, 500, (0.2, 1e-5), smoothing=s, **CONVEX) for s in (0.0, 3.0))
    assert smooth.steps / plain.steps == pytest.approx(1 / gamma(500, 3.0), rel=1e-3)
    noise = 1e-4
    assert smooth.error_at(noise * math.sqrt(smooth.steps)) / plain.error_at(noise * math.sqrt(plain.steps)) < 1
    assert plain.error == plain.error_at(plain.plan.noise_std / 100)
    assert plain.plan.guarantee().epsilon <= 0.2


def test_steps_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match=r"1/\(2 smoothness\)"):
        smoothed_descent(100, 500, (0.1, 1e-6), **CONVEX)
    with pytest.raises(ValueError, match="exceeds 1/smoothness"):
        smoothed_nonconvex_descent(100, 500, (0.1, 1e-6), **{**NONCONVEX, "smoothness": 5.0})
    with pytest.raises(ValueError, match="Theorem 4 is about Gaussian noise"):
        smoothed_descent(1000, 5, (1.0, 0.0), **CONVEX)
