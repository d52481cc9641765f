import dataclasses
import math

import numpy as np
import pytest
from scipy import sparse

from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, SaturatingPenalty, SmoothedHinge, Squared
from privet.objectives.summation import ROUNDING
from privet.privacy import Adjacency
from privet.solvers import Problem


@pytest.mark.parametrize(
    ("objective", "lipschitz", "smoothness"),
    [
        (Logistic(), 1, 1 / 4),
        (Multinomial(3), 2**0.5, 0.5),
        (SmoothedHinge(0.25), 1, 2),
        (Huber(0.7), 0.7, 1),
        (Squared(), math.inf, 1),
    ],
)
def test_the_constants_are_those_of_loss_rows_and_regulariser_together(tools, objective, lipschitz, smoothness):
    problem = tools.make_problem(
        np.ones((4, 2)), [0, 1, 0, 1], objective=objective, alpha=0.1, row_norm=3.0, intercept=4.0
    )
    assert problem.lipschitz == pytest.approx(
        5 * lipschitz * (1 + ROUNDING)
    )  # the regulariser cancels between neighbours
    assert problem.smoothness == pytest.approx(25 * smoothness + 0.1, rel=4e-6)
    assert problem.strong_convexity == 0.1
    assert problem.is_convex


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("objective", "shape"), [(Logistic(), (3,)), (Multinomial(4), (3, 4))])
def test_the_start_is_zero_for_all_data(tools, objective, shape, dtype):
    problem = tools.make_problem(np.ones((4, 2), dtype), [0, 1, 0, 1], objective=objective, intercept=0.5)
    assert problem.start().shape == shape
    assert not problem.start().any()


def test_the_value_is_mean_loss_plus_penalty(tools):
    problem = tools.make_problem(np.array([[0.6], [-0.6]]), [1, 1], alpha=0.2)
    weights = np.array([2.0])
    expected = (np.log1p(np.exp(-1.2)) + np.log1p(np.exp(1.2))) / 2 + 0.1 * 4
    assert problem.value(weights) == pytest.approx(expected)


def test_a_problem_with_a_non_convex_regulariser_is_not_convex():
    rows = BoundedRows(np.array([[0.6], [-0.6]]), 1.0)
    problem = Problem(Logistic(), SaturatingPenalty(0.2), rows, np.array([1, 1]))
    assert not problem.is_convex
    assert problem.strong_convexity == pytest.approx(-0.1)
    assert problem.smoothness == pytest.approx(1 / 4 + 0.4)
    expected = (np.log1p(np.exp(-1.2)) + np.log1p(np.exp(1.2))) / 2 + 0.2 * 4 / 5
    assert problem.value(np.array([2.0])) == pytest.approx(expected)


@pytest.mark.parametrize("regulariser", [L2(0.3), SaturatingPenalty(0.3)], ids=["l2", "saturating"])
@pytest.mark.parametrize(
    "objective", [Logistic(), Multinomial(3), Huber(0.7), Squared()], ids=lambda o: type(o).__name__
)
def test_the_gradient_norm_is_that_of_the_value(regulariser, objective):
    rng = np.random.default_rng(0)
    rows = BoundedRows(rng.standard_normal((9, 2)), 1.0, 0.5)
    problem = Problem(objective, regulariser, rows, rng.integers(2, size=9))
    weights = rng.standard_normal(problem.start().shape)
    slopes = []
    for place in np.ndindex(weights.shape):
        nudge = np.zeros(weights.shape)
        nudge[place] = 1e-6
        slopes.append((problem.value(weights + nudge) - problem.value(weights - nudge)) / 2e-6)
    assert problem.gradient_norm(weights) == pytest.approx(np.linalg.norm(slopes), rel=1e-6)


def test_the_gradient_norm_of_a_clipped_problem_is_that_of_the_flattened_one():
    rows, targets = BoundedRows(np.ones((3, 1)), 1.0), np.array([5.0, -1.0, 0.1])
    squared, huber = (Problem(objective, L2(0.1), rows, targets) for objective in (Squared(), Huber(0.4)))
    for weights in (np.zeros(1), np.ones(1), np.array([-7.0])):
        assert squared.gradient_norm(weights, clip_norm=0.4 * (1 + rows.rounding)) == pytest.approx(
            huber.gradient_norm(weights)
        )


def test_a_problem_is_frozen(tools):
    with pytest.raises(dataclasses.FrozenInstanceError):
        tools.silence(2, 2).targets = np.zeros(2)


@pytest.mark.parametrize(
    ("objective", "targets"),
    [
        (Logistic(), [-1.0, 1.0]),
        (Logistic(), [0.0, 0.5]),
        (SmoothedHinge(), [-1.0, 1.0]),
        (Multinomial(3), [0, 3]),
        (Multinomial(3), [-1, 0]),
        (Multinomial(3), [0.0, 1.0]),
        (Huber(1.0), [0.0, np.nan]),
        (Squared(), [0.0, np.inf]),
        (Logistic(), [0.0, 1.0, 1.0]),
        (Logistic(), [[0.0], [1.0]]),
    ],
)
def test_targets_for_which_the_constants_do_not_hold_are_refused(objective, targets):
    # With -1 for 0 a logistic residual reaches 2 where the noise covers 1.
    with pytest.raises(ValueError, match="targets"):
        Problem(objective, L2(0.0), BoundedRows(np.ones((2, 1)), 1.0), np.array(targets))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_that_are_not_numbers_are_refused(value, form):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="NaN or infinity"):
        BoundedRows(form(np.array([[1.0, 2.0], [value, 0.0]])), 1.0)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_batch_is_read_row_by_row_if_records_may_be_added_or_removed(tools, adjacency, monkeypatch):
    asked, take = [], BoundedRows.take
    monkeypatch.setattr(BoundedRows, "take", lambda rows, batch, **how: asked.append(how) or take(rows, batch, **how))
    problem = tools.make_problem(np.eye(3), [0, 1, 1])
    rows, targets = problem.batch(np.array([2, 0]), adjacency)
    assert asked == [{"alone": adjacency is Adjacency.ADD_OR_REMOVE}]
    assert (rows.n, targets.tolist()) == (2, [1, 0])
