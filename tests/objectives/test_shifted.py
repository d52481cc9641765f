import numpy as np
import pytest

from privet.objectives import BoundedRows, Huber, Logistic, Shifted, Squared, TamedLogistic


@pytest.mark.parametrize(
    "objective", [Logistic(), TamedLogistic(), Huber(0.7), Squared()], ids=lambda o: type(o).__name__
)
def test_a_shifted_loss_is_the_loss_with_a_larger_intercept(objective):
    rng = np.random.default_rng(0)
    rows, targets = BoundedRows(rng.standard_normal((20, 3)), 1.0, 0.5), rng.integers(2, size=20).astype(float)
    weights, moved = rng.standard_normal((2, 4))
    moved = weights + np.array([0, 0, 0, 2.5 / 0.5])
    shifted = Shifted(objective, 2.5)
    assert shifted.mean_loss(weights, rows, targets) == pytest.approx(objective.mean_loss(moved, rows, targets))
    for clip in (0.1, 1e6):
        slope = shifted.gradient_sum(weights, rows, targets, clip)
        assert slope == pytest.approx(objective.gradient_sum(moved, rows, targets, clip))
    assert shifted.lipschitz(2.0) == objective.lipschitz(2.0)
    assert shifted.smoothness(2.0) == objective.smoothness(2.0)
    assert shifted.start_curvature == objective.start_curvature
    assert shifted.start_residual_bound == shifted.residual_bound
    assert np.array_equal(shifted.start(4), objective.start(4))


def test_a_shifted_loss_refuses_the_targets_that_the_loss_refuses():
    with pytest.raises(ValueError, match="0 or 1"):
        Shifted(Logistic(), 1.0).check_targets(np.array([0.5]))
