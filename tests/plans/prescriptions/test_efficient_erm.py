"""Output perturbation and RRPSGD as "Efficient Private ERM for Smooth Objectives" prescribes them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from privet.plans.prescriptions import generalisation_penalty, output_descent, random_round, stopping_law
from privet.privacy import Budget

PROBLEM = {"lipschitz": 1.0, "smoothness": 0.35, "radius": 4.0}


def logistic_problem(seed, n, d, penalty):
    """Return the mean logistic loss with a penalty, its gradient, and its minimiser, on rows of norm at most 1."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    signs = np.where(rows @ rng.normal(size=d) + 1.5 * rng.normal(size=n) > 0, 1.0, -1.0)

    def value(w):
        return np.mean(np.logaddexp(0, -signs * (rows @ w))) + penalty / 2 * w @ w

    def gradient(w):
        return -(signs / (1 + np.exp(signs * (rows @ w)))) @ rows / n + penalty * w

    return value, gradient, minimize(value, np.zeros(d), jac=gradient, tol=1e-12).x


@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_bound_holds_on_a_logistic_problem_and_is_of_the_right_order(penalty, delta):
    n, d = 4000, 5
    value, gradient, best = logistic_problem(3, n, d, penalty)
    descent = output_descent(
        n,
        d,
        (0.5, delta),
        lipschitz=1.0,
        smoothness=0.25 + penalty,
        strong_convexity=penalty,
        radius=float(np.linalg.norm(best)),
    )
    weights = np.zeros(d)
    for _ in range(descent.steps):
        weights = weights - descent.step_size * gradient(weights)
    before_noise = value(weights) - value(best)
    assert 0 <= before_noise <= descent.optimisation_error
    rng, scale = np.random.default_rng(4), descent.plan.scale
    noise = rng.normal(size=(300, d))
    if delta == 0:
        radii = rng.gamma(d, 1.0, size=(300, 1))
        noise *= radii / np.linalg.norm(noise, axis=1, keepdims=True)
    excess = np.mean([value(weights + scale * z) for z in noise]) - value(best)
    assert descent.excess / 30 <= excess <= descent.excess


def test_the_excess_is_below_the_bounds_in_the_proofs():
    n, d, epsilon, delta, mu = 30_000, 110, 0.5, 1e-3, 0.1
    beta, L, D = PROBLEM["smoothness"], PROBLEM["lipschitz"], PROBLEM["radius"]
    strong = output_descent(n, d, (epsilon, delta), strong_convexity=mu, **PROBLEM)
    noise = 25 * L**2 * (mu + beta) ** 2 * d * math.log(2 / delta) / (n**2 * epsilon**2 * mu**2 * beta)
    assert strong.noise_error <= noise
    assert (
        strong.optimisation_error <= beta / 2 * math.exp(-2 * mu * beta * strong.steps / (mu + beta) ** 2) * D**2 * 1.01
    )
    convex = output_descent(n, d, (epsilon, delta), **PROBLEM)
    assert convex.noise_error <= 9 * convex.steps**2 * L**2 * d * math.log(2 / delta) / (beta * n**2 * epsilon**2)
    assert convex.optimisation_error == pytest.approx(2 * beta * D**2 / convex.steps)


def test_the_utility_has_the_rates_of_the_theorems():
    def excess(n, mu):
        return output_descent(n, 50, Budget(0.5, 1e-6), strong_convexity=mu, **PROBLEM).excess

    assert excess(10**6, 0.1) / excess(10**5, 0.1) == pytest.approx(1e-2, rel=0.05)  # n^-2
    assert excess(10**8, 0.0) / excess(10**5, 0.0) == pytest.approx(1e-2, rel=0.05)  # n^(-2/3)


@pytest.mark.parametrize("mu", [0.0, 0.05])
def test_no_number_of_steps_is_better_by_more_than_a_small_factor(mu):
    taken = output_descent(20_000, 60, (0.5, 1e-5), strong_convexity=mu, **PROBLEM)
    best = min(taken.with_steps(int(steps)).excess for steps in np.geomspace(1, 100 * taken.steps, 200))
    assert best <= taken.excess <= 2.5 * best


def test_a_hopeless_problem_gets_one_step_and_a_bad_step_is_refused():
    hopeless = output_descent(2, 1000, (0.01, 1e-6), strong_convexity=0.1, **PROBLEM)
    assert hopeless.steps == 1
    with pytest.raises(ValueError, match="does not cover a step size"):
        type(hopeless)(**{**vars(hopeless), "step_size": 2 / PROBLEM["smoothness"]})
    with pytest.raises(ValueError, match="radius must be positive"):
        output_descent(100, 5, (1.0, 1e-6), lipschitz=1.0, smoothness=1.0, radius=0.0)


