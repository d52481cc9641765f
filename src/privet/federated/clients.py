"""The data of clients, which is touched only when a client is sampled."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.federated.engines.threads import one_thread

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
            own = np.asarray(part)
            if own.ndim != 1 or (own.size and own.dtype.kind not in "iu"):
                raise ValueError(f"the rows of client {client} must be a list of whole numbers")
            if own.size and not (own.min() >= 0 and own.max() < rows):
                raise ValueError(f"client {client} has a row that is not among the {rows} rows of the arrays")

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, client: int) -> Data:
        (data,) = self.together([client])
        return self.transformed(data)

    def together(self, clients: Sequence[int]) -> list[Data]:
        """Return the data of clients before the transform: rows of one copy, which follow one another."""
        parts = [torch.as_tensor(self._parts[client], dtype=torch.int64) for client in clients]
        rows, sizes = torch.cat(parts), [part.shape[0] for part in parts]
        with one_thread():
            columns = [array.index_select(0, rows).split(sizes) for array in self._arrays]  # faster than array[rows]
        return list(zip(*columns, strict=True))

    def transformed(self, data: Data) -> Data:
        """Return the data of one client as it is trained with."""
        return data if self._transform is None else self._transform(data)


class Fetching:
    """Fetches the data of sampled clients; what goes wrong is the answer of its client only.

    Parameters
    ----------
    clients : Clients
        Any sequence.
    kind : torch.dtype
        Of the model's parameters.
    """

    def __init__(self, clients: Clients, kind: torch.dtype) -> None:
        self._clients, self._kind = clients, kind

    def __call__(self, client: int) -> Data | Exception | None:
        """Return the data of one client; None if it is gone, or what went wrong."""
        return self._tried(self._clients.__getitem__, client)

    def many(self, chosen: Sequence[int]) -> list[Data | Exception | None]:
        """Return the same of many clients; common arrays are copied once for all."""
        if type(self._clients) is not Partitioned:  # a subclass may fetch in its own way
            return [self(client) for client in chosen]
        try:
            copied = self._clients.together(chosen)
        except Exception:  # of one client, maybe: alone, each shows its own
            return [self(client) for client in chosen]
        return [self._tried(self._clients.transformed, data) for data in copied]

    def _tried(self, get: Callable[[Any], Any], argument: Any) -> Data | Exception | None:
        try:
            return tensors(get(argument), self._kind)
        except Exception as error:
            return error


def tensors(found: Any, kind: torch.dtype) -> Data | None:
    """Return what a client has as tensors, their floats of the model's kind; None if it is gone."""
    if found is None:
        return None
    found = getattr(found, "tensors", found)  # of a TensorDataset
    data = tuple(torch.as_tensor(each) for each in found)
    if len(data) < 2 or len({each.shape[0] for each in data}) != 1:
        raise ValueError("a client's data is a tuple of inputs and targets with the same number of rows")
    return tuple((each.to(kind) if each.is_floating_point() else each).detach() for each in data)
