import importlib
import math

import mpmath
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, SaturatingPenalty, SmoothedHinge, Squared
from privet.solvers.base.interface import Problem
from privet.solvers.base.minimise import check_minimisable, least_tolerance, minimise
from privet.solvers.base.rounding import rounding_besides_sums

# The package may hand out a function of the same name.
module = importlib.import_module("privet.solvers.base.minimise")

LOSSES = [Logistic(), SmoothedHinge(0.1), Huber(0.5), Multinomial(3)]
NAMES = ["logistic", "hinge", "huber", "multinomial"]


def table(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.integers(0, 2, n)


def exact_gradient(problem, weights, tilt=None, ridge=0.0):
    """Return the gradient with forty digits, for dense rows, from the definitions of the losses."""
    rows = problem.rows
    with mpmath.workdps(40):
        w = [mpmath.mpf(value) for value in weights]
        factors = rows._factors if rows._factors is not None else np.ones(rows.n)
        total = [mpmath.mpf(0) for _ in w]
        for x, factor, y in zip(rows._X, factors, problem.targets, strict=True):
            row = [mpmath.mpf(value) * mpmath.mpf(factor) for value in x]
            row += [mpmath.mpf(rows.intercept)] * bool(rows.intercept)
            score = mpmath.fdot(row, w)
            if isinstance(problem.objective, Logistic):
                residual = 1 / (1 + mpmath.exp(-score)) - int(y)
            else:
                residual = max(min(score - int(y), problem.objective.threshold), -problem.objective.threshold)
            total = [t + residual * value for t, value in zip(total, row, strict=True)]
        alpha = mpmath.mpf(problem.regulariser.alpha) + mpmath.mpf(ridge)
        tilt = np.zeros(len(w)) if tilt is None else tilt
        return [t / rows.n + alpha * v + mpmath.mpf(c) for t, v, c in zip(total, w, tilt, strict=True)]


def norm_of(gradient):
    return mpmath.sqrt(mpmath.fdot(gradient, gradient))


# --------------------------------------------------------------------------------------------------- the minimum


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
@pytest.mark.parametrize("alpha", [1e-3, 10.0])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_gradient_is_within_the_tolerance(tools, objective, alpha, form):
    X, y = table(60, 4)
    problem = tools.make_problem(form(X), y, objective=objective, alpha=alpha, intercept=0.5)
    least = least_tolerance(problem)
    for tolerance in (0.1, 1e-4, least):
        weights = minimise(problem, tolerance=tolerance)
        assert weights.shape == problem.start().shape
        assert problem.gradient_norm(weights) <= tolerance


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_optimum_of_scikit_learn(tools, separable, n_classes):
    X, y = separable
    y = y + (X[:, 2] > 0.4) * (n_classes == 3)
    objective = Logistic() if n_classes == 2 else Multinomial(3)
    problem = tools.make_problem(X, y, objective=objective, alpha=0.05)
    weights = minimise(problem, tolerance=1e-9)
    rows = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    reference = LogisticRegression(C=1 / (0.05 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(rows, y)
    found = weights if weights.ndim == 1 else weights.T
    assert found == pytest.approx(reference.coef_.squeeze(), abs=1e-6)


def test_tilt_and_ridge_are_part_of_the_objective(tools, separable):
    X, y = separable
    tilt = np.array([0.2, -0.1, 0.05])
    problem, heavier = (tools.make_problem(X, y, alpha=alpha) for alpha in (0.1, 0.4))
    weights = minimise(problem, tolerance=1e-9, tilt=tilt, ridge=0.3)
    total = Logistic().gradient_sum(weights, problem.rows, y, math.inf)
    assert np.linalg.norm(total / len(y) + 0.4 * weights + tilt) <= 1e-9
    assert weights != pytest.approx(minimise(heavier, tolerance=1e-9), abs=1e-3)
    assert minimise(problem, tolerance=1e-9, ridge=0.3) == pytest.approx(minimise(heavier, tolerance=1e-9), abs=1e-7)


def test_linear_losses_have_their_minimum_where_the_ridge_balances_them(tools):
    problem = tools.make_problem(np.ones((4, 1)), [1.0, 1.0, 0.0, 0.0], objective=tools.Linear(), alpha=0.2)
    assert minimise(problem, tolerance=1e-10) == pytest.approx([-0.5 / 0.2], abs=1e-9)


def test_sums_over_many_rows_are_added_in_pairs(tools):
    X, y = table(5 * 4096 + 17, 3)
    dense, thin = (tools.make_problem(form(X), y, alpha=1e-3, intercept=0.5) for form in (np.asarray, sparse.csr_array))
    weights = minimise(dense, tolerance=1e-9)
    assert weights == pytest.approx(minimise(thin, tolerance=1e-9), abs=3e-6)
    assert dense.gradient_norm(weights) <= 1e-9


# ----------------------------------------------------------------------------------------------- the certificate


@pytest.mark.parametrize("objective", [Logistic(), Huber(0.5)], ids=["logistic", "huber"])
@pytest.mark.parametrize(("alpha", "scale"), [(0.1, 1.0), (1e-6, 1.0), (0.1, 1e6), (1e-3, 1e-6)])
def test_the_exact_gradient_is_within_the_least_tolerance(tools, objective, alpha, scale):
    """The bound on rounding errors, and therefore the certificate, is checked with forty digits."""
    X, y = table(30, 3)
    problem = tools.make_problem(scale * X, y, objective=objective, alpha=alpha, row_norm=scale, intercept=scale / 2)
    tilt = 0.1 * scale * np.array([1.0, -2.0, 3.0, 1.0])
    tilt_norm = float(np.linalg.norm(tilt))
    least = least_tolerance(problem, tilt_norm=tilt_norm, ridge=alpha)
    weights = minimise(problem, tolerance=least, tilt=tilt, ridge=alpha)
    exact = exact_gradient(problem, weights, tilt, alpha)
    assert norm_of(exact) <= least
    target = module._Target(problem, tilt, alpha)
    for point in (weights, 1e3 * weights, np.full(4, 1.0), np.zeros(4)):
        exact, found = exact_gradient(problem, point, tilt, alpha), target.at(point)
        rounding = module._rounding(problem, float(np.linalg.norm(point)), tilt_norm, alpha)
        assert norm_of([e - mpmath.mpf(g) for e, g in zip(exact, found.gradient, strict=True)]) <= rounding
        assert norm_of(exact) <= found.length


def test_the_bound_on_rounding_is_small_against_what_a_record_moves(tools):
    """The default tolerance, a hundredth of L/n, is therefore attainable for tables of usual sizes."""
    for n, d in ((10, 2), (3000, 100), (100_000, 10)):
        problem = tools.make_problem(np.ones((n, d)), np.ones(n, int), alpha=1e-3)
        assert least_tolerance(problem) < 1e-2 * problem.lipschitz / n


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
@pytest.mark.parametrize("start", [np.nan, np.inf, 0.0, 1e9, -3.0])
def test_plain_descent_converges_from_any_bad_start(tools, monkeypatch, objective, start):
    X, y = table(40, 3)
    problem = tools.make_problem(X, y, objective=objective, alpha=0.2)

    def astray(target, point, tolerance):
        return target.at(np.full_like(problem.start(), start))

    monkeypatch.setattr(module, "_quasi_newton", astray)
    monkeypatch.setattr(module, "_spectral_descent", lambda target, point, tolerance: point)
    tolerance = least_tolerance(problem)
    assert problem.gradient_norm(minimise(problem, tolerance=tolerance)) <= tolerance


class Impatient(Huber):
    """A loss that raises an error if its residuals are asked for too often."""

    asked = 0

    def residuals(self, scores, targets):
        self.asked += 1
        assert self.asked < 1000, "the descent does not converge"
        return super().residuals(scores, targets)


@pytest.mark.parametrize("alpha", [0.2, 1.5])
def test_plain_descent_converges_where_the_curvature_is_the_smoothness(tools, monkeypatch, alpha):
    """All rows are equal and as long as allowed, so that a step longer than 2/smoothness would diverge."""
    problem = tools.make_problem(np.ones((5, 1)), np.ones(5), objective=Impatient(3.0), alpha=alpha)
    assert problem.smoothness == pytest.approx(1 + alpha)
    for quick in ("_quasi_newton", "_spectral_descent"):
        monkeypatch.setattr(module, quick, lambda target, point, tolerance: point)
    tolerance = least_tolerance(problem)
    weights = minimise(problem, tolerance=tolerance)
    assert weights == pytest.approx([1 / (1 + alpha)], rel=1e-12)


@pytest.mark.parametrize("n", [1, 100, 4096, 10**6])
def test_the_bound_on_rounding_covers_the_worst_sums(tools, n):
    """Added one after the other, m terms of size b may err by m (m - 1) / 2 roundoffs of b: their mean by (m - 1) / 2.

    At most 4096 rows are added up at once. The sums of more rows are added in pairs.
    """
    problem = tools.make_problem(np.ones((2, 1)), np.ones(2, int), alpha=0.1)
    at_once, levels = min(n, 4096), math.ceil(math.log2(max(1, n / 4096)))
    worst = 2.0**-53 * ((at_once - 1) / 2 + levels) * problem.objective.residual_bound * problem.rows.reach
    assert module._rounding(problem, 0.0, 0.0, 0.0, n) >= worst
    assert least_tolerance(problem, n=n) >= worst


class Sloped(L2):
    """A ridge penalty whose minimum is not at zero."""

    def gradient(self, weights):
        return super().gradient(weights) + 0.25


@pytest.mark.parametrize("n", [1, 100, 4096, 4097, 3 * 4096, 10**6])
def test_the_roundings_of_sums_are_counted_by_hand(tools, n):
    """Terms that are added at once, one level per doubling of the number of parts, 8 more, and 8 of the tilt."""
    problem = tools.make_problem(np.ones((2, 3)), np.ones(2, int), objective=Huber(0.5), alpha=0.1, row_norm=3.0)
    parts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128, 256) if count * 4096 >= n]
    additions = min(n, 4096) + math.log2(parts[0]) + 8
    in_sums = 1.01 * 2.0**-53 * (additions * 0.5 * problem.rows.reach + 8 * 6.0)
    besides = rounding_besides_sums(problem, problem.lipschitz, 7.0, 0.2)
    assert module._rounding(problem, 7.0, 6.0, 0.2, n) == pytest.approx(in_sums + besides, rel=1e-12, abs=0)


@pytest.mark.parametrize(("tilt_norm", "ridge"), [(0.0, 0.0), (3.0, 0.0), (0.0, 2.0), (3.0, 2.0)])
def test_the_least_tolerance_is_four_times_the_error_where_a_descent_may_go(tools, tilt_norm, ridge):
    """Weights stay within twice the gradient at zero over the modulus, and each step rounds four times more."""
    rows = tools.make_problem(np.ones((30, 3)), np.ones(30, int), intercept=1.0).rows
    problem = Problem(Logistic(), Sloped(0.5), rows, np.ones(30))
    first = problem.lipschitz + 0.25 * 2.0 + tilt_norm
    farthest = 2.01 * first / (0.5 + ridge)
    of_moving = 4 * 2.0**-53 * ((problem.smoothness + ridge) * farthest + first)
    expected = 4 * (module._rounding(problem, farthest, tilt_norm, ridge) + of_moving)
    assert least_tolerance(problem, tilt_norm=tilt_norm, ridge=ridge) == pytest.approx(expected, rel=1e-12, abs=0)
    assert least_tolerance(problem, tilt_norm=tilt_norm, ridge=ridge, tilt_error=0.5) == pytest.approx(expected + 0.5)
    if not (tilt_norm or ridge):
        assert least_tolerance(problem) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("name", ["tilt_norm", "ridge"])
def test_negative_sizes_of_added_terms_are_refused(tools, name):
    problem = tools.silence(3, 2, alpha=0.1)
    with pytest.raises(ValueError, match=f"{name} must not be negative"):
        least_tolerance(problem, **{name: -0.01})
    with pytest.raises(ValueError, match="tilt_error must not be negative"):
        minimise(problem, tolerance=0.1, tilt_error=-0.01)


def test_the_certificate_adds_all_that_may_be_missing_from_the_computed_norm(tools):
    """The norm of a thousand computed numbers errs by up to 1008 roundoffs, besides the errors of the numbers."""
    problem = tools.make_problem(np.ones((3, 1000)), np.ones(3, int), alpha=0.5)
    weights, tilt = np.full(1000, 0.01), np.full(1000, 0.5)
    norm = float(np.linalg.norm(module._Target(problem, tilt, 0.2).at(weights).gradient))
    rounding = module._rounding(problem, float(np.linalg.norm(weights)), float(np.linalg.norm(tilt)), 0.2)
    found = module._Target(problem, tilt, 0.2).at(weights).length
    assert (found - norm - rounding) / norm == pytest.approx(1008 * 2.0**-53, abs=4 * 2.0**-53)
    with_error = module._Target(problem, tilt, 0.2, 0.125).at(weights).length
    assert with_error == pytest.approx(found + 0.125, rel=1e-12)


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
def test_the_quick_value_and_gradient_are_those_of_the_tilted_objective(tools, objective):
    X, y = table(50, 3)
    problem = tools.make_problem(X, y, objective=objective, alpha=0.3, intercept=0.5)
    rng = np.random.default_rng(0)
    weights, tilt = rng.standard_normal((2, *problem.start().shape))
    target = module._Target(problem, tilt, 0.7)
    value, gradient = target.quickly(weights)
    expected = problem.value(weights) + np.sum(tilt * weights) + 0.35 * np.sum(weights**2)
    assert value == pytest.approx(expected, rel=1e-12)
    assert gradient == pytest.approx(target.at(weights).gradient, rel=1e-9, abs=1e-12)
    total = objective.gradient_sum(weights, problem.rows, y, math.inf)
    assert gradient == pytest.approx(total / 50 + 1.0 * weights + tilt, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5, 1e-8])
