import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtr, ndtri

from privet import PrivateLogisticRegression
from privet.audit import one_run, one_run_linear
from privet.audit.gaussian_guesses import least_total, mu_from_guesses
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.privacy.analyses.gaussian import gdp_epsilon

DELTA = 1e-5


def smallest_refuting(mu, guesses, canaries, confidence=0.95):
    """Return the smallest number of correct guesses that refutes mu, or more than ``guesses`` if none does."""
    low, high = 0, guesses + 1
    while low < high:
        middle = (low + high) // 2
        refutes = middle <= guesses and mu_from_guesses(middle, guesses, canaries, confidence) > mu
        low, high = (low, middle) if refutes else (middle + 1, high)
    return low


def typical_scores(mu, m):
    """Return quantiles of the scores of a Gaussian mechanism, half of them for coins that came up "in"."""
    levels = ndtri((np.arange(m // 2) + 0.5) / (m // 2))
    return np.concatenate([levels + mu / 2, levels - mu / 2]), np.repeat([True, False], m // 2)


# ----------------------------------------------------------------------------------------------------------- validity


@pytest.mark.parametrize(("guesses", "canaries"), [(1, 1), (5, 5), (5, 12), (40, 40)])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_what_randomised_response_does_is_never_called_impossible(guesses, canaries, epsilon):
    for correct in range(1, guesses + 1):
        chance = np.array([stats.binom.sf(correct - 1, guesses, expit(epsilon))])
        assert least_total(chance, correct, guesses, canaries, lambda x: math.exp(-epsilon) * x) <= 1 + 1e-9


@pytest.mark.parametrize(("mu", "m"), [(0.27, 100), (0.27, 600), (1.0, 100), (2.5, 100)])
def test_independent_gaussian_scores_refute_their_mu_no_more_often_than_stated(mu, m):
    correct = smallest_refuting(mu, m, m)
    assert stats.binom.sf(correct - 1, m, ndtr(mu / 2)) <= 0.05


@pytest.mark.parametrize(("mu", "m"), [(0.27, 100), (0.27, 600), (1.0, 100), (2.5, 100)])
def test_the_worst_training_refutes_its_mu_no_more_often_than_stated(mu, m):
    """All coins share how clearly they are revealed, so all guesses are good in the same runs.

    The magnitude of one Gaussian score is released, and each coin by randomised response with the odds of that
    magnitude. For each single coin this is the Gaussian mechanism, but the number of correct guesses varies far more
    than that of independent coins.
    """
    magnitudes = np.linspace(0, 10 + mu, 20_001)
    density = np.exp(-((magnitudes - mu / 2) ** 2) / 2) + np.exp(-((magnitudes + mu / 2) ** 2) / 2)
    chances = expit(mu * magnitudes)
    correct = smallest_refuting(mu, m, m)
    wrong = np.average(stats.binom.sf(correct - 1, m, chances), weights=density)
    assert wrong <= 0.05
    if mu < 2:
        assert wrong >= 0.005  # the bound is not far from the best possible
        independent = stats.binom.isf(0.05, m, ndtr(mu / 2)) + 1  # the wrong limit of an attacker who assumes this
        assert np.average(stats.binom.sf(independent - 1, m, chances), weights=density) > 0.06


@pytest.mark.parametrize("guesses", [20, 66])
def test_the_most_extreme_scores_refute_their_mu_no_more_often_than_stated(guesses):
    mu, m, audits = 0.27, 200, 4000
    rng = np.random.default_rng(guesses)
    coins = rng.random((audits, m)) < 0.5
    order = np.argsort(rng.normal(size=(audits, m)) + mu * coins, axis=1)
    hits = np.take_along_axis(coins, order, axis=1)
    correct = hits[:, m - guesses // 2 :].sum(axis=1) + (~hits[:, : guesses // 2]).sum(axis=1)
    wrong = int((correct >= smallest_refuting(mu, guesses, m)).sum())
    assert wrong <= stats.binom.ppf(0.9999, audits, 0.05)


# -------------------------------------------------------------------------------------------------------------- power


@pytest.mark.parametrize("m", [1000, 4000])
def test_the_gaussian_form_proves_more_than_the_approximate_form(m):
    scores, coins = typical_scores(gdp_mu(Budget(1.0, DELTA)), m)
    gaussian = one_run(scores, coins, delta=DELTA, form="gaussian")
    assert gaussian.guesses == m // 5
    for guesses in (None, m // 5, m // 3):  # whatever number of guesses the other form is given
        approximate = one_run(scores, coins, delta=DELTA, guesses=guesses)
        assert 0 < 1.3 * approximate.lower_bound <= gaussian.lower_bound <= 1.0


def test_more_correct_guesses_and_less_confidence_prove_more():
    bounds = [mu_from_guesses(correct, 100, 300, 0.95) for correct in (50, 60, 80, 100)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0 < bounds[1]
    assert mu_from_guesses(80, 100, 300, 0.99) < bounds[2] < mu_from_guesses(80, 100, 300, 0.8)


def test_the_bound_is_where_the_total_reaches_one():
    mu = mu_from_guesses(70, 100, 150, 0.9)
    low, high = (
        float(least_total(np.array([0.1]), 70, 100, 150, lambda x, at=at: ndtr(ndtri(x) - at))[0])
        for at in (mu - 1e-3, mu + 1e-3)
    )
    assert low > 1 > high


def test_epsilon_is_that_of_mu_at_delta():
    scores, coins = typical_scores(2.0, 400)
    found = one_run(scores, coins, delta=DELTA, guesses=400, form="gaussian", claimed=20.0)
    assert found.form == "gaussian"
    assert found.lower_bound == gdp_epsilon(mu_from_guesses(found.correct, 400, 400, 0.95), DELTA)
    assert "if the training is Gaussian-DP" in str(found)
    assert found.to_dict()["form"] == "gaussian"


def test_the_form_follows_the_claim_of_the_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) / 4
    y = (X[:, 0] > 0).astype(int)
    options = {"number": 100, "source": NoiseSource(0)}
    forms = [
        one_run_linear(PrivateLogisticRegression(2.0, delta, method=method, alpha=0.1), X, y, **options, **claim).form
        for method, delta, claim in [
            ("gradient", 1e-5, {}),
            ("gradient", 1e-5, {"claimed": 3.0}),
            ("output", 0.0, {}),
        ]
    ]
    assert forms == ["gaussian", "approximate", "approximate"]
    with pytest.raises(ValueError, match="not one of Gaussian DP"):
        one_run_linear(
            PrivateLogisticRegression(2.0, 0.0, method="output", alpha=0.1),
            X,
            y,
            delta=DELTA,
            form="gaussian",
            **options,
        )


def test_bad_input_is_refused():
    scores, coins = typical_scores(1.0, 20)
    with pytest.raises(ValueError, match="form must be"):
        one_run(scores, coins, delta=DELTA, form="pure")
    with pytest.raises(ValueError, match="positive delta"):
        one_run(scores, coins, delta=0.0, form="gaussian")
    with pytest.raises(ValueError, match="correct <= guesses"):
        mu_from_guesses(5, 4, 10, 0.95)
