"""Gradients of many clients at once: only layers with weights tell the clients apart.

The examples of all clients form one batch. Layers without weights process it as a whole, because they treat each
example separately. A layer with weights applies the weights of each client to that client's examples: a linear layer by
a batched product, and a convolution by one with groups. A step of many clients thus costs little more than its
arithmetic. torch.func.vmap has a higher overhead, and pooling is slow in its layout of images.

A model is run in this way only if all its operations are known to treat examples separately. Its graph is therefore
recorded with torch.fx, and each operation is looked up here. Everything else is left to vmap.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from privet.federated.local_training import ClientTrainer
from privet.global_generators import states
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


Rule = Callable[[Any, TensorDict, Examples], Examples]
"""Takes a layer, its weights with one row per client, and the examples of all clients. Returns the outputs."""


def linear(layer: nn.Linear, weights: TensorDict, inputs: Examples) -> Examples:
    """Apply the linear layers of all clients in one batched product."""
    values = inputs.by_rows()
    rows = values.reshape(inputs.clients, -1, layer.in_features)
    if layer.bias is None:
        outputs = torch.bmm(rows, weights["weight"].mT)
    else:
        outputs = torch.baddbmm(weights["bias"][:, None], rows, weights["weight"].mT)
    return Examples(outputs.view(*values.shape[:-1], layer.out_features), inputs.clients)


def convolution(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, weights: TensorDict, inputs: Examples) -> Examples:
    """Apply the convolutions of all clients as one, in which each client is a group."""
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
    if isinstance(layer, nn.GroupNorm):
        outputs = functional.group_norm(values, layer.num_groups, eps=layer.eps)
        per_channel = (1, -1, *[1] * (values.ndim - 2))
    else:
        outputs = functional.layer_norm(values, layer.normalized_shape, eps=layer.eps)
        per_channel = (1, *[1] * (values.ndim - 1 - len(layer.normalized_shape)), *layer.normalized_shape)
    outputs = outputs.unflatten(0, (inputs.clients, -1))
    if "weight" in weights:
        outputs = outputs * weights["weight"].view(-1, *per_channel)
    if "bias" in weights:
        outputs = outputs + weights["bias"].view(-1, *per_channel)
    return Examples(outputs.flatten(0, 1), inputs.clients)


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
}
"""The layers with weights."""

_ACTIVATIONS = {nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.LeakyReLU, nn.Softplus, nn.Identity}
_POOLS = {nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d}
IN_ANY_LAYOUT = {
    *_ACTIVATIONS,
    *_POOLS,
    functional.relu,
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    functional.max_pool2d,
    functional.avg_pool2d,
}
"""Layers and functions without weights that treat each channel of each example separately."""

METHODS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "flatten": torch.flatten}
"""Methods of tensors with the functions that they are."""

LOSSES = {nn.CrossEntropyLoss, nn.NLLLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss}
"""Losses that treat each example separately."""


# ------------------------------------------------------------------------------------------------------- the gradients


def stacked_gradients(
    trainer: ClientTrainer,
) -> Callable[[TensorDict, tuple[Tensor, ...], Tensor, Tensor], TensorDict] | None:
    """Return a function that computes the gradients of stacked models, or None if an operation is not known here."""
    graph = known_graph(trainer)
    if graph is None:
        return None

    def together(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> TensorDict:
        here = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        examples = (Examples(each.flatten(0, 1), len(weights)) for each in inputs)
        outputs = _Forward(trainer.model, graph, here, len(weights)).run(*examples).by_rows()
        losses = trainer.losses_of(outputs, targets.flatten(0, 1))
        slopes = torch.autograd.grad((losses * weights.flatten()).sum(), list(here.values()), materialize_grads=True)
        return dict(zip(here, slopes, strict=True))

    def in_parts(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> TensorDict:
        sizes = weights.count_nonzero(1).tolist()
        parts = parts_of(sorted(range(len(sizes)), key=lambda client: -sizes[client]), sizes)
        if len(parts) == 1:
            return together(parameters, inputs, targets, weights)
        found = {name: torch.empty_like(value) for name, value in parameters.items()}
        for part in parts:
            longest = sizes[part[0]]
            of_part = together(
                {name: value[part] for name, value in parameters.items()},
                tuple(each[part, :longest] for each in inputs),
                targets[part, :longest],
                weights[part, :longest],
            )
            for name, value in of_part.items():
                found[name][part] = value
        return found

    return in_parts if is_costly(trainer.model) else together


def is_costly(model: nn.Module) -> bool:
    """Return whether the arithmetic of a model takes much longer than calling it, because weights are used often."""
    return any(isinstance(layer, tuple(_CONVOLUTIONS)) for layer in model.modules())


_WORTH = 0.8
"""Two parts must have at most this share of the places of one, because calling a model twice takes time, too."""


def parts_of(clients: list[int], sizes: Sequence[int]) -> list[list[int]]:
    """Return parts of the clients with batches of similar sizes, given all clients by decreasing size.

    In each part, all batches have as many places as the largest one, and free places cost as much as examples.
    """
    n = len(clients)
    places = [cut * sizes[clients[0]] + (n - cut) * sizes[clients[cut]] for cut in range(1, n)]
    if n == 1 or min(places) > _WORTH * n * sizes[clients[0]]:
        return [clients]
    cut = 1 + places.index(min(places))
    return [*parts_of(clients[:cut], sizes), *parts_of(clients[cut:], sizes)]


class _Forward(fx.Interpreter):
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


def _applied(function: Callable[..., Tensor], kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Examples:
    """Return examples after a function without weights, whose first argument they are."""
    examples, *others = args
    if kind in IN_ANY_LAYOUT:
        return examples.replaced(function(examples.values, *others, **kwargs))
    return Examples(function(examples.by_rows(), *others, **kwargs), examples.clients)


# ------------------------------------------------------------------------------------------------ what can be stacked


def known_graph(trainer: ClientTrainer) -> fx.Graph | None:
    """Return the graph of a model, or None if the examples of several clients cannot be in one batch.

    That is the case if an operation of the model or the loss may mix examples, or if the forward pass depends on
    values, on random numbers or on hooks, which a graph does not show.
    """
    model = trainer.model
    if type(trainer.loss) not in LOSSES or any(_has_hooks(layer) for layer in model.modules()):
        return None
    before = states()
    try:
        graph = fx.Tracer().trace(model)
    except Exception:  # A forward pass that depends on values cannot be recorded, and it may raise anything.
        return None
    layers = dict(model.named_modules())
    is_known = states() == before and all(_is_known(node, layers) for node in graph.nodes)
    return graph if is_known else None


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def _is_known(node: fx.Node, layers: Mapping[str, nn.Module]) -> bool:
    """Return whether an operation treats each example separately, and takes and returns one example per row."""
    if node.op == "placeholder":
        return True
    first, *others = node.args
    if not isinstance(first, fx.Node) or any(isinstance(each, fx.Node) for each in (*others, *node.kwargs.values())):
        return False
    if node.op == "call_module":
        return not others and not node.kwargs and _is_known_layer(layers[str(node.target)])
    if node.target is operator.getitem:  # the same part of each example
        index = others[0]
        is_simple = isinstance(index, tuple) and all(isinstance(each, int | slice) for each in index)
        return is_simple and index[:1] == (slice(None),)
    function = METHODS.get(str(node.target)) if node.op == "call_method" else node.target
    if function is torch.flatten:
        start = others[0] if others else node.kwargs.get("start_dim", 0)
        return isinstance(start, int) and start >= 1
    return node.op == "output" or function in IN_ANY_LAYOUT


def _is_known_layer(layer: Any) -> bool:
    match layer:
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return type(layer) in RULES and layer.padding_mode == "zeros"
        case nn.Embedding():
            is_plain = layer.padding_idx is None and layer.max_norm is None
            return type(layer) is nn.Embedding and is_plain and not (layer.scale_grad_by_freq or layer.sparse)
        case nn.Flatten():
            return type(layer) is nn.Flatten and layer.start_dim >= 1
    return type(layer) in RULES or type(layer) in IN_ANY_LAYOUT
