"""Models, updates and client numbers as Flower records, and back."""

import math
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from privet.federated.flower.flwr_imports import Array, ArrayRecord, ConfigRecord, Message, RecordDict

ARRAYS, CONFIG = "arrays", "config"  # Flower's names for these two records
ROUNDS_DONE = "rounds-done"
CLIENT = "client"

_WIDEST, _LONGEST_HEADER = 16, 1 << 14
"""The largest number of bytes of one value, and of the header of an array."""

UNREADABLE = object()
"""Stands for an update that cannot be read. It has no layers, so the server counts it as zero."""


def array_record(weights: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return the parameters of a model as a record."""
    return ArrayRecord({name: Array(np.asarray(layer)) for name, layer in weights.items()})


def weights_of(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the parameters in a record, as arrays by name."""
    return {name: array.numpy() for name, array in record.items()}


def instruction(weights: Mapping[str, NDArray[Any]], rounds_done: int) -> RecordDict:
    """Return the content of a training message: the global model and the number of completed rounds."""
    return RecordDict({ARRAYS: array_record(weights), CONFIG: ConfigRecord({ROUNDS_DONE: rounds_done})})


def update_of(reply: Message, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return the update in an untrusted reply, None if the client failed, or ``UNREADABLE`` if it has other arrays.

    Everything else in the reply is ignored. Metrics would be released without noise, and the number of examples would
    give clients different weights.

    Parameters
    ----------
    reply : Message
        The reply.
    shapes : mapping
        The shapes of the model's parameters by name. Arrays of other shapes are not decoded.
    """
    if reply.has_error():
        return None
    try:
        record = reply.content[ARRAYS]
        if record.keys() != shapes.keys():
            return UNREADABLE
        return {name: _decoded(record[name], shape) for name, shape in shapes.items()}
    except Exception:  # numpy does not unpickle here, so the worst that a reply can do is to fail
        return UNREADABLE


def _decoded(array: Array, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an untrusted array. Raise if it is not one of numbers with the given shape.

    The shape is read from the header of the numpy file before the array is decoded. A few bytes can declare an array of
    any size, and numpy allocates it before it notices that the values are missing.
    """
    largest = math.prod(shape) * _WIDEST + _LONGEST_HEADER
    if len(array.data) > largest:
        raise ValueError(f"An array of shape {shape} has {len(array.data)} bytes.")
    file = BytesIO(array.data)
    header = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}[read_magic(file)]
    declared, _, kind = header(file)
    if declared != shape or kind.kind not in "fiub":
        raise ValueError(f"An array of shape {shape} was expected.")
    found: NDArray[Any] = array.numpy()
    return found


def number_of(reply: Message, n_clients: int) -> int | None:
    """Return the client number in an untrusted reply, or None if it is not one of 0, ..., n_clients - 1."""
    if reply.has_error():
        return None
    try:
        number = reply.content[CONFIG][CLIENT]
    except Exception:
        return None
    return number if type(number) is int and 0 <= number < n_clients else None
