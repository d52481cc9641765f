import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.optimize import brentq

from privet.plans import OutputPlan
from privet.preprocessing import moments
from privet.preprocessing.bounds import Bounds
from privet.preprocessing.moments import SQUARE_WEIGHT, MomentStability, moment_vector, noise_std, noisy_moments
from privet.privacy import Budget, NoiseSource

# Both bounds, beyond them, zero, ties, and the pair (1, 2 - sqrt(5)) at which squares and entries balance.
EXTREMES = [-2.0, -1.0, 2 - math.sqrt(5), -1e-9, 0.0, math.sqrt(5) - 2, 0.5, 1.0, 1e9]


def bounds_of(d, lower=-1.0, upper=1.0):
    return Bounds(np.full(d, lower), np.full(d, upper))


# ------------------------------------------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2)])
def test_replacing_a_record_attains_the_sensitivity_and_never_exceeds_it(n, d):
    records = list(itertools.product(EXTREMES if d == 1 else EXTREMES[1::2], repeat=d))
    claim, bounds = MomentStability(n, d).sensitivity, bounds_of(d)
    others = [np.array(rest).reshape(n - 1, d) for rest in itertools.combinations_with_replacement(records[::3], n - 1)]
    furthest = 0.0
    for rest in others:
        vectors = np.array([moment_vector(np.vstack([rest, [record]]), bounds) for record in records])
        furthest = max(furthest, np.linalg.norm(vectors[:, None] - vectors[None], axis=2).max())
    assert furthest <= claim
    assert furthest >= 0.9999999 * claim


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    st.lists(st.floats(-1, 1), min_size=3, max_size=3),
)
def test_no_pair_of_neighbouring_datasets_exceeds_the_sensitivity(common, one, other):
    pair = [moment_vector(np.array([common, record]), bounds_of(3)) for record in (one, other)]
    assert np.linalg.norm(pair[0] - pair[1]) <= MomentStability(2, 3).sensitivity


def test_the_weight_of_the_squares_is_the_largest_that_costs_nothing():
    """The largest move over a fine grid of pairs is 2 with this weight and more with a slightly larger one."""
    u = np.linspace(-1, 1, 2001)

    def largest(weight):
        return np.hypot(u[:, None] - u, weight * (u[:, None] ** 2 - u**2)).max()

    assert largest(0.0) == largest(1.0) == 2.0
    assert largest(SQUARE_WEIGHT) == pytest.approx(2.0, abs=1e-12)
    assert largest(SQUARE_WEIGHT * 1.01) > 2.001
    s = 3 - math.sqrt(5)  # where the weight is exactly used up
    assert (2 - s) ** 2 * (1 + SQUARE_WEIGHT**2 * s**2) == pytest.approx(4.0, abs=1e-12)
    assert math.isclose(SQUARE_WEIGHT**2, (11 + 5 * math.sqrt(5)) / 8)


@pytest.mark.parametrize("n", [1, 2, 3, 2**20 + 1, 2**31 - 1, 2**32])
def test_the_rounding_of_means_is_part_of_the_sensitivity(n, monkeypatch):
    """Sums of neighbours near every power of two, and their computed means, in exact arithmetic."""
    unit = 2**30
    claim = Fraction(MomentStability(n, 1).sensitivity)
    X = np.broadcast_to(0.0, (n, 1))
    for size in {0, 1, n * unit, *(2**k + j for k in range(20, 62) for j in (-1, 0, 1) if 2**k < n * unit)}:
        square = min(size, n * unit)
        vectors = []
        for entry in (size - 2 * unit, size):  # one entry moves from one bound to the other, and its square stays
            monkeypatch.setattr(moments, "_dense_sums", lambda *_, e=entry, q=square: np.array([[e], [q]]))
            vectors.append([Fraction(float(value)) for value in moment_vector(X, bounds_of(1))])
        assert sum((a - b) ** 2 for a, b in zip(*vectors, strict=True)) <= claim**2


@pytest.mark.parametrize("order", [1, -1])
def test_sums_are_exact_in_any_order(order):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=100_000) * 1e-6, np.full(1000, 0.7), rng.uniform(-1, 1, 1000)])[:, None]
    whole = moment_vector(X, bounds_of(1))
    assert np.array_equal(moment_vector(np.sort(X, axis=0)[::order], bounds_of(1)), whole)
    assert whole[0] == pytest.approx(X.mean(), abs=1e-9)
    assert whole[1] == pytest.approx(SQUARE_WEIGHT * (X**2).mean(), abs=2e-9)


