import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from privet.objectives import BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared
from privet.plans import CentredOutputPlan, FullBatch, GradientPlan, OutputPlan, PlanError
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.solvers import Run, centred_output_perturbation
from privet.solvers.base.centring import centred_anywhere, uncentred
from privet.solvers.output_perturbation import centred_stability, descent_stability

DELTA = 1e-5
OBJECTIVES = [Logistic(), SmoothedHinge(), Huber(0.5), Squared(), Multinomial(3)]
NORM = 0.7  # to which centred rows are scaled down


def plan_for(problem, *, pace=1.8, steps=5, clip_norm=0.3, tasks=1):
    step_size = pace / centred_anywhere(problem, problem.rows.row_norm, NORM).smoothness
    return CentredOutputPlan.for_budget(
        Budget(1.0, DELTA),
        stability=centred_stability(problem, NORM, step_size, steps, clip_norm),
        row_norm=problem.rows.weight_in_total,
        centred_norm=NORM,
        tasks=tasks,
    )


def solve(problem, plan=None, source=None, progress=None):
    return centred_output_perturbation(problem, Run(plan or plan_for(problem), source or NoiseSource(0), progress))


class CentredAt(NoiseSource):
    """A source whose first noise puts the centre where a test wants it, and which adds no other noise."""

    def __init__(self, total):
        super().__init__(0)
        self.total = np.asarray(total, dtype=float)
        self.results = []

    def add_gaussian(self, values, std, *options):
        self.results.append(np.array(values))
        return self.total.copy() if len(self.results) == 1 else values.copy()


class Untouched(NoiseSource):
    """A source from which nothing may be drawn."""

    def add_gaussian(self, values, std, *options):
        raise AssertionError("noise was drawn")


# --------------------------------------------------------------------------------------------------- what it computes


def reference(X, y, *, row_norm, intercept, alpha, stability, stds, source):
    """Return the result by definition, record by record."""
    bounded = X / np.maximum(1, np.linalg.norm(X, axis=1) / row_norm)[:, None]
    centre = source.add_gaussian(bounded.sum(axis=0), stds[0]) / len(X)
    centre *= min(1, row_norm / np.linalg.norm(centre))  # where a mean of rows must lie
    moved = bounded - centre
    moved /= np.maximum(1, np.linalg.norm(moved, axis=1) / NORM)[:, None]
    rows = np.column_stack([moved, np.full(len(X), intercept)])
    clip_norm = stability.lipschitz / (1 + BoundedRows(X, row_norm, intercept).centred(centre).rounding)
    weights = np.zeros(rows.shape[1])
    for _ in range(stability.steps):
        mean = np.zeros_like(weights)
        for row, label in zip(rows, y, strict=True):
            gradient = (expit(row @ weights) - label) * row
            mean += gradient * min(1, clip_norm / max(np.linalg.norm(gradient), 1e-300)) / len(X)
        weights = weights - stability.step_size * (mean + alpha * weights)
    weights = source.add_gaussian(weights, stds[1])
    weights[-1] -= centre @ weights[:-1] / intercept
    return weights


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("clip_norm", [0.05, 0.3, None])
def test_it_is_descent_on_rows_centred_at_the_released_mean_and_scaled_down(tools, form, clip_norm):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)) + 1, rng.integers(0, 2, 12)
    problem = tools.make_problem(form(X), y, alpha=0.1, row_norm=1.5, intercept=0.4)
    plan = plan_for(problem, clip_norm=clip_norm)
    fields = {"row_norm": 1.5, "intercept": 0.4, "alpha": 0.1, "stability": plan.output.stability}
    stds = plan.mean.noise_std, plan.output.scale
    expected = reference(X, y, **fields, stds=stds, source=NoiseSource(8))
    assert solve(problem, plan, NoiseSource(8)).weights == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_noise_is_drawn_once_for_the_mean_and_once_for_the_result(tools):
    class Counting(NoiseSource):
        draws = ()

        def add_gaussian(self, values, std, *options):
            self.draws = (*self.draws, (values.shape, std))
            return super().add_gaussian(values, std, *options)

    for objective, clip_norm in ((Logistic(), 0.3), (Multinomial(3), None)):
        rng, source = np.random.default_rng(1), Counting(0)
        problem = tools.make_problem(rng.standard_normal((9, 4)), [0, 1, 0] * 3, objective=objective, intercept=0.5)
        plan = plan_for(problem, clip_norm=clip_norm)
        solve(problem, plan, source)
        assert source.draws == (((4,), plan.mean.noise_std), (objective.start(5).shape, plan.output.scale))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: type(each).__name__)
