"""Norms of long vectors, accurate to a relative 1e-5 in every floating-point format."""

import torch
from torch import Tensor

_BLOCK = 128
"""Number of entries whose squares are added up in single precision, with a relative error of at most 65 * 2^-24."""

_SAFE = (1e-12, 1e18)
"""Between these limits, no square overflowed in single precision, and squares that underflowed do not matter."""


def wide(values: Tensor) -> Tensor:
    """Return floating-point values in single precision if their format is narrower, and unchanged otherwise."""
    return values.float() if values.is_floating_point() and values.dtype.itemsize < 4 else values


def lengths(values: Tensor) -> Tensor:
    """Return norms over the last dimension in double precision, with a relative error of at most 5e-6.

    Squares of float32 values are added up in single precision in short blocks only. A running sum over millions of
    entries would be wrong by more than 1 %. Norms are recomputed in double precision if squares may have under- or
    overflowed.
    """
    values = wide(values)
    if values.dtype is not torch.float32:
        return torch.linalg.vector_norm(values, dim=-1)
    size = values.shape[-1]
    block = next((each for each in range(_BLOCK, _BLOCK // 4, -1) if size % each == 0), _BLOCK)
    whole = size - size % block if size > _BLOCK else 0
    found = torch.linalg.vector_norm(values[..., whole:], dim=-1).double() if whole < size or not size else None
    if whole:
        blocks = torch.linalg.vector_norm(values[..., :whole].unflatten(-1, (-1, block)), dim=-1)
        of_blocks = torch.linalg.vector_norm(blocks, dim=-1, dtype=torch.float64)
        found = of_blocks if found is None else torch.hypot(of_blocks, found)
    assert found is not None
    is_safe = found.clamp(*_SAFE) == found  # False for NaN, which differs from itself
    if not bool(is_safe.all()):  # A norm must not depend on others, not even through rounding.
        found = torch.where(is_safe, found, torch.linalg.vector_norm(values, dim=-1, dtype=torch.float64))
    return found
