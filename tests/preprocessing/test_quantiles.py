import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import expit

from privet.plans import PlanError
from privet.preprocessing.bounds import Bounds
from privet.preprocessing.quantiles import QuantilePlan, Tally, _rank, quantile_pair
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.privacy.analyses.accounting import epsilon

DRAWS = 4000  # a sampler with twice the epsilon is noticed with a probability of 1 - 1e-7
LEVELS = (0.05, 0.25, 0.5, 0.6, 0.75)


def plan_of(resolution, query_epsilon=1.0, quantiles=(0.5,), d=1):
    return QuantilePlan(d, quantiles, resolution, query_epsilon)


def tally_of(places):
    return Tally(*np.unique(np.array(places), return_counts=True))


def probabilities(plan, places, q):
    """Return the probability of each place of the grid, as the plan would draw it."""
    starts, sizes, scores = plan.choices(tally_of(places), q)
    result = np.zeros(plan.resolution + 1)
    for start, size, score in zip(starts, sizes, scores, strict=True):
        result[start : start + size] += np.exp(plan.query_epsilon / 2 * (score - scores.max()))
    return result / result.sum()


def by_definition(plan, places, q):
    """Return the same from the definition, place by place."""
    weights = []
    for y in range(plan.resolution + 1):
        below, upto = sum(x < y for x in places), sum(x <= y for x in places)
        weights.append(math.exp(-plan.query_epsilon / 2 * max(0.0, below - q * len(places), q * len(places) - upto)))
    return np.array(weights) / sum(weights)


# ------------------------------------------------------------------------------------------------ the mechanism's law


@pytest.mark.parametrize("q", LEVELS)
@pytest.mark.parametrize(("n", "resolution"), [(1, 5), (2, 5), (3, 4), (4, 3), (3, 2)])
def test_probabilities_agree_with_the_definition_of_the_mechanism(n, resolution, q):
    plan = plan_of(resolution, 0.8)
    for places in itertools.combinations_with_replacement(range(resolution + 1), n):
        assert probabilities(plan, places, q) == pytest.approx(by_definition(plan, places, q), rel=1e-12)


