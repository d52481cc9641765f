"""Steps and minimisers that are computed in floating point, compared with fifty digits."""

import importlib
import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import sparse

from privet.objectives import (
    L2,
    BoundedRows,
    GaussianAbsolute,
    GaussianHinge,
    Huber,
    Logistic,
    Multinomial,
    SmoothedHinge,
    Squared,
    TamedLogistic,
)
from privet.plans import DescentStability, OutputPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem, Run, objective_perturbation, output_perturbation
from privet.solvers.base.minimise import least_tolerance, minimise
from privet.solvers.base.rounding import rounding_besides_sums
from privet.solvers.knowledge_transfer import PublicFeatures, transfer_stability
from privet.solvers.objective_perturbation import objective_plan
from privet.solvers.output_perturbation import descent_stability

LOSSES = [
    Logistic(),
    TamedLogistic(),
    SmoothedHinge(0.1),
    GaussianHinge(0.2),
    GaussianAbsolute(0.2),
    Huber(0.5),
    Squared(),
    Multinomial(3),
]
NAMES = [type(loss).__name__ for loss in LOSSES]


def mp(value):
    return mpmath.mpf(float(value))


def residual(objective, scores, y):
    """Return the derivative of the loss with respect to the scores, with fifty digits, from its definition."""
    if isinstance(objective, Multinomial):
        powers = [mpmath.exp(s) for s in scores]
        return [p / mpmath.fsum(powers) - (k == y) for k, p in enumerate(powers)]
    (s,) = scores
    sign, zero = 2 * int(y) - 1, mpmath.mpf(0)
    width, corner = mp(getattr(objective, "width", 1.0)), mp(1 + getattr(objective, "width", 1.0))
    slopes = {
        Logistic: lambda: 1 / (1 + mpmath.exp(-s)) - int(y),
        TamedLogistic: lambda: -sign * mpmath.exp(-max(sign * s, zero)) / 2,
        SmoothedHinge: lambda: -sign * min(max((corner - sign * s) / (2 * width), zero), mpmath.mpf(1)),
        GaussianHinge: lambda: -sign * mpmath.ncdf((1 - sign * s) / width),
        GaussianAbsolute: lambda: 2 * mpmath.ncdf((s - int(y)) / width) - 1,
        Huber: lambda: max(min(s - int(y), mp(objective.threshold)), -mp(objective.threshold)),
        Squared: lambda: s - int(y),
    }
    return [slopes[type(objective)]()]


def exact_rows(rows):
    """Return the bounded rows in exact numbers."""
    X = rows._X.toarray() if sparse.issparse(rows._X) else rows._X
    ones = np.ones(rows.n)
    factors = ones if rows._factors is None else rows._factors
    shrinks = ones if rows._shrinks is None else rows._shrinks
    centre = np.zeros(rows.n_features) if rows._centre is None else rows._centre
    for x, factor, shrink in zip(X, factors, shrinks, strict=True):
        row = [mp(shrink) * (mp(factor) * mp(value) - mp(c)) for value, c in zip(x, centre, strict=True)]
        yield row + [mp(rows.intercept)] * bool(rows.intercept)


def exact_gradient(problem, weights, clip=None):
    """Return the gradient of the objective as a list of lists, with fifty digits; ``clip`` limits each residual."""
    flat = weights.reshape(len(weights), -1)
    columns = [[mp(value) for value in column] for column in flat.T]
    limits = None if clip is None else problem.rows.residual_limits(clip)
    total = [[mpmath.mpf(0)] * len(flat) for _ in columns]
    for i, (row, y) in enumerate(zip(exact_rows(problem.rows), problem.targets, strict=True)):
        scores = [mpmath.fdot(row, column) for column in columns]
        for k, r in enumerate(residual(problem.objective, scores, y)):
            bounded = r if limits is None else max(min(r, mp(limits[i])), -mp(limits[i]))
            total[k] = [t + bounded * x for t, x in zip(total[k], row, strict=True)]
    strength = mp(problem.regulariser.alpha)
    n = problem.rows.n
    return [
        [t / n + strength * w for t, w in zip(sums, column, strict=True)]
        for sums, column in zip(total, columns, strict=True)
    ]


