import importlib
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import gamma, kstest

from privet.objectives import L2, BoundedRows, Huber, Logistic, SaturatingPenalty, SmoothedHinge, Squared
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan
from privet.plans.stabilities.transfer import TransferStability
from privet.privacy import Budget, NoiseSource
from privet.solvers import Run
from privet.solvers.base.interface import Problem
from privet.solvers.base.sparsity import thresholded
from privet.solvers.hard_threshold import hard_threshold, peeled_threshold
from privet.solvers.knowledge_transfer import PublicFeatures, knowledge_transfer, student_of, transfer_stability
from privet.solvers.minimiser_perturbation import minimiser_perturbation, minimiser_stability

module = importlib.import_module("privet.solvers.knowledge_transfer")

DELTA = 1e-5


def planned(problem, features, *, tolerance=None, scale=0.5, is_pure=False):
    return OutputPlan(transfer_stability(problem, features, tolerance), scale, is_pure)


def solve(problem, plan, features, source=None, **options):
    fields = {"n_nonzero": 2} | options
    run = Run(replace(plan, delta=fields.pop("delta", DELTA)), source or NoiseSource(0), fields.pop("progress", None))
    return knowledge_transfer(problem, run, features=features, **fields)


def public(m, d, seed=9, intercept=0.0, form=np.asarray):
    return PublicFeatures(form(np.random.default_rng(seed).uniform(-1, 1, (m, d))), intercept)


# ------------------------------------------------------------------------------------ neighbours, by brute force


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.05, 1.0])
@pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge(0.2), Huber(0.5)], ids=["logistic", "hinge", "huber"])
def test_no_neighbours_have_scores_farther_apart_than_the_sensitivity(tools, n, alpha, objective):
    rng, features = np.random.default_rng(n), public(7, 3, intercept=0.5)
    for pair in tools.neighbours(rng, n, 3):
        ends = []
        for X, y in pair:
            problem = tools.make_problem(X, y, objective=objective, alpha=alpha, intercept=0.5)
            plan = planned(problem, features)
            ends.append(solve(problem, plan, features, tools.Silent()).trace["labels"])
        assert np.linalg.norm(ends[0] - ends[1]) <= plan.stability.sensitivity


@pytest.mark.parametrize("n", [1, 3, 50])
@pytest.mark.parametrize("intercept", [0.0, 0.6])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_linear_losses_along_the_top_singular_vector_attain_it(tools, n, intercept, form):
    """The gradient of one record has full length in the direction that the public rows stretch the most."""
    features = public(8, 4, intercept=intercept, form=form)
    matrix = np.stack([features.rows.scores(w) for w in np.eye(4 + bool(intercept))], axis=1)
    top = np.linalg.svd(matrix)[2][0]
    ends = []
    for sign in (1.0, -1.0):
        X, y = np.zeros((n, 4)), np.full(n, 0.0)
        if intercept:  # a row of the right direction has the constant column for its last entry
            X[0] = top[:4] * intercept / top[4]
        else:
            X[0] = top
        y[0] = sign
        row_norm = float(np.linalg.norm(X[0])) * (1 + 1e-12)
        problem = tools.make_problem(X, y, objective=tools.Linear(), alpha=0.2, row_norm=row_norm, intercept=intercept)
        plan = planned(problem, features)
        ends.append(solve(problem, plan, features, tools.Silent()).trace["labels"])
    distance = float(np.linalg.norm(ends[0] - ends[1]))
    assert 0.98 * plan.stability.sensitivity < distance <= plan.stability.sensitivity
    exact = np.linalg.norm(matrix, 2) * 2 * math.hypot(row_norm, intercept) / (n * 0.2)
    assert distance == pytest.approx(exact, rel=0.02)


def test_a_teacher_that_errs_as_badly_as_it_may_stays_within_it(tools, monkeypatch):
    features = PublicFeatures(np.array([[3.0], [4.0]]))  # of operator norm 5
    ends = []
    for side in (1.0, -1.0):
        targets = np.where(np.arange(4) == 0, side, 0.3)
        problem = tools.make_problem(np.ones((4, 1)), targets, objective=tools.Linear(), alpha=0.1)
        plan = planned(problem, features, tolerance=0.05)
        worst = np.array([(-targets.mean() - side * 0.05) / 0.1])
        assert problem.gradient_norm(worst) == pytest.approx(0.05)
        monkeypatch.setattr(module, "minimise", lambda problem, *, tolerance, worst=worst: worst)
        ends.append(solve(problem, plan, features, tools.Silent(), n_nonzero=1).trace["labels"])
    distance = float(np.linalg.norm(ends[0] - ends[1]))
    assert distance == pytest.approx(5 * (2 / (4 * 0.1) + 2 * 0.05 / 0.1))
    assert distance <= plan.stability.sensitivity


