"""Numbers for readers: rounded to the safe side, and written as people write them."""

import math

import numpy as np
import pytest

from privet.report.numbers import delta, down, percent_up, plain, up, upper
from privet.report.svg import Axis, power_ticks, round_ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (0.1 + 0.2, "0.3"),
        (1234567.0, "1,234,567"),
        (-0.5, "−0.5"),
        (6.2e-7, "6.2 × 10⁻⁷"),
        (1e-12, "10⁻¹²"),
        (math.inf, "unlimited"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert plain(value) == text


def test_rounding_is_to_the_named_side():
    values = np.random.default_rng(0).lognormal(0, 5, 500)
    for value in values:
        assert value * (1 - 1e-11) <= upper(value, 4) <= value * 1.002
    assert up(0.30000000000000004) == "0.3"
    assert up(1.0001, 3) == "1.01"
    assert down(1.9999, 3) == "1.99"
    assert up(math.inf) == "unlimited"


def test_shares_are_rounded_up_and_at_most_all():
    assert percent_up(0.5 + 1e-12).replace("\u00a0", " ") == "50 %"
    assert percent_up(0.50001).replace("\u00a0", " ") == "50.1 %"
    assert percent_up(1.0).replace("\u00a0", " ") == "100 %"


def test_deltas_are_powers_of_ten():
    assert [delta(each) for each in (1e-3, 1e-6, 2.5e-8, 0.0)] == ["10⁻³", "10⁻⁶", "2.5 × 10⁻⁸", "0"]
    assert delta(6.1911e-7) == "6.2 × 10⁻⁷"  # rounded up


def test_ticks_are_round_and_within_the_range():
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, high = sorted(rng.normal(0, 10.0 ** rng.integers(-3, 4), 2))
        ticks = [value for value, _ in round_ticks(low, high)]
        assert 2 <= len(ticks) <= 8
        assert low - 1e-9 * abs(low) <= ticks[0] and ticks[-1] <= high + 1e-9 * abs(high)
    assert [text for _, text in power_ticks(1e-12, 1e-2)] == ["10⁻¹²", "10⁻¹⁰", "10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²"]


def test_an_axis_moves_what_lies_outside_to_its_ends():
    axis = Axis("x", 1.0, 100.0, (), is_log=True)
    assert [axis.share(value) for value in (0.1, 1.0, 10.0, 100.0, 1e9)] == pytest.approx([0, 0, 0.5, 1, 1])
