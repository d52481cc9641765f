"""A record of what the layers of a model compute in a forward pass, from which per-example gradients follow.

During the pass, the forward of each layer is replaced by one that computes the same and keeps a record. Inside the
layer, its parameters do not require gradients, because their ordinary gradients are not needed. Elsewhere they do: a
parameter that autograd still reaches was used outside its layer, where no rule applies.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from privet.deep.clipping.rules import Gradients, has_rule, inside_of, rule_of
from privet.deep.clipping.shared import Shared, UnknownOperationError, tensors_of


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
    shared: Shared | None = None
    _kept: list[tuple[str, Tensor, int]] = field(default_factory=list)
    _is_within: bool = False

    def forward_of(self, layer: nn.Module) -> Callable[..., Any]:
        """Return a function that replaces the forward of a layer."""
        own, inside, rule, is_known = layer.forward, inside_of(layer), rule_of(layer), has_rule(layer)
        keep = partial(self.keep, layer)

        def plain(*args: Any, **kwargs: Any) -> Any:
            given = (*args, *kwargs.values())
            if _is_one_tensor(given):
                args, kwargs = (_in_graph(given[0]),), {}
            output = own(*args, **kwargs)
            if not _is_one_tensor(given) or not _is_one_tensor((output,)):
                raise ValueError(
                    f"{type(layer).__name__} has parameters but no gradient rule, and has more than one input or "
                    "output tensor. Build it from layers that have rules (nn.Linear, convolutions, nn.Embedding, "
                    "normalisations, nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention), or freeze it."
                )
            keep(output, len(args[0]), partial(rule, layer, args[0].detach()))
            return output

        run = plain if inside is None else partial(inside, layer, keep)

        def recording(*args: Any, **kwargs: Any) -> Any:
            with self._within():
                if isinstance(layer, nn.MultiheadAttention) and layer.batch_first:
                    args, kwargs = self._expanded(args), dict(zip(kwargs, self._expanded(kwargs.values()), strict=True))
                for tensor in _tensors((*args, *kwargs.values())):
                    self.watch(f"The input of {type(layer).__name__}", tensor)
                with _off(layer.parameters()):
                    return run(*args, **kwargs)

        def looking_up(*given: Any, **named: Any) -> Any:
            assert self.shared is not None
            (indices,) = (*given, *named.values())
            with self._within(), _off(layer.parameters()):
                return self.shared.looked_up(layer, indices, own, rule)

        def observing(*args: Any, **kwargs: Any) -> Any:
            calls = len(self.calls)
            try:
                with self.observed():
                    return own(*args, **kwargs)
            except UnknownOperationError:
                del self.calls[calls:]
            if _is_one_tensor((*args, *kwargs.values())):
                _warn_about(layer)
            return recording(*args, **kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:
            # Inside a layer that is recorded itself, and without gradients, there is nothing to record.
            if self._is_within or not torch.is_grad_enabled():
                return own(*args, **kwargs)
            is_observed = self.shared is not None and not self.shared.is_off
            if not is_observed or (is_known and self._has_examples((*args, *kwargs.values()))):
                return recording(*args, **kwargs)
            if isinstance(layer, nn.Embedding) and is_known:
                return looking_up(*args, **kwargs)
            return observing(*args, **kwargs)

        return forward

    def watch(self, name: str, tensor: Tensor) -> None:
        """Remember a tensor that must not change in place."""
        self._kept.append((name, tensor, tensor._version))

    def _expanded(self, given: Iterable[Any]) -> tuple[Any, ...]:
        """Return arguments with one row per example, among them learned queries."""
        shared = self.shared
        if shared is None:
            return tuple(given)
        return tuple(
            shared.expanded(nn.MultiheadAttention.forward, each, each.ndim) if shared.is_shared(each) else each
            for each in given
        )

    def observed(self) -> AbstractContextManager[Any]:
        """Observe all operations while the context lasts, if needed.

        The backward pass must be outside of it. A layer that activation checkpointing runs again enters it again.
        """
        return nullcontext() if self.shared is None or self.shared.is_entered else self.shared

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Record nothing further while the context lasts, because a layer records itself."""
        self._is_within, shared = True, self.shared
        was_off = shared is None or shared.is_off
        if shared is not None:
            shared.is_off = True
        try:
            yield
        finally:
            self._is_within = False
            if shared is not None:
                shared.is_off = was_off

    def _has_examples(self, given: tuple[Any, ...]) -> bool:
        """Return whether arguments of a layer were computed from examples."""
        assert self.shared is not None
        with self._within():
            return any(self.shared.is_of_examples(each) for each in tensors_of(given))

    def entering(self, layer: nn.Module) -> Callable[..., Any]:
        """Return the forward of a layer, observed again if activation checkpointing runs it in the backward pass."""
        own = layer.forward

        @wraps(own)
        def forward(*args: Any, **kwargs: Any) -> Any:
            with self.observed():
                return own(*args, **kwargs)

        return forward

    def keep(self, layer: nn.Module, output: Tensor, batch: int, gradients: Gradients) -> None:
        """Record a tensor that was computed inside a layer."""
        if not output.requires_grad and output._is_view():
            output.requires_grad_()
        elif not output.requires_grad:
            _Joining.apply(output, torch.zeros((), requires_grad=True))
        self.calls.append(Call(layer, get_gradient_edge(output), batch, gradients))

    @property
    def outputs_of_embeddings(self) -> list[tuple[str, Tensor]]:
        """What embeddings computed without examples, with a name. No ordinary gradient may reach these tensors."""
        return [("The output of an embedding", each) for each in (self.shared.outputs if self.shared else ())]

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


def _warn_about(layer: nn.Module) -> None:
    warnings.warn(
        f"There is no gradient rule for {type(layer).__name__}. Its gradients are computed by torch.func.vmap, which "
        "is correct but slow.",
        stacklevel=2,
    )


@contextmanager
def recorded(model: nn.Module, layers: Sequence[nn.Module], batch: Any, size: int) -> Iterator[Record]:
    """Record the calls of layers, and what examples share, while the context lasts."""
    record = Record()
    if any(isinstance(layer, nn.Embedding) or not has_rule(layer) for layer in layers):
        record.shared = Shared(model, batch, size, partial(record.keep, model), record.watch)
    forwards = {layer: record.forward_of(layer) for layer in layers}
    if record.shared is not None and any(getattr(each, "gradient_checkpointing", False) for each in model.modules()):
        forwards = {each: record.entering(each) for each in model.modules() if each is not model} | forwards
    before = [(vars(layer), vars(layer).get("forward")) for layer in forwards]
    for layer, forward in forwards.items():
        vars(layer)["forward"] = forward
    try:
        yield record
    finally:
        for attributes, own in before:
            if own is None:
                del attributes["forward"]
            else:
                attributes["forward"] = own


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


class _Joining(torch.autograd.Function):  # type: ignore[misc]  # torch does not annotate it.
    """Makes a tensor part of the autograd graph. Unlike a leaf, it may be modified in place later."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, _: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None


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
