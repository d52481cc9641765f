"""A digest of a dataset, which shows whether all processes hold the same examples in the same order.

Tensors and the indices of subsets are read in full. Of any other dataset, only a fixed number of examples is read.
"""

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from privet.global_generators import seeded_alike

SAMPLE = 64
"""How many examples are read of a dataset that cannot be read in full."""

_BLOCK = 1 << 20


@dataclass(frozen=True)
class DatasetDigest:
    """What one process knows about its dataset.

    Attributes
    ----------
    whole : str
        A digest of everything that was read in full: types and lengths, tensors and indices.
    sampled : dict of str to str
        A digest of each part of the examples that were sampled, by the name of the part.
    unknown : frozenset of str
        Parts that cannot be compared: those that differ between two readings of the same example, although all global
        generators have the same state, and those of an unknown type.
    is_complete : bool
        Whether all examples were read.
    """

    whole: str
    sampled: dict[str, str]
    unknown: frozenset[str]
    is_complete: bool

    @classmethod
    def of(cls, dataset: Any) -> "DatasetDigest":
        """Read a dataset, and return its digest."""
        reading = _Reading()
        reading.add(dataset, "dataset")
        sampled = {name: found.hexdigest() for name, found in reading.sampled.items()}
        return cls(reading.whole.hexdigest(), sampled, frozenset(reading.unknown), reading.is_complete)


def compared(digests: Sequence[DatasetDigest]) -> bool:
    """Return whether all processes are known to hold the same examples in the same order.

    Raise if they do not. Return False if no difference was found, but not all examples could be compared.
    """
    first, *others = digests
    unknown = frozenset[str]().union(*(each.unknown for each in digests))
    for each in others:
        known = {name for name in first.sampled.keys() | each.sampled.keys() if name not in unknown}
        if each.whole != first.whole or any(first.sampled.get(name) != each.sampled.get(name) for name in known):
            raise ValueError(
                "The processes hold different datasets, or the same examples in different orders. An example could "
                "then be in a batch twice. Each process takes its own share of the examples, so pass the whole dataset "
                "to make_private() in all of them, and shuffle or split it with the same seed."
            )
    return not unknown and all(each.is_complete for each in digests)


class _Reading:
    """The digests of a dataset while it is read."""

    def __init__(self) -> None:
        self.whole = hashlib.sha256()
        self.sampled: dict[str, Any] = {}
        self.unknown: set[str] = set()
        self.is_complete = True

    def add(self, dataset: Any, name: str) -> None:
        """Read a dataset, which may be composed of others. Subclasses may create their examples differently."""
        self._note(name, type(dataset).__qualname__, len(dataset))
        if type(dataset) is Subset:
            self.whole.update(np.asarray(dataset.indices, dtype=np.int64).tobytes())
            self.add(dataset.dataset, f"{name}.dataset")
        elif type(dataset) is ConcatDataset:
            for number, part in enumerate(dataset.datasets):
                self.add(part, f"{name}.datasets[{number}]")
        elif type(dataset) is TensorDataset and all(each.layout is torch.strided for each in dataset.tensors):
            for tensor in dataset.tensors:
                self._note(tensor.dtype, tuple(tensor.shape), *_checksums(tensor))
        else:
            self._sample(dataset, name)

    def _note(self, *values: object) -> None:
        self.whole.update(repr(values).encode())

    def _sample(self, dataset: Any, name: str) -> None:
        """Read examples at evenly spread positions, each of them twice."""
        n = len(dataset)
        self.is_complete &= n <= SAMPLE
        for position in np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).round().astype(int)).tolist():
            first, second = (dict(_parts(_read(dataset, position), name)) for _ in range(2))
            for part in first.keys() | second.keys():
                content = first.get(part)
                if content is None or content != second.get(part):
                    self.unknown.add(part)
                self.sampled.setdefault(part, hashlib.sha256()).update(content or b"")


def _checksums(tensor: Tensor) -> Iterator[int]:
    """Yield a CRC-32 of each block of rows.

    The processes do not attack each other, so a cryptographic hash, which takes three times as long, is not needed.
    """
    rows = max(1, _BLOCK // max(1, tensor[:1].numel() * tensor.element_size()))
    for block in tensor.detach().split(rows):
        yield zlib.crc32(_bytes(block))


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _read(dataset: Any, position: int) -> Any:
    """Return an example. Random transforms that use global generators give the same result in every process."""
    with seeded_alike(position):
        return dataset[position]


def _parts(value: Any, name: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield the name and the content of each tensor, number or text in an example, and None for anything else."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _parts(each, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _parts(each, f"{name}[{place}]")
    elif isinstance(value, Tensor) and value.layout is torch.strided:
        yield name, f"{value.dtype} {tuple(value.shape)} ".encode() + _bytes(value).tobytes()
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        yield name, f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield name, repr(value).encode()
    else:
        yield name, None
