"""Corollaries 4.5.3 and 3.3.7 of the dissertation: their conditions, their formulas, and what does not follow."""

import math

import numpy as np
import pytest
from mpmath import exp, log, mpf, sqrt

from privet.plans import FixedSize, RecursivePlan
from privet.plans.prescriptions import recursive_batches, transfer_without_penalty
from privet.privacy import Adjacency
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.analyses.closed_forms import dp_srm_noise
from privet.privacy.analyses.subsampling_lemmas import SideConditionError

BOUNDS = {"gradient_bound": 1.0, "difference_bound": 0.1, "momentum": 0.1}
SPARSE = {"n_true": 3, "gradient_bound": 0.5, "smoothness": 1.2, "strong_convexity": 0.8}


@pytest.mark.parametrize(("target", "delta"), [(8.0, 1e-3), (1.0, 1e-5), (0.2, 1e-6)])
def test_large_batches_meet_the_conditions_of_the_theorem_from_the_stated_number_of_steps_on(target, delta):
    n, budget = 10**12, (target, delta)
    least = recursive_batches(n, 10**12, budget, **BOUNDS).least_steps
    found = recursive_batches(n, least, budget, **BOUNDS)
    assert found.batch_size == pytest.approx(n * math.sqrt(target / least), rel=1e-6)
    order = found.noise.later.order
    assert found.noise.later.multiplier**2 == pytest.approx(7 * order, rel=1e-6)
    # By the theorem, fewer steps with such batches do not do.
    fewer = int(0.99 * least)
    size = math.floor(n * math.sqrt(target / fewer))
    with pytest.raises(SideConditionError, match="order condition"):
        dp_srm_noise(n, size, size, fewer, **BOUNDS, epsilon=target, delta=delta, split=0.5)


def test_the_least_number_of_steps_grows_as_the_corollary_says():
    """O(log^4(1/delta)/epsilon^3), with the constant 16 * 49 e^(3/7) of small epsilons."""
    least = recursive_batches(10**15, 10**15, (1e-2, 1e-5), **BOUNDS).least_steps
    assert least == pytest.approx(784 * math.exp(3 / 7) * math.log(1e5) ** 4 / 1e-6, rel=0.01)


def test_the_noise_of_the_corollary_is_valid_but_more_than_needed():
    n, steps = 10**6, 50_000
    found = recursive_batches(n, steps, (8.0, 1e-3), **BOUNDS)
    fields = {"clip_norm": 1.0, "difference_norm": 0.1, "refresh": 0.1}
    # Multipliers of a plan are relative to the bound of a record, those of the theorem to twice the bound.
    first, later = (2 * each.multiplier for each in (found.noise.first, found.noise.later))
    plan = RecursivePlan(
        FixedSize(found.batch_size, n),
        steps,
        **fields,
        noise_multiplier=later,
        first_noise_multiplier=first,
        delta=1e-3,
    )
    assert epsilon(plan.event, Adjacency.REPLACE_ONE, 1e-3, analysis="rdp") < 5.0  # of 8


def test_batches_that_cannot_be_drawn_and_too_few_steps_are_refused():
    with pytest.raises(ValueError, match=r"needs at least 29,2\d\d,\d\d\d steps at epsilon = 1 .* got 1,000"):
        recursive_batches(10**6, 1000, (1.0, 1e-5), **BOUNDS)
    with pytest.raises(ValueError, match=r"less than one record for n = 100\. It needs more records"):
        recursive_batches(100, 10**8, (1.0, 1e-5), **BOUNDS)
    with pytest.raises(ValueError, match="needs delta > 0"):
        recursive_batches(100, 10**8, (1.0, 0.0), **BOUNDS)


def test_without_a_penalty_the_error_falls_with_the_square_of_n():
    small, large = (transfer_without_penalty(n, 1000, (1.0, 1e-6), **SPARSE) for n in (10**4, 10**5))
    assert large.error == pytest.approx(small.error / 100)
    assert small.n_nonzero == 7  # kappa^2 s* = 6.75
    assert small.teacher_step == pytest.approx(0.8 / 1.44)
    assert small.label_noise**2 == pytest.approx(8 * 10**4 * 7 * 0.25 * math.log(2.5e6) / (10**8 * 0.64))
    noisy = transfer_without_penalty(10**4, 1000, (1.0, 1e-6), gradient_at_truth=0.3, **SPARSE)
    assert noisy.statistical_error == pytest.approx(3 * 0.09 / 1.44)


