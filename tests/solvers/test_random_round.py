import math
import sys
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import sparse
from scipy.stats import chisquare

from privet.objectives import BoundedRows, Logistic, Multinomial, Squared
from privet.objectives.regularisers import SaturatingPenalty
from privet.plans import FixedOrder, FixedSize, FullBatch, GradientPlan, OneUniform, Poisson
from privet.privacy import Adjacency, Budget, NoiseSource, gdp_mu
from privet.privacy.analyses.accounting import epsilon
from privet.solvers import Problem, Run
from privet.solvers.random_round import _Records, random_round

DELTA = 1e-5
OBJECTIVES = pytest.mark.parametrize("objective", [Logistic(), Multinomial(3)], ids=["logistic", "multinomial"])


def solve(problem, plan, seed=0, step_size=0.5, **options):
    source = options.pop("source", None) or NoiseSource(seed)
    return random_round(
        problem, Run(replace(plan, delta=DELTA), source, options.pop("progress", None)), step_size=step_size, **options
    )


class Counting(NoiseSource):
    """A source that records the requested noise, and the weights and results of random indices."""

    def __init__(self, seed=None):
        super().__init__(seed)
        self.stds, self.indices = [], []

    def index(self, weights):
        place = super().index(weights)
        self.indices.append((np.array(weights), place))
        return place

    def add_gaussian(self, values, std, *options):
        self.stds.append(std)
        return super().add_gaussian(values, std, *options)


# ----------------------------------------------------------------------------------------------- the random round


@pytest.mark.parametrize(
    "etas",
    [1.0, [0.5, 0.5, 0.5, 0.5, 0.5], [7.0, 4.0, 1.0, 0.5, 0.1], [0.1, 0.2, 0.4, 4.0, 7.9], [1e-9, 1, 1e-9, 1, 1e-9]],
)
@pytest.mark.parametrize("alpha", [0.0, 0.001])
def test_the_round_is_drawn_with_the_probabilities_of_theorem_5(tools, etas, alpha):
    """Pr(R = k + 1) is proportional to 2 eta_k - beta eta_k^2, where beta = 1/4 + alpha."""
    problem = tools.make_problem(np.zeros((4, 1)), [0, 1, 0, 1], alpha=alpha)
    sizes = np.full(5, etas) if np.ndim(etas) == 0 else np.array(etas)
    expected = 2 * sizes - (0.25 + alpha) * sizes**2
    for seed in range(20):
        source = Counting(seed)
        rounds = solve(problem, GradientPlan(FullBatch(), 5, 1.0, 1.0), source=source, step_size=etas).trace["rounds"]
        [(weights, place)] = source.indices
        assert rounds == 1 + place == len(source.stds)
        assert weights / weights.sum() == pytest.approx(expected / expected.sum(), rel=1e-9)


def test_rounds_are_as_frequent_as_theorem_5_says(tools):
    etas = np.array([7.0, 4.0, 1.0, 0.5, 0.1])
    problem = tools.make_problem(np.zeros((4, 1)), [0, 1, 0, 1])
    plan = GradientPlan(FullBatch(), 5, 1.0, 1.0)
    rounds = [solve(problem, plan, seed, etas).trace["rounds"] for seed in range(1500)]
    expected = 2 * etas - 0.25 * etas**2
    counts = np.bincount(rounds, minlength=6)[1:]
    assert chisquare(counts, expected * (1500 / expected.sum())).pvalue > 1e-6


def test_there_is_one_noisy_sum_per_round_and_all_planned_rounds_are_paid_for(tools):
    plan = GradientPlan(OneUniform(9), 12, 0.7, 3.0)
    rounds = set()
    for seed in range(30):
        source = Counting(seed)
        release = solve(tools.silence(9, 4), plan, source=source)
        assert source.stds == pytest.approx([0.7 * 3.0] * release.trace["rounds"])
        assert release.guarantee.event == plan.event
        assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon
        assert release.trace["steps"] == 12
        rounds.add(release.trace["rounds"])
    assert min(rounds) >= 1
    assert max(rounds) <= 12
    assert len(rounds) > 6


# ------------------------------------------------------------------------------------------------------ the noise


def test_the_noise_of_the_errata():
    """docs/errata.md (g): n = 1000 and n^2 steps at (1, 1e-5) need sigma/L = 16.3; 30.9 gives 0.497.

    Loss distributions need half of that, hardly more than the losses of one record, a Gaussian with mu = 2/sigma.
    """
    plan = GradientPlan.for_budget(Budget(1.0, DELTA), sampler=OneUniform(1000), steps=10**6, clip_norm=1.0)
    assert 2 / gdp_mu(Budget(1.0, DELTA)) < plan.noise_std < 8.4
    by_renyi = GradientPlan(OneUniform(1000), 10**6, 1.0, 16.3).event
    assert epsilon(by_renyi, Adjacency.REPLACE_ONE, DELTA, analysis="rdp") == pytest.approx(1.0, abs=0.01)
    paper = GradientPlan(OneUniform(1000), 10**6, 1.0, 30.9).event
    assert epsilon(paper, Adjacency.REPLACE_ONE, DELTA, analysis="rdp") == pytest.approx(0.497, abs=2e-3)


