import importlib
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, Huber, Logistic, SaturatingPenalty, SmoothedHinge, Squared
from privet.objectives.summation import ROUNDING
from privet.plans import AdaptivePlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem, PublicFeatures, Run, selected_teacher

module = importlib.import_module("privet.solvers.selected_teacher")

DELTA = 1e-5


def public(m, d, seed=9, intercept=0.0, form=np.asarray):
    return PublicFeatures(form(np.random.default_rng(seed).uniform(-1, 1, (m, d))), intercept)


def solve(problem, features, source=None, mu=1.0, **options):
    run = Run(AdaptivePlan(mu, delta=DELTA), source or NoiseSource(0), options.pop("progress", None))
    return selected_teacher(problem, run, features=features, **({"n_nonzero": 2, "entry_bound": 5.0} | options))


class Watched(NoiseSource):
    """A source without noise that chooses given features, and keeps what was released with what was claimed of it."""

    def __init__(self, chosen):
        super().__init__(0)
        self.chosen, self.seen = np.array(chosen), []

    def top(self, scores, scale, number, claim):
        self.seen.append((scores.copy(), scale, claim.bound))
        return self.chosen

    def add_gaussian(self, values, std, *rest):
        self.seen.append((values.copy(), std, rest[-1].bound))
        return values.copy()


# ------------------------------------------------------------------------------------ neighbours, by brute force


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge(0.2), Huber(0.5)], ids=["logistic", "hinge", "huber"])
def test_neither_the_sums_nor_the_scores_of_neighbours_are_farther_apart_than_claimed(tools, n, objective):
    """This holds for every choice of features, because the noise of the scores is scaled after the choice."""
    features = public(7, 3, intercept=0.5)
    for pair in tools.neighbours(np.random.default_rng(n), n, 3):
        for chosen in combinations(range(3), 2):
            sources = [Watched(chosen), Watched(chosen)]
            for (X, y), source in zip(pair, sources, strict=True):
                problem = tools.make_problem(np.clip(X, -0.4, 0.4), y, objective=objective, alpha=0.1, intercept=0.5)
                solve(problem, features, source, entry_bound=0.4, score_noise=0.3)
            (sums, scale, of_choice), (scores, std, of_scores) = sources[0].seen
            other_sums, other_scores = (values for values, *_ in sources[1].seen)
            assert np.max(np.abs(sums - other_sums)) <= of_choice / 2
            assert np.linalg.norm(scores - other_scores) <= of_scores
            assert [seen[1:] for seen in sources[0].seen] == [seen[1:] for seen in sources[1].seen]
            assert (scale, std) > (of_choice / 2, of_scores / 2)


@pytest.mark.parametrize("n", [1, 3, 50])
def test_linear_losses_attain_both_claims(tools, n):
    """One record moves its feature's sum by twice its bound, and the only weight as far as the penalty allows."""
    features = PublicFeatures(np.array([[3.0, 0.0], [4.0, 0.0]]))  # of operator norm 5
    seen = []
    for sign in (1.0, -1.0):
        X, y = np.zeros((n, 2)), np.zeros(n)
        X[0, 0], y[0] = 0.5, sign
        problem = Problem(tools.Linear(), L2(0.2), BoundedRows(X, 1.0), y)
        source = Watched([0])
        solve(problem, features, source, n_nonzero=1, entry_bound=0.5)
        seen.append(source.seen)
    (sums, _, of_choice), (scores, _, of_scores) = seen[0]
    # The absolute value of the sum is the same for both signs: the sums themselves are 1/2 and -1/2.
    assert sums[0] == 0.5
    assert of_choice / 2 == pytest.approx(2 * 0.5, rel=1e-3)
    distance = float(np.linalg.norm(scores - seen[1][1][0]))
    assert distance == pytest.approx(5 * 2 * 0.5 / (n * 0.2), rel=1e-6)
    assert 0.98 * of_scores < distance <= of_scores


