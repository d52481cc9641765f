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

Kind = type[nn.Module] | str
"""A layer type. Those of libraries that privet does not import are given by their full names."""

_RULES: dict[Kind, Rule] = {}
_INSIDE: dict[Kind, Inside] = {}
_Function = TypeVar("_Function")


def rule(*kinds: Kind) -> Callable[[Rule], Rule]:
    """Register the rule of layer types with one input tensor and one output tensor."""
    return _registering(_RULES, kinds)


def inside(*kinds: Kind) -> Callable[[Inside], Inside]:
    """Register a replacement for the forward of layer types with several inputs, outputs or internal maps."""
    return _registering(_INSIDE, kinds)


def _registering(table: dict[Kind, _Function], kinds: tuple[Kind, ...]) -> Callable[[_Function], _Function]:
    def register(function: _Function) -> _Function:
        table.update(dict.fromkeys(kinds, function))
        return function

    return register


def rule_of(layer: nn.Module) -> Rule:
    """Return the rule of a layer's exact type. Subclasses use the general rule, because they may compute otherwise."""
    return _of_type(_RULES, layer) or general


def inside_of(layer: nn.Module) -> Inside | None:
    """Return the replacement for a layer's forward, or None if its exact type has none."""
    return _of_type(_INSIDE, layer)


def has_rule(layer: nn.Module) -> bool:
    """Return whether a layer has a rule of either kind, besides the general one."""
    return rule_of(layer) is not general or inside_of(layer) is not None


def _of_type(table: dict[Kind, _Function], layer: nn.Module) -> _Function | None:
    if "forward" in vars(layer):  # The forward of this one layer was replaced.
        return None
    kind = type(layer)
    return table.get(kind) or table.get(f"{kind.__module__}.{kind.__qualname__}")


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