def test_the_rounding_of_scores_has_room():
    """With many records and a weak penalty, the weights are long and move little."""
    X, y = np.ones((1000, 1)), np.zeros(1000)
    features = PublicFeatures(np.full((3, 1), 2.0))
    problem = Problem(Logistic(), L2(1e-3), BoundedRows(X, 1.0), y)
    stretch = transfer_stability(problem, features).stretch
    room = stretch - features.operator_norm
    longest = problem.lipschitz / 1e-3
    error = 2.0**-53 * 9 * np.linalg.norm(features.X) * longest
    assert room * minimiser_stability(problem).sensitivity >= 2 * error > 0


# ------------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize(("wrong", "fits"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_gaussian_noise_on_the_scores_by_hand(tools, wrong, fits):
    """The noise is the operator norm times 2G/(n lambda), plus 1 % for the tolerance, times 1/mu* = 3.7306."""
    problem = tools.silence(30, 4, alpha=0.1)
    features = public(3000, 4)
    plan = OutputPlan.for_budget(Budget(1.0, DELTA), stability=transfer_stability(problem, features))
    labels = solve(problem, plan, features, NoiseSource(1)).trace["labels"]
    scale = 1.005 * np.linalg.norm(features.X, 2) * 1.01 * 2 / (30 * 0.1) * 3.7306
    assert plan.scale == pytest.approx(scale, rel=1e-3)
    assert tools.has_std(labels, wrong * scale) == fits


def test_pure_noise_on_the_scores(tools):
    problem, features = tools.silence(30, 4, alpha=0.1), public(6, 4)
    plan = OutputPlan.for_budget(Budget(0.5), stability=transfer_stability(problem, features))
    runs = [solve(problem, plan, features, NoiseSource(seed), delta=0.0) for seed in range(300)]
    radii = [np.linalg.norm(run.trace["labels"]) for run in runs]
    scale = plan.stability.sensitivity / 0.5
    assert kstest(radii, gamma(6, scale=scale).cdf).pvalue > 1e-6
    assert kstest(radii, gamma(6, scale=1.5 * scale).cdf).pvalue < 1e-6
    assert runs[0].guarantee.delta == 0
    assert runs[0].guarantee.epsilon <= 0.5


def test_the_room_for_rounding_is_counted_by_hand():
    """2 u (d + 8) n |X|_F for three columns and the constant one."""
    problem = Problem(Logistic(), L2(0.1), BoundedRows(np.zeros((5000, 3)), 1.0, 0.5), np.zeros(5000))
    features = PublicFeatures(np.diag([3.0, 0.0, 4.0]), 0.5)
    room = transfer_stability(problem, features).stretch - features.operator_norm
    frobenius = math.sqrt(9 + 16 + 3 * 0.25)
    assert room == pytest.approx(2 * 2.0**-53 * (4 + 8) * 5000 * frobenius, rel=1e-3, abs=0)


def test_the_mean_square_of_public_rows_includes_the_constant_column():
    assert PublicFeatures(np.array([[1.0, 2.0], [3.0, 4.0]]), 0.5).mean_square == pytest.approx((5.25 + 25.25) / 6)
    assert PublicFeatures(np.array([[1.0, 2.0], [3.0, 4.0]])).mean_square == pytest.approx(30 / 4)


def test_a_student_makes_a_hundred_steps_by_default(tools, separable, monkeypatch):
    features, asked = public(9, 3), []
    monkeypatch.setattr(module, "ight", lambda problem, **how: asked.append(how) or np.zeros(3))
    problem = tools.make_problem(*separable, alpha=0.1)
    release = solve(problem, planned(problem, features), features)
    student_of(release, features, n_nonzero=1)
    assert asked == [{"n_nonzero": 2, "steps": 100}, {"n_nonzero": 1, "steps": 100}]


def test_with_the_unit_matrix_it_is_a_thresholded_minimiser_perturbation(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1)
    output = OutputPlan(minimiser_stability(problem), 0.01, is_pure=False)
    full = minimiser_perturbation(problem, Run(replace(output, delta=DELTA), NoiseSource(3))).weights
    features = PublicFeatures(np.eye(3))
    release = solve(problem, planned(problem, features, scale=0.01), features, NoiseSource(3))
    assert release.weights == pytest.approx(thresholded(full, 2, 3), abs=1e-7)
    assert release.guarantee.epsilon == pytest.approx(output.guarantee(DELTA).epsilon, rel=0.02)


