import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from privet.denoise import LaplacianSmoothing
from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared
from privet.plans import CentredPlan, Descent, FixedOrder, FixedSize, FullBatch, GradientPlan, Poisson
from privet.plans.gradient import Step
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.solvers import (
    AlignedStep,
    Problem,
    Run,
    centred_gradient_descent,
    descent_of,
    noisy_gradient_descent,
    projected_sgd,
)
from privet.solvers.base.centring import centred_anywhere, noisy_centre, uncentred

DELTA = 1e-5
BUDGET = Budget(1.0, DELTA)
OBJECTIVES = [Logistic(), SmoothedHinge(), Huber(0.5), Squared(), Multinomial(3)]


def plan_for(problem, *, steps=5, clip_norm=0.3, budget=BUDGET, share=0.05):
    row_norm = problem.rows.weight_in_total
    return CentredPlan.for_budget(budget, steps=steps, clip_norm=clip_norm, row_norm=row_norm, share=share)


def solve(problem, plan=None, source=None, **options):
    plan = replace(plan or plan_for(problem), delta=options.pop("delta", DELTA))
    run = Run(plan, source or NoiseSource(0), options.pop("progress", None))
    return centred_gradient_descent(problem, run, **{"step_size": 0.5} | options)


@pytest.fixture
def released(monkeypatch):
    """Record the sum and the release of every step."""
    log, noisy = [], Step.noisy

    def keep(self, total):
        result = noisy(self, total)
        log.append((np.array(total), np.array(result)))
        return result

    monkeypatch.setattr(Step, "noisy", keep)
    return log


@pytest.fixture
def replayed(monkeypatch):
    """Return the releases made on another table instead of new ones, and record the sums of this table."""

    def replay(outputs):
        left, sums = list(outputs), []

        def noisy(self, total):
            sums.append(np.array(total))
            return left.pop(0).copy()

        monkeypatch.setattr(Step, "noisy", noisy)
        return sums

    return replay


class Counting(NoiseSource):
    """A source that counts its draws."""

    def __init__(self, seed=None):
        super().__init__(seed)
        self.shapes = []

    def add_gaussian(self, values, std, *options):
        self.shapes.append((values.shape, std))
        return super().add_gaussian(values, std, *options)


# --------------------------------------------------------------------------------------------------- what it computes


