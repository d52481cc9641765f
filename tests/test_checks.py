import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from privet.checks import count, delta_value, nonnegative, positive, probability

NUMBER_CHECKS = [positive, nonnegative, probability, lambda name, value: delta_value(value)]
NOT_FINITE_NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    np.float64("nan"),
    True,
    np.True_,
    "1.0",
    b"1",
    None,
    1j,
    [0.5],
    np.zeros(1),
    np.array([[0.5, 0.5], [0.5, 0.5]]),  # whose repr has two lines
    Decimal("0.5"),
    10**400,  # a whole number that no float holds
]


def one_line(error):
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("value", NOT_FINITE_NUMBERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("check", NUMBER_CHECKS, ids=["positive", "nonnegative", "probability", "delta"])
def test_non_finite_and_non_numeric_values_are_refused_by_name(check, value):
    with pytest.raises(ValueError, match="delta") as error:
        check("delta", value)
    one_line(error)


@pytest.mark.parametrize(
    ("check", "inside", "outside"),
    [
        (positive, [5e-324, 1, 1e308], [0, -0.0, -5e-324, -1]),
        (nonnegative, [0, -0.0, 5e-324, 1e308], [-5e-324, -1]),
        (probability, [5e-324, 0.5, 1], [0, -0.1, math.nextafter(1, 2), 2]),
        (lambda name, value: delta_value(value), [0, 5e-324, math.nextafter(1, 0)], [-5e-324, 1, 1.5]),
    ],
    ids=["positive", "nonnegative", "probability", "delta"],
)
def test_the_ends_of_intervals_are_accepted_or_refused_exactly(check, inside, outside):
    for value in inside:
        assert check("delta", value) == value
    for value in outside:
        with pytest.raises(ValueError, match=r"^delta must"):
            check("delta", value)


@pytest.mark.parametrize("value", [1, np.int64(1), np.float32(1), np.float64(1), Fraction(1)], ids=repr)
@pytest.mark.parametrize("check", [positive, nonnegative, probability], ids=lambda check: check.__name__)
def test_every_real_type_becomes_a_plain_float(check, value):
    assert type(check("x", value)) is float


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)], ids=repr)
def test_count_returns_a_plain_int(value):
    assert type(count("steps", value)) is int
    assert count("steps", value) == 3


@pytest.mark.parametrize(
    "value", [0, -1, 1.0, 2.5, math.nan, math.inf, True, np.True_, "3", None, np.array([3])], ids=repr
)
def test_count_refuses_all_but_whole_numbers_of_at_least_one(value):
    with pytest.raises(ValueError, match=r"^steps must be") as error:
        count("steps", value)
    one_line(error)


def test_count_accepts_another_lower_limit():
    assert count("n", 0, at_least=0) == 0
    with pytest.raises(ValueError, match="at least 2"):
        count("n", 1, at_least=2)