def test_the_student_sees_noisy_scores_and_public_rows_only(tools, separable, monkeypatch):
    X, y = separable
    problem, features, seen, ight = tools.make_problem(X, y, alpha=0.1), public(20, 3), [], module.ight

    def watched(task, **options):
        seen.append(task)
        return ight(task, **options)

    monkeypatch.setattr(module, "ight", watched)
    release = solve(problem, planned(problem, features), features)
    (task,) = seen
    assert task.rows is features.rows
    assert np.array_equal(task.targets, release.trace["labels"])
    assert release.trace.keys() == {"noise_scale", "sensitivity", "labels"}


# ------------------------------------------------------------------------------------------------------- the result


@pytest.fixture(scope="module")
def sparse_truth():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (20_000, 40)) / math.sqrt(40)
    truth = np.zeros(40)
    truth[[3, 17, 31]] = [6.0, -7.0, 8.0]
    return X, X @ truth + 0.1 * rng.standard_normal(20_000), truth


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [0.0, 0.3])
def test_it_finds_the_support_of_an_easy_problem(sparse_truth, form, intercept):
    X, y, truth = sparse_truth
    problem = Problem(Huber(1.0), L2(0.002), BoundedRows(form(X), 1.0, intercept), y)
    features = public(60, 40, intercept=intercept, form=form)
    plan = OutputPlan.for_budget(Budget(4.0, DELTA), stability=transfer_stability(problem, features))
    release = solve(problem, plan, features, n_nonzero=3)
    assert set(np.flatnonzero(release.weights[:40])) == set(np.flatnonzero(truth))
    assert np.linalg.norm(release.weights[:40] - truth) < 0.5 * np.linalg.norm(truth)
    assert release.weights.shape == (40 + bool(intercept),)
    assert release.guarantee.epsilon <= 4.0


