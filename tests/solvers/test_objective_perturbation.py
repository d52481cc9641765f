"""The usual tests, and the exact density of the released minimiser on neighbouring tables of one and two records."""

import dataclasses
import importlib
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from privet.objectives import (
    L2,
    BoundedRows,
    GaussianHinge,
    GeneralisedLinear,
    Huber,
    Logistic,
    Multinomial,
    SaturatingPenalty,
    SmoothedHinge,
    Squared,
    TamedLogistic,
)
from privet.plans.objective import ObjectivePlan
from privet.privacy import Budget, NoiseSource
from privet.privacy.analyses.objective_noise import objective_delta
from privet.solvers import Run
from privet.solvers.base.interface import Problem
from privet.solvers.base.minimise import least_tolerance, minimise
from privet.solvers.objective_perturbation import objective_perturbation, objective_plan

module = importlib.import_module("privet.solvers.objective_perturbation")

DELTA = 1e-5


class Straight(GeneralisedLinear):
    """y s for |y| <= 1, which has no curvature. Its minimiser is Gaussian and attains the claim."""

    residual_bound = 1.0
    curvature_bound = 1e-3

    def loss(self, scores, targets):
        return targets * scores

    def residuals(self, scores, targets):
        return targets + 0.0 * scores

    def start(self, dimension):
        return np.zeros(dimension)


def curvatures(objective, scores, targets):
    """Return the second derivatives with respect to the score, which exist almost everywhere."""
    if isinstance(objective, Logistic):
        return expit(scores) * expit(-scores)
    if isinstance(objective, SmoothedHinge):
        return (np.abs(1 - (2 * targets - 1) * scores) < objective.width) / (2 * objective.width)
    if isinstance(objective, Huber):
        return (np.abs(scores - targets) < objective.threshold) * 1.0
    if isinstance(objective, TamedLogistic):
        margins = (2 * targets - 1) * scores
        return np.where(margins > 0, np.exp(-np.maximum(margins, 0)) / 2, 0.0)
    if isinstance(objective, GaussianHinge):
        u = (1 - (2 * targets - 1) * scores) / objective.width
        return np.exp(-u * u / 2) / (objective.width * math.sqrt(2 * math.pi))
    return 0.0 * scores


LOSSES = [Logistic(), SmoothedHinge(0.3), Huber(0.4), Straight(), TamedLogistic(), GaussianHinge(0.4)]
NAMES = ["logistic", "hinge", "huber", "straight", "tamed", "gaussian-hinge"]


# ---------------------------------------------------------------- densities, by the change of variables w -> b


def log_density(objective, X, y, plan, grid, scale, counts=1.0):
    """Return the log density of the exact minimiser on a grid (points, d), with rows repeated ``counts`` times."""
    d, pull = X.shape[1], plan.n * plan.modulus
    scores = grid @ X.T
    targets = np.broadcast_to(y, scores.shape)
    residuals = counts * objective.residuals(scores.ravel(), targets.ravel()).reshape(scores.shape)
    b = -(residuals @ X + pull * grid)
    curved = counts * curvatures(objective, scores, targets)
    volume = np.log(curved @ X[:, 0] ** 2 + pull)
    if d == 2:
        minor = curved @ X[:, 1] ** 2 + pull
        volume = np.log(np.exp(volume) * minor - (curved @ (X[:, 0] * X[:, 1])) ** 2)
    lengths = np.linalg.norm(b, axis=1)
    if plan.is_pure:
        sphere = 2 * math.pi ** (d / 2) / math.gamma(d / 2) * math.gamma(d)
        return volume - lengths / scale - d * math.log(scale) - math.log(sphere)
    return volume - lengths**2 / (2 * scale**2) - d * math.log(scale * math.sqrt(2 * math.pi))


def grid_of(plan, d, points):
    reach = (8.5 * plan.scale + plan.n * plan.lipschitz) / (plan.n * plan.modulus)
    axis = np.linspace(-reach, reach, points)
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d), (axis[1] - axis[0]) ** d


