import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from privet.audit import Distinguished, distinguish, from_outputs
from privet.audit.distinguish import summary
from privet.audit.pairs import label_flip
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import FullBatch, GradientPlan
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, gaussian_sigma, gdp_mu
from privet.privacy.analyses.gaussian import gdp_epsilon
from privet.privacy.events import ApproximateRelease, GaussianRelease, PoissonGaussian, PureRelease
from privet.solvers import Problem, Run, noisy_gradient_descent

DELTA = 1e-5


def claim(event, delta=DELTA, adjacency=Adjacency.REPLACE_ONE):
    return Guarantee.of(event, adjacency, delta, released="numbers")


def gaussians(mu, runs, seed, d=1):
    """Return outputs of a Gaussian mechanism on two datasets, all runs at once."""
    firsts, seconds = np.random.default_rng(seed).normal(size=(2, runs, d))
    seconds[:, 0] += mu
    return firsts, seconds


# ---------------------------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize(("mu", "runs", "d"), [(0.26, 1000, 1), (0.26, 300, 5), (0.7, 1000, 1), (2.5, 1000, 3)])
def test_the_correct_gaussian_mechanism_is_rarely_flagged(mu, runs, d):
    guarantee = claim(GaussianRelease(mu))
    alarms = sum(from_outputs(*gaussians(mu, runs, seed, d), guarantee=guarantee).is_violation for seed in range(200))
    assert alarms <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_a_mechanism_that_reveals_almost_nothing_is_rarely_flagged():
    mu = 0.01
    guarantee = claim(GaussianRelease(mu))
    alarms = sum(from_outputs(*gaussians(mu, 1000, seed), guarantee=guarantee).is_violation for seed in range(200))
    assert alarms <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


@pytest.mark.parametrize(("mu", "runs", "cut"), [(1.5, 200, 3.0), (0.7, 800, 3.0), (0.7, 400, 0.0)])
def test_a_valid_mechanism_that_releases_one_bit_is_rarely_flagged(mu, runs, cut):
    """A bit that is rarely 1 is often constant in all runs on one dataset, which proves little."""
    guarantee, generator = claim(GaussianRelease(mu)), np.random.default_rng(1)
    alarms = 0
    for _ in range(60):
        bits = [(generator.random(runs) < ndtr(shift - cut)).astype(float) for shift in (0.0, mu)]
        alarms += from_outputs(*bits, guarantee=guarantee).is_violation
    assert alarms <= 60 * 0.05 + 3 * math.sqrt(60 * 0.05 * 0.95)


def test_the_correct_laplace_mechanism_is_rarely_flagged():
    guarantee, alarms = claim(PureRelease(1.0), 0.0), 0
    for seed in range(200):
        firsts, seconds = np.random.default_rng(seed).laplace(size=(2, 600))
        alarms += from_outputs(firsts, seconds + 1, guarantee=guarantee).is_violation
    assert alarms <= 200 * 0.05


def test_the_correct_sampled_mechanism_is_rarely_flagged():
    guarantee = claim(PoissonGaussian(1.0, 0.3, 1), adjacency=Adjacency.ADD_OR_REMOVE)
    alarms = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        firsts, seconds = generator.normal(size=(2, 600))
        alarms += from_outputs(firsts, seconds + (generator.random(600) < 0.3), guarantee=guarantee).is_violation
    assert alarms <= 60 * 0.05 + 3 * math.sqrt(60 * 0.05 * 0.95)


# ------------------------------------------------------------------------------------------------------------- power


def test_the_bound_reaches_85_percent_for_the_gaussian_mechanism():
    budget = Budget(1.0, DELTA)
    mu = 1 / gaussian_sigma(1.0, budget)
    assert mu == pytest.approx(gdp_mu(budget), rel=1e-6)
    guarantee = claim(GaussianRelease(mu))
    audits = [from_outputs(*gaussians(mu, 20_000, seed), guarantee=guarantee) for seed in range(6)]
    assert all(audit.form.startswith("betting") for audit in audits)
    assert np.mean([audit.lower_bound for audit in audits]) >= 0.85
    assert np.mean([audit.is_violation for audit in audits]) <= 0.2


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0, 4.0])
def test_gaussians_are_measured_at_all_budgets(mu):
    audit = from_outputs(*gaussians(mu, 20_000, 0), guarantee=claim(GaussianRelease(mu)))
    assert 0.75 * gdp_epsilon(mu, DELTA) <= audit.lower_bound <= 1.02 * gdp_epsilon(mu, DELTA)


