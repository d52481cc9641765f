import itertools
import math

import dp_accounting as dpa
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.special import logsumexp

from privet.privacy import Adjacency
from privet.privacy.analyses.fixed_size import DIFFERENCES_UP_TO, _log_even_differences, fixed_size_rdp
from privet.privacy.events import FixedSizeGaussian

ORDERS = np.array([2, 3, 4, 5, 8, 13, 32, 64, 128, 200, 256], dtype=float)


def dp_accounting_rdp(sigma, n, size, orders=ORDERS):
    """Return dp-accounting's bound. Under REPLACE_ONE its sigma is relative to the replace-one distance as well."""
    accountant = RdpAccountant([int(order) for order in orders], dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dpa.SampledWithoutReplacementDpEvent(n, size, dpa.GaussianDpEvent(sigma)))
    return np.asarray(accountant.rdp)


# --- the same theorem, computed by others -------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.0, 1.7, 5.0])
@pytest.mark.parametrize("size", [1, 10, 100, 1000, 5000])
def test_equals_dp_accounting_where_its_differences_are_accurate(sigma, size):
    rdp = fixed_size_rdp(sigma, size / 10_000, ORDERS)
    np.testing.assert_allclose(rdp, dp_accounting_rdp(sigma, 10_000, size), rtol=1e-9)


@pytest.mark.parametrize("sigma", [0.2, 0.99, 1.0, 3.0, 10.0, 50.0, 1000.0])
@pytest.mark.parametrize(("n", "size"), [(10**6, 1), (1000, 10), (10, 3), (2, 1), (100, 99)])
def test_never_exceeds_dp_accounting(sigma, n, size):
    assert np.all(fixed_size_rdp(sigma, size / n, ORDERS) <= dp_accounting_rdp(sigma, n, size) * (1 + 1e-9))


