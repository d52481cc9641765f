import dataclasses
import importlib
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import gamma

from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, SaturatingPenalty, SmoothedHinge, Squared
from privet.plans.output import OutputPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import Run
from privet.solvers.base.interface import Problem
from privet.solvers.base.minimise import least_tolerance
from privet.solvers.minimiser_perturbation import minimiser_perturbation, minimiser_stability
from privet.solvers.output_perturbation import descent_stability

module = importlib.import_module("privet.solvers.minimiser_perturbation")

DELTA = 1e-5
LOSSES = [Logistic(), SmoothedHinge(0.2), Huber(0.5), Multinomial(3)]
NAMES = ["logistic", "hinge", "huber", "multinomial"]


def planned(problem, *, tolerance=None, scale=0.5, is_pure=False):
    return OutputPlan(minimiser_stability(problem, tolerance), scale, is_pure)


def solve(problem, plan, source, **options):
    return minimiser_perturbation(
        problem, Run(replace(plan, delta=DELTA), source, options.pop("progress", None)), **options
    )


# ---------------------------------------------------------------------------------- neighbours, by brute force


def moved(tools, pair, **fields):
    """Return the distance between the minimisers of two tables, and the claimed bound on it."""
    ends = []
    for X, y in pair:
        problem = tools.make_problem(X, y, **fields)
        plan = planned(problem)
        ends.append(solve(problem, plan, tools.Silent()).weights)
    return float(np.linalg.norm(ends[0] - ends[1])), plan.stability.sensitivity


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.02, 0.5])
@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
def test_no_neighbours_have_minimisers_farther_apart_than_the_sensitivity(tools, n, alpha, objective):
    rng = np.random.default_rng(n)
    for _ in range(2):
        for pair in tools.neighbours(rng, n, 2):
            distance, sensitivity = moved(tools, pair, objective=objective, alpha=alpha, intercept=0.5)
            assert distance <= sensitivity


@pytest.mark.parametrize("n", [1, 2, 3, 5, 50])
@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_linear_losses_attain_the_sensitivity_of_the_minimiser(tools, n, alpha):
    """The gradient of one record has full length in one or the other direction, and only the ridge opposes it."""
    pair = [(np.ones((n, 1)), np.where(np.arange(n) == 0, side, 0.3)) for side in (1.0, -1.0)]
    distance, sensitivity = moved(tools, pair, objective=tools.Linear(), alpha=alpha)
    assert 0.98 * sensitivity < distance <= sensitivity


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("objective", [Huber(0.05), SmoothedHinge(0.5)], ids=["huber", "hinge"])
def test_losses_with_linear_tails_attain_the_sensitivity(tools, n, objective):
    """The common records have rows of zeros, and the differing record is clearly misclassified in both tables."""
    alpha = 10.0 if isinstance(objective, SmoothedHinge) else 0.5
    rows = np.zeros((n, 1))
    rows[0] = 1.0
    targets = [np.full(n, side) for side in ((50.0, -50.0) if isinstance(objective, Huber) else (1, 0))]
    distance, sensitivity = moved(tools, [(rows, y) for y in targets], objective=objective, alpha=alpha)
    assert 0.9 * sensitivity < distance <= sensitivity


