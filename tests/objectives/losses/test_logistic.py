import numpy as np
import pytest
from scipy.special import expit

from privet.objectives import Logistic


@pytest.mark.parametrize("target", [0, 1])
def test_the_logistic_loss_is_a_negative_log_likelihood(target):
    scores = np.array([-3.0, 0.0, 2.5])
    likelihood = expit(scores) if target else 1 - expit(scores)
    assert Logistic().loss(scores, np.full(3, target)) == pytest.approx(-np.log(likelihood))


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_labels_of_any_numeric_type_give_the_same_losses_and_residuals(kind):
    scores, labels = np.array([-2.0, -0.3, 0.3, 2.0]), np.array([0.0, 1.0, 0.0, 1.0])
    assert np.array_equal(Logistic().loss(scores, labels.astype(kind)), Logistic().loss(scores, labels))
    assert np.array_equal(Logistic().residuals(scores, labels.astype(kind)), Logistic().residuals(scores, labels))