def distance(exact, computed):
    """Return the Euclidean distance of a list of exact columns and an array."""
    flat = computed.reshape(len(computed), -1).T
    pairs = zip(itertools.chain(*exact), flat.ravel(), strict=True)
    return mpmath.sqrt(mpmath.fsum((a - mp(b)) ** 2 for a, b in pairs))


def tables(d=3):
    """Yield rows with ties, zeros, huge and tiny entries, and entries that differ in the last place."""
    rng = np.random.default_rng(5)
    for n in (1, 2, 9):
        yield rng.standard_normal((n, d))
        yield np.full((n, d), 1 - 2.0**-53)
        yield rng.standard_normal((n, d)) * 10.0 ** rng.integers(-300, 300, (n, 1))
        yield np.zeros((n, d))


def room_for_sums(problem, lipschitz):
    """Return the part of the error of a mean gradient that the bound on rows has room for."""
    return problem.rows.rounding / 2 * lipschitz / problem.rows.n


# ------------------------------------------------------------------------------------------------- one gradient


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
@pytest.mark.parametrize("is_centred", [False, True])
def test_a_computed_gradient_errs_by_no_more_than_the_bound(objective, is_centred):
    rng = np.random.default_rng(2)
    with mpmath.workdps(50):
        for X in tables():
            rows = BoundedRows(X, 1.0, 0.25)
            rows = rows.centred(np.array([0.6, -0.7, 0.1]), 1.0) if is_centred else rows
            problem = Problem(objective, L2(0.3), rows, rng.integers(0, 2, rows.n))
            clip = 0.3 if isinstance(objective, Squared) else None
            lipschitz = clip or problem.lipschitz
            for size in (0.0, 1.0, 1e3):
                weights = size * rng.standard_normal(problem.start().shape)
                total = objective.gradient_sum(weights, rows, problem.targets, lipschitz)
                computed = total / rows.n + problem.regulariser.gradient(weights)
                error = distance(exact_gradient(problem, weights, clip), computed)
                bound = rounding_besides_sums(problem, lipschitz, float(np.linalg.norm(weights)) * (1 + 1e-12))
                in_sum = (rows.n + 12) * 2.0**-53 * (lipschitz if not is_centred else 6 * lipschitz)
                assert error <= bound + in_sum
                assert in_sum <= room_for_sums(problem, lipschitz)


# --------------------------------------------------------------------------------------------- output perturbation


@pytest.mark.parametrize("objective", LOSSES, ids=NAMES)
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_every_computed_step_is_within_its_rounding_of_the_exact_step(objective, alpha):
    """The exact step starts from the computed weights. Sums over records have room in the bound on rows."""
    with mpmath.workdps(50):
        for X in tables():
            problem = Problem(objective, L2(alpha), BoundedRows(X, 1.0, 0.5), np.arange(len(X)) % 2)
            clip = 0.3 if isinstance(objective, Squared) else None
            eta, steps = 1.9 / problem.smoothness, 6
            stability = descent_stability(problem, eta, steps, clip)
            assert stability.rounding > 0
            plan = OutputPlan(stability, 1.0, is_pure=False, delta=1e-6)
            weights = problem.start()
            for done in range(1, steps + 1):
                part = replace(plan, stability=descent_stability(problem, eta, done, clip))
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(OutputPlan, "noisy", lambda self, result, source: result)
                    moved = output_perturbation(problem, Run(part, NoiseSource(0))).weights
                gradient = exact_gradient(problem, weights, clip)
                flat = weights.reshape(len(weights), -1).T
                exact = [
                    [mp(w) - mp(eta) * g for w, g in zip(column, slopes, strict=True)]
                    for column, slopes in zip(flat, gradient, strict=True)
                ]
                allowed = stability.rounding + eta * room_for_sums(problem, stability.lipschitz)
                assert distance(exact, moved) <= allowed
                weights = moved


