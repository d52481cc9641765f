import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.objectives import BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared, TamedLogistic

KINDS = ["dense", "fortran", "csr"]
IDLE = math.inf  # a clip that never clips
LARGEST = np.finfo(np.float64).max


def record_gradients(objective, weights, rows, targets):
    """Return the gradients of the records, computed one after the other."""
    singles = (slice(i, i + 1) for i in range(rows.n))
    return np.array([objective.gradient_sum(weights, rows.take(one), targets[one], IDLE) for one in singles])


# ------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_gradient_is_the_derivative_of_the_loss(tools, objective, kind, intercept, dtype):
    weights, rows, targets = tools.problem(objective, intercept=intercept, dtype=dtype, kind=kind)
    weights, width = weights.astype(np.float64), 1e-6
    gradient = objective.gradient_sum(weights, rows, targets, IDLE) / rows.n
    assert gradient.shape == weights.shape
    for place in np.ndindex(weights.shape):
        nudge = np.zeros_like(weights)
        nudge[place] = width
        rise = objective.mean_loss(weights + nudge, rows, targets) - objective.mean_loss(weights - nudge, rows, targets)
        assert gradient[place] == pytest.approx(rise / (2 * width), abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 12])
@pytest.mark.parametrize("clip_norm", [1e-3, 0.3, IDLE])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_gradient_sums_agree_with_a_loop_over_the_records(tools, objective, kind, dtype, n, clip_norm, intercept):
    rng = np.random.default_rng(n)
    X = tools.draw_table(rng, n, 5).astype(dtype)
    X[-1] = X[0]  # a duplicate row, possibly with another target
    rows = BoundedRows(tools.as_kind(X, kind), 1.0, intercept)
    targets = tools.draw_targets(objective, rng, n, dtype)
    weights = 2 * rng.standard_normal(objective.start(rows.dimension).shape)
    total, room = np.zeros_like(weights), clip_norm / (1 + rows.rounding)
    for features, target in zip(X.astype(np.float64), targets, strict=True):
        row = features / max(1.0, np.linalg.norm(features))
        row = np.append(row, intercept) if intercept else row
        residual = objective.residuals((row @ weights)[None], np.array([target]))[0]
        gradient = np.multiply.outer(row, residual)
        total += gradient * min(1.0, room / max(np.linalg.norm(gradient), 1e-300))
    assert objective.gradient_sum(weights, rows, targets, clip_norm) == pytest.approx(total, rel=1e-9, abs=1e-11)


def test_an_empty_batch_sums_to_zero(tools, objective):
    for kind in KINDS:
        weights, rows, targets = tools.problem(objective, kind=kind)
        nobody = np.empty(0, dtype=np.int64)
        for clip_norm in (0.1, IDLE):
            total = objective.gradient_sum(weights, rows.take(nobody), targets[nobody], clip_norm)
            assert total.shape == weights.shape
            assert (total == 0).all()


def test_scores_and_targets_are_not_changed(tools, objective):
    rng = np.random.default_rng(1)
    for order in "CF":
        scores = np.array(tools.draw_scores(objective, rng, 20, 3.0), order=order)
        targets = tools.draw_targets(objective, rng, 20)
        before = scores.copy(), targets.copy()
        objective.loss(scores, targets)
        objective.residuals(scores, targets)
        assert np.array_equal(scores, before[0])
        assert np.array_equal(targets, before[1])


@pytest.mark.parametrize("clip_norm", [0.1, IDLE])
def test_a_sparse_matrix_is_never_densified(tools, objective, clip_norm, no_dense):
    weights, rows, targets = tools.problem(objective, kind="csr")
    for batch in (slice(None), slice(2, 9), np.array([0, 3, 11])):
        part = rows.take(batch)
        assert np.isfinite(objective.gradient_sum(weights, part, targets[batch], clip_norm)).all()
        assert np.isfinite(objective.mean_loss(weights, part, targets[batch]))


