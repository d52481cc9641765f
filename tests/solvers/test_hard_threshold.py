import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chisquare, norm

from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, Squared
from privet.objectives.summation import ROUNDING
from privet.plans import AdaptivePlan, Descent, FixedOrder, FullBatch, GradientPlan, Poisson
from privet.plans.adaptive import Purse
from privet.plans.gradient import PlanError, Step
from privet.privacy import Budget, NoiseSource
from privet.solvers import Run
from privet.solvers.base.interface import Problem
from privet.solvers.base.sparsity import rounding_of, thresholded
from privet.solvers.hard_threshold import hard_threshold, peeled_threshold

DELTA = 1e-5
RARELY = 1e-6


class Watched(NoiseSource):
    """A source that records the requested scales."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.stds, self.scales = [], []

    def add_gaussian(self, values, std, *options):
        self.stds.append(std)
        return super().add_gaussian(values, std, *options)

    def top(self, scores, scale, number=1, claim=None):
        self.scales.append(scale)
        return super().top(scores, scale, number, claim)


def range_of(mu):
    """Return the range of an exponential mechanism that costs mu, from 2 Phi^-1(1 / (1 + e^(-range/2))) = mu."""
    return 2 * math.log(norm.cdf(mu / 2) / norm.cdf(-mu / 2))


# ------------------------------------------------------------------------------------------ peeling, as a mechanism


def law_of_sets(scores, scale, number):
    """Return the probability of every set of places under successive exponential mechanisms, by enumeration."""
    weights = np.exp((np.asarray(scores) - np.max(scores)) / scale)
    chances = {}
    for places in itertools.permutations(range(len(scores)), number):
        chance, left = 1.0, weights.sum()
        for place in places:
            chance *= weights[place] / left
            left -= weights[place]
        key = tuple(sorted(places))
        chances[key] = chances.get(key, 0.0) + chance
    return chances


@pytest.mark.parametrize(("scores", "number"), [([3.0, 1.0, 0.0, 2.5], 2), ([0.0, 0.0, 4.0, 1.0, 2.0], 3)])
def test_the_places_have_the_law_of_exponential_mechanisms_one_after_the_other(scores, number):
    source, plan, mu = NoiseSource(3), AdaptivePlan(5.0), 3.0
    drawn = [tuple(plan.open(source).noisy_top(np.array(scores), 0.6, mu, number)) for _ in range(6000)]
    scale = 4 * 0.6 / range_of(mu / math.sqrt(number))

    def fits(factor):
        law = law_of_sets(scores, factor * scale, number)
        counts = [drawn.count(key) for key in law]
        return chisquare(counts, 6000 * np.array(list(law.values()))).pvalue > RARELY

    assert fits(1.0)
    assert not fits(3 / 4)
    assert not fits(4 / 3)


def smallest_mu(p, q):
    """Return the smallest mu whose Gaussian trade-off function lies below that of p against q, both ways."""
    found = 0.0
    for one, other in ((p, q), (q, p)):
        order = np.argsort(-(np.log(one) - np.log(other)))
        first, second = np.cumsum(other[order])[:-1], 1 - np.cumsum(one[order])[:-1]
        inner = (first > 1e-10) & (first < 1 - 1e-10) & (second > 1e-10) & (second < 1 - 1e-10)
        found = max(found, (norm.isf(first[inner]) - norm.ppf(second[inner])).max(initial=0.0))
    return found


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("mu", [0.2, 1.5])
def test_chosen_features_distinguish_neighbours_no_better_than_their_price(number, mu):
    source, bound, rng, worst = Watched(), 0.5, np.random.default_rng(number), 0.0
    AdaptivePlan(mu).open(source).noisy_top(np.zeros(5), bound, mu, number)
    (scale,) = source.scales
    for turn in range(200):
        sums = rng.normal(0, rng.choice([0.0, 1.0, 10.0]), 5)
        one, other = (rng.choice([-1, 1, 0, rng.uniform(-1, 1)], 5) * bound for _ in range(2))
        if turn % 2:  # the farthest neighbours that a choice can see
            one = np.where(np.arange(5) < number, bound, -bound)
            other = -one
            sums = np.abs(rng.normal(5, 2 * scale if turn % 4 == 1 else 0.0, 5)) + 1
        laws = [law_of_sets(np.abs(sums + record), scale, number) for record in (one, other)]
        p, q = (np.array([law[key] for key in laws[0]]) for law in laws)
        worst = max(worst, smallest_mu(p, q))
    assert worst <= mu * (1 + 1e-9)
    assert worst > (0.95 if number == 1 else 0.6) * mu  # this much less noise would be noticed


def test_places_are_paid_for_and_sorted():
    purse = AdaptivePlan(1.0).open(NoiseSource(0))
    places = purse.noisy_top(np.arange(30.0), 0.1, 0.6, 7)
    assert len(set(places)) == 7
    assert (np.diff(places) > 0).all()
    assert purse.left == pytest.approx(0.8)
    assert sorted(purse.noisy_top(np.zeros(4), 0.1, 0.1, 4)) == [0, 1, 2, 3]
    with pytest.raises(PlanError):
        purse.noisy_top(np.zeros(4), 0.1, 0.9, 2)


@pytest.mark.parametrize(
    ("scores", "number"),
    [(np.zeros(3), 0), (np.zeros(3), 4), (np.zeros((2, 2)), 1), (np.array([0.0, np.nan]), 1), (np.zeros(3, int), 1)],
)
def test_impossible_choices_are_refused_before_they_are_paid_for(scores, number):
    source = Watched()
    purse = AdaptivePlan(1.0).open(source)
    with pytest.raises(ValueError, match=r"cannot be chosen|finite|float"):
        purse.noisy_top(scores, 1.0, 0.5, number)
    assert purse.left == 1.0
    assert not source.scales


# ------------------------------------------------------------------------------------------------ neighbours


def tables(rng, n, d, entry=1.0, reach=3.0):
    """Yield pairs of tables that differ in the first record: extreme rows, flipped targets, ties, zeros."""
    for kind in ("flipped", "opposite", "extreme", "zero row", "zero column", "ties", "random", "large"):
        X = rng.uniform(-entry, entry, (n, d))
        y = rng.uniform(-reach, reach, n)
        if kind in ("extreme", "large"):
            X = rng.choice([-entry, entry, 0.0], (n, d))
            y = rng.choice([-1e6, 1e6], n) if kind == "large" else y
        if kind == "zero column":
            X[:, 0] = 0.0
        if kind == "ties":
            X[:], y[:] = X[0], y[0]
        X2, y2 = X.copy(), y.copy()
        X2[0] = {"opposite": -X[0], "zero row": 0 * X[0], "random": rng.uniform(-entry, entry, d)}.get(kind, X[0])
        y2[0] = -y[0]
        yield (X, y), (X2, y2)


def with_explicit_zeros(X):
    """Return a CSR matrix that stores its zeros too."""
    n, d = X.shape
    return sparse.csr_array((X.ravel().copy(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)), shape=X.shape)


FORMS = {"dense": np.asarray, "csr": sparse.csr_array, "explicit zeros": with_explicit_zeros}


class Script:
    """Replaces the noisy answers of a purse by given ones, which fix the path, and records the questions."""

    def __init__(self, monkeypatch, seed=0, size=1.0):
        self.asked, self.paid, self._seed = [], [], seed
        pay = Purse._pay
        script = self

        def rng():
            return np.random.default_rng([script._seed, len(script.asked)])

        def noisy(purse, total, bound, mu):
            pay(purse, mu)
            answer = size * rng().standard_normal(total.shape)
            script.asked.append(("sum", total.copy(), bound))
            script.paid.append(mu)
            return np.abs(answer) if total.size == 1 else answer

        def noisy_top(purse, scores, bound, mu, number):
            pay(purse, mu)
            answer = np.sort(rng().choice(scores.size, number, replace=False))
            script.asked.append(("scores", scores.copy(), bound))
            script.paid.append(mu)
            return answer

        monkeypatch.setattr(Purse, "noisy", noisy)
        monkeypatch.setattr(Purse, "noisy_top", noisy_top)


def peel(problem, plan, source=None, **options):
    fields = {"n_nonzero": 2, "entry_bound": 1.0, "residual_clips": [1.0, 0.5]} | options
    run = Run(replace(plan, delta=fields.pop("delta", DELTA)), source or NoiseSource(0), fields.pop("progress", None))
    return peeled_threshold(problem, run, **fields)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("intercept", [0.0, 0.7])
@pytest.mark.parametrize("row_norm", [10.0, 0.9])
def test_no_neighbours_have_sums_farther_apart_than_twice_the_bound(monkeypatch, form, n, intercept, row_norm):
    rng = np.random.default_rng(n)
    for pair in tables(rng, n, 4):
        asked = []
        for X, y in pair:
            script = Script(monkeypatch)
            rows = BoundedRows(FORMS[form](X), row_norm, intercept)
            peel(Problem(Squared(), L2(0.3), rows, y), AdaptivePlan(2.0), residual_clips=[1.0, 0.5, 0.5, 0.25])
            asked.append(script.asked)
        assert len(asked[0]) == len(asked[1]) == 12
        for (kind, one, bound), (_, other, same) in zip(*asked, strict=True):
            assert bound == same  # the bound does not depend on the data
            apart = np.abs(one - other).max() if kind == "scores" else np.linalg.norm(one - other)
            assert apart <= 2 * bound


@pytest.mark.parametrize(("row_norm", "n_nonzero"), [(10.0, 1), (10.0, 3), (1.5, 4)])
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_the_bounds_are_attained(monkeypatch, row_norm, n_nonzero, intercept):
    """Entries and residuals of one record are as large as allowed, with opposite signs in the two tables."""
    e, clip, asked = 0.8, 0.5, []
    for sign in (1, -1):
        script = Script(monkeypatch)
        rows = BoundedRows(np.full((3, 4), e), row_norm, intercept)
        problem = Problem(Squared(), L2(0.0), rows, np.array([-9.0 * sign, -9.0, -9.0]))
        peel(problem, AdaptivePlan(2.0), n_nonzero=n_nonzero, entry_bound=e, residual_clips=[clip])
        asked.append(script.asked)
    (_, scores, bound), (_, gradient, length) = asked[0][:2]
    (_, other_scores, _), (_, other_gradient, _) = asked[1][:2]
    room = 1 + ROUNDING
    assert bound == pytest.approx(clip * e * room)
    assert length == pytest.approx(room * clip * math.hypot(min(e * math.sqrt(n_nonzero), row_norm), intercept))
    entry = min(e, row_norm / 2)  # a row of four such entries is scaled down
    assert scores - other_scores == pytest.approx(2 * clip * entry)
    assert np.linalg.norm(gradient - other_gradient) == pytest.approx(2 * length / room)
    assert np.linalg.norm(gradient - other_gradient) <= 2 * length


@pytest.mark.parametrize("intercept", [0.0, 0.7, -0.7])
def test_the_sum_of_squares_moves_by_twice_its_bound_at_most_and_does(monkeypatch, intercept):
    asked = []
    for size in (1.0, 0.0):
        script = Script(monkeypatch, seed=4)
        X = np.zeros((2, 3))
        rng = np.random.default_rng([4, 1])  # the direction that will be answered, over n = 2
        direction = rng.standard_normal(3 + bool(intercept)) / 2
        signs = np.sign(direction[:3]) * (np.sign(direction[3] * intercept) if intercept else 1)
        X[0] = size * signs
        problem = Problem(Squared(), L2(0.0), BoundedRows(X, 9.0, intercept), np.ones(2))
        peel(problem, AdaptivePlan(2.0), n_nonzero=3, residual_clips=[1.0])
        asked.append(script.asked[2])
    (_, one, bound), (_, other, _) = asked
    reach = np.abs(direction[:3]).sum() + (abs(intercept * direction[3]) if intercept else 0)
    assert bound == pytest.approx((reach * (1 + ROUNDING)) ** 2 / 2)
    rest = (intercept * direction[3]) ** 2 if intercept else 0.0
    assert float(one[0] - other[0]) == pytest.approx(reach**2 - rest)
    assert float(one[0] - other[0]) <= 2 * bound


def test_a_large_public_shift_widens_the_bound_by_its_rounding(monkeypatch):
    script = Script(monkeypatch, size=1e20)
    problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((2, 3)), 2.0), np.ones(2))
    peel(problem, AdaptivePlan(2.0), residual_clips=[1.0, 1.0])
    (_, scores, bound), first = script.asked[3], script.asked[0][2]
    assert first == pytest.approx(1 + ROUNDING)
    assert bound == pytest.approx(1.0 + ROUNDING + 2.0**-52 * scores.max())
    assert bound > 100


@pytest.mark.parametrize("objective", [Logistic(), Huber(0.2)], ids=["logistic", "huber"])
def test_a_clip_above_the_losss_own_bound_costs_nothing(monkeypatch, objective):
    script = Script(monkeypatch)
    problem = Problem(objective, L2(0.0), BoundedRows(np.ones((2, 3)), 2.0), np.array([0.0, 1.0]))
    release = peel(problem, AdaptivePlan(2.0), residual_clips=[50.0])
    assert script.asked[0][2] == pytest.approx(objective.residual_bound * (1 + ROUNDING))
    assert release.trace["residual_clips"] == [objective.residual_bound]


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_the_room_for_rounding_is_relative_to_the_shift(size):
    """Otherwise the noise would be far too large for data in small units."""
    assert rounding_of(np.array([0.5, -1.0, 0.0]) * size) == 2.0**-52 * size
    assert rounding_of(np.zeros(3)) == rounding_of(np.zeros(0)) == 0


# --------------------------------------------------------------------------------------------- the noise that is drawn


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("n_nonzero", [1, 4])
def test_the_scales_of_a_round_by_hand(rounds, n_nonzero):
    rng, source, mu, e, clip, b = np.random.default_rng(0), Watched(), 0.9, 0.6, 0.5, 0.3
    X, y = rng.uniform(-e, e, (50, 6)), rng.uniform(-1, 1, 50)
    problem = Problem(Squared(), L2(0.0), BoundedRows(X, 9.0, b), y)
    release = peel(
        problem, AdaptivePlan(mu), source, n_nonzero=n_nonzero, entry_bound=e, residual_clips=[clip] * rounds
    )
    price = mu / math.sqrt(rounds)
    assert source.scales == pytest.approx(
        [4 * clip * e * (1 + ROUNDING) / range_of(price * math.sqrt(0.55 / n_nonzero))] * rounds, rel=1e-6
    )
    values = 2 * clip * (1 + ROUNDING) * math.sqrt(e**2 * n_nonzero + b**2) / (price * math.sqrt(0.40))
    assert source.stds[::2] == pytest.approx([values] * rounds, rel=1e-6)
    if rounds == 1:
        g = release.weights / release.trace["step_size"]
        reach = (e * np.abs(g[:6]).sum() + b * abs(g[6])) * (1 + ROUNDING)
        assert source.stds[1] == pytest.approx(reach**2 / (price * math.sqrt(0.05)), rel=1e-6)


@pytest.mark.parametrize("rounds", [1, 2, 7, 100])
def test_the_rounds_spend_the_plan_and_no_more(monkeypatch, rounds):
    script = Script(monkeypatch)
    problem = Problem(Logistic(), L2(0.1), BoundedRows(np.ones((3, 4)), 2.0), np.array([0.0, 1.0, 1.0]))
    peel(problem, AdaptivePlan(0.7), residual_clips=[1.0] * rounds)  # a purse that is overdrawn raises
    assert sum(mu**2 for mu in script.paid) == pytest.approx(0.7**2, rel=1e-10)


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (1 / math.sqrt(2), False), (math.sqrt(2), False)])
def test_gradients_get_the_noise_of_the_errata_and_not_that_of_the_paper(tools, factor, fits):
    """2 G sqrt(T) / (n mu*), 1/mu*(1, 1e-5) = 3.7306. Theorem 2.5.2 lacks a factor sqrt(2)."""
    n, d, steps, clip = 20, 4000, 4, 0.5
    plan = GradientPlan.for_budget(Budget(1.0, DELTA), sampler=FullBatch(), steps=steps, clip_norm=clip)
    problem = tools.silence(n, d)
    release = hard_threshold(
        problem, Run(replace(plan, delta=DELTA), NoiseSource(1)), n_nonzero=d, step_size=1.0, keep_iterates=True
    )
    noise = np.diff(release.trace["iterates"], axis=0, prepend=np.zeros((1, d)))
    assert tools.has_std(noise, factor * 2 * clip * math.sqrt(steps) / n * 3.7306) == fits
    assert release.trace["noise_std"] == pytest.approx(2 * clip * math.sqrt(steps) / n * 3.7306, rel=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [2, 4])
def test_no_neighbours_have_gradients_farther_apart_than_twice_the_clip(monkeypatch, form, n):
    rng, clip = np.random.default_rng(n), 0.3
    plan = GradientPlan(FullBatch(), 4, clip, 1.0)
    widest = 0.0
    for pair in tables(rng, n, 4):
        totals = []
        for X, y in pair:
            seen = []
            answers = iter(np.random.default_rng(1).standard_normal((4, 5)))
            monkeypatch.setattr(
                Step, "noisy", lambda self, total, s=seen, a=answers: (s.append(total.copy()), next(a))[1]
            )
            problem = Problem(Squared(), L2(0.1), BoundedRows(FORMS[form](X), 1.0, 0.5), y)
            hard_threshold(problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=2, step_size=0.2)
            totals.append(seen)
        apart = np.linalg.norm(np.subtract(*totals), axis=1)
        assert (apart <= 2 * clip).all()
        widest = max(widest, apart.max())
    assert widest > 2 * clip * 0.999


# -------------------------------------------------------------------------------------- thresholds are post-processing


@pytest.mark.parametrize("n_nonzero", [1, 2, 5])
def test_iterates_follow_from_noisy_gradients_and_keep_the_intercept(monkeypatch, n_nonzero):
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (30, 5)), rng.uniform(-1, 1, 30)
    problem = Problem(Squared(), L2(0.2), BoundedRows(X, 1.0, 0.5), y)
    plan, seen, noisy = GradientPlan(FullBatch(), 6, 0.5, 1.0), [], Step.noisy
    monkeypatch.setattr(Step, "noisy", lambda self, total: (seen.append(noisy(self, total)), seen[-1])[1])
    release = hard_threshold(
        problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=n_nonzero, step_size=0.3, keep_iterates=True
    )
    weights = np.zeros(6)
    for gradient, iterate in zip(seen, release.trace["iterates"], strict=True):
        weights = weights - 0.3 * (gradient / 30 + 0.2 * weights)
        for place in np.argsort(np.abs(weights[:5]))[: 5 - n_nonzero]:
            weights[place] = 0.0
        assert iterate == pytest.approx(weights, abs=1e-12)
        assert np.count_nonzero(iterate[:5]) == n_nonzero
        assert iterate[5] != 0
    assert release.weights == pytest.approx(weights)


def test_peeled_iterates_have_few_features_and_an_intercept():
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (30, 9)), rng.integers(0, 2, 30)
    problem = Problem(Logistic(), L2(0.1), BoundedRows(X, 2.0, 0.5), y)
    release = peel(problem, AdaptivePlan(1.0), n_nonzero=3, residual_clips=[1.0] * 5, keep_iterates=True)
    assert len(release.trace["iterates"]) == 5
    for iterate in release.trace["iterates"]:
        assert np.count_nonzero(iterate[:9]) <= 3
        assert iterate[9] != 0
    assert np.array_equal(release.weights, release.trace["iterates"][-1])
    assert "iterates" not in peel(problem, AdaptivePlan(1.0)).trace


def test_the_largest_weights_are_kept_and_what_follows_them():
    weights = np.array([3.0, -5.0, 0.0, 4.0, 0.1])
    assert thresholded(weights, 2, 4).tolist() == [0.0, -5.0, 0.0, 4.0, 0.1]
    assert thresholded(weights, 4, 4) is weights
    assert np.count_nonzero(thresholded(np.ones(6), 3, 6)) == 3  # ties
    assert not thresholded(np.zeros(6), 3, 6).any()
    assert weights.tolist() == [3.0, -5.0, 0.0, 4.0, 0.1]


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_two_rounds_follow_from_their_releases_by_hand(monkeypatch, size, alpha):
    """The direction is the noisy gradient of chosen features and of the intercept, its size |g|^2 over the curvature.

    Small answers to the question for the mean square are unreliable. They are replaced by twice the noise.
    """
    rng, n, b = np.random.default_rng(0), 20, 0.5
    X, y = rng.uniform(-1, 1, (n, 4)), rng.integers(0, 2, n)
    problem, script = Problem(Logistic(), L2(alpha), BoundedRows(X, 3.0, b), y), Script(monkeypatch, size=size)
    release = peel(problem, AdaptivePlan(2.0), residual_clips=[1.0, 0.4], keep_iterates=True)
    answers = [np.random.default_rng([0, place]) for place in range(6)]
    weights, eta, floors = np.zeros(5), math.inf, []
    for turn, clip in enumerate([1.0, 0.4]):
        residuals = np.clip(1 / (1 + np.exp(-X @ weights[:4] - b * weights[4])) - y, -clip, clip)
        scores = np.abs(X.T @ residuals + n * (alpha * weights[:4] - weights[:4] / eta))
        assert script.asked[3 * turn][1] == pytest.approx(scores, rel=1e-9)
        chosen = np.sort(answers[3 * turn].choice(4, 2, replace=False))
        g = np.zeros(5)
        g[[*chosen, 4]] = size * answers[3 * turn + 1].standard_normal(3) / n + alpha * weights[[*chosen, 4]]
        reach = (min(np.abs(g[:4]).sum(), 3.0 * np.linalg.norm(g[:4])) + abs(b * g[4])) * (1 + ROUNDING)
        squares = np.sum((X @ g[:4] + b * g[4]) ** 2)
        assert script.asked[3 * turn + 2][1] == pytest.approx([squares], rel=1e-9)
        noisy = abs(size * answers[3 * turn + 2].standard_normal(1)[0]) / n
        floors.append(2 * reach**2 / (n * script.paid[3 * turn + 2]))
        eta = g @ g / (0.25 * max(noisy, floors[-1]) + alpha * g @ g)
        moved = np.zeros(5)
        moved[[*chosen, 4]] = weights[[*chosen, 4]] - eta * g[[*chosen, 4]]
        weights = moved
        assert release.trace["iterates"][turn] == pytest.approx(weights, rel=1e-9)
        assert (noisy < floors[-1]) == (size == 30.0)
    assert release.trace["step_size"] == pytest.approx(eta, rel=1e-9)
    assert release.trace["steps"] == 2


def test_a_direction_of_zero_moves_nothing(monkeypatch):
    Script(monkeypatch, size=0.0)
    problem = Problem(Logistic(), L2(0.0), BoundedRows(np.ones((2, 3)), 2.0), np.array([0.0, 1.0]))
    assert not peel(problem, AdaptivePlan(2.0), residual_clips=[1.0]).weights.any()


@pytest.mark.parametrize(
    ("shares", "cause"),
    [((0.5, 0.4, 0.101), "at most 1"), ((0.5, 0.5, 0.0), "a share must"), ((0.5, -0.1, 0.5), "a share must")],
)
def test_shares_that_would_overdraw_a_round_or_buy_nothing_are_refused(tools, no_noise, shares, cause):
    with pytest.raises(ValueError, match=cause):
        peel(tools.silence(4, 3), AdaptivePlan(1.0), shares=shares)


def test_shares_of_exactly_one_are_allowed(tools):
    release = peel(tools.silence(4, 3), AdaptivePlan(1.0), shares=(0.5, 0.25, 0.25))
    assert release.trace["steps"] == 2


def test_iterates_are_kept_only_on_request(tools):
    plan = GradientPlan(FullBatch(), 3, 0.5, 1.0, delta=DELTA)
    trace = hard_threshold(tools.silence(4, 3), Run(plan, NoiseSource(0)), n_nonzero=2, step_size=0.1).trace
    assert trace == {"steps": 3, "clip_norm": 0.5, "noise_std": plan.noise_std / 4}


# ----------------------------------------------------------------------------------------------------------- utility


@pytest.fixture(scope="module")
def sparse_truth():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (4000, 60))
    truth = np.zeros(60)
    truth[[3, 17, 31, 59]] = [2.0, -1.5, 1.0, -2.5]
    return X, X @ truth + 0.1 * rng.standard_normal(4000), truth


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_both_find_the_support_of_an_easy_problem(sparse_truth, form):
    X, y, truth = sparse_truth
    problem = Problem(Squared(), L2(0.0), BoundedRows(form(X), 8.0), y)
    budget = Budget(4.0, DELTA)
    plan = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=10, clip_norm=20.0)
    plain = hard_threshold(problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=4, step_size=1.5)
    clips = [4.0, 2.0, 1.0, 0.5, 0.5]
    peeled = peel(problem, AdaptivePlan.for_budget(budget), n_nonzero=4, residual_clips=clips)
    for release in (plain, peeled):
        assert set(np.flatnonzero(release.weights)) == set(np.flatnonzero(truth))
        assert np.linalg.norm(release.weights - truth) < 0.35 * np.linalg.norm(truth)
        assert release.guarantee.epsilon <= 4.0
    assert np.linalg.norm(peeled.weights - truth) < 0.1 * np.linalg.norm(truth)


@pytest.mark.parametrize("form", ["csr", "explicit zeros"])
def test_a_sparse_matrix_gives_what_a_dense_one_gives(form):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((40, 7)) < 0.4, rng.uniform(-1, 1, (40, 7)), 0.0)
    X[5], X[:, 2] = 0.0, 0.0  # an empty row and a column of zeros
    y = rng.integers(0, 2, 40)
    plan = GradientPlan(FullBatch(), 3, 0.5, 0.1)
    results = []
    for table in (X, FORMS[form](X)):
        problem = Problem(Logistic(), L2(0.1), BoundedRows(table, 1.2, 0.4), y)
        run = Run(replace(plan, delta=DELTA), NoiseSource(3))
        results.append((hard_threshold(problem, run, n_nonzero=3, step_size=0.5), peel(problem, AdaptivePlan(1.0))))
    for one, other in zip(*results, strict=True):
        assert one.weights == pytest.approx(other.weights, abs=1e-9)


# ---------------------------------------------------------------------------------------------- guarantee and refusals


def test_the_guarantees_are_those_of_the_plans(tools):
    problem, calls = tools.silence(20, 5), []
    gradients = GradientPlan(FullBatch(), 3, 0.5, 20.0)
    plain = hard_threshold(problem, Run(replace(gradients, delta=DELTA), NoiseSource()), n_nonzero=2, step_size=0.1)
    plan = AdaptivePlan(0.3)
    problem = tools.make_problem(np.ones((5, 3)), np.array([0, 1, 1, 0, 1]), row_norm=2.0)
    peeled = peel(problem, plan, NoiseSource(), progress=lambda *call: calls.append(call))
    for release, made in ((plain, gradients), (peeled, plan)):
        assert release.guarantee.event == made.event
        assert release.guarantee.epsilon == made.guarantee(DELTA).epsilon
        assert not release.guarantee.is_conditional
    assert "residuals clipped to 1, 0.5 in turn" in peeled.guarantee.statement(verbose=True)
    assert "entries are bounded by 1" in peeled.guarantee.statement(verbose=True)
    assert calls == [(1, 2), (2, 2)]
    assert peel(problem, plan, NoiseSource(1)).guarantee.is_conditional


@pytest.mark.parametrize("solve", ["plain", "peeled"])
@pytest.mark.parametrize(("n_nonzero", "cause"), [(4, "cannot be kept of 3"), (0, "at least 1"), (1.5, "whole number")])
def test_an_impossible_number_of_features_is_refused(tools, no_noise, solve, n_nonzero, cause):
    problem = tools.silence(4, 3)
    with pytest.raises(ValueError, match=cause):
        if solve == "plain":
            plan = GradientPlan(FullBatch(), 3, 0.5, 1.0)
            hard_threshold(problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=n_nonzero, step_size=0.1)
        else:
            peel(problem, AdaptivePlan(1.0), n_nonzero=n_nonzero)


def test_amplification_by_iteration_is_refused(tools, no_noise):
    problem = tools.silence(4, 3)
    plan = GradientPlan(FixedOrder(4), None, 0.5, 1.0, release="last", descent=Descent(0.1, 1.0))
    with pytest.raises(ValueError, match='release="last"'):
        hard_threshold(problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=2, step_size=0.1)


def test_no_epsilon_at_delta_zero(tools, no_noise):
    problem = tools.silence(4, 3)
    with pytest.raises(ValueError, match="set delta > 0"):
        peel(problem, AdaptivePlan(1.0), delta=0.0)
    with pytest.raises(ValueError, match="set delta > 0"):
        plan = GradientPlan(FullBatch(), 3, 0.5, 1.0)
        hard_threshold(problem, Run(replace(plan, delta=0.0), NoiseSource(0)), n_nonzero=2, step_size=0.1)


def test_bad_input_is_refused_before_noise_is_drawn(tools, no_noise):
    problem = tools.make_problem(np.full((4, 3), 1.01), [0, 1, 0, 1], row_norm=9.0)
    for options, cause in (
        ({}, "exceeds entry_bound = 1"),
        ({"entry_bound": math.nan}, "entry_bound must"),
        ({"entry_bound": 2.0, "residual_clips": []}, "number of rounds"),
        ({"entry_bound": 2.0, "residual_clips": [1.0, 0.0]}, "residual clip must"),
    ):
        with pytest.raises(ValueError, match=cause):
            peel(problem, AdaptivePlan(1.0), **options)
    with pytest.raises(ValueError, match="one score per record"):
        peel(tools.silence(4, 3, n_classes=3), AdaptivePlan(1.0))
    with pytest.raises(ValueError, match="the number of records"):
        peel(tools.make_problem(np.ones((0, 2)), []), AdaptivePlan(1.0))
    with pytest.raises(ValueError, match="one score per record"):
        plan = GradientPlan(FullBatch(), 3, 0.5, 1.0)
        several = Problem(Multinomial(3), L2(0.0), BoundedRows(np.ones((3, 2)), 1.0), np.array([0, 1, 2]))
        hard_threshold(several, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=2, step_size=0.1)


def test_centred_rows_have_larger_entries(tools, no_noise):
    rows = BoundedRows(np.full((4, 3), 0.9), 9.0, 1.0).centred(np.array([-0.5, 0.2, 0.0]))
    assert rows.largest_entry == pytest.approx(1.4)
    with pytest.raises(ValueError, match="exceeds entry_bound"):
        peel(Problem(Logistic(), L2(0.0), rows, np.array([0, 1, 0, 1])), AdaptivePlan(1.0))


def test_other_samplers_are_accounted_for_by_the_plan(tools):
    problem = tools.silence(50, 30)
    plan = GradientPlan(Poisson(0.5), 3, 0.5, 1.0, public_n=50)
    release = hard_threshold(problem, Run(replace(plan, delta=DELTA), NoiseSource(0)), n_nonzero=2, step_size=0.1)
    assert release.guarantee.event == plan.event
    assert np.count_nonzero(release.weights) == 2