def test_a_quasi_newton_descent_alone_reaches_usual_tolerances(tools, tolerance):
    X, y = table(300, 100)
    problem = tools.make_problem(X, y, alpha=0.01, row_norm=10.0)
    target = module._Target(problem, problem.start(), 0.0)
    found = module._quasi_newton(target, target.at(problem.start()), tolerance)
    assert found.length <= tolerance
    assert found.length >= tolerance / 1e3


def spectral(target, tolerance, steps, shrink):
    """Return the best point of a descent by the step sizes of Barzilai and Borwein, <s, s> / <s, y>."""
    point = best = target.at(target.problem.start())
    shortest, longest = 1 / target.smoothness, 1 / target.strong_convexity
    size, n_shrunk = shortest, 0
    for _ in range(steps):
        moved = target.at(point.weights - size * point.gradient)
        if size > shortest and moved.length > 10 * best.length:
            size, point, n_shrunk = max(size / shrink, shortest), best, n_shrunk + 1
            continue
        s, y = moved.weights - point.weights, moved.gradient - point.gradient
        size = min(max(s @ s / (s @ y), shortest), longest) if s @ y > 0 else shortest
        point = moved
        best = point if point.length < best.length else best
        if best.length <= tolerance:
            break
    return best, n_shrunk


@pytest.mark.parametrize(("objective", "alpha"), [(Logistic(), 0.01), (Huber(0.5), 0.3), (SmoothedHinge(0.01), 1e-3)])
def test_a_spectral_descent_has_the_step_sizes_of_barzilai_and_borwein(tools, separable, objective, alpha):
    X, y = separable
    target = module._Target(tools.make_problem(X, y, objective=objective, alpha=alpha), np.full(3, 0.1), 0.001)
    start = target.at(target.problem.start())
    for tolerance in (1e-2, 1e-4, 1e-12):
        expected, n_shrunk = spectral(target, tolerance, 100, 8)
        assert np.array_equal(module._spectral_descent(target, start, tolerance).weights, expected.weights)
    if isinstance(objective, SmoothedHinge):
        assert n_shrunk > 0  # The hinge bends so suddenly that some steps are too long.


