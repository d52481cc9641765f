"""Which models treat each example separately, so that the examples of several clients can be in one batch.

An operation that mixed examples would let one client influence the update of another, and the sensitivity of a round
would be unbounded. A model is therefore known only if its graph, recorded with torch.fx, consists of the operations
that are listed here, and if nothing that a graph does not show can change the forward pass.
"""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.modules import module as global_hooks

from privet.global_generators import kept, states

_ACTIVATIONS = {nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.LeakyReLU, nn.Softplus, nn.Identity}
_POOLS = {nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d}
_CONVOLUTIONS = {nn.Conv1d, nn.Conv2d, nn.Conv3d}
_OTHERS = {nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.Embedding, nn.LSTM, nn.Flatten}
LAYERS = _ACTIVATIONS | _POOLS | _CONVOLUTIONS | _OTHERS
"""Known layers. Subclasses are not known."""

FUNCTIONS = {functional.relu, torch.relu, torch.tanh, torch.sigmoid, functional.max_pool2d, functional.avg_pool2d}
"""Known functions without weights, which treat each channel of each example separately."""

METHODS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "flatten": torch.flatten}
"""Methods of tensors with the functions that they are."""

LOSSES = {nn.CrossEntropyLoss, nn.NLLLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss}
"""Losses that treat each example separately."""


def known_graph(model: nn.Module, loss: Any) -> fx.Graph | None:
    """Return the graph of a known model with a known loss, or None."""
    is_plain = all(_is_plain(layer) for layer in model.modules()) and not _global_hooks()
    if not is_plain or not _is_known_loss(loss):
        return None
    restore, before = kept(), states()
    try:
        graph = fx.Tracer().trace(model)
        is_random = states() != before
    except Exception:  # A forward pass that depends on values cannot be recorded, and it may raise anything.
        return None
    finally:
        restore()
    layers = dict(model.named_modules())
    return None if is_random or not all(_is_known(node, layers) for node in graph.nodes) else graph


def _is_plain(layer: nn.Module) -> bool:
    """Return whether calling a layer calls the forward method of its class and nothing else."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    is_own_call = type(layer).__call__ is not nn.Module.__call__ or "forward" in vars(layer)
    parameters = layer._parameters.values()
    has_plain_parameters = all(each is None or type(each) is nn.Parameter for each in parameters)
    return not any(hooks) and not is_own_call and has_plain_parameters and not _parameter_hooks(parameters)


def _parameter_hooks(parameters: Any) -> bool:
    """Return whether a parameter has hooks, which change its gradient."""
    return any(each is not None and each._backward_hooks for each in parameters)


def _global_hooks() -> bool:
    """Return whether hooks are registered for all modules."""
    names = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    return any(getattr(global_hooks, name) for name in names)


def _is_known_loss(loss: Any) -> bool:
    if type(loss) not in LOSSES or not _is_plain(loss):
        return False
    return not isinstance(loss, nn.BCEWithLogitsLoss) or (loss.weight is None and loss.pos_weight is None)


def _is_known(node: fx.Node, layers: Mapping[str, nn.Module]) -> bool:
    """Return whether an operation treats each example separately, and takes and returns one example per row."""
    if node.op == "placeholder":  # A default value may be tested, and variable arguments may be counted.
        return not node.args and not str(node.target).startswith("*")
    if node.op == "get_attr" or not node.args:
        return False
    first, *others = node.args
    constants = (*others, *node.kwargs.values())
    if not isinstance(first, fx.Node) or not all(map(_is_constant, constants)):
        return False
    if _is_lstm(first, layers):  # The model may use the outputs at all times, but not the final states.
        return node.target is operator.getitem and (others == [0] or (others == [1] and not node.users))
    if node.op == "call_module":
        return not constants and _is_known_layer(layers[str(node.target)], node)
    function = METHODS.get(str(node.target)) if node.op == "call_method" else node.target
    return node.op == "output" or _is_known_function(function, others, node.kwargs)


def _is_constant(value: Any) -> bool:
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    return all(map(_is_constant, value)) if isinstance(value, tuple) else value is None or type(value) in (int, bool)


def _is_lstm(node: fx.Node, layers: Mapping[str, nn.Module]) -> bool:
    return node.op == "call_module" and isinstance(layers[str(node.target)], nn.LSTM)


def _is_known_function(function: Any, others: list[Any], options: Mapping[str, Any]) -> bool:
    if function is operator.getitem:  # the same part of each example
        (index,) = others
        return isinstance(index, tuple) and index[0] == slice(None) and {*map(type, index)} <= {int, slice}
    if function is torch.flatten:
        start = others[0] if others else options.get("start_dim", 0)
        return type(start) is int and start >= 1
    changes_inputs = function is functional.relu and (others or options.get("inplace"))
    return function in FUNCTIONS and not changes_inputs and not options.get("return_indices")


def _is_known_layer(layer: Any, node: fx.Node) -> bool:
    if type(layer) not in LAYERS or getattr(layer, "return_indices", False):
        return False
    match layer:
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return bool(layer.padding_mode == "zeros")
        case nn.Embedding():
            is_plain = layer.padding_idx is None and layer.max_norm is None
            return is_plain and not (layer.scale_grad_by_freq or layer.sparse)
        case nn.LSTM():
            return bool(layer.batch_first) and not (layer.dropout or layer.proj_size or layer.bidirectional)
        case nn.Flatten():
            return bool(layer.start_dim >= 1)
    # Where the original inputs are a view, stacked inputs may be a copy, which makes a difference if others use them.
    return not getattr(layer, "inplace", False) or all(len(each.users) <= 1 for each in node.graph.nodes)
