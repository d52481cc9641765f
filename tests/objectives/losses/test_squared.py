import math

import numpy as np
import pytest

from privet.objectives import BoundedRows, Huber, Squared
from privet.objectives.summation import ROUNDING


def test_the_loss_is_half_the_squared_error():
    scores, targets = np.array([3.0, -1.0, 0.5]), np.array([1.0, 1.0, 0.5])
    assert Squared().loss(scores, targets) == pytest.approx([2.0, 2.0, 0.0])
    assert Squared().residuals(scores, targets) == pytest.approx([2.0, -2.0, 0.0])


def test_errors_that_overflow_have_an_infinite_loss_and_clipped_residuals_of_the_right_sign():
    top = np.finfo(np.float64).max
    scores, targets = np.array([top, -top, 1e200]), np.array([-top, top, 0.0])
    with np.errstate(all="raise"):
        assert (Squared().loss(scores, targets) == math.inf).all()
        residuals = Squared().residuals(scores, targets)
        bounded = Squared().bounded(residuals, BoundedRows(np.ones((3, 1)), 1.0), 2.0)
    assert bounded == pytest.approx(np.array([2.0, -2.0, 2.0]) / (1 + ROUNDING))


def test_a_mean_loss_that_overflows_is_infinite_without_a_warning():
    rows, weights = BoundedRows(np.ones((3, 1)), 1.0), np.array([1.3e154])
    with np.errstate(all="raise"):
        assert Squared().mean_loss(weights, rows, np.zeros(3)) == math.inf


def test_the_lipschitz_constant_is_infinite():
    assert Squared().lipschitz(1.0) == math.inf
    assert Squared().start_residual_bound == math.inf
    assert not Squared().has_bounded_gradient


@pytest.mark.parametrize("bound", [0.5, 3.0])
def test_the_variant_with_bounded_gradients_is_huber_with_its_default_threshold(bound):
    variant = Squared().with_bounded_gradient(bound)
    assert isinstance(variant, Huber)
    assert variant.threshold == Huber.for_targets(bound).threshold == bound / 4


def test_whole_numbers_as_targets_give_the_same_losses_and_residuals():
    scores, targets = np.array([0.5, 2.0]), np.array([1, 4], dtype=np.uint8)
    assert np.array_equal(Squared().loss(scores, targets), Squared().loss(scores, targets.astype(float)))
    assert np.array_equal(Squared().residuals(scores, targets), Squared().residuals(scores, targets.astype(float)))
