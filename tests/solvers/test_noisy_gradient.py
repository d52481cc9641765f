import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from privet.denoise import LaplacianSmoothing
from privet.objectives import Logistic, Multinomial
from privet.plans import FixedOrder, FixedSize, FullBatch, GradientPlan, OneUniform, Poisson
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.solvers import Run, noisy_gradient_descent

ADD = Adjacency.ADD_OR_REMOVE
DELTA = 1e-5


def solve(problem, plan, seed=0, step_size=0.5, **options):
    source = options.pop("source", None) or NoiseSource(seed)
    return noisy_gradient_descent(
        problem, Run(replace(plan, delta=DELTA), source, options.pop("progress", None)), step_size=step_size, **options
    )


# --------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize(
    ("sampler", "divisor"),
    [
        (FullBatch(), 20),
        (FixedSize(4, 20), 4),
        (OneUniform(20), 1),
        (FixedOrder(20, passes=1, size=8), 8),
        (Poisson(0.25), 25),
    ],
    ids=repr,
)
def test_the_weights_of_a_problem_without_gradients_are_the_noise_of_the_plan(tools, sampler, divisor):
    """w_T = sum over t of (1 - eta alpha)^(T-t) eta noise_t / divisor, independent in every coordinate."""
    plan = GradientPlan(sampler, sampler.implied_steps or 6, 0.7, 1.5, public_n=100)
    alpha, step_size = 0.3, 0.5
    weights = np.concatenate(
        [solve(tools.silence(20, 50, alpha=alpha), plan, seed, step_size).weights for seed in range(60)]
    )
    decay = (1 - step_size * alpha) ** 2
    std = step_size * 0.7 * 1.5 / divisor * math.sqrt((1 - decay**plan.steps) / (1 - decay))
    assert tools.has_only_std(weights, std)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [None, 3])
def test_the_noise_covers_every_weight(tools, dtype, n_classes):
    plan = GradientPlan(FullBatch(), 3, 0.7, 1.5)
    weights = solve(tools.silence(10, 4000, n_classes=n_classes, dtype=dtype), plan, step_size=1.0).weights
    assert weights.shape == ((4000, 3) if n_classes else (4000,))
    assert tools.has_std(weights, 0.7 * 1.5 / 10 * math.sqrt(3))
    assert abs(np.corrcoef(weights[::2].ravel(), weights[1::2].ravel())[0, 1]) < 0.1


def test_seeds_repeat_and_secure_sources_differ(tools):
    plan, problem = GradientPlan(FixedSize(2, 9), 4, 1.0, 1.0), tools.silence(9, 5)
    assert np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 3).weights)
    assert not np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 4).weights)
    assert not np.array_equal(
        *(solve(problem, plan, source=NoiseSource()).weights for _ in range(2)),
    )


