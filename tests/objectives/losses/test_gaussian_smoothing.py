import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from privet.objectives import BoundedRows, GaussianAbsolute, GaussianHinge

WIDTHS = [0.01, 0.5, 1.0, 7.0]
HINGES = [GaussianHinge(width) for width in WIDTHS]
ABSOLUTES = [GaussianAbsolute(width) for width in WIDTHS]


def named(loss):
    return f"{type(loss).__name__}{loss.width:g}"


BOTH = pytest.mark.parametrize("loss", [*HINGES, *ABSOLUTES], ids=named)


def corners(loss, target):
    """Return the score at the corner of the loss that was smoothed."""
    return 2 * target - 1 if isinstance(loss, GaussianHinge) else target


def plain(loss, score, target):
    """Return the loss before the convolution."""
    if isinstance(loss, GaussianHinge):
        return max(0.0, 1 - (2 * target - 1) * score)
    return abs(score - target)


def at(method, score, target):
    return float(method(np.array([float(score)]), np.array([target]))[0])


@BOTH
@pytest.mark.parametrize("target", [0, 1])
def test_the_loss_is_the_convolution_computed_by_quadrature(loss, target):
    corner = corners(loss, target)
    for score in corner + loss.width * np.array([-6.0, -1.0, -0.1, 0.0, 0.3, 2.0, 8.0]):
        kink = (corner - score) / loss.width  # where the integrand has its corner
        parts = [-12.0, *([kink] if -12 < kink < 12 else []), 12.0]
        expected = sum(
            quad(lambda g, s=score: plain(loss, s + loss.width * g, target) * norm.pdf(g), *ends, epsabs=1e-13)[0]
            for ends in pairwise(parts)
        )
        assert at(loss.loss, score, target) == pytest.approx(expected, rel=1e-9, abs=1e-11)


@BOTH
@pytest.mark.parametrize("target", [0, 1])
def test_residuals_are_the_derivative_of_the_loss(loss, target):
    scores = corners(loss, target) + loss.width * np.linspace(-5, 5, 41)
    h, targets = loss.width * 1e-5, np.full(41, target)
    slopes = (loss.loss(scores + h, targets) - loss.loss(scores - h, targets)) / (2 * h)
    np.testing.assert_allclose(loss.residuals(scores, targets), slopes, atol=1e-8)


@BOTH
@pytest.mark.parametrize("target", [0, 1])
def test_the_loss_is_convex_lipschitz_and_smooth_with_the_declared_constants(loss, target):
    """The residual grows with the score, never beyond its bound, and nowhere faster than the curvature."""
    scores = corners(loss, target) + loss.width * np.linspace(-40, 40, 20_001)
    residuals = loss.residuals(scores, np.full(scores.size, target))
    slopes = np.diff(residuals) / np.diff(scores)
    assert np.all(slopes >= -1e-12 / loss.width)
    assert np.max(np.abs(residuals)) <= loss.residual_bound
    assert np.max(np.abs(residuals)) == pytest.approx(1.0, abs=1e-12)
    assert np.max(slopes) <= loss.curvature_bound * (1 + 1e-9)


@BOTH
@pytest.mark.parametrize("target", [0, 1])
def test_the_curvature_bound_is_attained_at_the_corner(loss, target):
    corner, h = corners(loss, target), loss.width * 1e-4
    slope = (at(loss.residuals, corner + h, target) - at(loss.residuals, corner - h, target)) / (2 * h)
    assert slope == pytest.approx(loss.curvature_bound, rel=1e-7)
    factor = 1 if isinstance(loss, GaussianHinge) else 2
    assert loss.curvature_bound == pytest.approx(factor / (loss.width * math.sqrt(2 * math.pi)))


@BOTH
@pytest.mark.parametrize("target", [0, 1])
def test_the_smoothing_error_is_largest_at_the_corner(loss, target):
    corner = corners(loss, target)
    most = (1 if isinstance(loss, GaussianHinge) else 2) * loss.width / math.sqrt(2 * math.pi)
    assert at(loss.loss, corner, target) == pytest.approx(most, rel=1e-12)
    for score in corner + loss.width * np.linspace(-8, 8, 65):
        excess = at(loss.loss, score, target) - plain(loss, score, target)
        assert -1e-12 <= excess <= most * (1 + 1e-12)


