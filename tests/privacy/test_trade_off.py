"""What attacks can achieve, compared with likelihood-ratio tests on explicit laws, closed forms and riskcal."""

import math
from itertools import pairwise

import numpy as np
import pytest
import riskcal.analysis
from dp_accounting.pld import privacy_loss_distribution as pld
from mpmath import mp, mpf
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from privet.plans import FixedSize, FullBatch, GradientPlan, Poisson
from privet.privacy import Adjacency, Guarantee, Unit, compose
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.analyses.profile import delta
from privet.privacy.analyses.trade_off import trade_off
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    NearlyGaussian,
    Noiseless,
    PoissonGaussian,
    PureRelease,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE, Adjacency.REPLACE_ONE
RATES = np.concatenate((np.geomspace(1e-6, 0.01, 9), np.linspace(0.02, 0.98, 25), 1 - np.geomspace(0.01, 1e-6, 9)))
MIXED = Composition((PureRelease(0.5), GaussianRelease(0.7), ApproximateRelease(0.1, 1e-7)))
EVENTS = [
    (GaussianRelease(1.0), REPLACE),
    (NearlyGaussian(1.0, 1e-10), REPLACE),
    (PureRelease(1.0), ADD),
    (PureRelease(0.2, 12), REPLACE),
    (ApproximateRelease(1.0, 1e-7, 3), REPLACE),
    (PoissonGaussian(0.8, 0.02, 300), ADD),
    (FixedSizeGaussian(2.0, 500, 10, 200), REPLACE),
    (LastIterate(4.0, 40), REPLACE),
    (LastIterate(3.0, 40, secret="stop"), REPLACE),
    (LastIterate(3.0, 40, secret="order", runs=2), REPLACE),
    (MIXED, REPLACE),
]
NAMES = [type(event).__name__ for event, _ in EVENTS]
each_event = pytest.mark.parametrize(("event", "adjacency"), EVENTS, ids=NAMES)


def stated(event, adjacency=REPLACE, at=1e-6, unit=Unit.RECORD):
    return Guarantee.of(event, adjacency, at, released="weights", unit=unit)


def best_test(null, other, rates):
    """Return the true-positive rates of likelihood-ratio tests between two discrete laws, the best that there are."""
    order = np.argsort(-(other / np.maximum(null, 1e-320)))
    false, true = (np.concatenate(([0.0], np.cumsum(law[order]))) for law in (null, other))
    return np.interp(rates, false, true)


def concave_hull(rates, *curves):
    """Return the least concave function above some curves, at the same rates, which include 0 and 1."""
    height = np.max(curves, axis=0)
    kept = [0]
    for place in range(1, rates.size):
        while len(kept) > 1:
            (a, b), c = kept[-2:], place
            if (height[b] - height[a]) * (rates[c] - rates[a]) > (height[c] - height[a]) * (rates[b] - rates[a]):
                break
            kept.pop()
        kept.append(place)
    return np.interp(rates, rates[kept], height[kept])


def poisson_laws(sigma, rate, cells):
    """Return the laws of a noisy sum over a Poisson batch without and with a unit, on fine cells."""
    edges = np.concatenate(([-np.inf], np.linspace(-8 * sigma, 1 + 8 * sigma, cells), [np.inf]))
    without, with_unit = np.diff(ndtr(edges / sigma)), np.diff(ndtr((edges - 1) / sigma))
    return without, (1 - rate) * without + rate * with_unit


# --- the rates of attacks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("fpr", [1e-9, 0.01, 0.5, 0.999])
def test_gaussian_rates_are_exact_and_never_below_the_truth(mu, fpr):
    with mp.workdps(40):
        quantile = mp.sqrt(2) * mp.erfinv(2 * mpf(fpr) - 1)
        exact = mp.erfc(-(quantile + mpf(mu)) / mp.sqrt(2)) / 2
        found = stated(GaussianRelease(mu)).tpr(fpr)
        assert exact <= found <= min(exact * (1 + mpf(10) ** -9), 1)


def test_a_pure_release_allows_no_more_than_randomised_response():
    guarantee = stated(PureRelease(1.0), at=0.0)
    assert guarantee.tpr(0.01) == pytest.approx(math.e * 0.01, rel=1e-8)
    assert guarantee.tpr(0.9) == pytest.approx(1 - math.exp(-1) * 0.1, rel=1e-8)
    assert guarantee.tpr(0.0) == 0.0
    assert guarantee.tpr(0.01) >= math.e * 0.01