def test_parts_of_a_sum_are_added_in_pairs_of_neighbours():
    for n in range(1, 9):
        parts = [np.array([2.0**k]) for k in range(n)]
        pairs = list(module._added_in_pairs(parts))
        assert [float(pair[0]) for pair in pairs] == [
            sum(2.0**k for k in range(i, min(i + 2, n))) for i in range(0, n, 2)
        ]


def test_a_diverging_spectral_descent_is_abandoned(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, objective=SmoothedHinge(0.01), alpha=1e-3)
    target = module._Target(problem, problem.start(), 0.0)
    start = target.at(problem.start())
    assert module._spectral_descent(target, start, 1e-12).length <= start.length


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
def test_hard_data_is_solved_like_any_other(tools, objective):
    """Ties, zeros, extreme rows, one label or steep directions raise no error, which would reveal something."""
    rng = np.random.default_rng(3)
    for n in (1, 3):
        for pair in tools.neighbours(rng, n, 3):
            for X, y in pair:
                problem = tools.make_problem(X, y, objective=objective, alpha=1e-5, intercept=0.5)
                least = least_tolerance(problem)
                assert problem.gradient_norm(minimise(problem, tolerance=least)) <= least


# ------------------------------------------------------------------------------------------------------ refusals


class Untouchable(Logistic):
    """A loss that raises an error if the data is used."""

    def loss(self, scores, targets):
        raise AssertionError("the data was touched")

    residuals = loss


