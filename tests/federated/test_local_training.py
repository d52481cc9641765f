"""A client's update, compared with plain torch and with calculations by hand."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.local_training import order_source
from privet.networks import trained_weights, with_weights
from privet.privacy.noise.orders import OrderSource


def data(n=23, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=generator)
    return X, (X[:, 0] > 0).long()


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def length(update):
    return np.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in update.values()))


def updated(model, local, clip_norm=float("inf"), given=None, rounds_done=0, loss=None):
    trainer = ClientTrainer(model, loss or nn.CrossEntropyLoss(), local, clip_norm)
    return trainer.update(trained_weights(model), given or data(), rounds_done, OrderSource(5))


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.3}]
)
def test_without_clipping_an_update_equals_that_of_torch_sgd(options):
    local = LocalTraining(0.1, batch_size=5, epochs=3, **options)
    model = network()
    found = updated(model, local)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, **options)
    X, y = data()
    for rows in local.schedule(23, OrderSource(5)):
        chosen = torch.from_numpy(rows[rows >= 0])
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(X[chosen]), y[chosen]).backward()
        optimizer.step()
    for name, parameter in plain.named_parameters():
        moved = parameter.detach() - model.get_parameter(name).detach()
        assert np.allclose(found[name], moved.numpy(), atol=2e-6)


def test_the_projection_after_each_step_by_hand():
    """f = -x y w has gradient -1. The weight is projected onto [-0.25, 0.25] after each step, not only at the end."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    given = torch.tensor([[1.0], [1.0], [-1.0]]), torch.tensor([[1.0], [1.0], [1.0]])
    local = LocalTraining(0.2, batch_size=1, epochs=1)
    found = updated(model, local, 0.25, given, loss=lambda outputs, targets: -(outputs * targets).flatten())
    at = 0.0
    for (row,) in local.schedule(3, OrderSource(5)):
        at = min(max(at + 0.2 * float(given[0][row, 0]), -0.25), 0.25)
    assert np.isclose(found["weight"][0, 0], at)


@pytest.mark.parametrize("clip_norm", [1e-6, 0.01, 0.1])
def test_no_update_is_longer_than_the_clipping_norm(clip_norm):
    found = updated(network(), LocalTraining(5.0, batch_size=5, epochs=3), clip_norm)
    assert length(found) <= clip_norm * (1 + 1e-5)  # in float32; the server clips again
    assert length(found) > 0.5 * clip_norm


def test_projecting_after_each_step_differs_from_clipping_at_the_end():
    local = LocalTraining(2.0, batch_size=5, epochs=2)
    free, held = updated(network(), local), updated(network(), local, 0.1)
    scaled = {name: value * 0.1 / length(free) for name, value in free.items()}
    assert not all(np.allclose(scaled[name], held[name], atol=1e-4) for name in held)


def test_the_learning_rate_decays_over_rounds():
    local = LocalTraining(0.1, batch_size=23, epochs=1, decay=0.5)
    assert [local.rate(done) for done in (0, 1, 3)] == [0.1, 0.05, 0.0125]
    first, later = (updated(network(), local, rounds_done=done) for done in (0, 2))
    assert np.allclose(first["0.weight"], 4 * later["0.weight"], atol=1e-7)


def test_an_epoch_takes_every_example_once():
    batches = LocalTraining(0.1, batch_size=5, epochs=3).schedule(12, OrderSource(0))
    assert batches.shape == (9, 5)
    for epoch in batches.reshape(3, 15):
        assert sorted(epoch[epoch >= 0]) == list(range(12))
    assert (batches[2::3, 2:] == -1).all()
    assert not np.array_equal(batches[:3], batches[3:6])


@pytest.mark.parametrize("steps", [1, 3, 4, 20])
def test_steps_repeat_the_examples_as_often_as_needed(steps):
    batches = LocalTraining(0.1, batch_size=5, steps=steps).schedule(12, OrderSource(0))
    assert batches.shape == (steps, 5)


