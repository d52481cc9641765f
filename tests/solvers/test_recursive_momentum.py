import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax
from scipy.stats import chisquare

from privet.objectives import BoundedRows, Logistic, Multinomial, Squared
from privet.objectives.regularisers import SaturatingPenalty
from privet.plans import FixedOrder, FixedSize, FullBatch, GradientPlan, OneUniform, Poisson
from privet.plans.recursive import RecursivePlan
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.solvers import Problem, Run, noisy_gradient_descent
from privet.solvers.recursive_momentum import _total, recursive_momentum

ADD = Adjacency.ADD_OR_REMOVE
DELTA = 1e-5
OBJECTIVES = pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])


def plan_of(sampler, steps=6, clip_norm=0.7, difference_norm=0.2, refresh=0.3, noise=1.5, first_noise=2.5, **fields):
    return RecursivePlan(sampler, steps, clip_norm, difference_norm, refresh, noise, first_noise, **fields)


def solve(problem, plan, seed=0, **options):
    source = options.pop("source", None) or NoiseSource(seed)
    return recursive_momentum(
        problem, Run(replace(plan, delta=DELTA), source, options.pop("progress", None)), **options
    )


class Counting(NoiseSource):
    """A source that records the requested noise."""

    def __init__(self, seed=None):
        super().__init__(seed)
        self.stds = []

    def add_gaussian(self, values, std, *options):
        self.stds.append(std)
        return super().add_gaussian(values, std, *options)


# ----------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize(
    ("sampler", "first", "divisor", "first_divisor"),
    [
        (FullBatch(), None, 20, 20),
        (FixedSize(4, 20), FixedSize(10, 20), 4, 10),
        (OneUniform(20), FullBatch(), 1, 20),
        (FixedOrder(20, passes=1, size=4), FullBatch(), 4, 20),
        (Poisson(0.25), Poisson(0.5), 25, 50),
    ],
    ids=repr,
)
def test_the_weights_of_a_problem_without_gradients_are_the_noise_of_the_plan(
    tools, sampler, first, divisor, first_divisor
):
    """v_t = noise_t / divisor + (1 - g) v_(t-1) and w = -eta (v_0 + ... + v_5): each noise has a geometric weight."""
    plan = plan_of(sampler, None if sampler.implied_steps else 6, first=first, public_n=100)
    problem = tools.silence(20, 50)
    options = {"step_size": 0.5, "max_move": math.inf}
    weights = np.concatenate([solve(problem, plan, seed, **options).weights for seed in range(40)])
    weight_of = [sum(0.7**k for k in range(6 - t)) for t in range(6)]
    stds = [2.5 * 0.7 / first_divisor, *[1.5 * (0.3 * 0.7 + 0.7 * 0.2) / divisor] * 5]
    std = 0.5 * math.hypot(*(weight * each for weight, each in zip(weight_of, stds, strict=True)))
    assert tools.has_only_std(weights, std)


@pytest.mark.parametrize("sampler", [FullBatch(), FixedSize(3, 12), Poisson(0.3)], ids=repr)
@pytest.mark.parametrize("output", ["last", "random"])
def test_exactly_the_accounted_noise_is_drawn(tools, sampler, output):
    source = Counting(1)
    plan = plan_of(sampler, steps=9, public_n=12)
    solve(tools.silence(12, 3), plan, source=source, output=output)
    assert source.stds == pytest.approx([2.5 * 0.7] + [1.5 * 0.35] * 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [None, 3])
def test_the_noise_covers_every_weight(tools, dtype, n_classes):
    problem = tools.silence(10, 4000, n_classes=n_classes, dtype=dtype)
    weights = solve(problem, plan_of(FullBatch(), 2), step_size=1.0, max_move=math.inf).weights
    assert weights.shape == ((4000, 3) if n_classes else (4000,))
    assert tools.has_std(weights, math.hypot(1.7 * 2.5 * 0.7, 1.5 * 0.35) / 10)


def test_seeds_repeat_and_secure_sources_differ(tools):
    plan, problem = plan_of(FixedSize(2, 9)), tools.silence(9, 5)
    assert np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 3).weights)
    assert not np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 4).weights)
    assert not np.array_equal(*(solve(problem, plan, source=NoiseSource()).weights for _ in range(2)))


# ------------------------------------------------------------------------------------ neighbours, by brute force


