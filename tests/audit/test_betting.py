import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from privet.audit.betting import Bet, design_bet, mu_from_bets


def bet_of(places, slopes, weights):
    return Bet(np.array(places), np.array(weights), np.array(slopes), 0.9 / float(np.dot(weights, 1 + np.exp(slopes))))


def designed(mu, runs=500, seed=0, confidence=0.95):
    firsts, seconds = np.random.default_rng(seed).normal(size=(2, runs))
    return design_bet(firsts, seconds + mu, runs, confidence)


numbers = st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.01, 2)), min_size=1, max_size=5)


@given(st.floats(0.05, 3), numbers)
def test_no_bet_on_gaussians_gains_more_than_is_allowed(mu, numbers):
    """The inequality itself, without sampling: indicator scores of N(0, 1) and N(mu, 1)."""
    places, slopes, weights = map(np.array, zip(*numbers, strict=True))
    bet = bet_of(places, slopes, weights)
    expected = weights @ (ndtr(mu - places) - np.exp(slopes) * ndtr(-places))
    assert expected <= bet.allowed(mu) + 1e-9


@pytest.mark.parametrize("mu", [0.2, 0.7, 2.0])
def test_a_bet_at_the_likelihood_ratio_gains_exactly_what_is_allowed(mu):
    places = np.array([-1.0, 0.3, 1.2])
    bet = bet_of(places, mu * places - mu**2 / 2, [1.0, 2.0, 0.5])
    expected = bet.weights @ (ndtr(mu - places) - np.exp(bet.log_slopes) * ndtr(-places))
    assert expected == pytest.approx(bet.allowed(mu), rel=1e-12)


@given(numbers, st.floats(0, 5), st.floats(0, 5))
def test_what_is_allowed_increases_with_mu(numbers, one, other):
    bet = bet_of(*zip(*numbers, strict=True))
    low, high = sorted((one, other))
    assert 0 <= bet.allowed(low) <= bet.allowed(high) + 1e-12 <= bet.weights.sum() + 1e-9


@given(st.sampled_from([0.05, 0.4, 1.0, 3.0, 20.0]), st.integers(0, 20), st.sampled_from([0.5, 0.95, 1 - 1e-6]))
def test_no_pair_of_runs_can_lose_everything(mu, seed, confidence):
    bet = designed(mu, 60, seed, confidence)
    worst = -float(bet.weights @ np.exp(bet.log_slopes)) - float(bet.weights.sum())
    assert 1 + bet.stake * worst > 0
    assert (bet.weights >= 0).all()


def test_the_capital_at_the_true_mu_reaches_its_goal_no_more_often_than_stated():
    """Many audits at once: gains of a fixed bet on Gaussians at the claimed mu."""
    mu, runs, audits, confidence = 0.7, 200, 2000, 0.8
    bet, generator = designed(mu, runs, confidence=confidence), np.random.default_rng(5)
    firsts, seconds = generator.normal(size=(2, audits * runs))
    gains = bet.gains(firsts, seconds + mu).reshape(audits, runs)
    capital = np.cumsum(np.log1p(bet.stake * (gains - bet.allowed(mu))), axis=1)
    flagged = capital.max(axis=1) >= -math.log1p(-confidence)
    assert flagged.mean() <= 0.2
    assert flagged.mean() >= 0.1  # the limit is nearly attained
    bounds = [mu_from_bets([(bet, each)], confidence) for each in gains[:60]]
    assert (np.array(bounds) > mu).tolist() == flagged[:60].tolist()


@pytest.mark.parametrize(("mu", "runs", "least"), [(0.3, 20_000, 0.26), (0.7, 3000, 0.58), (2.0, 3000, 1.8)])
def test_gaussian_scores_prove_nearly_their_mu(mu, runs, least):
    firsts, seconds = np.random.default_rng(3).normal(size=(2, runs))
    bet = design_bet(firsts[:500], seconds[:500] + mu, runs - 500, 0.95)
    found = mu_from_bets([(bet, bet.gains(firsts[500:], seconds[500:] + mu))], 0.95)
    assert least <= found <= mu


def test_scores_that_never_vary_prove_what_their_number_allows():
    same, other = np.zeros(400), np.ones(400)
    bet = design_bet(same[:50], other[:50], 350, 0.95)
    found = mu_from_bets([(bet, bet.gains(same[50:], other[50:]))], 0.95)
    assert 3.5 <= found <= 6  # a test without an error in 350 runs may still err in 1 % of them
    bet = design_bet(same, same, 350, 0.95)
    assert mu_from_bets([(bet, bet.gains(same, same))], 0.95) == 0


def test_runs_without_a_counterpart_are_ignored():
    bet = designed(1.0)
    assert bet.gains(np.zeros(7), np.ones(5)).shape == (5,)
    assert mu_from_bets([(bet, bet.gains(np.zeros(0), np.ones(5)))], 0.95) == 0
