"""Clipped gradients: never longer than the clip, and for one score per record those of a convex loss."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from privet.objectives import BoundedRows, Huber, Multinomial, Squared
from privet.objectives.glm import clipped

KINDS = ["dense", "fortran", "csr"]


def true_norms(rows, residuals):
    """Return the norms of ``residual * row``, record by record, in long doubles."""
    dense = rows.scores(np.eye(rows.dimension)).astype(np.longdouble)
    lengths = np.sqrt(np.sum(dense**2, axis=1))
    wide = np.asarray(residuals, np.longdouble).reshape(rows.n, -1)
    return lengths * np.sqrt(np.sum(wide**2, axis=1))


def flattened(objective, targets, slopes):
    """Return the loss continued by straight lines from where its slope is ``slopes``, as a function of the scores.

    By definition, not by formula: it is the infimal convolution of the loss with slope * |score|.
    """

    def where(target, slope):
        def excess(score):
            return float(objective.residuals(np.array([score]), np.array([target]))[0]) - slope

        reach = 1e4
        if excess(-reach) >= 0 or excess(reach) <= 0:
            return math.copysign(math.inf, slope)  # the slope is never exceeded
        return brentq(excess, -reach, reach, xtol=1e-14)

    low, high = (np.array([where(y, s) for y, s in zip(targets, sign * slopes, strict=True)]) for sign in (-1, 1))

    def loss(scores):
        near = np.clip(scores, low, high)
        return objective.loss(near, targets) + slopes * np.abs(scores - near)

    return loss


# -------------------------------------------------------------------------------------------------------- the bound

sizes = st.one_of(st.sampled_from([0.0, 1.0, 1e-310, 1e-200, 1e-160, 1e154, 1e300, 1.2e308]), st.floats(0, 1e3))
entries = st.builds(math.copysign, sizes, st.sampled_from([-1.0, 1.0]))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(entries, entries, entries), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5]),
    st.floats(1e-6, 1e6),
)
@example([(1e-200, 0.0, 1.7e308)], 0.0, 1.0)  # a row whose square underflows, and a residual that makes up for it
@example([(1e-155, 1e-155, 1e300)], 0.0, 1e-3)
@example([(1.2e308, 1.2e308, 1.2e308)], 0.5, 1.0)
def test_no_record_is_longer_than_the_clip(records, intercept, clip_norm):
    table = np.array(records)
    rows, residuals = BoundedRows(table[:, :2], 1.0, intercept), table[:, 2]
    short = clipped(residuals, rows, clip_norm)
    before, after = true_norms(rows, residuals), true_norms(rows, short)
    assert (after <= clip_norm).all()
    assert (np.sign(short) == np.sign(residuals)).all()
    let_be = before < clip_norm * (1 - 2 * rows.rounding)
    visible = rows.norms() > 1e-130
    assert np.array_equal(short[let_be & visible], residuals[let_be & visible])
    assert (after[~let_be & visible] >= clip_norm * (1 - 3 * rows.rounding)).all()  # and not shorter than necessary


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("clip_norm", [1e-300, 1e-3, 0.3, 1.4])
def test_no_record_of_several_scores_is_longer_than_the_clip(tools, n_classes, clip_norm):
    objective = Multinomial(n_classes)
    weights, rows, targets = tools.problem(objective, n=500)
    residuals = objective.residuals(rows.scores(weights), targets)
    short = objective.bounded(residuals, rows, clip_norm)
    norms = true_norms(rows, short)
    assert (norms <= clip_norm).all()
    assert norms.max() > clip_norm * (1 - 3 * rows.rounding)
    cosines = np.sum(short / clip_norm * residuals, axis=1)
    lengths = np.linalg.norm(short / clip_norm, axis=1) * np.linalg.norm(residuals, axis=1)
    assert cosines == pytest.approx(lengths)  # scaled without a change of direction


@pytest.mark.parametrize("kind", KINDS)
def test_a_clipped_row_of_many_entries_is_not_longer_than_the_clip(tools, kind):
    """Each tiny square is lost when it is added to 1, although a million of them add up to 1e-10."""
    X = np.full((1, 10**6), 1e-8)
    X[0, 0] = 1.0
    (short,) = clipped(np.array([1e9]), BoundedRows(tools.as_kind(X, kind), 1e10), 1.0)
    assert short * np.sqrt(np.sum(X.astype(np.longdouble) ** 2)) <= 1


def test_residuals_are_returned_unchanged_if_the_row_bound_implies_the_clip(tools, objective):
    weights, rows, targets = tools.problem(objective)
    residuals = objective.residuals(rows.scores(weights), targets)
    assert objective.bounded(residuals, rows, objective.lipschitz(rows.norm_bound)) is residuals


@pytest.mark.parametrize("clip_norm", [1e200, 1.7e308])
def test_a_clip_that_nothing_reaches_changes_nothing(tools, objective, clip_norm):
    weights, rows, targets = tools.problem(objective, intercept=0.0)
    residuals = objective.residuals(rows.scores(weights), targets)
    assert np.array_equal(clipped(residuals, rows, clip_norm), residuals)


# -------------------------------------------------------------------------------------------- what is then minimised


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("clip_norm", [0.05, 0.4])
def test_the_clipped_gradient_is_the_derivative_of_the_flattened_loss(tools, scalar, kind, dtype, intercept, clip_norm):
    weights, rows, targets = tools.problem(scalar, kind=kind, dtype=dtype, intercept=intercept)
    weights = weights.astype(np.float64)
    loss = flattened(scalar, targets, clip_norm / (1 + rows.rounding) / np.maximum(rows.norms(), 1e-3))
    gradient, width = scalar.gradient_sum(weights, rows, targets, clip_norm), 1e-6
    assert np.linalg.norm(gradient - scalar.gradient_sum(weights, rows, targets, math.inf)) > 0.1
    for place in range(rows.dimension):
        nudge = np.zeros_like(weights)
        nudge[place] = width
        rise = np.sum(loss(rows.scores(weights + nudge)) - loss(rows.scores(weights - nudge)))
        assert gradient[place] == pytest.approx(rise / (2 * width), abs=1e-6)


def test_the_flattened_square_is_huber():
    scores, targets = np.linspace(-4, 4, 33), np.zeros(33)
    assert flattened(Squared(), targets, np.full(33, 0.7))(scores) == pytest.approx(Huber(0.7).loss(scores, targets))
    rows = BoundedRows(np.ones((33, 1)), 1.0)
    assert clipped(scores, rows, 0.7 * (1 + rows.rounding)) == pytest.approx(Huber(0.7).residuals(scores, targets))


def test_clipped_gradients_of_one_score_are_those_of_a_convex_and_smooth_loss(tools, scalar):
    assert scalar.clips_to_convex
    rng, m = np.random.default_rng(1), 4000
    rows = BoundedRows(0.5 * np.ones((m, 1)), 1.0)
    first, targets = tools.draw_scores(scalar, rng, m, 3.0), tools.draw_targets(scalar, rng, m)
    change = rng.standard_normal(m) * rng.choice([1e-3, 0.1, 3.0], m)
    for clip_norm in (0.01, 0.2, 0.45):
        low, high = (clipped(scalar.residuals(s, targets), rows, clip_norm) for s in (first, first + change))
        slopes = (high - low) / change
        assert slopes.min() >= 0
        assert slopes.max() <= scalar.curvature_bound * (1 + 1e-9)


def test_clipped_gradients_of_three_scores_are_not_those_of_a_convex_loss():
    objective, rows = Multinomial(3), BoundedRows(np.ones((1, 1)), 1.0)
    assert not objective.clips_to_convex
    first, second = np.array([[3.394, 3.679, 5.233]]), np.array([[3.405, 3.675, 5.225]])
    low, high = (clipped(objective.residuals(s, np.array([0])), rows, 0.9) for s in (first, second))
    step = second - first
    assert np.sum((high - low) * step) < -1e-3 * np.sum(step**2)  # a gradient step drives these two apart
