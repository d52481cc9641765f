"""Which layer has which rule; a layer without one gets the general rule, which is right and slow."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.clipping.gradients import Direct, PerExample

Rule = Callable[[Any, Tensor, Tensor], dict[str, PerExample]]
"""A layer, what went in and the gradient of what came out; the per-example gradients of its parameters, by name."""

_RULES: dict[type[nn.Module], Rule] = {}


def rule(*kinds: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register the rule of a layer type."""

    def register(function: Rule) -> Rule:
        for kind in kinds:
            _RULES[kind] = function
        return function

    return register


def rule_of(layer: nn.Module) -> Rule:
    """Return the rule of a layer: its own type's, and no subclass's, which may compute something else."""
    return _RULES.get(type(layer), general)


def has_rule(layer: nn.Module) -> bool:
    """Whether a layer has a rule of its own."""
    return type(layer) in _RULES


def own_parameters(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that belong to a layer itself, not to a part of it."""
    return dict(layer.named_parameters(recurse=False))


def general(layer: nn.Module, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of any layer of one input, by vmap: written out, one example at a time."""
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    buffers = dict(layer.named_buffers())

    def one(example: Tensor, grad: Tensor) -> dict[str, Tensor]:
        def forward(values: dict[str, Tensor]) -> Tensor:
            out: Tensor = torch.func.functional_call(layer, (values, buffers), (example[None],))
            return out[0]

        _, pull = torch.func.vjp(forward, parameters)
        (found,) = pull(grad)
        return dict(found)

    written = torch.func.vmap(one, randomness="different")(inputs, output_grads)
    return {name: Direct(values) for name, values in written.items()}