# ---------------------------------------------------------------------------------------------------- the constants


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_gradient_exceeds_the_lipschitz_constant_and_a_confident_mistake_attains_it(
    tools, objective, intercept, dtype
):
    bound = objective.lipschitz(math.hypot(1.0, intercept))
    for seed in range(20):
        weights, rows, targets = tools.problem(objective, n=30, dtype=dtype, intercept=intercept, seed=seed)
        singles = record_gradients(objective, 50 * weights, rows, targets)
        assert np.linalg.norm(singles.reshape(rows.n, -1), axis=1).max() <= bound * (1 + 1e-9)
    rows = BoundedRows(np.array([[1e3]], dtype=dtype), 1.0, intercept)
    weights = objective.start(rows.dimension)
    weights[0] = [100.0] + [0.0] * (weights.shape[1] - 1) if weights.ndim == 2 else 100.0
    wrong = np.array([1]) if weights.ndim == 2 else np.zeros(1, dtype)
    attained = np.linalg.norm(objective.gradient_sum(weights, rows, wrong, IDLE))
    if math.isinf(bound):
        assert attained == pytest.approx(100 * math.hypot(1.0, intercept))  # it grows with the weights without a limit
    else:
        assert bound * (1 - 1e-9) < attained <= bound * (1 + 1e-9)


PAIRS = st.tuples(
    st.lists(st.floats(-50, 50), min_size=4, max_size=4),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
)


@settings(max_examples=200, deadline=None)
@given(PAIRS, st.floats(-5, 5))
@pytest.mark.parametrize(
    "objective",
    [Logistic(), TamedLogistic(), SmoothedHinge(), SmoothedHinge(0.01), Huber(0.7), Squared(), Multinomial(4)],
    ids=lambda objective: type(objective).__name__,
)
def test_residuals_rise_with_the_scores_and_no_faster_than_the_curvature_bound(objective, pair, target):
    first, change, scale = (np.asarray(part) for part in pair)
    k = getattr(objective, "n_classes", 1)
    y = np.array([target]) if isinstance(objective, Huber | Squared) else np.array([int(target > 0)])
    scores = [each[:1] if k == 1 else each[None] for each in (first, first + scale * change)]
    step = np.ravel(scores[1] - scores[0])
    rise = np.ravel(objective.residuals(scores[1], y) - objective.residuals(scores[0], y))
    assert rise @ step >= -1e-12 * np.linalg.norm(step)  # convex
    assert rise @ rise <= objective.curvature_bound * (rise @ step) + 1e-12  # and smooth: co-coercive


def test_the_curvature_bound_is_attained(tools, objective):
    rng = np.random.default_rng(3)
    k, width = tools.n_outputs(objective), 1e-3
    even = [0.0, 0.0, -40.0, -40.0][:k]  # two classes with probability one half, the others with zero
    places = 0.0 if k > 1 else np.append(rng.uniform(-3, 3, 1999), -width)  # just below the corner of a tamed loss
    scores = np.tile(even, (2000, 1)) if k > 1 else places
    targets = np.zeros(2000, int)
    along = np.array([1.0, -1.0, 0.0, 0.0][:k]) / math.sqrt(2) if k > 1 else 1.0
    rises = objective.residuals(scores + width * along, targets) - objective.residuals(scores - width * along, targets)
    fastest = np.abs(rises @ along if k > 1 else rises).max() / (2 * width)
    assert 0.999 * objective.curvature_bound <= fastest <= objective.curvature_bound * (1 + 1e-9)


