"""Round numbers contain what they are made for, at all magnitudes."""

import numpy as np
import pytest

from privet.drafts.round_numbers import grid, places_above, places_below, rounded_bounds, widened

NUMBERS = [0.0, -0.0, 5e-324, -5e-324, 1e-300, 0.1, 1.0, 9.95, 18, 99.5, 1950, -37.4, 1e22, -1e300, 1.7e308]


def test_the_grid_is_finite_and_strictly_increasing():
    assert np.isfinite(grid()).all()
    assert (np.diff(grid()) > 0).all()
    assert {0.0, 1.0, 0.1, 120.0, 2100.0, -37.0} <= set(grid().tolist())


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_lies_between_its_places(number):
    below, above = (float(grid()[place(np.array([number]))[0]]) for place in (places_below, places_above))
    assert below <= number <= above
    assert above - below <= 0.1 * abs(number) * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize("low", NUMBERS)
@pytest.mark.parametrize("high", NUMBERS)
def test_bounds_around_two_numbers_contain_both_and_are_different(low, high):
    for bounds in (rounded_bounds(low, high), widened(min(low, high), max(low, high))):
        assert bounds[0] < bounds[1]
        assert bounds[0] <= min(low, high) + 1e-11 * abs(bounds[0])
        assert max(low, high) <= bounds[1] + 1e-11 * abs(bounds[1])


@pytest.mark.parametrize(
    ("found", "expected"),
    [((18, 93), (18, 93)), ((0.3, 12), (0, 12)), ((93, 18), (18, 93)), ((0, 0), (0, 1)), ((-40, -1), (-40, 0))],
)
def test_round_bounds_start_at_zero_where_this_costs_little(found, expected):
    assert rounded_bounds(*found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [((18, 92), (10, 100)), ((0, 3.2), (0, 3.6)), ((1950, 2020), (1940, 2030)), ((5, 5), (4.5, 5.5))],
)
def test_the_bounds_of_a_sample_are_widened(found, expected):
    assert widened(*found) == expected
