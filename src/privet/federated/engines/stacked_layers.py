"""Gradients of many clients at once: only layers with weights tell the clients apart.

The examples of all clients form one batch. Layers without weights process it as a whole, because they treat each
example separately. A layer with weights applies the weights of each client to that client's examples: a linear layer by
a batched product, a convolution by one with groups, and an LSTM by batched products
(:mod:`privet.federated.engines.stacked_lstm`). A step of many clients thus costs little more than its arithmetic.
torch.func.vmap has a higher overhead, a slow layout of images, and no rule for LSTMs.

A model is run in this way only if all its operations are known to treat examples separately
(:mod:`privet.federated.engines.known_models`). Rules raise an error for inputs whose first axis may not run over
examples, because such inputs would mix the clients. The clients are then trained one by one.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from privet.federated.engines.known_models import METHODS, known_graph
from privet.federated.engines.pool_order import pools_first
from privet.federated.engines.stacked_lstm import stacked_lstm
from privet.federated.local_training import ClientTrainer
from privet.networks import TensorDict, underlying


@dataclass(frozen=True)
class Examples:
    """The examples of all clients at some layer.

    Images between convolutions have the channels of all clients side by side, and these innermost in memory
    (``torch.channels_last``). This is what a convolution with groups needs, and pooling is several times faster in it.

    Attributes
    ----------
    values : tensor of shape (clients * examples, ...) or (examples, clients * channels, ...)
        The examples, one client after another along the first or along the second axis.
    clients : int
        The number of clients.
    in_channels : bool
        Whether clients follow one another along the second axis.
    """

    values: Tensor
    clients: int
    in_channels: bool = False

    def by_rows(self) -> Tensor:
        """Return the examples with clients along the first axis."""
        if not self.in_channels:
            return self.values
        return self.values.unflatten(1, (self.clients, -1)).transpose(0, 1).flatten(0, 1)

    def by_channels(self) -> Tensor:
        """Return the examples with clients along the second axis."""
        if self.in_channels:
            return self.values
        whole = self.values.unflatten(0, (self.clients, -1)).transpose(0, 1).flatten(1, 2)
        return whole.contiguous(memory_format=torch.channels_last) if whole.ndim == 4 else whole

    def replaced(self, values: Tensor) -> "Examples":
        """Return other values in the same layout."""
        return Examples(values, self.clients, self.in_channels)


@dataclass(frozen=True)
class States:
    """The states of all clients after an LSTM: one tensor of shape (clients, examples, units) per time.

    Most models use the last one only. The gradient is then computed without an array of zeros for the others.
    """

    at: tuple[Tensor, ...]
    clients: int

    def at_all_times(self) -> Examples:
        """Return the states as examples, with times along the second axis."""
        return Examples(torch.stack(self.at, 2).flatten(0, 1), self.clients)

    def at_one_time(self, time: int) -> Examples:
        """Return the states at one time as examples."""
        return Examples(self.at[time].flatten(0, 1), self.clients)


Rule = Callable[[Any, TensorDict, Examples], Any]
"""Takes a layer, its weights with one row per client, and the examples of all clients. Returns the outputs."""


def _check_axes(is_fine: bool, layer: nn.Module, values: Tensor) -> None:
    if not is_fine:
        raise ValueError(
            f"{layer} was applied to a tensor of shape {tuple(values.shape)}, without an axis of examples."
        )


def linear(layer: nn.Linear, weights: TensorDict, inputs: Examples) -> Examples:
    """Apply the linear layers of all clients in one batched product."""
    values = inputs.by_rows()
    _check_axes(values.ndim >= 2 and values.shape[-1] == layer.in_features, layer, values)
    rows = values.reshape(inputs.clients, -1, layer.in_features)
    if layer.bias is None:
        outputs = torch.bmm(rows, weights["weight"].mT)
    else:
        outputs = torch.baddbmm(weights["bias"][:, None], rows, weights["weight"].mT)
    return Examples(outputs.view(*values.shape[:-1], layer.out_features), inputs.clients)


def convolution(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, weights: TensorDict, inputs: Examples) -> Examples:
    """Apply the convolutions of all clients as one, in which each client is a group."""
    _check_axes(inputs.values.ndim == layer.weight.ndim, layer, inputs.values)
    convolve = _CONVOLUTIONS[type(layer)]
    kernels, biases = weights["weight"].flatten(0, 1), weights["bias"].flatten() if "bias" in weights else None
    groups = inputs.clients * layer.groups
    outputs = convolve(inputs.by_channels(), kernels, biases, layer.stride, layer.padding, layer.dilation, groups)
    return Examples(outputs, inputs.clients, in_channels=True)


def embedding(layer: nn.Embedding, weights: TensorDict, inputs: Examples) -> Examples:
    """Look up the rows of all clients in one table, in which the tables of the clients follow one another."""
    places = inputs.by_rows().unflatten(0, (inputs.clients, -1))
    low, high = places.aminmax()
    if low < 0 or high >= layer.num_embeddings:
        raise IndexError("An index is outside the embedding.")  # It would hit the table of another client.
    first = layer.num_embeddings * torch.arange(inputs.clients).view(-1, *[1] * (places.ndim - 1))
    table, rows = weights["weight"].flatten(0, 1), (places + first).flatten()
    found = table.index_select(0, rows)  # whose gradient takes half the time of that of functional.embedding
    return Examples(found.view(-1, *places.shape[2:], layer.embedding_dim), inputs.clients)


def norm(layer: nn.GroupNorm | nn.LayerNorm, weights: TensorDict, inputs: Examples) -> Examples:
    """Normalise each example, then apply the scales and shifts of its client."""
    values = inputs.by_rows()
    _check_axes(values.ndim > (1 if isinstance(layer, nn.GroupNorm) else len(layer.normalized_shape)), layer, values)
    if isinstance(layer, nn.GroupNorm):
        outputs = functional.group_norm(values, layer.num_groups, eps=layer.eps)
        per_channel = (1, -1, *[1] * (values.ndim - 2))
    else:
        outputs = functional.layer_norm(values, layer.normalized_shape, eps=layer.eps)
        per_channel = (1, *[1] * (values.ndim - 1 - len(layer.normalized_shape)), *layer.normalized_shape)
    outputs = outputs.unflatten(0, (inputs.clients, -1))
    if "weight" in weights:
        outputs = outputs * weights["weight"].reshape(inputs.clients, *per_channel)
    if "bias" in weights:
        outputs = outputs + weights["bias"].reshape(inputs.clients, *per_channel)
    return Examples(outputs.flatten(0, 1), inputs.clients)


def lstm(layer: nn.LSTM, weights: TensorDict, inputs: Examples) -> tuple[States, None]:
    """Apply the LSTMs of all clients. Final states are left out, because known models do not use them.

    Half precision, which numpy does not multiply, is left to the kernel of torch.
    """
    values = inputs.by_rows()
    _check_axes(values.ndim == 3 and values.shape[-1] == layer.input_size and values.shape[1] > 0, layer, values)
    parts = values.unflatten(0, (inputs.clients, -1))
    if values.dtype in (torch.float32, torch.float64):
        return States(stacked_lstm(layer, weights, parts), inputs.clients), None
    start = values.new_zeros(layer.num_layers, parts.shape[1], layer.hidden_size)
    settings = (layer.bias, layer.num_layers, 0.0, True, False, True)
    own = zip(*(each.unbind() for each in weights.values()), strict=True)
    outputs = [torch.lstm(part, (start, start), each, *settings)[0] for part, each in zip(parts, own, strict=True)]
    return States(torch.stack(outputs).unbind(2), inputs.clients), None


_CONVOLUTIONS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
}

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Embedding: embedding,
    **dict.fromkeys(_CONVOLUTIONS, convolution),
    **dict.fromkeys((nn.GroupNorm, nn.LayerNorm), norm),
    nn.LSTM: lstm,
}
"""The layers with weights."""

_IN_ROWS = (nn.Flatten, torch.flatten, operator.getitem)
"""Operations without weights that need clients along the first axis. The others work in any layout."""

_BROADCASTING = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)


# ------------------------------------------------------------------------------------------------------- the gradients


def stacked_gradients(
    trainer: ClientTrainer,
) -> Callable[[TensorDict, tuple[Tensor, ...], Tensor, Tensor], TensorDict] | None:
    """Return a function that computes the gradients of stacked models, or None if an operation is not known."""
    graph = known_graph(trainer.model, underlying(trainer.loss))
    if graph is None:
        return None
    pools_first(graph, dict(trainer.model.named_modules()))
    run = _forward_pass(trainer.model, graph)

    def gradients(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> TensorDict:
        here = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            outputs = run(here, [Examples(each.flatten(0, 1), len(weights)) for each in inputs]).by_rows()
            of_all = targets.flatten(0, 1)
            if isinstance(underlying(trainer.loss), _BROADCASTING) and outputs.shape != of_all.shape:
                raise ValueError(f"The outputs have shape {tuple(outputs.shape)}, the targets {tuple(of_all.shape)}.")
            losses = trainer.losses(outputs, of_all)
        slopes = torch.autograd.grad(losses, list(here.values()), weights.flatten(), materialize_grads=True)
        return dict(zip(here, slopes, strict=True))

    return gradients


def is_costly(model: nn.Module) -> bool:
    """Return whether the arithmetic of a model takes much longer than calling it, because layers reuse weights."""
    return any(isinstance(layer, (*_CONVOLUTIONS, nn.RNNBase)) for layer in model.modules())


Operation = Callable[[Any, TensorDict], Any]
"""Takes the outputs of another operation and the parameters, with one row per client, and returns its own outputs."""


def _forward_pass(model: nn.Module, graph: fx.Graph) -> Callable[[TensorDict, list[Examples]], Examples]:
    """Return a function that runs a known model with the parameters of all clients."""
    *nodes, last = graph.nodes
    inputs = [node for node in nodes if node.op == "placeholder"]
    steps = [(node, node.args[0], _operation(model, node)) for node in nodes if node.op != "placeholder"]

    def run(parameters: TensorDict, examples: list[Examples]) -> Examples:
        values: dict[Any, Any] = dict(zip(inputs, examples, strict=True))
        for node, source, operation in steps:
            values[node] = operation(values[source], parameters)
        found: Examples | States = values[last.args[0]]
        return found.at_all_times() if isinstance(found, States) else found

    return run


def _operation(model: nn.Module, node: fx.Node) -> Operation:
    """Return what a node of the graph does with the examples of all clients."""
    if node.op == "call_module":
        layer = model.get_submodule(str(node.target))
        return _with_weights(model, layer) if type(layer) in RULES else _without_weights(layer, type(layer), (), {})
    function: Any = METHODS[str(node.target)] if node.op == "call_method" else node.target
    return _without_weights(function, function, node.args[1:], node.kwargs)


def _with_weights(model: nn.Module, layer: nn.Module) -> Operation:
    """Return a rule with the weights of its layer. Parameters that are not trained are the same for all clients."""
    rule = RULES[type(layer)]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = [(name, names[id(parameter)], parameter.detach()) for name, parameter in layer.named_parameters()]

    def apply(examples: Examples | States, parameters: TensorDict) -> Any:
        return rule(
            layer,
            {
                name: parameters[path] if path in parameters else fixed.expand(examples.clients, *fixed.shape)
                for name, path, fixed in own
            },
            examples.at_all_times() if isinstance(examples, States) else examples,
        )

    return apply


def _without_weights(function: Callable[..., Tensor], kind: Any, others: Any, options: Any) -> Operation:
    """Return a function that treats each example separately, as an operation."""

    def apply(examples: Any, _: TensorDict) -> Any:
        if isinstance(examples, tuple):  # the outputs of an LSTM, or its final states
            return examples[others[0]]
        if isinstance(examples, States):
            if kind is operator.getitem and len(others[0]) == 2 and isinstance(others[0][1], int):
                return examples.at_one_time(others[0][1])
            examples = examples.at_all_times()
        if kind in _IN_ROWS:
            return Examples(function(examples.by_rows(), *others, **options), examples.clients)
        return examples.replaced(function(examples.values, *others, **options))

    return apply