@pytest.mark.parametrize("intercept", [0.0, 2.0])
def test_no_gradient_exceeds_the_smoothness_and_one_along_its_row_attains_it(tools, objective, intercept):
    rng = np.random.default_rng(4)
    row_norm, most = 3.0, 0.0
    beta = objective.smoothness(math.hypot(row_norm, intercept))
    assert beta == pytest.approx((row_norm**2 + intercept**2) * objective.curvature_bound)
    for _ in range(400):
        rows = BoundedRows(100 * rng.standard_normal((1, 2)), row_norm, intercept)
        row = rows.combine(np.ones(1))
        targets = tools.draw_targets(objective, rng, 1)
        output = np.array([1.0, -1.0, 0, 0])[: tools.n_outputs(objective)]
        along = row if output.size == 1 else np.outer(row, output)
        v = rng.uniform(-1, 1) * along / 9 + rng.choice([0.0, 0.01]) * rng.standard_normal(along.shape)
        if output.size > 2:
            v[:, 2:] = -10 * row[:, None]
        w = v + 1e-3 * along + rng.choice([0.0, 1e-3]) * rng.standard_normal(along.shape)
        slopes = [objective.gradient_sum(each, rows, targets, IDLE) for each in (v, w)]
        most = max(most, np.linalg.norm(slopes[1] - slopes[0]) / np.linalg.norm(w - v))
    assert 0.98 * beta <= most <= beta * (1 + 1e-9)


def test_the_first_residual_from_zero_is_bounded_and_the_bound_attained(tools, objective):
    rng = np.random.default_rng(5)
    scores, targets = (
        np.zeros_like(tools.draw_scores(objective, rng, 100, 1.0)),
        tools.draw_targets(objective, rng, 100),
    )
    if isinstance(objective, Squared):
        targets *= 1e150
    sizes = np.linalg.norm(objective.residuals(scores, targets).reshape(100, -1), axis=1)
    bound = objective.start_residual_bound
    assert sizes.max() <= bound * (1 + 1e-12)
    assert sizes.max() >= min(bound, 1e150) * (1 - 1e-12)
    assert bound <= objective.residual_bound


def test_the_start_residual_bound_is_the_residual_bound_by_default():
    assert Huber(0.7).start_residual_bound == 0.7
    assert "start_residual_bound" not in vars(Huber)


# --------------------------------------------------------------------------------------------------- at the extremes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e30])
@pytest.mark.parametrize("clip_norm", [0.1, IDLE])
def test_extreme_weights_neither_overflow_nor_turn_into_nan(tools, objective, dtype, size, clip_norm):
    weights, rows, targets = tools.problem(objective, dtype=dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        total = objective.gradient_sum(weights * dtype(size), rows, targets, clip_norm)
        loss = objective.mean_loss(weights * dtype(size), rows, targets)
    assert np.isfinite(total).all()
    assert np.isfinite(loss)
    assert np.linalg.norm(total) <= rows.n * min(clip_norm, objective.lipschitz(rows.norm_bound))


@pytest.mark.parametrize("size", [1e150, 1e200, LARGEST])
def test_the_largest_scores_give_bounded_residuals_and_losses_without_nan(tools, objective, size):
    rng = np.random.default_rng(6)
    signs = np.sign(tools.draw_scores(objective, rng, 200, 1.0))
    scores, targets = size * signs, tools.draw_targets(objective, rng, 200)
    if isinstance(objective, Huber | Squared):
        targets[:100] = size * rng.choice([-1.0, 1.0], 100)
    with np.errstate(all="raise", under="ignore"):
        residuals, losses = objective.residuals(scores, targets), objective.loss(scores, targets)
    assert not np.isnan(residuals).any()
    assert (losses >= 0).all()  # infinite at worst
    if math.isfinite(objective.residual_bound):
        assert np.linalg.norm(residuals.reshape(200, -1), axis=1).max() <= objective.residual_bound * (1 + 1e-12)


@pytest.mark.parametrize("clip_norm", [0.2, IDLE])
@pytest.mark.parametrize("extreme", [1e308, 1e150, 1e-310, 0.0])
def test_neighbouring_sums_lie_within_twice_the_bound(tools, objective, clip_norm, extreme):
    """Replace one record by the worst that fits into a float: the sum moves by at most 2 min(clip, lipschitz)."""
    rng = np.random.default_rng(7)
    farthest = 0.0
    for _ in range(40):
        X = rng.standard_normal((3, 4)) * rng.choice([1.0, 100.0])
        weights = rng.choice([1.0, 50.0]) * rng.standard_normal(objective.start(5).shape)
        targets = tools.draw_targets(objective, rng, 3)
        sums = []
        for row, label in ((X[0], 0), (extreme * rng.choice([-1.0, 1.0], 4), 1), (-X[0], 1)):
            changed = X.copy()
            changed[0], targets[0] = row, label
            rows = BoundedRows(changed, 1.0, 0.5)
            sums.append(objective.gradient_sum(weights, rows, targets, clip_norm))
        bound = 2 * min(clip_norm, objective.lipschitz(rows.norm_bound))
        farthest = max(farthest, *(float(np.linalg.norm(a - b)) for a in sums for b in sums))
    assert min(0.5 * bound, 50.0) < farthest <= bound


# Replacing the first of a million records moves an exact sum by at most twice the Lipschitz constant. In float32, a
# running sum may cross a power of two in one table only, and then round every later record differently.
CROSSING = 1 << 18


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "later"), [(1, 0.03), (8, 0.03), (8, 0.00375)])
def test_rounding_in_single_precision_keeps_within_the_sensitivity(tools, kind, d, later):
    head = tail = 2 * CROSSING
    X = np.zeros((head + 1 + tail, d), dtype=np.float32)
    X[: head + 1, 0], X[head + 1 :, 0] = 1.0, later
    labels = np.repeat(np.array([0, 1], dtype=np.float32), [head + 1, tail])
    rows = BoundedRows(tools.as_kind(X, kind), 1.0)
    sums = []
    for first in (0, 1):
        labels[0] = first
        sums.append(Logistic().gradient_sum(np.zeros(d, np.float32), rows, labels, 1.0).astype(np.float64))
    assert np.linalg.norm(sums[0] - sums[1]) <= 2.0