def test_the_bound_reaches_80_percent_for_noisy_descent_on_the_worst_pair():
    plan = GradientPlan.for_budget(Budget(2.0, DELTA), sampler=FullBatch(), steps=3, clip_norm=0.05)
    first, second = (Problem(Logistic(), L2(0.0), BoundedRows(X, 1.0), y.astype(float)) for X, y in label_flip(2, 1))

    def mechanism(problem, source):
        return noisy_gradient_descent(problem, Run(replace(plan, delta=DELTA), source), step_size=0.5).weights

    guarantee = plan.guarantee(DELTA)
    audit = distinguish(mechanism, first, second, guarantee=guarantee, runs=10_000, source=NoiseSource(0))
    assert not audit.is_violation
    assert audit.lower_bound >= 0.8 * guarantee.epsilon
    assert audit.runs == 10_000


@pytest.mark.parametrize(("epsilon", "share"), [(0.5, 0.7), (1.0, 0.8), (2.0, 0.8)])
def test_pure_epsilon_is_approached(epsilon, share):
    source = NoiseSource(1)
    firsts = np.array([source.add_k_norm(np.zeros(1), 1 / epsilon) for _ in range(20_000)])
    seconds = np.array([source.add_k_norm(np.ones(1), 1 / epsilon) for _ in range(20_000)])
    audit = from_outputs(firsts, seconds, guarantee=claim(PureRelease(epsilon), 0.0))
    assert share * epsilon <= audit.lower_bound <= epsilon
    assert audit.form == "error rates (Clopper-Pearson)"


def test_a_claim_of_one_epsilon_and_delta_is_approached():
    """Randomised response that reveals its input with probability delta."""
    epsilon, delta, runs = 1.0, 0.05, 20_000
    generator = np.random.default_rng(0)
    outputs = []
    for bit in (0, 1):
        answers = np.where(generator.random(runs) < 1 / (1 + math.exp(-epsilon)), bit, 1 - bit).astype(float)
        answers[generator.random(runs) < delta] = 3 * bit - 1
        outputs.append(answers)
    audit = from_outputs(*outputs, guarantee=claim(ApproximateRelease(epsilon, delta), delta))
    assert 0.8 * epsilon <= audit.lower_bound <= epsilon


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_noise_that_depends_on_the_data_is_found(factor, d):
    firsts, seconds = np.random.default_rng(0).normal(size=(2, 2000, d))
    audit = from_outputs(firsts, factor * seconds, guarantee=claim(GaussianRelease(0.5)))
    assert audit.is_violation
    assert audit.verdict.startswith("VIOLATION")


def test_a_difference_hidden_among_many_numbers_is_found():
    audit = from_outputs(*gaussians(2.0, 2000, 0, d=50), guarantee=claim(GaussianRelease(1.0)))
    assert audit.is_violation


def test_outputs_without_noise_are_found():
    audit = from_outputs(np.zeros(200), np.ones(200), guarantee=claim(GaussianRelease(3.0)))
    assert audit.is_violation
    assert from_outputs(np.zeros(200), np.ones(200), guarantee=claim(PureRelease(3.0), 0.0)).is_violation


def test_outputs_that_never_differ_prove_nothing():
    for guarantee in (claim(GaussianRelease(0.1)), claim(PureRelease(0.1), 0.0)):
        audit = from_outputs(np.zeros(200), np.zeros(200), guarantee=guarantee)
        assert audit.lower_bound == 0
        assert not audit.is_violation


def test_too_little_noise_is_found_and_enough_is_not():
    mu = gdp_mu(Budget(1.0, DELTA))
    assert from_outputs(*gaussians(2 * mu, 2000, 0), guarantee=claim(GaussianRelease(mu))).is_violation
    assert not from_outputs(*gaussians(mu, 2000, 0), guarantee=claim(GaussianRelease(mu))).is_violation


def test_more_confidence_proves_less():
    outputs, guarantee = gaussians(1.0, 2000, 0), claim(GaussianRelease(1.0))
    bounds = [from_outputs(*outputs, guarantee=guarantee, confidence=c).lower_bound for c in (0.8, 0.95, 0.999)]
    assert bounds == sorted(bounds, reverse=True)


# --------------------------------------------------------------------------------------------------------- the game


def noisy_sum(data, source):
    return source.add_gaussian(np.full((2, 1), np.sum(data)), 1.0)