def test_the_noise_against_dp_accounting_whose_multiplier_is_relative_to_twice_the_clip(tools):
    plan = GradientPlan.for_budget(Budget(0.5, DELTA), sampler=OneUniform(500), steps=5000, clip_norm=0.7)
    source = Counting(1)
    solve(tools.silence(500, 2), plan, source=source)
    independent = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 3e-5)
    gaussian = dp_accounting.GaussianDpEvent(source.stds[0] / (2 * 0.7))
    independent.compose(dp_accounting.PoissonSampledDpEvent(1 / 500, gaussian), 5000)
    assert 0.5 / 1.25 < independent.get_epsilon(DELTA) < 0.501  # the losses of one record at its bound


@pytest.mark.parametrize(
    ("sampler", "divisor"),
    [(OneUniform(20), 1), (FixedSize(4, 20), 4), (FullBatch(), 20), (Poisson(0.25), 25)],
    ids=repr,
)
def test_the_weights_of_a_problem_without_gradients_are_the_noise_of_the_plan(tools, sampler, divisor):
    """Given R: w_R = sum over t of (1 - eta alpha)^(R-t) eta noise_t / divisor."""
    plan = GradientPlan(sampler, 6, 0.7, 1.5, public_n=100)
    alpha, step_size, scaled = 0.3, 0.5, []
    for seed in range(60):
        release = solve(tools.silence(20, 50, alpha=alpha), plan, seed, step_size)
        decay = (1 - step_size * alpha) ** 2
        scaled.append(release.weights / math.sqrt((1 - decay ** release.trace["rounds"]) / (1 - decay)))
    assert tools.has_only_std(np.concatenate(scaled), step_size * 0.7 * 1.5 / divisor)


def test_seeds_repeat_and_secure_sources_differ(tools):
    plan, problem = GradientPlan(OneUniform(9), 4, 1.0, 1.0), tools.silence(9, 5)
    assert np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 3).weights)
    assert not np.array_equal(solve(problem, plan, 3).weights, solve(problem, plan, 4).weights)
    assert not np.array_equal(*(solve(problem, plan, source=NoiseSource()).weights for _ in range(2)))


# ----------------------------------------------------------------------------------------------------- the descent


@pytest.mark.parametrize("sampler", [OneUniform(70), FixedSize(3, 70), Poisson(0.02), FixedOrder(70)], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
@OBJECTIVES
def test_the_steps_are_those_of_a_plain_loop(tools, sampler, form, clip_norm, objective):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((70, 4)), rng.integers(0, 2, 70)
    problem = tools.make_problem(form(X), y, objective=objective, alpha=0.1, intercept=0.5)
    steps = sampler.implied_steps or 40
    plan = GradientPlan(sampler, steps, clip_norm, 0.2, public_n=90)
    etas = np.linspace(0.5, 0.1, steps)
    source, weights = NoiseSource(8), problem.start()
    beta = objective.smoothness(math.hypot(1, 0.5)) + 0.1
    rounds = 1 + source.index(2 * etas - beta * etas**2)
    batches = sampler.batches(70, steps, source)
    for t in range(rounds):
        batch = next(batches)
        total = objective.gradient_sum(weights, problem.rows.take(batch), y[batch], clip_norm)
        noisy = source.add_gaussian(total, 0.2 * clip_norm)
        divisor = sampler.nominal_size(90)
        weights = weights - etas[t] * (noisy / divisor + 0.1 * weights)
    release = solve(problem, plan, 8, etas)
    assert release.trace["rounds"] == rounds
    assert release.weights == pytest.approx(weights, abs=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@OBJECTIVES
def test_a_record_written_out_is_the_same_record(form, intercept, objective):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 6)) * rng.choice([0.0, 1e-200, 0.1, 5.0, 1e200], (150, 1))
    rows = BoundedRows(form(X), 1.0, intercept)
    weights = rng.standard_normal(objective.start(rows.dimension).shape)
    records = _Records(rows)
    for place in rng.permutation(150):
        batch = np.array([place])
        one, same = rows.take(batch), records.take(batch)
        assert same is records.take(batch)
        assert same.scores(weights) == pytest.approx(one.scores(weights), rel=1e-12, abs=1e-14)
        assert np.array_equal(same.norms(), one.norms())
        for clip_norm in (0.1, 100.0):
            sums = [objective.gradient_sum(weights, each, np.array([1]), clip_norm) for each in (same, one)]
            assert sums[0].shape == sums[1].shape
            assert sums[0] == pytest.approx(sums[1], rel=1e-9, abs=1e-14)
            assert np.linalg.norm(sums[0]) <= min(clip_norm, objective.lipschitz(rows.norm_bound))


