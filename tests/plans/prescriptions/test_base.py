"""What the prescriptions share: numbers of steps, and budgets."""

import math

import pytest

from privet.checks import LARGEST_COUNT
from privet.plans.prescriptions import base
from privet.privacy import Budget


@pytest.mark.parametrize(
    ("formula", "steps"),
    [(-3.5, 1), (0.0, 1), (0.2, 1), (1.0, 1), (1.01, 2), (2.0, 2), (7.3, 8), (1e15, 10**15), (1e300, LARGEST_COUNT)],
)
def test_a_number_of_steps_is_rounded_up_and_lies_between_one_and_the_largest_count(formula, steps):
    assert base.at_least_one(formula) == steps
    assert isinstance(base.at_least_one(formula), int)


def test_a_formula_without_a_value_gives_no_number_of_steps():
    with pytest.raises(ValueError, match="is not a number"):
        base.at_least_one(math.nan)


def test_an_epsilon_gets_the_delta_of_its_number_of_records_and_delta_zero_is_refused():
    assert base.approximate(0.7, "Theorem 1", 50_000) == Budget(0.7, 2e-7)
    assert base.approximate((0.7, 1e-3), "Theorem 1") == Budget(0.7, 1e-3)
    with pytest.raises(ValueError, match="number of records"):
        base.approximate(0.7, "Theorem 1")
    with pytest.raises(ValueError, match="Theorem 1 is about Gaussian noise"):
        base.approximate((0.7, 0.0), "Theorem 1", 100)
