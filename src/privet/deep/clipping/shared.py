"""What all examples share: parameters that a model uses directly, and embeddings of positions that have no examples.

A layer records its output, which has one row per example. A class token, a table of positions that is added to the
sequences of all examples, or the scale of a layer without a rule has no such rows, and torch would return the sum of
its gradients over the batch. So each operation of the forward pass is observed. While a value is computed from
parameters and constants alone, it is *shared*. Where it meets values of examples, it is expanded to one row per
example first, which changes no result, and the gradient of these rows is recorded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from privet.deep.clipping.contributions import together
from privet.deep.clipping.gradients import Direct, OuterSum, PerExample
from privet.deep.clipping.rules import Keep, Rule

Operation = Callable[["Shared", Any, tuple[Any, ...], dict[str, Any]], Any]
"""Computes a function of values of examples and shared values, given the pass and the function with its arguments."""

_OPERATIONS: dict[str, Operation] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Register how functions of these names are computed if some arguments are shared and others are not."""

    def register(function: Operation) -> Operation:
        _OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


class OutsideLayerError(ValueError):
    """A parameter that was used outside its layer, where no rule applies."""

    def __init__(self, names: Iterable[str], use: str) -> None:
        super().__init__(
            f"{', '.join(names)} took part in {use} outside the forward of the layer they belong to, where "
            "per-example gradients cannot be computed. Call the layer itself. To tie weights, assign the other layer's "
            "weight to an nn.Linear. For a penalty on weights, use the optimizer's weight_decay."
        )


class UnknownOperationError(OutsideLayerError):
    """A function of shared values and examples for which nothing is registered."""


@dataclass(frozen=True, eq=False)
class _Root:
    """A parameter, or a layer's output without examples; and how its gradients become those of named parameters."""

    tensor: Tensor
    finish: Callable[[PerExample], dict[str, PerExample]]


@dataclass(frozen=True, eq=False)
class _Label:
    """Marks a shared value.

    Parameters
    ----------
    owner : object
        Identifies the pass.
    roots : tuple of Root
        What the value was computed from.
    row : tensor or None
        A shared value with a single row, of which all rows of this one are copies.
    """

    owner: object
    roots: tuple[_Root, ...]
    row: Tensor | None = None


