"""The data of clients, which is touched only when a client is sampled."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Data = tuple[Tensor, ...]
"""One client's inputs and, last, its targets: tensors with an example a row."""


class Clients(Protocol):
    """Any sequence: ``clients[i]`` is a tuple of inputs and, last, targets, or None from a client that is gone."""

    def __len__(self) -> int:
        """Return how many clients there are."""
        ...

    def __getitem__(self, client: int, /) -> Any:
        """Return the data of one client."""
        ...


class Partitioned:
    """Clients whose examples are rows of common arrays: a client is a list of row numbers, and costs no more memory.

    Parameters
    ----------
    arrays : sequence of arrays or tensors
        Inputs and, last, targets, with an example a row.
    parts : sequence of arrays
        The rows of each client: see :mod:`privet.federated.partition`.
    transform : callable or None
        Applied to the tensors of one client when it is sampled: pixels can be kept as bytes, for instance.
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        parts: Sequence[NDArray[np.int64]],
        transform: Callable[[Data], Data] | None = None,
    ) -> None:
        self._arrays = tuple(torch.as_tensor(array) for array in arrays)
        self._parts, self._transform = parts, transform
        sizes = {len(array) for array in self._arrays}
        if len(self._arrays) < 2 or len(sizes) != 1:
            raise ValueError(f"give inputs and targets with the same number of rows, got {sorted(sizes)}")
        (rows,) = sizes
        for client, part in enumerate(parts):
            if len(part) and not (np.min(part) >= 0 and np.max(part) < rows):
                raise ValueError(f"client {client} has a row that is not among the {rows} rows of the arrays")

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, client: int) -> Data:
        rows = torch.as_tensor(self._parts[client])
        data = tuple(array[rows] for array in self._arrays)
        return data if self._transform is None else self._transform(data)


def data_of(clients: Clients, client: int, kind: torch.dtype) -> Data | None:
    """Return the tensors of one client, their floats of the model's kind; None if it is gone."""
    found = clients[client]
    if found is None:
        return None
    found = getattr(found, "tensors", found)  # of a TensorDataset
    data = tuple(torch.as_tensor(each) for each in found)
    if len(data) < 2 or len({len(each) for each in data}) != 1:
        raise ValueError("a client's data is a tuple of inputs and targets with the same number of rows")
    return tuple(each.to(kind) if each.is_floating_point() else each for each in data)