def test_the_tables_that_refute_the_paper_stay_within_the_claims():
    """Two features fit equally well, and one record decides which one a sparse teacher takes."""
    half, features = np.repeat(np.eye(2), 500, axis=0), public(50, 2)
    for chosen in ([0], [1]):
        seen = []
        for last in np.eye(2):
            problem = Problem(Huber(1.0), L2(0.1), BoundedRows(np.vstack([half, last]), 1.0), np.ones(1001))
            source = Watched(chosen)
            solve(problem, features, source, n_nonzero=1)
            seen.append(source.seen)
        assert np.max(np.abs(seen[0][0][0] - seen[1][0][0])) <= seen[0][0][2] / 2
        assert np.linalg.norm(seen[0][1][0] - seen[1][1][0]) <= seen[0][1][2]


# ------------------------------------------------------------------------------------------ the noise and the result


@pytest.mark.parametrize("share", [0.25, 0.8])
def test_the_prices_of_both_releases_by_hand(tools, share):
    """The noise on the scores is the operator norm times 2G/(n lambda), plus 1 %, divided by mu sqrt(1 - share)."""
    problem, features = tools.silence(30, 4, alpha=0.1), public(3000, 4)
    source = Watched([1, 2])
    solve(problem, features, source, mu=0.7, entry_bound=0.2, selection_share=share)
    (_, scale, _), (_, std, _) = source.seen
    length = min(problem.rows.row_norm, 0.2 * math.sqrt(2))
    norm = 1.005 * np.linalg.norm(features.X[:, 1:3], 2)
    assert std == pytest.approx(norm * 1.01 * 2 * length / (30 * 0.1) / (0.7 * math.sqrt(1 - share)), rel=2e-3)
    # Peeling of two features at the price mu_1 is about 4 bound / epsilon, with epsilon near sqrt(8/pi) mu_1 / sqrt(2).
    price = 0.7 * math.sqrt(share) / math.sqrt(2)
    assert scale == pytest.approx(4 * 0.2 / (price * math.sqrt(8 / math.pi)), rel=0.02)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [0.0, 0.3])
def test_it_finds_the_features_and_weights_of_an_easy_problem(form, intercept):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (4000, 60))
    y = X[:, 3] - 1.5 * X[:, 17] + 0.1 * rng.standard_normal(4000)
    problem = Problem(Huber(1.0), L2(0.02), BoundedRows(form(X), 9.0, intercept), y)
    features, calls = public(300, 60, intercept=intercept, form=form), []
    run = Run(AdaptivePlan.for_budget(Budget(4.0, DELTA)), NoiseSource(2), lambda *call: calls.append(call))
    release = selected_teacher(problem, run, features=features, n_nonzero=2, entry_bound=1.0)
    assert release.trace["chosen"].tolist() == np.flatnonzero(release.weights[:60]).tolist() == [3, 17]
    assert release.weights[[3, 17]] == pytest.approx([1, -1.5], abs=0.25)
    assert release.weights.shape == (60 + bool(intercept),)
    assert release.guarantee.epsilon <= 4.0
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_the_penalty_grows_with_the_noise_up_to_the_curvature_of_public_rows(tools):
    problem, features = tools.silence(3000, 4, alpha=1e-3), public(500, 4)
    alphas = [solve(problem, features, score_noise=noise).trace["alpha"] for noise in (None, 0.02, 0.01, 1e-3, 1e-9)]
    assert alphas[0] == 1e-3
    assert alphas == sorted(alphas)
    assert alphas[2] == pytest.approx(2 * alphas[1])
    assert alphas[-1] == pytest.approx(0.25 / 3, rel=0.2)  # the curvature of the logistic loss times the mean square


def test_the_bound_of_a_choice_has_room_for_rounding(tools):
    source = Watched([1, 2])
    problem = tools.make_problem(np.full((6, 4), 0.2), [0, 1] * 3, objective=Huber(0.5), alpha=0.1)
    solve(problem, public(30, 4), source, entry_bound=0.2)
    assert source.seen[0][2] == pytest.approx(4 * 0.5 * 0.2 * (1 + ROUNDING), rel=1e-9)