def hockey_stick(objective, pair, plan, epsilon, *, points=20_001, weaker=1.0, grid=None, counts=1.0):
    """Return the larger of both directions of sup_A P(A) - e^epsilon Q(A), and the total mass of both densities."""
    grid, cell = grid or grid_of(plan, pair[0][0].shape[1], points)
    one, other = (np.exp(log_density(objective, X, y, plan, grid, weaker * plan.scale, counts)) for X, y in pair)
    both = [np.sum(np.maximum(0, p - math.exp(epsilon) * q)) * cell for p, q in ((one, other), (other, one))]
    return max(both), [np.sum(one) * cell, np.sum(other) * cell]


def tables(rng, objective, n, d):
    """Yield pairs of tables that differ in the first record: rows of norm at most 1, all sorts of labels."""
    labels = (0, 1) if objective.is_one_sided else (-1.0, 1.0) if isinstance(objective, Straight) else (-3.0, 0.0, 3.0)
    for kind in ("random", "same row", "opposite row", "zero", "ties"):
        X = rng.standard_normal((n, d))
        X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
        if kind != "random":
            X /= np.linalg.norm(X, axis=1)[:, None]
        if kind == "ties":
            X[:] = X[0]
        y = rng.choice(labels, n)
        other, label = X.copy(), y.copy()
        other[0] = {"random": rng.uniform(-1, 1, d) / math.sqrt(d), "opposite row": -X[0], "zero": 0.0}.get(kind, X[0])
        label[0] = rng.choice([value for value in labels if value != y[0]])
        yield (X, y), (other, label)


def planned(objective, budget, *, n, alpha=None):
    """Return a plan for rows of norm at most 1. The default alpha spends half of epsilon on volume."""
    beta = objective.smoothness(1.0)
    alpha = beta / (n * math.expm1(budget.epsilon / 2)) if alpha is None else alpha
    constants = {"n": n, "lipschitz": objective.lipschitz(1.0), "smoothness": beta, "strong_convexity": alpha}
    return ObjectivePlan.for_budget(budget, **constants, is_one_sided=objective.is_one_sided)


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
@pytest.mark.parametrize(("n", "d", "points", "rounds"), [(1, 1, 10_001, 5), (2, 1, 10_001, 5), (2, 2, 301, 1)])
@pytest.mark.parametrize("budget", [Budget(1.0, 1e-2), Budget(0.3, 1e-3), Budget(3.0, 1e-4)], ids=repr)
def test_neighbours_cannot_be_distinguished_better_than_promised(objective, n, d, points, rounds, budget):
    rng = np.random.default_rng(n + d)
    accuracy = {1: 1e-2, 2: 8e-2}[d]  # of sums over densities that jump where curvatures do
    for spread in (1.0, 30.0):  # half of epsilon for volume, or almost nothing
        usual = objective.smoothness(1.0) / (n * math.expm1(budget.epsilon / 2))
        plan = planned(objective, budget, n=n, alpha=spread * usual)
        mu = 2 * plan.lipschitz / plan.scale
        exact = {"volume": plan.volume_loss, "is_one_sided": plan.is_one_sided}
        claim = objective_delta(budget.epsilon, mu, 0.0, **exact)  # without noise on the output, slightly less
        assert claim <= budget.delta
        for _ in range(rounds):
            for pair in tables(rng, objective, n, d):
                found, masses = hockey_stick(objective, pair, plan, budget.epsilon, points=points)
                assert masses == pytest.approx([1, 1], abs=accuracy)  # w -> b is one to one: both are densities
                assert found <= claim * (1 + accuracy)