def test_records_are_not_written_out_where_they_would_fill_the_memory(tools, monkeypatch):
    rng = np.random.default_rng(3)
    problem = tools.make_problem(sparse.csr_array(rng.standard_normal((30, 4))), rng.integers(0, 2, 30))
    plan = GradientPlan(OneUniform(30), 100, 0.3, 0.1)
    expected = solve(problem, plan, 1).weights
    monkeypatch.setattr(sys.modules["privet.solvers.random_round"], "_MOST_KEPT", 119)  # not its function
    records = _Records(problem.rows)
    assert records.take(np.array([2])) is not records.take(np.array([2]))
    assert solve(problem, plan, 1).weights == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_record_has_the_same_score_in_every_batch_where_others_may_be_added(tools, adjacency, monkeypatch):
    """Records are read one by one then, and none is cached, because products of other sizes round differently."""
    asked, take = set(), BoundedRows.take

    def watched(rows, batch, *, alone=False):
        asked.add((len(rows.norms()[batch]) > 1, alone))
        return take(rows, batch, alone=alone)

    monkeypatch.setattr(BoundedRows, "take", watched)
    sampler = Poisson(0.01) if adjacency is Adjacency.ADD_OR_REMOVE else OneUniform(200)
    plan = GradientPlan(sampler, 60, 1.0, 1.0, adjacency, public_n=200)
    solve(tools.silence(200, 3), plan, 1)
    is_alone = adjacency is Adjacency.ADD_OR_REMOVE
    assert {alone for _, alone in asked} == {is_alone}
    assert {True, False} == {several for several, _ in asked} if is_alone else asked == {(True, False)}


def test_single_records_are_cached_unless_they_are_read_alone():
    rows, one, two = BoundedRows(np.eye(70), 1.0), np.array([66]), np.array([66, 67])
    records, alone = _Records(rows), _Records(rows, alone=True)
    assert records.take(one) is records.take(one)
    assert records.take(np.array([69])).scores(np.arange(70.0)) == pytest.approx([69.0])
    assert alone.take(one) is not alone.take(one)
    weights = np.random.default_rng(0).standard_normal(70)
    assert alone.take(one).scores(weights)[0] == alone.take(two).scores(weights)[0]