def test_weights_are_mapped_back_to_scores_of_the_original_rows(tools, objective):
    """Rows that are not scaled down after centring have the same scores before and after."""
    rng = np.random.default_rng(2)
    X, y = 0.05 * rng.standard_normal((20, 3)) + np.array([0.5, 0, -0.5]), rng.integers(0, 2, 20)
    problem = tools.make_problem(X, y, objective=objective, intercept=0.3)
    source = CentredAt(X.sum(axis=0))
    plan = plan_for(problem, clip_norm=None if isinstance(objective, Multinomial) else 0.3)
    weights = solve(problem, plan, source).weights
    centred = problem.rows.centred(X.mean(axis=0), NORM)
    assert problem.rows.scores(weights) == pytest.approx(centred.scores(source.results[1]), abs=1e-12)
    assert np.array_equal(weights, uncentred(source.results[1], problem.rows, X.mean(axis=0)))


def test_several_tasks_share_the_centre_and_are_counted(tools):
    rng = np.random.default_rng(3)
    problem = tools.make_problem(rng.standard_normal((9, 2)), [0, 1, 0] * 3, intercept=0.5)
    source = CentredAt(np.zeros(2))
    run = Run(plan_for(problem, tasks=2), source)
    first, second = (centred_output_perturbation(problem, run) for _ in range(2))
    assert len(source.results) == 3  # one mean, two results
    assert np.array_equal(first.weights, second.weights)
    with pytest.raises(PlanError):
        centred_output_perturbation(problem, run)


# ---------------------------------------------------------------------------------- neighbours, by brute force


def distance_and_bound(tools, pair, centre, **fields):
    """Return the distance between the results before noise, for one released centre, and the claimed bound on it."""
    pace, steps, clip_norm = fields.pop("pace"), fields.pop("steps"), fields.pop("clip_norm")
    ends = []
    for X, y in pair:
        problem, source = tools.make_problem(X, y, **fields), CentredAt(len(y) * np.asarray(centre))
        plan = plan_for(problem, pace=pace, steps=steps, clip_norm=clip_norm)
        solve(problem, plan, source)
        ends.append(source.results[1])
    return float(np.linalg.norm(ends[0] - ends[1])), plan.output.stability.sensitivity


CENTRES = ([0.0, 0.0], [0.3, -0.4], [1.0, 0.0], [-0.6, 0.8], [30.0, 40.0])  # the last is projected onto the ball


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize(
    ("objective", "clip_norm"),
    [(Logistic(), None), (Logistic(), 0.1), (Squared(), 0.1), (Multinomial(3), None)],
    ids=["logistic", "clipped", "squared", "multinomial"],
)
def test_no_neighbours_end_farther_apart_than_the_sensitivity_for_any_centre(tools, n, alpha, objective, clip_norm):
    rng = np.random.default_rng(n)
    fields = {"objective": objective, "alpha": alpha, "clip_norm": clip_norm, "intercept": 0.5}
    for pair, centre in itertools.product(list(tools.neighbours(rng, n, 2)), CENTRES):
        for pace, steps in ((0.5, 3), (2.0, 20)):
            distance, sensitivity = distance_and_bound(tools, pair, centre, pace=pace, steps=steps, **fields)
            assert distance <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("centre", [[0.0], [0.3], [-1.0]])
def test_linear_losses_attain_the_sensitivity(tools, n, alpha, centre):
    """A row that is far from the centre keeps the full norm, and its gradient has full length in every step."""
    pair = [(np.ones((n, 1)), np.where(np.arange(n) == 0, side, 0.0)) for side in (1.0, -1.0)]
    fields = {"objective": tools.Linear(), "alpha": alpha, "clip_norm": None, "intercept": 0.5}
    distance, sensitivity = distance_and_bound(tools, pair, centre, pace=0.7, steps=20, **fields)
    assert 0.999 * sensitivity < distance <= sensitivity * (1 + 1e-9)


