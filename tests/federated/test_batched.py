"""Many clients at once give what one client after the other gives."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.batched import Batched, softmax_slopes
from privet.federated.engine import Engine
from privet.federated.local import trained_weights

SIZES = [30, 7, 1, 12, 0, 8]


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


def test_more_clients_than_are_stacked_at_once():
    made = trainer("perceptron")
    engine = Batched(made, seed=3)
    engine._at_once = 4
    assert_alike(answers(engine, images()), answers(Engine(made, seed=3), images()))


def test_softmax_regression_is_known_by_its_layer_and_loss():
    assert softmax_slopes(trainer("softmax"))
    assert not softmax_slopes(trainer("perceptron"))
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
        assert bool(softmax_slopes(ClientTrainer(model, loss, local, 1.0))) is is_softmax
    frozen = nn.Linear(4, 2)
    frozen.bias.requires_grad_(False)
    assert not softmax_slopes(ClientTrainer(frozen, nn.CrossEntropyLoss(), local, 1.0))


def test_softmax_slopes_are_those_of_autograd():
    made = trainer("softmax")
    weights = {name: torch.randn(2, *value.shape) for name, value in made.start(trained_weights(made.model)).items()}
    X, y = torch.randn(2, 6, 1, 8, 8), torch.randint(3, (2, 6))
    shares = torch.rand(2, 6)
    found = softmax_slopes(made)(weights, (X,), y, shares)
    for client in range(2):
        one = {name: value[client].requires_grad_() for name, value in weights.items()}
        mean = (made.objective(one, (X[client],), y[client]) * shares[client]).sum()
        for name, slope in zip(one, torch.autograd.grad(mean, list(one.values())), strict=True):
            assert torch.allclose(found[name][client], slope, atol=1e-5)


@pytest.mark.parametrize("model", ["softmax", "perceptron"])
def test_one_client_with_other_data_does_not_disturb_the_rest(model):
    made = trainer(model)
    datas = images([10, 10, 10])
    datas[1] = (torch.randn(10, 1, 9, 9), datas[1][1])
    with pytest.warns(UserWarning, match="one by one"):
        found = answers(Batched(made, seed=3), datas)
    assert isinstance(found.pop(1), Exception)
    alone = answers(Engine(made, seed=3), datas)
    alone.pop(1)
    assert_alike(found, alone)


def test_a_nan_stays_with_its_client():
    made = trainer("perceptron", clip_norm=0.05)
    datas = images([10, 10])
    datas[0][0][3] = float("nan")
    found = answers(Batched(made, seed=3), datas)
    assert np.isnan(found[0]["1.weight"]).any()
    assert all(np.isfinite(value).all() for value in found[1].values())