def reference(X, y, *, row_norm, intercept, clip_norm, steps, step_size, alpha, stds, source):
    """Return the result by definition, record by record: noisy mean, differences, clipped gradients, intercept."""
    bounded = X / np.maximum(1, np.linalg.norm(X, axis=1) / row_norm)[:, None]
    centre = source.add_gaussian(bounded.sum(axis=0), stds[0]) / len(X)
    centre *= min(1, row_norm / np.linalg.norm(centre))  # where a mean of rows must lie
    rows = np.column_stack([bounded - centre, np.full(len(X), intercept)])
    room = 1 + BoundedRows(X, row_norm, intercept).centred(centre).rounding
    weights = np.zeros(rows.shape[1])
    to_original = np.eye(rows.shape[1])  # the penalty is on the weights of the original rows
    to_original[-1, :-1] = -centre / intercept
    for _ in range(steps):
        total = np.zeros_like(weights)
        for row, label in zip(rows, y, strict=True):
            gradient = (expit(row @ weights) - label) * row
            total += gradient * min(1, clip_norm / room / max(np.linalg.norm(gradient), 1e-300))
        total = source.add_gaussian(total, stds[1])
        weights = weights - step_size * (total / len(X) + alpha * to_original.T @ to_original @ weights)
    return to_original @ weights


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("clip_norm", [0.05, 0.4, 9.0])
def test_it_is_descent_on_differences_from_a_noisy_mean(tools, form, clip_norm):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)) + 1, rng.integers(0, 2, 12)
    problem = tools.make_problem(form(X), y, alpha=0.1, row_norm=1.5, intercept=0.4)
    plan = plan_for(problem, clip_norm=clip_norm)
    stds = plan.mean.noise_std, plan.gradients.noise_std
    fields = {"row_norm": 1.5, "intercept": 0.4, "clip_norm": clip_norm, "steps": 5, "step_size": 0.5, "alpha": 0.1}
    expected = reference(X, y, **fields, stds=stds, source=NoiseSource(8))
    assert solve(problem, plan, NoiseSource(8)).weights == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_noise_is_drawn_once_for_the_mean_and_once_per_step(tools):
    rng = np.random.default_rng(1)
    for objective in (Logistic(), Multinomial(3)):
        problem = tools.make_problem(rng.standard_normal((9, 4)), [0, 1, 0] * 3, objective=objective, intercept=0.5)
        plan, source = plan_for(problem, steps=7), Counting(0)
        solve(problem, plan, source)
        shape = objective.start(5).shape
        assert source.shapes == [((4,), plan.mean.noise_std)] + [(shape, plan.gradients.noise_std)] * 7


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_weights_are_mapped_back_to_the_same_scores(tools, objective, form, released):
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((20, 3)) + np.array([2, 0, -1]), rng.integers(0, 2, 20)
    problem = tools.make_problem(form(X), y, objective=objective, row_norm=2.0, intercept=0.3)
    plan = plan_for(problem, budget=Budget(50.0, DELTA))
    release = solve(problem, plan, keep_iterates=True, averaged=0.5)
    centre = released[0][1] / 20
    rows = problem.rows.centred(centre)
    centred = Problem(objective, L2(0.0), rows, problem.targets)
    source = NoiseSource(0)
    source.add_gaussian(np.zeros(3), 1.0)  # the noise of the mean comes first
    inner = noisy_gradient_descent(
        centred, Run(replace(plan.gradients, delta=DELTA), source), step_size=0.5, keep_iterates=True, averaged=0.5
    )
    assert problem.rows.scores(release.weights) == pytest.approx(rows.scores(inner.weights), abs=1e-9)
    assert len(release.trace["iterates"]) == 5
    for outer_weights, inner_weights in zip(release.trace["iterates"], inner.trace["iterates"], strict=True):
        assert problem.rows.scores(outer_weights) == pytest.approx(rows.scores(inner_weights), abs=1e-9)
    mean = np.mean(release.trace["iterates"][2:], axis=0)  # ceil of half of five
    assert release.weights == pytest.approx(mean, abs=1e-9)


def test_without_noise_the_mean_is_the_mean(tools, released):
    X = np.random.default_rng(3).standard_normal((30, 3)) + 5
    problem = tools.make_problem(X, [0, 1] * 15, intercept=0.5, row_norm=20.0)
    solve(problem, source=tools.Silent())
    assert released[0][1] / 30 == pytest.approx(X.mean(axis=0))


def test_where_rows_share_a_mean_it_arrives_far_sooner_than_without_centring(tools):
    """This is the purpose of centring. Rows are far from zero, and their differences determine the labels."""
    rng = np.random.default_rng(4)
    differences = rng.standard_normal((300, 5))
    X, y = differences + 20, (differences[:, 0] > 0).astype(int)
    problem = tools.make_problem(X, y, row_norm=60.0, intercept=12.0)
    plan = plan_for(problem, steps=30, clip_norm=100.0, budget=Budget(1e6, DELTA))
    rule = AlignedStep(1.8 / problem.smoothness)
    centred = centred_gradient_descent(problem, Run(replace(plan, delta=DELTA), tools.Silent()), step_size=rule)
    descent = replace(plan.gradients, delta=DELTA)
    plain = noisy_gradient_descent(problem, Run(descent, tools.Silent()), step_size=rule)
    assert problem.value(centred.weights) < 0.6 * problem.value(plain.weights)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("extreme", [1e308, -1e308, 1e160, 5e-324])
def test_extreme_rows_leave_no_trace_of_nan(tools, form, extreme):
    X = np.array([[extreme, extreme], [0.1, -0.2], [extreme, 0.0]])
    with np.errstate(over="raise", invalid="raise"):
        problem = tools.make_problem(form(X), [0, 1, 1], intercept=0.5)
        weights = solve(problem, plan_for(problem, steps=20)).weights
    assert np.isfinite(weights).all()


