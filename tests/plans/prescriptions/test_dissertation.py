"""Prescriptions of the dissertation against simulations and identities."""

import math

import numpy as np
import pytest
from mpmath import log, mpf, sqrt

from privet.plans.prescriptions import (
    RecursiveMomentum,
    hard_threshold_descent,
    recursive_momentum,
    transfer_penalty,
)
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


@pytest.mark.parametrize(
    ("n", "dimension", "budget", "n_true", "beta", "mu"),
    [(3000, 100, Budget(2.0, 1e-3), 3, 1.2, 0.8), (50_000, 30, Budget(0.4, 1e-6), 4, 3.0, 0.5)],
)
def test_hard_threshold_descent_is_that_of_theorem_254(n, dimension, budget, n_true, beta, mu):
    """In the second case kappa^2 s* = 144 features would be kept, and there are only 30."""
    G, norm, truth, constant = 1.7, 1.5, 0.3, 1.6
    found = hard_threshold_descent(
        n,
        dimension,
        budget,
        n_true=n_true,
        lipschitz=G,
        smoothness=beta,
        strong_convexity=mu,
        norm=norm,
        gradient_at_truth=truth,
        constant=constant,
    )
    kappa, rho = mpf(beta) / mpf(mu), mpf(gdp_mu(budget)) ** 2 / 2
    kept = min(math.ceil(kappa * kappa * n_true), dimension)
    inside = rho * n**2 * mpf(mu) ** 2 * norm**2 / (kappa**2 * mpf(G) ** 2 * kept * log(dimension))
    assert found.steps == math.ceil(constant * kappa * log(inside)) > 1
    assert found.n_nonzero == kept
    assert found.step_size == pytest.approx(1 / (beta + mu))
    variance = 2 * found.steps * mpf(G) ** 2 / (mpf(n) ** 2 * rho)
    assert found.noise == pytest.approx(float(sqrt(variance)))
    statistical = kappa * kappa * n_true / (mpf(mu) * mu) * truth * truth
    private = kappa * kappa * n_true * log(dimension) / (mpf(mu) * mu) * variance
    assert found.statistical_error == pytest.approx(float(statistical))
    assert found.privacy_error == pytest.approx(float(private))
    assert found.error == pytest.approx(float(statistical + private))


def test_without_a_gradient_at_the_truth_the_error_is_that_of_privacy():
    fields = {"n": 3000, "dimension": 100, "budget": (2.0, 1e-3), **SPARSE}
    plain = hard_threshold_descent(**fields)
    assert plain == hard_threshold_descent(**fields, gradient_at_truth=0.0, constant=1.0)
    assert plain.statistical_error == 0.0
    assert plain.error == plain.privacy_error > 0


@pytest.mark.parametrize(("n", "shortening"), [(10**6, 0.6), (10**6, 3.0), (2000, 1.0)])
def test_recursive_momentum_is_that_of_theorem_454(n, shortening):
    G, L, gap, d, epsilon, delta, constant = mpf("1.3"), mpf("0.25"), mpf("0.7"), 12, mpf("0.5"), 1e-5, mpf("1.2")
    found = recursive_momentum(
        n,
        d,
        (0.5, delta),
        lipschitz=1.3,
        smoothness=0.25,
        gap=0.7,
        shortening=shortening,
        constant=1.2,
    )
    zeta = constant * sqrt(G) * (L * gap * d * -log(delta)) ** mpf("0.25") / sqrt(n * epsilon)
    assert found.accuracy == pytest.approx(float(zeta))
    assert found.steps == max(math.ceil(L * gap / zeta**2), 1)
    assert found.first_batch_size == min(math.ceil(G**3 / (zeta * L * gap)), n)
    assert found.batch_size == min(math.ceil(G / (shortening * zeta)), n)
    assert found.momentum == pytest.approx(float(zeta / (shortening * G)))
    assert found.difference_bound == pytest.approx(float(zeta / shortening))
    constants = (found.n, found.dimension, found.lipschitz, found.smoothness, found.gap, found.shortening)
    assert constants == (n, d, 1.3, 0.25, 0.7, shortening)


def test_batches_of_recursive_momentum_have_at_most_all_records():
    found = recursive_momentum(50, 1, (40.0, 0.9), lipschitz=9.0, smoothness=1e-3, gap=0.1, shortening=0.02)
    assert (found.first_batch_size, found.batch_size) == (50, 50)


@pytest.mark.parametrize("shortening", [0.6, 1.0, 3.0])
def test_recursive_momentum_is_refused_from_where_its_share_would_exceed_one_or_its_aim_the_gradients(shortening):
    """The aim zeta grows in proportion to the constant, and both zeta/G and gamma = zeta/(n_0 G) must be at most 1."""
    fields = {"lipschitz": 1.3, "smoothness": 0.25, "gap": 0.7, "shortening": shortening}
    one = recursive_momentum(10**6, 12, (0.5, 1e-5), **fields).accuracy
    most = 1.3 * min(1.0, shortening) / one
    allowed = recursive_momentum(10**6, 12, (0.5, 1e-5), constant=most * (1 - 1e-9), **fields)
    assert max(allowed.accuracy / 1.3, allowed.momentum) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="which every point has"):
        recursive_momentum(10**6, 12, (0.5, 1e-5), constant=most * (1 + 1e-9), **fields)


