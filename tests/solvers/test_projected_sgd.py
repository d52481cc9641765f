import importlib
import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from privet.objectives import L2, BoundedRows, GaussianHinge, Logistic, Multinomial, SaturatingPenalty, Squared
from privet.plans import (
    Descent,
    FixedOrder,
    FullBatch,
    GradientPlan,
    PlanError,
    RandomSkip,
    RandomStop,
    SecretOrder,
    Step,
)
from privet.privacy import Budget, Guarantee, NoiseSource, gdp_epsilon
from privet.solvers import (
    AlignedStep,
    Problem,
    Run,
    descent_of,
    noisy_gradient_descent,
    projected_sgd,
    random_round,
)
from privet.solvers.base.hidden_steps import rounding_of
from privet.solvers.projected_sgd import HiddenSteps, check_last_iterate

projected_sgd_module = importlib.import_module("privet.solvers.projected_sgd")
DELTA = 1e-5


def last(sampler, descent, *, noise=1.5, clip_norm=1.0, **fields):
    return GradientPlan(sampler, fields.pop("steps", None), clip_norm, noise, release="last", descent=descent, **fields)


def solve(problem, plan, seed=0, **options):
    source = options.pop("source", None) or NoiseSource(seed)
    return projected_sgd(
        problem, Run(replace(plan, delta=options.pop("delta", DELTA)), source, options.pop("progress", None)), **options
    )


class Counting(NoiseSource):
    """A source that records the requested noise."""

    def __init__(self, seed=None):
        super().__init__(seed)
        self.stds = []

    def add_gaussian(self, values, std, *options):
        self.stds.append(std)
        return super().add_gaussian(values, std, *options)


class Watched(Logistic):
    """A loss that records the targets of the batches it saw."""

    curvature_bound = 0.25

    def __init__(self):
        self.seen = []

    def check_targets(self, targets):
        pass

    def residuals(self, scores, targets):
        self.seen.append(targets.tolist())
        return 0 * scores


# ----------------------------------------------------------------------------------------------------------- the noise

SAMPLERS = [
    (FullBatch(), 6, 20),
    (FixedOrder(20), None, 1),
    (FixedOrder(20, passes=3, size=7), None, 7),
    (FixedOrder(15, public=5), None, 1),
    (RandomStop(20), None, 1),
    (RandomSkip(20), None, 1),
    (SecretOrder(20, passes=2, size=4), None, 4),
]


def scaled_weights(tools, sampler, steps, divisor):
    """Return the weights of problems without gradients, divided by the total noise of their steps for z C = 1."""
    alpha, step_size, scaled = 0.3, 0.5, []
    plan = last(sampler, Descent(step_size, 0.25 + alpha, alpha), clip_norm=0.7, steps=steps)
    for seed in range(40):
        source = Counting(seed)
        weights = solve(tools.silence(20, 50, alpha=alpha), plan, source=source).weights
        assert source.stds == pytest.approx([0.7 * 1.5 * step_size / divisor] * len(source.stds))
        decay = (1 - step_size * alpha) ** 2
        scaled.append(weights / math.sqrt((1 - decay ** len(source.stds)) / (1 - decay)) * divisor / step_size)
    return np.concatenate(scaled)


@pytest.mark.parametrize(("sampler", "steps", "divisor"), SAMPLERS, ids=repr)
def test_the_weights_of_a_problem_without_gradients_are_the_noise_of_the_plan(tools, sampler, steps, divisor):
    """w_T = sum over t of (1 - eta alpha)^(T-t) eta noise_t / divisor."""
    scaled = scaled_weights(tools, sampler, steps, divisor)
    assert tools.has_std(scaled, 0.7 * 1.5)
    for wrong in (0.8, 1.25, 0.5, 2.0):
        assert not tools.has_std(scaled, wrong * 0.7 * 1.5)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_solver_with_different_noise_would_be_noticed(tools, monkeypatch, factor):
    real = Step.noisy
    monkeypatch.setattr(Step, "noisy", lambda step, x, **how: x + factor * (real(step, x, **how) - x))
    assert not tools.has_std(scaled_weights(tools, FixedOrder(20), None, 1), 0.7 * 1.5)


