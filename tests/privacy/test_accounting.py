import itertools
import logging
import math
import os
import resource
from pathlib import Path

import dp_accounting as dpa
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp

from privet.privacy import Adjacency, Budget, calibrate, gdp_delta, gdp_epsilon
from privet.privacy.analyses.accounting import epsilon, gaussian_mu
from privet.privacy.analyses.loss_distribution import (
    COARSE,
    Precision,
    _interval,
    fourier_floor,
    fourier_rounding,
    loss_distribution_epsilon,
)
from privet.privacy.analyses.renyi import ORDERS, poisson_rdp, renyi_epsilon
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    NearlyGaussian,
    PoissonGaussian,
    PureRelease,
)

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE
DPA_REPLACE, DPA_ADD = dpa.NeighboringRelation.REPLACE_ONE, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE

logging.getLogger("absl").setLevel(logging.ERROR)


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def together(*events):
    return Composition(tuple(events))


# --- exact values -------------------------------------------------------------------------------------------------


def log_densities(noise, rate, x):
    """Return the logs of the output densities with and without a unit of contribution 1 in the data."""
    out = -(x**2) / (2 * noise**2)
    inside = -((x - 1) ** 2) / (2 * noise**2)
    return np.logaddexp(math.log1p(-rate) + out if rate < 1 else -np.inf, math.log(rate) + inside), out


def sampled_delta(noise, rate, direction, target):
    """Return the hockey-stick divergence of one Poisson step at any real epsilon, in closed form."""
    unsampled = (
        np.divide(np.expm1(target if direction == "remove" else -target), rate) + 1
    )  # likelihood ratio at the cut
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = 0.5 + noise**2 * np.log(unsampled)
    if direction == "remove":
        cut = np.where(unsampled > 0, cut, -np.inf)
        p = (1 - rate) * np.exp(log_ndtr(-cut / noise)) + rate * np.exp(log_ndtr((1 - cut) / noise))
        return p - np.exp(target) * np.exp(log_ndtr(-cut / noise))
    below = np.where(unsampled > 0, np.exp(log_ndtr(cut / noise)), 0.0)
    with_unit = np.where(unsampled > 0, np.exp(log_ndtr((cut - 1) / noise)), 0.0)
    return below - np.exp(target) * ((1 - rate) * below + rate * with_unit)


def true_delta(noise, rate, steps, target):
    """Return the larger divergence of one or two Poisson steps, the second integrated over the loss of the first."""
    if steps == 1:
        return max(float(sampled_delta(noise, rate, direction, target)) for direction in ("remove", "add"))
    x = np.arange(-14 * noise, 1 + 14 * noise, noise / 400)
    inside, out = log_densities(noise, rate, x)
    weight = noise / 400 / (noise * math.sqrt(2 * math.pi))
    remove = np.sum(np.exp(inside) * sampled_delta(noise, rate, "remove", target - (inside - out))) * weight
    add = np.sum(np.exp(out) * sampled_delta(noise, rate, "add", target - (out - inside))) * weight
    return float(max(remove, add))


def true_epsilon(noise, rate, steps, delta):
    return brentq(lambda e: true_delta(noise, rate, steps, e) - delta, 0, 60, xtol=1e-10)


def one_step_epsilon(noise, rate, delta):
    """Return epsilon of one Poisson step: delta is rate times the unsampled delta at log(1 + (e^epsilon - 1)/rate)."""
    return math.log1p(rate * math.expm1(gdp_epsilon(1 / noise, delta / rate)))


# A rate of 1 is accounted for without sampling, so the transforms are tested just below it. There, an event of the
# unsampled pair keeps its probability up to a factor of (1 - 1e-12)^steps, so epsilon is that at a slightly larger
# delta.
ALMOST_ONE = 1 - 1e-12


def almost_unsampled(mu, delta):
    return gdp_epsilon(mu, delta * (1 + 1e-6))


# --- Poisson batches ----------------------------------------------------------------------------------------------


def test_poisson_epsilon_of_a_known_run_has_its_published_value():
    event = PoissonGaussian(1.0, 0.01, 10_000)
    assert 6.18 < epsilon(event, ADD, 1e-5) <= 6.20
    assert epsilon(event, ADD, 1e-5, analysis="rdp") == pytest.approx(6.71, abs=0.02)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(
    ("noise", "rate", "delta"),
    [(1.0, 0.01, 1e-5), (0.5, 0.1, 1e-6), (3.0, 0.5, 1e-8), (0.7, 1e-3, 1e-7), (1.5, 0.9, 1e-3), (10.0, 0.3, 1e-4)],
)
def test_poisson_epsilon_is_the_exact_one_to_a_percent(noise, rate, steps, delta):
    exact = true_epsilon(noise, rate, steps, delta)
    assert exact <= epsilon(PoissonGaussian(noise, rate, steps), ADD, delta) <= 1.01 * exact