@pytest.mark.parametrize("times", [1, 2, 10])
def test_repeated_randomised_response_is_bounded_by_its_best_test(times):
    """The number of true answers is sufficient, and binomial under either dataset."""
    share = math.e**0.4 / (1 + math.e**0.4)
    answers = np.arange(times + 1)
    null, other = binom.pmf(answers, times, 1 - share), binom.pmf(answers, times, share)
    exact = best_test(null, other, RATES)
    guarantee = stated(PureRelease(0.4, times))
    assert np.all(guarantee.tpr(RATES) >= exact)
    assert np.all(guarantee.tpr(RATES) <= exact * 1.02)
    best = 0.5 + np.abs(null - other).sum() / 4
    assert best <= guarantee.best_guess <= best * 1.005


@pytest.mark.parametrize(("sigma", "rate"), [(0.6, 0.2), (1.5, 0.05)])
@pytest.mark.parametrize("steps", [1, 2])
def test_poisson_batches_are_bounded_by_the_best_tests_in_both_directions(sigma, rate, steps):
    without, with_unit = poisson_laws(sigma, rate, 40_000 if steps == 1 else 700)
    if steps == 2:
        without, with_unit = (np.outer(law, law).ravel() for law in (without, with_unit))
    rates = np.concatenate(([0.0], np.geomspace(1e-6, 1e-2, 300), np.linspace(0.011, 1.0, 600)))
    added, removed = best_test(without, with_unit, rates), best_test(with_unit, without, rates)
    guarantee = stated(PoissonGaussian(sigma, rate, steps), ADD)
    found = guarantee.tpr(rates)
    assert np.all(found[1:] >= np.maximum(added, removed)[1:])  # At 0, all cells without rounding errors would count.
    assert np.any(added > removed * 1.02)  # Each direction is worse somewhere, so that neither can be left out.
    assert np.any(removed > added * 1.001)
    assert np.all(found <= concave_hull(rates, added, removed) * 1.01 + 1e-9)
    advantage = np.maximum(with_unit - without, 0.0).sum()
    assert (1 + advantage) / 2 <= guarantee.best_guess <= (1 + advantage) / 2 * 1.001


def test_fixed_size_batches_are_bounded_by_the_attack_on_one_replaced_record():
    """All records contribute +C. One is replaced by -C, which moves the sum by 2C if it is drawn."""
    noise, share = 3.0, 0.25
    edges = np.concatenate(([-np.inf], np.linspace(-30, 30, 40_000), [np.inf]))
    null, moved = np.diff(ndtr((edges - 1) / noise)), np.diff(ndtr((edges + 1) / noise))
    other = (1 - share) * null + share * moved
    found = stated(FixedSizeGaussian(noise, 4, 1, 1)).tpr(RATES)
    exact = np.maximum(best_test(null, other, RATES), best_test(other, null, RATES))
    assert np.all(found >= exact)
    assert np.all(found <= exact * 1.02)


def test_replacing_a_record_moves_a_sum_twice_as_far_as_removing_it():
    for adjacency, factor in ((REPLACE, 2), (ADD, 1)):
        options = {} if adjacency is REPLACE else {"public_n": 100}
        plan = GradientPlan(FullBatch(), 9, 1.0, 12.0, adjacency, **options)
        mu = factor * 3 / 12
        assert plan.guarantee(1e-6).mu == pytest.approx(mu, rel=1e-12)
        assert plan.guarantee(1e-6).tpr(0.01) == pytest.approx(ndtr(ndtri(0.01) + mu), rel=1e-9)
        assert plan.guarantee(1e-6).best_guess == pytest.approx(ndtr(mu / 2), rel=1e-9)


def test_a_plan_with_random_batches_has_the_rates_of_its_event():
    for sampler, adjacency in ((Poisson(0.1), ADD), (FixedSize(10, 100), REPLACE)):
        plan = GradientPlan(sampler, 20, 1.0, 2.0)
        assert plan.adjacency is adjacency
        assert plan.guarantee(1e-6).tpr(0.01) == trade_off(plan.event, adjacency).tpr(np.array([0.01]))[0] < 0.5


def test_a_total_variation_distance_raises_both_rates():
    guarantee = stated(NearlyGaussian(1.0, 1e-3), at=0.01)
    assert guarantee.tpr(0.01) == pytest.approx(ndtr(ndtri(0.011) + 1) + 1e-3, rel=1e-9)
    assert guarantee.tpr(0.0) == pytest.approx(ndtr(ndtri(1e-3) + 1) + 1e-3, rel=1e-9)
    assert guarantee.tpr(1.0) == 1.0
    assert guarantee.best_guess == pytest.approx(ndtr(0.5) + 1e-3, rel=1e-9)


def test_an_approximate_release_may_reveal_everything_with_probability_delta():
    guarantee = stated(ApproximateRelease(1.0, 0.003), at=0.01)
    assert guarantee.tpr(0.0) == pytest.approx(0.003, rel=1e-8)
    assert guarantee.tpr(0.01) == pytest.approx(math.e * 0.01 + 0.003, rel=0.002)
    assert guarantee.tpr(0.9975) == 1.0


