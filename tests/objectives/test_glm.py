import math

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax

from privet.objectives import BoundedRows, Logistic, Multinomial

OBJECTIVES = [Logistic(), Multinomial(2), Multinomial(4)]
KINDS = ["dense", "fortran", "csr"]
IDLE = 1e9  # a clip that never clips


def name_of(objective):
    return f"{type(objective).__name__}{getattr(objective, 'n_classes', '')}"


@pytest.fixture(params=OBJECTIVES, ids=name_of)
def objective(request):
    return request.param


def as_kind(X, kind):
    return {"dense": np.ascontiguousarray, "fortran": np.asfortranarray, "csr": sparse.csr_array}[kind](X)


def problem(objective, *, n=12, d=5, intercept=0.5, dtype=np.float64, kind="dense", seed=0):
    """Return weights, rows (some outside the ball, one zero) and targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.choice([0.05, 0.4, 3.0], (n, 1))
    X[X > 2] = 0.0
    X[1] = 0.0
    rows = BoundedRows(as_kind(X.astype(dtype), kind), 1.0, intercept)
    start = objective.start(rows.dimension)
    weights = (2 * rng.standard_normal(start.shape)).astype(dtype)
    targets = rng.integers(start.shape[1], size=n) if start.ndim == 2 else rng.integers(2, size=n).astype(dtype)
    return weights, rows, targets


def record_gradients(objective, weights, rows, targets):
    """Return the gradient of each record on its own, one after the other."""
    singles = (slice(i, i + 1) for i in range(rows.n))
    return np.array([objective.gradient_sum(weights, rows.take(one), targets[one], IDLE) for one in singles])


def losses_at(objective, scores, target):
    scores = np.atleast_2d(scores) if isinstance(objective, Multinomial) else np.atleast_1d(scores)
    return objective.loss(scores, np.array([target]))[0]


# ------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize(("dtype", "width", "tolerance"), [(np.float64, 1e-6, 1e-7), (np.float32, 3e-2, 2e-3)])
def test_the_gradient_is_the_derivative_of_the_loss(objective, kind, intercept, dtype, width, tolerance):
    weights, rows, targets = problem(objective, intercept=intercept, dtype=dtype, kind=kind)
    gradient = objective.gradient_sum(weights, rows, targets, IDLE) / rows.n
    assert gradient.shape == weights.shape
    for place in np.ndindex(weights.shape):
        nudge = np.zeros_like(weights)
        nudge[place] = width
        rise = objective.mean_loss(weights + nudge, rows, targets) - objective.mean_loss(weights - nudge, rows, targets)
        assert gradient[place] == pytest.approx(rise / (2 * width), abs=tolerance)


def test_the_losses_are_negative_log_likelihoods():
    scores, wide = np.array([-3.0, 0.0, 2.5]), np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]])
    for target in (0, 1):
        likelihood = expit(scores) if target else 1 - expit(scores)
        assert Logistic().loss(scores, np.full(3, target)) == pytest.approx(-np.log(likelihood))
    targets = np.array([2, 0])
    likelihood = softmax(wide, axis=1)[[0, 1], targets]
    assert Multinomial(3).loss(wide, targets) == pytest.approx(-np.log(likelihood))


def test_two_classes_are_logistic_in_the_difference_of_scores():
    scores, targets = np.array([[0.3, -1.2], [2.0, 2.5]]), np.array([0, 1])
    difference = scores[:, 1] - scores[:, 0]
    assert Multinomial(2).loss(scores, targets) == pytest.approx(Logistic().loss(difference, targets))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip_norm", [1e-3, 0.3, 0.9])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_clipping_is_the_sum_of_clipped_records(objective, kind, dtype, clip_norm, intercept):
    weights, rows, targets = problem(objective, dtype=dtype, kind=kind, intercept=intercept)
    singles = record_gradients(objective, weights, rows, targets).astype(np.float64)
    norms = np.linalg.norm(singles.reshape(rows.n, -1), axis=1)
    assert (norms > clip_norm).any()
    room = clip_norm / (1 + rows.rounding)
    factors = np.minimum(1, room / np.maximum(norms, 1e-300))
    clipped = np.tensordot(factors, singles, axes=1)
    total = objective.gradient_sum(weights, rows, targets, clip_norm)
    assert total == pytest.approx(clipped, abs=1e-12 if dtype == np.float64 else 1e-5)


def test_an_empty_batch_sums_to_zero(objective):
    for kind in KINDS:
        weights, rows, targets = problem(objective, kind=kind)
        nobody = np.empty(0, dtype=np.int64)
        for clip_norm in (0.1, IDLE):
            total = objective.gradient_sum(weights, rows.take(nobody), targets[nobody], clip_norm)
            assert total.shape == weights.shape
            assert (total == 0).all()


# ---------------------------------------------------------------------------------------------------- the constants


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_record_exceeds_the_lipschitz_constant_and_a_sure_mistake_attains_it(objective, intercept, dtype):
    bound = objective.lipschitz(math.hypot(1.0, intercept))
    for seed in range(20):
        weights, rows, targets = problem(objective, n=30, dtype=dtype, intercept=intercept, seed=seed)
        singles = record_gradients(objective, 50 * weights, rows, targets).astype(np.float64)
        assert np.linalg.norm(singles.reshape(rows.n, -1), axis=1).max() <= bound * (1 + 1e-6)
    rows = BoundedRows(np.array([[1e3]], dtype=dtype), 1.0, intercept)
    weights = objective.start(rows.dimension).astype(dtype)
    weights[0] = [100.0] + [0.0] * (weights.shape[1] - 1) if weights.ndim == 2 else 100.0
    wrong = np.array([1]) if weights.ndim == 2 else np.zeros(1, dtype)
    attained = np.linalg.norm(objective.gradient_sum(weights, rows, wrong, IDLE))
    assert bound * (1 - 1e-5) < attained <= bound * (1 + 1e-6)


def test_no_curvature_exceeds_the_smoothness_and_an_even_choice_attains_it(objective):
    def curvature(scores, target, width=1e-4):
        k = scores.size
        steps = width * np.eye(k)
        hessian = np.empty((k, k))
        for i, j in np.ndindex(k, k):
            corners = [
                sign * losses_at(objective, scores + a * steps[i] + b * steps[j], target)
                for a, b, sign in [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]
            ]
            hessian[i, j] = sum(corners) / (4 * width**2)
        return np.linalg.eigvalsh(hessian).max()

    k = getattr(objective, "n_classes", 1)
    rng = np.random.default_rng(3)
    curvatures = [curvature(scale * rng.standard_normal(k), 0) for scale in (0.1, 1, 5) for _ in range(30)]
    assert max(curvatures) <= objective.curvature_bound + 1e-6
    even = np.array([0.0, 0.0, -40.0, -40.0])[:k]  # two classes at one half, the others out
    assert curvature(even, 0) == pytest.approx(objective.curvature_bound, abs=1e-5)
    assert objective.smoothness(3.0) == pytest.approx(9 * objective.curvature_bound)


# --------------------------------------------------------------------------------------------------- at the extremes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e30])
def test_extreme_scores_neither_overflow_nor_turn_into_nan(objective, dtype, size):
    weights, rows, targets = problem(objective, dtype=dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        total = objective.gradient_sum(weights * dtype(size), rows, targets, IDLE)
        loss = objective.mean_loss(weights * dtype(size), rows, targets)
    assert np.isfinite(total).all()
    assert np.isfinite(loss)
    assert np.linalg.norm(total) <= rows.n * objective.lipschitz(rows.norm_bound) * (1 + 1e-6)


@pytest.mark.parametrize("clip_norm", [0.2, IDLE])
@pytest.mark.parametrize("extreme", [1e308, 1e150, 1e-310, 0.0])
def test_neighbouring_sums_lie_within_twice_the_bound(objective, clip_norm, extreme):
    """Replace one record by the worst that fits into a float: the sum moves by at most 2 min(clip, lipschitz)."""
    rng = np.random.default_rng(7)
    bound = 2 * min(clip_norm, objective.lipschitz(math.hypot(1.0, 0.5)))
    farthest = 0.0
    for _ in range(40):
        X = rng.standard_normal((3, 4)) * rng.choice([1.0, 100.0])
        weights = rng.choice([1.0, 50.0]) * rng.standard_normal(objective.start(5).shape)
        targets = rng.integers(2, size=3)
        sums = []
        for row, label in ((X[0], 0), (extreme * rng.choice([-1.0, 1.0], 4), 1), (-X[0], 1)):
            changed = X.copy()
            changed[0], targets[0] = row, label
            sums.append(objective.gradient_sum(weights, BoundedRows(changed, 1.0, 0.5), targets, clip_norm))
        farthest = max(farthest, *(float(np.linalg.norm(a - b)) for a in sums for b in sums))
    assert 0.5 * bound < farthest <= bound * (1 + 1e-9)


# Replacing the first of a million records moves an exact sum by at most twice the Lipschitz constant. In float32 a
# running sum can cross a power of two on one side only, and from there on round every later record another way.
CROSSING = 1 << 18


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "later"), [(1, 0.03), (8, 0.03), (8, 0.00375)])
def test_rounding_in_single_precision_keeps_within_the_sensitivity(kind, d, later):
    head = tail = 2 * CROSSING
    X = np.zeros((head + 1 + tail, d), dtype=np.float32)
    X[: head + 1, 0], X[head + 1 :, 0] = 1.0, later
    labels = np.repeat(np.array([0, 1], dtype=np.float32), [head + 1, tail])
    rows = BoundedRows(as_kind(X, kind), 1.0)
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


def test_a_record_more_shifts_every_block_and_moves_the_sum_by_no_more_than_its_bound():
    n = 300_000
    X = np.full((n, 4), 0.3, dtype=np.float32)
    longer = np.concatenate([np.full((1, 4), 0.5, dtype=np.float32), X])
    assert moved(X, longer, (np.zeros(n), np.zeros(n + 1))) <= 1.0


def test_the_room_for_rounding_grows_with_the_number_of_rows_and_stays_small():
    rooms = [BoundedRows(np.zeros((n, 1)), 1.0).rounding for n in (10, 10**4, 10**6)]
    assert rooms == sorted(rooms)
    assert 0 < rooms[0] < rooms[-1] < 1e-4
