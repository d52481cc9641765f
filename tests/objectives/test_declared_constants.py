"""Every constant that a loss declares is checked on a grid. A new loss is checked here without being named here."""

import math
import pkgutil
from pathlib import Path

import numpy as np
import pytest

from privet import objectives
from privet.objectives import (
    BoundedRows,
    ClassWeighted,
    GeneralisedLinear,
    Logistic,
    Multinomial,
    Shifted,
    Squared,
    losses,
)
from privet.objectives.glm import clipped

LOSSES = [getattr(losses, name) for name in losses.__all__]
EXAMPLES = [example for loss in LOSSES for example in loss.examples()]
SHIFTED = [Shifted(example, offset) for example in EXAMPLES if example.clips_to_convex for offset in (-0.8, 0.8)]
WEIGHTED = [
    ClassWeighted(example, [0.3, 2.5, 1.0, 7.0][: max(2, example.start(1).size)])
    for example in EXAMPLES
    if example.predicts_classes
]

CANDIDATES = [np.array([value]) for value in (*range(5), -60.0, -3.0, -0.4, 0.25, 1.7, 60.0)]
SCORES = np.unique(np.concatenate([np.linspace(-12, 12, 4801), [-1e4, -100.0, 100.0, 1e4]]))
STEP = 1e-4  # for differences at one point of a loss of several scores


def name_of(loss):
    """Return the class of a loss and its parameters, for the names of tests."""
    inner = name_of(loss.objective) if isinstance(loss, Shifted | ClassWeighted) else ""
    numbers = [f"{value:g}" for name, value in vars(loss).items() if "bound" not in name and np.isscalar(value)]
    return "-".join(filter(None, [type(loss).__name__, inner, *numbers]))


@pytest.fixture(params=[*EXAMPLES, *SHIFTED, *WEIGHTED], ids=name_of)
def loss(request):
    return request.param


def targets_of(loss):
    """Return the candidates that the loss accepts as targets."""
    accepted = []
    for candidate in CANDIDATES:
        try:
            loss.check_targets(candidate)
        except ValueError:
            continue
        accepted.append(candidate[0])
    return accepted


def points_and_residuals(loss):
    """Yield each accepted target with all points of the grid and the residuals there."""
    shape = loss.start(1).shape[1:]
    points = SCORES
    if shape:  # all combinations of a few scores per class, and a few that are nearly tied
        axes = np.meshgrid(*[[-40.0, -1.5, 0.0, 1.0, 40.0]] * shape[0], indexing="ij")
        points = np.stack([axis.ravel() for axis in axes], axis=1)
        points = np.concatenate([points, 0.1 * points[::7]])
    for target in targets_of(loss):
        targets = np.full(len(points), target)
        yield targets, points, loss.residuals(points, targets)


def norms(residuals):
    return np.linalg.norm(residuals.reshape(len(residuals), -1), axis=1)


def rises(loss, limit=None):
    """Yield, for pairs of neighbouring points, their distances, the changes of residuals, and the changes along."""
    for targets, points, residuals in points_and_residuals(loss):
        if points.ndim == 1:
            rows = BoundedRows(np.ones((len(points), 1)), 1.0)
            bounded = residuals if limit is None else clipped(residuals, rows, limit)
            steps, changes = np.diff(points), np.diff(bounded)
            yield np.abs(steps), np.abs(changes), changes * np.sign(steps)
            continue
        k = points.shape[1]
        directions = [*np.eye(k), *(np.eye(k)[i] - np.eye(k)[j] for i in range(k) for j in range(i))]
        for direction in directions:
            unit = direction / np.linalg.norm(direction)
            changes = loss.residuals(points + STEP * unit, targets) - residuals
            yield np.full(len(points), STEP), norms(changes), changes @ unit


def check_derivative(loss):
    """The mean slope of the loss between two neighbouring scores lies between the residuals at both."""
    for targets, points, residuals in points_and_residuals(loss):
        if points.ndim == 1:
            near = np.abs(points) < 20
            slopes = np.diff(loss.loss(points[near], targets[near])) / np.diff(points[near])
            low, high = residuals[near][:-1], residuals[near][1:]
            room = 1e-9 * (1 + np.abs(low))
            assert (slopes >= low - room).all()
            assert (slopes <= high + room).all()
            continue
        for j in range(points.shape[1]):
            ahead, behind = (loss.loss(points + sign * STEP * np.eye(points.shape[1])[j], targets) for sign in (1, -1))
            assert residuals[:, j] == pytest.approx((ahead - behind) / (2 * STEP), abs=1e-6)


def check_residual_bound(loss):
    """No residual exceeds the bound, and the bound is not larger than needed."""
    largest = max(norms(residuals).max() for _, _, residuals in points_and_residuals(loss))
    assert loss.has_bounded_gradient == math.isfinite(loss.residual_bound)
    if loss.has_bounded_gradient:
        assert 0.99 * loss.residual_bound <= largest <= loss.residual_bound * (1 + 1e-12)
        assert loss.lipschitz(3.0) == pytest.approx(3 * loss.residual_bound)
    else:
        assert largest >= 0.5 * SCORES[-1]  # residuals grow with the scores


def check_curvature_bound(loss):
    """Residuals change no faster than the bound, and somewhere almost as fast."""
    fastest = max((changes / steps).max() for steps, changes, _ in rises(loss))
    assert 0.97 * loss.curvature_bound <= fastest <= loss.curvature_bound * (1 + 1e-6)
    assert loss.smoothness(3.0) == pytest.approx(9 * loss.curvature_bound)
    assert 0 < loss.start_curvature <= loss.curvature_bound