class Shared(TorchFunctionMode):  # type: ignore[misc]  # torch does not annotate it.
    """Observes the operations of a forward pass, and expands shared values where they meet examples.

    Parameters
    ----------
    model : nn.Module
        Its trained parameters are shared values.
    batch : any
        The inputs and targets. Their tensors hold the examples.
    size : int
        The number of examples.
    keep : callable
        Records a result with one row per example.
    watch : callable
        Remembers an input that must not change in place before the backward pass.

    Attributes
    ----------
    is_off : bool
        Whether operations are not observed, as inside a layer that records itself, or if an input is not a tensor.
    is_entered : bool
        Whether the context has been entered.
    outputs : list of tensors
        What embeddings computed without examples. No ordinary gradient may reach these tensors.
    """

    def __init__(
        self, model: nn.Module, batch: Any, size: int, keep: Keep, watch: Callable[[str, Tensor], None]
    ) -> None:
        super().__init__()
        self.size, self.keep, self.watch = size, keep, watch
        self.outputs: list[Tensor] = []
        self._owner = object()
        self._given = list(tensors_of(batch))  # Held, so that no other tensor gets the same id.
        self._examples = {id(each) for each in self._given}
        self._names = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._layers = {id(layer): f"{name}." if name else "" for name, layer in model.named_modules()}
        self._parameters: dict[int, _Label] = {}
        # A model may turn other inputs, such as strings, into tensors that look like constants.
        self.is_off, self.is_entered = not self._given or not _is_made_of_tensors(batch), False

    def __enter__(self) -> Self:
        self.is_entered = True
        return cast(Self, super().__enter__())

    def __exit__(self, *exception: Any) -> None:
        self.is_entered = False
        super().__exit__(*exception)

    # ------------------------------------------------------------------------------------------------- operations

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a function, and expand what is shared."""
        kwargs = kwargs or {}
        if self.is_off:
            return func(*args, **kwargs)
        given = list(tensors_of((args, kwargs)))
        labels = [label for each in given if (label := self._label(each)) is not None]
        has_examples = any(self.is_of_examples(each) for each in given)
        if labels and has_examples and torch.is_grad_enabled() and func.__name__ in _OPERATIONS:
            return _OPERATIONS[func.__name__](self, func, args, kwargs)
        # Activation checkpointing must not drop what the gradients of shared values are computed from.
        with saved_tensors_hooks(_itself, _itself) if labels and not has_examples else nullcontext():
            result = func(*args, **kwargs)
        if func.__name__ in _LIKE_FIRST:
            given = [args[0]]
            has_examples, label = self.is_of_examples(args[0]), self._label(args[0])
            labels = [] if label is None else [label]
        if labels and has_examples:
            written = args[:1] if is_in_place(func) else ()
            if any(each.requires_grad for each in tensors_of((result, written))):
                raise self.unknown(func, given)
        if has_examples and func.__name__ not in _LIKE_NONE:
            self._mark(func, args, result)
        elif labels:
            self._pass_on(func, args, labels, result)
        return result

    def _mark(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Mark results as values of examples. Those in the autograd graph need no mark."""
        changed = (args[0], args[0]._base) if is_in_place(func) and isinstance(args[0], Tensor) else ()
        for each in (*tensors_of(result), *changed):
            if each is not None and not each.requires_grad:
                setattr(each, _MARK, self._owner)

    def _pass_on(self, func: Any, args: tuple[Any, ...], labels: list[_Label], result: Any) -> None:
        """Label the results of a function of shared values alone."""
        roots = tuple({id(root): root for label in labels for root in label.roots}.values())
        for each in tensors_of(result):
            if each.requires_grad and id(each) not in self._names:
                row = self._row(func, args, each)
                if row is not None:
                    setattr(row, _MARK, _Label(self._owner, roots))
                setattr(each, _MARK, _Label(self._owner, roots, row))

    def _row(self, func: Any, args: tuple[Any, ...], result: Tensor) -> Tensor | None:
        """Return the row that an expanded value consists of copies of, or None if it is not such a value."""
        if func.__name__ not in ("expand", "expand_as", "broadcast_to") or len(result) != self.size:
            return None
        given: Tensor = args[0]
        is_new = given.ndim < result.ndim or given.shape[0] == 1
        return given.expand(1, *result.shape[1:]) if is_new else None

    def unknown(self, func: Any, given: Any) -> UnknownOperationError:
        """Return the error for a function of these arguments that cannot be computed for each example."""
        labels = [label for each in tensors_of(given) if (label := self._label(each)) is not None]
        roots = {id(root.tensor) for label in labels for root in label.roots}
        names = [name for each, name in self._names.items() if each in roots]
        return UnknownOperationError(names or ["An embedding without a dimension of examples"], f"{func.__name__}()")

    # ----------------------------------------------------------------------------------------------------- labels

    def is_of_examples(self, given: Any) -> bool:
        """Return whether a value was computed from examples."""
        if not isinstance(given, Tensor):
            return False
        if id(given) in self._examples or getattr(given, _MARK, None) is self._owner:
            return True
        return given.requires_grad and self._label(given) is None

    def is_shared(self, given: Any) -> bool:
        """Return whether a value was computed from parameters, and not from examples."""
        return self._label(given) is not None

    def _label(self, given: Any) -> _Label | None:
        if not isinstance(given, Tensor):
            return None
        mark = getattr(given, _MARK, None)
        if isinstance(mark, _Label) and mark.owner is self._owner:
            return mark
        name = self._names.get(id(given))
        if name is None or not given.requires_grad:
            return None
        if id(given) not in self._parameters:
            self._parameters[id(given)] = _Label(self._owner, (_Root(given, lambda part: {name: part}),))
        return self._parameters[id(given)]

    # ------------------------------------------------------------------------------------------------- embeddings

    def looked_up(self, layer: nn.Module, given: Tensor, run: Callable[[Tensor], Tensor], rule: Rule) -> Tensor:
        """Return what an embedding computes from indices that do not come from the examples."""
        has_rows = given.ndim > 0 and len(given) == self.size > 1
        has_copies = has_rows and bool((given == given[:1]).all())  # For instance, all tokens are of type 0.
        indices = given[:1] if has_copies else given
        output = run(indices).requires_grad_()
        prefix = self._layers[id(layer)]

        def finish(part: PerExample) -> dict[str, PerExample]:
            grads = part.written_out()
            found = rule(layer, indices.expand(len(grads), *indices.shape), grads)
            return {prefix + name: each for name, each in found.items()}

        self.outputs.append(output)
        setattr(output, _MARK, label := _Label(self._owner, (_Root(output, finish),)))
        if not has_copies:
            return output
        copies = output.expand(self.size, *output.shape[1:])
        setattr(copies, _MARK, _Label(self._owner, label.roots, output))
        return copies

    # -------------------------------------------------------------------------------------------------- gradients

    def expanded(self, func: Any, given: Tensor, dimensions: int) -> Tensor:
        """Return a shared value with one row per example, as it enters a result with so many dimensions."""
        label = self._label(given)
        assert label is not None
        self.watch("A value that all examples share", given)
        sizes = (1,) * (dimensions - given.ndim) + tuple(given.shape)
        if sizes[0] == 1:
            rows = given.detach().reshape(sizes).expand(self.size, *sizes[1:]).requires_grad_()
            source: Tensor | None = given
        elif sizes[0] == self.size:
            rows, source = given.detach().requires_grad_(), label.row
        else:
            raise self.unknown(func, given)

        def gradients(grads: Tensor) -> dict[str, PerExample]:
            if source is None:
                return self._of_rows(given, label, grads)
            return self.of_parameters(source, Direct(grads.reshape(len(grads), *source.shape)))

        self.keep(rows, self.size, gradients)
        return rows

    def of_parameters(self, given: Tensor, part: PerExample) -> dict[str, PerExample]:
        """Return the gradients of parameters that follow from those of a shared value."""
        label = self._label(given)
        assert label is not None
        if len(label.roots) == 1:
            (root,) = label.roots
            if given is root.tensor:
                return root.finish(part)
            if isinstance(part, OuterSum) and _is_transposed(given, root.tensor):
                return root.finish(OuterSum(part.right, part.left, root.tensor.shape))
        grads, tensors = part.written_out().to(given.dtype), [root.tensor for root in label.roots]
        found = torch.autograd.grad(given, tensors, grads, retain_graph=True, allow_unused=True, is_grads_batched=True)
        return _sum(label.roots, found)

    @staticmethod
    def _of_rows(given: Tensor, label: _Label, grads: Tensor) -> dict[str, PerExample]:
        """Return the gradients of parameters if each example uses its own row of a shared value."""
        tensors = [root.tensor for root in label.roots]
        rows: list[list[Tensor]] = []
        for place, row in enumerate(grads):
            of_one = torch.zeros_like(given)
            of_one[place] = row
            found = torch.autograd.grad(given, tensors, of_one, retain_graph=True, allow_unused=True)
            pairs = zip(found, tensors, strict=True)
            rows.append([torch.zeros_like(root) if each is None else each for each, root in pairs])
        return _sum(label.roots, [torch.stack(each) for each in zip(*rows, strict=True)])


