import math

import numpy as np
import pytest
from scipy.special import huber

from privet.objectives import Huber


@pytest.mark.parametrize("threshold", [1e-6, 0.3, 1.0, 50.0])
def test_the_loss_agrees_with_scipy(threshold):
    errors = np.concatenate([np.linspace(-5, 5, 101), [threshold, -threshold, 1e8, -1e8, 0.0]])
    targets = np.full(errors.size, 0.25)
    assert Huber(threshold).loss(errors + targets, targets) == pytest.approx(huber(threshold, errors), rel=1e-6)
    residuals = Huber(threshold).residuals(errors + targets, targets)
    assert residuals == pytest.approx(np.clip(errors, -threshold, threshold), abs=1e-7)
    assert np.abs(residuals).max() == threshold


def test_errors_that_overflow_have_residuals_of_the_threshold_with_the_right_sign():
    top = np.finfo(np.float64).max
    scores, targets = np.array([top, -top, 1e200]), np.array([-top, top, 0.0])
    with np.errstate(all="raise"):
        assert Huber(0.5).residuals(scores, targets).tolist() == [0.5, -0.5, 0.5]
        assert (Huber(0.5).loss(scores[2:], targets[2:]) == 5e199).all()


def test_the_lipschitz_constant_is_the_threshold_times_the_norm_of_the_row():
    assert Huber(0.5).lipschitz(3.0) == 1.5


def test_the_default_threshold_is_a_quarter_of_the_bound_on_targets():
    assert Huber.for_targets(6.0).threshold == 1.5
    assert Huber.for_targets(6.0, 0.2).threshold == 0.2


def test_whole_numbers_as_targets_give_the_same_losses_and_residuals():
    loss, scores, targets = Huber(1.5), np.array([0.5, 2.0]), np.array([1, 4], dtype=np.uint8)
    assert np.array_equal(loss.loss(scores, targets), loss.loss(scores, targets.astype(float)))
    assert np.array_equal(loss.residuals(scores, targets), loss.residuals(scores, targets.astype(float)))


@pytest.mark.parametrize("threshold", [0, -1.0, math.nan, math.inf, None])
def test_an_impossible_threshold_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must"):
        Huber(threshold)
