import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, Huber, Squared
from privet.objectives import moments as sums
from privet.objectives.moments import second_moments
from privet.objectives.summation import ROUNDING
from privet.plans import MomentStability, OutputPlan
from privet.plans.stabilities.moments import balanced_target_scale
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem, Run, moment_stability, sufficient_statistics
from privet.solvers.output_perturbation import descent_stability
from privet.solvers.sufficient_statistics import MOST_COLUMNS

BUDGET = Budget(1.0, 1e-5)


def stability_of(scale, n_targets=1):
    return MomentStability(10, 1.0, 1.0, scale, n_targets)


def moments_of(x, targets, scale):
    """Return what one record adds: the upper triangle with sqrt(2) off the diagonal, and the products with targets."""
    i, j = np.triu_indices(len(x))
    triangle = np.outer(x, x)[i, j] * np.where(i == j, 1.0, math.sqrt(2))
    return np.concatenate([triangle, scale * np.outer(x, targets).ravel()])


def make(X, y, alpha=1e-4, intercept=0.5, objective=None):
    return Problem(objective or Squared(), L2(alpha), BoundedRows(np.asarray(X, float), 1.0, intercept), np.asarray(y))


def table(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, d))
    return X, X @ np.array([0.8, -0.5, 0.2])[:d] + 0.2


# -------------------------------------------------------------------------------------------------- the sensitivity


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 1.3, 2.0, 5.0])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_no_pair_of_records_moves_the_moments_further_than_the_sensitivity(scale, n_targets):
    rng, bound, largest = np.random.default_rng(0), stability_of(scale, n_targets).sensitivity, 0.0
    for _ in range(4000):
        x, other = rng.standard_normal((2, int(rng.integers(1, 4))))
        x, other = (each / np.linalg.norm(each) * rng.choice([1.0, rng.random()]) for each in (x, other))
        targets, flipped = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], (2, n_targets))
        if rng.random() < 0.5:
            flipped = -targets
        distance = np.linalg.norm(moments_of(x, targets, scale) - moments_of(other, flipped, scale))
        assert distance <= bound
        largest = max(largest, distance)
    assert largest > 0.98 * bound


@pytest.mark.parametrize("k", [0.1, 1.0, 1.9, 2.0, 2.1, 30.0])
def test_the_sensitivity_is_attained(k):
    cosine = min(k / 2, 1.0)
    x, other = np.array([1.0, 0.0]), np.array([cosine, math.sqrt(1 - cosine**2)])
    scale = math.sqrt(k)
    distance = np.linalg.norm(moments_of(x, [1.0], scale) - moments_of(other, [-1.0], scale))
    assert distance == pytest.approx(stability_of(scale).sensitivity, rel=1e-9)
    assert distance < 2 * math.sqrt(1 + k)  # what the norms of the two summands alone allow


@pytest.mark.parametrize("m", [1, 2, 10, 1000])
def test_the_factor_of_targets_balances_the_noise(m):
    def variance(k):
        return stability_of(math.sqrt(k / m), m).sensitivity ** 2 * (1 / 4 + m / (2 * k))

    best = m * balanced_target_scale(m) ** 2
    assert 0 < best <= 2
    assert variance(best) <= min(variance(0.98 * best), variance(1.02 * best))


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_what_gets_noise_moves_by_at_most_the_sensitivity(n, intercept, tools):
    rng = np.random.default_rng(n)
    for _ in range(20):
        X, y = 3 * rng.standard_normal((n, 2)), 3 * rng.standard_normal(n)
        X[rng.random(n) < 0.2] = 0
        other, flipped = X.copy(), y.copy()
        other[0], flipped[0] = rng.choice([1e-9, 1, 1e9]) * rng.standard_normal(2), -y[0]
        ends = []
        for data in ((X, y), (other, flipped)):
            problem = make(*data, intercept=intercept)
            plan = OutputPlan.for_budget(BUDGET, stability=moment_stability(problem, 1.0))
            ends.append(sufficient_statistics(problem, Run(plan, tools.Silent())).trace["moments"])
        assert np.linalg.norm(ends[0] - ends[1]) <= plan.stability.sensitivity


# ---------------------------------------------------------------------------------------------------- the solution


