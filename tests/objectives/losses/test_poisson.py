import math

import numpy as np

from privet.objectives import Poisson


def test_the_loss_is_the_negative_log_likelihood_in_its_unit_below_the_bound():
    loss = Poisson(8.0)
    scores, counts = np.array([-1.0, 0.5, 2.0]), np.array([0.0, 3.0, 8.0])
    assert np.allclose(loss.loss(scores, counts), (np.exp(scores) - counts * scores) / 2)
    assert np.allclose(loss.residuals(scores, counts), (np.exp(scores) - counts) / 2)


def test_expected_counts_grow_linearly_above_the_bound():
    loss = Poisson(8.0)
    scores = math.log(8) + np.array([0.0, 1.0, 2.0])
    assert np.allclose(np.diff(loss.residuals(scores, np.zeros(3))), 8 / 2)
    assert np.isfinite(loss.residuals(np.array([1e5]), np.zeros(1))).all()