@pytest.mark.parametrize("objective", [Straight(), Huber(0.4), SmoothedHinge(0.3)], ids=["straight", "huber", "hinge"])
@pytest.mark.parametrize("budget", [Budget(1.0, 1e-2), Budget(0.3, 1e-4)], ids=repr)
def test_it_is_attained_and_half_the_noise_breaks_it(objective, budget):
    """The gradients of the two records have full length and opposite directions at every minimiser."""
    plan = planned(objective, budget, n=2, alpha=200.0)
    wrong = {Straight: (1.0, -1.0), Huber: (-9.0, 9.0), SmoothedHinge: (0, 1)}[type(objective)]
    pair = [(np.array([[1.0], [0.0]]), np.array([label, wrong[0]])) for label in wrong]
    found, _ = hockey_stick(objective, pair, plan, budget.epsilon)
    # Without curvature the two tails of the noise differ only in sign, so a two-sided claim is twice the truth.
    assert (0.8 if plan.is_one_sided else 0.4) * budget.delta < found <= budget.delta
    broken, _ = hockey_stick(objective, pair, plan, budget.epsilon, weaker=0.5)
    assert broken > 5 * budget.delta


def test_logistic_losses_nearly_attain_the_claim_and_half_the_noise_violates_it():
    """Two rows a few degrees apart lie on both sides of a steep slope that is caused by very many short rows."""
    budget, n = Budget(0.5, 1e-3), 100_001
    plan = planned(Logistic(), budget, n=n, alpha=12.5 / n)
    counts = np.array([1.0, n - 1])
    steep = brentq(lambda w: (n - 1) * 0.01 * expit(-0.01 * w) - 12.5 * w, 0, 1e3)
    x, y = 0.98, math.sqrt(1 - 0.98**2)
    pair = [(np.array([[x, side * y], [0.0, 0.01]]), np.array([label, 1])) for side, label in ((1, 0), (-1, 1))]
    reach = 8 * plan.scale / 12.5
    axes = np.linspace(-reach, reach, 501), np.linspace(steep - reach, steep + reach, 501)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    fields = {"grid": (grid, (2 * reach / 500) ** 2), "counts": counts}
    found, masses = hockey_stick(Logistic(), pair, plan, budget.epsilon, **fields)
    assert masses == pytest.approx([1, 1], abs=1e-3)
    assert 0.5 * budget.delta < found <= budget.delta
    broken, _ = hockey_stick(Logistic(), pair, plan, budget.epsilon, weaker=0.5, **fields)
    assert broken > 5 * budget.delta


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
@pytest.mark.parametrize(("n", "d", "points", "rounds"), [(1, 1, 4001, 20), (2, 1, 4001, 20), (2, 2, 101, 6)])
def test_pure_noise_bounds_the_ratio_of_densities_everywhere(objective, n, d, points, rounds):
    rng = np.random.default_rng(n + d)
    worst = 0.0
    plan = planned(objective, Budget(1.0), n=n)
    grid, _ = grid_of(plan, d, points)
    allowed = plan.volume_loss + 2 * plan.lipschitz / plan.scale
    assert allowed <= 1.0
    for _ in range(rounds):
        for pair in tables(rng, objective, n, d):
            one, other = (log_density(objective, X, y, plan, grid, plan.scale) for X, y in pair)
            worst = max(worst, float(np.max(np.abs(one - other))))
    assert 0.4 * allowed < worst <= allowed * (1 + 1e-9)


def test_pure_noise_is_not_larger_than_necessary():
    """A Huber loss just inside its threshold, with full gradient and curvature, is compared with a linear loss."""
    objective, budget = Huber(0.4), Budget(1.0)
    plan = planned(objective, budget, n=1)
    far = -30 * plan.scale / plan.modulus
    point = np.array([[far]])
    pair = [(np.ones((1, 1)), np.array([far - 0.4 + 1e-9])), (np.ones((1, 1)), np.array([-far]))]
    one, other = (log_density(objective, X, y, plan, point, plan.scale) for X, y in pair)
    assert float((one - other)[0]) == pytest.approx(plan.volume_loss + 2 * plan.lipschitz / plan.scale, rel=1e-9)
    assert float((one - other)[0]) == pytest.approx(1.0, rel=2e-2)  # the rest is for the output


