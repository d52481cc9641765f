import importlib
import math

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm

from privet.objectives import L2, BoundedRows, Huber, Logistic, Squared
from privet.objectives.summation import ROUNDING
from privet.plans.adaptive import Purse
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.privacy.analyses.accounting import epsilon as epsilon_of
from privet.privacy.analyses.gaussian import gdp_epsilon
from privet.privacy.events import ApproximateRelease, Composition, GaussianRelease
from privet.solvers import Run
from privet.solvers.base.interface import Problem
from privet.solvers.objective_perturbation import objective_perturbation, objective_plan
from privet.solvers.two_stage import two_stage, two_stage_plan

module = importlib.import_module("privet.solvers.two_stage")

BUDGET = Budget(2.0, 1e-4)


def solve(problem, budget=BUDGET, source=None, **options):
    fields = {"n_nonzero": options.pop("n_nonzero", 2), "entry_bound": options.pop("entry_bound", None)}
    made = {name: options.pop(name) for name in ("selection_share", "added_alpha") if name in options}
    plan = two_stage_plan(problem, budget, **fields, **made)
    return two_stage(problem, Run(plan, source or NoiseSource(0), options.pop("progress", None)), **fields, **options)


def make(X, y, *, alpha=0.5, row_norm=1.0, intercept=0.0, objective=None):
    return Problem(objective or Huber(1.0), L2(alpha), BoundedRows(X, row_norm, intercept), np.asarray(y))


@pytest.fixture
def easy():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 30)) / math.sqrt(30)
    truth = np.zeros(30)
    truth[[4, 9, 22]] = [3.0, -4.0, 3.5]
    return X, X @ truth + 0.02 * rng.standard_normal(6000), truth