def later_sum(tools, table, plan, weights, before, **fields):
    """Return the sum of a step after the first, given everything that was released before it."""
    problem = tools.make_problem(*table, **fields)
    step = next(GradientPlan(FullBatch(), 1, 1.0, 1.0).run(problem.rows.n, NoiseSource(0)))
    return _total(problem, plan, step, weights, before)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("clip_norm", "difference_norm"), [(1.0, 0.1), (0.2, 0.3), (0.3, 10.0), (10.0, 0.1)])
@pytest.mark.parametrize("refresh", [0.0, 0.3, 1.0])
@OBJECTIVES
def test_neighbours_differ_in_no_sum_by_more_than_twice_the_bound(
    tools, n, clip_norm, difference_norm, refresh, objective
):
    rng = np.random.default_rng(n)
    plan = plan_of(FullBatch(), 5, clip_norm, difference_norm, refresh)
    bound = 2 * (refresh * clip_norm + (1 - refresh) * difference_norm)
    for _ in range(5):
        for one, other in tools.neighbours(rng, n, 3):
            shape = objective.start(4).shape
            before = rng.choice([0.0, 1.0, 30.0]) * rng.standard_normal(shape)
            weights = rng.choice([-1, 0, 1]) * before + rng.choice([0.01, 1.0, 30.0]) * rng.standard_normal(shape)
            sums = [
                later_sum(tools, table, plan, weights, before, objective=objective, intercept=0.5)
                for table in (one, other)
            ]
            assert np.linalg.norm(sums[0] - sums[1]) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
@OBJECTIVES
def test_the_bound_is_attained_by_two_records_that_turn_into_sure_mistakes(tools, n, objective):
    """Nearly equal rows on both sides of weights that flip give opposite mistakes: docs/errata.md (i), 0.74."""
    plan = plan_of(FullBatch(), 5, 1.0, 0.1, 0.3)
    weights = objective.start(2)
    weights[0] = 1e5 if weights.ndim == 1 else [0.0, 1e5, 0.0]
    sums = []
    for side, label in ((1e-3, 0), (-1e-3, 1)):
        X, y = np.full((n, 2), 0.1), np.zeros(n, int)
        X[0], y[0] = [side, 1.0], label
        sums.append(later_sum(tools, (X, y), plan, weights, -weights, objective=objective))
    distance = np.linalg.norm(sums[0] - sums[1])
    share = 0.9998 if isinstance(objective, Logistic) else 0.85  # the third class takes part of a mistake
    assert share * 0.74 < distance <= 0.74


@OBJECTIVES
def test_differences_are_clipped_even_where_gradients_need_no_clip(tools, objective):
    """A residual may change by more than its largest value, for instance by 2 for a Huberised loss with bound 1."""

    class Wide(type(objective)):
        def residuals(self, scores, targets):
            return np.sign(scores) * self.residual_bound / math.sqrt(2 if scores.ndim > 1 else 1)

    wide = Wide(2) if isinstance(objective, Multinomial) else Wide()
    limit = wide.lipschitz(1.0)
    plan = plan_of(FullBatch(), 5, clip_norm=1.1 * limit, difference_norm=1.1 * limit, refresh=0.0)
    weights = np.ones_like(wide.start(1))
    total = later_sum(tools, ([[1.0]], [0]), plan, weights, -weights, objective=wide)
    assert 0.99 * 1.1 * limit < np.linalg.norm(total) <= 1.1 * limit


def test_under_add_or_remove_the_noise_does_not_reveal_the_number_of_records(tools):
    plan = plan_of(FullBatch(), adjacency=ADD, public_n=10)
    few, many, most = (solve(tools.silence(n, 9), plan) for n in (10, 11, 100_000))
    assert np.array_equal(few.weights, many.weights)
    assert np.array_equal(few.weights, most.weights)
    assert few.trace == many.trace == most.trace  # nor do the default step and move
    with pytest.raises(ValueError, match="public_n"):
        solve(tools.silence(10, 9), plan_of(Poisson(0.5)))


def test_the_divisor_does_not_depend_on_the_batch(tools):
    """All records are equal and no clip binds, so the first estimate is the batch size over the public size."""
    X, y = np.full((40, 1), 0.6), np.zeros(40, int)
    plan = plan_of(Poisson(0.3), 2, 1.0, 1.0, 0.3, public_n=50)
    sizes = []
    for seed in range(20):
        source = tools.Silent(seed)
        size = len(next(iter(Poisson(0.3).batches(40, 1, tools.Silent(seed)))))
        first = solve(tools.make_problem(X, y), plan, source=source, keep_iterates=True, step_size=1.0)
        assert first.trace["iterates"][0] == pytest.approx([-0.5 * 0.6 * size / 15])
        sizes.append(size)
    assert len(set(sizes)) > 5


