"""What each layer computes for one example, to find the first layer in which two runs differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Step:
    """The first row of a tensor that a layer returned.

    Parameters
    ----------
    name : str
        The layer, with its type.
    values : tensor
        What it computed for the first example.
    """

    name: str
    values: Tensor


Trace = list[Step]


def traced(model: nn.Module, inputs: tuple[Any, ...], size: int) -> Trace:
    """Run a model on ``size`` examples, and return what its layers compute for the first one, in their order."""
    found: Trace = []

    def hook(name: str, layer: nn.Module) -> Any:
        kind = type(layer).__name__
        label = f"{name} ({kind})" if name else f"the model ({kind})"

        def remember(_: nn.Module, __: Any, output: Any) -> None:
            found.extend(Step(label, each[:1].detach().clone()) for each in _rows(output, size))

        return layer.register_forward_hook(remember)

    hooks = [hook(name, layer) for name, layer in model.named_modules()]
    try:
        model(*inputs)
    finally:
        for each in hooks:
            each.remove()
    return found


def first_difference(one: Trace, other: Trace) -> str | None:
    """Return the name of the first layer that computes different values, or None."""
    for mine, yours in zip(one, other, strict=False):
        if mine.name != yours.name or mine.values.shape != yours.values.shape:
            return mine.name
        if not torch.allclose(mine.values, yours.values, _TOLERANCE, _TOLERANCE, equal_nan=True):
            return mine.name
    return None


def _rows(output: Any, size: int) -> Iterator[Tensor]:
    """Yield the tensors in a layer's output that have one row per example."""
    if isinstance(output, Tensor):
        if output.ndim and len(output) == size and output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for each in output.values():
            yield from _rows(each, size)
    elif isinstance(output, tuple | list):
        for each in output:
            yield from _rows(each, size)