class Watched(NoiseSource):
    """A source that records the requested scales."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.scales, self.stds = [], []

    def top(self, scores, scale, number=1, claim=None):
        self.scales.append((scores.size, scale))
        return super().top(scores, scale, number, claim)

    def add_gaussian(self, values, std, *options):
        self.stds.append(std)
        return super().add_gaussian(values, std, *options)

    def real_gaussian(self, shape, std, *options):
        self.stds.append(std)
        return super().real_gaussian(shape, std)


# ------------------------------------------------------------------------------------------------------ the votes


def votes_of(monkeypatch, problem, **options):
    """Return the votes from which the choice is made, their bound and the price of the choice."""
    seen = []

    def noisy_top(purse, scores, bound, mu, number):
        seen.append((scores.copy(), bound, mu, number))
        raise InterruptedError

    monkeypatch.setattr(Purse, "noisy_top", noisy_top)
    with pytest.raises(InterruptedError):
        solve(problem, **options)
    return seen[0]


def replacements(rng, X, y):
    """Yield neighbours of a table, in which one record is replaced by an extreme one."""
    for place in range(len(y)):
        for row in (-X[place], 0 * X[place], 1e3 * rng.standard_normal(X.shape[1]), np.eye(X.shape[1])[place % 3]):
            X2, y2 = X.copy(), y.copy()
            X2[place], y2[place] = row, rng.choice([-1e6, 0.0, 1e6])
            yield X2, y2


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("vote_steps", [1, 7])
@pytest.mark.parametrize(("n", "blocks"), [(2, 1), (2, 2), (9, 3), (9, 9)])
def test_a_replaced_record_moves_every_count_by_at_most_one(monkeypatch, form, vote_steps, n, blocks):
    rng, widest, both = np.random.default_rng(n), 0.0, False
    X, y = rng.standard_normal((n, 5)), rng.standard_normal(n)
    options = {"blocks": blocks, "vote_steps": vote_steps, "budget": Budget(9.0, 0.1)}
    counts, bound, mu, number = votes_of(monkeypatch, make(form(X), y), **options)
    assert bound == 0.5  # replacing moves sums by twice that
    assert number == 2
    assert counts.max() <= blocks
    assert counts.sum() <= 2 * blocks
    for X2, y2 in replacements(rng, X, y):
        others, _, same, _ = votes_of(monkeypatch, make(form(X2), y2), **options)
        assert same == mu
        change = others - counts
        widest = max(widest, np.abs(change).max())
        both |= change.max() == 1 and change.min() == -1
        assert np.abs(change).sum() <= 4  # one block changes its two votes
    assert widest == 1.0  # a bound of less than 1/2 would be too small
    assert both


@pytest.mark.parametrize("blocks", [1, 4, 20])
def test_every_record_is_in_one_block(monkeypatch, blocks):
    seen = []

    def counted(part, *, n_nonzero, steps):
        seen.append(part.targets.copy())
        return part.start()

    monkeypatch.setattr(module, "ight", counted)
    y = np.arange(20.0)
    votes_of(monkeypatch, make(np.ones((20, 3)), y), blocks=blocks, budget=Budget(9.0, 0.1))
    assert len(seen) == blocks
    assert sorted(np.concatenate(seen)) == y.tolist()
    assert max(map(len, seen)) - min(map(len, seen)) <= 1
    if blocks == 4:
        assert not np.array_equal(np.concatenate(seen), y)  # in random order


def test_one_step_votes_for_the_largest_correlations(monkeypatch, easy):
    X, y, _ = easy
    counts, *_ = votes_of(monkeypatch, make(X, y), blocks=1, n_nonzero=3)
    by_hand = np.argsort(-np.abs(X.T @ np.clip(-y, -1, 1)))[:3]
    assert sorted(np.flatnonzero(counts)) == sorted(by_hand)


def test_the_default_number_of_blocks_is_a_square_root(easy):
    X, y, _ = easy
    assert solve(make(X, y), n_nonzero=3).trace["blocks"] == 77


# ----------------------------------------------------------------------------------------------- noise and accounting


@pytest.mark.parametrize("budget", [Budget(0.5, 1e-6), BUDGET, Budget(8.0, 0.01)], ids=repr)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_total_stays_within_the_budget_and_nearly_uses_it_up(easy, budget, share):
    X, y, _ = easy
    release = solve(make(X, y), budget, n_nonzero=3, selection_share=share)
    guarantee = release.guarantee
    assert 0.99 * budget.epsilon < guarantee.epsilon <= budget.epsilon
    assert guarantee.delta == budget.delta
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    choice, fit = guarantee.event.leaves()
    assert isinstance(choice, GaussianRelease)
    assert isinstance(fit, ApproximateRelease)
    assert choice.mu == release.trace["selection_mu"]
    assert gdp_epsilon(choice.mu, budget.delta / 2) == pytest.approx(share * budget.epsilon, rel=1e-6)
    assert fit.epsilon >= (1 - share) * budget.epsilon * (1 - 1e-6)
    assert fit.delta == budget.delta / 2
    assert epsilon_of(Composition((choice, fit)), guarantee.adjacency, budget.delta) == guarantee.epsilon


@pytest.mark.parametrize("n_nonzero", [1, 3])
def test_the_noise_of_both_stages_by_hand(easy, n_nonzero):
    X, y, _ = easy
    source = Watched()
    release = solve(make(X, y), source=source, n_nonzero=n_nonzero)
    choice, fit = release.guarantee.event.leaves()
    price = choice.mu / math.sqrt(n_nonzero)
    of_one = 2 * math.log(norm.cdf(price / 2) / norm.cdf(-price / 2))
    assert source.scales == [(30, pytest.approx(2 / of_one, rel=1e-6))]  # counts move by 1: scale 2/epsilon
    plan = objective_plan(make(X[:, release.trace["chosen"]], y), Budget(fit.epsilon * (1 + 1e-12), fit.delta))
    assert source.stds[0] == pytest.approx(plan.scale, rel=1e-6)
    assert release.trace["noise_scale"] == source.stds[0]


@pytest.mark.parametrize(("entry_bound", "norm_of_rows"), [(None, 1.0), (0.2, 0.2 * math.sqrt(3)), (5.0, 1.0)])
def test_rows_of_the_chosen_features_have_a_new_bound(monkeypatch, easy, entry_bound, norm_of_rows):
    """The noise depends on the bound on rows of the chosen features, and this bound is enforced, not assumed."""
    X, y, _ = easy
    seen = []

    def watched(problem, run):
        seen.append((problem, run.plan))
        return objective_perturbation(problem, run)

    monkeypatch.setattr(module, "objective_perturbation", watched)
    release = solve(make(5 * X, y), n_nonzero=3, entry_bound=entry_bound)
    ((problem, plan),) = seen
    assert problem.rows.row_norm == pytest.approx(norm_of_rows)
    assert plan.lipschitz == pytest.approx(norm_of_rows * (1 + ROUNDING))
    assert problem.rows.norms().max() <= norm_of_rows
    assert problem.rows.n_features == 3
    unit = np.zeros(3)
    unit[1] = 1.0
    column = 5 * X[:, release.trace["chosen"]]
    lengths = np.linalg.norm(column, axis=1)
    expected = column[:, 1] * np.minimum(1, norm_of_rows / np.maximum(lengths, 1e-300))
    assert problem.rows.scores(unit) == pytest.approx(expected, abs=1e-12)


def test_the_plan_does_not_depend_on_the_features_chosen(easy):
    X, y, _ = easy
    traces = [solve(make(X, y), source=NoiseSource(seed), blocks=2, n_nonzero=3).trace for seed in range(4)]
    assert len({tuple(trace["chosen"]) for trace in traces}) > 1
    assert len({(trace["noise_scale"], trace["tolerance"], trace["selection_mu"]) for trace in traces}) == 1


# ---------------------------------------------------------------------------------------------------------- the result


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [0.0, 0.3])
def test_it_finds_the_support_and_fits_it(easy, form, intercept):
    X, y, truth = easy
    problem = make(form(X), y, alpha=1e-3, intercept=intercept)
    release = solve(problem, Budget(6.0, 1e-4), n_nonzero=3, entry_bound=0.2)
    assert set(np.flatnonzero(release.weights[:30])) == set(np.flatnonzero(truth))
    assert release.weights.shape == (30 + bool(intercept),)
    assert np.linalg.norm(release.weights[:30] - truth) < 0.4 * np.linalg.norm(truth)
    if intercept:
        assert release.weights[30] != 0


def test_a_sparse_matrix_gives_what_a_dense_one_gives(easy):
    X, y, _ = easy
    X = np.where(np.abs(X) > 0.1, X, 0.0)
    X[7], X[:, 3] = 0.0, 0.0
    one, other = (
        solve(make(form(X), y), source=NoiseSource(8), n_nonzero=3) for form in (np.asarray, sparse.csr_array)
    )
    assert np.array_equal(one.trace["chosen"], other.trace["chosen"])
    assert one.weights == pytest.approx(other.weights, abs=1e-6)


def test_classes_are_learned_and_progress_is_reported(easy):
    X, y, truth = easy
    calls = []
    problem = make(4 * X, (y > 0).astype(int), objective=Logistic(), alpha=0.01)
    release = solve(problem, Budget(6.0, 1e-4), n_nonzero=3, progress=lambda *call: calls.append(call))
    assert set(np.flatnonzero(release.weights)) == set(np.flatnonzero(truth))
    assert calls == [(1, 2), (2, 2)]


def test_the_guarantee_says_what_was_released_and_why(easy):
    X, y, _ = easy
    release = solve(make(X, y), source=NoiseSource(), n_nonzero=3, blocks=50)
    assert not release.guarantee.is_conditional
    for words in ("features chosen by noisy votes", "each of 50 blocks", "randomly tilted", "ChaCha20"):
        assert words in release.guarantee.statement(verbose=True)
    assert solve(make(X, y), source=NoiseSource(1), n_nonzero=3).guarantee.is_conditional


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("fields", "options", "cause"),
    [
        ({}, {"budget": Budget(1.0)}, "set delta > 0"),
        ({}, {"n_nonzero": 4}, "cannot be kept of 3"),
        ({}, {"blocks": 7}, "cannot be divided"),
        ({}, {"blocks": 0}, "blocks must"),
        ({}, {"vote_steps": 0}, "vote_steps must"),
        ({}, {"selection_share": 1.0}, "selection_share"),
        ({}, {"selection_share": math.nan}, "selection_share"),
        ({}, {"entry_bound": -1.0}, "entry_bound must"),
        ({"alpha": 0.0}, {}, "strong convexity"),
        ({"alpha": 1e-9}, {}, "the curvature of one record"),
        ({"objective": Squared()}, {}, "Huber"),
    ],
)
def test_bad_input_is_refused_before_anything_is_drawn(no_noise, fields, options, cause):
    with pytest.raises(ValueError, match=cause):
        solve(make(np.ones((6, 3)), np.ones(6), **fields), **options)


def test_a_plan_for_another_problem_is_refused_before_anything_is_drawn(no_noise):
    problem, other = (make(np.ones((6, 3)), np.ones(6), row_norm=norm) for norm in (1.0, 2.0))
    plan = two_stage_plan(other, BUDGET, n_nonzero=2, entry_bound=None)
    with pytest.raises(ValueError, match="made for other data or constants"):
        two_stage(problem, Run(plan, NoiseSource()), n_nonzero=2)


def test_centred_rows_are_refused():
    rows = BoundedRows(np.ones((6, 3)), 2.0, 1.0).centred(np.ones(3))
    with pytest.raises(ValueError, match="centred"):
        solve(Problem(Huber(1.0), L2(0.5), rows, np.ones(6)))


def test_the_documented_defaults_are_used(easy):
    X, y, _ = easy
    problem = make(X[:400], y[:400])
    plan = two_stage_plan(problem, BUDGET, n_nonzero=2)
    assert plan == two_stage_plan(problem, BUDGET, n_nonzero=2, selection_share=0.5, added_alpha=0.0)
    assert plan.fit.added_alpha == 0
    plain, named = (
        two_stage(problem, Run(plan, NoiseSource(0)), n_nonzero=2, **how) for how in ({}, {"vote_steps": 1})
    )
    assert np.array_equal(plain.weights, named.weights)
    assert plain.trace.keys() >= {"chosen", "blocks", "selection_mu", "tolerance", "noise_scale", "output_scale"}


def test_votes_count_the_blocks_whose_models_use_a_feature(easy):
    X, y, _ = easy
    problem = make(X[:60], y[:60], intercept=0.3)
    for steps in (1, 4):
        votes = np.zeros(30)
        for block in np.array_split(np.arange(60), 7):
            part = make(X[block], y[block], intercept=0.3)
            votes += module.ight(part, n_nonzero=2, steps=steps)[:30] != 0
        found = module._votes(problem, np.arange(60), 7, 2, steps)
        assert found.tolist() == votes.tolist()
        assert found.sum() == 14
