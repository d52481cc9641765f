import dataclasses

import numpy as np
import pytest

from privet.objectives import Logistic, Multinomial


@pytest.mark.parametrize(
    ("objective", "lipschitz", "smoothness"), [(Logistic(), 1, 1 / 4), (Multinomial(3), 2**0.5, 0.5)]
)
def test_the_constants_are_those_of_loss_rows_and_regulariser_together(tools, objective, lipschitz, smoothness):
    problem = tools.make_problem(
        np.ones((4, 2)), [0, 1, 0, 1], objective=objective, alpha=0.1, row_norm=3.0, intercept=4.0
    )
    assert problem.lipschitz == pytest.approx(5 * lipschitz, rel=2e-6)  # the regulariser cancels between neighbours
    assert problem.smoothness == pytest.approx(25 * smoothness + 0.1, rel=4e-6)
    assert problem.strong_convexity == 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("objective", "shape"), [(Logistic(), (3,)), (Multinomial(4), (3, 4))])
def test_it_starts_at_zero_whatever_the_data(tools, objective, shape, dtype):
    problem = tools.make_problem(np.ones((4, 2), dtype), [0, 1, 0, 1], objective=objective, intercept=0.5)
    assert problem.start().shape == shape
    assert not problem.start().any()


def test_the_value_is_mean_loss_plus_penalty(tools):
    problem = tools.make_problem(np.array([[0.6], [-0.6]]), [1, 1], alpha=0.2)
    weights = np.array([2.0])
    expected = (np.log1p(np.exp(-1.2)) + np.log1p(np.exp(1.2))) / 2 + 0.1 * 4
    assert problem.value(weights) == pytest.approx(expected)


def test_a_problem_is_frozen(tools):
    with pytest.raises(dataclasses.FrozenInstanceError):
        tools.silence(2, 2).targets = np.zeros(2)
