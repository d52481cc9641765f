import numpy as np
import pytest

from privet.objectives import L2, BoundedRows, SaturatingPenalty
from privet.plans import FullBatch, GradientPlan
from privet.privacy import Adjacency, NoiseSource
from privet.solvers.base.centring import (
    UncentredPenalty,
    _in_ball,
    centred_anywhere,
    check_centrable,
    noisy_centre,
    uncentred,
)

ROWS = BoundedRows(np.random.default_rng(0).standard_normal((5, 3)), 2.0, 0.4)
CENTRES = [np.zeros(3), np.array([0.5, -1.0, 0.3]), np.array([0.0, 2.0, 0.0])]
SHAPES = [(4,), (4, 3)]


def drawn(shape):
    return np.random.default_rng(1).standard_normal(shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centre", CENTRES, ids=str)
def test_uncentred_weights_give_original_rows_the_scores_of_centred_rows(shape, centre):
    weights = drawn(shape)
    before = weights.copy()
    scores = ROWS.scores(uncentred(weights, ROWS, centre))
    assert scores == pytest.approx(ROWS.centred(centre).scores(weights), abs=1e-12)
    assert np.array_equal(weights, before)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centre", CENTRES, ids=str)
def test_the_penalty_is_that_of_the_uncentred_weights(shape, centre):
    weights, penalty = drawn(shape), UncentredPenalty(L2(0.7), ROWS, centre)
    original = weights.copy()
    original[3] -= centre @ weights[:3] / 0.4
    assert penalty.value(weights) == pytest.approx(0.35 * np.sum(original**2), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centre", CENTRES, ids=str)
def test_the_gradient_is_that_of_finite_differences(shape, centre):
    weights, penalty = drawn(shape), UncentredPenalty(L2(0.7), ROWS, centre)
    differences = np.empty(shape)
    for place in np.ndindex(shape):
        shift = np.zeros(shape)
        shift[place] = 1e-5
        differences[place] = (penalty.value(weights + shift) - penalty.value(weights - shift)) / 2e-5
    assert penalty.gradient(weights) == pytest.approx(differences, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("centre", CENTRES, ids=str)
def test_the_constants_bound_the_second_derivatives(centre):
    """The penalty is quadratic, so its gradient at a unit vector is a column of the matrix of second derivatives."""
    penalty = UncentredPenalty(L2(0.7), ROWS, centre)
    curvatures = np.linalg.eigvalsh(np.column_stack([penalty.gradient(unit) for unit in np.eye(4)]))
    assert penalty.strong_convexity <= curvatures[0]
    assert curvatures[-1] <= penalty.smoothness * (1 + 1e-12)


def test_without_a_centre_it_is_the_penalty():
    weights, penalty = drawn((4,)), UncentredPenalty(L2(0.7), ROWS, np.zeros(3))
    assert np.array_equal(penalty.gradient(weights), L2(0.7).gradient(weights))
    assert penalty.smoothness == L2(0.7).smoothness


def test_the_edge_of_the_ball_has_the_largest_constants(tools):
    problem = tools.make_problem(np.ones((4, 3)), [0, 1, 0, 1], row_norm=2.0, intercept=0.4)
    edge = centred_anywhere(problem, 2.0, 1.5)
    assert edge.rows.row_norm == 1.5
    for length in (0.0, 0.5, 1.9):
        nearer = centred_anywhere(problem, length, 1.5)
        assert nearer.lipschitz <= edge.lipschitz
        assert nearer.smoothness <= edge.smoothness
        assert nearer.rows.reach < edge.rows.reach


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_a_centre_outside_the_ball_is_projected_onto_it(scale):
    """The squares of huge noise would overflow, and those of tiny rows underflow."""
    assert _in_ball(scale * np.array([3.0, -4.0]), 2.5 * scale) == pytest.approx(
        scale * np.array([1.5, -2.0]), rel=1e-12, abs=0
    )
    for inside in (scale * np.array([3.0, -4.0]), np.zeros(2)):
        assert _in_ball(inside, 5.1 * scale) is inside


def test_the_noisy_mean_is_that_of_the_rows(tools):
    plan = GradientPlan(FullBatch(), 1, ROWS.weight_in_total, 1.0)
    mean = ROWS.total() / 5
    assert noisy_centre(ROWS, plan, tools.Silent()) == pytest.approx(mean)
    noisy = NoiseSource(3).add_gaussian(ROWS.total(), plan.noise_std) / 5
    assert np.linalg.norm(noisy) < 2.0
    assert noisy_centre(ROWS, plan, NoiseSource(3)) == pytest.approx(noisy)


def test_a_plan_for_the_mean_must_cover_the_rows_and_the_model_needs_an_intercept():
    whole = ROWS.weight_in_total
    check_centrable(ROWS, GradientPlan(FullBatch(), 1, whole, 1.0))
    with pytest.raises(ValueError, match="rows are bounded by 2"):
        check_centrable(ROWS, GradientPlan(FullBatch(), 1, whole * (1 - 1e-12), 1.0))
    with pytest.raises(ValueError, match="set an intercept"):
        check_centrable(BoundedRows(np.ones((5, 3)), 2.0), GradientPlan(FullBatch(), 1, whole, 1.0))
    with pytest.raises(ValueError, match="public_n"):
        check_centrable(ROWS, GradientPlan(FullBatch(), 1, whole, 1.0, Adjacency.ADD_OR_REMOVE))


@pytest.mark.parametrize("intercept", [0.4, -0.4])
def test_the_constants_of_the_uncentred_penalty_by_hand(intercept):
    """A centre of norm 0.6 moves the weight of a constant column of 0.4 by 1.5 times the other weights at most."""
    rows, centre = BoundedRows(np.ones((5, 3)), 2.0, intercept), np.array([0.6, 0.0, 0.0])
    assert UncentredPenalty(L2(0.7), rows, centre).smoothness == pytest.approx(0.7 * 2.5**2)
    assert UncentredPenalty(L2(0.7), rows, centre).strong_convexity == 0
    assert UncentredPenalty(SaturatingPenalty(0.7), rows, centre).strong_convexity == -0.35