@pytest.mark.parametrize("tolerance", [0.01, 0.3])
def test_a_solver_that_errs_as_badly_as_it_may_is_covered_by_the_noise_on_the_output(tolerance):
    """The minimisers of linear losses are moved apart by both errors, and all laws are Gaussian and known exactly."""
    budget, n, alpha = Budget(1.0, 1e-3), 2, 5.0
    fields = {"n": n, "lipschitz": 1.0, "smoothness": 1e-3, "strong_convexity": alpha, "is_one_sided": True}
    plan = ObjectivePlan.for_budget(budget, **fields, tolerance=tolerance)
    shift = 2 / (n * alpha) + 2 * tolerance / alpha
    mu = shift / math.hypot(plan.scale / (n * alpha), plan.output_scale)
    delta = norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)
    assert delta <= budget.delta
    # The mechanism releases even less than it is charged for: the exact minimiser and the errors, not their sum.
    without = shift / (plan.scale / (n * alpha))
    assert norm.cdf(without / 2 - 1 / without) - math.e * norm.cdf(-without / 2 - 1 / without) > budget.delta


# ---------------------------------------------------------------------------------------------------- the solver


def solve(problem, plan, source, **options):
    return objective_perturbation(
        problem, Run(replace(plan, delta=DELTA), source, options.pop("progress", None)), **options
    )


