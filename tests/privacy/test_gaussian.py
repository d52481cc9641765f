import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from privet.privacy import (
    Budget,
    gaussian_epsilon,
    gaussian_sigma,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    gdp_to_zcdp,
    pure_to_zcdp,
    zcdp_epsilon,
    zcdp_rho,
)
from privet.privacy.analyses.gaussian import averaged_epsilon, gdp_epsilons, log_gdp_deltas, shared_budget

# --- exact values, with as many digits as necessary ---------------------------------------------------------------


def exact_delta(mu, epsilon):
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def exact_sigma(budget):
    """Return the root of the privacy profile for sensitivity 1, by secant steps from the result of the library."""
    with mp.workdps(50):
        log_delta = mp.log(mp.mpf(budget.delta))
        start = mp.mpf(gaussian_sigma(1.0, budget))
        bracket = (start * (1 - mp.mpf("1e-7")), start * (1 + mp.mpf("1e-7")))
        return mp.findroot(lambda s: mp.log(exact_delta(1 / s, budget.epsilon)) - log_delta, bracket, tol=1e-30)


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


CORNERS = [(epsilon, delta) for epsilon in (1e-3, 50.0) for delta in (1e-12, 0.1)]
GRID = np.exp(
    np.random.default_rng(0).uniform([math.log(1e-3), math.log(1e-12)], [math.log(50), math.log(0.1)], (250, 2))
)


# --- the analytic Gaussian mechanism ------------------------------------------------------------------------------


def test_sigma_at_epsilon_1_and_delta_1e_5_has_its_known_value():
    assert gaussian_sigma(1, Budget(1, 1e-5)) == pytest.approx(3.730631634, abs=5e-6)
    assert 1 / gdp_mu(Budget(0.5, 1e-5)) == pytest.approx(7.0318, abs=5e-5)


def test_sigma_is_the_root_rounded_up_over_the_promised_range():
    for epsilon, delta in [*CORNERS, *GRID.tolist()]:
        budget = Budget(epsilon, delta)
        root = exact_sigma(budget)
        sigma = gaussian_sigma(1.0, budget)
        assert root <= sigma <= root * (1 + 1e-6), budget


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-9, 1e-12), (1e-9, 0.5), (1e-9, 1e-300), (1.0, 1e-300), (50, 1e-300), (1e-6, 1e-6), (500, 1e-5), (1.0, 0.999)],
)
def test_sigma_is_never_below_the_root_in_the_far_tails(epsilon, delta):
    budget = Budget(epsilon, delta)
    root = exact_sigma(budget)
    assert root <= gaussian_sigma(1.0, budget) <= root * 1.001


@pytest.mark.parametrize("sensitivity", [1e-12, 0.02, 7.0, 1e12])
def test_sigma_is_proportional_to_the_sensitivity(sensitivity):
    budget = Budget(0.3, 1e-6)
    assert gaussian_sigma(sensitivity, budget) == pytest.approx(sensitivity * gaussian_sigma(1, budget), rel=1e-15)


@settings(max_examples=200, deadline=None)
@given(epsilon=log_uniform(1e-3, 50), delta=log_uniform(1e-12, 0.1), more=st.floats(1.001, 10))
def test_more_budget_needs_less_noise(epsilon, delta, more):
    sigma = gaussian_sigma(1.0, Budget(epsilon, delta))
    assert gaussian_sigma(1.0, Budget(epsilon * more, delta)) < sigma
    assert gaussian_sigma(1.0, Budget(epsilon, min(delta * more, 0.99))) < sigma


@settings(max_examples=200, deadline=None)
@given(epsilon=log_uniform(1e-3, 50), delta=log_uniform(1e-12, 0.1))
def test_epsilon_of_a_calibrated_sigma_never_exceeds_the_budget(epsilon, delta):
    achieved = gaussian_epsilon(1.0, gaussian_sigma(1.0, Budget(epsilon, delta)), delta)
    assert epsilon * (1 - 1e-6) <= achieved <= epsilon


@settings(max_examples=150, deadline=None)
@given(mu=log_uniform(1e-6, 50), epsilon=log_uniform(1e-6, 500))
def test_delta_is_the_profile(mu, epsilon):
    with mp.workdps(60):
        exact = exact_delta(mu, epsilon)
        if exact > mp.mpf("1e-290"):
            assert gdp_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9 + 1e-14 / mu)


@settings(max_examples=200, deadline=None)
@given(mu=log_uniform(1e-5, 1e3), delta=log_uniform(1e-300, 0.5))
def test_epsilon_inverts_the_profile_and_rounds_up(mu, delta):
    epsilon = gdp_epsilon(mu, delta)
    with mp.workdps(60):
        assert exact_delta(mu, epsilon) <= delta * (1 + 1e-9 * (epsilon == 0))
        if epsilon > 1e-10:
            assert exact_delta(mu, epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.1])
