import importlib
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, Logistic, Squared
from privet.plans import OutputPlan
from privet.plans.stabilities.disjoint import DisjointStability
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem, PublicFeatures, Run, disjoint_stability, disjoint_teachers, minimiser_perturbation
from privet.solvers.disjoint_teachers import within_radius
from privet.solvers.minimiser_perturbation import minimiser_stability

module = importlib.import_module("privet.solvers.disjoint_teachers")

DELTA = 1e-5


def public(m, d, seed=9, intercept=0.0, form=np.asarray):
    return PublicFeatures(form(np.random.default_rng(seed).uniform(-1, 1, (m, d))), intercept)


def planned(features, *, teachers=2, radius=1.0, scale=0.5, is_pure=False):
    stability = disjoint_stability(features, teachers=teachers, radius=radius)
    return OutputPlan(stability, scale, is_pure, delta=0.0 if is_pure else DELTA)


def solve(problem, plan, features, source=None, **options):
    run = Run(plan, source or NoiseSource(0), options.pop("progress", None))
    return disjoint_teachers(problem, run, features=features, **({"n_nonzero": 1} | options))


# ------------------------------------------------------------------------------------ neighbours, by brute force


@pytest.mark.parametrize(("n", "teachers"), [(1, 1), (2, 1), (2, 2), (5, 3)])
@pytest.mark.parametrize("objective", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_no_neighbours_have_scores_farther_apart_than_the_sensitivity(tools, n, teachers, objective):
    features = public(7, 3, intercept=0.5)
    plan = planned(features, teachers=teachers, radius=0.3)
    for pair in tools.neighbours(np.random.default_rng(n), n, 3):
        for seed in range(3):
            first, second = (
                solve(
                    tools.make_problem(X, y, objective=objective, alpha=0.0, intercept=0.5),
                    plan,
                    features,
                    tools.Silent(seed),
                    n_nonzero=2,
                ).trace["labels"]
                for X, y in pair
            )
            assert np.linalg.norm(first - second) <= plan.stability.sensitivity


@pytest.mark.parametrize("teachers", [1, 4])
def test_a_teacher_that_jumps_across_the_ball_attains_it(tools, teachers):
    """The target of one record turns the weight of its teacher from one end of the ball to the other."""
    features = PublicFeatures(np.array([[3.0], [4.0]]))  # of operator norm 5
    plan = planned(features, teachers=teachers, radius=0.5)
    ends = []
    for sign in (1.0, -1.0):
        problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((4, 1)), 1.0), np.array([100 * sign, 0, 0, 0]))
        ends.append(solve(problem, plan, features, tools.Silent(1)).trace["labels"])
    distance = float(np.linalg.norm(ends[0] - ends[1]))
    assert distance == pytest.approx(5 * 2 * 0.5 / teachers)
    assert 0.99 * plan.stability.sensitivity < distance <= plan.stability.sensitivity


def test_the_tables_that_refute_the_paper_stay_within_the_sensitivity(tools):
    """Two features fit equally well, and one record decides which one a sparse teacher of all records would take."""
    half, features = np.repeat(np.eye(2), 500, axis=0), public(50, 2)
    plan = planned(features, teachers=10)
    labels = [
        solve(
            Problem(Squared(), L2(0.1), BoundedRows(np.vstack([half, last]), 1.0), np.ones(1001)),
            plan,
            features,
            tools.Silent(0),
        ).trace["labels"]
        for last in np.eye(2)
    ]
    assert np.linalg.norm(labels[0] - labels[1]) <= plan.stability.sensitivity


@pytest.mark.parametrize(
    "weights",
    [[3.0, -4.0], [0.0, 0.0], [1e308, -1e308], [5e-324, 0.0], [np.inf, 1.0], [np.nan, 1.0], [0.3, 0.4], [1.0, 1e-300]],
)
def test_clipped_weights_lie_in_the_ball_and_keep_their_direction(weights):
    weights = np.array(weights)
    clipped = within_radius(weights, 0.5)
    assert math.hypot(*clipped) <= 0.5
    if np.isfinite(weights).all() and np.linalg.norm(weights) > 1:
        assert math.hypot(*clipped) == pytest.approx(0.5)
        assert clipped[0] * weights[1] / weights[0] == pytest.approx(clipped[1], abs=1e-12)
    assert np.isfinite(clipped).all()