def valley(n):
    """Return a problem with a non-convex penalty."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5)) / 3
    y = (X @ np.array([3.0, -2.0, 1.0, 0, 0]) + rng.standard_normal(n) > 0).astype(int)
    return Problem(Logistic(), SaturatingPenalty(0.02), BoundedRows(X, 1.0), y)


def test_it_finds_a_stationary_point_of_a_non_convex_problem(tools):
    problem = valley(500)
    assert not problem.is_convex
    plan = GradientPlan(OneUniform(500), 4000, 1.0, 1.0)
    ends = [solve(problem, plan, source=tools.Silent(seed), step_size=0.1).weights for seed in range(5)]
    start = problem.gradient_norm(problem.start())
    assert np.median([problem.gradient_norm(end) for end in ends]) < 0.3 * start


def test_losses_without_bound_are_clipped(tools):
    problem = tools.make_problem(np.ones((6, 2)), np.array([1e6, -1e6, 0.0, 3.0, 1e12, -2.0]), objective=Squared())
    assert np.linalg.norm(solve(problem, GradientPlan(OneUniform(6), 20, 1.0, 1.0)).weights) < 100


# ------------------------------------------------------------------------------------- neighbours, by brute force


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
@OBJECTIVES
def test_neighbours_differ_in_no_sum_by_more_than_twice_the_clip(tools, n, clip_norm, objective):
    """The sums of single records are computed explicitly, as in the solver."""
    rng = np.random.default_rng(n)
    bound = 2 * min(clip_norm, objective.lipschitz(math.hypot(1, 0.5)))
    farthest = 0.0
    for _ in range(30):
        for tables in tools.neighbours(rng, n, 3):
            weights = rng.choice([0.0, 1.0, 30.0]) * rng.standard_normal(objective.start(4).shape)
            sums = []
            for X, y in tables:
                problem = tools.make_problem(X, y, objective=objective, intercept=0.5)
                rows = _Records(problem.rows).take(np.array([0]))
                sums.append(objective.gradient_sum(weights, rows, problem.targets[:1], clip_norm))
            farthest = max(farthest, float(np.linalg.norm(sums[0] - sums[1])))
    assert 0.5 * bound < farthest <= bound * (1 + 1e-9)


@pytest.mark.parametrize("clip_norm", [0.3, 10.0])
def test_the_bound_is_attained_by_two_sure_mistakes_on_nearly_the_same_row(tools, clip_norm):
    sums = []
    for side, label in ((1e-3, 0), (-1e-3, 1)):
        problem = tools.make_problem(np.array([[side, 1.0]]), [label])
        rows = _Records(problem.rows).take(np.array([0]))
        sums.append(Logistic().gradient_sum(np.array([1e5, 0.0]), rows, problem.targets, clip_norm))
    bound = 2 * min(clip_norm, 1.0)
    assert 0.99 * bound < np.linalg.norm(sums[0] - sums[1]) <= bound


def test_under_add_or_remove_nothing_reveals_the_number_of_records(tools):
    plan = GradientPlan(FullBatch(), 8, 1.0, 1.0, Adjacency.ADD_OR_REMOVE, public_n=10)
    few, many = (solve(tools.silence(n, 9), plan, 2) for n in (10, 100_000))
    assert np.array_equal(few.weights, many.weights)
    assert few.trace == many.trace
    with pytest.raises(ValueError, match="public_n"):
        solve(tools.silence(10, 9), GradientPlan(Poisson(0.5), 3, 1.0, 1.0))


# ------------------------------------------------------------------------------------------- the returned values


def test_the_guarantee_is_that_of_the_plan(tools):
    plan = GradientPlan.for_budget(Budget(1.0, DELTA), sampler=OneUniform(12), steps=7, clip_norm=0.5)
    release = solve(tools.silence(12, 3), plan, source=NoiseSource())
    assert release.guarantee.epsilon == plan.guarantee(DELTA).epsilon <= 1.0
    assert not release.guarantee.is_conditional
    assert solve(tools.silence(12, 3), plan, seed=1).guarantee.is_conditional
    for words in ("at most 0.5", "all iterates", "batch of 1 of 12", "7 sums"):
        assert words in release.guarantee.statement(verbose=True)


def test_progress_is_reported_after_each_step(tools):
    calls = []
    plan = GradientPlan(OneUniform(4), 9, 1.0, 1.0)
    rounds = solve(tools.silence(4, 2), plan, progress=lambda *call: calls.append(call)).trace["rounds"]
    assert calls == [(done, rounds) for done in range(1, rounds + 1)]


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("step_size", [8.0, 9.0, [1.0, 8.1, 1.0]])
def test_steps_that_are_too_long_for_the_smoothness_are_refused(tools, step_size):
    source = Counting()
    with pytest.raises(ValueError, match="not below 2/smoothness = 8"):
        solve(tools.silence(4, 2), GradientPlan(OneUniform(4), 3, 1.0, 1.0), step_size=step_size, source=source)
    assert not source.stds
    solve(tools.silence(4, 2), GradientPlan(OneUniform(4), 3, 1.0, 1.0), step_size=7.99)


@pytest.mark.parametrize(
    "step_size", [0.0, -1.0, math.nan, math.inf, [0.1, 0.0, 0.1], [0.1, math.nan, 0.1], True, None]
)
def test_an_impossible_step_size_is_refused(tools, step_size):
    with pytest.raises(ValueError, match="step_size must be"):
        solve(tools.silence(4, 2), GradientPlan(OneUniform(4), 3, 1.0, 1.0), step_size=step_size)


@pytest.mark.parametrize("step_size", [[0.1], [0.1] * 4, [[0.1] * 3], []])
def test_there_must_be_a_step_size_for_each_planned_step(tools, step_size):
    with pytest.raises(ValueError, match="one for each of 3 steps"):
        solve(tools.silence(4, 2), GradientPlan(OneUniform(4), 3, 1.0, 1.0), step_size=step_size)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_bad_delta_is_refused_before_any_noise_is_drawn(tools, delta):
    source, plan = Counting(), GradientPlan(OneUniform(10), 2, 1.0, 1.0)
    with pytest.raises(ValueError, match="delta"):
        random_round(tools.silence(10, 6), Run(replace(plan, delta=delta), source), step_size=0.5)
    assert not source.stds


def test_a_plan_for_another_table_is_refused_before_any_noise_is_drawn(tools):
    source = Counting()
    with pytest.raises(ValueError, match="n = 12 units, the data has 13"):
        solve(tools.silence(13, 3), GradientPlan(OneUniform(12), 5, 1.0, 1.0), source=source)
    assert not source.stds