@settings(max_examples=60, deadline=None, derandomize=True)
@given(noise=log_uniform(0.1, 100), rate=log_uniform(1e-10, 1), share=log_uniform(1e-4, 0.9))
def test_one_poisson_step_is_never_below_the_truth(noise, rate, share):
    delta = max(share * rate * gdp_delta(1 / noise, 0.0), 1e-12)
    exact = one_step_epsilon(noise, rate, delta) if delta < rate else 0.0
    part = PoissonGaussian(noise, rate, 1)
    assert epsilon(part, ADD, delta) >= exact * (1 - 1e-9)
    assert loss_distribution_epsilon((part,), ADD, delta, COARSE) >= exact * (1 - 1e-9)


@pytest.mark.parametrize("steps", [1, 63, 64, 65, 1000, 9999, 10**5])
@pytest.mark.parametrize("noise", [0.5, 10.0, 300.0])
@pytest.mark.parametrize("times_floor", [1.0, 30.0])
def test_a_rate_near_one_is_never_below_the_gaussian_profile(noise, steps, times_floor):
    part = PoissonGaussian(noise, ALMOST_ONE, steps)
    delta = times_floor * fourier_floor((part,))
    exact = almost_unsampled(math.sqrt(steps) / noise, delta)
    assert exact <= epsilon(part, ADD, delta) <= 1.01 * exact
    assert loss_distribution_epsilon((part,), ADD, delta, COARSE) >= exact


@pytest.mark.parametrize(("noise", "steps"), [(10.0, 1000), (30.0, 9999), (100.0, 9999)])
@pytest.mark.parametrize("times_floor", [1.0, 3.0])
def test_fourier_rounding_never_takes_epsilon_below_the_truth(noise, steps, times_floor):
    """On a very fine grid there is no slack that could hide the rounding errors of the transform."""
    part = PoissonGaussian(noise, ALMOST_ONE, steps)
    delta = times_floor * fourier_floor((part,))
    very_fine = Precision(cells_per_deviation=160.0, most_cells=10**6)
    certified = loss_distribution_epsilon((part,), ADD, delta, very_fine)
    exact = almost_unsampled(math.sqrt(steps) / noise, delta)
    assert exact <= certified <= 1.001 * exact


def test_the_pld_analysis_certifies_below_the_fourier_floor_too():
    event = together(PoissonGaussian(100.0, ALMOST_ONE, 9999), GaussianRelease(0.001))
    for delta in (2e-12, 1e-12, 1e-14):
        certified = epsilon(event, ADD, delta, analysis="pld")
        assert certified >= almost_unsampled(math.hypot(math.sqrt(9999) / 100, 0.001), delta)


def test_epsilon_is_continuous_at_the_switch_at_64_steps():
    values = [epsilon(PoissonGaussian(1.0, 0.01, steps), ADD, 1e-6) for steps in range(60, 70)]
    growth = np.diff(values)
    assert np.all(growth > 0)
    assert np.all(np.abs(np.diff(growth)) < 0.05 * growth[:-1])


@pytest.mark.parametrize("delta", [1e-13, 1e-30, 1e-200])
def test_below_the_fourier_floor_epsilon_stays_above_the_truth(delta):
    assert epsilon(PoissonGaussian(1.0, 0.1, 1), ADD, delta) >= one_step_epsilon(1.0, 0.1, delta)


@pytest.mark.parametrize("delta", [1e-13, 1e-11])
def test_rounding_of_tiny_renyi_divergences_never_gives_epsilon_zero(delta):
    """Here the divergences of dp-accounting are negative, from which it computes an epsilon of zero."""
    noise, rate = 1e6, 1e-4
    assert epsilon(PoissonGaussian(noise, rate, 10**5), ADD, delta) >= one_step_epsilon(noise, rate, delta) > 0


@pytest.mark.parametrize("steps", [1, 1000])
def test_a_rate_just_below_one_is_as_good_as_one(steps):
    almost, one = (epsilon(PoissonGaussian(2.0, rate, steps), ADD, 1e-6) for rate in (1 - 1e-12, 1.0))
    assert almost == pytest.approx(one, rel=1e-6)


def test_epsilon_is_zero_just_above_the_chance_of_being_sampled():
    rate, steps = 1e-4, 10
    chance = -math.expm1(steps * math.log1p(-rate))
    event = PoissonGaussian(0.02, rate, steps)
    assert epsilon(event, ADD, chance * 1.001) == 0
    assert epsilon(event, ADD, chance * 0.999) > 100


