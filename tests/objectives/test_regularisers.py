import dataclasses
import math

import numpy as np
import pytest

from privet.objectives import L2, Regulariser, SaturatingPenalty

PENALTIES = [L2(0.3), SaturatingPenalty(0.3)]


@pytest.fixture(params=PENALTIES, ids=lambda penalty: type(penalty).__name__)
def penalty(request):
    return request.param


@pytest.mark.parametrize("shape", [(4,), (3, 2)])
def test_the_gradient_is_the_derivative_of_the_value(penalty, shape):
    weights, width = np.linspace(-2, 3, math.prod(shape)).reshape(shape), 1e-6
    assert penalty.gradient(weights).shape == shape
    for place in np.ndindex(shape):
        nudge = np.zeros(shape)
        nudge[place] = width
        slope = (penalty.value(weights + nudge) - penalty.value(weights - nudge)) / (2 * width)
        assert penalty.gradient(weights)[place] == pytest.approx(slope, rel=1e-6)


def test_the_constants_hold_between_any_two_weights_and_are_attained(penalty):
    rng = np.random.default_rng(0)
    first = rng.uniform(-3, 3, (20_000, 3)) * rng.choice([0.01, 1.0, 1.0], (20_000, 1))
    first[:100] = rng.choice([-1.0, 1.0], (100, 3))  # where the saturating one bends down most
    first[100:200] = 0.0
    second = first + rng.standard_normal(first.shape) * rng.choice([1e-3, 0.1, 2.0], (20_000, 1))
    step, rise = second - first, penalty.gradient(second) - penalty.gradient(first)
    stretch = np.linalg.norm(rise, axis=1) / np.linalg.norm(step, axis=1)
    bend = np.sum(rise * step, axis=1) / np.sum(step**2, axis=1)
    assert 0.999 * penalty.smoothness <= stretch.max() <= penalty.smoothness * (1 + 1e-9)
    slack = 1e-3 * penalty.smoothness
    assert penalty.strong_convexity - 1e-9 <= bend.min() <= penalty.strong_convexity + slack
    assert penalty.is_convex == (bend.min() >= 0)


def test_the_negative_strong_convexity_is_exactly_what_is_missing_to_convexity(penalty):
    lack = max(0.0, -penalty.strong_convexity)

    def middle_excess(modulus):
        """Return by how much a chord's middle lies above the curve, at worst."""
        whole = [L2(modulus), penalty]
        ends = [(w - h, w + h) for w in np.linspace(-3, 3, 121) for h in (0.01, 0.1, 1.0)]
        values = [sum((p.value(np.array([a])) + p.value(np.array([b]))) / 2 for p in whole) for a, b in ends]
        middles = [sum(p.value(np.array([(a + b) / 2])) for p in whole) for a, b in ends]
        return min(v - m for v, m in zip(values, middles, strict=True))

    assert middle_excess(lack) >= -1e-12
    if lack:
        assert middle_excess(0.99 * lack) < -1e-8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_saturating_penalty_agrees_with_the_formula_in_the_paper(dtype):
    weights = np.array([0.0, 1e-9, -0.5, 1.0, 30.0], dtype)
    wide = weights.astype(np.float64)
    expected = 0.7 * np.sum(wide**2 / (1 + wide**2))
    assert SaturatingPenalty(0.7).value(weights) == pytest.approx(expected, rel=1e-6)
    expected = 1.4 * wide / (1 + wide**2) ** 2
    assert SaturatingPenalty(0.7).gradient(weights) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [1e100, 1e155, 1e200, 1.7e308])
def test_the_penalty_of_a_huge_weight_is_the_strength_and_its_gradient_vanishes(size):
    weights = np.array([size, -size, 0.0])
    with np.errstate(all="raise", under="ignore"):
        assert SaturatingPenalty(2.0).value(weights) == pytest.approx(4.0)
        gradient = SaturatingPenalty(2.0).gradient(weights)
    assert np.abs(gradient).max() <= 4 / 1e300
    assert gradient[2] == 0


def test_a_strength_of_zero_is_no_penalty():
    for penalty in (L2(0.0), SaturatingPenalty(0.0)):
        assert penalty.value(np.ones(3)) == 0.0
        assert not penalty.gradient(np.ones(3)).any()
        assert penalty.is_convex


def test_a_custom_penalty_must_declare_its_constants():
    class Incomplete(Regulariser):
        def value(self, weights):
            return 0.0

    with pytest.raises(TypeError, match="abstract"):
        Incomplete()


@pytest.mark.parametrize("strength", [-1e-9, math.nan, math.inf, "0.1", None])
@pytest.mark.parametrize(("kind", "name"), [(L2, "alpha"), (SaturatingPenalty, "strength")])
def test_an_impossible_strength_is_refused(kind, name, strength):
    with pytest.raises(ValueError, match=f"{name} must"):
        kind(strength)


def test_penalties_are_immutable(penalty):
    (field,) = dataclasses.fields(penalty)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(penalty, field.name, 1.0)