def test_the_privacy_claim_of_the_corollary_is_refuted_by_two_features():
    """One record decides which feature is kept, at sparse eigenvalues of 1/2: minimisers move 1.41, not 0.003."""
    n = 1001
    rows = np.vstack([np.tile([1.0, 0.0], (500, 1)), np.tile([0.0, 1.0], (500, 1))])
    minimisers = []
    for last in ([1.0, 0.0], [0.0, 1.0]):
        X = np.vstack([rows, last])
        assert np.diag(X.T @ X / n).min() >= 0.499  # Condition 3.3.2 with s = 1
        losses = [np.mean((X[:, j] - 1) ** 2) for j in range(2)]  # weight 1 on feature j is the best with y = 1
        minimisers.append(np.eye(2)[int(np.argmin(losses))])
    moved = np.linalg.norm(minimisers[0] - minimisers[1])
    claimed = math.sqrt(2) * 1.0 / (n * 0.499)
    assert moved == pytest.approx(math.sqrt(2))
    assert moved > 400 * claimed
    assert "It does not." in transfer_without_penalty.__doc__


def test_a_transfer_with_too_few_records_is_refused():
    with pytest.raises(ValueError, match="at least 49, got n = 20"):
        transfer_without_penalty(20, 1000, (1.0, 1e-6), **SPARSE)
    with pytest.raises(ValueError, match="exceeds smoothness"):
        transfer_without_penalty(1000, 100, (1.0, 1e-6), **{**SPARSE, "smoothness": 0.5})


@pytest.mark.parametrize(("target", "delta"), [(8.0, 1e-3), (1.0, 1e-5), (0.3, 0.2)])
def test_the_least_number_of_steps_is_that_of_the_formula_with_a_margin_for_rounding(target, delta):
    """T = eps (alpha (1 + 7 alpha))^2 exp(3 (alpha - 1)/(7 alpha)), where alpha = 1 + 2 log(1/delta)/eps rounded up."""
    alpha = 1 + math.ceil(2 * math.log(1 / delta) / target)
    exact = mpf(target) * (alpha * (1 + 7 * alpha)) ** 2 * exp(mpf(3 * (alpha - 1)) / (7 * alpha))
    found = recursive_batches(10**12, 10**12, (target, delta), **BOUNDS).least_steps
    assert exact * (1 + mpf("0.9e-6")) <= found <= exact * (1 + mpf("1.1e-6")) + 1


def test_the_corollary_holds_from_its_least_number_of_steps_on():
    least = recursive_batches(10**6, 10**6, (8.0, 1e-3), **BOUNDS).least_steps
    assert recursive_batches(10**6, least, (8.0, 1e-3), **BOUNDS).least_steps == least
    with pytest.raises(ValueError, match="needs at least"):
        recursive_batches(10**6, least - 1, (8.0, 1e-3), **BOUNDS)


def test_a_batch_of_one_record_is_the_smallest_and_a_fraction_of_a_record_is_dropped():
    """With epsilon = 16 and T = 16 * 4^10, the share of a batch is 2^-10."""
    steps = 16 * 4**10
    assert recursive_batches(1024, steps, (16.0, 1e-3), **BOUNDS).batch_size == 1
    assert recursive_batches(2047, steps, (16.0, 1e-3), **BOUNDS).batch_size == 1
    assert recursive_batches(2048, steps, (16.0, 1e-3), **BOUNDS).batch_size == 2
    with pytest.raises(ValueError, match="less than one record for n = 1,023"):
        recursive_batches(1023, steps, (16.0, 1e-3), **BOUNDS)


def test_a_budget_that_needs_more_steps_than_can_be_counted_is_refused():
    """Numbers of steps end at 10^15, where the share of a batch would be too large for the theorem, or above 1."""
    for target in (1e15, 1e16):
        with pytest.raises(ValueError, match=r"order condition|exceeds n = 100"):
            recursive_batches(100, 10**15, (target, 1e-3), **BOUNDS)


def test_the_noise_of_large_batches_is_that_of_the_theorem_with_half_of_epsilon_for_each():
    bounds = {"gradient_bound": 1.3, "difference_bound": 0.2, "momentum": 0.3}
    found = recursive_batches(10**6, 50_000, (8.0, 1e-3), **bounds)
    size = math.floor(10**6 * math.sqrt(8.0 / 50_000))
    assert found.batch_size == size
    noise = dp_srm_noise(10**6, size, size, 50_000, **bounds, epsilon=8.0, delta=1e-3, split=0.5)
    assert found.noise == noise