# --- full batch and fixed size, and dp-accounting's two conventions ------------------------------------------------


def dpa_epsilon(accountant, *events, delta=1e-5):
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(delta)


def test_dp_accounting_has_two_conventions_and_privet_answers_with_the_right_one():
    """Noise of standard deviation C on a sum of contributions of norm C, under replace-one, is 2-GDP: 10.00."""
    rdp = dpa_epsilon(RdpAccountant(neighboring_relation=DPA_REPLACE), dpa.GaussianDpEvent(1.0))
    pld = dpa_epsilon(PLDAccountant(DPA_REPLACE), dpa.GaussianDpEvent(1.0))
    assert (rdp, pld) == pytest.approx((4.73, 10.00), abs=0.005)
    exact = gdp_epsilon(2.0, 1e-5)
    assert exact == pytest.approx(10.00, abs=0.005)
    assert epsilon(FixedSizeGaussian(1.0, 50, 50, 1), REPLACE, 1e-5) == pytest.approx(exact, rel=1e-9)
    assert epsilon(PoissonGaussian(1.0, 1.0, 1), ADD, 1e-5) == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=1e-3)


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (5.0, 30), (80.0, 1000)])
def test_a_batch_of_all_units_equals_the_full_batch_under_replace_one(noise, steps):
    event, mu = FixedSizeGaussian(noise, 100, 100, steps), 2 * math.sqrt(steps) / noise
    assert epsilon(event, REPLACE, 1e-6) == gdp_epsilon(mu, 1e-6)
    assert epsilon(event, REPLACE, 1e-6, analysis="unsampled") == gdp_epsilon(mu, 1e-6)
    by_rdp = epsilon(event, REPLACE, 1e-6, analysis="rdp")
    assert by_rdp == pytest.approx(epsilon(GaussianRelease(mu), REPLACE, 1e-6, analysis="rdp"), rel=1e-12)
    assert gdp_epsilon(mu, 1e-6) <= by_rdp <= 1.25 * gdp_epsilon(mu, 1e-6)


@pytest.mark.parametrize(
    ("noise", "n", "size", "steps"), [(2.0, 1000, 10, 100), (3.0, 10_000, 100, 1000), (1.6, 500, 1, 40)]
)
def test_fixed_size_doubles_the_distance(noise, n, size, steps):
    """dp-accounting's RDP wants the multiplier relative to 2C: noise/2. Relative to C it would promise too much."""

    def peer(multiplier):
        sampled = dpa.SampledWithoutReplacementDpEvent(n, size, dpa.GaussianDpEvent(multiplier))
        accountant = RdpAccountant(list(range(2, 80)), DPA_REPLACE)
        return dpa_epsilon(accountant, dpa.SelfComposedDpEvent(sampled, steps))

    event = FixedSizeGaussian(noise, n, size, steps)
    mine = epsilon(event, REPLACE, 1e-5, analysis="rdp")
    assert mine == pytest.approx(peer(noise / 2), rel=1e-6)
    assert mine > 1.5 * peer(noise)
    assert epsilon(event, REPLACE, 1e-5) < mine


def sum_log_density(contributions, size, noise, x):
    means = [sum(batch) for batch in itertools.combinations(contributions, size)]
    return logsumexp([-((x - mean) ** 2) / (2 * noise**2) for mean in means], axis=0) - math.log(len(means))


@pytest.mark.parametrize(("n", "size"), [(2, 1), (3, 1), (3, 2), (4, 2), (4, 4)])
@pytest.mark.parametrize("noise", [1.0, 2.5])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_fixed_size_epsilon_bounds_the_truth_on_tiny_data(n, size, noise, delta):
    certified = epsilon(FixedSizeGaussian(noise, n, size, 1), REPLACE, delta)
    x = np.arange(-n - 14 * noise, n + 14 * noise, noise / 200)
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 1.0), n - 1):
        for before, after in itertools.permutations((-1.0, 0.0, 1.0), 2):
            p, q = (np.exp(sum_log_density([unit, *others], size, noise, x)) for unit in (before, after))
            divergence = np.sum(np.maximum(p - math.exp(certified) * q, 0)) / 200 / math.sqrt(2 * math.pi)
            assert divergence <= delta * (1 + 1e-4)  # the sum's own error at the kink


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    noise=log_uniform(0.05, 500),
    n=st.integers(1, 10**6),
    share=log_uniform(1e-6, 1),
    steps=st.integers(1, 10**5),
    delta=log_uniform(1e-12, 0.1),
)
def test_fixed_size_is_never_worse_than_no_sampling_per_order_and_as_a_whole(noise, n, share, steps, delta):
    event = FixedSizeGaussian(noise, n, max(1, int(share * n)), steps)
    full = FixedSizeGaussian(noise, n, n, steps)
    assert epsilon(event, REPLACE, delta) <= epsilon(full, REPLACE, delta)
    assert epsilon(event, REPLACE, delta, analysis="rdp") <= epsilon(full, REPLACE, delta, analysis="rdp")
    orders = np.asarray(ORDERS, dtype=float)
    assert np.all(event.renyi(REPLACE, orders) <= full.renyi(REPLACE, orders))