@pytest.mark.parametrize("objective", LOSSES[:3], ids=NAMES[:3])
@pytest.mark.parametrize("budget", [Budget(1.0, DELTA), Budget(1.0)], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_it_releases_the_minimiser_of_the_tilted_objective(tools, separable, objective, budget, form):
    X, y = separable
    problem = tools.make_problem(form(X), y, objective=objective, alpha=0.05, intercept=0.5)
    plan = objective_plan(problem, budget, added_alpha=0.1)
    weights = solve(problem, plan, NoiseSource(3)).weights
    source = NoiseSource(3)
    tilt, _ = plan.linear_term((4,), source)
    minimiser = minimise(problem, tolerance=plan.tolerance, tilt=tilt / 200, ridge=0.1)
    assert np.array_equal(weights, plan.noisy(minimiser, source))
    total = objective.gradient_sum(minimiser, problem.rows, y, math.inf) + tilt
    assert np.linalg.norm(total / 200 + (0.05 + 0.1) * minimiser) <= plan.tolerance


@pytest.mark.parametrize("budget", [Budget(1.0, DELTA), Budget(1.0)], ids=repr)
def test_the_release_has_the_law_of_the_density(tools, budget):
    """For linear losses w = -(sum of gradients + b)/(n alpha), so the release itself shows the scale of b."""
    problem = tools.make_problem(np.zeros((10, 4000)), np.zeros(10), objective=Straight(), alpha=2.0)
    plan = objective_plan(problem, budget)
    weights = solve(problem, plan, NoiseSource(1)).weights
    std = plan.scale / (10 * 2.0) * (math.sqrt(4001) if budget.is_pure else 1.0)
    if budget.is_pure:
        assert np.linalg.norm(weights) == pytest.approx(std * math.sqrt(4000), rel=0.1)
    for wrong, fits in ((1.0, True), (0.8, False), (1.2, False)):
        if not budget.is_pure:
            assert tools.has_std(weights, wrong * math.hypot(std, plan.output_scale)) == fits


@pytest.mark.parametrize("objective", LOSSES[:3], ids=NAMES[:3])
def test_the_release_approaches_the_minimiser_as_the_noise_vanishes(tools, separable, objective):
    X, y = separable
    problem = tools.make_problem(X, y, objective=objective, alpha=0.05)
    best = problem.value(minimise(problem, tolerance=1e-9))
    excess = []
    for epsilon in (1.0, 30.0, 1e6):
        plan = objective_plan(problem, Budget(epsilon, DELTA))
        excess.append(problem.value(solve(problem, plan, NoiseSource(2)).weights) - best)
    assert excess[0] > 10 * excess[1] > 100 * excess[2] >= -1e-9


@pytest.mark.parametrize("budget", [Budget(1.0, DELTA), Budget(1.0)], ids=repr)
def test_the_plan_of_a_problem_meets_the_budget_and_can_be_certified(tools, budget):
    for n, d, alpha in ((50, 3, 0.1), (20_000, 20, 1e-3), (200, 2000, 1e-2)):
        problem = tools.make_problem(np.ones((n, d)), np.ones(n, int), alpha=alpha, intercept=0.5)
        plan = objective_plan(problem, budget)
        assert budget.epsilon * (1 - 1e-4) < plan.epsilon_at(budget.delta) <= budget.epsilon
        assert plan.is_one_sided
        assert plan.output_scale < 0.05 * plan.scale / (n * plan.modulus)  # against the noise of flat directions
        assert np.isfinite(solve(problem, plan, NoiseSource(0)).weights).all()


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("budget", [Budget(1.0, DELTA), Budget(1.0)], ids=repr)
def test_the_tolerance_can_be_certified_for_the_longest_linear_term(tools, separable, budget):
    """One percent more than the longest term and the largest error, which are divided by the number of records."""
    problem = tools.make_problem(*separable, alpha=0.1)
    plan = objective_plan(problem, budget, added_alpha=0.2)
    longest, error = plan.longest_term(3) / 200, plan.largest_error(3) / 200
    least = least_tolerance(problem, tilt_norm=longest, tilt_error=error, ridge=0.2)
    assert least <= module._least_tolerance(problem, plan) <= 1.02 * least
    assert longest > 10 * problem.lipschitz / 200


def test_a_plan_for_another_problem_is_refused(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1, intercept=0.5)
    plan = objective_plan(problem, Budget(1.0, DELTA))
    others = [
        tools.make_problem(X[:-1], y[:-1], alpha=0.1, intercept=0.5),
        tools.make_problem(X, y, alpha=0.2, intercept=0.5),
        tools.make_problem(X, y, alpha=0.1, intercept=0.0),
        tools.make_problem(X, y, alpha=0.1, intercept=0.5, row_norm=2.0),
        tools.make_problem(X, y, alpha=0.1, intercept=0.5, objective=SmoothedHinge(2.0 + 1e-9)),
        tools.make_problem(X, y, alpha=0.1, intercept=0.5, objective=Huber(1.0)),
    ]
    for other in others:
        with pytest.raises(ValueError, match="other data or constants"):
            solve(other, plan, NoiseSource(0))
    two_sided = dataclasses.replace(plan, is_one_sided=False)
    with pytest.raises(ValueError, match="other data or constants"):
        solve(problem, two_sided, NoiseSource(0))


def test_problems_outside_the_theorem_are_refused(tools, separable):
    X, y = separable
    rows = BoundedRows(X, 1.0)
    plan = objective_plan(tools.make_problem(X, y, alpha=0.1), Budget(1.0, DELTA))
    for objective, regulariser, cause in (
        (Multinomial(3), L2(0.1), "one score per record, not for Multinomial"),
        (Logistic(), L2(0.0), "strong convexity"),
        (Squared(), L2(0.1), "Squared losses are not bounded"),
        (Logistic(), SaturatingPenalty(0.1), "not convex"),
    ):
        problem = Problem(objective, regulariser, rows, y)
        for refusing in (
            lambda p: objective_plan(p, Budget(1.0, DELTA)),
            lambda p: solve(p, plan, NoiseSource(0)),
        ):
            with pytest.raises(ValueError, match=cause):
                refusing(problem)
    assert objective_plan(Problem(Logistic(), L2(0.0), rows, y), Budget(1.0, DELTA), added_alpha=0.1).modulus == 0.1


@pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge()], ids=["logistic", "hinge"])
@pytest.mark.parametrize("label", [0.5, -1.0, 2.0, math.nan])
def test_labels_that_would_leave_their_side_are_refused(tools, objective, label):
    with pytest.raises(ValueError, match="must be 0 or 1"):
        tools.make_problem(np.ones((2, 1)), np.array([1.0, label]), objective=objective, alpha=1.0)