def test_the_rounding_of_steps_adds_to_the_sensitivity_and_is_tiny():
    X = np.random.default_rng(0).standard_normal((1000, 20))
    problem = Problem(Logistic(), L2(1e-3), BoundedRows(X, 1.0, 0.2), np.zeros(1000))
    for steps in (1, 10, 300):
        stability = descent_stability(problem, 1.8 / problem.smoothness, steps)
        exact = replace(stability, rounding=0.0).sensitivity
        assert exact < stability.sensitivity < exact * (1 + 1e-6)


@pytest.mark.parametrize("c", [0.0, 0.5, 1.0])
def test_errors_of_steps_add_up_as_distances_do(c):
    """d <- c d + 2 eta L/n + 2 rounding, with a first step of another length."""
    fields = {"n": 7, "lipschitz": 2.0, "smoothness": 1.0, "strong_convexity": 1 - c, "step_size": 1.0}
    stability = DescentStability(**fields, steps=9, first_lipschitz=0.5, rounding=0.01)
    reached = 0.0
    for lipschitz in (0.5, *[2.0] * 8):
        reached = c * reached + 2 * lipschitz / 7 + 2 * 0.01
    assert stability.sensitivity == pytest.approx(reached, rel=1e-12)


def test_steps_whose_rounding_cannot_be_bounded_are_refused():
    problem = Problem(Logistic(), L2(0.0), BoundedRows(np.zeros((3, 2)), 1.0), np.zeros(3))
    with pytest.raises(ValueError, match=r"rounding errors of 1000000000000000 steps cannot be bounded.*fewer steps"):
        descent_stability(problem, 1.0, 10**15)


# ------------------------------------------------------------------------------------------- objective perturbation


@pytest.mark.parametrize("budget", [Budget(1.0), Budget(1.0, 1e-6)], ids=["pure", "gaussian"])
def test_the_certificate_holds_for_the_ideal_linear_term(budget):
    """The ideal term may lie anywhere within the stated error, for example where it makes the gradient longest."""
    X = np.random.default_rng(0).standard_normal((20, 3))
    problem = Problem(Logistic(), L2(0.5), BoundedRows(X, 1.0, 0.2), np.arange(20) % 2)
    plan = objective_plan(problem, budget)
    term, error = plan.linear_term((4,), NoiseSource(3))
    assert 0 < error <= plan.largest_error(4)
    n = problem.rows.n
    wide = 0.5 * plan.tolerance * n  # far more than the draw has, so that a certificate without it would not hold
    weights = minimise(problem, tolerance=plan.tolerance, tilt=term / n, tilt_error=wide / n)
    with mpmath.workdps(50):
        (gradient,) = exact_gradient(problem, weights)
        (gradient,) = [[g + mp(b) / n for g, b in zip(gradient, term, strict=True)]]
        length = mpmath.sqrt(mpmath.fdot(gradient, gradient))
        assert length + mp(wide) / n <= mp(plan.tolerance)


def test_the_solver_passes_the_error_of_its_linear_term_on(monkeypatch):
    seen = {}

    def watched(problem, **options):
        seen.update(options)
        return minimise(problem, **options)

    module = importlib.import_module("privet.solvers.objective_perturbation")
    monkeypatch.setattr(module, "minimise", watched)
    problem = Problem(Logistic(), L2(0.5), BoundedRows(np.ones((20, 3)), 1.0), np.zeros(20))
    plan = objective_plan(problem, Budget(1.0))
    objective_perturbation(problem, Run(plan, NoiseSource(3)))
    term, error = plan.linear_term((3,), NoiseSource(3))
    assert np.array_equal(seen["tilt"], term / 20)
    assert error / 20 <= seen["tilt_error"] <= error / 20 * (1 + 1e-12)