# ------------------------------------------------------------------------------------------------------ sensitivity


def neighbour_sums(one, other, objective, weights, centre, clip_norm, intercept):
    sums = []
    for X, y in (one, other):
        rows = BoundedRows(np.asarray(X, dtype=float), 1.0, intercept).centred(centre)
        sums.append(objective.gradient_sum(weights, rows, np.asarray(y), clip_norm))
    return float(np.linalg.norm(sums[0] - sums[1]))


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: type(each).__name__)
def test_no_neighbour_moves_a_gradient_by_more_than_twice_the_clip(tools, n, objective):
    """Brute force with the same centre and weights. The centre is on a row, on the mean or far away."""
    rng = np.random.default_rng(n)
    farthest = 0.0
    for _ in range(25):
        for one, other in tools.neighbours(rng, n, 3):
            rows = BoundedRows(one[0], 1.0, 0.2)
            centre = [rows.total() / n, rows.scores(np.eye(4))[0, :3], 10.0 * rng.standard_normal(3), np.zeros(3)]
            for each in centre:
                weights = rng.choice([0.0, 1.0, 30.0]) * rng.standard_normal(objective.start(4).shape)
                clip_norm = float(rng.choice([0.01, 0.1]))
                moved = neighbour_sums(one, other, objective, weights, each, clip_norm, 0.2)
                farthest = max(farthest, moved / clip_norm)
    assert 1.8 < farthest <= 2


@pytest.mark.parametrize("n", [2, 3, 5])
def test_no_neighbour_moves_the_mean_by_more_than_twice_the_bound_over_n(tools, released, n):
    rng = np.random.default_rng(n)
    farthest = 0.0
    for _ in range(20):
        for pair in tools.neighbours(rng, n, 3):
            released.clear()
            for X, y in pair:
                problem = tools.make_problem(X, y, intercept=0.2)
                solve(problem, plan_for(problem, steps=1))
            farthest = max(farthest, float(np.linalg.norm(released[0][0] - released[2][0])))
    assert 1.8 < farthest <= 2 * problem.rows.weight_in_total


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_run_on_a_neighbour_differs_only_in_its_sums(tools, objective, n, released, replayed):
    """Given the same releases, the sums of two neighbours differ within the claim, and the results are equal."""
    rng = np.random.default_rng(10 + n)
    record = Step.noisy
    for one, other in tools.neighbours(rng, n, 3):
        outcomes = []
        for k, (X, y) in enumerate((one, other)):
            problem = tools.make_problem(X, y, objective=objective, intercept=0.2, alpha=1e-4)
            plan = plan_for(problem, steps=6, clip_norm=0.2, budget=Budget(100.0, DELTA))
            options = {"step_size": AlignedStep(0.5, 50.0), "averaged": 0.4, "momentum": 0.5, "keep_iterates": True}
            if k == 0:
                Step.noisy = record
                released.clear()
                outcomes.append(solve(problem, plan, **options, denoiser=LaplacianSmoothing(0.5)))
                sums = replayed([output for _, output in released])
            else:
                outcomes.append(solve(problem, plan, **options, denoiser=LaplacianSmoothing(0.5)))
        limits = [plan.mean.clip_norm] + [plan.gradients.clip_norm] * 6
        for (total, _), replay, limit in zip(released, sums, limits, strict=True):
            assert np.linalg.norm(total - replay) <= 2 * limit
        first, second = outcomes
        assert np.array_equal(first.weights, second.weights)
        assert first.guarantee == second.guarantee
        assert all(np.array_equal(a, b) for a, b in zip(first.trace["iterates"], second.trace["iterates"], strict=True))
        assert {k: v for k, v in first.trace.items() if k != "iterates"} == {
            k: v for k, v in second.trace.items() if k != "iterates"
        }


# --------------------------------------------------------------------------------------------- an attack on the whole


