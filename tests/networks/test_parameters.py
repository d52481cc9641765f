import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks need torch: install the extra deep")

from torch import nn  # noqa: E402

from privet.networks import (  # noqa: E402
    ParameterShapes,
    UpdateError,
    check_trainable,
    refuse_batch_norm,
    trained_parameters,
    trained_weights,
    with_weights,
)

WEIGHTS = {"conv": np.arange(24.0).reshape(2, 3, 2, 2), "bias": np.array(7.0)}


def test_weights_survive_the_way_into_a_vector_and_back():
    shapes = ParameterShapes.of(WEIGHTS)
    found = shapes.split(shapes.vector(WEIGHTS))
    assert shapes.size == 25
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], WEIGHTS[name]) for name in WEIGHTS)


class Hostile:
    def __array__(self, *args, **kwargs):
        raise MemoryError


@pytest.mark.parametrize(
    "update",
    [
        None,
        [1.0, 2.0],
        {},
        {"conv": WEIGHTS["conv"]},
        WEIGHTS | {"more": np.zeros(1)},
        WEIGHTS | {"conv": np.zeros((3, 2, 2, 2))},
        WEIGHTS | {"conv": np.zeros(24)},
        WEIGHTS | {"bias": np.array(np.nan)},
        WEIGHTS | {"bias": np.array(np.inf)},
        WEIGHTS | {"bias": np.array(1j)},
        WEIGHTS | {"bias": "seven"},
        WEIGHTS | {"bias": np.array(None)},
        WEIGHTS | {"bias": Hostile()},
    ],
)
def test_an_update_that_does_not_fit_raises_update_error(update):
    with pytest.raises(UpdateError):
        ParameterShapes.of(WEIGHTS).vector(update)


def test_an_initial_model_that_is_empty_or_not_finite_is_rejected():
    with pytest.raises(ValueError, match="not finite"):
        ParameterShapes.of({"w": np.array([np.nan])})
    with pytest.raises(ValueError, match="no parameters"):
        ParameterShapes.of({})


def test_only_parameters_that_require_gradients_are_trained():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    assert list(trained_parameters(model)) == list(trained_weights(model)) == ["1.weight", "1.bias"]
    check_trainable(model)
    with pytest.raises(ValueError, match="no parameters to train"):
        check_trainable(model.requires_grad_(False))


def test_with_weights_copies_the_model():
    model = nn.Linear(2, 1)
    weights = {name: value + 1 for name, value in trained_weights(model).items()}
    copy = with_weights(model, weights)
    assert not copy.training
    torch.testing.assert_close(copy.weight, model.weight + 1)


def test_batch_norm_is_refused_with_the_given_reason():
    with pytest.raises(ValueError, match=r"BatchNorm1d mixes examples\. Use nn\.GroupNorm"):
        refuse_batch_norm(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "mixes examples")
    refuse_batch_norm(nn.GroupNorm(1, 3), "mixes examples")