def test_every_record_has_one_teacher_whatever_its_values_are(separable, monkeypatch):
    X, _ = separable
    features, seen = public(9, 3), []
    monkeypatch.setattr(module, "ight", lambda part, **_: seen.append(part.targets) or np.zeros(3))
    for values in (np.arange(200.0), -np.arange(200.0)):
        problem = Problem(Squared(), L2(0.0), BoundedRows(X, 1.0), values)
        solve(problem, planned(features, teachers=7), features, NoiseSource(3))
    first, second = seen[:7], seen[7:]
    assert sorted(np.concatenate(first)) == list(range(200))
    assert {len(block) for block in first} == {28, 29}
    assert all(np.array_equal(mine, -theirs) for mine, theirs in zip(first, second, strict=True))


def test_the_room_for_rounding_is_counted_by_hand():
    """2 u (d + k + 8) k |X|_F, which can be seen beside the operator norm only for very many teachers."""
    features = PublicFeatures(np.diag([3.0, 4.0]), 0.0)
    for teachers in (10**5, 10**6):
        stretch = disjoint_stability(features, teachers=teachers, radius=1.0).stretch
        room = 2 * 2.0**-53 * (2 + teachers + 8) * teachers * 5.0
        assert stretch - features.operator_norm == pytest.approx(room, rel=1e-6)


@pytest.mark.parametrize(("fields", "cause"), [({"teachers": 0}, "teachers must"), ({"radius": 0.0}, "radius must")])
def test_impossible_teachers_and_radii_are_refused(fields, cause):
    with pytest.raises(ValueError, match=cause):
        disjoint_stability(public(4, 2), **{"teachers": 2, "radius": 1.0} | fields)


@pytest.mark.parametrize("excess", [-2e-12, -5e-13, 0.0, 2e-16, 5e-13, 1e-9, 1.0])
def test_weights_near_the_sphere_end_inside_it_in_exact_arithmetic(excess):
    rng = np.random.default_rng(0)
    for d in (1, 2, 300):
        weights = rng.standard_normal(d)
        weights *= 0.7 * (1 + excess) / np.linalg.norm(weights)
        clipped = within_radius(weights, 0.7)
        square = sum(Fraction(value) ** 2 for value in clipped.tolist())
        assert Fraction(0.7) ** 2 * (1 - Fraction(1, 10**11)) <= square <= Fraction(0.7) ** 2
        if excess == -2e-12:
            assert clipped is weights


def test_the_defaults_are_documented(separable, monkeypatch):
    """A hundred steps of the student, and ten of each teacher."""
    features, asked = public(9, 3), []
    monkeypatch.setattr(module, "ight", lambda part, **how: asked.append(("teacher", how)) or np.zeros(3))
    monkeypatch.setattr(module, "fitted_student", lambda *_, **how: asked.append(("student", how)) or np.zeros(3))
    problem = Problem(Squared(), L2(0.0), BoundedRows(separable[0], 1.0), separable[1])
    release = solve(problem, planned(features), features)
    teacher, student = {"n_nonzero": 1, "steps": 10}, {"n_nonzero": 1, "steps": 100}
    assert asked == [("teacher", teacher), ("teacher", teacher), ("student", student)]
    assert release.trace["teachers"] == 2
    assert release.trace["noise_scale"] == 0.5
    assert "clipped to norm 1" in release.guarantee.statement(verbose=True)
    assert "the mean of the teachers' scores of public rows" in release.guarantee.released


# ------------------------------------------------------------------------------------------ the noise and the result


