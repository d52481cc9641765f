"""Attacks on the clipping of deep networks: examples whose gradient is long but looks short because of rounding.

If a norm is computed too small, its example passes the clip with any length, for which the noise was not calibrated.
Each attack tries many examples, one at a time, and the norm of each clipped gradient is computed in double precision.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402

from privet.deep.clipping import BatchGradients  # noqa: E402
from privet.deep.clipping.convolution import PatchSum  # noqa: E402
from privet.deep.clipping.gradients import Direct, OuterSum, RowSum  # noqa: E402

CLIP = 1e-3
WIDE = 64
ATTACKS = {}


def attack(make):
    ATTACKS[make.__name__] = make
    return make


def almost_opposite(random, width, size=1e6):
    """Return two rows with a small sum. The entries of a row are equal, so that all rounding errors have one sign."""
    value, apart = random.uniform(0.5, 1.5), 10 ** random.uniform(-4.5, -2)
    rows = np.array([[value], [-value * (1 + apart)]]) * size
    return torch.tensor(rows, dtype=torch.float32).expand(2, width)[None]


@attack
def two_places_of_a_sequence(random):
    left = torch.full((1, 1, 2, WIDE), random.uniform(0.5, 1.5))
    return OuterSum(left, almost_opposite(random, WIDE)[:, None], (WIDE, WIDE))


@attack
def two_places_of_an_image(random):
    layer = nn.Conv1d(WIDE, WIDE, 1)
    inputs = torch.full((1, WIDE, 2), random.uniform(0.5, 1.5))
    return PatchSum(layer, inputs, almost_opposite(random, WIDE).transpose(1, 2).contiguous())


@attack
def two_uses_of_a_row(random):
    return RowSum(torch.zeros((1, 2), dtype=torch.long), almost_opposite(random, 1), (1, 1))


@attack
def a_difference_of_gradients_that_are_alike(random):
    """The inputs grow by almost the factor by which the output gradients shrink, so the two gradients nearly cancel."""
    grown, apart = 1 + random.uniform(0.1, 1), 10 ** random.uniform(-4.5, -3)
    here, there = torch.full((1, 1, 1, WIDE), random.uniform(0.5, 1.5)), torch.full((1, 1, 1, WIDE), 1e6)
    first = OuterSum(here, there, (WIDE, WIDE))
    return first.minus(OuterSum(here * grown, there * ((1 + apart) / grown), (WIDE, WIDE)))


@attack
def small_inputs_and_large_gradients(random):
    left = torch.full((1, 1, 1, 100 * WIDE), 10 ** random.uniform(-24, -22.6))
    return OuterSum(left, torch.full((1, 1, 1, 1), 1e19), (1, 100 * WIDE))


@attack
def small_inputs_and_large_gradients_at_many_places(random):
    left = torch.full((1, 1, 20, WIDE), 10 ** random.uniform(-24, -22.6))
    return OuterSum(left, torch.full((1, 1, 20, WIDE), 1e17), (WIDE, WIDE))


@attack
def numbers_whose_squares_vanish(random):
    return Direct(torch.full((1, 1000 * WIDE), 10 ** random.uniform(-24, -22)))


@attack
def numbers_whose_squares_are_infinite(random):
    return Direct(torch.full((1, WIDE), 10 ** random.uniform(18, 38)))


@pytest.mark.parametrize("name", ATTACKS)
def test_no_example_gets_past_the_clip(name):
    random, parameter = np.random.default_rng(0), nn.Parameter(torch.zeros(1))
    left = []
    for _ in range(200):
        with torch.no_grad():
            batch = BatchGradients(torch.zeros(1), {parameter: ATTACKS[name](random)})
            left.append(float(batch.clipped_sum(CLIP)[parameter].double().norm()))
    assert max(left) <= 1.01 * CLIP, f"{sum(each > 1.01 * CLIP for each in left)} of {len(left)} got past it"
