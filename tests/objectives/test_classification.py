import math

import numpy as np
import pytest
from scipy.special import expit, logsumexp, softmax

from privet.objectives import Logistic, Multinomial, SmoothedHinge, TamedLogistic


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


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_probabilities_are_those_of_scipy(n_classes, scale):
    rng = np.random.default_rng(0)
    scores, targets = scale * rng.standard_normal((200, n_classes)), rng.integers(n_classes, size=200)
    scores[::7] = scores[::7, :1]  # ties
    expected = softmax(scores, axis=1) - np.eye(n_classes)[targets]
    residuals = Multinomial(n_classes).residuals(scores, targets)
    assert residuals == pytest.approx(expected, rel=1e-13, abs=1e-15)
    assert residuals.sum(axis=1) == pytest.approx(0, abs=1e-14)
    expected = logsumexp(scores, axis=1) - scores[np.arange(200), targets]
    assert Multinomial(n_classes).loss(scores, targets) == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)


def test_scores_at_both_ends_of_the_floats_decide_for_the_top_class():
    top = np.finfo(np.float64).max
    scores, targets = np.array([[top, -top, 0.0], [top, top, -top], [-top, -top, -top]]), np.array([0, 0, 0])
    third = 1 / 3
    expected = np.array([[0, 0, 0], [-0.5, 0.5, 0], [third - 1, third, third]])
    with np.errstate(all="raise", under="ignore"):
        assert Multinomial(3).residuals(scores, targets) == pytest.approx(expected)
        assert Multinomial(3).loss(scores, targets) == pytest.approx([0, math.log(2), math.log(3)])


@pytest.mark.parametrize("width", [1e-6, 0.1, 0.5, 1.0, 3.0])
def test_the_smoothed_hinge_is_that_of_its_paper(width):
    margins = np.concatenate([np.linspace(-5, 5, 101), [1 - width, 1.0, 1 + width, 1e8, -1e8]])

    def by_branch(z):
        if z > 1 + width:
            return 0.0
        return 1 - z if z < 1 - width else (1 + width - z) ** 2 / (4 * width)

    expected = [by_branch(z) for z in margins]
    for target, sign in ((0, -1), (1, 1)):
        losses = SmoothedHinge(width).loss(sign * margins, np.full(margins.size, target))
        assert losses == pytest.approx(expected, rel=1e-9, abs=1e-12)
    hinge = np.maximum(0, 1 - margins)
    assert (losses >= hinge - 1e-12).all()
    assert (losses <= hinge + width / 4 + 1e-12).all()  # the corner is raised by a quarter of the width


@pytest.mark.parametrize("width", [0.25, 0.5, 1.0, 4.0])
def test_the_first_residual_of_a_smoothed_hinge_is_its_slope_at_zero(width):
    loss, nudge = SmoothedHinge(width), 1e-7
    rise = loss.loss(np.array([nudge]), np.ones(1)) - loss.loss(np.array([-nudge]), np.ones(1))
    assert loss.start_residual_bound == pytest.approx(abs(rise[0]) / (2 * nudge), rel=1e-6)


@pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge()], ids=["logistic", "hinge"])
@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_labels_may_be_of_any_type(objective, kind):
    scores, labels = np.array([-2.0, -0.3, 0.3, 2.0]), np.array([0.0, 1.0, 0.0, 1.0])
    assert np.array_equal(objective.loss(scores, labels.astype(kind)), objective.loss(scores, labels))
    assert np.array_equal(objective.residuals(scores, labels.astype(kind)), objective.residuals(scores, labels))


@pytest.mark.parametrize("width", [0, -0.5, math.nan, math.inf, "wide", True])
def test_an_impossible_width_is_refused(width):
    with pytest.raises(ValueError, match="width must"):
        SmoothedHinge(width)


@pytest.mark.parametrize("n_classes", [1, 0, -3, 2.0, True])
def test_fewer_than_two_classes_are_refused(n_classes):
    with pytest.raises(ValueError, match="n_classes must"):
        Multinomial(n_classes)


@pytest.mark.parametrize("odds", [-4.0, -0.5, 0.0, 0.1, 2.0, 7.0])
def test_the_tamed_loss_has_the_minimiser_of_the_logistic_one(odds):
    chance = expit(odds)
    residuals = TamedLogistic().residuals(np.full(2, odds), np.array([0.0, 1.0]))
    assert (1 - chance) * residuals[0] + chance * residuals[1] == pytest.approx(0, abs=1e-15)
    clipped = np.clip(Logistic().residuals(np.full(2, odds), np.array([0.0, 1.0])), -0.5, 0.5)
    if 0.05 < abs(odds) < 5:
        assert (1 - chance) * clipped[0] + chance * clipped[1] != pytest.approx(0, abs=1e-3)


def test_tamed_residuals_are_logistic_ones_divided_by_a_function_of_the_score():
    scores = np.repeat(np.linspace(-30, 30, 121), 2)
    targets = np.tile([0.0, 1.0], 121)
    chances = expit(scores)
    expected = Logistic().residuals(scores, targets) / (2 * np.maximum(chances, 1 - chances))
    assert TamedLogistic().residuals(scores, targets) == pytest.approx(expected, abs=1e-15)
    assert np.abs(expected).max() == TamedLogistic.residual_bound
    assert TamedLogistic().start_curvature == Logistic().start_curvature == 0.25
