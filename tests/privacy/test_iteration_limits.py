"""Amplification by iteration at the limits: of floating point, of contraction, of delta; and how long it takes."""

import math
import warnings
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from privet.privacy import Adjacency, gdp_delta
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.analyses.gaussian import gdp_epsilons
from privet.privacy.analyses.taut_string import _margin_of_sums, _running_sums
from privet.privacy.events import LastIterate, Secret
from privet.privacy.iteration import last_iterate_mu, per_record_epsilon

REPLACE = Adjacency.REPLACE_ONE


@pytest.mark.parametrize("quiet", [200, 2000, 3000, 30_000])
def test_noise_is_not_forgotten_where_none_follows(quiet):
    """After one shift and one noise, the maps only scale, so the last iterate reveals everything and mu is 1."""
    shifts = np.zeros(quiet + 1)
    shifts[0] = 1.0
    assert last_iterate_mu(shifts, shifts, 0.9) == pytest.approx(1.0, rel=1e-9)


def test_a_tiny_factor_at_the_end_hides_nothing_without_noise():
    assert last_iterate_mu([1.0, 0.0], [1.0, 0.0], [1.0, 1e-140]) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-170, 1.3e-161, 1e-160, 1e160, 1e200])
def test_units_do_not_matter_near_the_ends_of_floating_point(scale):
    assert last_iterate_mu([scale], [scale]) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("contraction", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("secret", [Secret.STOP, Secret.ORDER])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("n", [5, 5000])
def test_units_that_are_forgotten_altogether_do_not_break_the_average(contraction, secret, runs, n):
    event = LastIterate(4.0, n=n, contraction=contraction, secret=secret, runs=runs)
    found = epsilon(event, REPLACE, 1e-5)
    if runs == 1:
        mus, chances = event.mixture()
        assert sum(p * gdp_delta(mu, found) for mu, p in zip(mus, chances, strict=True)) <= 1e-5 * (1 + 1e-9)
        assert np.all(event.record_epsilons(1e-5) <= found * (1 + 1e-6))
    assert 0 < found <= epsilon(replace(event, secret=Secret.NOTHING), REPLACE, 1e-5)


def test_many_records_without_any_loss_are_found_quickly(takes_less_than):
    """Brackets that begin at an epsilon of exactly 0 must not be halved a thousand times."""
    assert takes_less_than(5.0, lambda: per_record_epsilon(100_000, noise_multiplier=1000.0, delta=1e-5))
    found = per_record_epsilon(100_000, noise_multiplier=1000.0, delta=1e-5)
    assert found[0] == 0.0 < found[-1]


def test_a_secret_stop_for_many_records_is_analysed_quickly(takes_less_than):
    assert takes_less_than(5.0, lambda: LastIterate(4.0, n=20_000, secret=Secret.STOP).record_epsilons(1e-5))


@pytest.mark.parametrize("gap", [1e-7, 1e-8, 3e-9, 1e-9, 1e-10, 3e-11, 1e-11, 1e-12])
@pytest.mark.parametrize("n", [10, 1000, 30_000])
def test_factors_near_one_lose_no_digits(gap, n):
    """(1 - c^(2k)) / (1 - c^2) would suffer from cancellation and make mus too small by up to 1e-8."""
    mus = LastIterate(1.0, n=n, contraction=1 - gap).place_mus()
    with mp.workdps(60):
        c = mp.mpf(1 - gap)
        for place in range(0, n, max(1, n // 40)):
            left = n - place
            exact = 2 * c ** (left - 1) / mp.sqrt((1 - c ** (2 * left)) / (1 - c**2))
            assert 1 <= mus[place] / exact <= 1 + 1e-9


@pytest.mark.parametrize("contraction", [0.99998859, 0.99999193, 0.99998935, 0.99998091])
def test_mu_is_rounded_up_also_after_a_million_steps(contraction):
    """The sum of a million logarithms errs by more than the margin for short schedules."""
    steps = 10**6
    found = last_iterate_mu(np.eye(1, steps)[0], 1.0, contraction)
    with mp.workdps(60):
        c = mp.mpf(contraction)
        exact = c ** (steps - 1) / mp.sqrt((1 - c ** (2 * steps)) / (1 - c**2))
        assert 1 <= found / exact <= 1 + 1e-9


def test_the_margin_covers_the_rounding_of_long_sums_and_of_large_logarithms():
    steps, u = 10**6, 2.0**-53
    plain, deep = (_margin_of_sums(np.full(steps, log_w)) for log_w in (0.0, -300.0))
    assert 2 * u * steps <= plain <= 3 * u * steps
    assert 2 * u * 2 * math.sqrt(steps) * 300 <= deep - plain <= 3 * u * 2 * math.sqrt(steps) * 300


@pytest.mark.parametrize("steps", [1, 4, 16, 100])
def test_the_margin_covers_every_rounding_of_few_logarithms(steps):
    """A logarithm is the sum of up to ``steps`` terms, each rounded at most 2 sqrt(steps) + 2 times."""
    u, each = 2.0**-53, 2 * math.sqrt(steps)
    charged = _margin_of_sums(np.full(steps, -300.0)) - _margin_of_sums(np.zeros(steps))
    assert 2 * u * (each + 2) * 300 <= charged <= 2.1 * u * (each + 12) * 300
    assert _margin_of_sums(np.append(np.zeros(steps), -math.inf)) == _margin_of_sums(np.zeros(steps + 1))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 10, 99, 100, 101])
def test_running_sums_are_those_of_all_values_before(size):
    values = np.random.default_rng(size).integers(-9, 9, size).astype(float)
    assert np.array_equal(_running_sums(values), np.cumsum(values))


@pytest.mark.parametrize("diameter", [1e-200, 1e200])
def test_extreme_diameters_give_finite_mus(diameter):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mus = LastIterate(1.0, n=5, passes=3, diameter=diameter).place_mus()
    assert np.all(np.isfinite(mus))


@pytest.mark.parametrize("delta", [-0.1, 1.0, 2.0, math.nan])
@pytest.mark.parametrize("secret", Secret)
def test_every_bad_delta_is_refused(delta, secret):
    with pytest.raises(ValueError, match="delta must"):
        LastIterate(4.0, n=5, secret=secret).record_epsilons(delta)


def test_many_huge_mus_have_the_promised_digits():
    mus = np.geomspace(2.1e4, 1e6, 500)
    each = gdp_epsilons(mus[250:251], 1e-5)
    assert gdp_epsilons(mus, 1e-5)[250] == pytest.approx(each[0], rel=1e-8)


@pytest.mark.parametrize(
    ("shifts", "noise", "contraction", "truth"),
    [
        ([0] * 1199 + [1], 1.0, 2.0, 1.0),
        ([0] * 79_999 + [1], 1.0, 1.01, 1.0),
        ([0, 1.7e-162], [1, 1.7e-162], 1.0, 1.0),
        ([1, 1e-200], [1, 1e-200], 1.0, math.sqrt(2)),
    ],
    ids=["doubling", "expanding", "tiny", "tiny beside large"],
)
def test_a_late_shift_that_is_small_beside_early_noise_is_not_forgotten(shifts, noise, contraction, truth):
    assert last_iterate_mu(shifts, noise, contraction) == pytest.approx(truth, rel=1e-8)
    assert last_iterate_mu(shifts, noise, contraction, diameter=1e300) == pytest.approx(truth, rel=1e-8)


def test_steps_of_wildly_different_sizes_hide_nothing_of_the_last():
    event = LastIterate(1.0, n=2, step_size=(1e250, 1e-100))
    assert event.place_mus() == pytest.approx([2.0, 2.0], rel=1e-8)


@pytest.mark.parametrize("contraction", [1.0, 0.999, 0.5, 0.0])
@pytest.mark.parametrize("diameter", [None, 0.3, 4.0])
@pytest.mark.parametrize("passes", [1, 2, 7])
def test_the_last_place_is_the_worst(contraction, diameter, passes):
    event = LastIterate(1.0, n=23, size=2, passes=passes, public=3, contraction=contraction, diameter=diameter)
    assert event.unsampled(REPLACE).mu == event.place_mus().max() == event.place_mus()[-1]


def test_the_worst_of_very_many_units_needs_little_memory(takes_less_than):
    assert epsilon(LastIterate(4.0, n=10**12, passes=3), REPLACE, 1e-5) == pytest.approx(1.993, abs=1e-3)
    assert takes_less_than(1.0, lambda: epsilon(LastIterate(4.0, n=10**12, passes=4), REPLACE, 1e-5))
    for n in (10**7 + 1, 10**9):
        with pytest.raises(ValueError, match="places in the order are too many"):
            LastIterate(4.0, n=n).place_mus()