def test_a_very_large_mu_has_its_epsilon_at_half_its_square(delta):
    mu = 1e4
    assert gdp_epsilon(mu, delta) == pytest.approx(mu**2 / 2 - mu * ndtri(delta), rel=1e-7)


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [1.1e8, 1e12, 1e100])
def test_the_mu_of_a_very_large_epsilon_is_rounded_down(epsilon, delta):
    with mp.workdps(40):
        mu, log_delta = mp.mpf(gdp_mu(Budget(epsilon, delta))), mp.log(mp.mpf(delta))
        assert epsilon * (1 - mp.mpf("3e-9")) <= mu**2 / 2 + mu * mp.sqrt(-2 * log_delta) <= epsilon


@pytest.mark.parametrize("mu", [1e-20, 1e-17, 1e-16, 1e-15, 1e-12, 1e-9])
def test_a_vanishing_mu_has_a_vanishing_profile(mu):
    assert gdp_delta(mu, 0.0) == pytest.approx(mu / math.sqrt(2 * math.pi), rel=1e-6 + 1e-14 / mu)
    assert 0 < gdp_epsilon(mu, mu * 1e-3) < 100 * mu + 1e-12


def test_no_loss_and_no_delta_at_their_limits():
    assert gdp_epsilon(0, 1e-5) == gdp_epsilon(0, 0) == 0
    assert gdp_epsilon(1, 0) == math.inf
    assert gdp_epsilon(1e-3, 0.1) == 0
    assert gdp_delta(0, 0) == gdp_delta(0, 1) == 0
    assert gdp_delta(1e20, 1) == 1


@settings(max_examples=200, deadline=None)
@given(mu=log_uniform(1e-4, 100), delta=log_uniform(1e-200, 0.19), more=st.floats(1.01, 5))
def test_epsilon_grows_with_mu_and_falls_with_delta(mu, delta, more):
    epsilon = gdp_epsilon(mu, delta)
    assert gdp_epsilon(mu * more, delta) >= epsilon
    assert gdp_epsilon(mu, delta * more) <= epsilon


@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.3, 1.0, 7.0])
def test_epsilon_is_zero_down_to_the_delta_of_no_loss_and_positive_below_it(mu):
    delta = gdp_delta(mu, 0.0)
    assert gdp_epsilon(mu, delta) == 0.0
    for _ in range(20):
        delta = math.nextafter(delta, 0.0)
        assert gdp_epsilon(mu, delta) >= 0.0
    assert gdp_epsilon(mu, delta * (1 - 1e-12)) > 0.0


def test_epsilon_is_infinite_only_where_its_square_would_overflow():
    assert gdp_epsilon(1e149, 1e-5) == pytest.approx(5e297, rel=1e-9)
    assert gdp_epsilon(1e155, 1e-5) == math.inf


# --- shares of a budget, and averages of profiles -----------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.25, 0.7])
@pytest.mark.parametrize("budget", [Budget(0.1, 1e-5), Budget(1.0, 1e-6), Budget(8.0, 1e-3)])
def test_shares_of_a_gaussian_budget_compose_to_it(budget, share):
    part, rest = shared_budget(budget, share), shared_budget(budget, 1 - share)
    assert part.delta == rest.delta == budget.delta
    assert gdp_mu(part) ** 2 == pytest.approx(share * gdp_mu(budget) ** 2, rel=1e-7)
    assert math.hypot(gdp_mu(part), gdp_mu(rest)) == pytest.approx(gdp_mu(budget), rel=1e-7)


def test_shares_of_a_pure_budget_add_up_and_the_whole_share_is_the_budget_itself():
    assert shared_budget(Budget(2.0), 0.25) == Budget(0.5)
    for budget in (Budget(2.0), Budget(2.0, 1e-5)):
        assert shared_budget(budget, 1) is budget


def exact_average(mus, chances, epsilon):
    return mp.fsum(mp.mpf(chance) * exact_delta(mu, epsilon) for mu, chance in zip(mus, chances, strict=True) if mu)


AVERAGES = [
    ([1.0], [1.0]),
    ([0.1, 2.0, 0.7], [0.5, 0.2, 0.3]),
    ([0.0, 0.5, 0.0, 0.2], [0.4, 0.1, 0.3, 0.2]),
    (list(0.5 / np.sqrt(np.arange(1, 31))), [1 / 30] * 30),
]


