"""Fingerprints of parameters, buffers and batches, which show whether somebody changed their values."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_COLUMNS = 509
"""A prime number, so that entries of different rows of a table are usually in different columns."""


@dataclass(frozen=True)
class Fingerprint:
    """Checksums of all bits of a model's parameters, trained or frozen, and of its buffers, by name.

    Version counters and memory addresses are not reliable. Writing to ``.data`` changes values without changing either,
    and weights that are swapped for an evaluation and then restored have the same values as before.
    """

    checksums: Mapping[str, bytes]

    @classmethod
    def of(cls, model: nn.Module, others: Iterable[tuple[str, nn.Module]] = ()) -> "Fingerprint":
        """Return the fingerprint of the model, and of other modules with their names, as they are now."""
        found: dict[str, bytes] = {}
        for prefix, module in (("", model), *others):
            tensors = [*module.named_parameters(prefix), *module.named_buffers(prefix)]
            found |= {name: checksum(each) for name, each in tensors}
        return cls(found)

    def changed(self, now: "Fingerprint") -> list[str]:
        """Return the names of tensors that were changed, added or removed since this fingerprint was taken."""
        if self.checksums == now.checksums:
            return []
        names = dict.fromkeys([*self.checksums, *now.checksums])
        return [name for name in names if self.checksums.get(name) != now.checksums.get(name)]


def checksum(tensor: Tensor) -> bytes:
    """Return the bits of a small tensor. Of a larger one, return sums of its words of 64 bits, and what is left over.

    The words are written in rows and summed by column, so that a different order of the same values is noticed.
    """
    raw = raw_bytes(tensor)
    whole = len(raw) // (8 * _COLUMNS) * 8 * _COLUMNS
    sums = np.add.reduce(raw[:whole].view(np.uint64).reshape(-1, _COLUMNS), axis=0)
    return (sums.tobytes() if whole else b"") + raw[whole:].tobytes()


def batch_checksum(value: Any) -> Hashable:
    """Return checksums of a batch: one per example and tensor, so that values that move between examples are noticed.

    Devices, memory formats and shapes of one example do not matter.
    """
    if isinstance(value, tuple | list):
        return tuple(batch_checksum(each) for each in value)
    if isinstance(value, Mapping):
        return tuple((repr(key), batch_checksum(each)) for key, each in value.items())
    if not isinstance(value, Tensor):
        return repr(value)
    rows = len(value) if value.ndim else 1
    if value.layout is not torch.strided:
        return raw_bytes(value).tobytes()
    if value.numel() == 0:
        return rows
    raw = raw_bytes(value).reshape(rows, -1)
    words = raw.view(f"u{math.gcd(raw.shape[1], 8)}")
    sums: bytes = np.add.reduce(words, axis=1, dtype=np.uint64).tobytes()
    return sums


def raw_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the bytes of a tensor's values in their logical order, whatever its device and memory format."""
    if tensor.layout is not torch.strided:
        return np.concatenate([raw_bytes(part) for part in _parts_of_sparse(tensor.detach())])
    flat = tensor.detach().cpu().reshape(-1).contiguous()
    raw: NDArray[np.uint8] = flat.resolve_conj().resolve_neg().view(torch.uint8).numpy()
    return raw


def _parts_of_sparse(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the indices and values of a sparse tensor."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