def test_a_solver_that_errs_as_badly_as_it_may_stays_within_it(tools, monkeypatch):
    """Both minimisers are moved apart until their gradients are as long as the tolerance, which attains the bound."""
    ends = []
    for side in (1.0, -1.0):
        targets = np.where(np.arange(4) == 0, side, 0.3)
        problem = tools.make_problem(np.ones((4, 1)), targets, objective=tools.Linear(), alpha=0.1)
        plan = planned(problem, tolerance=0.05)
        exact = -targets.mean() / 0.1
        worst = np.array([exact - side * 0.05 / 0.1])
        assert problem.gradient_norm(worst) == pytest.approx(0.05)
        monkeypatch.setattr(module, "minimise", lambda problem, *, tolerance, worst=worst: worst)
        ends.append(solve(problem, plan, tools.Silent()).weights)
    distance = float(np.linalg.norm(ends[0] - ends[1]))
    assert distance == pytest.approx(2 / (4 * 0.1) + 2 * 0.05 / 0.1)
    assert distance <= plan.stability.sensitivity
    assert distance > 1.19 * minimiser_stability(problem, 0.0).sensitivity


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
def test_errors_in_any_direction_stay_within_it(tools, monkeypatch, objective):
    """Each minimiser is moved in a random direction as far as the tolerance allows."""
    rng = np.random.default_rng(7)
    tolerance = 0.05
    exactly = importlib.import_module("privet.solvers.base.minimise").minimise

    def badly(problem, *, tolerance):
        best = exactly(problem, tolerance=1e-8)
        direction = rng.standard_normal(best.shape)
        low, high = 0.0, 1e3
        for _ in range(60):
            middle = (low + high) / 2
            inside = problem.gradient_norm(best + middle * direction) <= tolerance
            low, high = (middle, high) if inside else (low, middle)
        return best + low * direction

    monkeypatch.setattr(module, "minimise", badly)
    for pair in tools.neighbours(rng, 3, 2):
        ends = []
        for X, y in pair:
            problem = tools.make_problem(X, y, objective=objective, alpha=0.1)
            plan = planned(problem, tolerance=tolerance)
            ends.append(solve(problem, plan, tools.Silent()).weights)
        assert np.linalg.norm(ends[0] - ends[1]) <= plan.stability.sensitivity


# --------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), Budget(0.5, 1e-5)], ids=repr)
def test_gaussian_noise_is_sensitivity_over_mu(tools, budget):
    problem = tools.silence(30, 5000, alpha=0.1)
    plan = OutputPlan.for_budget(budget, stability=minimiser_stability(problem))
    weights = solve(problem, plan, NoiseSource(1)).weights
    inverse_mu = {1.0: 3.7306, 0.5: 7.0318}[budget.epsilon]  # docs/errata.md
    assert tools.has_only_std(weights, 1.01 * 2 / (30 * 0.1) * inverse_mu)


def test_pure_noise_has_a_radius_of_sensitivity_over_epsilon(tools):
    problem = tools.silence(30, 6, alpha=0.1)
    plan = OutputPlan.for_budget(Budget(0.5), stability=minimiser_stability(problem))
    radii = [np.linalg.norm(solve(problem, plan, NoiseSource(seed)).weights) for seed in range(500)]
    scale = 1.01 * 2 / (30 * 0.1) / 0.5
    assert tools.has_only_law(radii, partial(gamma, 6), scale)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_noise_is_added_once_to_the_minimiser(tools, separable, form):
    X, y = separable
    problem = tools.make_problem(form(X), y, alpha=0.05)
    plan = planned(problem)
    quiet = solve(problem, plan, tools.Silent()).weights
    assert problem.gradient_norm(quiet) <= plan.stability.tolerance
    assert np.array_equal(solve(problem, plan, NoiseSource(4)).weights, NoiseSource(4).add_gaussian(quiet, plan.scale))


def test_the_release_approaches_the_minimiser_as_the_noise_vanishes(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.05)
    best = problem.value(solve(problem, planned(problem), tools.Silent()).weights)
    excess = []
    for epsilon in (1.0, 100.0, 1e8):
        plan = OutputPlan.for_budget(Budget(epsilon, DELTA), stability=minimiser_stability(problem))
        excess.append(problem.value(solve(problem, plan, NoiseSource(2)).weights) - best)
    assert excess[0] > 10 * excess[1] > 100 * excess[2] >= -1e-7


# ------------------------------------------------------------------------------------------ tolerance and refusals


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
def test_the_default_tolerance_adds_a_hundredth_and_is_within_reach(tools, separable, objective):
    X, y = separable
    problem = tools.make_problem(X, y, objective=objective, alpha=1e-3)
    stability = minimiser_stability(problem)
    exact = 2 * problem.lipschitz / (200 * 1e-3)
    assert stability.sensitivity == pytest.approx(1.01 * exact)
    assert stability.tolerance >= least_tolerance(problem)