def test_the_penalty_is_computed_by_hand(tools):
    """A record moves the student's scores by |X| sqrt(d/m) 2L/(n alpha), which shall be the wanted noise times mu."""
    problem, features = tools.silence(3000, 4, alpha=1e-3), public(500, 4)
    release = solve(problem, features, score_noise=0.02, mu=0.8, selection_share=0.36, entry_bound=0.4)
    chosen = PublicFeatures(features.X[:, release.trace["chosen"]])
    lipschitz = 0.4 * math.sqrt(2) * (1 + ROUNDING)
    moved = chosen.operator_norm * math.sqrt(2 / 500) * 2 * lipschitz / 3000
    assert release.trace["alpha"] == pytest.approx(moved / (0.02 * 0.8 * 0.8), rel=1e-5)


def test_the_defaults_are_half_of_the_price_and_a_hundred_steps(tools, separable, monkeypatch):
    problem, features = tools.make_problem(*separable, alpha=0.1), public(20, 3)
    asked, sources = [], [Watched([0, 1]), Watched([0, 1])]
    monkeypatch.setattr(module, "fitted_student", lambda *_, **how: asked.append(how) or np.ones(2))
    release = solve(problem, features, sources[0])
    solve(problem, features, sources[1], selection_share=0.5)
    assert [seen[1] for seen in sources[0].seen] == [seen[1] for seen in sources[1].seen]
    assert asked[0] == {"n_nonzero": 2, "steps": 100}
    assert "residuals by 1" in release.guarantee.statement(verbose=True)
    assert "the features chosen, the teacher's scores of public rows with noise" in release.guarantee.released


def test_the_student_sees_noisy_scores_and_public_rows_only(tools, separable, monkeypatch):
    problem, features, seen = tools.make_problem(*separable, alpha=0.1), public(20, 3), []
    monkeypatch.setattr(module, "fitted_student", lambda *args, **_: seen.append(args) or np.ones(2))
    release = solve(problem, features)
    ((rows, labels),) = seen
    assert np.array_equal(rows.X, features.X[:, release.trace["chosen"]])
    assert np.array_equal(labels, release.trace["labels"])
    assert release.trace.keys() == {"chosen", "alpha", "labels", "sensitivity"}


def test_public_rows_without_the_chosen_features_give_zero_weights(tools, separable):
    features = PublicFeatures(np.zeros((4, 3)))
    release = solve(tools.make_problem(*separable, alpha=0.1), features)
    assert not release.weights.any()
    assert np.isfinite(release.guarantee.epsilon)


def test_short_public_rows_teach_as_long_ones_do(tools, separable):
    problem = tools.make_problem(*separable, alpha=0.1)
    weights = [
        solve(problem, PublicFeatures(size * public(20, 3).X), Watched([0, 1])).weights for size in (1e-3, 1.0, 1e3)
    ]
    assert weights[0].any()
    assert weights[0] == pytest.approx(weights[1], rel=1e-4)
    assert weights[2] == pytest.approx(weights[1], rel=1e-4)


# ---------------------------------------------------------------------------------------------------------- refusals


def test_what_does_not_fit_is_refused_before_noise_is_drawn(tools, separable, no_noise):
    X, y = separable
    problem, features = tools.make_problem(X, y, alpha=0.1), public(9, 3)
    with pytest.raises(ValueError, match="exceeds entry_bound"):
        solve(problem, features, entry_bound=0.1)
    with pytest.raises(ValueError, match="cannot be kept of 3"):
        solve(problem, features, n_nonzero=4)
    with pytest.raises(ValueError, match="steps must"):
        solve(problem, features, steps=0)
    for share in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="selection_share must"):
            solve(problem, features, selection_share=share)
    for noise in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="score_noise must"):
            solve(problem, features, score_noise=noise)
    with pytest.raises(ValueError, match="do not match"):
        solve(problem, public(9, 4))
    for changed, cause in (
        ({"objective": Squared()}, "not bounded"),
        ({"regulariser": L2(0.0)}, "strong convexity"),
        ({"regulariser": SaturatingPenalty(0.1)}, "L2 penalty"),
    ):
        with pytest.raises(ValueError, match=cause):
            solve(replace(problem, **changed), features)