@BOTH
@pytest.mark.parametrize("score", [-1e307, -1e200, -1e9, 0.0, 1e-300, 1e9, 1e200, 1e307])
@pytest.mark.parametrize("target", [0, 1])
def test_extreme_scores_give_finite_losses_and_bounded_residuals(loss, score, target):
    with warnings.catch_warnings():
        warnings.simplefilter("error" if abs(score) < 1e300 else "ignore")
        value, residual = at(loss.loss, score, target), at(loss.residuals, score, target)
    assert value == pytest.approx(plain(loss, score, target), rel=1e-12, abs=loss.width)
    assert math.isfinite(value)
    assert abs(residual) <= 1


def test_tails_are_computed_without_cancellation():
    loss = GaussianHinge(0.5)
    residual = at(loss.residuals, 11.0, 1)  # twenty widths beyond the corner
    assert math.log(-residual) == pytest.approx(float(log_ndtr(-20.0)), rel=1e-12)
    assert at(loss.loss, 3.0, 1) > 0
    small = at(GaussianAbsolute(1.0).residuals, 1e-12, 0.0)
    assert small == pytest.approx(1e-12 * math.sqrt(2 / math.pi), rel=1e-9)


@pytest.mark.parametrize("loss", HINGES, ids=named)
def test_the_start_residual_bound_of_the_hinge_is_attained(loss):
    for target in (0, 1):
        assert abs(at(loss.residuals, 0.0, target)) == pytest.approx(loss.start_residual_bound, rel=1e-12)
    assert loss.start_residual_bound <= loss.residual_bound


def test_narrow_widths_approach_the_loss_itself():
    hinge, absolute = GaussianHinge(1e-9), GaussianAbsolute(1e-9)
    for score in (-3.0, 0.0, 0.9, 1.1, 5.0):
        assert at(hinge.loss, score, 1) == pytest.approx(max(0.0, 1 - score), abs=1e-8)
        assert at(absolute.loss, score, 0.5) == pytest.approx(abs(score - 0.5), abs=1e-8)


@BOTH
def test_gradients_of_records_stay_within_the_bound_clipped_or_not(loss):
    rng = np.random.default_rng(0)
    rows = BoundedRows(rng.standard_normal((9, 3)) * 3, 1.0, 0.5)
    targets, weights = rng.integers(0, 2, 9), 5 * rng.standard_normal(4)
    for clip_norm in (0.2, 10.0):
        for place in range(9):
            one = np.array([place])
            total = loss.gradient_sum(weights, rows.take(one), targets[one], clip_norm)
            assert np.linalg.norm(total) <= min(clip_norm, loss.lipschitz(rows.norm_bound))
    assert loss.clips_to_convex
    assert loss.start(3).shape == (3,)


def test_the_gradient_sum_is_the_derivative_of_the_mean_loss():
    rng = np.random.default_rng(1)
    for loss in (GaussianHinge(0.7), GaussianAbsolute(0.7)):
        rows = BoundedRows(rng.standard_normal((20, 3)) / 3, 1.0, 0.5)
        targets, weights = rng.integers(0, 2, 20), rng.standard_normal(4)
        gradient = loss.gradient_sum(weights, rows, targets, 10.0) / 20
        for j, step in enumerate(np.eye(4) * 1e-6):
            ends = [loss.mean_loss(weights + sign * step, rows, targets) for sign in (1, -1)]
            assert gradient[j] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("targets", [[0.5], [2], [-1], [math.nan], [math.inf]])
def test_hinge_targets_other_than_0_and_1_are_refused(targets):
    with pytest.raises(ValueError, match="GaussianHinge losses must be 0 or 1"):
        GaussianHinge().check_targets(np.array(targets))
    GaussianHinge().check_targets(np.array([0, 1]))


@pytest.mark.parametrize("targets", [[math.nan], [math.inf], [0.0, -math.inf]])
def test_non_finite_targets_are_refused(targets):
    with pytest.raises(ValueError, match="finite"):
        GaussianAbsolute(1.0).check_targets(np.array(targets))
    GaussianAbsolute(1.0).check_targets(np.array([-7.5, 0.0, 1e9]))


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan, math.inf, "1", True, None])
@pytest.mark.parametrize("loss", [GaussianHinge, GaussianAbsolute])
def test_impossible_widths_are_refused(width, loss):
    with pytest.raises(ValueError, match=r"^width must"):
        loss(width)
