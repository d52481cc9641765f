"""Max-pools move before ReLUs, which changes no bit of outputs and gradients."""

import copy

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from privet.federated.engines.known_models import known_graph
from privet.federated.engines.pool_order import pools_first


class Calls(nn.Module):
    """A network whose forward pass is a function of its convolution and its last layer."""

    def __init__(self, forward, features):
        super().__init__()
        self.conv, self.full, self.run = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(features, 3), forward

    def forward(self, images):
        return self.full(self.run(self.conv(images)).flatten(1))


def flat(features, *layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


MOVED = {
    "layers": flat(36, nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    "in place": flat(36, nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    "functions": Calls(lambda z: functional.max_pool2d(functional.relu(z), 2, ceil_mode=True), 64),
    "method": Calls(lambda z: functional.max_pool2d(torch.tanh(z).relu(), 2), 64),
    "one-dimensional": flat(60, nn.Flatten(2), nn.Conv1d(2, 4, 3), nn.ReLU(), nn.MaxPool1d(4)),
}

KEPT = {
    "sigmoids round to equal values": flat(36, nn.Conv2d(2, 4, 3), nn.Sigmoid(), nn.MaxPool2d(2)),
    "the mean of ReLUs is another": flat(36, nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AvgPool2d(2)),
}


def order(graph):
    return [str(node) for node in graph.nodes]


def outputs_and_gradients(model, X):
    scores = model(X)
    return [scores.detach(), *torch.autograd.grad(scores.square().sum(), list(model.parameters()))]


@pytest.mark.parametrize("name", MOVED)
def test_pools_that_moved_give_the_same_bits(name):
    torch.manual_seed(1)
    model = copy.deepcopy(MOVED[name])
    graph = known_graph(model, nn.CrossEntropyLoss())
    before = order(graph)
    pools_first(graph, dict(model.named_modules()))
    graph.lint()
    assert order(graph) != before
    X = torch.randn(5, 2, 8, 8).round(decimals=1)  # with ties
    X[0], X[1, 0, 2, 2] = 0.0, torch.nan
    for original, moved in zip(
        outputs_and_gradients(model, X[[0, 2, 3, 4]]),
        outputs_and_gradients(fx.GraphModule(model, graph), X[[0, 2, 3, 4]]),
        strict=True,
    ):
        assert torch.equal(original, moved)
    torch.testing.assert_close(fx.GraphModule(model, graph)(X), model(X), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", KEPT)
def test_other_pools_stay_in_their_place(name):
    graph = known_graph(KEPT[name], nn.CrossEntropyLoss())
    before = order(graph)
    pools_first(graph, dict(KEPT[name].named_modules()))
    assert order(graph) == before


def test_a_pool_stays_if_others_use_the_relu_too():
    graph = fx.Graph()
    image = graph.placeholder("image")
    relu = graph.call_function(torch.relu, (image,))
    pool = graph.call_function(functional.max_pool2d, (relu, 2))
    graph.output((pool, relu))
    before = order(graph)
    pools_first(graph, {})
    assert order(graph) == before
