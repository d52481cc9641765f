import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom, binomtest

from privet.audit.bounds import (
    Rates,
    binomial_tail,
    clopper_pearson,
    epsilon_from_rates,
    mu_from_rates,
    mus_from_counts,
    standardised_distance,
)

MANY = 10**9  # at such counts, confidence limits are almost equal to the rates


def exact(tpr, fpr):
    return Rates(round(tpr * MANY), round(fpr * MANY), MANY, MANY)


# ----------------------------------------------------------------------------------------------------- Clopper-Pearson


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 50), (50, 50), (3, 50), (500, 1000), (1, 10**6)])
def test_clopper_pearson_agrees_with_scipy(successes, trials, confidence):
    low, high = clopper_pearson(successes, trials, confidence)
    # A two-sided interval with confidence 2c - 1 consists of two one-sided limits with confidence c > 1/2.
    if confidence > 0.5:
        both = binomtest(successes, trials).proportion_ci(2 * confidence - 1, method="exact")
        assert (low, high) == pytest.approx((both.low, both.high), rel=1e-6, abs=1e-12)
    greater = binomtest(successes, trials, alternative="greater").proportion_ci(confidence, method="exact")
    less = binomtest(successes, trials, alternative="less").proportion_ci(confidence, method="exact")
    assert (low, high) == pytest.approx((greater.low, less.high), rel=1e-6, abs=1e-12)


@given(st.integers(1, 400), st.floats(0.01, 0.99), st.sampled_from([0.8, 0.95, 0.99]))
def test_limits_hold_with_their_confidence_for_every_probability(trials, chance, confidence):
    successes = np.arange(trials + 1)
    limits = np.array([clopper_pearson(int(k), trials, confidence) for k in successes])
    weights = binom.pmf(successes, trials, chance)
    assert weights[limits[:, 0] > chance].sum() <= 1 - confidence + 1e-9
    assert weights[limits[:, 1] < chance].sum() <= 1 - confidence + 1e-9


@pytest.mark.parametrize(("successes", "trials"), [(-1, 10), (11, 10), (0, 0), (0, -3), (1, 2.5)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="must"):
        clopper_pearson(successes, trials, 0.95)


@pytest.mark.parametrize("confidence", [0.0, -0.5, 1.5, math.nan, math.inf])
def test_impossible_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(5, 10, confidence)


@pytest.mark.parametrize(("successes", "chance"), [(0, 0.3), (1, 0.3), (7, 0.3), (20, 0.9), (20, 0.3)])
def test_binomial_tail(successes, chance):
    assert binomial_tail(successes, 20, chance) == pytest.approx(binom.sf(successes - 1, 20, chance))


# ------------------------------------------------------------------------------------------------------- error rates


def test_exchanging_the_datasets_twice_changes_nothing():
    rates = Rates(30, 4, 100, 80)
    assert rates.turned() == Rates(76, 70, 80, 100)
    assert rates.turned().turned() == rates


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_randomised_response_gives_its_epsilon(epsilon):
    truth = 1 / (1 + math.exp(-epsilon))
    assert epsilon_from_rates(exact(truth, 1 - truth), 0.0, 0.95) == pytest.approx(epsilon, rel=1e-2)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.1), (1.0, 0.01), (2.0, 0.3)])
def test_the_worst_release_of_an_epsilon_and_delta_gives_its_epsilon(epsilon, delta):
    """Reveal the data with probability delta, else use randomised response. This attains (epsilon, delta)-DP."""
    truth = (1 - delta) / (1 + math.exp(-epsilon))
    tpr, fpr = delta + truth, (1 - delta) - truth
    assert epsilon_from_rates(exact(tpr, fpr), delta, 0.95) == pytest.approx(epsilon, rel=1e-3)


def test_a_difference_in_either_direction_raises_the_bound():
    tpr, fpr = 1 - 0.001, 0.5  # the answer "second" proves little, the answer "first" proves much
    assert epsilon_from_rates(exact(tpr, fpr), 0.0, 0.95) == pytest.approx(math.log(500), rel=1e-2)
    assert epsilon_from_rates(exact(fpr, 1 - tpr), 0.0, 0.95) == pytest.approx(math.log(500), rel=1e-2)


@pytest.mark.parametrize("rates", [Rates(50, 50, 100, 100), Rates(0, 100, 100, 100), Rates(0, 0, 10, 10)])
def test_rates_of_a_random_test_prove_nothing(rates):
    assert mu_from_rates(rates, 0.95) == 0
    assert epsilon_from_rates(rates, 0.3, 0.95) <= 10  # the opposite of a wrong test may prove something


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_impossible_delta_is_refused(delta):
    with pytest.raises(ValueError, match="delta"):
        epsilon_from_rates(Rates(90, 10, 100, 100), delta, 0.95)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.7])
def test_thresholds_on_gaussians_give_their_mu(mu, threshold):
    rates = exact(ndtr(mu - threshold), ndtr(-threshold))
    assert mu_from_rates(rates, 0.95) == pytest.approx(mu, rel=1e-2)
    assert mu_from_rates(rates, 0.95) <= mu


def test_many_tests_at_once_agree_with_each_by_itself():
    counts = np.array([[0, 0], [0, 80], [100, 0], [100, 80], [60, 20], [20, 60]])
    found = mus_from_counts(*counts.T, 100, 80, 0.95)
    alone = [mu_from_rates(Rates(int(hits), int(alarms), 100, 80), 0.95) for hits, alarms in counts]
    assert found == pytest.approx(alone, abs=1e-12)
    assert found[2] > found[4] > 0 == found[5]


def test_more_runs_and_less_confidence_prove_more():
    few, many = (Rates(8 * k, 2 * k, 10 * k, 10 * k) for k in (10, 100))
    assert mu_from_rates(few, 0.95) < mu_from_rates(many, 0.95)
    assert mu_from_rates(many, 0.999) < mu_from_rates(many, 0.95)
    assert epsilon_from_rates(few, 0.0, 0.95) < epsilon_from_rates(many, 0.0, 0.95)
    assert epsilon_from_rates(many, 0.0, 0.999) < epsilon_from_rates(many, 0.0, 0.95)


def test_a_perfect_test_proves_as_much_as_its_runs_allow():
    runs, each = 1000, 1 - 0.05 / 4
    epsilon = epsilon_from_rates(Rates(runs, 0, runs, runs), 0.0, 0.95)
    low = (1 - each) ** (1 / runs)
    assert epsilon == pytest.approx(math.log(low / (1 - low)), rel=1e-9)


# ----------------------------------------------------------------------------------------------- distances of means


def test_a_distance_is_measured_in_units_of_the_smaller_spread():
    generator = np.random.default_rng(0)
    firsts, seconds = generator.normal(size=(2, 10_000))
    t, error = standardised_distance(2 * firsts, seconds + 1)
    assert abs(t - 1) <= 4 * error
    assert standardised_distance(seconds + 1, 2 * firsts)[0] == -t
    assert standardised_distance(np.ones(10), np.ones(10)) == (0.0, 1.0)