def test_rounding_of_the_intercepts_keeps_within_the_sensitivity():
    objective, weights = Multinomial(3), np.array([[100.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32)
    nearly_sure = math.log(2 * 0.985 / 0.015) / 100  # where class 0 has probability .985
    column = np.concatenate([np.ones(CROSSING), [math.log(2) / 100], np.full(2 * CROSSING, nearly_sure)])
    labels = np.concatenate([np.ones(CROSSING + 1, int), np.zeros(2 * CROSSING, int)])
    rows = BoundedRows(column.astype(np.float32)[:, None], 1.0, 1.0)
    sums = []
    for first in (0, 1):
        labels[0] = first
        sums.append(objective.gradient_sum(weights, rows, labels, IDLE).astype(np.float64))
    assert np.linalg.norm(sums[0] - sums[1]) <= 2 * objective.lipschitz(rows.norm_bound)


def moved(first, second, labels):
    """Return how far the gradient sum at zero moves between two matrices, over the claimed bound."""
    sums, bounds = [], []
    for X, y in zip((first, second), labels, strict=True):
        rows = BoundedRows(X, 1.0, 0.5)
        sums.append(Logistic().gradient_sum(np.zeros(X.shape[1] + 1), rows, y, IDLE))
        bounds.append(Logistic().lipschitz(rows.norm_bound))
    return np.linalg.norm(sums[0] - sums[1]) / max(bounds)


@pytest.mark.parametrize("intruder", [1.0, 3e38])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_huge_record_does_not_make_the_others_round_differently(order, intruder):
    n = 300_000
    X = np.full((n, 4), 0.3, dtype=np.float32, order=order)
    changed = X.copy(order="K")
    changed[0] = intruder
    labels = np.zeros(n)
    assert moved(X, changed, (labels, labels)) <= 2.0


def test_an_additional_record_that_shifts_every_block_moves_the_sum_by_at_most_its_bound():
    n = 300_000
    X = np.full((n, 4), 0.3, dtype=np.float32)
    longer = np.concatenate([np.full((1, 4), 0.5, dtype=np.float32), X])
    assert moved(X, longer, (np.zeros(n), np.zeros(n + 1))) <= 1.0
