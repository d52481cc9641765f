"""Output perturbation and RRPSGD as "Efficient Private ERM for Smooth Objectives" prescribes them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from mpmath import exp, log, mpf, sqrt
from scipy.optimize import minimize

from privet.plans import DescentStability, GradientPlan, OneUniform, OutputPlan
from privet.plans.prescriptions import (
    RandomRound,
    generalisation_penalty,
    output_descent,
    random_round,
    stopping_law,
)
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


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize(("mu", "constant"), [(0.0, 1.0), (0.0, 1.3), (0.15, 1.0), (0.15, 1.3)])
def test_output_descent_is_that_of_theorems_2_and_3(delta, mu, constant):
    n, d, L, beta, D, epsilon = 5000, 7, mpf("1.4"), mpf("0.35"), mpf("2.6"), mpf("0.7")
    constants = {"lipschitz": 1.4, "smoothness": 0.35, "radius": 2.6}
    found = output_descent(n, d, (0.7, delta), strong_convexity=mu, constant=constant, **constants)
    spread = d**2 if delta == 0 else d * -log(delta)
    signal, m = n**2 * epsilon**2 * D**2 / (L**2 * spread), mpf(str(mu))
    of_theorem_2 = (m**2 + beta**2) / (m * beta) * log(m**2 * signal) if mu else None
    of_theorem_3 = (beta**2 * signal) ** (mpf(1) / 3)
    assert found.steps == math.ceil(mpf(str(constant)) * (of_theorem_2 or of_theorem_3)) > 2
    assert found.step_size == pytest.approx(float(1 / (m + beta)))
    stability = DescentStability(n, 1.4, 0.35, mu, found.step_size, found.steps)
    assert found.stability == stability
    assert found.plan == OutputPlan.for_budget((0.7, delta), stability=stability)
    if mu:
        left = beta / 2 * D**2 * exp(-2 * m * beta * found.steps / (m + beta) ** 2)
    else:
        left = 2 * beta * D**2 / found.steps
    moments = d * (d + 1) if delta == 0 else d
    noise = float(beta) / 2 * found.plan.scale**2 * moments
    assert found.optimisation_error == pytest.approx(float(left))
    assert found.noise_error == pytest.approx(noise)
    assert found.excess == pytest.approx(float(left) + noise)


def test_output_descent_is_not_strongly_convex_and_has_constant_one_by_default():
    plain = output_descent(5000, 7, (0.7, 1e-5), **PROBLEM)
    assert plain == output_descent(5000, 7, (0.7, 1e-5), strong_convexity=0.0, constant=1.0, **PROBLEM)
    assert plain.with_steps(17) == replace(plain, steps=17)


def test_other_steps_of_an_output_descent_have_the_bounds_of_nesterov():
    """2 D^2/(T eta (2 - beta eta)), and exp(-2 eta mu beta T/(mu + beta)) beta D^2/2 with strong convexity."""
    plain = replace(output_descent(5000, 7, (0.7, 1e-5), **PROBLEM), step_size=1.5, steps=9)
    assert plain.optimisation_error == pytest.approx(2 * 16 / (9 * 1.5 * (2 - 0.35 * 1.5)))
    strong = replace(plain, strong_convexity=0.15)
    exponent = 2 * 1.5 * 0.15 * 0.35 * 9 / 0.5
    assert strong.optimisation_error == pytest.approx(0.35 / 2 * 16 * math.exp(-exponent))


def test_a_strongly_convex_descent_takes_steps_of_at_most_two_over_the_sum_of_its_constants():
    strong = output_descent(100, 5, (1.0, 1e-6), strong_convexity=0.15, **PROBLEM)
    for step in (2 / 0.5, 2 / 0.5 * (1 + 9e-13)):
        assert replace(strong, step_size=step).step_size == step
    for step in (2 / 0.5 * (1 + 1.2e-12), 2 / 0.5 * (1 + 1e-9), 2 / 0.4):
        with pytest.raises(ValueError, match="does not cover a step size"):
            replace(strong, step_size=step)


@pytest.mark.parametrize("distance", [None, 0.8])
@pytest.mark.parametrize("unit", [1.3, 1e-4])
def test_random_round_is_that_of_theorem_5(distance, unit):
    """Steps of a loss with a small smoothness end at D_F/(sigma sqrt(N)) or distance/(sigma sqrt(N)), others at 1/beta.

    The bounds are sums over all steps: (D_F^2 + sum sigma^2 eta^2)/sum(2 eta - beta eta^2), times beta for gradients.
    """
    n, d, N, gap = 30, 4, 700, 0.6
    beta = 1.7e4 if unit == 1e-4 else 0.9
    found = random_round(n, d, (1.0, 1e-3), lipschitz=unit, smoothness=beta, gap=gap, distance=distance, most_steps=N)
    plan = GradientPlan.for_budget((1.0, 1e-3), sampler=OneUniform(n), steps=N, clip_norm=unit)
    assert found.noise == plan.noise_std
    sigma = math.sqrt(4 * unit**2 + d * plan.noise_std**2)
    start = math.sqrt(2 * gap / beta) if distance is None else distance
    eta = min(1 / beta, start / (sigma * math.sqrt(N)))
    assert (eta < 1 / beta) == (unit == 1.3)
    assert found.step_size == pytest.approx(eta)
    below = sum(2 * eta - beta * eta**2 for _ in range(N))
    above = sum(sigma**2 * eta**2 for _ in range(N + 1))
    assert found.squared_gradient == pytest.approx(beta * (2 * gap / beta + above) / below)
    if distance is not None:
        assert found.excess == pytest.approx((distance**2 + above) / below)
    assert (found.excess is None) == (distance is None)
    constants = (found.most_steps, found.dimension, found.lipschitz, found.smoothness, found.gap)
    assert constants == (N, d, unit, beta, gap)


@pytest.mark.parametrize("failure", [0.01, 1.0])
def test_the_likely_bound_of_random_round_adds_up_the_inequalities_of_theorem_6(failure):
    found = RandomRound(
        most_steps=600,
        step_size=0.21,
        noise=0.7,
        squared_gradient=1.0,
        excess=None,
        dimension=5,
        lipschitz=1.3,
        smoothness=1.9,
        gap=0.8,
    )
    n, eta, alpha, beta, L, d = 601, mpf("0.21"), mpf("0.7"), mpf("1.9"), mpf("1.3"), 5
    tail = log(3 / mpf(failure))
    second = 2 * beta * eta**2 * n * L**2
    # Azuma: steps bounded by 2 (eta - beta eta^2) L^2, so that their sum exceeds bound sqrt(2 n log) rarely.
    third = 2 * (eta - beta * eta**2) * L**2 * sqrt(2 * n * tail)
    fourth = (eta + beta * eta**2) * L * alpha * sqrt(2 * n * tail)
    fifth = beta / 2 * alpha**2 * eta**2 * (d * n + 2 * sqrt(d * n * tail) + 2 * tail)
    total = (mpf("0.8") + second + third + fourth + fifth) / (600 * (eta - beta / 2 * eta**2))
    assert found.likely_squared_gradient(failure) == pytest.approx(float(total))


@pytest.mark.parametrize("failure", [0.0, 1.1])
def test_a_failure_probability_lies_above_zero_and_at_most_at_one(failure):
    found = rounds()
    with pytest.raises(ValueError, match=r"failure must lie in \(0, 1\]"):
        found.likely_squared_gradient(failure)
    with pytest.raises(ValueError, match=r"failure must lie in \(0, 1\]"):
        penalty(failure=failure)


def test_the_stopping_law_is_proportional_to_twice_the_step_minus_its_square():
    steps, beta = [0.7, 0.2, 0.35], 1.9
    shares = [2 * eta - beta * eta**2 for eta in steps]
    assert stopping_law(steps, beta) == pytest.approx([share / sum(shares) for share in shares])


@pytest.mark.parametrize("steps", [[], [[0.1]], [0.1, 0.0], [0.1, -0.1], [1.0], [0.1, 1.5], [math.nan]])
def test_steps_without_a_stopping_law_are_refused(steps):
    with pytest.raises(ValueError, match="between 0 and 2/smoothness = 1,"):
        stopping_law(steps, 2.0)


def test_the_smoothness_of_a_stopping_law_is_positive():
    assert stopping_law([math.nextafter(1.0, 0)], 2.0) == [1.0]
    with pytest.raises(ValueError, match="smoothness must be positive"):
        stopping_law([0.1], 0.0)


def test_the_generalisation_penalty_by_hand():
    squared = 2 * 1.7 * sqrt(mpf("0.6") * 20) / (10_000 * mpf("0.5") * mpf("0.1")) / 9
    assert penalty() ** 2 == pytest.approx(float(squared))


def output(**changed):
    fields = {"n": 1000, "dimension": 5, "budget": (1.0, 1e-5), "strong_convexity": 0.1, "constant": 1.0, **PROBLEM}
    return output_descent(**fields | changed)


def rounds(**changed):
    fields = {"n": 30, "dimension": 5, "budget": (1.0, 1e-3), "lipschitz": 1.0, "smoothness": 1.0, "gap": 1.0}
    return random_round(**fields | {"distance": 1.0, "most_steps": 50} | changed)


def penalty(**changed):
    fields = {"n": 10_000, "dimension": 20, "epsilon": 0.5, "lipschitz": 1.7, "smoothness": 0.6, "radius": 3.0}
    return generalisation_penalty(**fields | {"failure": 0.1} | changed)


@pytest.mark.parametrize(
    ("prescribe", "name", "value"),
    [
        *((output, name, 0) for name in ("n", "dimension", "lipschitz", "smoothness", "radius", "constant")),
        (output, "strong_convexity", -1e-9),
        *((rounds, name, 0) for name in ("n", "dimension", "smoothness", "gap", "distance", "most_steps")),
        *((penalty, name, 0) for name in ("n", "dimension", "epsilon", "lipschitz", "smoothness", "radius")),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    with pytest.raises(ValueError, match=f"^{name} must "):
        prescribe(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("dimension", 0), ("radius", 0.0), ("steps", 0), ("n", 0)])
def test_fields_of_an_output_descent_out_of_range_are_refused_by_name(name, value):
    taken = output()
    with pytest.raises(ValueError, match=f"^{name} must "):
        replace(taken, **{name: value})


def test_the_default_delta_is_that_of_the_number_of_records():
    assert output(n=50_000, budget=1.0) == output(n=50_000, budget=(1.0, 2e-7))
    assert rounds(n=50_000, budget=1.0) == rounds(n=50_000, budget=(1.0, 2e-7))
    with pytest.raises(ValueError, match="Theorem 5 is about Gaussian noise"):
        rounds(budget=(1.0, 0.0))


def test_random_round_makes_at_most_the_square_of_n_steps_by_default():
    assert rounds(n=9, most_steps=None) == rounds(n=9, most_steps=81)