@pytest.mark.parametrize(("sampler", "steps", "divisor"), SAMPLERS, ids=repr)
def test_there_is_one_noisy_sum_per_step(tools, sampler, steps, divisor):
    source = Counting(1)
    plan = last(sampler, Descent(0.5, 0.25), steps=steps)
    release = solve(tools.silence(20, 3), plan, source=source)
    if isinstance(sampler, RandomStop | RandomSkip):
        assert 1 <= len(source.stds) <= plan.steps
    else:
        assert len(source.stds) == plan.steps
    assert release.trace["noise_std"] == pytest.approx(1.5 / divisor)


def test_seeds_repeat_and_secure_sources_differ(tools):
    plan, problem = last(FixedOrder(9), Descent(0.5, 0.25)), tools.silence(9, 5)
    assert np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 3).weights)
    assert not np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 4).weights)
    assert not np.array_equal(*(solve(problem, plan, source=NoiseSource()).weights for _ in range(2)))


# --------------------------------------------------------------------------------------------------------- the descent


@pytest.mark.parametrize("sampler", [FullBatch(), FixedOrder(40, 2, 3), SecretOrder(40, 2)], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
@pytest.mark.parametrize("diameter", [None, 0.8])
def test_the_steps_are_those_of_a_plain_loop(tools, sampler, form, clip_norm, diameter):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((40, 4)), rng.integers(0, 2, 40)
    problem = tools.make_problem(form(X), y, alpha=0.1, intercept=0.5)
    steps = sampler.implied_steps or 30
    etas = tuple(np.linspace(2.0, 0.1, steps)) if sampler.__class__ is not SecretOrder else 0.7
    descent = descent_of(problem, etas, diameter)
    plan = last(sampler, descent, noise=0.2, clip_norm=clip_norm, steps=steps, public_n=40)
    source, weights, grids = NoiseSource(8), problem.start(), rounding_of([problem], plan, 40).grids
    batches = list(sampler.batches(40, steps, source))  # a secret order is drawn first
    for t, batch in enumerate(batches):
        total = problem.objective.gradient_sum(weights, problem.rows.take(batch), y[batch], clip_norm)
        eta, divisor = etas[t] if isinstance(etas, tuple) else etas, sampler.nominal_size(40)
        weights = weights - eta * (total / divisor + 0.1 * weights)
        weights = source.add_gaussian(weights, eta / divisor * 0.2 * clip_norm, grids[t % len(grids)])
        if diameter is not None:
            weights = weights * min(1.0, diameter / 2 / np.linalg.norm(weights))
    assert solve(problem, plan, 8).weights == pytest.approx(weights, abs=1e-9)


@pytest.mark.parametrize("noise", [0.01, 50.0])
def test_the_last_iterate_is_inside_the_ball(tools, noise):
    rng = np.random.default_rng(0)
    problem = tools.make_problem(rng.standard_normal((30, 4)), rng.integers(0, 2, 30))
    plan = last(FixedOrder(30), descent_of(problem, diameter=0.6), noise=noise)
    lengths = [np.linalg.norm(solve(problem, plan, seed).weights) for seed in range(10)]
    assert max(lengths) <= 0.3 * (1 + 1e-12)
    assert max(lengths) > 0.2


def test_step_sizes_are_taken_in_order(tools):
    sizes = (0.5, 0.25, 0.125, 1.0, 2.0, 0.75)
    problem = tools.make_problem(np.eye(6), np.ones(6), objective=tools.Linear())
    plan = last(FixedOrder(6), descent_of(problem, sizes), clip_norm=2.0)
    assert solve(problem, plan, source=tools.Silent()).weights == pytest.approx(-np.array(sizes))


def test_public_records_are_visited_last_in_every_pass():
    objective = Watched()
    rows = BoundedRows(np.zeros((7, 2)), 1.0)
    problem = Problem(objective, L2(0.1), rows, np.arange(7))
    solve(problem, last(FixedOrder(4, passes=2, public=3), descent_of(problem)))
    assert objective.seen == [[0], [1], [2], [3], [4], [5], [6]] * 2
    objective.seen.clear()
    solve(problem, last(SecretOrder(4, passes=2, public=3), descent_of(problem)))
    assert objective.seen[:7] == objective.seen[7:]
    assert sorted(target for batch in objective.seen[:4] for target in batch) == [0, 1, 2, 3]
    assert objective.seen[4:7] == [[4], [5], [6]]


@pytest.mark.parametrize("sampler", [FullBatch(), FixedOrder(200, 40, 20)], ids=repr)
@pytest.mark.parametrize("objective", [Logistic(), GaussianHinge(1.0)], ids=lambda loss: type(loss).__name__)
def test_it_approaches_the_optimum_with_hardly_any_noise(tools, separable, sampler, objective):
    X, y = separable
    problem = tools.make_problem(X, y, objective=objective, alpha=0.1)
    best = minimize(problem.value, problem.start()).fun
    sizes = None if isinstance(sampler, FullBatch) else 0.2
    plan = last(sampler, descent_of(problem, sizes), noise=1e-3, steps=200 if sizes is None else None)
    found = problem.value(solve(problem, plan).weights)
    assert best - 1e-6 <= found <= best + (1e-5 if sizes is None else 5e-3)
    assert found < problem.value(problem.start()) - 0.05


def test_the_descent_of_a_problem_has_its_constants(tools):
    problem = tools.make_problem(np.ones((3, 2)), [0, 1, 0], alpha=0.3, row_norm=2.0, intercept=1.0)
    descent = descent_of(problem)
    assert descent.smoothness == pytest.approx(0.25 * 5 + 0.3)
    assert descent.strong_convexity == 0.3
    assert descent.step_size == pytest.approx(2 / (descent.smoothness + 0.3))
    assert descent_of(problem, 0.1, 4.0) == Descent(0.1, descent.smoothness, 0.3, 4.0)


# ------------------------------------------------------------------------------------- neighbours, by brute force


@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
@pytest.mark.parametrize("alpha", [0.0, 0.4])
@pytest.mark.parametrize("size", [1, 3])
def test_one_step_moves_neighbours_by_the_claimed_shift_and_points_by_the_claimed_factor(tools, clip_norm, alpha, size):
    """From one start, neighbours end at most 2 eta C / divisor apart. From two starts, no dataset expands distances."""
    rng = np.random.default_rng(3)
    widest = 0.0
    for _ in range(15):
        for tables in tools.neighbours(rng, size, 2):
            problems = [tools.make_problem(*table, alpha=alpha) for table in tables]
            descent = descent_of(problems[0], float(rng.uniform(0.1, 2 / (0.25 + alpha))))
            plan = last(FixedOrder(size, size=size), descent, clip_norm=clip_norm)
            grid = math.sqrt(2) * rounding_of(problems, plan, size).grids[0]
            w, v = (tools.Silent(), tools.Silent())
            starts = rng.standard_normal((2, 2)) * rng.choice([0.1, 3.0, 100.0])
            ends = [
                [solve(problem, plan, source=source, start=start).weights for start in starts]
                for problem, source in zip(problems, (w, v), strict=True)
            ]
            shift = 2 * descent.step_size * min(clip_norm, 1.0) / size
            for one, other in zip(*ends, strict=True):
                assert np.linalg.norm(one - other) <= shift * (1 + 1e-9) + grid
                widest = max(widest, np.linalg.norm(one - other) / shift)
            for pair in ends:
                before = np.linalg.norm(starts[0] - starts[1])
                assert np.linalg.norm(pair[0] - pair[1]) <= descent.contraction * before * (1 + 1e-9) + grid
    assert widest > 0.4


@pytest.mark.parametrize("sampler", [FixedOrder(5, passes=3), FixedOrder(5, 2, 2), FullBatch()], ids=repr)
@pytest.mark.parametrize("alpha", [0.0, 0.4])
@pytest.mark.parametrize("diameter", [None, 0.5])
def test_without_noise_neighbours_end_within_the_recursion(tools, sampler, alpha, diameter):
    """z_t = c z_(t-1) + s_t without payments, at most the diameter."""
    rng = np.random.default_rng(4)
    for _ in range(6):
        for tables in tools.neighbours(rng, 5, 3):
            problems = [tools.make_problem(*table, alpha=alpha) for table in tables]
            descent = descent_of(problems[0], 1.0, diameter)
            steps = sampler.implied_steps or 10
            plan = last(sampler, descent, clip_norm=0.6, steps=steps, public_n=5)
            one, other = (solve(problem, plan, source=tools.Silent()).weights for problem in problems)
            z = 0.0
            for batch in sampler.batches(5, steps, NoiseSource(0)):
                visited = 0 in np.arange(5)[batch]  # neighbours differ in the first record
                z = descent.contraction * z + visited * 2 * 0.6 / plan.divisor(5)
                z = z if diameter is None else min(z, diameter)
            grid = rounding_of(problems, plan, 5).grids[0]
            assert np.linalg.norm(one - other) <= z + steps * math.sqrt(3) * grid + 1e-9


def test_linear_losses_attain_the_shift(tools):
    """docs/errata.md (f): the recursion is exact for linear losses and a ridge."""
    alpha, n = 0.4, 4
    targets = (np.array([1.0, 0, 0, 0]), np.array([-1.0, 0, 0, 0]))
    problems = [tools.make_problem(np.ones((n, 1)), y, objective=tools.Linear(), alpha=alpha) for y in targets]
    plan = last(FixedOrder(n, passes=3), descent_of(problems[0], 0.5), clip_norm=2.0)
    one, other = (solve(problem, plan, source=tools.Silent()).weights for problem in problems)
    c, z = 1 - 0.5 * alpha, 0.0
    for t in range(12):
        z = c * z + (t % n == 0) * 2 * 0.5
    assert abs(one[0] - other[0]) == pytest.approx(z, abs=12 * rounding_of(problems, plan, n).grids[0])
    assert plan.descent.contraction == pytest.approx(c)


# ----------------------------------------------------------------------------------------------------- row orders


def test_a_sorted_table_has_three_times_the_epsilon_of_its_last_iterate(tools):
    """Each step reflects the weights, so that what the shifted rows change adds up over all eight batches."""

    class Straight(tools.Linear):
        curvature_bound = 0.01

    n, y = 48, np.where(np.arange(48) // 6 % 2, 1.0, -1.0)  # the smallest record is replaced by a largest one
    one, two = (
        tools.make_problem(np.ones((n, 1)), each, objective=Straight(), alpha=1.0) for each in (y, np.roll(y, -1))
    )
    budget, fields = Budget(1.0, 1e-6), {"clip_norm": one.lipschitz, "release": "last"}
    plan = GradientPlan.for_budget(
        budget, sampler=FixedOrder(n, size=6), descent=descent_of(one, 2 / one.smoothness), **fields
    )
    moved = abs(solve(one, plan, source=tools.Silent()).weights - solve(two, plan, source=tools.Silent()).weights)
    size = plan.descent.step_sizes[0]
    factors = (1 - size) ** np.arange(8)
    noise = plan.noise_std * size / plan.divisor(n) * np.linalg.norm(factors)
    assert gdp_epsilon(float(moved[0] / noise), budget.delta) == pytest.approx(3.1, abs=0.01)
    assert "does not depend on their content" in plan.guarantee().statement()


@pytest.mark.parametrize("sampler", [FixedOrder(12, passes=2, size=3), FixedOrder(12, passes=2, size=5, shuffled=True)])
def test_steps_that_are_taken_in_parts_are_those_of_one_run(separable, sampler):
    X, y = separable
    problem = Problem(Logistic(), L2(0.1), BoundedRows(X[:12], 1.0, 0.5), y[:12])
    plan = GradientPlan(sampler, None, problem.lipschitz, 3.0, release="last", descent=descent_of(problem), delta=DELTA)
    whole = projected_sgd(problem, Run(plan, NoiseSource(4))).weights
    steps = HiddenSteps(problem, Run(plan, NoiseSource(4)), rounding_of([problem], plan, 12))
    weights = problem.start()
    for length in (1, 3, 0, 1):
        weights = steps.take(weights, length)
    assert not np.array_equal(weights, whole)
    assert np.array_equal(steps.take(weights), whole)


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_matrix])
def test_kept_batches_give_the_weights_of_gathered_ones(tools, separable, monkeypatch, form):
    X, y = separable
    problem = tools.make_problem(form(X), y, alpha=0.1)
    plan = last(FixedOrder(200, 3, 30, shuffled=True), descent_of(problem))
    kept = solve(problem, plan).weights
    monkeypatch.setattr(projected_sgd_module, "_LARGEST_COPY", 0)
    assert np.array_equal(solve(problem, plan).weights, kept)