def test_a_tolerance_below_rounding_is_refused_before_data_is_touched(tools):
    X, y = table(20, 3)
    problem = tools.make_problem(X, y, objective=Untouchable(), alpha=0.1)
    least = least_tolerance(problem)
    with pytest.raises(ValueError, match="cannot be certified in floating point"):
        minimise(problem, tolerance=0.99 * least)
    with pytest.raises(AssertionError, match="touched"):
        minimise(problem, tolerance=least)
    with pytest.raises(ValueError, match="cannot be certified"):
        minimise(problem, tolerance=least, tilt=np.array([1e6, 0.0, 0.0]))


def test_the_least_tolerance_is_the_same_for_all_data_of_one_shape(tools):
    rng = np.random.default_rng(4)
    tables = [table for pair in tools.neighbours(rng, 5, 3) for table in pair]
    assert len({least_tolerance(tools.make_problem(X, y, alpha=0.1, intercept=0.5)) for X, y in tables}) == 1


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_tolerance_is_refused(tools, tolerance):
    with pytest.raises(ValueError, match="tolerance must be"):
        minimise(tools.silence(3, 2, alpha=0.1), tolerance=tolerance)


def test_problems_without_one_stable_minimiser_are_refused(tools):
    X, y = table(5, 2)
    rows = BoundedRows(X, 1.0)
    for problem, cause in (
        (Problem(Logistic(), L2(0.0), rows, y), "without strong convexity"),
        (Problem(Squared(), L2(0.1), rows, y), "Squared losses are not bounded"),
        (Problem(Logistic(), SaturatingPenalty(0.1), rows, y), "not convex"),
    ):
        for refusing in (check_minimisable, least_tolerance, lambda p: minimise(p, tolerance=0.1)):
            with pytest.raises(ValueError, match=cause):
                refusing(problem)
    check_minimisable(Problem(Logistic(), L2(0.0), rows, y), ridge=0.1)
