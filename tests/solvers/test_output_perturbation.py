import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import gamma
from sklearn.linear_model import LogisticRegression

from privet.objectives import Logistic, Multinomial, Squared
from privet.objectives.summation import ROUNDING
from privet.plans import OutputPlan
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.solvers import Run, output_perturbation
from privet.solvers.output_perturbation import descent_stability

DELTA = 1e-5
CONVEX = {"step_size": 0.7, "steps": 40}  # docs/errata.md (f)


def planned(problem, *, step_size=0.7, steps=40, scale=0.5, is_pure=False):
    return OutputPlan(descent_stability(problem, step_size, steps), scale, is_pure)


def solve(problem, plan, source, **options):
    return output_perturbation(
        problem, Run(replace(plan, delta=DELTA), source, options.pop("progress", None)), **options
    )


# ---------------------------------------------------------------------------------- neighbours, by brute force


def moved(tools, pair, **fields):
    """Return the distance between the results of descent on two tables, and the claimed bound on it."""
    pace = fields.pop("pace", 1.8)
    steps = fields.pop("steps", 40)
    ends = []
    for X, y in pair:
        problem = tools.make_problem(X, y, **fields)
        plan = planned(problem, step_size=pace / problem.smoothness, steps=steps)
        ends.append(solve(problem, plan, tools.Silent()).weights)
    return float(np.linalg.norm(ends[0] - ends[1])), plan.stability.sensitivity


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_no_neighbours_end_farther_apart_than_the_sensitivity(tools, n, alpha, objective, intercept):
    rng = np.random.default_rng(n)
    for _ in range(5):
        for pair in tools.neighbours(rng, n, 2):
            for pace, steps in ((0.5, 3), (1.8, 30), (2.0, 60)):
                fields = {"objective": objective, "alpha": alpha, "intercept": intercept}
                distance, sensitivity = moved(tools, pair, pace=pace, steps=steps, **fields)
                assert distance <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("n", [2, 3, 5, 50])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_linear_losses_attain_the_sensitivity(tools, n, alpha):
    """The gradient of one record has full length in every step, in one or the other direction."""
    pair = [(np.ones((n, 1)), np.where(np.arange(n) == 0, side, 0.0)) for side in (1.0, -1.0)]
    fields = {"objective": tools.Linear(), "alpha": alpha, "pace": 0.7, "steps": 40}
    distance, sensitivity = moved(tools, pair, **fields)
    assert 0.999 * sensitivity < distance <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize(("alpha", "simulated"), [(0.0, 1.120), (0.1, 0.37805)])
def test_the_simulations_of_the_errata(tools, alpha, simulated):
    """n = 50, L = 1, beta = 1, eta = 0.7, T = 40; linear losses, and ridge + linear losses with mu = 0.1."""
    ends = []
    for side in (1.0, -1.0):
        targets = np.where(np.arange(50) == 0, side, 0.3)
        problem = tools.make_problem(np.ones((50, 1)), targets, objective=tools.Linear(), alpha=alpha)
        ends.append(solve(problem, planned(problem, **CONVEX), tools.Silent()).weights)
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(simulated, abs=5e-6)
    assert planned(problem, **CONVEX).stability.sensitivity == pytest.approx(simulated * (1 + ROUNDING), abs=5e-6)


# --------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), Budget(0.5, 1e-5)], ids=repr)
def test_gaussian_noise_is_sensitivity_over_mu(tools, budget):
    problem = tools.silence(30, 5000)
    plan = OutputPlan.for_budget(budget, stability=descent_stability(problem, 2.0, 10))
    weights = solve(problem, plan, NoiseSource(1)).weights
    inverse_mu = {1.0: 3.7306, 0.5: 7.0318}[budget.epsilon]  # docs/errata.md
    steps = 9.5  # of ten, the first starts from zero weights, where residuals are one half
    assert tools.has_only_std(weights, 2 * 2.0 * steps / 30 * inverse_mu)