@pytest.mark.parametrize("order", [FixedOrder(200, 3, 30, shuffled=True), SecretOrder(200, 2, 7)], ids=repr)
def test_a_shuffled_run_visits_the_rows_in_the_drawn_order(tools, separable, order):
    """It is the run in a fixed order over the rows as drawn: the order of the data has no influence."""
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.1)
    plan = last(order, descent_of(problem))
    drawn = NoiseSource(0).permutation(200)
    shuffled = tools.make_problem(X[drawn], y[drawn], alpha=0.1)
    given = replace(plan, sampler=FixedOrder(order.n, order.passes, order.size))
    weights = solve(problem, plan, source=tools.Silent(0)).weights
    assert np.array_equal(weights, solve(shuffled, given, source=tools.Silent(0)).weights)


# ---------------------------------------------------------------------------------------------------- public records


def halves(tools, objective=None, n=7, m=5):
    """Return a table, and its private and public records as two problems."""
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((n + m, 3)), rng.integers(0, 2, n + m)
    parts = slice(None), slice(None, n), slice(n, None)
    return [tools.make_problem(X[part], y[part], objective=objective, alpha=0.1, intercept=0.5) for part in parts]


@pytest.mark.parametrize("order", [FixedOrder(7, 2, 3, public=5), FixedOrder(7, 2, 3, public=5, shuffled=True)])
@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
def test_a_public_batch_is_divided_by_its_own_size(tools, order, clip_norm):
    """The last private batch has one record and is divided by three. The last public one has two."""
    whole, private, public = halves(tools)
    plan = last(order, descent_of(whole), noise=0.2, clip_norm=clip_norm)
    start, source, weights = np.full(4, 0.1), NoiseSource(8), np.full(4, 0.1)
    grid = rounding_of([whole], plan, 12).grids[0]
    eta = plan.descent.step_size
    for batch in list(order.batches(12, plan.steps, source)):
        rows, targets = whole.rows.take(batch), whole.targets[batch]
        is_public = isinstance(batch, slice) and batch.start >= 7
        divisor = len(targets) if is_public else 3
        total = whole.objective.gradient_sum(weights, rows, targets, clip_norm)
        weights = weights - eta * (total / divisor + 0.1 * weights)
        weights = source.add_gaussian(weights, eta / 3 * 0.2 * clip_norm, grid)
    together = solve(whole, plan, 8, start=start)
    apart = solve(private, plan, 8, start=start, public=public)
    assert together.weights == pytest.approx(weights, abs=1e-9)
    assert apart.weights == pytest.approx(weights, abs=1e-9)
    assert apart.trace["step_size"] == eta
    assert apart.trace["clip_norm"] == clip_norm


@pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])
def test_the_start_is_the_regularised_minimiser_over_public_records(tools, objective):
    _, private, public = halves(tools, objective, m=25)
    ridge = 0.1 * public.smoothness / math.sqrt(25)
    first = projected_sgd_module._first(private, public, None)
    total = objective.gradient_sum(first, public.rows, public.targets, math.inf)
    assert np.linalg.norm(total / 25 + (0.1 + ridge) * first) < 1e-4
    assert np.linalg.norm(first) > 0.05
    assert first.shape == private.start().shape
    plan = last(FixedOrder(7, public=25), descent_of(private), noise=1e-3, clip_norm=private.lipschitz)
    with_start = solve(private, plan, public=public, start=first)
    assert solve(private, plan, public=public).weights == pytest.approx(with_start.weights, abs=1e-9)
    assert not projected_sgd_module._first(private, None, None).any()


@pytest.mark.parametrize("sampler", [FixedOrder(6, public=6), FixedOrder(5, public=7), RandomStop(12), FullBatch()])
def test_public_records_that_the_plan_does_not_visit_are_refused(tools, sampler):
    _, private, public = halves(tools)
    plan = last(sampler, descent_of(private), clip_norm=10.0, steps=None if sampler.implied_steps else 3)
    with pytest.raises(ValueError, match=r"7 private and 5 public records: the plan's sampler must be"):
        solve(private, plan, public=public)


