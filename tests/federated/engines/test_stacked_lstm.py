"""The LSTMs of several clients have the states and gradients of torch's kernel, and do not touch one another."""

import pytest
import torch
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.engines.batched import Batched
from privet.federated.engines.stacked_layers import stacked_gradients
from privet.federated.engines.stacked_lstm import stacked_lstm
from privet.networks import trained_weights

CLIENTS, BATCH, FEATURES, UNITS = 3, 4, 5, 6


def problem(layers=1, bias=True, times=7, kind=torch.float64):
    """Return an LSTM, weights of all clients, and their inputs."""
    torch.manual_seed(0)
    layer = nn.LSTM(FEATURES, UNITS, layers, bias=bias, batch_first=True).to(kind)
    weights = {
        name: (0.5 * torch.randn(CLIENTS, *value.shape, dtype=kind)).requires_grad_()
        for name, value in layer.named_parameters()
    }
    return layer, weights, torch.randn(CLIENTS, BATCH, times, FEATURES, dtype=kind, requires_grad=True)


def by_torch(layer, weights, inputs):
    """Return the states of all times, client by client."""
    start = inputs.new_zeros(layer.num_layers, BATCH, UNITS)
    settings = (layer.bias, layer.num_layers, 0.0, True, False, True)
    own = zip(*(each.unbind() for each in weights.values()), strict=True)
    return torch.stack([torch.lstm(X, (start, start), each, *settings)[0] for X, each in zip(inputs, own, strict=True)])


USES = {
    "the last state": lambda states: states[-1].sin(),
    "an early state": lambda states: states[0].sin(),
    "two states": lambda states: states[0] * states[-1],
    "all states": lambda states: torch.stack(states).sin(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("layers", "bias", "times"), [(1, True, 7), (2, True, 3), (1, False, 2), (1, True, 1)])
def test_states_and_gradients_equal_those_of_torch(use, layers, bias, times):
    layer, weights, inputs = problem(layers, bias, times)
    leaves = [inputs, *weights.values()]
    states = stacked_lstm(layer, weights, inputs)
    expected = by_torch(layer, weights, inputs).unbind(2)
    assert torch.allclose(torch.stack(states), torch.stack(expected), rtol=0, atol=1e-13)
    found, wanted = (torch.autograd.grad(USES[use](each).sum(), leaves) for each in (states, expected))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
    assert max(float(each.abs().max()) for each in wanted) > 0.1


def test_single_precision_is_as_accurate_as_that_of_torch():
    layer, weights, inputs = problem(times=20, kind=torch.float32)
    exact = by_torch(layer.double(), {name: each.double() for name, each in weights.items()}, inputs.double())
    errors = [
        float((torch.stack(states, 2) - exact).detach().abs().max())
        for states in (stacked_lstm(layer, weights, inputs), by_torch(layer.float(), weights, inputs).unbind(2))
    ]
    assert errors[0] < 2 * errors[1] + 1e-6


def test_inputs_without_gradients_are_left_alone():
    layer, weights, inputs = problem()
    states = stacked_lstm(layer, weights, inputs.detach())
    wanted = torch.autograd.grad(by_torch(layer, weights, inputs)[:, :, -1].sum(), list(weights.values()))
    for one, other in zip(torch.autograd.grad(states[-1].sum(), list(weights.values())), wanted, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e300])
def test_extreme_values_of_one_client_change_no_bit_of_another(wrong):
    layer, weights, inputs = problem()
    spoiled = inputs.detach().clone()
    spoiled[1] = wrong
    found = []
    for X in (inputs.detach(), spoiled):
        states = stacked_lstm(layer, weights, X)
        found.append([torch.stack(states, 1), *torch.autograd.grad(states[-1].sin().sum(), list(weights.values()))])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert not torch.equal(one[1], other[1])


class Sequences(nn.Module):
    """An LSTM for sequences of numbers, whose states at all times are used."""

    def __init__(self):
        super().__init__()
        self.lstm, self.norm = nn.LSTM(FEATURES, UNITS, batch_first=True), nn.LayerNorm(UNITS)
        self.scores = nn.Linear(7 * UNITS, 2)

    def forward(self, inputs):
        states, _ = self.lstm(inputs)
        return self.scores(torch.tanh(self.norm(states)).flatten(1))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_a_model_that_uses_all_states_has_the_gradients_of_each_client(kind):
    torch.manual_seed(1)
    made = ClientTrainer(Sequences().to(kind), nn.CrossEntropyLoss(), LocalTraining(0.1, batch_size=4, epochs=1), 1.0)
    gradients = stacked_gradients(made)
    assert gradients is not None
    begun = {name: value.detach() for name, value in made.model.named_parameters()}
    weights = {name: value.expand(CLIENTS, *value.shape).clone() for name, value in begun.items()}
    X, y = torch.randn(CLIENTS, BATCH, 7, FEATURES).to(kind), torch.randint(2, (CLIENTS, BATCH))
    found = gradients(weights, (X,), y, torch.full((CLIENTS, BATCH), 0.25, dtype=kind))
    for client in range(CLIENTS):
        here = {name: value.clone().requires_grad_() for name, value in begun.items()}
        slopes = torch.autograd.grad(made.objective(here, (X[client],), y[client]).mean(), list(here.values()))
        for name, slope in zip(here, slopes, strict=True):
            limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[kind]
            assert torch.allclose(found[name][client], slope, rtol=0, atol=limit)


def test_inputs_of_another_length_fail_for_their_client_only():
    made = ClientTrainer(Sequences(), nn.CrossEntropyLoss(), LocalTraining(0.1, batch_size=4, epochs=1), 1.0)
    datas = [(torch.randn(4, 7, n), torch.zeros(4, dtype=torch.int64)) for n in (FEATURES, FEATURES + 1, FEATURES)]
    engine = Batched(made, 3, workers=1)
    found = dict(engine.answers(trained_weights(made.model), 1, range(3), datas.__getitem__))
    assert isinstance(found[1], RuntimeError)
    assert isinstance(found[0], dict)
    assert isinstance(found[2], dict)
    engine.close()
