import numpy as np
import pytest

from privet.federated import geometric, tail
from privet.federated.averaging import Average

MODELS = [np.array([float(t), t**2]) for t in range(11)]


@pytest.mark.parametrize(
    "weight", [lambda t: 1.0, lambda t: t, geometric(1.3), geometric(0.5), tail(10), tail(10, 0.1)]
)
def test_the_running_mean_is_the_weighted_mean(weight):
    average = Average(weight)
    for t, model in enumerate(MODELS):
        average.add(model, t)
    weights = [weight(t) for t in range(11)]
    assert np.allclose(average.output(), np.average(MODELS, axis=0, weights=weights), rtol=1e-12)


def test_tail_averages_the_last_models():
    assert [tail(10, 0.3)(t) for t in range(11)] == [0.0] * 8 + [1.0] * 3
    assert sum(tail(3, 0.01)(t) for t in range(4)) == 1


def test_growing_weights_do_not_overflow():
    average = Average(geometric(10.0))
    for t in range(300):
        average.add(np.array([float(t)]), t)
    assert abs(average.output()[0] - (299 - 1 / 9)) < 1e-9


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_negative_and_non_finite_weights_are_refused(bad):
    with pytest.raises(ValueError, match="at least 0"):
        Average(lambda t: bad).add(np.zeros(1), 0)
