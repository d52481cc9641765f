"""The gradient rule of each layer type. Other layers use the general rule, which is correct but slow."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from privet.deep.clipping.gradients import Direct, PerExample

Rule = Callable[[Any, Tensor, Tensor], dict[str, PerExample]]
"""A function of a layer, its input and the gradient of its output. It returns per-example gradients by name."""

Gradients = Callable[[Tensor], dict[str, PerExample]]
"""A function of the gradient of a tensor. It returns the per-example gradients of parameters by name."""


class Keep(Protocol):
    """Records a tensor whose gradient determines the gradients of parameters."""

    def __call__(self, output: Tensor, batch: int, gradients: Gradients) -> None:
        """Record ``output``, computed from ``batch`` examples. It must be called before ``output`` is used."""


Inside = Callable[..., Any]
"""A function of a layer, a :class:`Keep` and the arguments of the forward. It returns what the forward returns."""

_RULES: dict[type[nn.Module], Rule] = {}
_INSIDE: dict[type[nn.Module], Inside] = {}
_Function = TypeVar("_Function")


def rule(*kinds: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register the rule of layer types with one input tensor and one output tensor."""
    return _registering(_RULES, kinds)


def inside(*kinds: type[nn.Module]) -> Callable[[Inside], Inside]:
    """Register a replacement for the forward of layer types with several inputs, outputs or internal maps."""
    return _registering(_INSIDE, kinds)


def _registering(
    table: dict[type[nn.Module], _Function], kinds: tuple[type[nn.Module], ...]
) -> Callable[[_Function], _Function]:
    def register(function: _Function) -> _Function:
        table.update(dict.fromkeys(kinds, function))
        return function

    return register


def rule_of(layer: nn.Module) -> Rule:
    """Return the rule of a layer's exact type. Subclasses use the general rule, because they may compute otherwise."""
    return general if _has_own_forward(layer) else _RULES.get(type(layer), general)


def inside_of(layer: nn.Module) -> Inside | None:
    """Return the replacement for a layer's forward, or None if its exact type has none."""
    return None if _has_own_forward(layer) else _INSIDE.get(type(layer))


def has_rule(layer: nn.Module) -> bool:
    """Return whether a layer has a rule of either kind, besides the general one."""
    return rule_of(layer) is not general or inside_of(layer) is not None


def _has_own_forward(layer: nn.Module) -> bool:
    """Return whether the forward of this one layer was replaced."""
    return "forward" in vars(layer)


def own_parameters(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a layer itself, without those of its children."""
    return dict(layer.named_parameters(recurse=False))


def general(layer: nn.Module, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of any layer with one input, materialised by ``torch.func.vmap``."""
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    buffers = dict(layer.named_buffers())

    def one(example: Tensor, grad: Tensor) -> dict[str, Tensor]:
        def forward(values: dict[str, Tensor]) -> Tensor:
            out: Tensor = torch.func.functional_call(layer, (values, buffers), (example[None],))
            return out[0]

        out, pull = torch.func.vjp(forward, parameters)
        (found,) = pull(grad.to(out.dtype))
        return dict(found)

    written = torch.func.vmap(one, randomness="different")(inputs, output_grads)
    return {name: Direct(values) for name, values in written.items()}