def test_empty_batches_work(tools):
    problem = tools.make_problem(np.ones((3, 2)), [0, 1, 1])
    plan = plan_of(Poisson(1e-6), steps=5, public_n=3_000_000)
    assert np.isfinite(solve(problem, plan).weights).all()
    assert not solve(problem, plan, source=tools.Silent(1)).weights.any()


# --------------------------------------------------------------------------------------------------- the descent


def naive(rows, labels, n_classes, weights):
    """Return the gradient of each record, computed explicitly."""
    if n_classes is None:
        return np.array([(1 / (1 + np.exp(-row @ weights)) - y) * row for row, y in zip(rows, labels, strict=True)])
    return np.array(
        [np.outer(row, softmax(row @ weights) - np.eye(n_classes)[y]) for row, y in zip(rows, labels, strict=True)]
    )


def clip(gradients, bound):
    return sum((g * min(1, bound / max(np.linalg.norm(g), 1e-300)) for g in gradients), start=0.0)


@pytest.mark.parametrize("n_classes", [None, 3])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("clips", [(0.4, 0.02), (10.0, 10.0), (0.1, 10.0)])
@pytest.mark.parametrize(
    ("sampler", "first"), [(FullBatch(), None), (FixedSize(3, 12), FixedSize(6, 12)), (Poisson(0.3), FullBatch())]
)
def test_the_steps_are_those_of_a_plain_loop_over_records(tools, sampler, first, clips, form, n_classes):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((12, 4)), rng.integers(0, n_classes or 2, 12)
    objective = Multinomial(3) if n_classes else Logistic()
    problem = tools.make_problem(form(X), y, objective=objective, alpha=0.1, intercept=0.5)
    plan = plan_of(sampler, 7, *clips, 0.25, first=first, public_n=20)
    rows = np.column_stack([X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None], np.full(12, 0.5)])
    source, weights, room = NoiseSource(8), problem.start(), 1 + problem.rows.rounding
    moves = []
    for t in range(7):
        chooser = (first or sampler) if t == 0 else sampler
        batch = next(iter(chooser.batches(12, 1, source)))
        now = naive(rows[batch], y[batch], n_classes, weights)
        if t == 0:
            total, std = clip(now, clips[0] / room), 2.5 * clips[0]
        else:
            change = now - naive(rows[batch], y[batch], n_classes, before)  # noqa: F821
            total = 0.25 * clip(now, clips[0] / room) + 0.75 * clip(change, clips[1] / room)
            std = 1.5 * (0.25 * clips[0] + 0.75 * clips[1])
        noisy = source.add_gaussian(total + np.zeros_like(weights), std)  # a batch may be empty
        estimate = noisy / chooser.nominal_size(20 if isinstance(sampler, Poisson) else 12)
        v = estimate if t == 0 else estimate + 0.75 * v  # noqa: F821
        direction = v + 0.1 * weights
        moves.append(min(0.5, 0.3 / np.linalg.norm(direction)) * direction)
        before, weights = weights, weights - moves[-1]  # noqa: F841
    release = solve(problem, plan, 8, step_size=0.5, max_move=0.3)
    assert release.weights == pytest.approx(weights, abs=1e-8)


@pytest.mark.parametrize("sampler", [FullBatch(), FixedSize(3, 12), Poisson(0.3)], ids=repr)
@pytest.mark.parametrize("clip_norm", [0.2, 10.0])
def test_without_memory_it_is_noisy_gradient_descent(tools, sampler, clip_norm):
    rng = np.random.default_rng(2)
    problem = tools.make_problem(rng.standard_normal((12, 4)), rng.integers(0, 2, 12), alpha=0.1)
    recursive = plan_of(sampler, 9, clip_norm, 0.01, refresh=1.0, first_noise=1.5, public_n=20)
    plain = GradientPlan(sampler, 9, clip_norm, 1.5, public_n=20)
    expected = noisy_gradient_descent(problem, Run(replace(plain, delta=DELTA), NoiseSource(3)), step_size=0.5)
    release = solve(problem, recursive, 3, step_size=0.5, max_move=math.inf)
    assert release.weights == pytest.approx(expected.weights, rel=1e-12)
    assert release.guarantee.epsilon == pytest.approx(expected.guarantee.epsilon, rel=1e-12)


