"""Calibration to a true-positive rate: the certified rate is at the target, and never above it."""

import numpy as np
import pytest
import riskcal.calibration
from scipy.special import ndtri

from privet.plans import (
    AdaptivePlan,
    CentredPlan,
    Descent,
    FixedSize,
    FullBatch,
    GradientPlan,
    OutputPlan,
    Poisson,
    RandomStop,
    RecursivePlan,
    SecretOrder,
)
from privet.plans.stabilities import DescentStability
from privet.privacy import Adjacency, AttackRate, Budget, Ledger, calibrate, gdp_mu
from privet.privacy.analyses.gaussian import as_exact_budget, rate_budget
from privet.privacy.budget import as_budget, as_budget_or_noise, given_budget
from privet.privacy.events import GaussianRelease, PoissonGaussian

RATE = AttackRate(0.01, 0.05, 1e-6)
RATES = [RATE, AttackRate(0.001, 0.1, 1e-6), AttackRate(0.01, 0.011, 1e-6), AttackRate(0.1, 0.9, 1e-6)]
STABILITY = DescentStability(n=100, lipschitz=1.0, smoothness=1.0, strong_convexity=0.0, step_size=1.0, steps=3)
LAST = {"release": "last", "descent": Descent(1.0, smoothness=1.0)}


def reached(plan, rate=RATE):
    return plan.guarantee().tpr(rate.fpr) / rate.tpr


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("tasks", [1, 3])
def test_full_batches_meet_the_rate_exactly(rate, tasks):
    for adjacency, factor in ((Adjacency.REPLACE_ONE, 2), (Adjacency.ADD_OR_REMOVE, 1)):
        plan = GradientPlan.for_budget(
            rate, sampler=FullBatch(), steps=7, clip_norm=1.0, adjacency=adjacency, tasks=tasks
        )
        mu = ndtri(rate.tpr) - ndtri(rate.fpr)
        assert plan.noise_multiplier == pytest.approx(factor * (7 * tasks) ** 0.5 / mu, rel=1e-5)
        assert plan.delta == rate.delta
        assert 1 - 1e-6 < reached(plan, rate) <= 1


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("sampler", [Poisson(0.02), FixedSize(20, 1000)], ids=["poisson", "fixed"])
def test_random_batches_meet_the_rate_within_one_percent_from_below(rate, sampler):
    plan = GradientPlan.for_budget(rate, sampler=sampler, steps=100, clip_norm=1.0)
    assert 0.99 < reached(plan, rate) <= 1


@pytest.mark.parametrize("sampler", [SecretOrder(200, 1, 10), RandomStop(200, size=10)], ids=["order", "stop"])
def test_secrets_of_last_iterates_meet_the_rate(sampler):
    plan = GradientPlan.for_budget(RATE, sampler=sampler, clip_norm=1.0, **LAST)
    assert 0.99 < reached(plan) <= 1


def test_compositions_of_unequal_releases_meet_the_rate():
    centred = CentredPlan.for_budget(RATE, steps=9, clip_norm=1.0, row_norm=1.0)
    batches = CentredPlan.for_budget(RATE, steps=9, clip_norm=1.0, row_norm=1.0, sampler=FixedSize(10, 100))
    recursive = RecursivePlan.for_budget(
        RATE, sampler=Poisson(0.1), steps=9, clip_norm=1.0, difference_norm=0.2, refresh=0.3
    )
    assert all(0.99 < reached(plan) <= 1 for plan in (centred, batches, recursive))


def test_one_release_of_gaussian_or_pure_noise_meets_the_rate_exactly():
    for plan in (OutputPlan.for_budget(RATE, stability=STABILITY), AdaptivePlan.for_budget(RATE, tasks=2)):
        assert 1 - 1e-6 < reached(plan) <= 1
    pure = OutputPlan.for_budget(AttackRate(0.01, 0.05, 0.0), stability=STABILITY)
    assert 1 - 1e-6 < reached(pure) <= 1
    assert pure.guarantee().epsilon == pytest.approx(np.log(5), rel=1e-6)
    large = AttackRate(0.5, 0.999, 0.0)  # where the line from the other corner is lower
    assert 1 - 1e-6 < reached(OutputPlan.for_budget(large, stability=STABILITY), large) <= 1
    assert large.pure_epsilon == pytest.approx(np.log(0.5 / 0.001), rel=1e-5)


def test_riskcal_finds_the_same_noise_for_poisson_batches():
    theirs = riskcal.calibration.find_noise_multiplier_for_err_rates_dpsgd(
        alpha=0.01, beta=0.95, sample_rate=0.05, num_steps=40, grid_step=0.01, noise_min=0.5, noise_max=2.0
    )
    ours = calibrate(lambda z: PoissonGaussian(z, 0.05, 40), Adjacency.ADD_OR_REMOVE, RATE)
    assert ours == pytest.approx(theirs, rel=0.02)


def test_without_amplification_sampling_does_not_help():
    def event(z):
        return PoissonGaussian(z, 0.05, 40)

    plain = calibrate(event, Adjacency.ADD_OR_REMOVE, RATE, analysis="unsampled")
    assert plain == pytest.approx(40**0.5 / RATE.mu, rel=0.01)
    assert plain >= 40**0.5 / RATE.mu
    with pytest.raises(ValueError, match="analysis='rdp' gives no true-positive rates"):
        calibrate(event, Adjacency.ADD_OR_REMOVE, RATE, analysis="rdp")


def test_an_impossible_rate_names_itself():
    with pytest.raises(ValueError, match=r"at most 0\.9 at a false-positive rate of 0\.1 needs \(almost\) no noise"):
        calibrate(lambda z: PoissonGaussian(z, 1e-5, 3), Adjacency.ADD_OR_REMOVE, AttackRate(0.1, 0.9, 1e-6))
    with pytest.raises(ValueError, match="Gaussian noise gives no pure epsilon guarantee"):
        calibrate(GaussianRelease, Adjacency.REPLACE_ONE, AttackRate(0.01, 0.05, 0.0))


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_budget_of_a_rate_has_its_mu(rate):
    assert gdp_mu(rate_budget(rate)) == pytest.approx(rate.mu, rel=1e-8)
    assert gdp_mu(rate_budget(rate)) <= rate.mu


def test_a_rate_gets_the_default_delta_and_is_refused_where_only_an_epsilon_counts(tmp_path):
    assert as_budget_or_noise(AttackRate(0.01, 0.05), 10**5) == AttackRate(0.01, 0.05, 1e-7)
    assert given_budget(AttackRate(0.01, 0.05), None, None, None, 10**5).delta == 1e-7
    assert as_exact_budget(Budget(1.0, 1e-6)) == Budget(1.0, 1e-6)
    for refused in (as_budget, lambda rate: Ledger(tmp_path / "ledger", rate)):
        with pytest.raises(ValueError, match=r"do not determine the rates of attacks. Give a Budget"):
            refused(RATE)
    with pytest.raises(ValueError, match="this plan has no delta"):
        rate_budget(AttackRate(0.01, 0.05))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0.05, 0.01), r"larger true-positive rate, both between 0 and 1, got \(0.05, 0.01\)"),
        ((0.05, 0.05), "larger true-positive rate"),
        ((0.0, 0.05), "both between 0 and 1"),
        ((0.05, 1.0), "both between 0 and 1"),
        ((0.05, float("inf")), "must be finite"),
        (("a", 0.1), "must be a number"),
        ((0.01, 0.05, 1.0), "delta must lie in"),
    ],
)
def test_impossible_rates_are_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        AttackRate(*fields)
