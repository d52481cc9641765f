"""Fingerprints of parameters, buffers and batches, which show whether somebody changed their values."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Checksum = tuple[int, int, bytes]


@dataclass(frozen=True)
class Fingerprint:
    """Checksums of all bits of a model's parameters, trained or frozen, and of its buffers, by name.

    Version counters and memory addresses are not reliable. Writing to ``.data`` changes values without changing either,
    and weights that are swapped for an evaluation and then restored have the same values as before.
    """

    checksums: Mapping[str, Checksum]

    @classmethod
    def of(cls, model: nn.Module) -> "Fingerprint":
        """Return the fingerprint of the model as it is now."""
        return cls({name: checksum(each) for name, each in [*model.named_parameters(), *model.named_buffers()]})

    def changed(self, now: "Fingerprint") -> list[str]:
        """Return the names of tensors that were changed, added or removed since this fingerprint was taken."""
        if self.checksums == now.checksums:
            return []
        names = dict.fromkeys([*self.checksums, *now.checksums])
        return [name for name in names if self.checksums.get(name) != now.checksums.get(name)]


def checksum(tensor: Tensor) -> Checksum:
    """Return sums of a tensor's bits in words of 64 bits, and the bytes that are left over.

    The first third and the rest are summed separately, so that a different order of the same values is noticed.
    """
    raw = raw_bytes(tensor)
    whole = len(raw) // 8 * 8
    words = raw[:whole].view(np.uint64)
    third = len(words) // 3
    return int(np.add.reduce(words[:third])), int(np.add.reduce(words[third:])), raw[whole:].tobytes()


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
    if value.numel() == 0:
        return rows
    raw = raw_bytes(value).reshape(rows, -1)
    words = raw.view(f"u{math.gcd(raw.shape[1], 8)}")
    sums: bytes = np.add.reduce(words, axis=1, dtype=np.uint64).tobytes()
    return sums


def raw_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the bytes of a tensor's values in their logical order, whatever its device and memory format."""
    flat = tensor.detach().cpu().reshape(-1).contiguous()
    raw: NDArray[np.uint8] = flat.resolve_conj().resolve_neg().view(torch.uint8).numpy()
    return raw