_MARK = "_privet_mark"

_LIKE_FIRST = frozenset({"to", "type_as", "view_as", "reshape_as", "requires_grad_", "__set__"})
"""Functions whose result depends on the values of their first argument alone."""

_LIKE_NONE = frozenset({"new_tensor", "new_empty", "new_full", "new_ones", "new_zeros"})
"""Functions whose result depends on no values of their arguments."""


def is_in_place(func: Any) -> bool:
    """Return whether a function of this name writes into its first argument."""
    name: str = func.__name__
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def tensors_of(given: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested arguments."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple | list):
        for each in given:
            yield from tensors_of(each)
    elif isinstance(given, Mapping):
        for each in given.values():
            yield from tensors_of(each)


def _is_made_of_tensors(given: Any) -> bool:
    if isinstance(given, tuple | list):
        return all(map(_is_made_of_tensors, given))
    if isinstance(given, Mapping):
        return all(map(_is_made_of_tensors, given.values()))
    return given is None or isinstance(given, Tensor | bool | int | float)


def _itself(saved: Tensor) -> Tensor:
    return saved


def _is_transposed(given: Tensor, root: Tensor) -> bool:
    is_view: bool = given.ndim == root.ndim == 2 and given.data_ptr() == root.data_ptr()
    return is_view and [*given.shape, *given.stride()] == [*root.shape[::-1], *root.stride()[::-1]]


def _sum(roots: Iterable[_Root], grads: Iterable[Tensor | None]) -> dict[str, PerExample]:
    """Return the gradients of parameters that follow from those of several roots."""
    found: dict[str, list[PerExample]] = {}
    for root, values in zip(roots, grads, strict=True):
        for name, part in ({} if values is None else root.finish(Direct(values))).items():
            found.setdefault(name, []).append(part)
    return {name: together(parts) for name, parts in found.items()}