@pytest.mark.parametrize("n", [2, 3])
def test_the_worst_pair_is_distinguished_as_well_as_claimed_and_no_better(tools, released, monkeypatch, n):
    """The outlier is on one side or the other, so the mean and every clipped gradient move by their full bounds.

    An attacker who knows both tables adds up the log-likelihood ratios of all releases. Under a claim of mu this sum is
    at best N(mu^2/2, mu^2) on one table and N(-mu^2/2, mu^2) on the other.
    """
    clip_norm, steps, runs = 0.02, 3, 1000
    tables = []
    for side in (1.0, -1.0):
        X = np.zeros((n, 2))
        X[0, 0] = side
        tables.append((X, np.ones(n)))
    problems = [tools.make_problem(X, y, intercept=0.01) for X, y in tables]
    plan = plan_for(problems[0], steps=steps, clip_norm=clip_norm, share=0.5, budget=Budget(60.0, DELTA))
    claimed = math.hypot(2 / plan.mean.noise_multiplier, 2 * math.sqrt(steps) / plan.gradients.noise_multiplier)
    assert exact_epsilon(claimed) == pytest.approx(60.0, rel=1e-6)
    stated = plan.guarantee(DELTA)
    for kind in (CentredPlan, GradientPlan):  # computing it a thousand times takes longer than the runs
        monkeypatch.setattr(kind, "guarantee", lambda *_, **__: stated)
    losses = np.empty((2, runs))
    for side, problem in enumerate(problems):
        source = NoiseSource(side)
        for run in range(runs):
            released.clear()
            solve(problem, plan, source, step_size=1e-3)
            losses[side, run] = log_ratio(released, tables, plan, n)
    apart = losses[0].mean() - losses[1].mean()
    measured = apart / math.sqrt(losses.var(axis=1).mean())
    error = math.sqrt(2 / runs + measured**2 / (4 * runs))
    assert 0.85 * claimed < measured <= claimed + 4 * error
    assert math.sqrt(apart) == pytest.approx(claimed, rel=0.15)


def exact_epsilon(mu):
    """Return the epsilon of N(0, 1) against N(mu, 1) at DELTA."""
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 1e-9, 500)


def log_ratio(released, tables, plan, n):
    """Return log p(releases | first table) - log p(releases | second), from the definition."""
    (_, noisy_total), *gradients = released
    centre = noisy_total / n
    total = sum(
        sign * np.sum((noisy_total - X.sum(axis=0)) ** 2) for sign, (X, _) in zip((-1, 1), tables, strict=True)
    ) / (2 * plan.mean.noise_std**2)
    weights = np.zeros(3)
    for _, gradient in gradients:
        for sign, (X, y) in zip((-1, 1), tables, strict=True):
            rows = np.column_stack([X - centre, np.full(n, 0.01)])
            parts = (expit(rows @ weights) - y)[:, None] * rows
            parts *= np.minimum(1, plan.gradients.clip_norm / np.linalg.norm(parts, axis=1))[:, None]
            total += sign * np.sum((gradient - parts.sum(axis=0)) ** 2) / (2 * plan.gradients.noise_std**2)
        weights = weights - 1e-3 * gradient / n
    return total


# ------------------------------------------------------------------------------------------------ the returned values


