"""Operations on shared values and examples, which expand the shared values or have a rule of their own."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from privet.deep.clipping.contributions import together
from privet.deep.clipping.gradients import Direct, OuterSum, PerExample, RowSum
from privet.deep.clipping.shared import Shared, is_in_place, operation, tensors_of

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]

_ARITHMETIC = ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "pow", "maximum", "minimum")
_DUNDER = ("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "truediv", "rtruediv", "itruediv")


@operation(
    *_ARITHMETIC,
    *(f"{name}_" for name in _ARITHMETIC),
    *(f"__{name}__" for name in _DUNDER),
    *("rsub", "where", "addcmul", "addcdiv", "lerp", "masked_fill", "__pow__", "__rpow__"),
)
def elementwise(shared: Shared, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Compute a function of corresponding entries, after broadcasting."""
    if "out" in kwargs or (is_in_place(func) and shared.is_shared(args[0])):
        raise shared.unknown(func, (args, kwargs))
    given = list(tensors_of((args, kwargs)))
    dimensions = max(each.ndim for each in given)
    if not any(
        shared.is_of_examples(each) and each.ndim == dimensions and each.shape[:1] == (shared.size,) for each in given
    ):
        raise shared.unknown(func, (args, kwargs))

    def rows(each: Any) -> Any:
        return shared.expanded(func, each, dimensions) if shared.is_shared(each) else each

    return func(*map(rows, args), **{name: rows(each) for name, each in kwargs.items()})


@operation("cat", "concat", "concatenate", "stack")
def joined(shared: Shared, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Join values along a dimension other than that of the examples."""
    tensors = args[0] if args else kwargs["tensors"]
    dimension = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else 0))
    size = tensors[0].ndim + (func.__name__ == "stack")
    if dimension % size == 0 or "out" in kwargs or any(len(each) != shared.size for each in tensors):
        raise shared.unknown(func, (args, kwargs))
    parts = [shared.expanded(func, each, each.ndim) if shared.is_shared(each) else each for each in tensors]
    return func(parts, dim=dimension)


@operation("scaled_dot_product_attention")
def attention(shared: Shared, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Compute attention with a shared bias, for instance of relative positions."""
    names = ("query", "key", "value", "attn_mask")
    given = dict(zip(names, args, strict=False)) | kwargs
    query, bias = given["query"], given.get("attn_mask")
    if len(args) > len(names) or len(query) != shared.size or any(shared.is_shared(given[name]) for name in names[:3]):
        raise shared.unknown(func, (args, kwargs))
    return func(**given | {"attn_mask": shared.expanded(func, bias, query.ndim)})


@operation("linear")
def linear(shared: Shared, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Apply a weight and a bias that do not belong to a layer, for instance those of another layer."""
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    return _product(shared, func, given["input"], given["weight"], given.get("bias"))


@operation("matmul", "__matmul__")
def product(shared: Shared, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Multiply examples by a matrix from the right."""
    if len(args) != 2 or kwargs or args[1].ndim != 2 or shared.is_of_examples(args[1]):
        raise shared.unknown(func, (args, kwargs))
    inputs, matrix = args
    return _product(shared, func, inputs, matrix, None, is_transposed=True)


@operation("embedding")
def embedding(
    shared: Shared,
    func: Any,
    args: Arguments,
    kwargs: Keywords,
) -> Any:
    """Look up words of the examples in a table that does not belong to an embedding."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, args, strict=False)) | kwargs
    words, table, padding = given["input"], given["weight"], given.get("padding_idx")
    is_plain = given.get("max_norm") is None and not given.get("scale_grad_by_freq")
    if not is_plain or len(words) != shared.size or not shared.is_shared(table):
        raise shared.unknown(func, (args, kwargs))
    shared.watch("The input of embedding()", words)
    output = functional.embedding(words, table.detach())
    indices, shape = words.reshape(len(words), -1), table.shape

    def gradients(grads: Tensor) -> dict[str, PerExample]:
        right = grads.reshape(*indices.shape, -1)
        if padding is not None:
            right = torch.where((indices == padding % shape[0])[:, :, None], 0.0, right)
        return shared.of_parameters(table, RowSum(indices, right, shape))

    shared.keep(output, shared.size, gradients)
    return output


def _product(
    shared: Shared, func: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, is_transposed: bool = False
) -> Tensor:
    """Return a linear map of examples. A transposed weight has one row per input."""
    is_known = shared.is_of_examples(inputs) and not shared.is_of_examples(weight)
    if not is_known or inputs.ndim < 2 or len(inputs) != shared.size or weight.ndim != 2:
        raise shared.unknown(func, (inputs, weight, bias))
    shared.watch(f"The input of {func.__name__}()", inputs)
    matrix = weight.detach()
    in_graph = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
    output = functional.linear(
        in_graph, matrix.t() if is_transposed else matrix, None if bias is None else bias.detach()
    )

    def gradients(grads: Tensor) -> dict[str, PerExample]:
        left = inputs.detach().reshape(len(inputs), 1, -1, inputs.shape[-1])
        right = grads.reshape(len(grads), 1, -1, grads.shape[-1])
        pair = (right, left) if is_transposed else (left, right)
        parts = ((weight, OuterSum(*pair, weight.shape)), (bias, Direct(right.sum((1, 2)))))
        found = [shared.of_parameters(each, part) for each, part in parts if shared.is_shared(each)]
        names = {name: [each[name] for each in found if name in each] for each in found for name in each}
        return {name: together(parts) for name, parts in names.items()}

    shared.keep(output, shared.size, gradients)
    return output