def test_the_block_size_does_not_change_the_sums(rows, monkeypatch):
    bounds = bounds_of(3, -4, 4)
    X = sparse.csr_array(rows * (np.abs(rows) > 1))
    whole = moment_vector(rows, bounds), moment_vector(X, bounds)
    monkeypatch.setattr(moments, "_BLOCK_ENTRIES", 7)
    assert np.array_equal(moment_vector(rows, bounds), whole[0])
    assert np.array_equal(moment_vector(X, bounds), whole[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_and_dense_rows_have_the_same_moments(rows, dtype):
    X = (rows * (np.abs(rows) > 1)).astype(dtype)
    bounds = Bounds(np.array([-1.0, 0.0, -3.0]), np.array([2.0, 5.0, 0.5]))
    assert np.array_equal(moment_vector(sparse.csr_array(X), bounds), moment_vector(X, bounds))


def test_the_vector_holds_means_and_weighted_second_moments(rows):
    u = np.clip((rows - 1) / 3, -1, 1)
    expected = np.concatenate([u.mean(axis=0), SQUARE_WEIGHT * (u**2).mean(axis=0)])
    assert moment_vector(rows, bounds_of(3, -2, 4)) == pytest.approx(expected, abs=3e-9)


# -------------------------------------------------------------------------------------------------------- the noise


@pytest.mark.parametrize(
    ("n", "d", "epsilon", "delta"), [(100, 3, 1.0, 1e-5), (7, 1, 0.1, 1e-3), (10**6, 30, 8.0, 1e-9)]
)
def test_gaussian_noise_against_an_independent_calculation(n, d, epsilon, delta):
    def excess(sigma):
        mu = 2 * math.sqrt(d) / n / sigma
        tails = stats.norm.cdf(mu / 2 - epsilon / mu), stats.norm.cdf(-mu / 2 - epsilon / mu)
        return tails[0] - math.exp(epsilon) * tails[1] - delta

    least = brentq(excess, 2 * math.sqrt(d) / n / 50, 2 * math.sqrt(d) / n * 1e3, xtol=1e-16, rtol=1e-12)
    plan = OutputPlan.for_budget(Budget(epsilon, delta), stability=MomentStability(n, d))
    assert least <= plan.scale <= least * (1 + 1e-5)
    assert noise_std(plan, 2 * d) == plan.scale


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), Budget(1.0)], ids=str)
def test_the_noise_that_is_drawn_has_the_stated_size(budget):
    plan = OutputPlan.for_budget(budget, stability=MomentStability(5000, 40))
    vector = np.zeros(80)
    source = NoiseSource(0)
    drawn = np.concatenate([plan.noisy(vector, source) for _ in range(400)])
    assert drawn.std() == pytest.approx(noise_std(plan, 80), rel=0.03)
    if budget.is_pure:
        assert plan.scale == pytest.approx(2 * math.sqrt(40) / 5000, rel=1e-6)


def test_the_noise_in_a_variance_has_the_declared_size():
    X = np.full((2000, 50), -0.6)
    X[::2] = -0.2
    plan = OutputPlan.for_budget(Budget(5.0, 1e-5), stability=MomentStability(*X.shape))
    mean, variance, noise = (
        np.array(part)
        for part in zip(*(noisy_moments(X, bounds_of(50), plan, NoiseSource(seed)) for seed in range(40)), strict=True)
    )
    assert mean.mean() == pytest.approx(-0.4, abs=0.01)
    assert variance.mean() == pytest.approx(0.04, abs=0.005)
    assert variance.std() == pytest.approx(noise.mean(), rel=0.05)


def test_too_many_rows_for_the_sums_are_refused():
    with pytest.raises(ValueError, match="64 bits"):
        MomentStability(2**32 + 1, 1)
    with pytest.raises(ValueError, match="n must"):
        MomentStability(0, 1)
    assert MomentStability(2**32, 1).sensitivity == pytest.approx(2.0**-31, rel=1e-5)