def test_only_losses_known_to_keep_their_side_count_as_one_sided():
    class Bent(Logistic):
        pass

    assert Logistic().is_one_sided and SmoothedHinge().is_one_sided
    assert not Huber(1.0).is_one_sided and not Bent().is_one_sided


@pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge(0.3)], ids=["logistic", "hinge"])
def test_one_sided_losses_have_residuals_of_one_sign(objective):
    scores = np.r_[np.linspace(-50, 50, 2001), -1e300, 1e300]
    for label, sign in ((0, 1), (1, -1)):
        assert (sign * objective.residuals(scores, np.full(scores.shape, label)) >= 0).all()


def test_too_little_alpha_is_refused_with_the_least_that_works(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=1e-5)
    with pytest.raises(ValueError, match="Any alpha above"):
        objective_plan(problem, Budget(0.5, DELTA))
    least = problem.objective.smoothness(problem.rows.norm_bound) / (200 * math.expm1(0.5))
    plan = objective_plan(problem, Budget(0.5, DELTA), added_alpha=1.01 * least)
    release = solve(problem, plan, NoiseSource())
    assert release.guarantee.epsilon <= 0.5
    assert "an additional penalty" in release.guarantee.statement(verbose=True)


def test_a_tolerance_that_could_be_out_of_reach_is_refused_before_noise_is_drawn(tools, separable, no_noise):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1)
    plan = objective_plan(problem, Budget(1.0, DELTA), tolerance=1e-16)
    with pytest.raises(ValueError, match="cannot be certified"):
        solve(problem, plan, NoiseSource())


def test_gaussian_noise_at_delta_zero_is_refused(tools, separable, no_noise):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1)
    plan = objective_plan(problem, Budget(1.0, DELTA))
    with pytest.raises(ValueError, match="delta > 0"):
        objective_perturbation(problem, Run(replace(plan, delta=0.0), NoiseSource()))


# ------------------------------------------------------------------------------------------- the returned values


@pytest.mark.parametrize("budget", [Budget(1.0, DELTA), Budget(1.0)], ids=repr)
def test_the_guarantee_is_that_of_the_plan(tools, separable, budget):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1)
    plan = objective_plan(problem, budget)
    release = objective_perturbation(problem, Run(plan, NoiseSource()))
    assert 0.999 < release.guarantee.epsilon == plan.guarantee(budget.delta).epsilon <= 1.0
    assert release.guarantee.event == plan.event_at(budget.delta)
    assert not release.guarantee.is_conditional
    for words in ("rows are bounded", "minimiser is certified", "200 losses", "randomly tilted", "linear term"):
        assert words in release.guarantee.statement(verbose=True)
    expected = {"tolerance": plan.tolerance, "noise_scale": plan.scale, "output_scale": plan.output_scale}
    assert release.trace == expected


def test_seeds_repeat_and_progress_is_reported(tools, separable):
    X, y = separable
    problem, calls = tools.make_problem(X, y, alpha=0.1), []
    plan = objective_plan(problem, Budget(1.0, DELTA))
    releases = [solve(problem, plan, NoiseSource(5), progress=lambda *call: calls.append(call)) for _ in range(2)]
    assert np.array_equal(releases[0].weights, releases[1].weights)
    assert not np.array_equal(releases[0].weights, solve(problem, plan, NoiseSource(6)).weights)
    assert releases[0].guarantee.is_conditional
    assert calls == [(1, 1), (1, 1)]
