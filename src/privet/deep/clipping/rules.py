"""Which layer has which rule; a layer without one gets the general rule, which is right and slow."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from privet.deep.clipping.gradients import Direct, PerExample

Rule = Callable[[Any, Tensor, Tensor], dict[str, PerExample]]
"""A layer, what went in and the gradient of what came out; the per-example gradients of its parameters, by name."""

Gradients = Callable[[Tensor], dict[str, PerExample]]
"""From the gradient of a tensor to the per-example gradients of the parameters that made it, by name."""


class Keep(Protocol):
    """Keep a tensor whose gradient tells those of parameters."""

    def __call__(self, output: Tensor, batch: int, gradients: Gradients) -> None:
        """Keep ``output``, made of ``batch`` examples, before anything else is made of it."""


Inside = Callable[..., Any]
"""A layer, a :class:`Keep` and the arguments of its forward; what the forward gives, by recorded steps."""

_RULES: dict[type[nn.Module], Rule] = {}
_INSIDE: dict[type[nn.Module], Inside] = {}
_Function = TypeVar("_Function")


def rule(*kinds: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register the rule of a layer type that turns one tensor into one."""
    return _registering(_RULES, kinds)


def inside(*kinds: type[nn.Module]) -> Callable[[Inside], Inside]:
    """Register the forward that stands in for that of a layer type with several inputs, outputs or maps inside."""
    return _registering(_INSIDE, kinds)


def _registering(
    table: dict[type[nn.Module], _Function], kinds: tuple[type[nn.Module], ...]
) -> Callable[[_Function], _Function]:
    def register(function: _Function) -> _Function:
        table.update(dict.fromkeys(kinds, function))
        return function

    return register


def rule_of(layer: nn.Module) -> Rule:
    """Return the rule of a layer: its own type's, and no subclass's, which may compute something else."""
    return general if _has_own_forward(layer) else _RULES.get(type(layer), general)


def inside_of(layer: nn.Module) -> Inside | None:
    """Return the forward that stands in for a layer's, if its very type has one."""
    return None if _has_own_forward(layer) else _INSIDE.get(type(layer))


def has_rule(layer: nn.Module) -> bool:
    """Whether a layer has a rule of its own, of either kind."""
    return rule_of(layer) is not general or inside_of(layer) is not None


def _has_own_forward(layer: nn.Module) -> bool:
    """Whether somebody gave this one layer another forward than its type's."""
    return "forward" in vars(layer)


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
