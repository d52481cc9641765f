"""Mates of an example: other examples of the same kind, with which a check can see whether a model mixes examples."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from privet.deep.fingerprint import raw_bytes

Batch = tuple[Any, ...]
"""Inputs and, last, targets. The first dimension of each is that of the examples."""


def joined(examples: Sequence[Batch]) -> Batch:
    """Join examples, each of which is given as a batch of one, into one batch."""
    return tuple(
        torch.cat(parts) if isinstance(parts[0], Tensor) else [each for part in parts for each in part]
        for parts in zip(*examples, strict=True)
    )


def are_distinct(examples: Sequence[Batch]) -> bool:
    """Return whether at least two examples have different inputs."""
    return len({_inputs(each) for each in examples}) > 1


def mates_of(example: Batch, others: Callable[[], Batch]) -> Iterator[Batch]:
    """Yield examples with other inputs: first those of ``others`` that are of the same kind, then changed copies.

    A model may refuse changed copies, for instance because a class or a word does not exist.
    """
    if not all(isinstance(each, Tensor) for each in example):
        return
    given = others()
    if _kinds(given) == _kinds(example):
        candidates = [tuple(each[place : place + 1] for each in given) for place in range(len(given[-1]))]
    else:  # The caller transforms the examples of the dataset.
        candidates = []
    yield from (each for each in candidates if are_distinct([example, each]))
    yield from changed_copies(example)


def changed_copies(example: Batch) -> Iterator[Batch]:
    """Yield copies of an example with other inputs, and with another or the same target."""
    *inputs, target = example
    for change in (_rolled, _halved, _shifted):
        for other in (_other(target), target):
            changed = (*map(change, inputs), other)
            if are_distinct([example, changed]):
                yield changed


def _rolled(values: Tensor) -> Tensor:
    return values.flatten(1).roll(1, 1).view(values.shape) if values.ndim > 1 else values


def _halved(values: Tensor) -> Tensor:
    return values / 2 if values.is_floating_point() else torch.zeros_like(values)


def _shifted(values: Tensor) -> Tensor:
    return values + 1 if values.is_floating_point() else torch.ones_like(values)


def _other(target: Tensor) -> Tensor:
    """Return another target that is likely to be valid: 1 - y for numbers, and class 0 or 1 for classes."""
    return 1 - target if target.is_floating_point() else (target == 0).to(target.dtype)


def _inputs(example: Batch) -> Hashable:
    return tuple(raw_bytes(each).tobytes() if isinstance(each, Tensor) else repr(each) for each in example[:-1])


def _kinds(batch: Batch) -> list[Any]:
    """Return the shape of one example and the type of each tensor in a batch."""
    return [(each.shape[1:], each.dtype) if isinstance(each, Tensor) else type(each) for each in batch]