@pytest.mark.parametrize("refresh", [0.0, 0.1, 0.7])
def test_full_batches_without_noise_track_the_exact_gradient(tools, separable, refresh):
    """v_t = gradient at w_t: the default move keeps every difference below its clip."""
    problem = tools.make_problem(*separable, alpha=0.05)
    plan = plan_of(FullBatch(), 50, problem.lipschitz, 0.05, refresh)
    release = solve(problem, plan, source=tools.Silent(), keep_iterates=True)
    weights, move = problem.start(), 0.05 / (problem.smoothness - 0.05)
    for found in release.trace["iterates"]:
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, 10.0)
        gradient = total / 200 + 0.05 * weights
        weights = weights - min(1 / problem.smoothness, move / np.linalg.norm(gradient)) * gradient
        assert found == pytest.approx(weights, abs=1e-6)


def valley(n, seed=0):
    """Return a problem with a non-convex penalty."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)) / 3
    y = (X @ np.array([3.0, -2.0, 1.0, 0, 0]) + rng.standard_normal(n) > 0).astype(int)
    return Problem(Logistic(), SaturatingPenalty(0.02), BoundedRows(X, 1.0), y)


def test_it_finds_a_stationary_point_of_a_non_convex_problem(tools):
    problem = valley(500)
    assert not problem.is_convex
    plan = plan_of(FixedSize(50, 500), 400, 1.0, 0.1, 0.1)
    weights = solve(problem, plan, source=tools.Silent(1)).weights
    assert problem.gradient_norm(weights) < 0.15 * problem.gradient_norm(problem.start())
    plan = plan_of(FullBatch(), 400, 1.0, 0.1, 0.1)
    assert problem.gradient_norm(solve(problem, plan, source=tools.Silent()).weights) < 1e-6


def test_with_privacy_the_result_is_close_to_a_stationary_point():
    problem = valley(20_000)
    fields = {"sampler": FixedSize(500, 20_000), "steps": 200, "first": FixedSize(2000, 20_000)}
    bounds = {"clip_norm": 1.0, "difference_norm": 0.1, "refresh": 0.2}
    plan = RecursivePlan.for_budget(Budget(0.5, DELTA), **fields, **bounds)
    for seed in range(3):
        release = solve(problem, plan, seed)
        assert release.guarantee.epsilon <= 0.5
        assert problem.gradient_norm(release.weights) < 0.2 * problem.gradient_norm(problem.start())


def test_losses_without_bound_are_clipped(tools):
    problem = tools.make_problem(np.ones((6, 2)), np.array([1e6, -1e6, 0.0, 3.0, 1e12, -2.0]), objective=Squared())
    release = solve(problem, plan_of(FixedSize(2, 6), 20))
    assert np.linalg.norm(release.weights) < 100


# ------------------------------------------------------------------------------------------------ the result


def test_the_random_output_is_uniform_over_the_points_where_gradients_were_taken(tools):
    problem = tools.make_problem(np.ones((4, 1)), [0, 0, 0, 1])
    plan = plan_of(FullBatch(), 5)
    points = solve(problem, plan, source=tools.Silent(), keep_iterates=True).trace["iterates"]
    points = np.concatenate([problem.start(), *points])
    assert len(set(points)) == 6
    found = [solve(problem, plan, source=tools.Silent(seed), output="random").weights[0] for seed in range(400)]
    counts = [found.count(point) for point in points]
    assert counts[5] == 0
    assert sum(counts) == 400
    assert chisquare(counts[:5]).pvalue > 1e-6


def test_the_average_is_that_of_the_last_iterates(tools):
    problem, plan = tools.make_problem(np.ones((4, 1)), [0, 0, 0, 1]), plan_of(FullBatch(), 5)
    points = solve(problem, plan, keep_iterates=True).trace["iterates"]
    for averaged, number in ((0.0, 1), (0.3, 2), (1.0, 5)):
        assert solve(problem, plan, averaged=averaged).weights == pytest.approx(np.mean(points[-number:], axis=0))


@pytest.mark.parametrize("options", [{"averaged": -0.1}, {"averaged": 1.1}, {"averaged": 0.5, "output": "random"}])
def test_an_impossible_average_is_refused_before_any_noise_is_drawn(tools, options):
    source = Counting(0)
    with pytest.raises(ValueError, match="averaged must lie in"):
        solve(tools.silence(4, 3), plan_of(FullBatch(), 5), source=source, **options)
    assert not source.stds


def test_all_iterates_are_handed_out_only_if_asked(tools):
    plan, problem = plan_of(FullBatch(), 5), tools.silence(4, 3)
    release = solve(problem, plan, keep_iterates=True)
    assert len(release.trace["iterates"]) == 5
    assert np.array_equal(release.trace["iterates"][-1], release.weights)
    assert "iterates" not in solve(problem, plan).trace
    assert np.array_equal(solve(problem, plan).weights, release.weights)


def test_the_defaults_are_computed_from_the_constants_of_the_problem(tools):
    problem = tools.make_problem(np.ones((4, 1)), [0, 1, 0, 1], alpha=0.25, row_norm=2.0)
    trace = solve(problem, plan_of(FullBatch(), 5, difference_norm=0.2)).trace
    assert trace["step_size"] == pytest.approx(1 / 1.25, rel=1e-6)
    assert trace["max_move"] == pytest.approx(0.2 / 1.0, rel=1e-6)
    assert trace["steps"] == 5


@pytest.mark.parametrize("max_move", [1e-3, 0.1])
def test_no_step_moves_farther_than_allowed(tools, max_move):
    problem = tools.make_problem(np.ones((4, 3)), [0, 1, 0, 1])
    plan = plan_of(FullBatch(), 30)
    points = [problem.start(), *solve(problem, plan, max_move=max_move, keep_iterates=True).trace["iterates"]]
    moves = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert moves.max() <= max_move * (1 + 1e-12)
    assert moves.max() == pytest.approx(max_move)


def test_the_guarantee_is_that_of_the_plan(tools):
    bounds = {"clip_norm": 0.5, "difference_norm": 0.05, "refresh": 0.2}
    plan = RecursivePlan.for_budget(Budget(1.0, DELTA), sampler=FixedSize(3, 12), steps=7, **bounds)
    release = solve(tools.silence(12, 3), plan, source=NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon <= 1.0
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(tools.silence(12, 3), plan, seed=1).guarantee.is_conditional
    for words in ("bounded by 0.5", "clipped to 0.05", "0.14 to a later one", "all iterates", "batch of 3 of 12"):
        assert words in release.guarantee.statement(verbose=True)


def test_progress_is_reported_after_each_step(tools):
    calls = []
    solve(tools.silence(4, 2), plan_of(FullBatch(), 3), progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3)]


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("name", ["step_size", "max_move"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_an_impossible_pace_is_refused(tools, name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        solve(tools.silence(4, 2), plan_of(FullBatch()), **{name: value})


def test_an_infinite_step_is_refused_and_an_infinite_move_is_not(tools):
    with pytest.raises(ValueError, match="step_size must be finite"):
        solve(tools.silence(4, 2), plan_of(FullBatch()), step_size=math.inf)
    assert np.isfinite(solve(tools.silence(4, 2), plan_of(FullBatch()), max_move=math.inf).weights).all()


def test_a_loss_without_curvature_suggests_no_pace(tools):
    class Flat(tools.Linear):
        curvature_bound = 0.0

    problem = tools.make_problem(np.ones((4, 1)), np.ones(4), objective=Flat())
    with pytest.raises(ValueError, match="there is no default step_size"):
        solve(problem, plan_of(FullBatch()))
    with pytest.raises(ValueError, match="there is no default max_move"):
        solve(problem, plan_of(FullBatch()), step_size=0.1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_bad_delta_is_refused_before_any_noise_is_drawn(tools, delta):
    source = Counting()
    with pytest.raises(ValueError, match="delta"):
        recursive_momentum(tools.silence(10, 6), Run(replace(plan_of(FullBatch()), delta=delta), source))
    assert not source.stds


@pytest.mark.parametrize("first", [None, FullBatch()], ids=repr)
def test_a_plan_for_another_table_is_refused_before_any_noise_is_drawn(tools, first):
    source = Counting()
    with pytest.raises(ValueError, match="n = 12 units, the data has 13"):
        solve(tools.silence(13, 3), plan_of(FixedSize(3, 12), first=first), source=source)
    assert not source.stds


def test_an_unknown_output_is_refused(tools):
    with pytest.raises(ValueError, match="output must be 'last' or 'random'"):
        solve(tools.silence(4, 2), plan_of(FullBatch()), output="best")