def test_progress_and_seeds(tools, separable):
    problem, features, calls = tools.make_problem(*separable, alpha=0.1), public(9, 3), []
    plan = planned(problem, features)
    runs = [
        solve(problem, plan, features, NoiseSource(seed), progress=lambda *call: calls.append(call)).weights
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert calls == [(1, 2), (2, 2)] * 3


def test_the_guarantee_is_that_of_the_plan(tools, separable):
    problem, features = tools.make_problem(*separable, alpha=0.1), public(9, 3)
    plan = planned(problem, features, scale=3.0)
    release = solve(problem, plan, features, NoiseSource())
    assert release.guarantee.event == plan.event
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon
    assert not release.guarantee.is_conditional
    assert "provided that" not in release.guarantee.statement(verbose=True)
    for words in ("teacher is certified", "operator norm", "with noise added once, and the student"):
        assert words in release.guarantee.statement(verbose=True)
    assert solve(problem, plan, features, NoiseSource(1)).guarantee.is_conditional


# ----------------------------------------------------------------------------------------------- a private teacher


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_student_of_a_private_teacher_has_its_guarantee(sparse_truth, form):
    X, y, truth = sparse_truth
    problem = Problem(Squared(), L2(0.0), BoundedRows(form(X), 1.0), y)
    plan = GradientPlan.for_budget(Budget(4.0, DELTA), sampler=FullBatch(), steps=10, clip_norm=1.0)
    plain = hard_threshold(problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=6, step_size=80.0)
    peeled = peeled_threshold(
        problem,
        Run(AdaptivePlan.for_budget(Budget(4.0, DELTA)), NoiseSource(0)),
        n_nonzero=6,
        entry_bound=0.16,
        residual_clips=[3.0, 2.0, 1.0, 0.5],
    )
    features = public(100, 40, form=form)
    for teacher in (plain, peeled):
        student = student_of(teacher, features, n_nonzero=3)
        assert student.guarantee is teacher.guarantee
        assert np.array_equal(student.trace["labels"], features.rows.scores(teacher.weights))
        assert set(np.flatnonzero(student.weights)) == set(np.flatnonzero(truth))
        same = student_of(teacher, features, n_nonzero=6).weights
        assert same == pytest.approx(teacher.weights, abs=1e-6)


def test_a_teacher_of_other_columns_is_refused(tools, separable):
    problem = tools.make_problem(*separable, alpha=0.1, intercept=0.5)
    teacher = solve(problem, planned(problem, public(9, 3, intercept=0.5)), public(9, 3, intercept=0.5))
    assert student_of(teacher, public(9, 3, intercept=0.5), n_nonzero=1).weights.shape == (4,)
    with pytest.raises(ValueError, match="do not score"):
        student_of(teacher, public(9, 3), n_nonzero=1)
    with pytest.raises(ValueError, match="cannot be kept"):
        student_of(teacher, public(9, 3, intercept=0.5), n_nonzero=4)


# ----------------------------------------------------------------------- tables on which sparse teachers move far


def support_flip(n=1001):
    """Return tables where two features fit equally well and the last record decides which one is chosen."""
    half = np.repeat(np.eye(2), n // 2, axis=0)
    for last in np.eye(2):
        yield Problem(Squared(), L2(0.1), BoundedRows(np.vstack([half, last]), 1.0), np.ones(n))


def test_the_convex_teacher_of_the_same_tables_stays_within_the_sensitivity(tools):
    features, labels = public(1001, 2), []
    for squared in support_flip():
        problem = Problem(Huber(1.0), squared.regulariser, squared.rows, squared.targets)
        plan = OutputPlan.for_budget(Budget(1.0, DELTA), stability=transfer_stability(problem, features))
        labels.append(solve(problem, plan, features, tools.Silent(), n_nonzero=1).trace["labels"])
    assert np.linalg.norm(labels[0] - labels[1]) <= plan.stability.sensitivity


# ---------------------------------------------------------------------------------------------------------- refusals


def test_a_plan_for_another_problem_or_other_rows_is_refused(tools, separable, no_noise):
    X, y = separable
    problem, features = tools.make_problem(X, y, alpha=0.1), public(9, 3)
    plan = planned(problem, features)
    for other in (
        tools.make_problem(X[:-1], y[:-1], alpha=0.1),
        tools.make_problem(X, y, alpha=0.2),
        tools.make_problem(X, y, alpha=0.1, row_norm=2.0),
    ):
        with pytest.raises(ValueError, match="other data or constants"):
            solve(other, plan, features)
    with pytest.raises(ValueError, match="other data or constants"):
        solve(problem, plan, PublicFeatures(2 * features.X))  # they stretch further


def test_plans_of_another_kind_are_refused(tools, separable, no_noise):
    problem, features = tools.make_problem(*separable, alpha=0.1), public(9, 3)
    with pytest.raises(TypeError, match="TransferStability plan, not MinimiserStability"):
        solve(problem, OutputPlan(minimiser_stability(problem), 1.0, is_pure=False), features)


def test_rows_that_do_not_fit_are_refused(tools, separable, no_noise):
    problem = tools.make_problem(*separable, alpha=0.1, intercept=0.5)
    plan = planned(problem, public(9, 3, intercept=0.5))
    for features in (public(9, 4, intercept=0.5), public(9, 3), public(9, 3, intercept=0.4)):
        with pytest.raises(ValueError, match="do not match"):
            solve(problem, plan, features)
        with pytest.raises(ValueError, match="do not match"):
            transfer_stability(problem, features)


def test_bad_input_is_refused_before_noise_is_drawn(tools, separable, no_noise):
    X, y = separable
    problem, features = tools.make_problem(X, y, alpha=0.1), public(9, 3)
    plan = planned(problem, features)
    with pytest.raises(ValueError, match="cannot be kept of 3"):
        solve(problem, plan, features, n_nonzero=4)
    with pytest.raises(ValueError, match="set delta > 0"):
        solve(problem, plan, features, delta=0.0)
    with pytest.raises(ValueError, match="steps must"):
        solve(problem, plan, features, steps=0)
    with pytest.raises(ValueError, match="operator norm of public features"):
        transfer_stability(problem, PublicFeatures(np.zeros((4, 3))))
    with pytest.raises(ValueError, match="NaN or infinity"):
        transfer_stability(problem, PublicFeatures(np.full((4, 3), np.nan)))
    rows = BoundedRows(X, 1.0)
    for objective, regulariser, cause in (
        (Logistic(), L2(0.0), "strong convexity"),
        (Squared(), L2(0.1), "Squared losses are not bounded"),
        (Logistic(), SaturatingPenalty(0.1), "L2 penalty"),
    ):
        with pytest.raises(ValueError, match=cause):
            transfer_stability(Problem(objective, regulariser, rows, y), features)


def test_the_stability_of_a_transfer_has_the_operator_norm_as_factor(tools, separable):
    problem, features = tools.make_problem(*separable, alpha=0.1), public(9, 3)
    stability = transfer_stability(problem, features)
    assert isinstance(stability, TransferStability)
    assert stability.stretch == pytest.approx(1.005 * np.linalg.norm(features.X, 2), rel=1e-3)
    assert features.operator_norm is features.operator_norm  # computed once