def test_nothing_is_promised_without_noise_and_nothing_is_revealed_by_nothing():
    public = stated(Composition((Noiseless(), GaussianRelease(1.0))))
    assert (public.tpr(0.0), public.tpr(0.01), public.best_guess, public.mu) == (1.0, 1.0, 1.0, math.inf)
    empty = stated(Composition(()))
    assert empty.tpr(0.01) == pytest.approx(0.01, rel=1e-9)
    assert empty.best_guess == pytest.approx(0.5, rel=1e-12)
    assert empty.mu == 0.0


@each_event
def test_every_certified_epsilon_and_delta_is_above_the_rates(event, adjacency):
    """The lines of an (epsilon, delta) bound the curve, in either direction."""
    guarantee = stated(event, adjacency)
    found = guarantee.tpr(RATES)
    for at in (1e-5, 1e-3, 0.03):
        e = guarantee.epsilon_at(at)
        line = np.minimum(np.exp(e) * RATES + at, 1 - np.exp(-e) * (1 - RATES - at))
        assert np.all(found <= np.minimum(line, 1) * (1 + 2e-3))


@each_event
def test_rates_are_concave_symmetric_and_no_worse_than_guessing(event, adjacency):
    rates = np.linspace(0.0, 1.0, 401)
    found = stated(event, adjacency).tpr(rates)
    assert np.all(np.diff(found, 2) <= 1e-8)
    assert np.all(found >= rates)
    assert found[-1] == 1.0
    swapped = np.interp(1 - found, rates, found)  # An attack may as well call the other dataset a find.
    assert np.all(swapped <= 1 - rates + 2e-4)


@each_event
def test_the_best_guess_is_the_largest_advantage(event, adjacency):
    guarantee = stated(event, adjacency)
    rates = np.linspace(0.0, 1.0, 20_001)
    largest = float(np.max(guarantee.tpr(rates) - rates))
    assert guarantee.best_guess == pytest.approx((1 + largest) / 2, rel=1e-5)
    assert guarantee.best_guess == pytest.approx((1 + delta(event, adjacency, 0.0)) / 2, rel=1e-3)
    assert guarantee.best_guess <= (1 + delta(event, adjacency, 0.0)) / 2 * (1 + 1e-4)


def test_clients_are_protected_like_records():
    event = PoissonGaussian(1.0, 0.1, 10)
    assert stated(event, ADD, unit=Unit.CLIENT).tpr(0.01) == stated(event, ADD).tpr(0.01)


def test_a_composition_is_worse_than_its_parts():
    one, other = stated(PoissonGaussian(1.0, 0.1, 10), ADD), stated(PureRelease(0.5), ADD)
    assert compose([one, other]).tpr(0.01) > max(one.tpr(0.01), other.tpr(0.01)) * 1.2


@pytest.mark.parametrize("fpr", [-0.1, 1.1, math.nan, math.inf, "0.1", True, np.array([0.1, math.nan]), None])
def test_a_false_positive_rate_outside_0_to_1_is_an_error(fpr):
    with pytest.raises(ValueError, match=r"fpr must lie in \[0, 1\]"):
        stated(GaussianRelease(1.0)).tpr(fpr)


def test_an_array_of_rates_gives_an_array_and_a_number_a_number():
    guarantee = stated(GaussianRelease(1.0))
    assert type(guarantee.tpr(0.01)) is float
    assert guarantee.tpr(np.array([[0.01], [0.1]])).shape == (2, 1)


# --- mu -------------------------------------------------------------------------------------------------------------


def test_mu_of_randomised_response_touches_its_corner():
    guarantee = stated(PureRelease(1.0), at=0.0)
    assert guarantee.mu == pytest.approx(2 * ndtri(math.e / (1 + math.e)), rel=1e-8)
    assert guarantee.mu >= 2 * ndtri(math.e / (1 + math.e))


@each_event
def test_no_rate_is_above_that_of_mu_by_more_than_delta_and_no_smaller_mu_will_do(event, adjacency):
    guarantee = stated(event, adjacency)
    fpr, tpr = guarantee.trade_off(2000)
    rates = np.unique(np.concatenate((RATES, fpr, 1 - fpr, tpr)))

    def excess(mu):
        return float(np.max(guarantee.tpr(rates) - ndtr(ndtri(rates) + mu))) - guarantee.delta

    assert excess(guarantee.mu) <= 1e-9
    if type(event) is not GaussianRelease:
        assert excess(guarantee.mu * 0.99) > 1e-9