def test_the_guarantee_is_that_of_the_plan_and_enforced(tools):
    problem = tools.make_problem(np.ones((6, 2)), [0, 1] * 3, intercept=0.5)
    plan = plan_for(problem)
    release = solve(problem, plan, NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon <= 1.0
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(problem, plan, NoiseSource(1)).guarantee.is_conditional
    for words in ("noisy mean of the rows", "each row has l2 norm at most 1", "clipped to l2 norm 0.3"):
        assert words in release.guarantee.statement(verbose=True)
    assert release.trace["steps"] == 5
    assert "iterates" not in release.trace


def test_progress_is_reported_after_each_step(tools):
    calls = []
    problem = tools.make_problem(np.ones((6, 2)), [0, 1] * 3, intercept=0.5)
    solve(problem, progress=lambda *call: calls.append(call))
    assert calls == [(step, 5) for step in range(1, 6)]


def test_the_problem_is_left_as_it_was(tools):
    X = np.random.default_rng(5).standard_normal((6, 2))
    problem = tools.make_problem(X, [0, 1] * 3, intercept=0.5)
    before = problem.rows.scores(np.arange(3.0))
    solve(problem)
    assert np.array_equal(problem.rows.scores(np.arange(3.0)), before)


@pytest.mark.parametrize(
    "descent",
    [GradientPlan(FixedSize(2, 6), 4, 0.3, 5.0), GradientPlan(Poisson(0.5), 4, 0.3, 5.0, public_n=6)],
    ids=["fixed size", "poisson"],
)
def test_a_descent_on_samples_is_centred_too(tools, descent, released):
    problem = tools.make_problem(np.random.default_rng(6).standard_normal((6, 2)), [0, 1] * 3, intercept=0.5)
    public_n = 6 if descent.adjacency is Adjacency.ADD_OR_REMOVE else None
    mean = GradientPlan(FullBatch(), 1, problem.rows.weight_in_total, 5.0, descent.adjacency, public_n)
    release = solve(problem, CentredPlan(mean, descent))
    assert np.isfinite(release.weights).all()
    assert len(released) == 5
    assert release.guarantee.adjacency is descent.adjacency


# ------------------------------------------------------------------------------------------- only the last iterate


def halves(tools, row_norm=1.5):
    """Return private and public records as two problems, and a plan for the last iterate of a descent on both."""
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((12, 3)) + 1, rng.integers(0, 2, 12)
    fields = {"alpha": 0.1, "row_norm": row_norm, "intercept": 0.5}
    private, public = (tools.make_problem(X[part], y[part], **fields) for part in (slice(7), slice(7, None)))
    anywhere = centred_anywhere(private, row_norm, row_norm)
    options = {"release": "last", "descent": descent_of(anywhere), "clip_norm": 0.4}
    return private, public, options


@pytest.mark.parametrize("is_helped", [False, True])
@pytest.mark.parametrize("delta", [DELTA, 1e-3])
def test_a_hidden_descent_is_that_on_rows_centred_at_the_noisy_mean_and_scaled_down(tools, is_helped, delta):
    private, public, options = halves(tools)
    order = FixedOrder(7, 2, 3, public=5 * is_helped)
    plan = CentredPlan.for_budget(BUDGET, sampler=order, row_norm=private.rows.weight_in_total, **options)
    helped, calls = {"public": public} if is_helped else {}, []
    run = Run(replace(plan, delta=delta), NoiseSource(8), lambda *call: calls.append(call))
    release = centred_gradient_descent(private, run, **helped)
    source = NoiseSource(8)
    centre = noisy_centre(private.rows, plan.mean, source)
    parts = [replace(part, rows=part.rows.centred(centre, 1.5)) for part in (private, *helped.values())]
    given = {"public": parts[1]} if is_helped else {}
    expected = projected_sgd(parts[0], Run(replace(plan.gradients, delta=delta), source), **given)
    assert np.array_equal(release.weights, uncentred(expected.weights, private.rows, centre))
    assert release.trace == expected.trace
    assert calls == [(done, plan.gradients.steps) for done in range(1, plan.gradients.steps + 1)]
    assert release.guarantee.delta == delta
    assert release.guarantee.epsilon <= 1.0
    assert "strongly convex" in release.guarantee.statement(verbose=True)


def test_what_is_wrong_with_a_hidden_descent_is_found_before_the_mean_is_released(tools):
    private, public, options = halves(tools)
    fields = {"row_norm": private.rows.weight_in_total, "sampler": FixedOrder(7, 2, 3, public=5)}
    plan = CentredPlan.for_budget(BUDGET, **fields, **options)
    weak = replace(public, regulariser=L2(0.05))
    steep = CentredPlan.for_budget(BUDGET, **fields, **options | {"descent": Descent(0.5, 0.2)})
    for made, given, cause in (
        (plan, {}, "n = 12 units, the data has 7"),
        (plan, {"public": weak}, "Make the plan with descent_of"),
        (steep, {"public": public}, "Make the plan with descent_of"),
    ):
        source = Counting(0)
        with pytest.raises(ValueError, match=cause):
            centred_gradient_descent(private, Run(made, source), **given)
        assert source.shapes == []


# ---------------------------------------------------------------------------------------------------------- refusals


def refusals():
    add = Adjacency.ADD_OR_REMOVE
    whole = FullBatch()
    mean, descent = GradientPlan(whole, 1, 1.01, 5.0), GradientPlan(whole, 3, 0.3, 5.0)
    yield "no intercept", {"intercept": 0.0}, CentredPlan(mean, descent), {}, "intercept"
    yield "short bound", {}, CentredPlan(GradientPlan(whole, 1, 0.5, 5.0), descent), {}, "rows are bounded by"
    yield "delta 0", {}, CentredPlan(mean, descent), {"delta": 0.0}, "delta"
    yield "delta 1", {}, CentredPlan(mean, descent), {"delta": 1.0}, "delta"
    yield "delta nan", {}, CentredPlan(mean, descent), {"delta": math.nan}, "delta"
    yield "momentum", {}, CentredPlan(mean, descent), {"momentum": 1.0}, "momentum"
    yield "averaged", {}, CentredPlan(mean, descent), {"averaged": 1.5}, "averaged"
    yield "step size", {}, CentredPlan(mean, descent), {"step_size": 0.0}, "step_size"
    yield "other n", {}, CentredPlan(mean, GradientPlan(FixedSize(3, 9), 3, 0.3, 5.0)), {}, "n = 9 units"
    loose, tight = GradientPlan(whole, 1, 1.01, 5.0, add), GradientPlan(whole, 1, 1.01, 5.0, add, 6)
    yield "n of the mean", {}, CentredPlan(loose, GradientPlan(whole, 3, 0.3, 5.0, add, 6)), {}, "public_n"
    yield "n of the descent", {}, CentredPlan(tight, GradientPlan(whole, 3, 0.3, 5.0, add)), {}, "public_n"


@pytest.mark.parametrize(
    ("fields", "plan", "options", "cause"), [case[1:] for case in refusals()], ids=[c[0] for c in refusals()]
)
def test_what_cannot_be_run_is_refused_before_any_noise_is_drawn(tools, fields, plan, options, cause):
    problem = tools.make_problem(np.ones((6, 2)), [0, 1] * 3, **({"intercept": 0.5} | fields))
    source = Counting(0)
    with pytest.raises(ValueError, match=cause):
        solve(problem, plan, source, **options)
    assert source.shapes == []


def test_rows_that_were_centred_before_are_handled_or_refused(tools):
    """Centred rows have another centre, so scores must be the same or the problem must be refused."""
    X = np.random.default_rng(7).standard_normal((40, 2)) / 3 + 0.5
    problem = tools.make_problem(X, (X[:, 0] > 0.5).astype(int), intercept=0.5, row_norm=2.0)
    once = Problem(problem.objective, problem.regulariser, problem.rows.centred(np.array([0.4, 0.4])), problem.targets)
    source = Counting(0)
    try:
        release = solve(once, plan_for(once, steps=200, clip_norm=1.0), tools.Silent())
    except ValueError:
        assert source.shapes == []
    else:
        plain = solve(problem, plan_for(problem, steps=200, clip_norm=1.0), tools.Silent())
        scores = problem.rows.scores(plain.weights)
        assert once.rows.scores(release.weights) == pytest.approx(scores, abs=1e-6)


def test_sources_repeat_with_a_seed_and_differ_without(tools):
    problem = tools.make_problem(np.ones((6, 2)), [0, 1] * 3, intercept=0.5)
    runs = [solve(problem, source=NoiseSource(seed)).weights for seed in (1, 1, 2, None, None)]
    assert np.array_equal(runs[0], runs[1])
    assert all(not np.array_equal(one, other) for one, other in pairwise(runs[1:]))