def test_a_seeded_game_repeats_itself_and_an_unseeded_one_does_not():
    options = {"guarantee": claim(GaussianRelease(1.0)), "runs": 200}
    seeded = [distinguish(noisy_sum, [0.0], [1.0], source=NoiseSource(3), **options) for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert distinguish(noisy_sum, [0.0], [1.0], **options) != seeded[0]


def test_progress_is_reported_and_datasets_alternate():
    seen, calls = [], []

    def mechanism(data, source):
        seen.append(data)
        return source.add_gaussian(np.zeros(1), 1.0)

    audit = distinguish(
        mechanism, "a", "b", guarantee=claim(GaussianRelease(1.0)), runs=100, progress=lambda *at: calls.append(at)
    )
    assert seen == ["a", "b"] * 100
    assert calls == [(done, 100) for done in range(1, 101)]
    assert audit.runs == 100


def test_distinguish_and_from_outputs_agree():
    guarantee = claim(GaussianRelease(1.0))
    played = distinguish(noisy_sum, [0.0], [1.0], guarantee=guarantee, runs=300, source=NoiseSource(5), name="sum")
    source = NoiseSource(5)
    runs = [[noisy_sum(data, source) for data in ([0.0], [1.0])] for _ in range(300)]
    given = from_outputs([a for a, _ in runs], [b for _, b in runs], guarantee=guarantee, name="sum")
    assert played == given


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("runs", [0, 1, 99, -5, 2.5])
def test_too_few_runs_are_refused_before_any_is_made(runs):
    def never(data, source):
        raise AssertionError

    with pytest.raises(ValueError, match="runs"):
        distinguish(never, 0, 1, guarantee=claim(GaussianRelease(1.0)), runs=runs)


@pytest.mark.parametrize("outputs", [np.zeros(99), np.zeros((500, 0)), []])
def test_too_few_or_empty_outputs_are_refused(outputs):
    with pytest.raises(ValueError):
        from_outputs(outputs, np.zeros(500), guarantee=claim(GaussianRelease(1.0)))
    with pytest.raises(ValueError):
        from_outputs(np.zeros(500), outputs, guarantee=claim(GaussianRelease(1.0)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_outputs_are_refused(bad):
    firsts, seconds = gaussians(1.0, 200, 0)
    seconds[77] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        from_outputs(firsts, seconds, guarantee=claim(GaussianRelease(1.0)))


@pytest.mark.parametrize("confidence", [0.0, -1.0, 1.0, 1.01, math.nan])
def test_impossible_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        from_outputs(*gaussians(1.0, 200, 0), guarantee=claim(GaussianRelease(1.0)), confidence=confidence)


# ---------------------------------------------------------------------------------------------------------- reports


def test_the_report_names_claim_bound_and_runs():
    audit = from_outputs(*gaussians(1.0, 1000, 0), guarantee=claim(GaussianRelease(1.0)), name="a sum")
    assert audit.verdict == "consistent"
    text = str(audit)
    assert text.startswith("a sum: consistent\n")
    assert f"claimed: epsilon {audit.claimed:.4g} at delta 1e-05" in text
    assert "1,000 runs per dataset" in text
    assert f"epsilon at least {audit.lower_bound:.4g}" in text


def test_a_violation_is_spelled_out():
    audit = from_outputs(*gaussians(3.0, 1000, 0), guarantee=claim(GaussianRelease(1.0)))
    assert audit.is_violation
    assert audit.verdict.startswith("VIOLATION: epsilon is above")
    assert f"{audit.claimed:.4g} is claimed" in str(audit)


def test_a_result_can_be_written_as_json():
    audit = from_outputs(*gaussians(1.0, 1000, 0), guarantee=claim(GaussianRelease(1.0)), name="a sum")
    fields = json.loads(json.dumps(audit.to_dict(), allow_nan=False))
    assert fields["name"] == "a sum"
    assert fields["verdict"] == "consistent"
    assert fields["is_violation"] is False
    assert fields["lower_bound"] == audit.lower_bound
    assert fields["runs"] == 1000


def test_infinite_bounds_become_none_in_json():
    audit = Distinguished(1.0, DELTA, math.inf, 0.95, 100, "error rates", 1.0, 0.0)
    assert audit.is_violation
    assert json.loads(json.dumps(audit.to_dict(), allow_nan=False))["lower_bound"] is None


def test_a_summary_has_one_line_per_audit():
    audit = from_outputs(*gaussians(1.0, 200, 0), guarantee=claim(GaussianRelease(1.0)))
    lines = summary({"one": audit, "another": audit}).splitlines()
    assert [line.split()[0] for line in lines] == ["one", "another"]
    assert all("consistent" in line for line in lines)
    assert summary({}) == ""
