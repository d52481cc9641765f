import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm

from privet.objectives import L2, BoundedRows, Huber, Logistic, Squared
from privet.objectives.summation import ROUNDING
from privet.plans import AdaptivePlan
from privet.plans.adaptive import Purse, selection_mu
from privet.privacy import Budget, NoiseSource
from privet.solvers import Run
from privet.solvers.base.interface import Problem
from privet.solvers.frank_wolfe import frank_wolfe

DELTA = 1e-5


def solve(problem, plan, source=None, **options):
    fields = {"l1_radius": 2.0, "steps": 5, "entry_bound": 1.0, "residual_clip": 0.5} | options
    run = Run(replace(plan, delta=fields.pop("delta", DELTA)), source or NoiseSource(0), fields.pop("progress", None))
    return frank_wolfe(problem, run, **fields)


class Watched(NoiseSource):
    """A source that records the requested scales."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.scales = []

    def top(self, scores, scale, number=1, claim=None):
        self.scales.append((scores.size, scale))
        return super().top(scores, scale, number, claim)


class Script:
    """Replaces noisy choices by given ones, which fix the path, and records the sums they were made from."""

    def __init__(self, monkeypatch, choices):
        self.asked, self.paid = [], []
        pay, answers = Purse._pay, iter(choices)

        def noisy_min(purse, sums, bound, epsilon):
            pay(purse, selection_mu(epsilon))
            self.asked.append((sums.copy(), bound))
            self.paid.append(selection_mu(epsilon))
            return next(answers) % sums.size

        monkeypatch.setattr(Purse, "noisy_min", noisy_min)


def tables(rng, n, d):
    """Yield pairs of tables that differ in the first record."""
    for kind in ("flipped", "opposite", "corners", "zero row", "zero column", "ties", "large"):
        X, y = rng.uniform(-1, 1, (n, d)), rng.uniform(-3, 3, n)
        if kind in ("corners", "large"):
            X = rng.choice([-1.0, 1.0, 0.0], (n, d))
            y = y * (1e9 if kind == "large" else 1)
        if kind == "zero column":
            X[:, 0] = 0
        if kind == "ties":
            X[:], y[:] = X[0], y[0]
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = {"opposite": -X[0], "zero row": 0 * X[0]}.get(kind, X[0]), -y[0]
        yield (X, y), (X2, y2)


# ----------------------------------------------------------------------------------------------- neighbours


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("intercept", [0.0, 0.4, -2.5])
def test_no_neighbours_have_sums_farther_apart_than_twice_the_bound(monkeypatch, form, n, intercept):
    rng, widest = np.random.default_rng(n), 0.0
    for pair in tables(rng, n, 3):
        asked = []
        for X, y in pair:
            script = Script(monkeypatch, [0, 5, 2, 3, 7])
            solve(Problem(Squared(), L2(0.3), BoundedRows(form(X), 9.0, intercept), y), AdaptivePlan(1.0))
            asked.append(script.asked)
        for (one, bound), (other, same) in zip(*asked, strict=True):
            assert one.size == 2 * (3 + bool(intercept))
            assert np.array_equal(one[: one.size // 2], -one[one.size // 2 :])
            assert bound == same == pytest.approx(0.5 * max(1.0, abs(intercept)) * (1 + ROUNDING))
            assert np.abs(one - other).max() <= 2 * bound
            widest = max(widest, np.abs(one - other).max() / (2 * bound))
    assert widest > 0.999


def test_rows_shorter_than_an_entry_may_be_need_less_noise(monkeypatch):
    script = Script(monkeypatch, [0] * 5)
    solve(Problem(Squared(), L2(0.0), BoundedRows(np.ones((3, 2)), 0.25), np.ones(3)), AdaptivePlan(1.0))
    assert script.asked[0][1] == pytest.approx(0.5 * 0.25 * (1 + ROUNDING))


def test_a_large_penalty_widens_the_bound_by_its_rounding(monkeypatch):
    script = Script(monkeypatch, [0] * 5)
    solve(Problem(Squared(), L2(1e20), BoundedRows(np.ones((3, 2)), 2.0), np.ones(3)), AdaptivePlan(1.0))
    (_, first), (sums, second) = script.asked[:2]
    assert first == pytest.approx(0.5 * (1 + ROUNDING))
    assert second == pytest.approx(0.5 * (1 + ROUNDING) + 2.0**-52 * sums.max())


@pytest.mark.parametrize("objective", [Logistic(), Huber(0.2)], ids=["logistic", "huber"])
def test_a_clip_above_the_losss_own_bound_costs_nothing(monkeypatch, objective):
    script = Script(monkeypatch, [0] * 5)
    problem = Problem(objective, L2(0.0), BoundedRows(np.ones((2, 3)), 2.0), np.array([0.0, 1.0]))
    solve(problem, AdaptivePlan(1.0), residual_clip=40.0)
    assert script.asked[0][1] == pytest.approx(objective.residual_bound * (1 + ROUNDING))


# ------------------------------------------------------------------------------------------------ noise and price


@pytest.mark.parametrize("steps", [1, 4, 50])
@pytest.mark.parametrize("mu", [0.1, 2.0])
def test_the_scale_of_the_noise_by_hand(steps, mu):
    source = Watched()
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((4, 3)), 2.0, 0.5), np.ones(4))
    solve(problem, AdaptivePlan(mu), source, steps=steps, entry_bound=1.5, residual_clip=0.3)
    price = mu / math.sqrt(steps)
    choice = 2 * math.log(norm.cdf(price / 2) / norm.cdf(-price / 2))
    assert [size for size, _ in source.scales] == [8] * steps
    assert [scale for _, scale in source.scales] == pytest.approx(
        [4 * 0.3 * 1.5 * (1 + ROUNDING) / choice] * steps, rel=1e-6
    )


@pytest.mark.parametrize("steps", [1, 3, 1000])
def test_the_choices_spend_the_plan_and_no_more(monkeypatch, steps):
    script = Script(monkeypatch, [0] * steps)
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((4, 3)), 2.0), np.ones(4))
    solve(problem, AdaptivePlan(0.7), steps=steps)  # a purse that is overdrawn raises
    assert sum(mu**2 for mu in script.paid) == pytest.approx(0.49, rel=1e-9)
    assert sum(mu**2 for mu in script.paid) <= 0.49


# ------------------------------------------------------------------------------------------------------ the walk


def plain_loop(X, y, *, mu, source, radius, steps, clip, alpha):
    """Return the result of the paper's pseudocode, record by record, for squared losses of entries within 1."""
    n, d = X.shape
    w = np.zeros(d)
    price = mu / math.sqrt(steps)
    scale = 4 * clip / (2 * math.log(norm.cdf(price / 2) / norm.cdf(-price / 2)))
    for t in range(1, steps + 1):
        gradient = n * alpha * w
        for row, target in zip(X, y, strict=True):
            gradient = gradient + row * min(max(row @ w - target, -clip), clip)
        corners = np.vstack([radius * np.eye(d), -radius * np.eye(d)])
        place = source.top(-corners @ gradient / radius, scale)[0]
        w = (1 - 2 / (t + 2)) * w + 2 / (t + 2) * corners[place]
    return w