def test_mu_is_infinite_where_more_than_delta_is_revealed_entirely():
    assert stated(ApproximateRelease(1.0, 1e-5), at=1e-6).mu == math.inf
    assert stated(ApproximateRelease(1.0, 1e-5), at=1e-5).mu < 1.3
    assert stated(PoissonGaussian(1.0, 0.1, 10), ADD, at=0.0).mu > 2  # the tail is not Gaussian


# --- the drawn curve ------------------------------------------------------------------------------------------------


@each_event
@pytest.mark.parametrize("points", [4, 30, 200])
def test_the_drawn_curve_is_a_bound_everywhere_and_close(event, adjacency, points):
    guarantee = stated(event, adjacency)
    fpr, tpr = guarantee.trade_off(points)
    assert 3 <= fpr.size == tpr.size <= points + 8
    assert (fpr[0], fpr[-1], tpr[-1]) == (0.0, 1.0, 1.0)
    assert all(a <= b for values in (fpr, tpr) for a, b in pairwise(values))
    drawn = np.interp(RATES, fpr, tpr)
    assert np.all(drawn >= guarantee.tpr(RATES) * (1 - 1e-9))
    if points == 200:
        assert np.all(drawn <= guarantee.tpr(RATES) * 1.02)


def test_a_curve_of_no_points_is_an_error():
    with pytest.raises(ValueError, match="points must be at least 4, got 2"):
        stated(GaussianRelease(1.0)).trade_off(2)


# --- the profile ----------------------------------------------------------------------------------------------------


@each_event
def test_delta_is_the_inverse_of_epsilon(event, adjacency):
    for at in (1e-5, 1e-2):
        found = delta(event, adjacency, epsilon(event, adjacency, at))
        assert found <= at * (1 + 1e-6)
        is_at_an_end = epsilon(event, adjacency, at) in (0.0, epsilon(event, adjacency, at / 2))
        assert is_at_an_end or found >= at * 0.97


def test_the_profile_of_small_deltas_comes_from_renyi_divergences():
    event = PoissonGaussian(1.0, 0.01, 1000)
    e = epsilon(event, ADD, 1e-14, analysis="rdp")
    assert delta(event, ADD, e) <= 1e-14 * (1 + 1e-6)
    loud = PoissonGaussian(0.02, 0.5, 3)  # whose losses are out of reach of loss distributions
    assert delta(loud, ADD, epsilon(loud, ADD, 1e-5)) <= 1e-5 * (1 + 1e-6)


def test_a_unit_that_is_hardly_ever_used_is_hardly_ever_revealed():
    assert delta(PoissonGaussian(0.01, 1e-7, 3), ADD, 0.0) == pytest.approx(3e-7, rel=1e-6)


def test_the_profile_counts_approximation_errors_at_both_datasets():
    plain, rough = GaussianRelease(1.0), NearlyGaussian(1.0, 1e-7)
    assert delta(rough, REPLACE, 2.0) == pytest.approx(delta(plain, REPLACE, 2.0) + 1e-7 * (1 + math.exp(2)), rel=1e-12)
    assert delta(rough, REPLACE, 900.0) == 1.0
    assert delta(Noiseless(), REPLACE, 5.0) == 1.0
    with pytest.raises(ValueError, match="epsilon must not be negative"):
        delta(plain, REPLACE, -1.0)
    with pytest.raises(ValueError, match="accounted for under add-or-remove"):
        delta(PoissonGaussian(1.0, 0.1, 10), REPLACE, 1.0)


# --- an independent library -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.05, 100), (0.7, 0.01, 30), (2.0, 1.0, 4)])
def test_riskcal_finds_the_same_rates(noise, rate, steps):
    theirs = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-3, sampling_prob=rate)
    theirs = theirs.self_compose(steps)
    alphas = np.array([0.001, 0.01, 0.1, 0.3, 0.6])
    guarantee = stated(PoissonGaussian(noise, rate, steps), ADD)
    expected = 1 - riskcal.analysis.get_beta_from_pld(theirs, alpha=alphas)
    assert guarantee.tpr(alphas) == pytest.approx(expected, rel=0.02)
    assert (guarantee.best_guess * 2 - 1) == pytest.approx(riskcal.analysis.get_advantage_from_pld(theirs), rel=0.02)


def test_riskcal_agrees_on_gaussian_and_approximate_releases():
    expected = 1 - riskcal.analysis.get_beta_from_gdp(0.8, RATES)
    assert stated(GaussianRelease(0.8)).tpr(RATES) == pytest.approx(expected, rel=1e-8)
    expected = 1 - riskcal.analysis.get_beta_from_adp(0.8, 0.0, RATES)
    assert stated(PureRelease(0.8)).tpr(RATES) == pytest.approx(expected, rel=1e-8)
