import dataclasses
import math

import numpy as np
import pytest

from privet.objectives import L2


@pytest.mark.parametrize("shape", [(4,), (3, 2)])
def test_the_gradient_is_the_derivative_of_the_value(shape):
    penalty, weights, width = L2(0.3), np.linspace(-2, 3, math.prod(shape)).reshape(shape), 1e-6
    for place in np.ndindex(shape):
        nudge = np.zeros(shape)
        nudge[place] = width
        slope = (penalty.value(weights + nudge) - penalty.value(weights - nudge)) / (2 * width)
        assert penalty.gradient(weights)[place] == pytest.approx(slope, rel=1e-6)


def test_its_constants_are_attained():
    penalty, v, w = L2(0.3), np.array([3.0, -1.0]), np.array([0.5, 2.0])
    ratio = np.linalg.norm(penalty.gradient(v) - penalty.gradient(w)) / np.linalg.norm(v - w)
    assert penalty.smoothness == penalty.strong_convexity == pytest.approx(ratio)


def test_none_is_a_strength_of_zero():
    assert L2(0.0).value(np.ones(3)) == 0.0


@pytest.mark.parametrize("alpha", [-1e-9, math.nan, math.inf, "0.1", None])
def test_an_impossible_strength_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must"):
        L2(alpha)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        L2(0.1).alpha = 1.0