def check_convexity(loss):
    """Residuals are nondecreasing along every direction."""
    for steps, _, along in rises(loss):
        assert (along >= -1e-12 * steps).all()


def check_start_residual_bound(loss):
    """No residual at scores of zero exceeds its bound, which is attained unless the start is shifted."""
    start = np.zeros((1, *loss.start(1).shape[1:]))
    largest = max(norms(loss.residuals(start, np.array([target]))).max() for target in targets_of(loss))
    assert largest <= loss.start_residual_bound * (1 + 1e-12) <= loss.residual_bound * (1 + 2e-12)
    if math.isfinite(loss.start_residual_bound) and not isinstance(loss, Shifted):
        assert largest >= 0.99 * loss.start_residual_bound


def check_one_sidedness(loss):
    """A loss is declared one-sided if and only if the residual of each target has one sign at all scores."""
    if not loss.clips_to_convex:  # the analysis of one-sided losses is for one score per record
        assert not loss.is_one_sided
        return
    found = all((residuals >= 0).all() or (residuals <= 0).all() for _, _, residuals in points_and_residuals(loss))
    assert loss.is_one_sided == found


def check_convexity_after_clipping(loss):
    """Clipped residuals of one score are those of a convex loss that is at least as smooth."""
    if not loss.clips_to_convex:
        assert loss.start(1).ndim == 2
        return
    assert loss.start(1).ndim == 1
    largest = min(loss.residual_bound, 5.0)
    for limit in (0.01 * largest, 0.3 * largest, 0.9 * largest):
        for steps, changes, along in rises(loss, limit):
            assert (along >= 0).all()
            assert (changes <= loss.curvature_bound * steps * (1 + 1e-6) + 1e-12).all()


def check_targets(loss):
    """Losses of classes accept whole numbers only, all others accept fractions, and none accepts NaN."""
    accepted = targets_of(loss)
    assert accepted
    assert loss.predicts_classes == (0.25 not in accepted)
    with pytest.raises(ValueError, match="targets"):
        loss.check_targets(np.array([math.nan]))


CHECKS = [
    check_derivative,
    check_residual_bound,
    check_curvature_bound,
    check_convexity,
    check_start_residual_bound,
    check_one_sidedness,
    check_convexity_after_clipping,
    check_targets,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_declared_constant_agrees_with_a_grid_of_scores(loss, check):
    check(loss)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_loss_has_a_variant_with_bounded_gradients(example):
    variant = example.with_bounded_gradient(2.0)
    assert variant.has_bounded_gradient
    assert (variant is example) == example.has_bounded_gradient
    assert variant.predicts_classes == example.predicts_classes


# --------------------------------------------------------------------------------------- wrong constants are noticed


def wrong(base, **fields):
    """Return an instance of a loss with wrong constants."""
    return type(f"Wrong{base.__name__}", (base,), {"is_one_sided": base.is_one_sided, **fields})()


@pytest.mark.parametrize(
    ("loss", "check"),
    [
        (wrong(Logistic, residual_bound=0.9), check_residual_bound),
        (wrong(Logistic, residual_bound=1.5), check_residual_bound),
        (wrong(Squared, residual_bound=10.0), check_residual_bound),
        (wrong(Logistic, curvature_bound=0.2), check_curvature_bound),
        (wrong(Logistic, curvature_bound=1.0), check_curvature_bound),
        (wrong(Logistic, start_residual_bound=0.4), check_start_residual_bound),
        (wrong(Logistic, start_residual_bound=1.0), check_start_residual_bound),
        (wrong(Logistic, is_one_sided=False), check_one_sidedness),
        (wrong(Squared, is_one_sided=True), check_one_sidedness),
        (wrong(Logistic, residuals=lambda self, s, y: np.sin(s) - y), check_convexity),
        (wrong(Logistic, residuals=lambda self, s, y: np.sin(s) - y), check_derivative),
        (wrong(Logistic, residuals=lambda self, s, y: -Logistic().residuals(s, y)), check_convexity_after_clipping),
        (wrong(Logistic, predicts_classes=False), check_targets),
    ],
    ids=lambda value: value.__name__ if callable(value) else name_of(value),
)
def test_a_wrong_constant_is_noticed(loss, check):
    with pytest.raises(AssertionError):
        check(loss)


def test_a_subclass_does_not_inherit_that_a_loss_is_one_sided():
    class Changed(Logistic):
        def residuals(self, scores, targets):
            return np.sin(scores)

    assert Logistic.is_one_sided
    assert not Changed.is_one_sided


def test_a_loss_of_several_scores_is_not_declared_one_sided():
    with pytest.raises(AssertionError):
        check_one_sidedness(type("Sided", (Multinomial,), {"is_one_sided": True})(3))


# --------------------------------------------------------------------------------------------- every loss is included


def test_every_file_of_losses_is_imported_by_the_package():
    files = {module.name for module in pkgutil.iter_modules(losses.__path__)}
    assert {loss.__module__.rsplit(".", 1)[1] for loss in LOSSES} == files
    assert all(issubclass(loss, GeneralisedLinear) for loss in LOSSES)
    assert set(losses.__all__) <= set(objectives.__all__)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_every_loss_has_a_row_in_the_documentation(loss):
    page = Path(__file__).resolve().parents[2] / "docs" / "losses.md"
    assert f"\n| `{loss.__name__}" in page.read_text(encoding="utf-8")
