import math

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from privet.objectives import Logistic, Multinomial


def test_the_multinomial_loss_is_a_negative_log_likelihood():
    scores, targets = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]]), np.array([2, 0])
    likelihood = softmax(scores, axis=1)[[0, 1], targets]
    assert Multinomial(3).loss(scores, targets) == pytest.approx(-np.log(likelihood))


def test_the_loss_of_two_classes_is_the_logistic_loss_of_the_score_difference():
    scores, targets = np.array([[0.3, -1.2], [2.0, 2.5]]), np.array([0, 1])
    difference = scores[:, 1] - scores[:, 0]
    assert Multinomial(2).loss(scores, targets) == pytest.approx(Logistic().loss(difference, targets))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_residuals_and_losses_agree_with_scipy(n_classes, scale):
    rng = np.random.default_rng(0)
    scores, targets = scale * rng.standard_normal((200, n_classes)), rng.integers(n_classes, size=200)
    scores[::7] = scores[::7, :1]  # ties
    expected = softmax(scores, axis=1) - np.eye(n_classes)[targets]
    residuals = Multinomial(n_classes).residuals(scores, targets)
    assert residuals == pytest.approx(expected, rel=1e-13, abs=1e-15)
    assert residuals.sum(axis=1) == pytest.approx(0, abs=1e-14)
    expected = logsumexp(scores, axis=1) - scores[np.arange(200), targets]
    assert Multinomial(n_classes).loss(scores, targets) == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)


def test_the_largest_floats_as_scores_neither_overflow_nor_give_nan():
    top = np.finfo(np.float64).max
    scores, targets = np.array([[top, -top, 0.0], [top, top, -top], [-top, -top, -top]]), np.array([0, 0, 0])
    third = 1 / 3
    expected = np.array([[0, 0, 0], [-0.5, 0.5, 0], [third - 1, third, third]])
    with np.errstate(all="raise", under="ignore"):
        assert Multinomial(3).residuals(scores, targets) == pytest.approx(expected)
        assert Multinomial(3).loss(scores, targets) == pytest.approx([0, math.log(2), math.log(3)])


@pytest.mark.parametrize("n_classes", [1, 0, -3, 2.0, True])
def test_fewer_than_two_classes_are_refused(n_classes):
    with pytest.raises(ValueError, match="n_classes must"):
        Multinomial(n_classes)