# ------------------------------------------------------------------------------------------------- the descent


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_it_reaches_the_optimum_of_scikit_learn(tools, separable, form, n_classes):
    X, y = separable
    y = y + (X[:, 2] > 0.4) * (n_classes == 3)
    objective = Logistic() if n_classes == 2 else Multinomial(3)
    problem = tools.make_problem(form(X), y, objective=objective, alpha=0.05)
    plan = GradientPlan(FullBatch(), 400, problem.lipschitz, 1.0)
    weights = solve(problem, plan, source=tools.Silent(), step_size=1.8 / problem.smoothness).weights
    rows = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    reference = LogisticRegression(C=1 / (0.05 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(rows, y)
    found = weights if weights.ndim == 1 else weights.T
    assert found == pytest.approx(reference.coef_.squeeze(), abs=1e-5)


@pytest.mark.parametrize("sampler", [FullBatch(), FixedSize(3, 12), FixedOrder(12, 3, 5), Poisson(0.3)], ids=repr)
def test_the_steps_are_those_of_a_plain_loop(tools, sampler):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((12, 4)), rng.integers(0, 2, 12)
    problem = tools.make_problem(X, y, alpha=0.1, intercept=0.5)
    plan = GradientPlan(sampler, sampler.implied_steps or 5, 0.4, 1.2, public_n=20)
    source, weights = NoiseSource(8), np.zeros(5)
    rows = np.column_stack([X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None], np.full(12, 0.5)])
    room = 0.4 / (1 + problem.rows.rounding)
    divisor = plan.sampler.nominal_size(20 if isinstance(sampler, Poisson) else 12)
    for batch in sampler.batches(12, plan.steps, source) if isinstance(sampler, FullBatch | FixedOrder) else ():
        total = source.add_gaussian(clipped_sum(rows[batch], y[batch], weights, room), 0.48)
        weights = weights - 0.5 * (total / divisor + 0.1 * weights)
    if isinstance(sampler, FixedSize | Poisson):  # batches and noise come from one stream, step by step
        for _ in range(plan.steps):
            batch = next(iter(sampler.batches(12, 1, source)))
            total = source.add_gaussian(clipped_sum(rows[batch], y[batch], weights, room), 0.48)
            weights = weights - 0.5 * (total / divisor + 0.1 * weights)
    assert solve(problem, plan, 8).weights == pytest.approx(weights, abs=1e-9)


def clipped_sum(rows, labels, weights, clip_norm):
    total = np.zeros_like(weights)
    for row, label in zip(rows, labels, strict=True):
        gradient = (1 / (1 + np.exp(-row @ weights)) - label) * row
        total += gradient * min(1, clip_norm / max(np.linalg.norm(gradient), 1e-300))
    return total


@pytest.mark.parametrize("n_classes", [None, 3])
def test_smoothing_is_applied_to_the_features_of_each_class_by_itself(tools, n_classes):
    problem = tools.silence(10, 6, n_classes=n_classes, alpha=0.2)
    plan, source, weights = GradientPlan(FullBatch(), 4, 1.0, 1.0), NoiseSource(3), problem.start()
    second_difference = np.roll(np.eye(6), 1, axis=0) - 2 * np.eye(6) + np.roll(np.eye(6), -1, axis=0)
    smoothing = np.linalg.inv(np.eye(6) - 1.5 * second_difference)
    for _ in range(4):
        gradient = source.add_gaussian(np.zeros(weights.shape), 1.0) / 10 + 0.2 * weights
        gradient[:6] = smoothing @ gradient[:6]
        weights = weights - 0.5 * gradient
    release = solve(problem, plan, 3, denoiser=LaplacianSmoothing(1.5))
    assert release.weights == pytest.approx(weights, abs=1e-12)
    assert release.guarantee == solve(problem, plan, 3).guarantee  # post-processing does not change the guarantee


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_bad_delta_is_refused_before_any_noise_is_drawn(tools, delta, no_noise):
    problem, plan = tools.silence(10, 6), GradientPlan(FullBatch(), 2, 1.0, 1.0)
    with pytest.raises(ValueError, match="delta"):
        noisy_gradient_descent(problem, Run(replace(plan, delta=delta), NoiseSource()), step_size=0.5)


def test_an_intercept_is_not_smoothed_with_the_features(tools):
    problem = tools.make_problem(np.zeros((10, 6)), [0, 1] * 5, objective=Multinomial(3), intercept=0.5)
    seen = []

    def watch(columns, noise_std):
        seen.append([len(column) for column in columns])
        return [np.zeros_like(column) for column in columns]

    release = solve(problem, GradientPlan(FullBatch(), 2, 2.0, 1.0), 3, denoiser=watch)
    assert seen == [[6, 6, 6]] * 2
    assert (release.weights[:6] == 0).all()
    assert (release.weights[6] != 0).all()


def test_the_denoiser_receives_the_noise_of_the_mean(tools):
    calls = []

    def watch(gradient, noise_std):
        calls.append(noise_std)
        return gradient

    solve(tools.silence(10, 6), GradientPlan(FullBatch(), 2, 0.5, 3.0), denoiser=watch)
    assert calls == [0.15, 0.15]


def test_an_empty_poisson_batch_is_a_step_like_any_other(tools):
    problem = tools.make_problem(np.ones((3, 2)), [0, 1, 2], objective=Multinomial(3))
    plan = GradientPlan(Poisson(1e-9), 5, 1.0, 1.0, public_n=3)
    assert np.isfinite(solve(problem, plan).weights).all()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("extreme", [1e308, -1e308, 1e160, 5e-324])
def test_extreme_rows_leave_no_trace_of_nan(tools, form, extreme):
    X = np.array([[extreme, extreme], [0.1, -0.2], [extreme, 0.0]])
    with np.errstate(over="raise", invalid="raise"):
        problem = tools.make_problem(form(X), [0, 1, 1], intercept=0.5)
        weights = solve(problem, GradientPlan(FullBatch(), 20, 0.3, 1.0)).weights
    assert np.isfinite(weights).all()


# ---------------------------------------------------------------------------------- neighbours, by brute force


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
@pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])
def test_neighbours_differ_in_no_sum_by_more_than_twice_the_clip(tools, n, clip_norm, objective):
    rng = np.random.default_rng(n)
    bound = 2 * min(clip_norm, objective.lipschitz(math.hypot(1, 0.5)))
    farthest = 0.0
    for _ in range(30):
        for one, other in tools.neighbours(rng, n, 3):
            weights = rng.choice([0.0, 1.0, 30.0]) * rng.standard_normal(objective.start(4).shape)
            sums = []
            for X, y in (one, other):
                problem = tools.make_problem(X, y, objective=objective, intercept=0.5)
                sums.append(objective.gradient_sum(weights, problem.rows, problem.targets, clip_norm))
            farthest = max(farthest, float(np.linalg.norm(sums[0] - sums[1])))
    assert 0.5 * bound < farthest <= bound * (1 + 1e-9)