@pytest.mark.parametrize("q", LEVELS)
@pytest.mark.parametrize("query_epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("n", "resolution"), [(1, 5), (2, 5), (3, 4)])
def test_probabilities_of_neighbouring_datasets_differ_by_at_most_the_query_epsilon(n, resolution, query_epsilon, q):
    plan = plan_of(resolution, query_epsilon)
    laws = {p: np.log(probabilities(plan, p, q)) for p in itertools.product(range(resolution + 1), repeat=n)}
    worst = 0.0
    for places, law in laws.items():
        for i, other in itertools.product(range(n), range(resolution + 1)):
            worst = max(worst, np.max(law - laws[(*places[:i], other, *places[i + 1 :])]))
    assert worst <= query_epsilon * (1 + 1e-12)
    assert worst >= 0.2 * query_epsilon


@pytest.mark.parametrize("query_epsilon", [0.1, 1.0, 4.0])
def test_the_epsilon_of_a_query_is_attained(query_epsilon):
    """The target lies above a place's rank and below that of all the rest, and a record crosses both."""
    plan = plan_of(5000, query_epsilon)
    one, other = (probabilities(plan, places, 0.5) for places in ([0, 1, 1], [1, 1, 5000]))
    worst = np.abs(np.log(one / other)).max()
    assert 0.97 * query_epsilon <= worst <= query_epsilon * (1 + 1e-12)


@pytest.mark.parametrize("places", [[0, 0, 9], [3], [2, 7], [5, 5, 5, 5], [0, 9], [1, 4, 4, 8, 9, 9]], ids=str)
@pytest.mark.parametrize("q", [0.25, 0.5])
def test_draws_follow_the_computed_probabilities(places, q):
    """Gaps, ties and ends alike: a correct sampler fails once in a million times, one with twice the epsilon always."""
    plan = plan_of(9, 2.0)
    tally, source = tally_of(places), NoiseSource(3)
    drawn = np.bincount([plan.draw(tally, q, source) for _ in range(DRAWS)], minlength=10)
    assert drawn.size == 10
    expected = by_definition(plan, places, q)
    assert stats.chisquare(drawn, DRAWS * expected).pvalue > 1e-6
    if np.ptp(expected):
        assert stats.chisquare(drawn, DRAWS * by_definition(plan_of(9, 4.0), places, q)).pvalue < 1e-6


@pytest.mark.parametrize("q", [0.05, 0.1, 1 / 3, 0.7, 1 - 1e-9])
@pytest.mark.parametrize("n", [1, 3, 1000, 10**6, 10**9 + 7])
def test_scores_are_exact_and_move_by_one(q, n):
    """A score is minus the distance of a number from an interval of integers, without any rounding."""
    half = n // 2
    target = Fraction(_rank(q, n))
    assert abs(target - Fraction(q) * n) <= Fraction(n, 2**50)
    for split in ([n], [half, n - half], [half + 1, n - half - 1], [1, n - 1]):
        counts = np.array([count for count in split if count])
        starts, _, scores = plan_of(9).choices(Tally(np.arange(counts.size), counts), q)
        for start, score in zip(starts.tolist(), scores, strict=True):
            below = int(counts[:start].sum())
            upto = int(counts[: start + 1].sum())
            assert Fraction(score) == -max(0, below - target, target - upto)


@pytest.mark.parametrize("query_epsilon", [1e-9, 0.1, 0.3, 1.0, 7.0, 1e6])
def test_the_scale_is_rounded_up(query_epsilon):
    scale = plan_of(9, query_epsilon).scale
    assert 2 <= Fraction(scale) * Fraction(query_epsilon) < 2 * (1 + Fraction(1, 2**51))


def test_the_runs_cover_the_grid_once():
    rng = np.random.default_rng(0)
    for _ in range(50):
        places = rng.integers(0, 30, rng.integers(1, 60))
        starts, sizes, _ = plan_of(29).choices(tally_of(places), 0.5)
        assert np.array_equal(
            np.concatenate([np.arange(a, a + m) for a, m in zip(starts, sizes, strict=True)]), range(30)
        )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_columns_are_tallied_on_the_grid(form):
    X = np.array([[0.0, -9.0], [0.0, 0.0], [2.5, 4.0], [0.0, 0.0]])
    bounds = Bounds(np.array([0.0, -1.0]), np.array([10.0, 1.0]))
    one, other = plan_of(4, d=2).tallies(form(X), bounds)
    assert (one.places.tolist(), one.counts.tolist()) == ([0, 1], [3, 1])
    assert (other.places.tolist(), other.counts.tolist()) == ([0, 2, 4], [1, 2, 1])


def test_a_sparse_column_without_zeros_counts_no_zeros():
    bounds = Bounds(np.array([-1.0]), np.array([1.0]))
    (tally,) = plan_of(4).tallies(sparse.csr_array([[1.0], [-1.0]]), bounds)
    assert (tally.places.tolist(), tally.counts.tolist()) == ([0, 4], [1, 1])


# ------------------------------------------------------------------------------------------------------ what is found


@pytest.mark.parametrize("value", [-1.0, -0.3, 0.0, 1.0])
def test_a_constant_column_is_found(value):
    plan = QuantilePlan(1, (0.25, 0.5, 0.75), 1 << 16, 0.5)
    found = plan.release(np.full((500, 1), value), Bounds(np.array([-1.0]), np.array([1.0])), NoiseSource(0))
    assert found.ravel() == pytest.approx(value, abs=2**-16)


@pytest.mark.parametrize("n", [1, 2])
def test_with_a_large_budget_quantiles_of_few_records_are_exact(n):
    X = np.array([[-0.5], [0.75]])[:n]
    low, high = QuantilePlan(1, (0.2, 0.8), 64, 1e4).release(X, Bounds(-np.ones(1), np.ones(1)), NoiseSource(0))
    assert low == -0.5
    assert high == X[-1]


def test_generous_bounds_cost_little():
    X = np.random.default_rng(0).lognormal(10, 0.5, size=(3000, 1))
    bounds = Bounds(np.zeros(1), np.full(1, 1e8))
    plan = QuantilePlan(1, (0.5,), 1 << 20, 0.1)
    found = [(plan.release(X, bounds, NoiseSource(seed)).item() + 1) / 2 * 1e8 for seed in range(20)]
    assert np.abs(np.log(found / np.median(X))).max() < 0.15


# ---------------------------------------------------------------------------------------------------------- the budget


def coins_delta(query_epsilon, k, total, tilt=0.0):
    """Return the exact delta, at a total epsilon, of k coins whose odds differ by a factor e^query_epsilon.

    No choice of that range is worse than some such coin; ``tilt`` says which.
    """
    p, q = expit(tilt + query_epsilon / 2), expit(tilt - query_epsilon / 2)
    heads = np.arange(k + 1)
    losses = heads * math.log(p / q) + (k - heads) * math.log((1 - p) / (1 - q))
    return float(np.sum(stats.binom.pmf(heads, k, p) * np.maximum(0.0, -np.expm1(total - losses))))


@pytest.mark.parametrize(
    ("d", "budget"), [(10, Budget(1.0, 1e-5)), (30, Budget(0.3, 1e-3)), (1, Budget(4.0, 1e-6))], ids=str
)
def test_the_query_epsilon_is_the_largest_within_the_budget(d, budget):
    plan = QuantilePlan.for_budget(budget, n_columns=d, quantiles=(0.25, 0.5, 0.75), resolution=64)
    assert plan.query_epsilon >= budget.epsilon / (3 * d) * (1 - 1e-9)
    total = plan.guarantee(budget.delta).epsilon
    assert total == epsilon(plan.event, Adjacency.REPLACE_ONE, budget.delta)
    assert 0.985 * budget.epsilon < total <= budget.epsilon
    for tilt in (-4, -1, -0.3, 0, 0.3, 1, 4):
        assert coins_delta(plan.query_epsilon, 3 * d, budget.epsilon, tilt) <= budget.delta
    if not plan.is_pure:  # Gaussian DP counts small coins sqrt(pi/2) times too dear, and a little for the few
        assert coins_delta(plan.query_epsilon * 1.4, 3 * d, budget.epsilon) > budget.delta


@pytest.mark.parametrize("total", [0.1, 1.0, 3.0, 1e6])
@pytest.mark.parametrize("d", [1, 7, 100])
def test_pure_and_huge_budgets_are_divided_evenly(total, d):
    plan = QuantilePlan.for_budget(Budget(total), n_columns=d, quantiles=(0.3, 0.7), resolution=64)
    assert plan.query_epsilon == pytest.approx(total / (2 * d), rel=1e-12)
    assert plan.guarantee(0.0).epsilon <= total
    huge = QuantilePlan.for_budget(Budget(1e6, 1e-6), n_columns=d, quantiles=(0.3, 0.7), resolution=64)
    assert huge.query_epsilon == pytest.approx(1e6 / (2 * d), rel=1e-12)


def test_one_query_takes_the_whole_budget():
    plan = QuantilePlan.for_budget(Budget(0.5, 1e-6), n_columns=1, quantiles=(0.5,), resolution=64)
    assert plan.query_epsilon == 0.5


def test_rows_with_another_number_of_columns_than_the_plan_are_refused():
    with pytest.raises(PlanError, match="accounts for 2 columns, but the rows have 3"):
        plan_of(4, d=2).release(np.zeros((5, 3)), Bounds(-np.ones(3), np.ones(3)), NoiseSource(0))


@pytest.mark.parametrize("quantiles", [(), (0.0,), (1.0, 0.5), (math.nan,)])
def test_impossible_quantiles_are_refused(quantiles):
    with pytest.raises(ValueError, match="quantiles must"):
        plan_of(4, quantiles=quantiles)


@pytest.mark.parametrize("pair", [(0.5,), (0.2, 0.4, 0.6), (0.7, 0.2), (0.3, 0.3), (0, 0.5), (0.5, 1), None, "ab", 0.5])
def test_a_quantile_pair_must_be_two_ascending_numbers(pair):
    with pytest.raises(ValueError, match="pair low < high"):
        quantile_pair(pair)