@pytest.mark.parametrize("mu", [0.5, 5.0, 100.0])
def test_the_steps_are_those_of_a_plain_loop(mu):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (30, 4)), rng.uniform(-1, 1, 30)
    problem = Problem(Squared(), L2(0.2), BoundedRows(X, 9.0), y)
    release = solve(problem, AdaptivePlan(mu), NoiseSource(4), steps=12, l1_radius=1.5, residual_clip=0.6)
    by_hand = plain_loop(X, y, mu=mu, source=NoiseSource(4), radius=1.5, steps=12, clip=0.6, alpha=0.2)
    assert release.weights == pytest.approx(by_hand, abs=1e-9)


def test_iterates_stay_in_the_ball_and_gain_one_weight_per_step():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (30, 50)), rng.integers(0, 2, 30)
    problem = Problem(Logistic(), L2(0.0), BoundedRows(X, 9.0, 0.5), y)
    release = solve(problem, AdaptivePlan(0.5), steps=9, keep_iterates=True)
    for done, iterate in enumerate(release.trace["iterates"], start=1):
        assert np.abs(iterate).sum() <= 2.0 * (1 + 1e-12)
        assert np.count_nonzero(iterate) <= done
    assert np.array_equal(release.trace["iterates"][-1], release.weights)
    assert "iterates" not in solve(problem, AdaptivePlan(0.5)).trace


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_with_a_huge_budget_it_approaches_the_optimum_in_the_ball(form):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (500, 20))
    truth = np.zeros(20)
    truth[[2, 7, 11]] = [1.0, -0.5, 0.5]
    y = X @ truth + 0.05 * rng.standard_normal(500)
    problem = Problem(Squared(), L2(0.0), BoundedRows(form(X), 9.0), y)
    release = solve(problem, AdaptivePlan(1e6), steps=300, residual_clip=9.0)
    assert problem.value(release.weights) < problem.value(truth) + 0.01
    assert np.linalg.norm(release.weights - truth) < 0.1


