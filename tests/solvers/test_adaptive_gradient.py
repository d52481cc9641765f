import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from privet.objectives import Huber, Logistic, Multinomial
from privet.objectives.summation import ROUNDING
from privet.plans.adaptive import AdaptivePlan, Purse, selection_mu
from privet.privacy import Budget, NoiseSource
from privet.solvers import Run
from privet.solvers.adaptive_gradient import adaptive_gradient_descent

DELTA = 1e-5
HUGE = AdaptivePlan(1e6)


def solve(problem, plan, seed=0, **options):
    source = options.pop("source", None) or NoiseSource(seed)
    run = Run(replace(plan, delta=options.pop("delta", DELTA)), source, options.pop("progress", None))
    return adaptive_gradient_descent(problem, run, **options)


class Watched(NoiseSource):
    """A source that records the requested scales and the noisy sums."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.stds, self.sums, self.scales = [], [], []

    def add_gaussian(self, values, std, *options):
        self.stds.append(std)
        self.sums.append(super().add_gaussian(values, std))
        return self.sums[-1].copy()

    def top(self, scores, scale, number=1, claim=None):
        self.scales.append(scale)
        return super().top(scores, scale, number, claim)


class Script:
    """Replaces the noisy answers of a purse by given ones, which fix the path, and records the questions."""

    def __init__(self, monkeypatch, gradients, choices):
        self.sums, self.losses, self.asked = [], [], 0
        answers = iter(gradients), iter(choices)
        pay = Purse._pay

        def noisy(purse, total, bound, mu):
            pay(purse, mu)
            self.sums.append((total.copy(), bound, mu))
            return next(answers[0]).reshape(total.shape)

        def noisy_min(purse, sums, bound, epsilon):
            pay(purse, selection_mu(epsilon))
            self.losses.append((sums.copy(), bound, epsilon))
            return next(answers[1])

        monkeypatch.setattr(Purse, "noisy", noisy)
        monkeypatch.setattr(Purse, "noisy_min", noisy_min)


# --------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize(("clip_norm", "bound"), [(0.4, 0.4), (None, 1 + ROUNDING), (5.0, 1 + ROUNDING)])
@pytest.mark.parametrize(("loss_clip", "width"), [(0.3, 0.3), (None, 2.0), (9.0, 2.0)])
def test_the_scales_of_the_first_round_by_hand(tools, clip_norm, bound, loss_clip, width):
    """Half of mu^2 is for 25 gradients and half for 25 choices. A step of 2 / row norm changes a loss by at most 2."""
    source, plan = Watched(), AdaptivePlan(0.5)
    solve(tools.silence(20, 3), plan, source=source, clip_norm=clip_norm, loss_clip=loss_clip, expected_steps=25)
    share = 0.5 / math.sqrt(2 * 25)
    assert source.stds[0] == pytest.approx(2 * bound / share, rel=1e-6)
    # The smallest epsilon for which randomised response at epsilon/2 costs this share, to a tenth of a percent.
    epsilon = share / (2 * math.sqrt(2 * math.pi) / 8)
    assert source.scales[0] == pytest.approx(2 * width / epsilon, rel=1e-3)
    assert selection_mu(2 * width / source.scales[0]) <= share


def test_the_noise_on_gradients_is_what_was_asked_for(tools):
    source = Watched()
    release = solve(tools.silence(20, 300), AdaptivePlan(0.5), source=source, keep_iterates=True)
    for std, noise in zip(source.stds, source.sums, strict=True):  # of gradients that are zero
        assert tools.has_std(noise, std)
        assert not tools.has_std(noise, 1.5 * std)
    # Where there is no gradient, the first step goes along the first noise, at length one.
    first = release.trace["iterates"][1] - release.trace["iterates"][0]
    downhill = -source.sums[0] / np.linalg.norm(source.sums[0])
    assert first == pytest.approx(release.trace["step_sizes"][0] * downhill, abs=1e-12)


@pytest.mark.parametrize("growth", [0.1, 0.5, 3.0])
def test_a_gradient_without_progress_is_measured_again_and_averaged(tools, monkeypatch, growth):
    answers = np.random.default_rng(0).standard_normal((4, 2))
    script = Script(monkeypatch, answers, [0, 0, 3, 0])
    problem, plan = tools.make_problem(np.ones((5, 2)), [0, 1, 1, 0, 1], alpha=0.1), AdaptivePlan(1.0)
    shared = math.sqrt(1 / (2 * 1000) * (1 - 1e-9))
    with pytest.raises(StopIteration):
        solve(problem, plan, growth=growth, expected_steps=1000, candidates=4)
    prices = [mu for _, _, mu in script.sums][:4]
    squares = shared**2 * np.array([1, growth, growth * (1 + growth), (1 + growth) ** 2])
    assert np.square(prices) == pytest.approx(squares, rel=1e-9)
    # Weighted by what was paid for each: the best of all averages.
    gradient = squares[:3] @ answers[:3] / squares[:3].sum()
    direction = gradient / 5 + 0
    step = 0.75 * 2 / problem.rows.norm_bound
    moved = -step * direction / np.linalg.norm(direction)
    expected = problem.objective.gradient_sum(moved, problem.rows, problem.targets, problem.lipschitz)
    assert script.sums[3][0] == pytest.approx(expected, abs=1e-9)
    for total, _, _ in script.sums[1:3]:
        assert np.array_equal(total, script.sums[0][0])  # until the weights move, it is the same gradient


def test_seeds_repeat_and_secure_sources_differ(tools, separable):
    problem, plan = tools.make_problem(*separable, alpha=0.1), AdaptivePlan(2.0)
    assert np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 3).weights)
    assert not np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 4).weights)
    assert not np.array_equal(*(solve(problem, plan, source=NoiseSource()).weights for _ in range(2)))


# ------------------------------------------------------------------------------------------------- the descent


def plain_loop(X, y, *, mu, source, alpha, clip_norm, loss_clip, steps, growth, candidates, max_step, period):
    """Return the result of the pseudocode, record by record, for logistic losses of rows within the unit ball."""
    n, d = X.shape
    w, left = np.zeros(d), mu**2
    look = choose = mu**2 * (1 - 1e-9) / (2 * steps)
    longest, taken, gradient, paid = max_step, [], None, 0.0
    epsilon = bisect(lambda e: selection_mu(e) ** 2 - choose, 1e-9, 1e6)
    while True:
        price = look - paid
        if left < price + choose:
            return w, taken
        left -= price + choose
        total = np.zeros(d)
        for row, label in zip(X, y, strict=True):
            one = (1 / (1 + math.exp(-row @ w)) - label) * row
            total += one * min(1, clip_norm / (1 + ROUNDING) / max(np.linalg.norm(one), 1e-300))
        fresh = source.add_gaussian(total, 2 * clip_norm / math.sqrt(price))
        gradient = fresh if gradient is None else (paid * gradient + price * fresh) / look
        paid = look
        direction = gradient / n + alpha * w
        direction /= np.linalg.norm(direction)
        trial = [w - longest * k / candidates * direction for k in range(candidates + 1)]
        width = min(loss_clip, longest * (1 + ROUNDING)) * (1 + ROUNDING)
        scores = [
            sum(
                min(math.log1p(math.exp((1 - 2 * label) * (row @ v))), loss_clip)
                for row, label in zip(X, y, strict=True)
            )
            + n * alpha / 2 * v @ v
            for v in trial
        ]
        best = int(source.top(-np.array(scores), 2 * width / epsilon)[0])
        if best == 0:
            look *= 1 + growth
            continue
        w = trial[best]
        taken.append(longest * best / candidates)
        gradient, paid = None, 0.0
        if len(taken) % period == 0:
            longest = min(1.1 * max(taken[-period:]), max_step)


def bisect(function, low, high):
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return low


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("mu", "loss_clip", "max_step"), [(20.0, 1.0, 1.5), (300.0, 5.0, 0.8), (0.2, 0.5, 2.0)])
def test_the_steps_are_those_of_a_plain_loop(tools, separable, seed, mu, loss_clip, max_step):
    X, y = separable[0][:40], separable[1][:40]
    X = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None] * 0.99
    shared = {
        "clip_norm": 0.6,
        "loss_clip": loss_clip,
        "growth": 0.3,
        "candidates": 7,
        "max_step": max_step,
        "period": 3,
    }
    w, taken = plain_loop(X, y, mu=mu, source=NoiseSource(seed), alpha=0.05, steps=12, **shared)
    release = solve(tools.make_problem(X, y, alpha=0.05), AdaptivePlan(mu), seed, expected_steps=12, **shared)
    assert release.trace["step_sizes"] == pytest.approx(taken, rel=1e-9)
    assert release.weights == pytest.approx(w, abs=1e-6)


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss_clip", [None, 4.0])
def test_with_a_huge_budget_the_result_is_close_to_the_minimum(tools, separable, form, n_classes, loss_clip):
    X, y = separable
    y = y + (X[:, 2] > 0.4) * (n_classes == 3)
    objective = Logistic() if n_classes == 2 else Multinomial(3)
    problem = tools.make_problem(form(X), y, objective=objective, alpha=0.05)
    shape = problem.start().shape
    least = minimize(lambda w: problem.value(w.reshape(shape)), problem.start().ravel(), tol=1e-10).fun
    release = solve(problem, HUGE, expected_steps=150, loss_clip=loss_clip)
    assert problem.value(release.weights) < least + 1e-3
    assert problem.value(problem.start()) > least + 0.05


def test_a_larger_budget_gives_a_smaller_objective(tools, separable):
    problem = tools.make_problem(np.tile(separable[0], (10, 1)), np.tile(separable[1], 10), alpha=0.05)
    values = [
        np.mean([problem.value(solve(problem, AdaptivePlan(mu), seed).weights) for seed in range(5)])
        for mu in (0.01, 0.3, 10.0)
    ]
    assert values[0] > values[1] > values[2]


def test_the_longest_candidate_follows_what_was_chosen(tools, monkeypatch):
    gradients = np.ones((40, 1))
    choices = [1, 2, 2, 4, 4, 1, 1, 1, 1]
    Script(monkeypatch, gradients, choices)
    with pytest.raises(StopIteration):
        solve(tools.silence(3, 1), AdaptivePlan(1.0), expected_steps=100)
    Script(monkeypatch, gradients, choices)
    monkeypatch.setattr(Purse, "affords", lambda self, *_: next(rounds))
    rounds = iter([True] * 9 + [False])
    release = solve(tools.silence(3, 1), AdaptivePlan(1.0), expected_steps=100, candidates=4, max_step=0.8, period=3)
    longest = [0.8, 1.1 * 0.4, 1.1 * 1.1 * 0.4]
    assert release.trace["step_sizes"] == pytest.approx(
        [0.2, 0.4, 0.4, longest[1], longest[1], longest[1] / 4, *([longest[2] / 4] * 3)]
    )


@pytest.mark.parametrize(("choices", "longest"), [([4] * 30, 0.8), ([1] * 90, 0.8e-6)])
def test_the_longest_candidate_stays_within_limits(tools, monkeypatch, choices, longest):
    script = Script(monkeypatch, np.ones((99, 1)), choices)
    with pytest.raises(StopIteration):
        solve(tools.silence(3, 1), AdaptivePlan(1.0), expected_steps=100, candidates=4, max_step=0.8, period=3)
    assert script.losses[-1][1] == pytest.approx(
        longest / 2 * (1 + ROUNDING) ** 2, rel=1e-5
    )  # half of what a loss can change along the segment


@pytest.mark.parametrize("growth", [1e-6, 0.1, 10.0, 1e300])
@pytest.mark.parametrize("mu", [1e-90, 0.1, 1e6])
@pytest.mark.parametrize("never", [True, False])
def test_it_ends_and_never_spends_more_than_the_plan(tools, monkeypatch, growth, mu, never):
    if never:  # no step is ever good enough
        monkeypatch.setattr(NoiseSource, "top", lambda *_: np.array([0]))
    release = solve(tools.silence(4, 2), AdaptivePlan(mu), growth=growth, expected_steps=7)
    trace = release.trace
    assert trace["steps"] == (0 if never else len(trace["step_sizes"]))
    assert trace["steps"] <= trace["rounds"] <= 14
    assert trace["rounds"] > 0
    assert math.hypot(trace["gradient_mu"], trace["choice_mu"]) <= mu
    assert np.isfinite(release.weights).all()


def test_the_expected_number_of_steps_is_reached_if_every_gradient_is_good(tools, monkeypatch):
    monkeypatch.setattr(NoiseSource, "top", lambda *_: np.array([20]))
    for steps in (1, 2, 3, 60, 1000):
        trace = solve(tools.silence(4, 2), AdaptivePlan(0.7), expected_steps=steps).trace
        assert trace["steps"] == trace["rounds"] == steps
        assert math.hypot(trace["gradient_mu"], trace["choice_mu"]) == pytest.approx(0.7, rel=1e-6)


def test_a_noisy_gradient_that_is_exactly_zero_moves_nothing(tools):
    """Noise is rounded to a grid, so that a gradient of one number is zero once in some million steps."""
    release = solve(tools.silence(4, 1), AdaptivePlan(0.7), source=tools.Silent(0), expected_steps=3)
    assert np.array_equal(release.weights, [0.0])
    assert release.trace["rounds"] > 0


def test_two_records_are_enough(tools):
    problem = tools.make_problem(np.array([[1.0, 0.0], [-1.0, 0.5]]), [1, 0], alpha=0.1)
    assert np.isfinite(solve(problem, AdaptivePlan(0.1)).weights).all()
    assert problem.value(solve(problem, HUGE).weights) < problem.value(problem.start()) - 0.1


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("extreme", [1e308, -1e308, 1e160, 5e-324])
def test_extreme_rows_leave_no_trace_of_nan(tools, form, extreme):
    X = np.array([[extreme, extreme], [0.1, -0.2], [extreme, 0.0]])
    with np.errstate(over="raise", invalid="raise"):
        problem = tools.make_problem(form(X), [0, 1, 1], intercept=0.5)
        for mu in (1e-90, 1.0, 1e8):
            assert np.isfinite(solve(problem, AdaptivePlan(mu)).weights).all()


# ---------------------------------------------------------------------------------- neighbours, by brute force


def recorded(tools, monkeypatch, table, gradients, choices, *, objective, **options):
    """Return what the solver requests from its purse on a table, along the path that the given answers fix."""
    with monkeypatch.context() as patch:
        script = Script(patch, gradients, choices)
        problem = tools.make_problem(*table, objective=objective, intercept=0.5, alpha=0.1)
        with pytest.raises(StopIteration):
            solve(problem, AdaptivePlan(1.0), expected_steps=1000, candidates=5, period=2, **options)
    return script


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_norm": 0.3, "loss_clip": 0.4},
        {"clip_norm": 0.3, "max_step": 50.0},
        {"loss_clip": 2.0, "max_step": 1e3},
    ],
    ids=str,
)
@pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])
def test_neighbours_differ_in_no_sum_by_more_than_is_paid_for(tools, monkeypatch, n, options, objective):
    rng = np.random.default_rng(n)
    apart = {"gradient": 0.0, "choice": 0.0}
    for _ in range(5):
        for pair in tools.neighbours(rng, n, 3):
            gradients = rng.standard_normal((6, objective.start(4).size)) * rng.choice([1.0, 100.0])
            choices = rng.choice([0, 1, 5], 5).tolist()
            one, other = (
                recorded(tools, monkeypatch, table, gradients, choices, objective=objective, **options)
                for table in pair
            )
            for (a, bound, mu), (b, *same) in zip(one.sums, other.sums, strict=True):
                assert (bound, mu) == tuple(same)
                apart["gradient"] = max(apart["gradient"], np.linalg.norm(a - b) / (2 * bound))
            for (a, bound, epsilon), (b, *same) in zip(one.losses, other.losses, strict=True):
                assert (bound, epsilon) == tuple(same)
                assert np.abs(a - b).max() <= 2 * bound * (1 + 1e-12)
                apart["choice"] = max(apart["choice"], np.ptp(a - b) / (4 * bound))
    # Random neighbours do not attain the bounds. Those of the next two tests do.
    assert 0.2 < apart["gradient"] <= 1 + 1e-12
    assert 0.1 < apart["choice"] <= 1 + 1e-12


def along(tools, monkeypatch, tables, gradients, choices, **options):
    """Return the last sum and the last losses that are requested on each table, along one path."""
    lasts = []
    for X, y in tables:
        with monkeypatch.context() as patch:
            script = Script(patch, [*map(np.array, gradients), None], choices)
            with pytest.raises((StopIteration, AttributeError)):
                solve(tools.make_problem(np.array(X), y), AdaptivePlan(1.0), **options)
        lasts.append((script.sums[len(choices) - 1], script.losses[-1]))
    return lasts


@pytest.mark.parametrize("clip_norm", [None, 0.3])
@pytest.mark.parametrize("max_step", [20.0, 500.0])
@pytest.mark.parametrize("n", [2, 3])
def test_the_bounds_are_attained_by_two_sure_mistakes_on_nearly_the_same_row(
    tools, monkeypatch, clip_norm, max_step, n
):
    """Far out along the first feature, nearly equal rows lie on opposite sides. A step along the second follows."""
    others = [[0.1, 0.2]] * (n - 1), [1] * (n - 1)
    tables = [([[0.05, 1.0], *others[0]], [0, *others[1]]), ([[-0.05, 1.0], *others[0]], [1, *others[1]])]
    one, other = along(
        tools,
        monkeypatch,
        tables,
        [[-1.0, 0.0]] * 20 + [[0.0, -1.0]],
        [20] * 21,
        clip_norm=clip_norm,
        max_step=max_step,
    )
    (a, bound, _), (b, *_) = one[0], other[0]
    assert bound == pytest.approx(clip_norm or 1 + ROUNDING)
    assert 0.99 < np.linalg.norm(a - b) / (2 * bound) <= 1
    (a, bound, _), (b, *_) = (
        one[1],
        other[1],
    )  # one record's loss rises as far as the slope allows, and the other's falls
    assert bound == pytest.approx(max_step / 2 * (1 + ROUNDING) ** 2)
    assert 0.97 < np.ptp(a - b) / (4 * bound) <= 1


@pytest.mark.parametrize("loss_clip", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("n", [2, 3])
def test_the_bound_on_clipped_losses_is_attained_by_a_flipped_label(tools, monkeypatch, loss_clip, n):
    """A long step across zero raises the loss from 0 to the clip for one label, and lowers it for the other."""
    tables = [([[1.0]] * n, [label] + [1] * (n - 1)) for label in (0, 1)]
    one, other = along(tools, monkeypatch, tables, [[1.0], [-1.0]], [10, 20], loss_clip=loss_clip, max_step=1000.0)
    (a, bound, _), (b, *_) = one[1], other[1]
    assert bound == pytest.approx(loss_clip / 2 * (1 + ROUNDING))
    assert 0.999 < np.ptp(a - b) / (4 * bound) <= 1


def test_a_loss_beyond_the_clip_has_no_influence_even_if_the_slope_is_the_tighter_bound(tools, monkeypatch):
    """After forty steps the loss of the wrong record is about 40, so it is clipped to 5 on the whole next step."""
    tables = [([[1.0]], [label]) for label in (0, 1)]
    one, other = along(
        tools, monkeypatch, tables, [[-1.0]] * 41, [20] * 41, loss_clip=5.0, max_step=1.0, expected_steps=100
    )
    assert one[1][1] == pytest.approx(0.5 * (1 + ROUNDING) ** 2)
    assert np.ptp(one[1][0]) == 0
    assert np.ptp(other[1][0]) < 1e-12


@pytest.mark.parametrize("loss_clip", [None, 1e9])
def test_the_width_is_enforced_and_not_taken_on_trust(tools, monkeypatch, loss_clip):
    class Liar(tools.Linear):
        def loss(self, scores, targets):
            return 1e3 + 100 * targets * scores

    sums = []
    for target in (1.0, -1.0):
        with monkeypatch.context() as patch:
            script = Script(patch, [np.array([1.0])] * 2, [0])
            with pytest.raises(StopIteration):
                problem = tools.make_problem(np.array([[1.0]]), [target], objective=Liar())
                solve(problem, AdaptivePlan(1.0), loss_clip=loss_clip)
        sums.append(script.losses[0])
    (a, bound, _), (b, *_) = sums
    assert bound == pytest.approx(1 + ROUNDING)
    assert 0.999 < np.ptp(a - b) / (4 * bound) <= 1


def test_a_huge_regulariser_leaves_room_for_the_rounding_of_its_sum(tools, monkeypatch):
    script = Script(monkeypatch, [np.array([1.0])] * 2, [0])
    with pytest.raises(StopIteration):
        solve(tools.make_problem(np.ones((3, 1)), [0, 1, 1], alpha=1e15), AdaptivePlan(1.0), max_step=1.0)
    sums, bound, _ = script.losses[0]
    assert bound > 0.5 + np.spacing(np.abs(sums).max()) / 2
    assert bound == pytest.approx((1 + ROUNDING) ** 2 / 2 + 2.0**-52 * 3 * 1e15 / 2)


@pytest.mark.parametrize("n_classes", [None, 3])
def test_the_regulariser_and_common_records_cancel_between_neighbours(tools, monkeypatch, n_classes):
    objective = Multinomial(3) if n_classes else Logistic()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3, 3)), np.array([0, 1, 1])
    gradients = rng.standard_normal((6, objective.start(4).size))
    same = [recorded(tools, monkeypatch, (X, y), gradients, [1, 0, 5, 2, 1], objective=objective) for _ in range(2)]
    for (a, *_), (b, *_) in zip(same[0].losses, same[1].losses, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("loss_clip", [None, 0.5, 5.0])
def test_the_sums_of_a_choice_rank_candidates_by_the_objective(tools, monkeypatch, separable, loss_clip):
    X, y = separable
    problem = tools.make_problem(X, y, alpha=0.3)
    gradient, rng = np.array([1.0, 2.0, -0.5]), np.random.default_rng(0)
    script = Script(monkeypatch, [gradient, rng.standard_normal(3)], [4])
    with pytest.raises(StopIteration):
        solve(problem, AdaptivePlan(1.0), loss_clip=loss_clip, candidates=4)
    direction = gradient / np.linalg.norm(gradient)
    limit = 2 / problem.rows.norm_bound
    rows = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    values = []
    for k in range(5):
        w = -limit * k / 4 * direction
        losses = np.minimum(np.log1p(np.exp(rows @ w)) - y * (rows @ w), loss_clip or math.inf)
        values.append(losses.sum() + len(y) * 0.15 * w @ w)
    sums = script.losses[0][0]
    assert sums - sums[0] == pytest.approx(np.array(values) - values[0], abs=1e-9)


def test_many_records_are_summed_to_the_last(tools, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, 150_001), rng.integers(0, 2, 150_001)
    script = Script(monkeypatch, [np.array([1.0]), np.array([1.0])], [1])
    with pytest.raises(StopIteration):
        solve(tools.make_problem(x[:, None], y), AdaptivePlan(1.0), candidates=1, max_step=1.0)
    losses = np.logaddexp(0, -x) + y * x
    assert np.diff(script.losses[0][0])[0] == pytest.approx(math.fsum(losses) - 150_001 * math.log(2), rel=1e-9)


# ------------------------------------------------------------------------------------------ the returned values


def test_the_guarantee_is_that_of_the_plan(tools):
    plan = AdaptivePlan.for_budget(Budget(1.0, DELTA))
    release = solve(tools.silence(12, 3), plan, source=NoiseSource(), clip_norm=0.5)
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon <= 1.0
    assert release.guarantee.event == plan.event
    assert not release.guarantee.is_conditional
    assert solve(tools.silence(12, 3), plan, seed=1).guarantee.is_conditional
    for words in ("at most 0.5", "all iterates", "every chosen step", "public width"):
        assert words in release.guarantee.statement(verbose=True)


def test_the_trace_records_what_was_spent_on_what(tools, separable):
    source, plan = Watched(2), AdaptivePlan(3.0)
    problem = tools.make_problem(*separable, alpha=0.1)
    release = solve(problem, plan, source=source, expected_steps=30, keep_iterates=True)
    trace = release.trace
    assert trace["rounds"] == len(source.stds) == len(source.scales)
    spent = [2 * problem.lipschitz / std for std in source.stds]
    assert trace["gradient_mu"] == pytest.approx(math.hypot(*spent))
    assert trace["choice_mu"] == pytest.approx(math.sqrt(trace["rounds"] * 9 / 60), rel=1e-6)
    assert trace["steps"] == len(trace["step_sizes"])
    assert all(step > 0 for step in trace["step_sizes"])
    assert len(trace["iterates"]) == trace["steps"] + 1
    assert not trace["iterates"][0].any()
    assert np.array_equal(trace["iterates"][-1], release.weights)
    lengths = np.linalg.norm(np.diff(trace["iterates"], axis=0), axis=1)
    assert lengths == pytest.approx(trace["step_sizes"])
    bare = solve(problem, plan, seed=2, expected_steps=30)
    assert "iterates" not in bare.trace
    assert np.array_equal(bare.weights, release.weights)


def test_progress_is_reported_in_percent_of_the_budget(tools):
    calls = []
    solve(tools.silence(4, 2), AdaptivePlan(0.5), expected_steps=9, progress=lambda *call: calls.append(call))
    assert calls[-1] == (100, 100)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert {planned for _, planned in calls} == {100}
    assert calls[0][0] == 11  # One of nine gradients and one of nine choices are paid for.


def test_the_documented_defaults_are_used(tools, separable):
    problem, plan = tools.make_problem(*separable, alpha=0.1), AdaptivePlan(3.0)
    plain = solve(problem, plan)
    named = solve(problem, plan, expected_steps=60, growth=0.1, candidates=20, period=10)
    assert plain.trace == named.trace
    assert plain.trace["steps"] > 11
    assert plain.trace["rounds"] > plain.trace["steps"]
    assert "iterates" not in plain.trace


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["clip_norm", "loss_clip", "growth", "max_step"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, True, "1"])
def test_impossible_numbers_are_refused_before_noise_is_drawn(tools, no_noise, name, value):
    with pytest.raises(ValueError, match=f"^{name} must"):
        solve(tools.silence(4, 2), AdaptivePlan(1.0), **{name: value})


@pytest.mark.parametrize("name", ["expected_steps", "candidates", "period"])
@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, True, None])
def test_impossible_counts_are_refused_before_noise_is_drawn(tools, no_noise, name, value):
    with pytest.raises(ValueError, match=f"^{name} must"):
        solve(tools.silence(4, 2), AdaptivePlan(1.0), **{name: value})


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_bad_delta_is_refused_before_noise_is_drawn(tools, no_noise, delta):
    with pytest.raises(ValueError, match="delta"):
        solve(tools.silence(4, 2), AdaptivePlan(1.0), delta=delta)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_targets_that_are_not_finite_are_refused_before_noise_is_drawn(tools, no_noise, bad):
    with pytest.raises(ValueError, match="must be 0 or 1"):
        solve(tools.make_problem(np.ones((3, 2)), [0.0, 1.0, bad]), AdaptivePlan(1.0))
    with pytest.raises(ValueError, match="must be finite"):
        solve(tools.make_problem(np.ones((3, 2)), [0.0, 1.0, bad], objective=Huber(1.0)), AdaptivePlan(1.0))


def test_an_empty_table_is_refused_before_noise_is_drawn(tools, no_noise):
    with pytest.raises(ValueError, match="the number of records must be at least 1"):
        solve(tools.make_problem(np.ones((0, 2)), []), AdaptivePlan(1.0))


def test_a_loss_without_bounds_needs_clips(tools, no_noise):
    class Steep(tools.Linear):
        residual_bound = math.inf

    problem = tools.make_problem(np.ones((3, 2)), [0.0, 1.0, 1.0], objective=Steep())
    with pytest.raises(ValueError, match="set clip_norm"):
        solve(problem, AdaptivePlan(1.0), loss_clip=1.0)
    with pytest.raises(ValueError, match="set loss_clip"):
        solve(problem, AdaptivePlan(1.0), clip_norm=1.0)
