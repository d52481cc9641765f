"""Pools before the ReLUs that precede them, which then have a fraction of the values to process.

The maximum of values after a ReLU is the ReLU of their maximum, and the gradients are equal, too: where the maximum is
positive, both orders select the same value, and elsewhere the gradient is zero. Other activations may round different
values to the same one, of which a pool then selects another.
"""

from collections.abc import Mapping

import torch
from torch import fx, nn
from torch.nn import functional

_POOLS = {nn.MaxPool1d, nn.MaxPool2d, functional.max_pool2d}
_RELUS = {nn.ReLU, functional.relu, torch.relu, "relu"}


def pools_first(graph: fx.Graph, layers: Mapping[str, nn.Module]) -> None:
    """Move each max-pooling of a known graph before the ReLU whose only user it is."""
    for pool in list(graph.nodes):
        if _kind(pool, layers) not in _POOLS:
            continue
        relu = pool.args[0]
        if not isinstance(relu, fx.Node) or _kind(relu, layers) not in _RELUS or len(relu.users) > 1:
            continue
        source = relu.args[0]
        assert isinstance(source, fx.Node)
        pool.replace_input_with(relu, source)
        pool.replace_all_uses_with(relu)
        relu.replace_input_with(source, pool)
        pool.append(relu)


def _kind(node: fx.Node, layers: Mapping[str, nn.Module]) -> object:
    """Return the type of the layer that a node calls, or the function or the name of the method."""
    return type(layers[str(node.target)]) if node.op == "call_module" else node.target