def theorem_27(sigma, rate, order):
    """Return the bound of Wang, Balle and Kasiviswanathan, computed term by term with 400 digits."""
    with mp.workdps(400):
        rate, variance = mp.mpf(rate), mp.mpf(sigma) ** 2

        def f(k):
            return mp.exp(k * (k - 1) / (2 * variance))

        def difference(order):
            return mp.fsum((-1) ** (order - i) * mp.binomial(order, i) * f(i) for i in range(order + 1))

        total = 1 + rate**2 * mp.binomial(order, 2) * min(4 * (f(2) - 1), 2 * f(2))
        for j in range(3, order + 1):
            refined = 4 * mp.sqrt(difference(2 * (j // 2)) * difference(2 * ((j + 1) // 2)))
            total += rate**j * mp.binomial(order, j) * min(refined, 2 * f(j))
        return float(mp.log(total) / (order - 1))


@pytest.mark.parametrize("sigma", [1.0, 2.5, 30.0, 300.0])
@pytest.mark.parametrize("rate", [0.5, 0.01, 1e-6])
@pytest.mark.parametrize("order", [2, 3, 7, 24])
def test_equals_the_theorem_in_many_digits(sigma, rate, order):
    exact = theorem_27(sigma, rate, order)
    assert fixed_size_rdp(sigma, rate, np.array([float(order)]))[0] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("sigma", [1.0, 4.0, 100.0])
def test_finite_differences_are_exact_to_the_last_order(sigma):
    logs = _log_even_differences(sigma)
    with mp.workdps(600):
        for order in (2, 10, 100, DIFFERENCES_UP_TO):
            terms = [
                (-1) ** i * mp.binomial(order, i) * mp.exp(mp.mpf(i * (i - 1)) / (2 * mp.mpf(sigma) ** 2))
                for i in range(order + 1)
            ]
            assert logs[order // 2] == pytest.approx(float(mp.log(mp.fsum(terms))), rel=1e-11, abs=1e-11)


def test_large_orders_fall_back_to_the_simple_form_and_agree_with_dp_accounting():
    orders = np.array([320, 1024, 4096], dtype=float)
    np.testing.assert_allclose(fixed_size_rdp(2.0, 0.01, orders), dp_accounting_rdp(2.0, 1000, 10, orders), rtol=1e-9)


def test_grows_with_rate_and_falls_with_noise():
    bounds = [fixed_size_rdp(2.0, rate, ORDERS) for rate in (1e-6, 1e-3, 0.1, 0.5, 0.99)]
    assert np.all(np.diff(bounds, axis=0) > 0)
    bounds = [fixed_size_rdp(sigma, 0.01, ORDERS) for sigma in (0.5, 0.999, 1.0, 2.0, 20.0, 1e4)]
    assert np.all(np.diff(bounds, axis=0) < 0)


# --- the truth, by brute force on tiny data -----------------------------------------------------------------------


def sum_mixture(changed, others, size):
    """Return means and weights of the sum over a uniformly random batch of contributions +-C or 0, with C = 1."""
    return [sum(batch) for batch in itertools.combinations([changed, *others], size)]


def log_density(means, noise, x):
    components = [-((x - mean) ** 2) / (2 * noise**2) for mean in means]
    return logsumexp(components, axis=0) - math.log(len(means) * noise * math.sqrt(2 * math.pi))


def renyi_divergence(p_means, q_means, noise, order):
    """Return the Renyi divergence of two Gaussian mixtures, by the trapezoidal rule, which is exact up to rounding."""
    reach = (40 + 2 * order / noise) * noise + len(p_means) + order
    x = np.arange(-reach, reach, noise / 8)
    log_integrand = order * log_density(p_means, noise, x) + (1 - order) * log_density(q_means, noise, x)
    return (logsumexp(log_integrand) + math.log(noise / 8)) / (order - 1)


@pytest.mark.parametrize("noise", [0.6, 1.0, 2.0, 6.0])
@pytest.mark.parametrize(("n", "size"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_bounds_the_true_divergence_of_every_tiny_neighbouring_pair(noise, n, size):
    orders = np.array([2.0, 3.0, 6.0, 20.0])
    # The replace-one distance is 2C: noise/2 is sigma in the function's terms.
    bound = np.minimum(fixed_size_rdp(noise / 2, size / n, orders), orders / (2 * (noise / 2) ** 2))
    largest = np.zeros_like(orders)
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 1.0), n - 1):
        for before, after in itertools.permutations((-1.0, 0.0, 1.0), 2):
            pair = sum_mixture(before, others, size), sum_mixture(after, others, size)
            largest = np.maximum(largest, [renyi_divergence(*pair, noise, order) for order in orders])
    assert np.all(largest <= bound * (1 + 1e-9))


@pytest.mark.parametrize("noise", [0.6, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("n", [3, 4])
def test_the_bound_would_be_broken_without_the_factor_two(noise, n):
    """Noise relative to C instead of 2C would claim less than the true divergence of two datasets of +-C."""
    pair = sum_mixture(1.0, [0.0] * (n - 1), n - 1), sum_mixture(-1.0, [0.0] * (n - 1), n - 1)
    order = np.array([6.0])
    misread = min(fixed_size_rdp(noise, (n - 1) / n, order)[0], order[0] / (2 * noise**2))
    assert renyi_divergence(*pair, noise, order[0]) > 1.05 * misread


def test_finite_differences_stay_accurate_where_those_of_dp_accounting_do_not():
    """dp-accounting gives 4.2 for 25 steps at n = 5, size 1 and order 256, where the unsampled bound is 0.06."""
    sigma, order = 230.0, np.array([256.0])
    unsampled = 25 * order[0] / (2 * sigma**2)
    assert 25 * dp_accounting_rdp(sigma, 5, 1, order)[0] > 4
    assert 25 * fixed_size_rdp(sigma, 1 / 5, order)[0] < unsampled < 0.07


def test_the_bound_alone_can_exceed_the_unsampled_one():
    """This is why ``FixedSizeGaussian.renyi`` takes the minimum of both bounds at each order."""
    sigma, orders = 10.0, np.array([2.0, 8.0, 16.0])
    assert np.all(fixed_size_rdp(sigma, 0.9, orders) > 1.5 * orders / (2 * sigma**2))


@pytest.mark.parametrize("noise_multiplier", [0.8, 5.0])
def test_divergences_of_an_event_are_at_most_those_without_sampling(noise_multiplier):
    """Replacing a unit moves a sum by up to twice the bound, so the noise is half as large in comparison."""
    orders = np.arange(2.0, 200.0)
    unsampled = 3 * orders / (2 * (noise_multiplier / 2) ** 2)
    full = FixedSizeGaussian(noise_multiplier, 50, 50, 3).renyi(Adjacency.REPLACE_ONE, orders)
    np.testing.assert_allclose(full, unsampled, rtol=1e-14)
    nearly = FixedSizeGaussian(noise_multiplier, 50, 49, 3).renyi(Adjacency.REPLACE_ONE, orders)
    bound = 3 * fixed_size_rdp(noise_multiplier / 2, 49 / 50, orders)
    np.testing.assert_allclose(nearly, np.minimum(bound, unsampled), rtol=1e-14)
    assert np.any(bound > unsampled)