@pytest.mark.parametrize(("mus", "chances"), AVERAGES, ids=range(len(AVERAGES)))
@pytest.mark.parametrize("share", [1 - 1e-6, 0.999, 0.5, 1e-3, 1e-9])
def test_the_epsilon_of_an_average_is_rounded_up_and_hardly_more(mus, chances, share):
    with mp.workdps(40):
        delta = share * float(exact_average(mus, chances, 0))
        found = averaged_epsilon(np.array(mus), np.array(chances), delta)
        assert exact_average(mus, chances, found) <= delta
        assert exact_average(mus, chances, max(found * (1 - 4e-9) - 4e-11, 0)) > delta


def test_an_average_has_no_loss_where_delta_allows_it_and_none_is_finite_at_delta_zero():
    mus, chances = np.array([0.0, 1.0]), np.array([0.9, 0.1])
    at_zero = 0.1 * gdp_delta(1.0, 0.0)
    assert averaged_epsilon(mus, chances, at_zero * (1 + 1e-12)) == 0.0
    assert averaged_epsilon(mus, chances, 0.5) == 0.0
    assert averaged_epsilon(mus, chances, at_zero * (1 - 1e-6)) > 0.0
    assert averaged_epsilon(mus, chances, 0.0) == math.inf
    assert averaged_epsilon(np.zeros(2), chances, 0.0) == averaged_epsilon(np.zeros(2), chances, 1e-5) == 0.0


# --- zero-concentrated privacy ------------------------------------------------------------------------------------


def test_known_conversions_to_zcdp():
    assert gdp_to_zcdp(0.5) == pure_to_zcdp(0.5) == 0.125
    assert gdp_to_zcdp(0) == pure_to_zcdp(0) == 0


@settings(max_examples=200, deadline=None)
@given(rho=log_uniform(1e-9, 1e3), delta=log_uniform(1e-200, 0.3))
def test_zcdp_epsilon_lies_between_the_gaussian_truth_and_the_plain_conversion(rho, delta):
    epsilon = zcdp_epsilon(rho, delta)
    # Bun and Steinke, Proposition 1.3; the Gaussian mechanism itself is rho-zCDP, so nothing below it is valid.
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert epsilon >= gdp_epsilon(math.sqrt(2 * rho), delta) * (1 - 1e-9)


@pytest.mark.parametrize(("rho", "delta"), [(0.5, 1e-5), (0.01, 1e-9), (8, 1e-3), (1e-6, 1e-12)])
def test_zcdp_epsilon_is_the_minimum_over_all_orders(rho, delta):
    orders = 1 + np.geomspace(1e-4, 1e8, 400_001)
    by_grid = np.min(orders * rho + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1))
    assert zcdp_epsilon(rho, delta) == pytest.approx(by_grid, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(epsilon=log_uniform(1e-3, 100), delta=log_uniform(1e-12, 0.1))
def test_zcdp_rho_inverts_the_conversion_without_overshoot(epsilon, delta):
    rho = zcdp_rho(Budget(epsilon, delta))
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-6), delta) > epsilon * (1 - 1e-9)
    assert rho <= gdp_to_zcdp(gdp_mu(Budget(epsilon, delta))) * (1 + 1e-6)


def test_a_budget_below_the_range_of_floats_permits_no_rho():
    assert zcdp_rho(Budget(1e-300, 1e-300)) == 0.0
    assert zcdp_rho(Budget(1e-120, 1e-300)) > 0.0


def test_zcdp_limits():
    assert zcdp_epsilon(0, 0) == zcdp_epsilon(0, 1e-5) == 0
    assert zcdp_epsilon(1, 0) == math.inf


# --- many at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-300, 1e-9, 1e-5, 0.1])
@pytest.mark.parametrize(
    "mus", [np.geomspace(1e-3, 1e3, 900), np.full(500, 0.7), np.array([0.0, 3.0, 0.5]), np.linspace(0, 2, 601)]
)
def test_epsilons_of_many_mus_are_those_of_each_rounded_up(mus, delta):
    mus = np.random.default_rng(0).permutation(mus)
    many = gdp_epsilons(mus, delta)
    each = np.array([gdp_epsilon(mu, delta) for mu in mus])
    assert np.all(many <= each * (1 + 1.2e-9) + 1e-10)
    with mp.workdps(60):
        for mu, epsilon in list(zip(mus, many, strict=True))[::40]:
            assert mu == 0 or exact_delta(mu, epsilon) <= delta * (1 + 1e-9)