def test_the_default_tolerance_is_raised_to_what_rounding_permits(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=1e-11)
    stability = minimiser_stability(problem)
    assert stability.tolerance == least_tolerance(problem) > 0.01 * problem.lipschitz / 200
    assert np.isfinite(solve(problem, planned(problem, scale=1e12), NoiseSource(0)).weights).all()
    with pytest.raises(ValueError, match="cannot be certified"):
        solve(problem, planned(problem, tolerance=stability.tolerance / 2, scale=1e12), NoiseSource(0))


def test_a_plan_for_another_problem_is_refused(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1, intercept=0.5)
    plan = planned(problem)
    others = [
        tools.make_problem(X[:-1], y[:-1], alpha=0.1, intercept=0.5),
        tools.make_problem(X, y, alpha=0.2, intercept=0.5),
        tools.make_problem(X, y, alpha=0.1, intercept=0.0),
        tools.make_problem(X, y, alpha=0.1, intercept=0.5, row_norm=2.0),
        tools.make_problem(X, y, alpha=0.1, intercept=0.5, objective=Multinomial(2)),
    ]
    for other in others:
        with pytest.raises(ValueError, match="other data or constants"):
            solve(other, plan, NoiseSource(0))
    assert np.isfinite(solve(problem, plan, NoiseSource(0)).weights).all()


def test_a_plan_of_descent_is_refused(tools):
    problem = tools.silence(3, 2, alpha=0.1)
    plan = OutputPlan(descent_stability(problem, 0.5, 10), 1.0, is_pure=False)
    with pytest.raises(TypeError, match="MinimiserStability plan, not DescentStability"):
        solve(problem, plan, NoiseSource(0))


def test_problems_without_one_stable_minimiser_are_refused(tools, separable):
    X, y = separable
    rows = BoundedRows(X, 1.0)
    plan = planned(tools.make_problem(X, y, alpha=0.1))
    for objective, regulariser, cause in (
        (Logistic(), L2(0.0), "strong convexity"),
        (Squared(), L2(0.1), "Squared losses are not bounded"),
        (Logistic(), SaturatingPenalty(0.1), "not convex"),
    ):
        problem = Problem(objective, regulariser, rows, y)
        with pytest.raises(ValueError, match=cause):
            minimiser_stability(problem)
        with pytest.raises(ValueError, match=cause):
            solve(problem, plan, NoiseSource(0))


def test_gaussian_noise_at_delta_zero_is_refused(tools):
    problem = tools.silence(3, 2, alpha=0.1)
    with pytest.raises(ValueError, match="set delta > 0"):
        minimiser_perturbation(problem, Run(replace(planned(problem), delta=0.0), NoiseSource(0)))
    release = minimiser_perturbation(problem, Run(replace(planned(problem, is_pure=True), delta=0.0), NoiseSource(0)))
    assert release.guarantee.delta == 0


# ------------------------------------------------------------------------------------------- the returned values


@pytest.mark.parametrize("is_pure", [False, True])
def test_the_guarantee_is_that_of_the_plan(tools, is_pure):
    problem = tools.silence(12, 3, alpha=0.1)
    plan = planned(problem, is_pure=is_pure, scale=8.0)
    release = solve(problem, plan, NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(problem, plan, NoiseSource(1)).guarantee.is_conditional
    for words in ("rows are bounded", "minimiser is certified", "of 12 records", "minimiser, with noise added once"):
        assert words in release.guarantee.statement(verbose=True)
    of_weights = plan.noise_std(release.weights.size)
    assert of_weights >= 8.0
    assert release.trace == {
        "tolerance": plan.stability.tolerance,
        "noise_scale": 8.0,
        "feature_noise": of_weights,
    }
    assert math.isfinite(release.guarantee.epsilon)


def test_seeds_repeat_and_progress_is_reported(tools, separable):
    X, y = separable
    problem, calls = tools.make_problem(X, y, alpha=0.1), []
    plan = dataclasses.replace(planned(problem), scale=0.1)
    one, other = (
        solve(problem, plan, NoiseSource(5), progress=lambda *call: calls.append(call)).weights for _ in range(2)
    )
    assert np.array_equal(one, other)
    assert not np.array_equal(one, solve(problem, plan, NoiseSource(6)).weights)
    assert calls == [(1, 1), (1, 1)]
