import inspect

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, Logistic, Squared
from privet.solvers.base.interface import Problem, Release
from privet.solvers.ight import ight


@pytest.fixture(scope="module")
def noisy_table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 400))
    truth = np.zeros(400)
    truth[rng.choice(400, 10, replace=False)] = rng.choice([-1, 1], 10) * rng.uniform(0.5, 2, 10)
    return X, X @ truth + 0.1 * rng.standard_normal(300), truth


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_it_finds_the_support_where_features_outnumber_records(noisy_table, form):
    X, y, truth = noisy_table
    found = ight(Problem(Squared(), L2(0.0), BoundedRows(form(X), 1e3), y), n_nonzero=10)
    assert set(np.flatnonzero(found)) == set(np.flatnonzero(truth))
    best = np.linalg.lstsq(X[:, found != 0], y, rcond=None)[0]
    assert found[found != 0] == pytest.approx(best, abs=1e-6)


def test_the_objective_never_increases(noisy_table):
    X, y, _ = noisy_table
    problems = [
        Problem(Squared(), L2(0.01), BoundedRows(X, 1e3, 0.7), y + 3),
        Problem(Logistic(), L2(0.01), BoundedRows(X, 1e3, 0.7), (y > 1).astype(int)),
    ]
    for problem in problems:
        values = [problem.value(problem.start())]
        for steps in range(1, 20):
            found = ight(problem, n_nonzero=7, steps=steps)
            assert np.count_nonzero(found[:400]) <= 7
            assert found[400] != 0
            values.append(problem.value(found))
        assert (np.diff(values) <= 1e-12).all()
        assert values[-1] < 0.8 * values[0]


def test_a_constant_step_is_the_plain_algorithm(noisy_table):
    X, y, _ = noisy_table
    weights = np.zeros(400)
    for _ in range(5):
        weights = weights - 0.5 * (X.T @ (X @ weights - y) / 300 + 0.1 * weights)
        weights[np.argsort(-np.abs(weights))[6:]] = 0.0
    problem = Problem(Squared(), L2(0.1), BoundedRows(X, 1e3), y)
    assert ight(problem, n_nonzero=6, steps=5, step_size=0.5) == pytest.approx(weights, abs=1e-12)


def test_all_features_may_be_kept(noisy_table):
    X, y, _ = noisy_table
    problem = Problem(Squared(), L2(0.5), BoundedRows(X, 1e3), y)
    exact = np.linalg.solve(X.T @ X / 300 + 0.5 * np.eye(400), X.T @ y / 300)
    assert ight(problem, n_nonzero=400, steps=300) == pytest.approx(exact, abs=1e-5)


def plain_steps(X, b, y, curvature, slope, alpha, n_nonzero, steps):
    """Return the iterates of normalised iterative hard thresholding, and how often a step was halved."""
    A = np.column_stack([X, np.full(len(X), b)])
    w, halved, iterates = np.zeros(A.shape[1]), 0, []

    def bend(v):
        return curvature * np.sum((A @ v) ** 2) / len(A) + alpha * v @ v

    def kept(v):
        v = v.copy()
        v[np.argsort(-np.abs(v[:-1]), kind="stable")[n_nonzero:]] = 0.0
        return v

    for _ in range(steps):
        g = A.T @ slope(A @ w, y) / len(A) + alpha * w
        used = np.where(w != 0, g, 0.0) if w[:-1].any() else kept(g)
        used[-1] = g[-1]
        eta = used @ used / bend(used)
        while eta * bend(kept(w - eta * g) - w) > np.sum((kept(w - eta * g) - w) ** 2) * (1 + 1e-9):
            eta, halved = eta / 2, halved + 1
        w = kept(w - eta * g)
        iterates.append(w)
    return iterates, halved


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_steps_are_those_of_a_plain_loop(alpha):
    """Correlated columns make the first features wrong, so that some steps change them and must be halved."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 12)) + 2 * rng.standard_normal((60, 1))
    y = X[:, :4] @ np.array([1.0, -2.0, 1.5, -1.0]) + 1.0
    cases = [(Squared(), y, 1.0, lambda s, t: s - t)]
    cases.append((Logistic(), (y > 0).astype(float), 0.25, lambda s, t: 1 / (1 + np.exp(-s)) - t))
    total = 0
    for objective, targets, curvature, slope in cases:
        iterates, halved = plain_steps(X, 0.5, targets, curvature, slope, alpha, 3, 12)
        problem = Problem(objective, L2(alpha), BoundedRows(X, 1e3, 0.5), targets)
        for steps, expected in enumerate(iterates, start=1):
            found = ight(problem, n_nonzero=3, steps=steps, tolerance=0.0)
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
        total += halved
    assert total > 0


def test_it_stops_when_a_step_changes_little(noisy_table):
    X, y, _ = noisy_table
    problem = Problem(Squared(), L2(0.0), BoundedRows(X, 1e3), y)
    far, near = (ight(problem, n_nonzero=10, tolerance=tolerance) for tolerance in (0.5, 0.0))
    assert np.array_equal(far, ight(problem, n_nonzero=10, steps=2))
    assert not np.array_equal(far, near)


def test_the_defaults_are_a_hundred_steps_and_nine_digits():
    defaults = {name: each.default for name, each in inspect.signature(ight).parameters.items()}
    assert (defaults["steps"], defaults["step_size"], defaults["tolerance"]) == (100, None, 1e-9)


@pytest.mark.parametrize("targets", [np.zeros(4), np.ones(4)])
def test_targets_without_information_give_finite_weights(targets):
    rows = BoundedRows(np.zeros((4, 3)), 1.0)
    assert not ight(Problem(Squared(), L2(0.0), rows, targets), n_nonzero=2).any()
    with_constant = ight(Problem(Squared(), L2(0.0), BoundedRows(np.zeros((4, 3)), 1.0, 0.5), targets), n_nonzero=2)
    assert with_constant == pytest.approx([0, 0, 0, 2 * targets[0]])


def test_more_features_than_there_are_and_bad_numbers_are_refused():
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((4, 3)), 1.0), np.ones(4))
    for options, cause in (
        ({"n_nonzero": 4}, "cannot be kept of 3"),
        ({"n_nonzero": 2, "steps": 0}, "steps must"),
        ({"n_nonzero": 2, "step_size": -1.0}, "step_size must"),
        ({"n_nonzero": 2, "tolerance": -1.0}, "tolerance must"),
    ):
        with pytest.raises(ValueError, match=cause):
            ight(problem, **options)


def test_ight_is_not_listed_as_a_private_solver():
    assert inspect.signature(ight, eval_str=True).return_annotation is not Release