def test_public_records_must_satisfy_the_constants_of_the_plan(tools):
    _, private, public = halves(tools)
    long = replace(public, rows=BoundedRows(np.ones((5, 3)), 9.0, 0.5))
    with pytest.raises(ValueError, match="Make the plan with descent_of"):
        solve(private, last(FixedOrder(7, public=5), descent_of(private)), public=long)


@pytest.mark.parametrize("start", [np.zeros(4), np.zeros((3, 1)), [0.0, math.nan, 1.0], [0.0, math.inf, 1.0]])
def test_an_impossible_start_is_refused(tools, start):
    source, plan = Counting(), last(FixedOrder(9), Descent(0.5, 0.25))
    with pytest.raises(ValueError, match=r"start must contain finite numbers in shape \(3,\)"):
        solve(tools.silence(9, 3), plan, source=source, start=start)
    assert not source.stds


def test_a_given_start_is_an_assumption(tools):
    plan = last(FixedOrder(9, shuffled=True), Descent(0.5, 0.25))
    words = "the starting point does not depend on the private records"
    for start, is_assumed in ((None, False), ([1, 2, 3], True)):
        release = solve(tools.silence(9, 3), plan, source=NoiseSource(), start=start)
        assert release.guarantee.is_conditional == is_assumed
        assert (words in release.guarantee.statement(verbose=True)) == is_assumed