@pytest.mark.parametrize(("wrong", "fits"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_gaussian_noise_on_the_scores_by_hand(tools, wrong, fits):
    """The noise is the operator norm times 2R/k, times 1/mu* = 3.7306 for epsilon 1 and delta 1e-5."""
    features = public(3000, 4)
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.zeros((30, 4)), 1.0), np.zeros(30))
    stability = disjoint_stability(features, teachers=5, radius=2.0)
    plan = OutputPlan.for_budget(Budget(1.0, DELTA), stability=stability)
    scale = 1.005 * np.linalg.norm(features.X, 2) * 2 * 2.0 / 5 * 3.7306
    assert plan.scale == pytest.approx(scale, rel=1e-3)
    assert tools.has_std(solve(problem, plan, features, NoiseSource(1)).trace["labels"], wrong * scale) == fits


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_it_finds_the_features_of_an_easy_problem(form):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (6000, 40))
    y = 2 * X[:, 3] - 3 * X[:, 17] + 0.1 * rng.standard_normal(6000)
    problem = Problem(Squared(), L2(0.0), BoundedRows(form(X), 7.0, 0.3), y)
    features, calls = public(500, 40, intercept=0.3, form=form), []
    stability = disjoint_stability(features, teachers=150, radius=5.0)
    plan = OutputPlan.for_budget(Budget(4.0, DELTA), stability=stability)
    release = solve(problem, plan, features, n_nonzero=2, progress=lambda *call: calls.append(call))
    assert np.flatnonzero(release.weights[:40]).tolist() == [3, 17]
    assert release.weights[[3, 17]] == pytest.approx([2, -3], abs=0.5)
    assert release.guarantee.epsilon <= 4.0
    assert calls[0] == (1, 151)
    assert calls[-1] == (151, 151)
    again = solve(problem, plan, features, n_nonzero=2)
    assert np.array_equal(again.weights, release.weights)


def test_the_student_sees_noisy_scores_and_public_rows_only(separable, monkeypatch):
    X, y = separable
    features, seen = public(20, 3), []
    monkeypatch.setattr(module, "fitted_student", lambda *args, **_: seen.append(args) or np.zeros(3))
    release = solve(Problem(Logistic(), L2(0.0), BoundedRows(X, 1.0), y), planned(features), features)
    ((rows, labels),) = seen
    assert rows is features
    assert np.array_equal(labels, release.trace["labels"])
    assert release.trace.keys() == {"noise_scale", "sensitivity", "teachers", "labels"}


# ---------------------------------------------------------------------------------------------------------- refusals


def test_what_does_not_fit_is_refused_before_noise_is_drawn(tools, separable, no_noise):
    X, y = separable
    problem, features = tools.make_problem(X, y, alpha=0.1), public(9, 3)
    plan = planned(features)
    with pytest.raises(ValueError, match="other public rows"):
        solve(problem, plan, PublicFeatures(2 * features.X))
    with pytest.raises(ValueError, match="do not match"):
        solve(problem, plan, public(9, 4))
    with pytest.raises(ValueError, match="200 records cannot be divided among 201 teachers"):
        solve(problem, planned(features, teachers=201), features)
    with pytest.raises(ValueError, match="cannot be kept of 3"):
        solve(problem, plan, features, n_nonzero=4)
    for name in ("steps", "teacher_steps"):
        with pytest.raises(ValueError, match=f"{name} must"):
            solve(problem, plan, features, **{name: 0})
    with pytest.raises(ValueError, match="operator norm of public features"):
        disjoint_stability(PublicFeatures(np.zeros((4, 3))), teachers=2, radius=1.0)
    other = OutputPlan(minimiser_stability(problem), 1.0, is_pure=False, delta=DELTA)
    with pytest.raises(TypeError, match="DisjointStability plan, not MinimiserStability"):
        solve(problem, other, features)
    with pytest.raises(TypeError, match="not DisjointStability"):
        minimiser_perturbation(problem, Run(plan))


def test_pure_epsilon_is_offered():
    features = public(6, 2)
    stability = disjoint_stability(features, teachers=3, radius=1.0)
    plan = OutputPlan.for_budget(Budget(0.5), stability=stability)
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.eye(3, 2), 1.0), np.ones(3))
    guarantee = solve(problem, plan, features).guarantee
    assert guarantee.delta == 0
    assert guarantee.epsilon <= 0.5
    assert isinstance(replace(plan, scale=1.0).stability, DisjointStability)