def test_frank_wolfe_finds_features_within_a_budget():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (5000, 100))
    truth = np.zeros(100)
    truth[[2, 7, 11]] = [1.0, -0.7, 0.8]
    problem = Problem(Squared(), L2(0.0), BoundedRows(X, 9.0), X @ truth + 0.05 * rng.standard_normal(5000))
    release = solve(problem, AdaptivePlan.for_budget(Budget(2.0, DELTA)), l1_radius=2.5, steps=15, residual_clip=2.0)
    assert {2, 7, 11} <= set(np.flatnonzero(release.weights))
    assert np.linalg.norm(release.weights - truth) < 0.3 * np.linalg.norm(truth)


def test_explicit_zeros_empty_rows_and_columns_change_nothing():
    X = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, -0.5, 0.2]])
    stored = sparse.csr_array((X.ravel().copy(), np.tile(np.arange(3), 3), np.arange(0, 10, 3)), shape=(3, 3))
    results = [
        solve(Problem(Squared(), L2(0.1), BoundedRows(table, 1.0, 0.5), np.ones(3)), AdaptivePlan(3.0)).weights
        for table in (X, sparse.csr_array(X), stored)
    ]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


# --------------------------------------------------------------------------------------------- guarantee, refusals


def test_the_guarantee_is_that_of_the_plan():
    problem, plan, calls = (
        Problem(Squared(), L2(0.0), BoundedRows(np.ones((4, 3)), 2.0), np.ones(4)),
        AdaptivePlan(0.3),
        [],
    )
    release = solve(problem, plan, NoiseSource(), progress=lambda *call: calls.append(call))
    assert release.guarantee.event == plan.event
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon
    assert not release.guarantee.is_conditional
    for words in ("entries are bounded by 1 ", "residuals clipped to 0.5", "the corners chosen"):
        assert words in release.guarantee.statement(verbose=True)
    assert solve(problem, plan, NoiseSource(1)).guarantee.is_conditional
    assert calls == [(done, 5) for done in range(1, 6)]


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"entry_bound": 0.9}, "exceeds entry_bound = 0.9"),
        ({"entry_bound": math.inf}, "entry_bound must"),
        ({"residual_clip": 0.0}, "residual_clip must"),
        ({"l1_radius": -1.0}, "l1_radius must"),
        ({"steps": 0}, "steps must"),
        ({"delta": 0.0}, "set delta > 0"),
    ],
)
def test_bad_input_is_refused_before_noise_is_drawn(no_noise, options, cause):
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((4, 3)), 2.0), np.ones(4))
    with pytest.raises(ValueError, match=cause):
        solve(problem, AdaptivePlan(1.0), **options)


def test_several_classes_are_refused(tools):
    with pytest.raises(ValueError, match="one score per record"):
        solve(tools.silence(4, 3, n_classes=3), AdaptivePlan(1.0))