@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_without_noise_the_solution_is_that_of_ridge_regression(intercept, tools):
    X, y = table()
    problem = make(X, y, alpha=0.3, intercept=intercept)
    plan = OutputPlan(moment_stability(problem, 1.0), 1e-6, is_pure=False, delta=1e-5)
    release = sufficient_statistics(problem, Run(plan, tools.Silent(), before_training=None))
    Z = np.hstack([X, np.full((len(X), 1), intercept)])[:, : problem.rows.dimension]
    exact = np.linalg.solve(Z.T @ Z / len(X) + 0.3 * np.eye(Z.shape[1]), Z.T @ y / len(X))
    assert release.weights == pytest.approx(exact, rel=1e-5)


def test_several_targets_share_the_matrix_and_one_release():
    X, y = table()
    problem = make(X, y, alpha=0.0)
    plan = OutputPlan.for_budget(Budget(1e4, 1e-5), stability=moment_stability(problem, 1.0, 2))
    release = sufficient_statistics(problem, Run(plan, NoiseSource(0)), others=[-0.5 * y])
    assert release.weights.shape == (4, 2)
    assert release.weights[:, 1] == pytest.approx(-0.5 * release.weights[:, 0], abs=0.05)
    assert release.guarantee.released.startswith("of 2 tasks: ")


def test_small_blocks_and_sparse_rows_give_the_same_sums(monkeypatch):
    X, y = table(n=1000)
    X *= 2  # some rows are scaled down
    dense = second_moments(BoundedRows(X, 1.0, 0.5), y[:, None])
    monkeypatch.setattr(sums, "_BLOCK_ENTRIES", 1)
    for rows in (X, sparse.csr_array(X)):
        for found, expected in zip(second_moments(BoundedRows(rows, 1.0, 0.5), y[:, None]), dense, strict=True):
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_rounding_errors_stay_within_the_allowance():
    X, y = table(n=20_000)
    rows = BoundedRows(X, 1.0, 0.5)
    matrix, _ = second_moments(rows, y[:, None])
    Z = np.hstack([X, np.full((len(X), 1), 0.5)]) / rows.largest_norm
    exact = np.array([[math.fsum(Z[:, i] * Z[:, j]) for j in range(4)] for i in range(4)])
    assert np.linalg.norm(matrix - exact) < ROUNDING / 2


def test_eigenvalues_below_the_noise_are_raised_and_the_result_is_finite():
    X, y = np.zeros((2, 3)), np.array([1.0, -1.0])
    problem = make(X, y, alpha=0.0)
    plan = OutputPlan.for_budget(Budget(1e-3, 1e-6), stability=moment_stability(problem, 1.0))
    release = sufficient_statistics(problem, Run(plan, NoiseSource(0)))
    assert release.trace["smallest_eigenvalue"] < 0 < release.trace["floor"]
    assert np.linalg.norm(release.weights) < 10


# ------------------------------------------------------------------------------------------------------- refusals


def test_problems_that_moments_do_not_determine_are_refused():
    X, y = table(n=5)
    with pytest.raises(ValueError, match="Huber with L2 is not determined by second moments"):
        moment_stability(make(X, y, objective=Huber(0.5)), 1.0)
    with pytest.raises(ValueError, match=f"at most {MOST_COLUMNS} columns"):
        moment_stability(make(np.zeros((2, MOST_COLUMNS)), y[:2]), 1.0)
    problem = make(X, y)
    centred = replace(problem, rows=problem.rows.centred(np.array([0.1, 0.0, 0.0])))
    with pytest.raises(ValueError, match="centred rows are not supported"):
        moment_stability(centred, 1.0)


def test_plans_of_other_problems_are_refused_before_any_noise():
    X, y = table(n=5)
    problem = make(X, y)
    other = OutputPlan.for_budget(BUDGET, stability=moment_stability(make(X[:4], y[:4]), 1.0))
    with pytest.raises(ValueError, match="made for other data or constants"):
        sufficient_statistics(problem, Run(other, NoiseSource(0)))
    huber = make(X, y, objective=Huber(0.5))
    descent = OutputPlan.for_budget(BUDGET, stability=descent_stability(huber, 0.5, 3))
    with pytest.raises(TypeError, match="runs a MomentStability plan, not DescentStability"):
        sufficient_statistics(problem, Run(descent, NoiseSource(0)))
