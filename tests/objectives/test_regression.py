import math

import numpy as np
import pytest
from scipy.special import huber

from privet.objectives import BoundedRows, Huber, Squared


def test_the_square_is_half_the_square():
    scores, targets = np.array([3.0, -1.0, 0.5]), np.array([1.0, 1.0, 0.5])
    assert Squared().loss(scores, targets) == pytest.approx([2.0, 2.0, 0.0])
    assert Squared().residuals(scores, targets) == pytest.approx([2.0, -2.0, 0.0])


@pytest.mark.parametrize("threshold", [1e-6, 0.3, 1.0, 50.0])
def test_huber_is_that_of_scipy(threshold):
    errors = np.concatenate([np.linspace(-5, 5, 101), [threshold, -threshold, 1e8, -1e8, 0.0]])
    targets = np.full(errors.size, 0.25)
    assert Huber(threshold).loss(errors + targets, targets) == pytest.approx(huber(threshold, errors), rel=1e-6)
    residuals = Huber(threshold).residuals(errors + targets, targets)
    assert residuals == pytest.approx(np.clip(errors, -threshold, threshold), abs=1e-7)
    assert np.abs(residuals).max() == threshold


def test_errors_beyond_the_floats_have_an_infinite_loss_and_keep_their_sign():
    top = np.finfo(np.float64).max
    scores, targets = np.array([top, -top, 1e200]), np.array([-top, top, 0.0])
    with np.errstate(all="raise"):
        assert (Squared().loss(scores, targets) == math.inf).all()
        assert Huber(0.5).residuals(scores, targets).tolist() == [0.5, -0.5, 0.5]
        assert (Huber(0.5).loss(scores[2:], targets[2:]) == 5e199).all()
        residuals = Squared().residuals(scores, targets)
        bounded = Squared().bounded(residuals, BoundedRows(np.ones((3, 1)), 1.0), 2.0)
    assert bounded == pytest.approx([2.0, -2.0, 2.0])


def test_a_mean_beyond_the_floats_is_infinite_without_a_warning():
    rows, weights = BoundedRows(np.ones((3, 1)), 1.0), np.array([1.3e154])
    with np.errstate(all="raise"):
        assert Squared().mean_loss(weights, rows, np.zeros(3)) == math.inf


def test_the_square_has_no_lipschitz_constant():
    assert Squared().lipschitz(1.0) == math.inf
    assert Squared().start_residual_bound == math.inf
    assert Huber(0.5).lipschitz(3.0) == 1.5


def test_targets_may_be_whole_numbers():
    scores, targets = np.array([0.5, 2.0]), np.array([1, 4], dtype=np.uint8)
    for objective in (Squared(), Huber(1.5)):
        assert np.array_equal(objective.loss(scores, targets), objective.loss(scores, targets.astype(float)))
        assert np.array_equal(objective.residuals(scores, targets), objective.residuals(scores, targets.astype(float)))


@pytest.mark.parametrize("threshold", [0, -1.0, math.nan, math.inf, None])
def test_an_impossible_threshold_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must"):
        Huber(threshold)