@pytest.mark.parametrize("sampler", [RandomStop(12), RandomSkip(12), SecretOrder(12)], ids=repr)
def test_progress_would_reveal_a_secret_and_is_not_reported(tools, sampler):
    def never(done, planned):
        raise AssertionError("progress was reported")

    solve(tools.silence(12, 3), last(sampler, Descent(0.5, 0.25)), progress=never)


def test_constants_may_differ_by_their_rounding_and_no_more(tools):
    problem = tools.silence(9, 2, alpha=0.1)
    smooth, convex = problem.smoothness, problem.strong_convexity
    for share, is_refused in ((2.0**-51, False), (2.0**-49, True)):
        for descent in (Descent(0.5, smooth * (1 - share), convex), Descent(0.5, smooth, convex * (1 + share))):
            if is_refused:
                refused(problem, last(FixedOrder(9), descent), "Make the plan with descent_of")
            else:
                check_last_iterate(problem, last(FixedOrder(9), descent))


# ------------------------------------------------------------------------------------------- the returned values


def test_the_guarantee_is_that_of_the_plan_and_json_keeps_it(tools):
    problem = tools.silence(12, 3, alpha=0.1)
    plan = GradientPlan.for_budget(
        Budget(1.0, DELTA),
        sampler=FixedOrder(12, shuffled=True),
        clip_norm=0.5,
        release="last",
        descent=descent_of(problem),
    )
    release = solve(problem, plan, source=NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon <= 1.0
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(problem, plan, seed=1).guarantee.is_conditional
    for words in ("at most 0.5", "last iterate", "order that is kept secret", "12 sums", "strongly convex"):
        assert words in release.guarantee.statement(verbose=True)
    again = Guarantee.from_json(release.guarantee.to_json())
    assert again == release.guarantee
    assert np.array_equal(again.per_record.epsilons, release.guarantee.per_record.epsilons)
    assert all(early <= late for early, late in pairwise(again.per_record.epsilons))


@pytest.mark.parametrize("sampler", [RandomStop(12), RandomSkip(12), SecretOrder(12)], ids=repr)
def test_secrets_are_in_no_trace_and_no_guarantee(tools, sampler):
    problem = tools.silence(12, 3)
    plan = last(sampler, descent_of(problem))
    releases = [solve(problem, plan, seed) for seed in range(8)]
    assert len({json.dumps(release.trace) for release in releases}) == 1
    assert len({release.guarantee.to_json() for release in releases}) == 1
    assert releases[0].trace["steps"] == 12
    for release in releases:
        assert release.weights.shape == (3,)


def test_progress_is_reported_after_each_step_of_a_known_number(tools):
    calls = []
    plan = last(FixedOrder(4, passes=2), Descent(0.5, 0.25))
    solve(tools.silence(4, 2), plan, progress=lambda *call: calls.append(call))
    assert calls == [(done, 8) for done in range(1, 9)]


# -------------------------------------------------------------------------------------------------------- refusals


def refused(problem, plan, message, error=ValueError):
    source = Counting()
    with pytest.raises(error, match=message):
        projected_sgd(problem, Run(replace(plan, delta=DELTA), source))
    with pytest.raises(error, match=message):
        check_last_iterate(problem, plan)
    assert not source.stds


def test_a_plan_that_releases_all_is_refused(tools):
    refused(tools.silence(9, 2), GradientPlan(FixedOrder(9), None, 1.0, 1.0), 'release="last"')


def test_what_is_not_convex_is_refused(tools):
    problem = tools.silence(9, 2)
    valley = Problem(Logistic(), SaturatingPenalty(0.02), problem.rows, problem.targets)
    refused(valley, last(FixedOrder(9), Descent(0.1, 5.0)), "needs a convex objective")
    with pytest.raises(ValueError, match="needs a convex objective"):
        descent_of(valley)


def test_clipped_losses_of_several_scores_are_refused(tools):
    problem = tools.make_problem(np.ones((9, 2)), np.arange(9) % 3, objective=Multinomial(3))
    descent = descent_of(problem)
    refused(
        problem, last(FixedOrder(9), descent, clip_norm=1.0), "Multinomial losses, which have several scores per record"
    )
    enough = last(FixedOrder(9), descent, clip_norm=problem.lipschitz)
    assert solve(problem, enough).weights.shape == (2, 3)


def test_clipped_losses_of_one_score_are_accepted(tools):
    problem = tools.make_problem(np.ones((6, 2)), np.array([1e6, -1e6, 0.0, 3.0, 1e12, -2.0]), objective=Squared())
    assert np.linalg.norm(solve(problem, last(FixedOrder(6), descent_of(problem))).weights) < 100


def test_constants_better_than_the_problem_s_are_refused(tools):
    problem = tools.silence(9, 2, alpha=0.1)  # 0.35-smooth, 0.1-strongly convex
    refused(problem, last(FixedOrder(9), Descent(0.5, 0.34, 0.1)), "Make the plan with descent_of")
    refused(problem, last(FixedOrder(9), Descent(0.5, 0.35, 0.11)), "Make the plan with descent_of")
    solve(problem, last(FixedOrder(9), Descent(0.5, 0.36, 0.09)))  # worse ones hold as well
    rows = tools.make_problem(np.ones((9, 2)), np.zeros(9, int), row_norm=2.0)
    refused(rows, last(FixedOrder(9), Descent(0.5, 0.25)), "1-smooth")


def test_steps_beyond_two_over_the_smoothness_are_refused(tools):
    problem = tools.silence(9, 2)
    with pytest.raises(ValueError, match="exceeds 2/smoothness = 8"):
        descent_of(problem, 8.01)
    assert descent_of(problem, 8.0).contraction == 1.0


@pytest.mark.parametrize("n", [8, 10])
def test_a_plan_for_another_table_is_refused(tools, n):
    refused(tools.silence(n, 2), last(FixedOrder(9), Descent(0.5, 0.25)), f"n = 9 units, the data has {n}")
    refused(tools.silence(n, 2), last(FixedOrder(6, public=3), Descent(0.5, 0.25)), f"n = 9 units, the data has {n}")
    plan = last(FullBatch(), Descent(0.5, 0.25, diameter=1.0), steps=3, public_n=9)
    refused(tools.silence(n, 2), plan, f"n = 9 records, the data has {n}")


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
@pytest.mark.parametrize("sampler", [FixedOrder(9), RandomStop(9), SecretOrder(9)], ids=repr)
def test_a_bad_delta_is_refused_before_any_noise_is_drawn(tools, delta, sampler):
    plan, source = last(sampler, Descent(0.5, 0.25)), Counting()
    with pytest.raises(ValueError, match="delta"):
        projected_sgd(tools.silence(9, 2), Run(replace(plan, delta=delta), source))
    assert not source.stds


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.5}, {"averaged": 0.5}, {"keep_iterates": True}, {"step_size": AlignedStep(0.1)}]
)
def test_solvers_that_show_more_than_the_last_iterate_refuse_such_plans(tools, options):
    plan, source = last(FixedOrder(9), Descent(0.5, 0.25)), Counting()
    with pytest.raises(ValueError, match="use projected_sgd"):
        noisy_gradient_descent(
            tools.silence(9, 2), Run(replace(plan, delta=DELTA), source), **{"step_size": 0.5} | options
        )
    assert not source.stds


def test_the_random_round_refuses_such_plans_too(tools):
    plan, source = last(FixedOrder(9), Descent(0.5, 0.25)), Counting()
    with pytest.raises(PlanError, match="Only projected_sgd hides its iterates"):
        random_round(tools.silence(9, 2), Run(replace(plan, delta=DELTA), source), step_size=0.5)
    assert not source.stds


def test_a_plan_is_frozen_and_its_noise_cannot_be_lowered_beside_its_guarantee(tools):
    plan = last(FixedOrder(9), Descent(0.5, 0.25))
    with pytest.raises(AttributeError):
        plan.noise_multiplier = 0.1
    quieter = replace(plan, noise_multiplier=0.75)
    assert quieter.guarantee(DELTA).epsilon > plan.guarantee(DELTA).epsilon