def test_the_least_tolerance_includes_the_error_of_the_linear_term():
    problem = Problem(Logistic(), L2(0.5), BoundedRows(np.ones((20, 3)), 1.0), np.zeros(20))
    least = least_tolerance(problem, tilt_norm=0.1)
    assert least_tolerance(problem, tilt_norm=0.1, tilt_error=1e-3) == pytest.approx(least + 1e-3)
    with pytest.raises(ValueError, match="cannot be certified"):
        minimise(problem, tolerance=1e-3, tilt=np.zeros(3), tilt_error=1e-3)


@pytest.mark.parametrize("size", [1, 2, 10, 1000, 10**6])
@pytest.mark.parametrize("is_pure", [True, False])
def test_the_error_of_a_linear_term_stays_below_its_bound(size, is_pure):
    """The formulas of the source, for vectors of normal numbers so long that their probability is below 1e-300."""
    X = np.ones((2, 1))
    problem = Problem(Logistic(), L2(0.5), BoundedRows(X, 1.0), np.zeros(2))
    plan = objective_plan(problem, Budget(1.0) if is_pure else Budget(1.0, 1e-6))
    longest, norm = math.sqrt(size) + 40, math.sqrt(size + 1) + 40
    draws = 2.0**-47 * math.sqrt(size) + 2.0**-52 * longest
    error = plan.scale * draws
    if is_pure:
        of_norm = 2.0**-47 * math.sqrt(size + 1) + 2.0**-51 * norm
        error = plan.scale * (norm * draws * (1 + of_norm) + of_norm * (longest + 1))
    assert error <= plan.largest_error(size)


# ---------------------------------------------------------------------------------------------- a teacher's scores


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_computed_scores_of_neighbours_are_within_the_sensitivity_in_exact_arithmetic(scale):
    """Two certified teachers of neighbouring tables. The exact distance of their computed scores is compared."""
    rng = np.random.default_rng(6)
    features = PublicFeatures(scale * rng.standard_normal((6, 3)), 0.5)
    X, y = rng.standard_normal((4, 3)), np.array([0.0, 1.0, 0.0, 1.0])
    scores = []
    for row, label in (([1.0, 0.0, 0.0], 0.0), ([-1.0, 0.0, 0.0], 0.0)):
        X[0], y[0] = row, label
        problem = Problem(Logistic(), L2(1e-2), BoundedRows(X, 1.0, 0.5), y)
        stability = transfer_stability(problem, features)
        teacher = minimise(problem, tolerance=stability.minimiser.tolerance)
        scores.append(features.rows.scores(teacher))
        with mpmath.workdps(50):
            exact = [mpmath.fdot([mp(x) for x in row] + [mp(0.5)], [mp(w) for w in teacher]) for row in features.X]
            error = mpmath.sqrt(mpmath.fsum((mp(a) - b) ** 2 for a, b in zip(scores[-1], exact, strict=True)))
            room = (stability.stretch - features.operator_norm) * stability.minimiser.sensitivity
            assert 2 * error <= room
    assert np.linalg.norm(scores[0] - scores[1]) <= stability.sensitivity


def test_the_roundings_of_a_gradient_are_counted_by_hand():
    """At zero weights: 64 of a residual, one per score, 8 of later operations, and the rounding of margins near 1."""
    for objective, n_scores in ((Logistic(), 1), (Multinomial(5), 5)):
        problem = Problem(objective, L2(0.0), BoundedRows(np.ones((4, 2)), 2.0), np.zeros(4, dtype=int))
        in_residuals = (64 + n_scores + 8) * problem.lipschitz
        in_margins = 8 * objective.curvature_bound * problem.rows.norm_bound
        found = rounding_besides_sums(problem, problem.lipschitz, 0.0)
        assert found == pytest.approx(1.01 * 2.0**-53 * (in_residuals + in_margins), rel=1e-9, abs=0)