def test_without_strong_convexity_a_step_of_two_over_smoothness_is_refused():
    """The utility bound is 2 D^2 / (T eta (2 - beta eta)), which is infinite there."""
    taken = output_descent(100, 5, (1.0, 1e-6), **PROBLEM)
    assert taken.strong_convexity == 0
    limit = 2 / taken.smoothness
    with pytest.raises(ValueError, match="does not cover a step size"):
        replace(taken, step_size=limit)
    assert math.isfinite(replace(taken, step_size=0.999 * limit).excess)


def test_random_round_converges_below_its_bounds():
    n, d, rng = 60, 4, np.random.default_rng(5)
    constants = {"lipschitz": 1.0, "smoothness": 1.0, "gap": 0.5, "most_steps": n**2}
    taken = random_round(n, d, (1.0, 1e-3), distance=1.0, **constants)
    centres = rng.normal(size=(n, d))
    centres -= centres.mean(axis=0)
    centres *= 0.5 / np.abs(centres).max()
    squared, excess = [], []
    for _ in range(3):
        weights = np.ones(d) / 2
        draws = centres[rng.integers(n, size=taken.most_steps)] + taken.noise * rng.normal(size=(taken.most_steps, d))
        for draw in draws:
            weights = weights - taken.step_size * (weights + draw)
            squared.append(weights @ weights)
            excess.append(weights @ weights / 2)
    assert taken.squared_gradient / 50 <= np.mean(squared) <= taken.squared_gradient
    assert taken.excess / 50 <= np.mean(excess) <= taken.excess
    for one_run in np.split(np.array(squared), 3):
        assert one_run.mean() <= taken.likely_squared_gradient(0.01)
    assert taken.squared_gradient <= taken.likely_squared_gradient(1.0) <= taken.likely_squared_gradient(0.01)
    assert taken.likely_squared_gradient(0.01) <= 5 * taken.squared_gradient
    nonconvex = random_round(n, d, (1.0, 1e-3), **constants)
    assert nonconvex.excess is None
    start, sigma = 1.0, np.sqrt(4 + d * nonconvex.noise**2)
    assert nonconvex.squared_gradient <= 1.01 * (start**2 / n**2 + 2 * start * sigma / n)  # Lemma 12 with its beta


def test_the_bounds_of_random_round_do_not_depend_on_the_unit_of_the_loss():
    """A loss in units that are five times smaller has five times as large gradients, smoothness and gap."""
    one, five = (
        random_round(60, 4, (1.0, 1e-3), lipschitz=unit, smoothness=unit, gap=0.5 * unit, most_steps=600)
        for unit in (1.0, 5.0)
    )
    assert five.step_size == pytest.approx(one.step_size / 5)
    assert five.squared_gradient == pytest.approx(25 * one.squared_gradient)
    assert five.likely_squared_gradient(0.01) == pytest.approx(25 * one.likely_squared_gradient(0.01))


def test_random_round_takes_the_number_of_steps_of_the_paper_and_less_noise():
    n, epsilon, delta = 100, 0.5, 1e-4
    taken = random_round(n, 3, (epsilon, delta), lipschitz=1.0, smoothness=1.0, gap=1.0)
    printed = 2 * math.sqrt(math.log(3 * n / delta) * math.log(2 / delta)) / epsilon
    assert taken.most_steps == n**2
    assert taken.noise < printed


def test_the_stopping_law_is_uniform_for_equal_steps_and_favours_longer_ones():
    assert stopping_law([0.1] * 5, 1.0) == pytest.approx(np.full(5, 0.2))
    law = stopping_law([1.0, 0.5, 0.1], 1.0)
    assert law.sum() == pytest.approx(1.0)
    assert law[0] / law[2] == pytest.approx(1.0 / 0.19)
    with pytest.raises(ValueError, match="between 0 and 2/smoothness"):
        stopping_law([0.1, 2.0], 1.0)


def test_the_generalisation_penalty_balances_its_two_errors():
    constants = {"lipschitz": 2.0, "smoothness": 0.5, "radius": 3.0, "failure": 0.1}
    mu = generalisation_penalty(10_000, 20, 0.5, **constants)
    assert mu / 2 * 9.0 == pytest.approx(2.0 * math.sqrt(0.5 * 20) / (10_000 * 0.5 * mu * 0.1))
