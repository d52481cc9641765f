"""Models, updates and client numbers as Flower records, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.federated.flower.flwr_imports import Array, ArrayRecord, ConfigRecord, Message, RecordDict

ARRAYS, CONFIG = "arrays", "config"  # Flower's names for these two records
ROUNDS_DONE = "rounds-done"
CLIENT = "client"

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


def update_of(reply: Message) -> Any:
    """Return the update in an untrusted reply, None if the client failed, or ``UNREADABLE`` if it has no arrays.

    Everything else in the reply is ignored. Metrics would be released without noise, and the number of examples would
    give clients different weights.
    """
    if reply.has_error():
        return None
    try:
        return weights_of(reply.content[ARRAYS])
    except Exception:  # numpy does not unpickle here, so the worst that a reply can do is to fail
        return UNREADABLE


def number_of(reply: Message, n_clients: int) -> int | None:
    """Return the client number in an untrusted reply, or None if it is not one of 0, ..., n_clients - 1."""
    if reply.has_error():
        return None
    try:
        number = reply.content[CONFIG][CLIENT]
    except Exception:
        return None
    return number if type(number) is int and 0 <= number < n_clients else None
