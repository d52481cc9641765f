"""Many clients at once give what one client after the other gives."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.batched import Batched, _softmax_slopes, softmax_layer
from privet.federated.engine import Engine
from privet.federated.local import trained_weights

SIZES = [30, 7, 1, 12, 0, 8, 70]  # the last has more examples than an image has pixels


def images(sizes=SIZES):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 1, 8, 8, generator=generator), torch.randint(3, (n,), generator=generator)) for n in sizes]


MODELS = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
    "softmax without bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False)),
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)),
}
LOCALS = {
    "epochs": LocalTraining(0.3, batch_size=5, epochs=2),
    "steps": LocalTraining(0.3, batch_size=5, steps=4, decay=0.9),
    "decay": LocalTraining(0.3, batch_size=5, epochs=2, weight_decay=0.2),
    "momentum": LocalTraining(0.1, batch_size=5, epochs=2, momentum=0.9, weight_decay=0.2),
}


def trainer(model="softmax", local="epochs", clip_norm=0.4):
    torch.manual_seed(2)
    return ClientTrainer(MODELS[model](), nn.CrossEntropyLoss(), LOCALS[local], clip_norm)


def answers(engine, datas, rounds_done=1):
    weights = trained_weights(engine.trainer.model)
    return dict(engine.answers(weights, rounds_done, range(len(datas)), lambda client: datas[client]))


def assert_alike(one, other, atol=2e-6):
    assert one.keys() == other.keys()
    for client, update in one.items():
        assert update.keys() == other[client].keys()
        assert all(np.allclose(update[name], other[client][name], atol=atol) for name in update)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("clip_norm", [0.05, float("inf")])
def test_clients_of_all_sizes_train_together_as_they_do_alone(model, local, clip_norm):
    made = trainer(model, local, clip_norm)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none is sent to train alone
        together = answers(Batched(made, seed=3), images())
    assert_alike(together, answers(Engine(made, seed=3), images()))
    assert max(np.abs(value).max() for value in together[0].values()) > 1e-3


@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("clip_norm", [0.05, float("inf")])
def test_training_in_the_span_of_few_examples_is_training(local, clip_norm, monkeypatch):
    made = trainer("softmax", local, clip_norm)
    in_span = answers(Batched(made, seed=3), images())
    monkeypatch.setattr(Batched, "_has_few", lambda self, data: False)
    plainly = answers(Batched(made, seed=3), images())
    assert_alike(in_span, plainly)
    assert any(not np.array_equal(in_span[0][name], value) for name, value in plainly[0].items())  # it is another way
    assert all(np.array_equal(in_span[6][name], value) for name, value in plainly[6].items())


def test_more_clients_than_are_stacked_at_once():
    made = trainer("perceptron")
    engine = Batched(made, seed=3)
    engine._at_once = 4
    assert_alike(answers(engine, images()), answers(Engine(made, seed=3), images()))


def test_softmax_regression_is_known_by_its_layer_and_loss():
    assert softmax_layer(trainer("softmax"))
    assert not softmax_layer(trainer("perceptron"))
    local = LOCALS["epochs"]
    for model, loss, is_softmax in [
        (nn.Linear(4, 2), nn.CrossEntropyLoss(), True),
        (nn.Sequential(nn.Linear(4, 2)), nn.CrossEntropyLoss(), True),
        (nn.Linear(4, 2), nn.CrossEntropyLoss(label_smoothing=0.1), False),
        (nn.Linear(4, 2), nn.CrossEntropyLoss(weight=torch.ones(2)), False),
        (nn.Linear(4, 2), nn.MultiMarginLoss(), False),
        (nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)), nn.CrossEntropyLoss(), False),
        (nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), nn.CrossEntropyLoss(), False),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), nn.CrossEntropyLoss(), False),
    ]:
        assert bool(softmax_layer(ClientTrainer(model, loss, local, 1.0))) is is_softmax
    frozen = nn.Linear(4, 2)
    frozen.bias.requires_grad_(False)
    assert not softmax_layer(ClientTrainer(frozen, nn.CrossEntropyLoss(), local, 1.0))


def test_softmax_slopes_are_those_of_autograd():
    made = trainer("softmax")
    weights = {name: torch.randn(2, *value.shape) for name, value in made.start(trained_weights(made.model)).items()}
    X, y = torch.randn(2, 6, 1, 8, 8), torch.randint(3, (2, 6))
    shares = torch.rand(2, 6)
    found = _softmax_slopes(softmax_layer(made))(weights, (X,), y, shares)
    for client in range(2):
        one = {name: value[client].requires_grad_() for name, value in weights.items()}
        mean = (made.objective(one, (X[client],), y[client]) * shares[client]).sum()
        for name, slope in zip(one, torch.autograd.grad(mean, list(one.values())), strict=True):
            assert torch.allclose(found[name][client], slope, atol=1e-5)


@pytest.mark.parametrize("model", ["softmax", "perceptron"])
def test_one_client_with_other_data_does_not_disturb_the_rest(model):
    made = trainer(model)
    datas = images([10, 10, 10])
    for bad in [(torch.randn(10, 1, 9, 9), datas[2][1]), (datas[2][0], torch.full((10,), 77))]:
        found = answers(Batched(made, seed=3), [*datas[:2], bad])
        assert isinstance(found.pop(2), Exception)
        without = answers(Batched(made, seed=3), datas[:2])
        for client in without:  # to the last bit: training may blow up the rest
            assert all(np.array_equal(found[client][name], value) for name, value in without[client].items())


def test_a_model_that_does_not_stack_is_trained_client_by_client():
    class Branching(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs.flatten(1) if bool(inputs.sum() > 0) else -inputs.flatten(1))

    made = ClientTrainer(Branching(64, 3), nn.CrossEntropyLoss(), LOCALS["epochs"], 1.0)
    with pytest.warns(UserWarning, match="one by one"):
        found = answers(Batched(made, seed=3), images([10, 10]))
    assert_alike(found, answers(Engine(made, seed=3), images([10, 10])))


def test_a_nan_stays_with_its_client():
    made = trainer("perceptron", clip_norm=0.05)
    datas = images([10, 10])
    datas[0][0][3] = float("nan")
    found = answers(Batched(made, seed=3), datas)
    assert np.isnan(found[0]["1.weight"]).any()
    assert all(np.isfinite(value).all() for value in found[1].values())
