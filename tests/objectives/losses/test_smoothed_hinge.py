import math

import numpy as np
import pytest

from privet.objectives import SmoothedHinge


@pytest.mark.parametrize("width", [1e-6, 0.1, 0.5, 1.0, 3.0])
def test_the_loss_agrees_with_the_branches_in_the_paper(width):
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
def test_the_start_residual_bound_is_the_slope_at_zero(width):
    loss, nudge = SmoothedHinge(width), 1e-7
    rise = loss.loss(np.array([nudge]), np.ones(1)) - loss.loss(np.array([-nudge]), np.ones(1))
    assert loss.start_residual_bound == pytest.approx(abs(rise[0]) / (2 * nudge), rel=1e-6)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_labels_of_any_numeric_type_give_the_same_losses_and_residuals(kind):
    loss, scores, labels = SmoothedHinge(), np.array([-2.0, -0.3, 0.3, 2.0]), np.array([0.0, 1.0, 0.0, 1.0])
    assert np.array_equal(loss.loss(scores, labels.astype(kind)), loss.loss(scores, labels))
    assert np.array_equal(loss.residuals(scores, labels.astype(kind)), loss.residuals(scores, labels))


@pytest.mark.parametrize("width", [0, -0.5, math.nan, math.inf, "wide", True])
def test_an_impossible_width_is_refused(width):
    with pytest.raises(ValueError, match="width must"):
        SmoothedHinge(width)