def test_pure_noise_has_a_radius_of_sensitivity_over_epsilon(tools):
    problem = tools.silence(30, 6)
    plan = OutputPlan.for_budget(Budget(0.5), stability=descent_stability(problem, 2.0, 10))
    radii = [np.linalg.norm(solve(problem, plan, NoiseSource(seed)).weights) for seed in range(1500)]
    scale = 2 * 2.0 * 9.5 / 30 / 0.5  # of ten steps, the first starts where residuals are one half
    assert tools.has_only_law(radii, partial(gamma, 6), scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_is_added_once_and_only_at_the_end(tools, separable, dtype):
    X, y = separable
    problem = tools.make_problem(X.astype(dtype), y)
    plan = planned(problem)
    quiet = solve(problem, plan, tools.Silent()).weights
    noisy = NoiseSource(4).add_gaussian(quiet, plan.scale)
    assert np.array_equal(solve(problem, plan, NoiseSource(4)).weights, noisy)


# -------------------------------------------------------------------------------------------------- the descent


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_it_reaches_the_optimum_of_scikit_learn(tools, separable, form, n_classes):
    X, y = separable
    y = y + (X[:, 2] > 0.4) * (n_classes == 3)
    objective = Logistic() if n_classes == 2 else Multinomial(3)
    problem = tools.make_problem(form(X), y, objective=objective, alpha=0.05)
    plan = planned(problem, step_size=1.8 / problem.smoothness, steps=400)
    weights = solve(problem, plan, tools.Silent()).weights
    rows = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    reference = LogisticRegression(C=1 / (0.05 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(rows, y)
    found = weights if weights.ndim == 1 else weights.T
    assert found == pytest.approx(reference.coef_.squeeze(), abs=1e-5)


# ------------------------------------------------------------------------------------------------- the mismatch


def test_a_plan_for_another_problem_is_refused(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1, intercept=0.5)
    plan = planned(problem)
    others = [
        tools.make_problem(X[:-1], y[:-1], alpha=0.1, intercept=0.5),
        tools.make_problem(X, y, alpha=0.2, intercept=0.5),
        tools.make_problem(X, y, alpha=0.1, intercept=0.0),
        tools.make_problem(X, y, alpha=0.1, intercept=0.5, row_norm=2.0),
    ]
    for other in others:
        with pytest.raises(ValueError, match="other data or constants"):
            solve(other, plan, NoiseSource(0))
    with pytest.raises(ValueError, match="several scores per record"):
        solve(tools.make_problem(X, y, alpha=0.1, intercept=0.5, objective=Multinomial(2)), plan, NoiseSource(0))
    assert np.isfinite(solve(problem, plan, NoiseSource(0)).weights).all()


def test_a_plan_of_another_computation_is_refused(tools):
    class Constant:
        sensitivity, adjacency = 1.0, Adjacency.REPLACE_ONE

        def in_words(self):
            return "nothing moves"

    with pytest.raises(TypeError, match="DescentStability plan, not Constant"):
        solve(tools.silence(3, 2), OutputPlan(Constant(), 1.0, is_pure=False), NoiseSource(0))


def test_the_stability_is_made_of_the_constants_of_the_problem(tools):
    problem = tools.make_problem(np.ones((4, 1)), [0, 1, 0, 1], alpha=0.1, row_norm=3.0, intercept=4.0)
    stability = descent_stability(problem, 0.05, 7)
    assert (stability.n, stability.strong_convexity, stability.step_size, stability.steps) == (4, 0.1, 0.05, 7)
    assert stability.lipschitz == pytest.approx(5.0 * (1 + ROUNDING), rel=1e-9)
    assert stability.smoothness == pytest.approx(6.35, rel=4e-6)


@pytest.mark.parametrize(
    ("objective", "clip_norm", "lipschitz", "first"),
    [
        (Logistic(), None, 5.0, 2.5),  # at zero weights, a residual is 1/2 instead of at most 1
        (Logistic(), 3.0, 3.0, 2.5),
        (Logistic(), 2.0, 2.0, 2.0),
        (Logistic(), 9.0, 5.0, 2.5),
        (Squared(), 2.0, 2.0, 2.0),  # at zero weights, residuals are unbounded
    ],
)
def test_the_bound_on_the_first_gradient_is_at_most_that_on_all(tools, objective, clip_norm, lipschitz, first):
    problem = tools.make_problem(
        np.ones((4, 1)), [0.0, 1.0, 0.0, 1.0], objective=objective, row_norm=3.0, intercept=4.0
    )
    stability = descent_stability(problem, 0.05, 7, clip_norm)
    assert stability.lipschitz == pytest.approx(lipschitz, rel=2 * ROUNDING)
    assert stability.first_lipschitz == pytest.approx(first, rel=2 * ROUNDING)


def test_unbounded_gradients_are_refused_unless_they_are_clipped(tools):
    problem = tools.make_problem(np.ones((4, 1)), np.ones(4), objective=Squared())
    with pytest.raises(ValueError, match="Squared has unbounded gradients: give a clip_norm"):
        descent_stability(problem, 0.05, 7)


# ------------------------------------------------------------------------------------------- the returned values


@pytest.mark.parametrize("is_pure", [False, True])
def test_the_guarantee_is_that_of_the_plan(tools, is_pure):
    problem = tools.silence(12, 3)
    plan = planned(problem, is_pure=is_pure)
    release = solve(problem, plan, NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(problem, plan, NoiseSource(1)).guarantee.is_conditional
    for words in ("rows and gradients are bounded", "40 steps of gradient descent", "of 12 records", "added once"):
        assert words in release.guarantee.statement(verbose=True)
    noise = plan.scale * (math.sqrt(problem.rows.dimension + 1) if is_pure else 1)
    assert release.trace == {"steps": 40, "step_size": 0.7, "feature_noise": noise}
    assert math.isfinite(release.guarantee.epsilon)


def test_progress_is_reported_after_each_step(tools):
    calls, problem = [], tools.silence(4, 2)
    solve(problem, planned(problem, steps=3), NoiseSource(0), progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3)]
