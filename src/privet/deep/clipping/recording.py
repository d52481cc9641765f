"""What the layers of a model do in a forward pass: tensors whose gradients tell those of parameters.

For the time of a pass each layer's forward is replaced by one that does the same and keeps a record. The layer's
parameters are off meanwhile, since their plain gradients are not wanted, and on elsewhere: a parameter that autograd
reaches all the same was used outside its layer, where no rule sees it.
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
    """A tensor that a layer made, by its place in the graph, and what its gradient tells of the layer's parameters.

    The tensor itself is not kept: it would lie in memory that plain training has freed by then. Nor need it stay as it
    is: a gradient belongs to the place, and what is changed in place afterwards has another.
    """

    layer: nn.Module
    output: GradientEdge
    batch: int
    gradients: Gradients

    def check(self, size: int) -> None:
        """Refuse a tensor in which the examples of a batch of this size do not come first."""
        if self.batch != size:
            raise ValueError(
                f"{type(self.layer).__name__} was given {self.batch} examples where the batch has {size}: the first "
                "dimension must be that of the examples, and all theirs: use batch_first=True, merge no other "
                "dimension with it, and expand what all examples share, such as positions, to one row an example"
            )


@dataclass
class Record:
    """The calls of a forward pass, and the tensors that must not change before the backward pass."""

    calls: list[Call] = field(default_factory=list)
    _kept: list[tuple[str, Tensor, int]] = field(default_factory=list)
    _is_within: bool = False

    def forward_of(self, layer: nn.Module) -> Callable[..., Any]:
        """Return what stands in for a layer's forward."""
        own, inside, rule = layer.forward, inside_of(layer), rule_of(layer)
        keep = partial(self._keep, layer)

        def plain(*args: Any, **kwargs: Any) -> Any:
            if not kwargs and _is_one_tensor(args):
                args = (_in_graph(args[0]),)
            output = own(*args, **kwargs)
            if kwargs or not _is_one_tensor(args) or not _is_one_tensor((output,)):
                raise ValueError(
                    f"{type(layer).__name__} has parameters and no rule, and takes or gives more than one tensor, or "
                    "takes one by keyword: build it from layers that have rules (nn.Linear, convolutions, "
                    "nn.Embedding, normalisations, nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention), or freeze it"
                )
            keep(output, len(args[0]), partial(rule, layer, args[0].detach()))
            return output

        run = plain if inside is None else partial(inside, layer, keep)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._is_within or not torch.is_grad_enabled():  # a part of what is recorded whole, or a constant
                return own(*args, **kwargs)
            self._is_within = True
            for tensor in _tensors((*args, *kwargs.values())):
                self._kept.append((f"what was given to {type(layer).__name__}", tensor, tensor._version))
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
        """Refuse a pass that changed what gradients are made of."""
        for name, tensor, version in self._kept:
            if tensor._version != version:
                raise changed_in_place(name)


def changed_in_place(name: str) -> ValueError:
    """Return the error for a tensor that was written over."""
    return ValueError(
        f"{name} was changed in place, which loses what its gradient belongs to: set inplace=False in what follows it, "
        "or change a copy"
    )


@contextmanager
def recorded(layers: Iterable[nn.Module]) -> Iterator[Record]:
    """Record what layers do."""
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
    """Take parameters out of the graph."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _in_graph(given: Tensor) -> Tensor:
    """Return a layer's input with a place in the graph, so that its output has one of its own.

    No gradient is computed for the input by this: the backward pass ends at outputs.
    """
    if given.requires_grad or not given.is_floating_point():
        return given
    return given.detach().requires_grad_()


def _is_one_tensor(values: tuple[Any, ...]) -> bool:
    return len(values) == 1 and isinstance(values[0], Tensor)


def _tensors(given: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments and their tuples; masks of booleans are in no gradient."""
    for each in given:
        if isinstance(each, tuple | list):
            yield from _tensors(each)
        elif isinstance(each, Tensor) and each.dtype != torch.bool:
            yield each
