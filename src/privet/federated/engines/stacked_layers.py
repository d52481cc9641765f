"""Gradients of many clients at once: only layers with weights tell the clients apart.

The examples of all clients form one batch. Layers without weights process it as a whole, because they treat each
example separately. A layer with weights applies the weights of each client to that client's examples: a linear layer by
a batched product, a convolution by one with groups, and an LSTM by batched products over time. A step of many clients
thus costs little more than its arithmetic. torch.func.vmap has a higher overhead, a slow layout of images, and no rule
for LSTMs.

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
from privet.federated.engines.stacked_lstm import stacked_lstm
from privet.federated.local_training import ClientTrainer
from privet.networks import TensorDict


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
    return Examples(
        functional.embedding((places + first).flatten(0, 1), weights["weight"].flatten(0, 1)), inputs.clients
    )


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


def lstm(layer: nn.LSTM, weights: TensorDict, inputs: Examples) -> tuple[Examples, None]:
    """Apply the LSTMs of all clients. Final states are left out, because known models do not use them."""
    values = inputs.by_rows()
    _check_axes(values.ndim == 3, layer, values)
    states = values.unflatten(0, (inputs.clients, -1)).permute(2, 0, 1, 3)
    for depth in range(layer.num_layers):
        own = {name.removesuffix(f"_l{depth}"): value for name, value in weights.items()}
        bias = own["bias_ih"] + own["bias_hh"] if layer.bias else None
        states = stacked_lstm(states, own["weight_ih"], own["weight_hh"], bias)
    return Examples(states.permute(1, 2, 0, 3).flatten(0, 1), inputs.clients), None


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
    graph = known_graph(trainer.model, trainer.loss)
    if graph is None:
        return None

    def gradients(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> TensorDict:
        here = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        examples = (Examples(each.flatten(0, 1), len(weights)) for each in inputs)
        with torch.enable_grad():
            outputs = _Forward(trainer.model, graph, here, len(weights)).run(*examples).by_rows()
            of_all = targets.flatten(0, 1)
            if isinstance(trainer.loss, _BROADCASTING) and outputs.shape != of_all.shape:
                raise ValueError(f"The outputs have shape {tuple(outputs.shape)}, the targets {tuple(of_all.shape)}.")
            losses = trainer.losses(outputs, of_all)
        slopes = torch.autograd.grad(losses, list(here.values()), weights.flatten(), materialize_grads=True)
        return dict(zip(here, slopes, strict=True))

    return gradients


def is_costly(model: nn.Module) -> bool:
    """Return whether the arithmetic of a model takes much longer than calling it, because layers reuse weights."""
    return any(isinstance(layer, (*_CONVOLUTIONS, nn.RNNBase)) for layer in model.modules())


class _Forward(fx.Interpreter):  # type: ignore[misc]  # torch.fx has no types
    """One forward pass of stacked models, whose parameters have one row per client."""

    def __init__(self, model: nn.Module, graph: fx.Graph, parameters: TensorDict, clients: int) -> None:
        super().__init__(model, garbage_collect_values=False, graph=graph)
        self._parameters, self._clients = parameters, clients
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a layer to the examples of all clients."""
        layer = self.fetch_attr(target)
        rule = RULES.get(type(layer))
        if rule is None:
            return _applied(layer, type(layer), args, kwargs)
        weights = {name: self._stacked(parameter) for name, parameter in layer.named_parameters()}
        return rule(layer, weights, args[0])

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a function to the examples of all clients."""
        return _applied(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a method of tensors to the examples of all clients."""
        return self.call_function(METHODS[target], args, kwargs)

    def _stacked(self, parameter: nn.Parameter) -> Tensor:
        """Return a parameter with one row per client. Parameters that are not trained are the same for all."""
        found = self._parameters.get(self._names[id(parameter)])
        return parameter.detach().expand(self._clients, *parameter.shape) if found is None else found


def _applied(function: Callable[..., Tensor], kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return examples after a function without weights, whose first argument they are."""
    examples, *others = args
    if isinstance(examples, tuple):  # the outputs of an LSTM, or its final states
        return examples[others[0]]
    if kind in _IN_ROWS:
        return Examples(function(examples.by_rows(), *others, **kwargs), examples.clients)
    return examples.replaced(function(examples.values, *others, **kwargs))