@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
@pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])
def test_the_bound_is_attained_by_two_sure_mistakes_on_nearly_the_same_row(tools, clip_norm, objective):
    """Nearly equal rows on both sides of steep weights: one is clearly predicted as class 1, the other as class 0."""
    weights = objective.start(2)
    weights[0] = 1e5 if weights.ndim == 1 else [0.0, 1e5, 0.0]
    sums = []
    for side, label in ((1e-3, 0), (-1e-3, 1)):
        problem = tools.make_problem(np.array([[side, 1.0]]), [label], objective=objective)
        sums.append(objective.gradient_sum(weights, problem.rows, problem.targets, clip_norm))
    bound = 2 * min(clip_norm, objective.lipschitz(1.0))
    share = {Logistic: 0.99, Multinomial: 0.8}[type(objective)]  # half of the second mistake falls on the third class
    assert share * bound < np.linalg.norm(sums[0] - sums[1]) <= bound


def test_under_add_or_remove_the_noise_does_not_reveal_the_number_of_records(tools):
    plan = GradientPlan(FullBatch(), 3, 1.0, 1.0, ADD, public_n=10)
    assert np.array_equal(solve(tools.silence(10, 9), plan).weights, solve(tools.silence(11, 9), plan).weights)
    with pytest.raises(ValueError, match="public_n"):
        solve(tools.silence(10, 9), GradientPlan(Poisson(0.5), 3, 1.0, 1.0))


# ------------------------------------------------------------------------------------------ the returned values


def test_the_guarantee_is_that_of_the_plan(tools):
    plan = GradientPlan.for_budget(Budget(1.0, DELTA), sampler=FixedSize(3, 12), steps=7, clip_norm=0.5)
    release = solve(tools.silence(12, 3), plan, source=NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon <= 1.0
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(tools.silence(12, 3), plan, seed=1).guarantee.is_conditional
    for words in ("at most 0.5", "all iterates", "batch of 3 of 12"):
        assert words in release.guarantee.statement(verbose=True)
    assert release.trace["steps"] == 7 and release.trace["step_size"] == 0.5 and "iterates" not in release.trace


def test_progress_is_reported_after_each_step(tools):
    calls = []
    solve(tools.silence(4, 2), GradientPlan(FullBatch(), 3, 1.0, 1.0), progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("step_size", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_step_size_is_refused(tools, step_size):
    with pytest.raises(ValueError, match="step_size must be"):
        solve(tools.silence(4, 2), GradientPlan(FullBatch(), 3, 1.0, 1.0), step_size=step_size)


def test_a_plan_for_another_table_is_refused(tools):
    with pytest.raises(ValueError, match="n = 12 units, the data has 13"):
        solve(tools.silence(13, 3), GradientPlan(FixedSize(3, 12), 5, 1.0, 1.0))
