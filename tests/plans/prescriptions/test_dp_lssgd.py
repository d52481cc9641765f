"""The prescriptions of DP-LSSGD: bounds against a simulated run, the best T, and conditions."""

import math

import numpy as np
import pytest
from mpmath import cos, fsum, log, mpf, pi, sqrt

from privet.denoise import gamma, laplacian_smoothing
from privet.plans import FixedSize, GradientPlan
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


def eigenvalues(d, sigma):
    """Return those of the smoothing operator on a cycle of length d."""
    return [1 / (1 + 2 * mpf(str(sigma)) * (1 - cos(2 * pi * i / d))) for i in range(d)]


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
@pytest.mark.parametrize("constant", [1.0, 1.4])
def test_smoothed_descent_is_that_of_theorem_4(smoothing, constant):
    n, d, G, b, distance, epsilon, delta = 3000, 11, mpf("1.7"), 60, mpf("1.3"), mpf("0.6"), 1e-5
    found = smoothed_descent(
        n,
        d,
        (0.6, delta),
        batch_size=b,
        lipschitz=1.7,
        smoothness=1.0,
        distance=1.3,
        smoothing=smoothing,
        constant=constant,
    )
    trace, start = fsum(eigenvalues(d, smoothing)), distance**2 + G**2 / b
    assert found.steps == math.ceil(mpf(str(constant)) * start * n**2 * epsilon**2 / (trace * G**2 * -log(delta)))
    assert found.step_size == pytest.approx(1 / math.sqrt(found.steps))
    noise = mpf("0.2")
    error = mpf("1.5") * (start + trace * noise**2) / sqrt(found.steps)
    assert found.error_at(0.2) == pytest.approx(float(error))
    assert (found.n, found.batch_size, found.dimension, found.lipschitz) == (n, b, d, 1.7)


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
@pytest.mark.parametrize("constant", [1.0, 1.4])
def test_smoothed_descent_without_convexity_is_that_of_theorem_7(smoothing, constant):
    n, d, G, L, b, gap, epsilon, delta = 3000, 11, mpf("1.7"), mpf("1.2"), 60, mpf("0.9"), mpf("0.6"), 1e-5
    found = smoothed_nonconvex_descent(
        n,
        d,
        (0.6, delta),
        batch_size=b,
        lipschitz=1.7,
        smoothness=1.2,
        gap=0.9,
        smoothing=smoothing,
        constant=constant,
    )
    squares, start = fsum(value**2 for value in eigenvalues(d, smoothing)), 2 * gap + L * G**2 / b
    steps = mpf(str(constant)) * start * n**2 * epsilon**2 / (L * squares * G**2 * -log(delta))
    assert found.steps == math.ceil(steps)
    noise = mpf("0.2")
    assert found.error_at(0.2) == pytest.approx(float((start + L * squares * noise**2) / sqrt(found.steps)))
    assert (found.n, found.batch_size, found.dimension, found.lipschitz) == (n, b, d, 1.7)


def test_the_plan_of_smoothed_descent_is_that_of_its_fields():
    found = smoothed_descent(1000, 5, (1.0, 1e-5), **CONVEX)
    plan = GradientPlan.for_budget((1.0, 1e-5), sampler=FixedSize(100, 1000), steps=found.steps, clip_norm=2.0)
    assert found.plan == plan
    assert found.error == pytest.approx(found.error_at(plan.noise_std / 100))
    with pytest.raises(ValueError, match="noise must not be negative"):
        found.error_at(-1e-9)


def test_smoothing_is_off_and_the_constant_one_by_default():
    for prescribe in (convex, nonconvex):
        assert prescribe() == prescribe(smoothing=0.0, constant=1.0)
        assert prescribe(constant=2.0).steps == pytest.approx(2 * prescribe().steps, rel=1e-3)


def convex(**changed):
    return smoothed_descent(**{"n": 1000, "dimension": 50, "budget": (1.0, 1e-5), **CONVEX, **changed})


def nonconvex(**changed):
    return smoothed_nonconvex_descent(**{"n": 1000, "dimension": 50, "budget": (1.0, 1e-5), **NONCONVEX, **changed})


@pytest.mark.parametrize(("prescribe", "longest"), [(convex, 2.0), (nonconvex, 1.0)])
def test_the_longest_step_of_the_proofs_is_allowed_and_a_longer_one_is_not(prescribe, longest):
    """With the constant chosen for T = 4 steps, their size is 1/2: 1/(2 L) for L = 1, or 1/L for L = 2."""
    smoothness = 2 / longest
    one = prescribe(smoothness=smoothness).steps
    constant = 3.5 / one
    assert prescribe(smoothness=smoothness, constant=constant).steps == 4
    with pytest.raises(ValueError, match="does not hold for 3 steps"):
        prescribe(smoothness=smoothness, constant=2.5 / one)


@pytest.mark.parametrize("prescribe", [convex, nonconvex])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 0) for name in ("n", "dimension", "batch_size", "lipschitz", "smoothness", "constant")),
        ("batch_size", 1001),
        ("smoothing", -1e-9),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    with pytest.raises(ValueError, match=f"^({name}|batch_size) must "):
        prescribe(**{name: value})


def test_distance_and_gap_are_positive_and_batches_have_at_most_all_records():
    with pytest.raises(ValueError, match="distance must be positive"):
        convex(distance=0.0)
    with pytest.raises(ValueError, match="gap must be positive"):
        nonconvex(gap=0.0)
    assert convex(batch_size=1000).batch_size == nonconvex(batch_size=1000).batch_size == 1000


@pytest.mark.parametrize("prescribe", [convex, nonconvex])
def test_a_delta_is_needed_and_by_default_it_is_that_of_the_number_of_records(prescribe):
    assert prescribe(n=50_000, budget=1.0) == prescribe(n=50_000, budget=(1.0, 2e-7))
    with pytest.raises(ValueError, match=r"Theorem [47] is about Gaussian noise"):
        prescribe(budget=(1.0, 0.0))
