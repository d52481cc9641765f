"""Steps whose iterates stay hidden, in floating point: their errors stay within what the plan charges."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, GaussianHinge, Logistic, Multinomial, Squared
from privet.plans import CentredPlan, FixedOrder, FullBatch, GradientPlan, RandomStop, SecretOrder, Step
from privet.privacy import Budget, NoiseSource
from privet.privacy.iteration import last_iterate_mu
from privet.solvers import Problem, Run, centred_gradient_descent, descent_of, projected_sgd
from privet.solvers.base.hidden_steps import Rounding, rounding_of, step_error

DELTA, U = 1e-5, 2.0**-53


def last(sampler, descent, *, noise=1.5, clip_norm=1.0, **fields):
    fields = {"steps": None, "delta": DELTA} | fields
    return GradientPlan(sampler, fields.pop("steps"), clip_norm, noise, release="last", descent=descent, **fields)


def falling(steps):
    return tuple(2.0 * (steps - t) / steps for t in range(steps))


# ------------------------------------------------------------------------------------------- the charge suffices


SCHEDULES = {
    "one size": (FixedOrder(40, 3, 4), 0.5, None),
    "full batches": (FullBatch(), 0.5, None),
    "falling": (FixedOrder(40, 3, 4), falling(30), None),
    "rising": (FixedOrder(40, 3, 4), falling(30)[::-1], None),
    "up and down": (FixedOrder(40, 3, 4), (2.0, 0.01, 0.5) * 10, None),
    "a sharp fall": (FixedOrder(40, 3, 4), (2.0,) * 15 + (0.001,) * 15, None),
    "a ball": (FixedOrder(40, 3, 4), falling(30), 3.0),
    "a huge ball": (FixedOrder(40, 3, 4), 0.5, 1e30),
    "a stop": (RandomStop(40), 0.5, None),
    "an order": (SecretOrder(40, 3, 4), 0.5, None),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("noise", [0.3, 20.0, 1000.0])
@pytest.mark.parametrize("n_classes", [None, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_all_errors_of_a_run_cost_no_more_than_the_plan_charges(tools, name, noise, n_classes, alpha):
    """The shifts of the proof, step by step: the grid of the step before, and the errors of the step itself."""
    sampler, sizes, diameter = SCHEDULES[name]
    objective = Multinomial(n_classes) if n_classes else Logistic()
    problem = tools.make_problem(np.ones((40, 6)), np.zeros(40, int), objective=objective, alpha=alpha)
    steps = sampler.implied_steps or 30
    plan = last(sampler, descent_of(problem, sizes, diameter), noise=noise, clip_norm=2.0, steps=steps, public_n=40)
    rounding = rounding_of([problem], plan, 40)
    sizes = np.broadcast_to(plan.descent.step_sizes, steps)
    grids = np.broadcast_to(rounding.grids, steps)
    fixed, slope, still = step_error(problem, 2.0, int(plan.divisor(40)))
    errors = sizes * (fixed + slope * rounding.radius) + still * rounding.radius
    errors[1:] += math.sqrt(problem.start().size) * grids[:-1]
    stds = sizes * plan.noise_std / plan.divisor(40)
    charge = last_iterate_mu(errors, stds, plan.descent.contraction)
    assert charge <= plan.event.rounding_mu() * 0.995
    assert all(math.frexp(grid)[0] == 0.5 for grid in rounding.grids)
    assert rounding.radius <= (diameter or math.inf) / 2
    if diameter is None:  # The charge is used, so that grids are as coarse and balls as large as it permits.
        assert charge >= plan.event.rounding_mu() / 8


def by_hand(problem, plan, n):
    """Return grids, room and need as section 16 of the proofs states them, from mus of shifts in every step.

    One quarter of the charge pays for grids in proportion to the noise of the next step, one quarter for a least step
    of the grid, and 49 % for all other errors, which are at most eta (fixed + slope r) + still r in a step.
    """
    sizes = np.broadcast_to(plan.descent.step_sizes, plan.steps)
    stds = sizes * plan.noise_std / plan.divisor(n)
    charge, c = plan.event.rounding_mu(), plan.descent.contraction
    per_noise, per_length = last_iterate_mu(stds, stds, c), last_iterate_mu(np.ones(plan.steps), stds, c)
    share = charge / 4 / math.sqrt(problem.start().size) / per_noise
    least = charge / 4 / math.sqrt(problem.start().size) / per_length
    grids = [max(min(share, 2.0**-20) * std, least) for std in (*stds[1:], stds[-1])]
    fixed, slope, still = step_error(problem, plan.clip_norm, int(plan.divisor(n)))
    of_sizes = last_iterate_mu(sizes, stds, c)
    room = (0.49 * charge - fixed * of_sizes) / (slope * of_sizes + still * per_length)
    needed = 32 * max(sizes) * min(plan.clip_norm, problem.lipschitz)
    return share, [2.0 ** math.floor(math.log2(grid)) for grid in grids], room, needed


@pytest.mark.parametrize("name", ["one size", "falling", "up and down", "a sharp fall"])
@pytest.mark.parametrize("noise", [0.3, 1000.0])
def test_the_charge_is_divided_between_two_grids_and_the_ball(tools, name, noise):
    sampler, sizes, _ = SCHEDULES[name]
    problem = tools.make_problem(np.ones((40, 6)), np.zeros(40, int), alpha=0.1)
    plan = last(sampler, descent_of(problem, sizes), noise=noise, clip_norm=0.5, public_n=40)
    found, (_, grids, room, _) = rounding_of([problem], plan, 40), by_hand(problem, plan, 40)
    assert found.grids == tuple(grids[: len(found.grids)])
    assert found.radius == pytest.approx(room, rel=1e-6)


def test_the_errors_of_a_step_are_counted_by_hand(tools):
    """Section 16: twice the errors of a gradient, 8 u of the step, constants of 64 u beta, and 97 u of the weights."""
    problem = tools.make_problem(np.ones((40, 3)), np.zeros(40, int), alpha=0.5, intercept=1.0)
    rows, lipschitz = problem.rows, problem.lipschitz
    for clip_norm, bound in ((0.3, 0.3), (9.0, lipschitz)):
        sums = rows.sum_error(8, bound, 1.0) / 8
        at_zero = 1.01 * U * ((64 + 1 + 8) * lipschitz + 8 * 0.25 * rows.norm_bound)
        per_norm = 1.01 * U * (0.25 * rows.norm_bound * (4 + 8) * rows.reach + 16 * 0.5)
        fixed, slope, still = step_error(problem, clip_norm, 8)
        assert fixed == pytest.approx(2.02 * (at_zero + sums + 8 * U * bound), rel=1e-12, abs=0)
        assert slope == pytest.approx(2.02 * (per_norm + 32 * U * problem.smoothness), rel=1e-12, abs=0)
        assert still == pytest.approx(2.02 * 48 * U, rel=1e-12, abs=0)


def test_the_worst_of_several_problems_determines_the_ball(tools):
    """Centred rows have larger errors. A batch may come from either problem, so that the charge must cover both."""
    plain = tools.make_problem(np.ones((20, 3)), np.zeros(20, int), intercept=0.5)
    centred = replace(plain, rows=plain.rows.centred(np.array([1.0, 0.0, 0.0]), 1.0))
    plan = last(FixedOrder(40, 3, 4), descent_of(centred), clip_norm=0.5)
    of_plain, of_centred = (rounding_of([problem], plan, 40).radius for problem in (plain, centred))
    assert of_centred < 0.9 * of_plain
    for problems in ([plain, centred], [centred, plain]):
        assert rounding_of(problems, plan, 40).radius == pytest.approx(of_centred, rel=1e-9)


def test_a_run_without_noise_has_no_charge_and_the_ball_of_the_descent(tools):
    problem = tools.make_problem(np.eye(6), np.ones(6, int))
    for diameter, radius in ((None, 2.0**100), (3.0, 1.5)):
        plan = last(FixedOrder(6), descent_of(problem, (1.0, 0.5) * 3, diameter), noise=0.0)
        rounding = rounding_of([problem], plan, 6)
        assert (len(rounding.grids), rounding.radius) == (6, radius)


def test_the_grid_and_the_ball_depend_on_public_numbers_only(tools):
    rng = np.random.default_rng(0)
    found = set()
    for X in (np.zeros((30, 4)), rng.standard_normal((30, 4)), np.full((30, 4), 1e200), np.eye(30, 4)):
        problem = tools.make_problem(X, rng.integers(0, 2, 30))
        found.add(rounding_of([problem], last(FixedOrder(30, 2, 3), descent_of(problem)), 30))
    assert len(found) == 1


@pytest.mark.parametrize(("n", "d", "budget"), [(10**4, 100, 0.1), (10**6, 100, 1.0), (10**5, 10**4, 1.0)])
def test_large_tables_and_many_steps_leave_room_for_useful_weights_and_fast_noise(n, d, budget):
    rows = BoundedRows(sparse.csr_array((n, d)), 1.0, 0.2).centred(np.eye(1, d).ravel(), 1.0)
    problem = Problem(Logistic(), L2(1e-4), rows, np.zeros(n))
    size, order = descent_of(problem).step_size, FixedOrder(n, 150, n // 8)
    sizes = tuple(size * min(1.0, (1200 - t) / 601) for t in range(1200))
    fields = {"clip_norm": 0.5, "release": "last", "descent": descent_of(problem, sizes)}
    plan = GradientPlan.for_budget(Budget(budget, 1e-6), sampler=order, **fields)
    rounding = rounding_of([problem], plan, n)
    assert rounding.radius > 1000
    stds = np.array(sizes) * plan.noise_std / plan.divisor(n)
    assert (stds / rounding.grids).max() < 2**30


# ----------------------------------------------------------------------- what is computed, against fifty digits


def exact_step(problem, weights, size, batch, divisor, clip_norm):
    """Return w - size (sum of clipped gradients / divisor + alpha w), with fifty digits."""
    rows, mp = problem.rows.take(batch), lambda value: mpmath.mpf(float(value))
    factors = np.ones(rows.n) if rows._factors is None else rows._factors
    limits = rows.residual_limits(clip_norm)
    is_clipped = clip_norm < problem.lipschitz
    columns = [[mp(w) for w in column] for column in weights.reshape(len(weights), -1).T]
    moved = [[(1 - mp(size) * mp(problem.regulariser.alpha)) * w for w in column] for column in columns]
    for x, factor, limit, y in zip(rows._X, factors, limits, problem.targets[batch], strict=True):
        row = [mp(factor) * mp(value) for value in x] + [mp(rows.intercept)] * bool(rows.intercept)
        scores = [mpmath.fdot(row, column) for column in columns]
        for k, full in enumerate(slopes(problem.objective, scores, int(y))):
            slope = max(min(full, mp(limit)), -mp(limit)) if is_clipped else full
            moved[k] = [m - mp(size) / mp(divisor) * slope * value for m, value in zip(moved[k], row, strict=True)]
    return np.array(moved, dtype=object).T.reshape(weights.shape)


def slopes(objective, scores, y):
    if isinstance(objective, Multinomial):
        powers = [mpmath.exp(s) for s in scores]
        return [p / mpmath.fsum(powers) - (k == y) for k, p in enumerate(powers)]
    (s,), sign = scores, 2 * y - 1
    if isinstance(objective, Logistic):
        return [1 / (1 + mpmath.exp(-s)) - y]
    if isinstance(objective, GaussianHinge):
        return [-sign * mpmath.ncdf((1 - sign * s) / mpmath.mpf(objective.width))]
    return [s - y]


def length(vector):
    return float(mpmath.sqrt(mpmath.fsum(mpmath.mpf(value) ** 2 for value in np.ravel(vector))))


def tables(rng):
    yield rng.standard_normal((6, 3))
    yield rng.standard_normal((6, 3)) * 10.0 ** rng.integers(-200, 200, (6, 1))
    yield np.full((6, 3), 1 - U)


OBJECTIVES = [Logistic(), GaussianHinge(1e-3), Squared(), Multinomial(3)]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("diameter", [None, 0.5])
def test_a_computed_step_differs_from_the_exact_one_by_no_more_than_the_bound(tools, monkeypatch, objective, diameter):
    """In several steps from weights of all sizes; the bound is that of two runs together."""
    rng = np.random.default_rng(7)
    seen, noisy = [], Step.noisy

    def watched(step, point, **how):
        seen.append((step.batch, point, noisy(step, point, **how)))
        return seen[-1][2]

    monkeypatch.setattr(Step, "noisy", watched)
    worst = 0.0
    for X in tables(rng):
        problem = tools.make_problem(X, rng.integers(0, 2, 6), objective=objective, alpha=0.1, intercept=0.3)
        clip_norm = 0.4 if objective.clips_to_convex else problem.lipschitz
        descent = descent_of(problem, None, diameter)
        plan = last(FixedOrder(6, 2, 4), descent, clip_norm=clip_norm)
        rounding = rounding_of([problem], plan, 6)
        fixed, slope, still = step_error(problem, clip_norm, 4)
        (size,) = descent.step_sizes
        for scale in (0.0, 1.0, 1e3):
            seen.clear()
            weights = rounding.projected(scale * rng.standard_normal(problem.start().shape))
            projected_sgd(problem, Run(plan, NoiseSource(3)), start=weights)
            for batch, point, after in seen:
                with mpmath.workdps(50):
                    exact = exact_step(problem, weights, size, batch, 4.0, clip_norm)
                    error = length(exact - np.vectorize(mpmath.mpf, otypes=[object])(point))
                norm = float(np.linalg.norm(weights))
                bound = size * (fixed + slope * norm) + still * norm
                assert error <= bound / 2
                worst = max(worst, error / (bound / 2))
                weights = rounding.projected(after)
    assert worst > 1e-4


def test_the_computed_projection_errs_by_at_most_forty_units_of_roundoff():
    rng = np.random.default_rng(3)
    with mpmath.workdps(50):
        for d in (1, 3, 1000):
            for factor in (1 - 4 * U, 1.0, 1 + 4 * U, 1.7, 1e6, 1e100):
                w = rng.standard_normal(d) * 10.0 ** rng.integers(-3, 4, d)
                w *= 3.0 / np.linalg.norm(w) * factor
                norm = mpmath.sqrt(mpmath.fsum(mpmath.mpf(x) ** 2 for x in w))
                exact = [mpmath.mpf(x) * min(1, 3 / norm) for x in w]
                found = Rounding((1.0,), 3.0).projected(w)
                assert length([a - mpmath.mpf(b) for a, b in zip(exact, found, strict=True)]) <= 40 * U * 3.0


# -------------------------------------------------------------------------------------------------- what is released


@pytest.mark.parametrize("sizes", [0.5, falling(20)], ids=["one size", "falling"])
def test_the_last_iterate_lies_on_the_public_grid(tools, sizes):
    """A step along a rounded sum would leave digits of the hidden iterates in the released one."""
    rng = np.random.default_rng(1)
    problem = tools.make_problem(rng.standard_normal((20, 5)), rng.integers(0, 2, 20), alpha=0.1)
    plan = last(FixedOrder(20), descent_of(problem, sizes))
    grid = rounding_of([problem], plan, 20).grids[-1]
    for seed in range(5):
        steps = projected_sgd(problem, Run(plan, NoiseSource(seed))).weights / grid
        assert np.array_equal(steps, np.rint(steps))
        assert np.abs(steps).max() > 1000


def test_iterates_stay_in_the_ball_of_the_analysis(tools):
    problem = tools.make_problem(np.eye(5), np.ones(5, int))
    plan = last(FixedOrder(5), descent_of(problem))
    radius = rounding_of([problem], plan, 5).radius
    weights = projected_sgd(problem, Run(plan, NoiseSource(0)), start=np.full(5, 1e90)).weights
    assert 0.9 * radius < np.linalg.norm(weights) < 1.1 * radius


# -------------------------------------------------------------------------------------------------------- refusals


class Untouched(NoiseSource):
    """A source that must not be used."""

    def add_gaussian(self, *_):
        raise AssertionError("noise was drawn")


def refused(problem, plan):
    with pytest.raises(ValueError, match=r"rounding errors of .* steps .*may exceed what the plan charges") as caught:
        projected_sgd(problem, Run(plan, Untouched(0)))
    return str(caught.value)


def test_steps_that_vanish_beside_the_weights_are_refused(tools):
    problem = tools.make_problem(np.eye(6), np.ones(6, int))
    words = refused(problem, last(FixedOrder(6), descent_of(problem, (1.0, 1.0, 1.0, 1.0, 1.0, 1e-13))))
    assert "steps of more similar sizes" in words
    assert 'release="all"' in words


def test_noise_that_would_need_too_fine_a_grid_is_refused(tools):
    problem = tools.make_problem(np.eye(6), np.ones(6, int))
    assert "rounded to" in refused(problem, last(FixedOrder(6), descent_of(problem), noise=1e12))


def test_a_grid_is_refused_below_two_to_the_minus_forty_one_of_the_noise(tools):
    problem = tools.make_problem(np.eye(6), np.ones(6, int))

    def with_noise(noise):
        return last(FixedOrder(6), descent_of(problem), noise=noise)

    limit = (
        1e3 * by_hand(problem, with_noise(1e3), 6)[0] / 2.0**-41
    )  # The share is inversely proportional to the noise.
    rounding_of([problem], with_noise(0.9 * limit), 6)
    refused(problem, with_noise(1.1 * limit))


@pytest.mark.parametrize("clip_norm", [0.5, 7.0])
def test_the_ball_must_have_room_for_thirty_two_of_the_longest_steps(tools, clip_norm):
    problem = tools.make_problem(np.eye(6), np.ones(6, int))

    def with_last(size):
        return last(FixedOrder(6), descent_of(problem, (1.0, 1.0, 1.0, 1.0, 1.0, size)), clip_norm=clip_norm)

    def steps_of_room(size):
        _, _, room, needed = by_hand(problem, with_last(size), 6)
        return 32 * room / needed

    low, high = 1e-13, 1e-9
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if steps_of_room(middle) < 32 else (low, middle)
    enough, too_little = 1.02 * high, 0.98 * low
    assert 31 < steps_of_room(too_little) < 32 < steps_of_room(enough) < 33
    rounding_of([problem], with_last(enough), 6)
    refused(problem, with_last(too_little))


def test_a_ball_smaller_than_many_steps_needs_little_room(tools):
    problem = tools.make_problem(np.eye(6), np.ones(6, int))
    sizes = (1.0, 1.0, 1.0, 1.0, 1.0, 2e-12)
    refused(problem, last(FixedOrder(6), descent_of(problem, sizes)))
    within = last(FixedOrder(6), descent_of(problem, sizes, diameter=1e-2))
    assert rounding_of([problem], within, 6).radius == 5e-3


def test_centred_descents_are_refused_before_the_mean_is_released(tools):
    problem = tools.make_problem(np.eye(6), np.ones(6, int), intercept=0.5)
    descent = descent_of(problem, (1.0, 1.0, 1.0, 1.0, 1.0, 1e-13))
    fields = {"sampler": FixedOrder(6), "release": "last", "descent": descent, "clip_norm": 1.0}
    plan = CentredPlan.for_budget(Budget(1.0, DELTA), row_norm=problem.rows.weight_in_total, **fields)
    with pytest.raises(ValueError, match="may exceed what the plan charges"):
        centred_gradient_descent(problem, Run(plan, Untouched(0)))
