"""Corollaries 4.5.3 and 3.3.7 of the dissertation: their conditions, their formulas, and what does not follow."""

import math

import numpy as np
import pytest

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
    with pytest.raises(ValueError, match=r"at least 1 and at most n = 100\. It needs more records"):
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