@pytest.mark.parametrize(("n_true", "beta", "mu"), [(3, 1.2, 0.8), (5, 3.0, 0.5)])
def test_a_transfer_without_penalty_is_that_of_corollary_337(n_true, beta, mu):
    """In the second case kappa^2 s* = 180 features would be kept, and there are only 70."""
    n, d, epsilon, delta = 4000, 70, mpf("0.6"), 1e-5
    gamma, b, a, g = 0.5, 1.7, 1.3, 0.3
    found = transfer_without_penalty(
        n,
        d,
        (0.6, delta),
        n_true=n_true,
        gradient_bound=gamma,
        smoothness=beta,
        strong_convexity=mu,
        public_variance=b,
        public_tail=a,
        gradient_at_truth=g,
    )
    s = min(math.ceil((beta / mu) ** 2 * n_true), d)
    assert found.n_nonzero == s
    assert found.teacher_step == pytest.approx(mu / beta**2)
    assert found.student_step == pytest.approx(1 / b)
    assert found.public_rows == math.ceil(a * s * log(d))
    # The scores of n public rows move by gamma sqrt(2 s)/(n mu) times sqrt(n b), and get the classical Gaussian noise.
    moved = mpf(gamma) * sqrt(2 * s) / (n * mpf(mu)) * sqrt(n * mpf(b))
    assert found.label_noise == pytest.approx(float(moved * 2 * sqrt(log(2.5 / mpf(delta))) / epsilon))
    private = mpf(a) ** 2 * mpf(gamma) ** 2 * n_true**2 * log(d) * -log(delta) / (b * mpf(mu) ** 2 * n**2 * epsilon**2)
    assert found.statistical_error == pytest.approx(n_true * g * g / (beta * beta))
    assert found.privacy_error == pytest.approx(float(private))
    assert found.error == pytest.approx(found.statistical_error + float(private))


def test_public_rows_are_standard_and_the_truth_is_a_minimiser_by_default():
    fields = {"n": 10**4, "dimension": 1000, "budget": (1.0, 1e-6), **SPARSE}
    explicit = transfer_without_penalty(**fields, public_variance=1.0, public_tail=1.0, gradient_at_truth=0.0)
    assert transfer_without_penalty(**fields) == explicit


def test_as_many_records_as_public_rows_are_needed_are_enough():
    least = transfer_without_penalty(10**4, 1000, (1.0, 1e-6), **SPARSE).public_rows
    assert transfer_without_penalty(least, 1000, (1.0, 1e-6), **SPARSE).public_rows == least
    with pytest.raises(ValueError, match=f"at least {least}, got n = {least - 1}"):
        transfer_without_penalty(least - 1, 1000, (1.0, 1e-6), **SPARSE)


def batches(**changed):
    return recursive_batches(**{"n": 10**6, "steps": 10**6, "budget": (8.0, 1e-3), **BOUNDS, **changed})


def plain(**changed):
    fields = {"n": 1000, "dimension": 100, "budget": (8.0, 1e-6), "public_variance": 1.0, "public_tail": 1.0}
    return transfer_without_penalty(**fields | {"gradient_at_truth": 0.0, **SPARSE} | changed)


@pytest.mark.parametrize(
    ("prescribe", "name", "value"),
    [
        *((batches, name, 0) for name in ("n", "steps", "gradient_bound", "difference_bound")),
        *((plain, name, 0) for name in ("n", "n_true", "gradient_bound", "smoothness", "strong_convexity")),
        *((plain, name, 0.0) for name in ("public_variance", "public_tail")),
        *((plain, *pair) for pair in (("dimension", 1), ("n_true", 101), ("gradient_at_truth", -1e-9))),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    prescribe()
    with pytest.raises(ValueError, match=f"^{name} must "):
        prescribe(**{name: value})


@pytest.mark.parametrize("prescribe", [batches, plain])
def test_a_delta_is_needed_and_by_default_it_is_that_of_the_number_of_records(prescribe):
    assert prescribe(n=50_000, budget=8.0) == prescribe(n=50_000, budget=(8.0, 2e-7))
    with pytest.raises(ValueError, match="is about Gaussian noise"):
        prescribe(budget=(8.0, 0.0))


def test_all_features_may_matter_and_two_features_are_enough():
    assert plain(dimension=2, n_true=2, smoothness=0.8).n_nonzero == 2