def test_a_clip_is_attained_by_rows_of_any_length(tools):
    pair = [(np.ones((2, 1)), np.array([side, 0.0])) for side in (1.0, -1.0)]
    fields = {"objective": tools.Linear(), "clip_norm": 0.05, "intercept": 0.5}
    distance, sensitivity = distance_and_bound(tools, pair, [0.9], pace=0.7, steps=20, **fields)
    assert 0.999 * sensitivity < distance <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("centre", CENTRES[:4])
def test_the_constants_of_every_centre_are_at_most_those_of_the_plan(tools, centre):
    problem = tools.make_problem(np.ones((4, 2)), [0, 1, 0, 1], alpha=0.1, intercept=0.5)
    planned = centred_anywhere(problem, problem.rows.row_norm, NORM)
    actual = replace(problem, rows=problem.rows.centred(np.array(centre), NORM))
    assert actual.smoothness <= planned.smoothness
    assert actual.lipschitz <= planned.lipschitz
    assert actual.strong_convexity == planned.strong_convexity
    assert actual.rows.reach <= planned.rows.reach
    exact = np.hypot(NORM, 0.5)
    assert planned.lipschitz == pytest.approx(exact, rel=1e-3)
    assert planned.smoothness == pytest.approx(exact**2 / 4 + 0.1, rel=1e-3)


# ------------------------------------------------------------------------------------------------- the mismatch


def test_a_plan_for_another_problem_is_refused_before_any_noise(tools, separable):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1, intercept=0.5)
    plan = plan_for(problem, pace=1.0)
    others = [
        (tools.make_problem(X[:-1], y[:-1], alpha=0.1, intercept=0.5), plan, "other data or constants"),
        (tools.make_problem(X, y, alpha=0.2, intercept=0.5), plan, "other data or constants"),
        (tools.make_problem(X, y, alpha=0.1, intercept=0.6), plan, "other data or constants"),
        (tools.make_problem(X, y, alpha=0.1, intercept=0.5, row_norm=2.0), plan, "rows are bounded by"),
        (tools.make_problem(X, y, alpha=0.1), plan, "set an intercept"),
        (problem, replace(plan, centred_norm=0.8), "other data or constants"),
        (problem, replace(plan, mean=GradientPlan(FullBatch(), 1, 0.9, 5.0)), "rows are bounded by"),
    ]
    for other, wrong, cause in others:
        with pytest.raises(ValueError, match=cause):
            solve(other, wrong, Untouched(0))
    uncentred_stability = descent_stability(problem, 0.5, 5, 0.3)
    with pytest.raises(ValueError, match="other data or constants"):
        solve(problem, replace(plan, output=OutputPlan(uncentred_stability, 1.0, is_pure=False)), Untouched(0))
    assert np.isfinite(solve(problem, plan).weights).all()


def test_a_plan_of_another_computation_is_refused(tools):
    class Constant:
        sensitivity, adjacency = 1.0, Adjacency.REPLACE_ONE

        def in_words(self):
            return "nothing moves"

    problem = tools.make_problem(np.ones((4, 1)), [0, 1, 0, 1], intercept=0.5)
    plan = replace(plan_for(problem), output=OutputPlan(Constant(), 1.0, is_pure=False))
    with pytest.raises(TypeError, match="DescentStability plan, not Constant"):
        solve(problem, plan, Untouched(0))


# ------------------------------------------------------------------------------------------- the returned values


def test_the_guarantee_is_that_of_the_plan(tools):
    problem = tools.make_problem(np.ones((12, 1)), [0, 1] * 6, intercept=0.5)
    plan, calls = plan_for(problem, steps=3), []
    release = solve(problem, plan, NoiseSource(), lambda *call: calls.append(call))
    assert release.guarantee.epsilon == plan.guarantee().epsilon
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    for words in ("each row has l2 norm at most 1", "centred rows and gradients are bounded", "noisy mean"):
        assert words in release.guarantee.statement(verbose=True)
    assert release.trace == {
        "steps": 3,
        "step_size": plan.output.stability.step_size,
        "feature_noise": plan.output.noise_std(release.weights.size),
    }
    assert calls == [(1, 3), (2, 3), (3, 3)]