def test_a_client_without_examples_has_a_zero_update():
    X, y = data()
    found = updated(network(), LocalTraining(0.1, 5, epochs=1), 1.0, (X[:0], y[:0]))
    assert length(found) == 0


def test_orders_depend_on_client_and_round_and_repeat_with_the_seed():
    def order(*place):
        return order_source(*place).orders(1, 50)[0].tolist()

    assert order(3, 0, 7) == order(3, 0, 7)
    assert len({tuple(order(*place)) for place in [(3, 0, 7), (3, 1, 7), (3, 0, 8), (4, 0, 7)]}) == 4
    assert order(None, 0, 7) != order(None, 0, 7)


class Remembers(nn.Module):
    """A model that writes its inputs into a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen += x.sum(0)
        return self.layer(x + self.seen)


def test_buffers_do_not_pass_information_between_clients():
    trainer = ClientTrainer(Remembers(), nn.CrossEntropyLoss(), LocalTraining(0.1, 5, epochs=1), 1.0)
    weights = trained_weights(trainer.model)
    alone = trainer.update(weights, data(seed=1), 0, OrderSource(5))
    trainer.update(weights, data(seed=2), 0, OrderSource(5))
    after = trainer.update(weights, data(seed=1), 0, OrderSource(5))
    assert (trainer.model.seen == 0).all()
    assert all(np.array_equal(alone[name], after[name]) for name in alone)


def test_the_given_model_and_frozen_layers_are_not_modified():
    model = network()
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    found = updated(model, LocalTraining(0.1, 5, epochs=1))
    assert set(found) == {"0.bias", "2.weight", "2.bias"}
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_with_weights_returns_a_copy():
    model = network().double()
    weights = {name: value + 1 for name, value in trained_weights(model).items()}
    filled = with_weights(model, weights)
    assert not filled.training
    assert torch.equal(filled[0].bias, model[0].bias + 1)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"learning_rate": 0.0, "batch_size": 5, "epochs": 1}, "learning_rate"),
        ({"learning_rate": 0.1, "batch_size": 0, "epochs": 1}, "batch_size"),
        ({"learning_rate": 0.1, "batch_size": 5}, "either epochs or steps"),
        ({"learning_rate": 0.1, "batch_size": 5, "epochs": 1, "steps": 1}, "either epochs or steps"),
        ({"learning_rate": 0.1, "batch_size": 5, "epochs": 0}, "epochs"),
        ({"learning_rate": 0.1, "batch_size": 5, "steps": 0}, "steps"),
        ({"learning_rate": 0.1, "batch_size": 5, "steps": 1, "decay": 1.5}, "decay"),
        ({"learning_rate": 0.1, "batch_size": 5, "steps": 1, "momentum": 1.0}, "momentum"),
        ({"learning_rate": 0.1, "batch_size": 5, "steps": 1, "weight_decay": -1.0}, "weight_decay"),
    ],
)
def test_invalid_settings_are_refused(arguments, cause):
    with pytest.raises(ValueError, match=cause):
        LocalTraining(**arguments)


def test_unsupported_models_and_losses_are_refused():
    local = LocalTraining(0.1, 5, epochs=1)
    with pytest.raises(ValueError, match="GroupNorm"):
        ClientTrainer(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), nn.CrossEntropyLoss(), local, 1.0)
    with pytest.raises(ValueError, match="no parameters"):
        ClientTrainer(nn.Tanh(), nn.CrossEntropyLoss(), local, 1.0)
    with pytest.raises(ValueError, match="one value per example"):
        updated(network(), local, loss=lambda outputs, _: outputs.square().mean())


def test_names_of_the_former_module_local_are_deprecated():
    import privet.federated.local as former

    with pytest.warns(DeprecationWarning, match=r"Use privet\.federated\.order_source"):
        assert former.order_source is order_source
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = former.nothing
