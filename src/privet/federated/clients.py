"""The data of simulated clients, which is accessed only when a client is sampled."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.federated.engines.thread_limit import one_thread

Data = tuple[Tensor, ...]
"""One client's inputs followed by its targets: tensors with one example per row."""


class Clients(Protocol):
    """Any sequence: ``clients[i]`` is a tuple of inputs followed by targets, or None if the client has dropped out."""

    def __len__(self) -> int:
        """Return the number of clients."""
        ...

    def __getitem__(self, client: int, /) -> Any:
        """Return the data of one client."""
        ...


class Partitioned:
    """Clients whose examples are rows of common arrays. A client takes no memory beyond its row numbers.

    Parameters
    ----------
    arrays : sequence of arrays or tensors
        Inputs followed by targets, with one example per row.
    parts : sequence of arrays
        The row numbers of each client. See :mod:`privet.federated.partition`.
    transform : callable or None
        Applied to the tensors of a client when it is sampled, for example to convert pixels from bytes to floats.
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
            raise ValueError(f"Inputs and targets must have the same number of rows, got {sorted(sizes)} rows.")
        (rows,) = sizes
        for client, part in enumerate(parts):
            own = np.asarray(part)
            if own.ndim != 1 or (own.size and own.dtype.kind not in "iu"):
                raise ValueError(f"The rows of client {client} must be a one-dimensional list of integers.")
            if own.size and not (own.min() >= 0 and own.max() < rows):
                raise ValueError(
                    f"Client {client} has a row number outside 0, ..., {rows - 1}, the rows of the arrays."
                )

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, client: int) -> Data:
        (data,) = self.together([client])
        return self.transformed(data)

    def size(self, client: int) -> int:
        """Return the number of examples of a client."""
        return len(self._parts[client])

    @property
    def is_transformed(self) -> bool:
        """Whether a transform is applied to the data of clients."""
        return self._transform is not None

    def together(self, clients: Sequence[int]) -> list[Data]:
        """Return the data of several clients before the transform, adjacent in memory."""
        parts = [torch.as_tensor(self._parts[client], dtype=torch.int64) for client in clients]
        rows, sizes = torch.cat(parts), [part.shape[0] for part in parts]
        with one_thread():
            columns = [array.index_select(0, rows).split(sizes) for array in self._arrays]  # faster than array[rows]
        return list(zip(*columns, strict=True))

    def blank(self, rows: int, value: int = 0) -> Data:
        """Return examples of one value, with the shapes and dtypes that all clients have, before the transform."""
        return tuple(array.new_full((rows, *array.shape[1:]), value) for array in self._arrays)

    def transformed(self, data: Data) -> Data:
        """Return the data of one client after the transform."""
        return data if self._transform is None else self._transform(data)


class Fetching:
    """Fetches the data of sampled clients. An error affects only the client that raised it.

    Parameters
    ----------
    clients : Clients
        The sequence of clients.
    kind : torch.dtype
        The dtype of the model's parameters, to which floats are converted.
    """

    def __init__(self, clients: Clients, kind: torch.dtype) -> None:
        self.clients, self._kind = clients, kind

    def __call__(self, client: int) -> Data | Exception | None:
        """Return the data of one client, None if it has dropped out, or the error that it raised."""
        return self._tried(self.clients.__getitem__, client)

    def many(self, chosen: Sequence[int]) -> list[Data | Exception | None]:
        """Return the same for several clients. Rows of common arrays are copied in one operation."""
        if type(self.clients) is not Partitioned:  # a subclass may override __getitem__
            return [self(client) for client in chosen]
        try:
            copied = self.clients.together(chosen)
        except Exception:  # fetching each client alone shows which of them fail
            return [self(client) for client in chosen]
        return [self._tried(self.clients.transformed, data) for data in copied]

    def _tried(self, get: Callable[[Any], Any], argument: Any) -> Data | Exception | None:
        try:
            return tensors(get(argument), self._kind)
        except Exception as error:
            return error


def tensors(found: Any, kind: torch.dtype) -> Data | None:
    """Return a client's data as tensors, with floats converted to ``kind``, or None if the client has dropped out."""
    if found is None:
        return None
    found = getattr(found, "tensors", found)  # a TensorDataset
    data = tuple(torch.as_tensor(each) for each in found)
    if len(data) < 2 or len({each.shape[0] for each in data}) != 1:
        raise ValueError("A client's data must be a tuple of inputs and targets with the same number of rows.")
    return tuple((each.to(kind) if each.is_floating_point() else each).detach() for each in data)
