import numpy as np
import pytest
from scipy.special import expit

from privet.objectives import Logistic, TamedLogistic


@pytest.mark.parametrize("odds", [-4.0, -0.5, 0.0, 0.1, 2.0, 7.0])
def test_the_tamed_loss_has_the_minimiser_of_the_logistic_loss_and_the_clipped_loss_does_not(odds):
    chance = expit(odds)
    residuals = TamedLogistic().residuals(np.full(2, odds), np.array([0.0, 1.0]))
    assert (1 - chance) * residuals[0] + chance * residuals[1] == pytest.approx(0, abs=1e-15)
    clipped = np.clip(Logistic().residuals(np.full(2, odds), np.array([0.0, 1.0])), -0.5, 0.5)
    if 0.05 < abs(odds) < 5:
        assert (1 - chance) * clipped[0] + chance * clipped[1] != pytest.approx(0, abs=1e-3)


def test_tamed_residuals_are_logistic_residuals_divided_by_a_function_of_the_score():
    scores = np.repeat(np.linspace(-30, 30, 121), 2)
    targets = np.tile([0.0, 1.0], 121)
    chances = expit(scores)
    expected = Logistic().residuals(scores, targets) / (2 * np.maximum(chances, 1 - chances))
    assert TamedLogistic().residuals(scores, targets) == pytest.approx(expected, abs=1e-15)
    assert np.abs(expected).max() == TamedLogistic.residual_bound
    assert TamedLogistic().start_curvature == Logistic().start_curvature == 0.25