# --- composition --------------------------------------------------------------------------------------------------

POISSON = PoissonGaussian(1.0, 0.01, 1000)
FIXED = FixedSizeGaussian(2.0, 1000, 10, 100)
ADD_PARTS = [
    POISSON,
    GaussianRelease(0.3),
    PureRelease(0.2),
    ApproximateRelease(0.3, 1e-7),
    PoissonGaussian(0.8, 0.02, 50),
]
REPLACE_PARTS = [FIXED, GaussianRelease(0.3), PureRelease(0.2), ApproximateRelease(0.3, 1e-7)]


@pytest.mark.parametrize("adjacency", Adjacency)
def test_gaussians_compose_exactly(adjacency):
    event = together(GaussianRelease(0.3), together(GaussianRelease(0.4), GaussianRelease(1.2)))
    assert epsilon(event, adjacency, 1e-5) == gdp_epsilon(1.3, 1e-5)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_pure_releases_add_up_without_delta_and_gain_with_it(adjacency):
    event = together(*[PureRelease(0.1)] * 100)
    assert epsilon(event, adjacency, 0) == pytest.approx(10.0)
    # Kairouz, Oh and Viswanath's composition is far below the sum; Gaussian-like, about sqrt(2 k ln(1/delta)) eps.
    assert 4 < epsilon(event, adjacency, 1e-5) < 5.3


@pytest.mark.parametrize("value", [0.1, 0.3, 1.0, 1.1, 7.7, 20.0])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-6])
def test_a_pure_release_alone_costs_its_epsilon_and_no_more(value, delta):
    assert value * (1 - 1e-4) <= epsilon(PureRelease(value), ADD, delta) <= value
    assert epsilon(together(PureRelease(value), PureRelease(value / 3)), ADD, delta) <= value * (4 / 3) * (1 + 1e-12)


@pytest.mark.parametrize("value", [600.0, 800.0, 1e4])
def test_an_enormous_pure_release_is_counted_or_infinite(value):
    assert epsilon(PureRelease(value), ADD, 1e-6) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
def test_gaussian_with_poisson_agrees_with_dp_accounting(mu):
    sampled = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0)), 1000)
    peer = PLDAccountant(DPA_ADD).compose(sampled).compose(dpa.GaussianDpEvent(1 / mu))
    for delta in (1e-4, 1e-8):
        found = epsilon(together(POISSON, GaussianRelease(mu)), ADD, delta)
        assert found == pytest.approx(peer.get_epsilon(delta), rel=0.01)


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_gaussian_with_fixed_size_adds_renyi_divergences(mu):
    orders = np.asarray(ORDERS, dtype=float)
    divergences = FIXED.renyi(REPLACE, orders) + orders * mu**2 / 2
    by_hand = np.min(divergences + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1))
    both = together(FIXED, GaussianRelease(mu))
    assert epsilon(both, REPLACE, 1e-5, analysis="rdp") == pytest.approx(by_hand, rel=1e-9)
    assert epsilon(both, REPLACE, 1e-5) < by_hand


def test_pure_and_black_box_divergences_are_those_of_randomised_response():
    order, e = np.array([2.0, 7.0, 300.0]), 0.7
    p, q = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
    exact = np.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)
    for part in (PureRelease(e), ApproximateRelease(e, 1e-3)):
        np.testing.assert_allclose(part.renyi(REPLACE, order), exact, rtol=1e-12)


@pytest.mark.parametrize("analysis", ["tightest", "rdp", "unsampled"])
def test_black_box_releases_use_up_delta(analysis):
    event = together(FIXED, ApproximateRelease(0.5, 1e-6))
    assert epsilon(event, REPLACE, 1e-6, analysis=analysis) == math.inf
    assert epsilon(event, REPLACE, 9e-7, analysis=analysis) == math.inf
    certified = epsilon(event, REPLACE, 1e-5, analysis=analysis)
    assert certified >= epsilon(together(FIXED, PureRelease(0.5)), REPLACE, 1e-5, analysis=analysis)
    assert certified <= 0.5 + epsilon(FIXED, REPLACE, 1e-5 - 1e-6, analysis=analysis) + 0.1


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_black_box_release_alone_costs_its_stated_epsilon(adjacency):
    assert epsilon(ApproximateRelease(1.0, 1e-6), adjacency, 1e-6) == pytest.approx(1.0, rel=1e-9)
    assert epsilon(ApproximateRelease(1.0, 1e-6), adjacency, 1e-7) == math.inf
    two = together(ApproximateRelease(1.0, 1e-6), ApproximateRelease(0.5, 1e-6))
    assert epsilon(two, adjacency, 2e-6) == pytest.approx(1.5, rel=1e-6)


