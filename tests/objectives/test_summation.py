"""Sums over records, compared with exact rational arithmetic, and allowances that do not depend on their number."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, Squared, summation
from privet.objectives.summation import MOST_ROWS, ROUNDING, PairwiseSum, block_length, total_of
from privet.plans import FullBatch, GradientPlan, Poisson, RecursivePlan
from privet.privacy import Adjacency, NoiseSource
from privet.solvers import (
    Problem,
    Run,
    hard_threshold,
    noisy_gradient_descent,
    random_round,
    recursive_momentum,
)

U = Fraction(1, 2**53)
FORMS = [np.ascontiguousarray, np.asfortranarray, sparse.csr_array]


# ------------------------------------------------------------------------------------------- nothing depends on n


@pytest.mark.parametrize("objective", [Logistic(), Huber(0.5)], ids=["logistic", "huber"])
def test_no_bound_depends_on_the_number_of_rows(objective):
    """Under add-or-remove adjacency the number of rows is private, and so is everything that reveals it."""
    seen = set()
    for n in (0, 1, 2, 1000, 70_000):
        rows = BoundedRows(np.zeros((n, 2)), 1.0, 0.2)
        centred = rows.centred(np.array([0.3, 0.4]))
        shrunk = rows.centred(np.array([0.3, 0.4]), 1.0)
        several = (rows, centred, shrunk, rows.columns(np.array([1]), 0.5), rows.take(np.arange(n // 2)))
        problem = Problem(objective, L2(0.1), rows, np.zeros(n))
        constants = [(each.norm_bound, each.rounding, each.weight_in_total, each.largest_norm) for each in several]
        seen.add((*constants, rows.centred_norm_bound, problem.lipschitz, problem.smoothness))
    assert len(seen) == 1


def test_the_clip_of_a_record_does_not_depend_on_the_number_of_others():
    X = np.array([[0.6, 0.8]])
    limits = {float(BoundedRows(np.repeat(X, n, axis=0), 1.0, 0.2).residual_limits(0.3)[0]) for n in (1, 2, 5, 70_000)}
    assert len(limits) == 1


def test_the_guarantee_of_a_run_with_poisson_batches_is_the_same_for_all_numbers_of_rows():
    texts = set()
    for n in (5, 6, 3000):
        problem = Problem(Logistic(), L2(0.1), BoundedRows(np.ones((n, 2)), 1.0, 0.2), np.zeros(n))
        plan = GradientPlan(Poisson(1.0), 2, problem.lipschitz, 3.0, public_n=1000, delta=1e-6)
        assert plan.adjacency is Adjacency.ADD_OR_REMOVE
        release = noisy_gradient_descent(problem, Run(plan, NoiseSource(1)), step_size=0.1)
        texts.add(str(release.guarantee) + repr(release.trace))
    assert len(texts) == 1


# --------------------------------------------------------------------------------------------- the promised accuracy


@pytest.mark.parametrize("stretch", [1.0, 4.0, 50.0, 1e9])
def test_the_errors_of_two_sums_stay_within_the_allowance_for_every_number_of_rows(stretch):
    """Each term of a block of B rows, m blocks in all, is rounded at most B + floor(log2 m) + 9 times."""
    allowance = ROUNDING * max(1.0, stretch / 4)
    for n in [1, 2, 3, *(2**k + j for k in range(2, 30) for j in (-1, 0, 1)), 10**6, 10**9, MOST_ROWS]:
        length = block_length(n, stretch, allowance)
        assert 1 <= length <= 32_768
        levels = math.floor(math.log2(-(-n // length))) + 1
        roundings = length + levels + 8
        per_term = roundings * U / (1 - roundings * U)
        assert 2 * n * per_term * Fraction(stretch) <= Fraction(allowance) * Fraction(995, 1000)


def test_up_to_sixteen_million_rows_blocks_have_their_full_length():
    assert block_length(16_000_000) == 32_768
    assert 400 < block_length(MOST_ROWS) < 500


def test_more_rows_than_the_allowance_covers_are_refused():
    with pytest.raises(ValueError, match=r"1073741825 rows.*at most 2\^30.*random sample"):
        BoundedRows(np.broadcast_to(0.0, (MOST_ROWS + 1, 1)), 1.0)


@pytest.mark.parametrize("m", [0, 1, 2, 3, 5, 8, 100, 1023])
def test_each_term_of_a_pairwise_sum_is_added_at_most_about_log2_times(m):
    """The depth of every term is counted by adding 1 to it at each addition."""

    class Depth:
        def __init__(self, depths):
            self.depths = depths

        def __add__(self, other):
            return Depth([depth + 1 for depth in self.depths + other.depths])

    running = PairwiseSum()
    for _ in range(m):
        running.add(Depth([0]))
    total = running.total()
    if m == 0:
        assert total == 0
    else:
        assert len(total.depths) == m
        assert max(total.depths) <= math.floor(math.log2(m)) + 1


def adversarial(rng, n, d, kind):
    """Return rows whose running sums cross powers of two, cancel, or differ in size by hundreds of digits."""
    if kind == "crossing":
        X = np.full((n, d), 1 - 2.0**-53)
        X[::3] = 2.0**-52 * 3
    elif kind == "sorted":
        X = np.sort(np.exp(rng.uniform(-60, 0, (n, d))), axis=0)
    elif kind == "cancelling":
        X = rng.standard_normal((n, d))
        X[1::2] = -X[: n // 2 * 2 : 2] * (1 + 2.0**-50)
    else:
        X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-300, 300, (n, 1))
    return X


def exact_sum(rows, X, coefficients, centre=None):
    """Return the sum of row times coefficient in rational numbers, for the factors with which rows are scaled down."""
    n, d = X.shape
    X = rows._X.toarray() if sparse.issparse(rows._X) else rows._X  # huge rows are scaled in the matrix itself
    factors = np.ones(n) if rows._factors is None else rows._factors
    shrinks = np.ones(n) if rows._shrinks is None else rows._shrinks
    centre = np.zeros(d) if centre is None else centre
    total = [Fraction(0)] * (d + 1)
    for i in range(n):
        c, f, s = (Fraction(float(each[i])) for each in (coefficients, factors, shrinks))
        for j in range(d):
            total[j] += c * s * (f * Fraction(float(X[i, j])) - Fraction(float(centre[j])))
        total[d] += c * Fraction(rows.intercept)
    return total, [abs(Fraction(float(c))) for c in coefficients]


@pytest.mark.parametrize("form", FORMS, ids=["C", "F", "csr"])
@pytest.mark.parametrize("kind", ["crossing", "sorted", "cancelling", "extreme"])
@pytest.mark.parametrize("is_centred", [False, True])
@pytest.mark.parametrize("length", [None, 7])
def test_computed_sums_err_by_less_than_the_bound_in_exact_arithmetic(monkeypatch, form, kind, is_centred, length):
    """The error is at most (roundings per term) u times the sum of the sizes of terms, as section 7 of the proofs says.

    Short blocks, as for a billion rows, are forced in half of the cases.
    """
    if length is not None:
        monkeypatch.setattr("privet.objectives.rows.block_length", lambda *_: length)
    for n in (1, 2, 61):
        rng = np.random.default_rng(n)
        X = adversarial(rng, n, 3, kind)
        rows = BoundedRows(form(X), 1.0, 0.25)
        centre = None
        if is_centred:
            centre = np.array([0.6, -0.7, 1e-9])
            rows = rows.centred(centre, 1.0)
        coefficients = np.clip(rng.standard_normal(n) * 100, -rows.residual_limits(1.0), rows.residual_limits(1.0))
        computed = rows.combine(coefficients)
        exact, sizes = exact_sum(rows, X, coefficients, centre)
        error = math.sqrt(float(sum((Fraction(float(a)) - b) ** 2 for a, b in zip(computed, exact, strict=True))))
        terms = (length or n) + math.log2(n) + 12
        reach = math.hypot(1.0 + (0.0 if centre is None else float(np.linalg.norm(centre))), 0.25)
        assert error <= 1.01 * terms * 2.0**-53 * float(sum(sizes)) * reach
        assert 2 * error <= rows.rounding  # of a clip of 1


@pytest.mark.parametrize("objective", [Logistic(), Squared(), Multinomial(3)], ids=["logistic", "squared", "softmax"])
@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_an_added_record_moves_computed_sums_by_no_more_than_the_clip(monkeypatch, objective, n):
    """The sums of neighbours are taken in blocks of different lengths, and both in blocks of a billion rows."""
    rng = np.random.default_rng(n)
    X = adversarial(rng, n + 1, 3, "crossing") * 3
    y = rng.integers(0, 2, n + 1)
    weights = rng.standard_normal(objective.start(4).shape)
    sums = []
    for number, length in ((n + 1, 5), (n, 64)):
        monkeypatch.setattr("privet.objectives.rows.block_length", lambda *_, length=length: length)
        rows = BoundedRows(X[:number], 1.0, 0.3)
        sums.append(objective.gradient_sum(weights, rows, y[:number], 0.4))
    assert np.linalg.norm(sums[0] - sums[1]) <= 0.4


def test_a_sum_of_numbers_is_exact_up_to_its_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(5000) * 10.0 ** rng.integers(-8, 8, 5000)
    exact = sum(map(Fraction, values.tolist()))
    monkeypatch.setattr(summation, "block_length", lambda *_: 4)
    sizes = float(np.abs(values).sum())
    assert abs(float(Fraction(total_of(values)) - exact)) <= 5 * 2.0**-53 * sizes
    assert total_of(np.zeros(0)) == 0


def test_no_rounding_makes_a_scaled_row_longer_than_the_bound():
    """Smoothness and stability rely on the bound itself, without room for rounding."""
    rng = np.random.default_rng(1)
    for d, form in ((1, np.asarray), (3, np.asarray), (500, np.asarray), (500, sparse.csr_array)):
        for scale in (1.0 + 1e-15, 3.0, 1e100, 1e300):
            X = scale * np.abs(rng.standard_normal((4, d))) / math.sqrt(d)
            rows = BoundedRows(form(X), 0.7)
            kept = rows._X.toarray() if sparse.issparse(rows._X) else rows._X
            factors = np.ones(4) if rows._factors is None else rows._factors
            for row, factor in zip(kept, factors, strict=True):
                square = sum(Fraction(float(x)) ** 2 for x in row) * Fraction(float(factor)) ** 2
                assert square <= Fraction(0.7) ** 2


# ---------------------------------------------------------------------------- records that move to another place


def placed(form, X, y, objective, weights, intercept, centre, clip_norm):
    """Return what each record contributes to a sum: its coefficients, factor and limit."""
    rows = BoundedRows(form(X), 1.0, intercept)
    if centre is not None:
        rows = rows.centred(centre, 1.0)
    rows = rows.take(slice(None), alone=True)
    coefficients = objective.bounded(objective.residuals(rows.scores(weights), y), rows, clip_norm)
    factors = np.ones(rows.n) if rows._factors is None else rows._factors
    shrinks = np.ones(rows.n) if rows._shrinks is None else rows._shrinks
    return coefficients, factors, shrinks, rows.residual_limits(clip_norm)


@pytest.mark.parametrize("form", FORMS, ids=["C", "F", "csr"])
@pytest.mark.parametrize("objective", [Logistic(), Squared(), Multinomial(3)], ids=["logistic", "squared", "softmax"])
@pytest.mark.parametrize("is_centred", [False, True])
def test_a_record_that_is_removed_changes_no_number_of_another_record(form, objective, is_centred):
    """Matrix products round the last rows in their own way, so that a plain product would change their scores."""
    rng = np.random.default_rng(3)
    for n, d in ((2, 3), (5, 1), (6, 2), (41, 20), (42, 50), (43, 101), (5000, 7)):
        X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-2, 3, (n, 1))
        y = rng.integers(0, 2, n)
        weights = 10 * rng.standard_normal(objective.start(d + 1).shape)
        centre = rng.standard_normal(d) / (2 * math.sqrt(d)) if is_centred else None
        fields = (objective, weights, 0.3, centre, 0.4)
        whole = placed(form, X, y, *fields)
        for removed in (1, 2, 3):
            fewer = placed(form, X[removed:], y[removed:], *fields)
            for before, after in zip(whole, fewer, strict=True):
                assert np.array_equal(before[removed:], after)


def test_scores_are_computed_alone_in_batches_of_every_size():
    rng = np.random.default_rng(4)
    rows = BoundedRows(rng.standard_normal((50, 20)), 1.0, 0.2)
    weights = rng.standard_normal((21, 3))
    whole = rows.take(slice(None), alone=True).scores(weights)
    assert whole == pytest.approx(rows.scores(weights), rel=1e-12, abs=1e-12)
    for size in (1, 2, 7, 49):
        batch = np.sort(rng.choice(50, size, replace=False))
        assert np.array_equal(rows.take(batch, alone=True).scores(weights), whole[batch])


@pytest.mark.parametrize("solver", ["noisy", "threshold", "round", "recursive"])
def test_solvers_compute_records_alone_under_add_or_remove_adjacency(monkeypatch, solver):
    asked, take = [], BoundedRows.take

    def watched(self, batch, *, alone=False):
        asked.append(alone)
        return take(self, batch, alone=alone)

    monkeypatch.setattr(BoundedRows, "take", watched)
    problem = Problem(Logistic(), L2(0.1), BoundedRows(np.ones((6, 2)), 1.0, 0.2), np.zeros(6))
    for sampler, adjacency, expected in ((Poisson(1.0), None, True), (FullBatch(), Adjacency.REPLACE_ONE, False)):
        asked.clear()
        gradient = GradientPlan(sampler, 3, 1.0, 3.0, adjacency, public_n=6, delta=1e-6)
        recursive = RecursivePlan(
            sampler, 3, 1.0, 0.5, refresh=0.5, noise_multiplier=3.0, adjacency=adjacency, public_n=6, delta=1e-6
        )
        source = NoiseSource(5)
        if solver == "noisy":
            noisy_gradient_descent(problem, Run(gradient, source), step_size=0.1)
        elif solver == "threshold":
            hard_threshold(problem, Run(gradient, source), n_nonzero=1, step_size=0.1)
        elif solver == "round":
            random_round(problem, Run(gradient, source), step_size=0.1)
        else:
            recursive_momentum(problem, Run(recursive, source))
        assert asked
        assert set(asked) == {expected}
