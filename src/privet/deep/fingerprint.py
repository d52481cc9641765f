"""A fingerprint of parameters, which shows whether the caller changed them between two private steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Fingerprint:
    """Checksums of all bits of some parameters. Equal parameters have equal fingerprints.

    Version counters and memory addresses are not reliable. Writing to ``.data`` changes values without changing either,
    and weights that are swapped for an evaluation and then restored have the same values as before.
    """

    checksums: tuple[tuple[int, int, bytes], ...]

    @classmethod
    def of(cls, parameters: Sequence[nn.Parameter]) -> "Fingerprint":
        """Return the fingerprint of the parameters as they are now."""
        with torch.no_grad():
            return cls(tuple(_checksum(each) for each in parameters))


def _checksum(tensor: Tensor) -> tuple[int, int, bytes]:
    """Return sums of a tensor's bits in words of 64 bits, and the bytes that are left over.

    The first third and the rest are summed separately, so that a different order of the same values is noticed.
    """
    raw = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()
    whole = len(raw) // 8 * 8
    words = raw[:whole].view(np.uint64)
    third = len(words) // 3
    return int(words[:third].sum()), int(words[third:].sum()), raw[whole:].tobytes()