def test_epsilons_at_their_limits():
    assert np.array_equal(gdp_epsilons(np.array([0.0, 1.0]), 0.0), [0.0, math.inf])
    assert np.all(np.isinf(gdp_epsilons(np.linspace(1, 2, 500), 0.0)))
    mus = np.geomspace(1e4, 1e6, 500)
    huge = gdp_epsilons(mus, 1e-5)
    assert np.all(np.diff(huge) >= 0)
    each = np.array([gdp_epsilon(mu, 1e-5) for mu in mus])
    assert np.all(huge >= each * (1 - 1e-9))
    assert np.all(huge <= each * (1 + 1e-8))
    assert huge[-1] == pytest.approx(gdp_epsilon(1e6, 1e-5), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.1])
@pytest.mark.parametrize("mu", [2.0001e4, 1e6, 1e100])
def test_epsilon_of_a_huge_mu_is_that_of_zero_concentrated_privacy_rounded_up(mu, delta):
    with mp.workdps(60):
        exact = mp.mpf(mu) ** 2 / 2 + mp.mpf(mu) * mp.sqrt(2 * mp.log(1 / mp.mpf(delta)))
        assert exact <= gdp_epsilon(mu, delta) <= exact * (1 + 1e-11)


def test_epsilons_of_many_large_mus_keep_to_their_delta():
    mus = np.linspace(1e4, 1.9e4, 2000)
    assert np.all(log_gdp_deltas(mus, gdp_epsilons(mus, 0.1)) <= math.log(0.1))


@settings(max_examples=150, deadline=None)
@given(mu=log_uniform(1e-6, 50), epsilon=log_uniform(1e-6, 500))
def test_logarithms_of_many_deltas_are_those_of_the_profile(mu, epsilon):
    with mp.workdps(60):
        exact = mp.log(exact_delta(mu, epsilon))
        if exact > -660:
            found = float(log_gdp_deltas(np.array([mu]), np.array([epsilon]))[0])
            assert found == pytest.approx(float(exact), abs=1e-9 + 1e-14 / mu)


@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [(3.0, 0.1), (2.5, 0.0), (6.0, 4.0), (2.2, 0.05), (30.0, 9.0), (1.0, 2.0), (0.05, 0.01), (0.1, 0.5), (4.0, 20.0)],
)
def test_logarithms_of_deltas_in_each_of_their_forms(mu, epsilon):
    with mp.workdps(40):
        exact = float(mp.log(exact_delta(mu, epsilon)))
    alone = float(log_gdp_deltas(np.array([mu]), np.array([epsilon]))[0])
    beside = float(log_gdp_deltas(np.array([0.01, mu, 9.0]), np.array([0.02, epsilon, 0.3]))[1])
    assert (alone, beside) == pytest.approx((exact, exact), rel=1e-12, abs=1e-12)
    assert gdp_delta(mu, epsilon) == pytest.approx(math.exp(exact), rel=1e-12)


# --- bad input ----------------------------------------------------------------------------------------------------

NOT_POSITIVE = [0, -1, math.nan, math.inf, "1", True, None]
NEGATIVE = [-1, math.nan, math.inf, "1", True, None]
NO_DELTA = [1, 1.1, -0.1, math.nan, math.inf, "0.1", True, None]
BUDGET = Budget(1, 1e-5)


@pytest.mark.parametrize(
    ("name", "call", "values"),
    [
        ("sensitivity", lambda v: gaussian_sigma(v, BUDGET), NOT_POSITIVE),
        ("sensitivity", lambda v: gaussian_epsilon(v, 1, 1e-5), NOT_POSITIVE),
        ("sigma", lambda v: gaussian_epsilon(1, v, 1e-5), NOT_POSITIVE),
        ("delta", lambda v: gaussian_epsilon(1, 1, v), NO_DELTA),
        ("mu", lambda v: gdp_epsilon(v, 1e-5), NEGATIVE),
        ("delta", lambda v: gdp_epsilon(1, v), NO_DELTA),
        ("mu", lambda v: gdp_delta(v, 1), NEGATIVE),
        ("epsilon", lambda v: gdp_delta(1, v), NEGATIVE),
        ("mu", gdp_to_zcdp, NEGATIVE),
        ("epsilon", pure_to_zcdp, NEGATIVE),
        ("rho", lambda v: zcdp_epsilon(v, 1e-5), NEGATIVE),
        ("delta", lambda v: zcdp_epsilon(1, v), NO_DELTA),
    ],
)
def test_bad_numbers_are_named(name, call, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^{name} must [^\n]*$"):
            call(value)


@pytest.mark.parametrize("call", [gdp_mu, zcdp_rho, lambda budget: gaussian_sigma(1, budget)])
def test_a_pure_budget_is_refused_with_a_remedy(call):
    with pytest.raises(ValueError, match=r"no pure epsilon guarantee: set delta > 0[^\n]*$"):
        call(Budget(1))