class Sloped(L2):
    """A ridge penalty whose minimum is not at zero."""

    def gradient(self, weights):
        return super().gradient(weights) + 0.25


U = 2.0**-53


@pytest.mark.parametrize(("lipschitz", "largest"), [(0.3, 2.0), (2.0, 2.0), (5.0, 5.0)])
def test_the_roundings_at_other_weights_are_counted_by_hand(lipschitz, largest):
    """Rows of 3 + 1 entries and norm 2, weights of norm 7, and penalties 0.5 + 0.25, which have a slope at zero."""
    rows = BoundedRows(np.ones((4, 3)), math.sqrt(3.0), 1.0)
    problem = Problem(Logistic(), Sloped(0.5), rows, np.zeros(4))
    in_residuals = (64 + 1 + 8) * largest
    in_scores = 0.25 * 2.0 * ((4 + 8) * 2.0 * 7.0 + 8)
    in_penalties = 16 * 0.75 * 7.0 + 8 * 0.25 * 2.0
    by_hand = 1.01 * U * (in_residuals + in_scores + in_penalties)
    assert rounding_besides_sums(problem, lipschitz, 7.0, 0.25) == pytest.approx(by_hand, rel=2e-4, abs=0)
    without_ridge = by_hand - 1.01 * U * 16 * 0.25 * 7.0
    assert rounding_besides_sums(problem, lipschitz, 7.0) == pytest.approx(without_ridge, rel=2e-4, abs=0)


def test_an_unbounded_loss_is_rounded_relative_to_its_clip_and_every_class_has_a_score():
    rows = BoundedRows(np.ones((4, 1)), 1.0)
    squared, classes = (Problem(loss, L2(0.0), rows, np.zeros(4, int)) for loss in (Squared(), Multinomial(5)))
    assert rounding_besides_sums(squared, 0.3, 0.0) == pytest.approx(
        1.01 * U * ((64 + 1 + 8) * 0.3 + 8), rel=2e-4, abs=0
    )
    expected = 1.01 * U * ((64 + 5 + 8) * math.sqrt(2) + 8 * 0.5)
    assert rounding_besides_sums(classes, 0.3, 0.0) == pytest.approx(expected, rel=2e-4, abs=0)


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("strength", [0.5, 0.0])
def test_the_rounding_of_a_descent_is_counted_by_hand(steps, strength):
    """No step is longer than eta (L + slope at zero), and the weights are at most the sum of shrinking steps away."""
    problem = Problem(Logistic(), Sloped(strength), BoundedRows(np.ones((4, 3)), 1.0, 1.0), np.zeros(4))
    eta, slope = 0.8, 0.25 * 2.0
    contraction = max(1 - eta * strength, abs(1 - eta * (0.5 + strength)))
    longest = eta * (math.sqrt(2) + slope)
    farthest = 1.01 * longest * sum(contraction**k for k in range(steps))
    of_gradient = rounding_besides_sums(problem, problem.lipschitz, farthest)
    expected = eta * of_gradient + 4 * U * (farthest + longest)
    assert descent_stability(problem, eta, steps).rounding == pytest.approx(expected, rel=2e-4, abs=0)


def test_a_descent_is_refused_as_soon_as_its_rounding_exceeds_a_hundredth_of_a_step():
    """Without strong convexity the weights may reach 1.01 times the number of steps, which multiplies the rounding."""
    problem = Problem(Logistic(), L2(0.0), BoundedRows(np.zeros((3, 2)), 1.0), np.zeros(3))

    def rounding(steps):
        return rounding_besides_sums(problem, problem.lipschitz, 1.01 * steps) + 4 * U * 1.01 * steps

    steps = 0.01 / (rounding(1e12) / 1e12)
    assert descent_stability(problem, 1.0, int(0.99 * steps)).rounding == pytest.approx(0.0099, rel=1e-3)
    with pytest.raises(ValueError, match="cannot be bounded"):
        descent_stability(problem, 1.0, int(1.01 * steps))