@pytest.mark.parametrize(
    "event",
    [
        ApproximateRelease(0.0, 1e-6),
        together(ApproximateRelease(0.0, 1e-6), GaussianRelease(0.0)),
        together(GaussianRelease(0.0)),
        together(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("analysis", ["tightest", "pld", "unsampled"])
def test_an_empty_release_has_epsilon_zero(event, analysis):
    assert epsilon(event, ADD, 1e-5, analysis=analysis) == 0


@pytest.mark.parametrize(
    ("many", "one", "adjacency"),
    [
        ([PoissonGaussian(1.0, 0.01, 1000)] * 40, PoissonGaussian(1.0, 0.01, 40_000), ADD),
        ([FixedSizeGaussian(4.0, 1000, 10, 50)] * 40, FixedSizeGaussian(4.0, 1000, 10, 2000), REPLACE),
    ],
    ids=["Poisson", "fixed size"],
)
def test_forty_equal_runs_are_one_run_of_forty_times_the_steps(many, one, adjacency, takes_less_than):
    """Ledgers contain many repeated plans, whose number must increase neither rounding errors nor the time."""
    assert takes_less_than(2.0, lambda: epsilon(together(*many), adjacency, 1e-5))
    assert epsilon(together(*many), adjacency, 1e-5) == pytest.approx(epsilon(one, adjacency, 1e-5), rel=1e-6)


@pytest.mark.parametrize(("parts", "adjacency"), [(ADD_PARTS, ADD), (REPLACE_PARTS, REPLACE)], ids=["add", "replace"])
def test_order_and_nesting_do_not_matter(parts, adjacency):
    forward, backward = (epsilon(together(*order), adjacency, 1e-5) for order in (parts, parts[::-1]))
    nested = epsilon(together(parts[0], together(*parts[1:])), adjacency, 1e-5)
    assert forward == pytest.approx(backward, rel=1e-6)
    assert forward == pytest.approx(nested, rel=1e-12)


@pytest.mark.parametrize(("parts", "adjacency"), [(ADD_PARTS, ADD), (REPLACE_PARTS, REPLACE)], ids=["add", "replace"])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_a_composition_is_never_better_than_its_parts(parts, adjacency, delta):
    for first, second in itertools.combinations(parts, 2):
        whole = epsilon(together(first, second), adjacency, delta)
        for part in (first, second):
            # Both are upper bounds on different grids, and differ by a few parts in ten thousand.
            assert whole >= epsilon(part, adjacency, delta) * (1 - 2e-3)


@pytest.mark.parametrize(
    ("event", "adjacency", "delta"),
    [
        (together(FixedSizeGaussian(2.0, 100, 100, 1), PureRelease(1e-9)), REPLACE, 1e-5),
        (together(FixedSizeGaussian(2.0, 100, 90, 1), PureRelease(0.1)), REPLACE, 1e-5),
        (together(FixedSizeGaussian(2.0, 100, 100, 1), ApproximateRelease(0.1, 1e-8)), REPLACE, 1e-5),
        (PoissonGaussian(1.0, 1.0, 10), ADD, 1e-13),
        (PoissonGaussian(1.0, 1 - 1e-9, 10), ADD, 1e-100),
        (together(PoissonGaussian(1.0, 1.0, 10), PureRelease(0.1)), ADD, 1e-13),
        (POISSON, ADD, 1e-5),
        (FIXED, REPLACE, 1e-5),
        (together(POISSON, GaussianRelease(0.5)), ADD, 1e-9),
    ],
    ids=repr,
)
def test_tightest_is_no_looser_than_any_analysis_that_covers_the_event(event, adjacency, delta):
    best = epsilon(event, adjacency, delta)
    for analysis in ("rdp", "unsampled"):
        assert best <= epsilon(event, adjacency, delta, analysis=analysis) * (1 + 1e-9)


def isolated_epsilon(event, delta):
    """Return epsilon, computed in a forked process with limited time and memory, because a grid can be too large."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, 2 * (used + (2 << 30),))
            resource.setrlimit(resource.RLIMIT_CPU, (7, 7))
            answer = repr(float(epsilon(event, ADD, delta)))
        except BaseException as error:
            answer = f"not computed: {error!r}"
        os.write(writing, answer[:999].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "killed: it took too long"
    return float(answer)


@pytest.mark.parametrize(
    ("large", "small"),
    [
        (POISSON, PureRelease(1e-3)),
        (POISSON, PureRelease(1e-6)),
        (POISSON, GaussianRelease(1e-4)),
        (POISSON, PoissonGaussian(10.0, 1e-5, 10)),
        (GaussianRelease(1.0), PureRelease(1e-6)),
        (GaussianRelease(100.0), PureRelease(1.0)),
    ],
    ids=repr,
)
def test_a_large_and_a_small_release_compose_in_little_time_and_memory(large, small):
    alone = epsilon(large, ADD, 1e-5)
    total = isolated_epsilon(together(large, small), 1e-5)
    assert alone * (1 - 2e-3) <= total <= alone * 1.01 + epsilon(small, ADD, 1e-6)


@pytest.mark.parametrize(
    "event", [PoissonGaussian(1e3, 1e-10, 10**5), PoissonGaussian(1e4, 1e-8, 10**5), PoissonGaussian(1.0, 1e-12, 10**4)]
)
def test_extremely_rare_batches_have_a_finite_epsilon(event):
    assert 0 <= isolated_epsilon(event, 1e-8) < 1e-3


# --- approximate descriptions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [1e-6, 1e-9, 1e-30])
@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0])
def test_a_distance_from_a_gaussian_release_takes_its_share_of_delta(mu, distance):
    """The share is (1 + e^epsilon) times the distance, and the epsilon that is certified is hardly above the least."""
    delta = 1e-4
    found = epsilon(NearlyGaussian(mu, distance), ADD, delta)
    assert gdp_delta(mu, found) <= delta - distance * (1 + math.exp(found))
    less = found * (1 - 1e-7) - 1e-9
    assert gdp_delta(mu, less) > delta - distance * (1 + math.exp(less))


def test_distances_of_several_releases_add_up():
    parts = [NearlyGaussian(0.3, 1e-6), NearlyGaussian(0.4, 2e-6)]
    assert epsilon(together(*parts), ADD, 1e-4) == epsilon(NearlyGaussian(0.5, 3e-6), ADD, 1e-4)
    assert epsilon(together(*parts), ADD, 1e-4) > epsilon(NearlyGaussian(0.5, 2e-6), ADD, 1e-4)


def test_a_distance_alone_costs_twice_itself():
    assert epsilon(NearlyGaussian(0.0, 1e-6), ADD, 2.1e-6) == 0.0
    assert epsilon(NearlyGaussian(0.0, 1e-6), ADD, 2e-6) == math.inf


@pytest.mark.parametrize("mu", [40.0, 60.0])
@pytest.mark.parametrize("distance", [5e-324, 1e-300, 1e-9])
def test_even_the_least_distance_has_no_finite_epsilon_beyond_the_range_of_exponentials(mu, distance):
    assert epsilon(NearlyGaussian(mu, distance), ADD, 1e-5) == math.inf
    assert 700 < epsilon(GaussianRelease(mu), ADD, 1e-5) < math.inf


@pytest.mark.parametrize("analysis", ["tightest", "pld"])
@pytest.mark.parametrize("empty", [ApproximateRelease(0.0, 1e-7), GaussianRelease(0.0)], ids=repr)
def test_a_release_that_reveals_nothing_does_not_hide_the_others(analysis, empty):
    pure = together(PureRelease(1.0), empty)
    assert 0.999 <= epsilon(pure, ADD, 1e-5, analysis=analysis) <= 1.001
    few = PoissonGaussian(1.0, 0.1, 3)
    poisson = epsilon(together(few, empty), ADD, 1e-5, analysis=analysis)
    assert poisson == pytest.approx(epsilon(few, ADD, 1e-5, analysis=analysis), rel=0.02)


def test_only_exact_gaussian_releases_have_a_mu():
    assert gaussian_mu(together(GaussianRelease(0.3), GaussianRelease(0.4)), ADD) == 0.5
    for event in (NearlyGaussian(0.3, 1e-9), together(GaussianRelease(0.3), PureRelease(0.1)), PureRelease(0.1)):
        assert gaussian_mu(event, ADD) is None


def test_epsilon_is_zero_at_exactly_the_chance_of_being_sampled():
    event = PoissonGaussian(0.02, 1e-4, 10)
    assert epsilon(event, ADD, -math.expm1(event.log_chance_of_no_contact())) == 0


# --- grids of losses ----------------------------------------------------------------------------------------------

FREE = Precision(cells_per_deviation=10.0, most_cells=10**9)


def test_a_grid_divides_the_deviation_of_one_kind_of_step_evenly():
    assert _interval((GaussianRelease(0.5),), FREE) == pytest.approx(0.05, rel=1e-12)
    step = PoissonGaussian(2.0, 0.01, 1)
    for steps in (1, 100):
        assert _interval((step.repeated(steps),), FREE) == pytest.approx(step.spread() / 10, rel=1e-9)


def test_a_small_release_beside_a_large_one_does_not_force_a_fine_grid_on_both():
    """With h between both deviations the variance h^2 + h s of rounding is a hundredth of 1 + s^2."""
    s = 1e-3
    h = (-s + math.sqrt(s**2 + 4 * (1 + s**2) / 100)) / 2
    assert _interval((GaussianRelease(1.0), GaussianRelease(s)), FREE) == pytest.approx(h, rel=1e-9)


def test_grids_for_black_boxes_are_finer_as_their_losses_are_rounded_up():
    one, two = PureRelease(0.3), PureRelease(0.4)
    assert _interval((one,), FREE) == pytest.approx(0.016 * 0.3, rel=1e-9)
    assert _interval((one, two), FREE) == pytest.approx(0.016 * 0.5 / 2, rel=1e-9)
    together_with = math.hypot(0.3, 0.4)
    assert _interval((one, GaussianRelease(0.4)), FREE) == pytest.approx(0.016 * together_with, rel=1e-9)


def test_a_grid_has_a_limited_number_of_cells_and_a_least_width():
    part = PoissonGaussian(0.5, 1e-3, 10)
    assert _interval((part,), Precision(1e6, 100)) == pytest.approx(part.largest_loss() / 100, rel=1e-12)
    assert _interval((PureRelease(1e-12),), FREE) == 1e-9


def test_the_allowance_for_a_transform_grows_with_the_steps_that_it_composes():
    """``test_loss_masses.py`` compares this allowance with transforms in extended precision."""
    parts = (PoissonGaussian(1.0, 0.1, 3000), FixedSizeGaussian(1.0, 10, 2, 1096), GaussianRelease(1.0))
    assert fourier_rounding(parts[-1:]) == fourier_rounding(()) == pytest.approx(1e-14, rel=1e-12)
    assert fourier_rounding(parts) == pytest.approx(1e-14 + 4e-16 * 4096, rel=1e-12)
    assert fourier_floor(parts) == pytest.approx(30 * fourier_rounding(parts), rel=1e-12)


@pytest.mark.parametrize(
    ("sigma", "rate"), [(0.6, 0.3), (2.0, 0.01), (50.0, 1e-3), (1e3, 1e-4), (2e4, 1e-3), (3e5, 0.1), (1e6, 1e-4)]
)
def test_divergences_of_poisson_batches_are_exact_and_allow_for_rounding(sigma, rate):
    orders = [2, 3, 5, 10, 17, 33, 64]
    found = poisson_rdp(sigma, rate, np.array(orders, dtype=float))
    with mp.workdps(60):
        for order, divergence in zip(orders, found, strict=True):
            q, variance = mp.mpf(rate), mp.mpf(sigma) ** 2
            terms = [
                mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp(mp.mpf(k * (k - 1)) / (2 * variance))
                for k in range(order + 1)
            ]
            exact = mp.log(mp.fsum(terms)) / (order - 1)
            assert exact < divergence <= exact * (1 + mp.mpf("1e-9")) + mp.mpf("4e-14") * order / (order - 1)


def test_black_boxes_leave_less_delta_to_renyi_divergences():
    parts = (GaussianRelease(0.5), ApproximateRelease(0.2, 4e-6))
    alone = (GaussianRelease(0.5), PureRelease(0.2))
    assert renyi_epsilon(parts, ADD, 1e-5) == pytest.approx(renyi_epsilon(alone, ADD, 6e-6), rel=1e-12)
    assert renyi_epsilon(parts, ADD, 4e-6) == math.inf
    assert renyi_epsilon((GaussianRelease(1e-9),), ADD, 0.5) == 0.0


# --- the arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1, 1.5, -1e-9, math.nan, math.inf, True, "1e-5", None], ids=repr)
def test_bad_delta_is_named(delta):
    with pytest.raises(ValueError, match=r"^delta must [^\n]*$"):
        epsilon(POISSON, ADD, delta)


@pytest.mark.parametrize(
    ("event", "adjacency"), [(POISSON, REPLACE), (FIXED, ADD), (together(PureRelease(1), FIXED), ADD)]
)
def test_an_event_under_the_wrong_adjacency_is_refused(event, adjacency):
    with pytest.raises(ValueError, match=rf"accounted for under [^\n]* adjacency, not {adjacency}$"):
        epsilon(event, adjacency, 1e-5)
    with pytest.raises(ValueError, match="adjacency"):
        calibrate(lambda z: event, adjacency, Budget(1, 1e-5))


@pytest.mark.parametrize("adjacency", ["near", None])
def test_an_unknown_adjacency_is_refused(adjacency):
    with pytest.raises(ValueError, match="Adjacency"):
        epsilon(FIXED, adjacency, 1e-5)
    assert epsilon(FIXED, "replace-one", 1e-5) == epsilon(FIXED, REPLACE, 1e-5)


def test_an_unknown_analysis_is_refused_by_name():
    with pytest.raises(ValueError, match=r"unknown analysis 'moments': use tightest, rdp, pld, unsampled"):
        epsilon(POISSON, ADD, 1e-5, analysis="moments")


def test_an_analysis_that_does_not_cover_an_event_is_refused():
    with pytest.raises(ValueError, match="'pld' does not cover Composition"):
        loss_distribution_epsilon([Composition((FIXED,))], REPLACE, 1e-5, COARSE)


@pytest.mark.parametrize("event", [POISSON, GaussianRelease(0.1), together(PureRelease(1.0), GaussianRelease(0.1))])
@pytest.mark.parametrize("analysis", ["tightest", "rdp", "pld", "unsampled"])
def test_gaussian_noise_has_no_pure_epsilon(event, analysis):
    assert epsilon(event, ADD, 0.0, analysis=analysis) == math.inf


@pytest.mark.parametrize(
    "event", [PoissonGaussian(1.0, 0.1, 10), FIXED, together(GaussianRelease(1.0), PureRelease(0.1))]
)
def test_epsilon_falls_as_delta_grows(event):
    (adjacency, *_) = event.adjacencies
    deltas = [1e-300, 1e-100, 1e-20, 9e-13, 1.1e-12, 1e-11, 1e-9, 1e-6, 1e-3, 0.1, 0.9]
    values = [epsilon(event, adjacency, delta) for delta in deltas]
    assert np.all(np.diff(values) <= 0)


def epsilon_or_refusal(make, adjacency, delta, argument):
    """Return the certified epsilon, which must not be NaN, or None if the argument is refused by name."""
    try:
        value = epsilon(make(), adjacency, delta)
    except ValueError as error:
        assert argument in str(error)
        return None
    assert value >= 0
    return value


EXTREME_KINDS = {
    "poisson": (lambda noise: PoissonGaussian(noise, 0.01, 100), ADD),
    "fixed": (lambda noise: FixedSizeGaussian(noise, 1000, 10, 100), REPLACE),
}


@pytest.mark.parametrize("noise", [1e-200, 1e-100, 1e-3])
@pytest.mark.parametrize("delta", [1e-5, 1e-200])
@pytest.mark.parametrize("kind", EXTREME_KINDS)
def test_tiny_noise_has_a_huge_epsilon(noise, delta, kind):
    make, adjacency = EXTREME_KINDS[kind]
    value = epsilon_or_refusal(lambda: make(noise), adjacency, delta, "noise_multiplier")
    assert value is None or value > 1e5


@pytest.mark.parametrize("noise", [1e6, 1e9, 1e20, 1e100, 1e200])
@pytest.mark.parametrize("delta", [1e-5, 1e-200])
@pytest.mark.parametrize("kind", EXTREME_KINDS)
def test_huge_noise_has_a_tiny_epsilon(noise, delta, kind):
    make, adjacency = EXTREME_KINDS[kind]
    value = epsilon_or_refusal(lambda: make(noise), adjacency, delta, "noise_multiplier")
    assert value is None or value < 0.2


@pytest.mark.parametrize("mu", [1e-20, 1e-17, 1e3, 1e20, 1e160])
def test_extreme_gaussian_releases_have_an_epsilon_that_is_not_nan(mu):
    value = epsilon_or_refusal(lambda: GaussianRelease(mu), ADD, 1e-5, "mu")
    assert value is None or (value == 0 if mu < 1 else value > mu)


def test_losses_whose_exponentials_may_overflow_are_left_to_other_analyses():
    small, large = PoissonGaussian(0.039, 0.5, 2), PoissonGaussian(0.038, 0.5, 2)
    assert small.largest_loss() < 600 < large.largest_loss() < 700
    found = [loss_distribution_epsilon([event], Adjacency.ADD_OR_REMOVE, 1e-5, COARSE) for event in (small, large)]
    assert math.isfinite(found[0])
    assert found[1] == math.inf
    assert found[0] < epsilon(large, Adjacency.ADD_OR_REMOVE, 1e-5) < math.inf
