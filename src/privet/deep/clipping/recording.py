"""A record of what the layers of a model compute in a forward pass, from which per-example gradients follow.

During the pass, the forward of each layer is replaced by one that computes the same and keeps a record. Inside the
layer, its parameters do not require gradients, because their ordinary gradients are not needed. Elsewhere they do: a
parameter that autograd still reaches was used outside its layer, where no rule applies.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from privet.deep.clipping.rules import Gradients, inside_of, rule_of


@dataclass(frozen=True)
class Call:
    """A tensor that a layer computed, and how the parameters' gradients follow from its gradient.

    Only the tensor's place in the autograd graph is kept. The tensor itself would occupy memory that ordinary training
    has freed by then. It may be modified in place later, because the gradient belongs to the place in the graph.
    """

    layer: nn.Module
    output: GradientEdge
    batch: int
    gradients: Gradients

    def check(self, size: int) -> None:
        """Raise unless the first dimension of the tensor is that of the examples of a batch of the given size."""
        if self.batch != size:
            raise ValueError(
                f"{type(self.layer).__name__} received {self.batch} examples, but the batch has {size}. The first "
                "dimension of its input must be that of the examples alone. Use batch_first=True, do not merge other "
                "dimensions with it, and expand what all examples share, such as positions, to one row per example."
            )


@dataclass
class Record:
    """The calls of a forward pass, and the tensors that must not change before the backward pass."""

    calls: list[Call] = field(default_factory=list)
    _kept: list[tuple[str, Tensor, int]] = field(default_factory=list)
    _is_within: bool = False

    def forward_of(self, layer: nn.Module) -> Callable[..., Any]:
        """Return a function that replaces the forward of a layer."""
        own, inside, rule = layer.forward, inside_of(layer), rule_of(layer)
        keep = partial(self._keep, layer)

        def plain(*args: Any, **kwargs: Any) -> Any:
            if not kwargs and _is_one_tensor(args):
                args = (_in_graph(args[0]),)
            output = own(*args, **kwargs)
            if kwargs or not _is_one_tensor(args) or not _is_one_tensor((output,)):
                raise ValueError(
                    f"{type(layer).__name__} has parameters but no gradient rule, and has more than one input or "
                    "output tensor, or an input given by keyword. Build it from layers that have rules (nn.Linear, "
                    "convolutions, nn.Embedding, normalisations, nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention), or "
                    "freeze it."
                )
            keep(output, len(args[0]), partial(rule, layer, args[0].detach()))
            return output

        run = plain if inside is None else partial(inside, layer, keep)

        def forward(*args: Any, **kwargs: Any) -> Any:
            # Inside a layer that is recorded itself, and without gradients, there is nothing to record.
            if self._is_within or not torch.is_grad_enabled():
                return own(*args, **kwargs)
            self._is_within = True
            for tensor in _tensors((*args, *kwargs.values())):
                self._kept.append((f"The input of {type(layer).__name__}", tensor, tensor._version))
            try:
                with _off(layer.parameters()):
                    return run(*args, **kwargs)
            finally:
                self._is_within = False

        return forward

    def _keep(self, layer: nn.Module, output: Tensor, batch: int, gradients: Gradients) -> None:
        if not output.requires_grad:
            output.requires_grad_()
        self.calls.append(Call(layer, get_gradient_edge(output), batch, gradients))

    def check_in_place(self) -> None:
        """Raise if the pass modified a tensor in place that gradients are computed from."""
        for name, tensor, version in self._kept:
            if tensor._version != version:
                raise changed_in_place(name)


def changed_in_place(name: str) -> ValueError:
    """Return the error for a tensor that was modified in place."""
    return ValueError(
        f"{name} was changed in place, so its gradient can no longer be computed. Set inplace=False in the layer that "
        "follows, or change a copy."
    )


@contextmanager
def recorded(layers: Iterable[nn.Module]) -> Iterator[Record]:
    """Record the calls of layers while the context lasts."""
    record = Record()
    before = [(vars(layer), vars(layer).get("forward")) for layer in layers]
    for layer in layers:
        vars(layer)["forward"] = record.forward_of(layer)
    try:
        yield record
    finally:
        for attributes, forward in before:
            if forward is None:
                del attributes["forward"]
            else:
                attributes["forward"] = forward


@contextmanager
def _off(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Make parameters not require gradients while the context lasts."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _in_graph(given: Tensor) -> Tensor:
    """Return a layer's input as part of the autograd graph, so that the output is part of it too.

    No gradient is computed for the input, because the backward pass ends at the recorded outputs.
    """
    if given.requires_grad or not given.is_floating_point():
        return given
    return given.detach().requires_grad_()


def _is_one_tensor(values: tuple[Any, ...]) -> bool:
    return len(values) == 1 and isinstance(values[0], Tensor)


def _tensors(given: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments and in their tuples, without boolean masks, which enter no gradient."""
    for each in given:
        if isinstance(each, tuple | list):
            yield from _tensors(each)
        elif isinstance(each, Tensor) and each.dtype != torch.bool:
            yield each