def test_an_aim_of_exactly_the_gradient_bound_is_allowed():
    """zeta = sqrt(G sqrt(L gap d log(1/delta))/(n eps)), with delta = 1/e to the last bit of its logarithm."""
    delta = math.exp(-1)
    assert -math.log(delta) == 1.0
    found = recursive_momentum(1, 1, (1.0, delta), lipschitz=1.0, smoothness=1.0, gap=1.0)
    assert found.accuracy == 1.0


@pytest.mark.parametrize("shortening", [0.6, 2.5])
def test_the_gradient_norm_of_recursive_momentum_is_that_of_section_462(shortening):
    found = RecursiveMomentum(
        n=1000,
        dimension=7,
        lipschitz=1.3,
        smoothness=0.4,
        gap=0.9,
        steps=23,
        first_batch_size=80,
        batch_size=11,
        accuracy=0.3,
        momentum=0.2,
        shortening=shortening,
    )
    zeta, gamma, n0, G, first, later = (mpf(str(x)) for x in (0.3, 0.2, shortening, 1.3, 0.05, 0.01))
    e = 2 * (1 - gamma) ** 2 * zeta**2 / (n0**2 * gamma * 11) + 2 * gamma * G**2 / 11 + G**2 / (23 * gamma * 80)
    e += (23 * 7 * later**2 + 7 * first**2) / (23 * gamma)
    expected = 4 * n0 * mpf("0.4") * mpf("0.9") / (23 * zeta) + e / zeta + 2 * zeta + sqrt(e)
    assert found.gradient_norm(0.05, 0.01) == pytest.approx(float(expected))


def test_recursive_momentum_has_steps_of_full_length_and_constant_one_by_default():
    fields = {"n": 10**5, "dimension": 5, "budget": (1.0, 1e-5), "lipschitz": 1.5, "smoothness": 1.0, "gap": 0.5}
    assert recursive_momentum(**fields) == recursive_momentum(**fields, shortening=1.0, constant=1.0)


def test_the_transfer_penalty_is_that_of_theorem_335():
    fields = {"n_true": 7, "gradient_bound": 1.7}
    squared = 1.7 * sqrt(7 * log(300) * -log(1e-5)) / (5000 * mpf("0.6"))
    assert transfer_penalty(5000, 300, (0.6, 1e-5), **fields) ** 2 == pytest.approx(float(squared))
    found = transfer_penalty(5000, 300, (0.6, 1e-5), constant=3.0, **fields)
    assert found**2 == pytest.approx(3 * float(squared))


def threshold(**changed):
    fields = {"n": 3000, "dimension": 100, "budget": (2.0, 1e-3), "gradient_at_truth": 0.1, "constant": 1.0, **SPARSE}
    return hard_threshold_descent(**fields | changed)


def recursive(**changed):
    fields = {"n": 10**5, "dimension": 5, "budget": (1.0, 1e-5), "lipschitz": 1.5, "smoothness": 1.0, "gap": 0.5}
    return recursive_momentum(**fields | {"shortening": 1.0, "constant": 1.0} | changed)


def penalty(**changed):
    fields = {"n": 1000, "dimension": 100, "budget": (1.0, 1e-5), "n_true": 3, "gradient_bound": 1.0, "constant": 1.0}
    return transfer_penalty(**fields | changed)


@pytest.mark.parametrize(
    ("prescribe", "name", "value"),
    [
        *((threshold, name, 0) for name in ("n", "n_true", "lipschitz", "smoothness", "strong_convexity", "norm")),
        *((threshold, *pair) for pair in (("dimension", 1), ("n_true", 101), ("constant", 0.0))),
        (threshold, "gradient_at_truth", -1e-9),
        *((recursive, name, 0) for name in ("n", "dimension", "lipschitz", "smoothness", "gap")),
        *((recursive, name, 0.0) for name in ("shortening", "constant")),
        *((penalty, name, 0) for name in ("n", "n_true", "gradient_bound", "constant")),
        *((penalty, *pair) for pair in (("dimension", 1), ("n_true", 101))),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    prescribe()
    with pytest.raises(ValueError, match=f"^{name} must "):
        prescribe(**{name: value})


@pytest.mark.parametrize("prescribe", [threshold, recursive, penalty])
def test_a_delta_is_needed_and_by_default_it_is_that_of_the_number_of_records(prescribe):
    assert prescribe(n=50_000, budget=2.0) == prescribe(n=50_000, budget=(2.0, 2e-7))
    with pytest.raises(ValueError, match=r"Theorem [234]\.[35]\.[45] is about Gaussian noise"):
        prescribe(budget=(2.0, 0.0))


def test_all_features_may_matter_and_two_features_are_enough():
    assert threshold(dimension=2, n_true=2).n_nonzero == 2
    assert threshold(smoothness=0.8).n_nonzero == 3  # kappa = 1
    assert penalty(dimension=2, n_true=2) > 0
