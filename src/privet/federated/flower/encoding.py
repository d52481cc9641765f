"""What server and clients tell each other: models and updates as Flower's records."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.federated.flower.flwr_imports import Array, ArrayRecord, ConfigRecord, Message, RecordDict

if TYPE_CHECKING:
    from privet.networks import Weights

ARRAYS, CONFIG = "arrays", "config"  # Flower's own names of the two records
ROUNDS_DONE = "rounds-done"
CLIENT = "client"

UNREADABLE = object()
"""In the place of an update that cannot be read. It has no layers, so that the server counts it as zero."""


def array_record(weights: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return layers as a record."""
    return ArrayRecord({name: Array(np.asarray(layer)) for name, layer in weights.items()})


def weights_of(record: ArrayRecord) -> "Weights":
    """Return the layers of a record."""
    return {name: array.numpy() for name, array in record.items()}


def instruction(weights: Mapping[str, NDArray[Any]], rounds_done: int) -> RecordDict:
    """Return what a client is sent: the global model, and how many rounds made it."""
    return RecordDict({ARRAYS: array_record(weights), CONFIG: ConfigRecord({ROUNDS_DONE: rounds_done})})


def update_of(reply: Message) -> Any:
    """Return the update of an untrusted reply: None if the client failed, ``UNREADABLE`` if it holds no arrays.

    Whatever else a reply holds is left alone: metrics would be released without noise, and a number of examples would
    weigh one client more than another.
    """
    if reply.has_error():
        return None
    try:
        return weights_of(reply.content[ARRAYS])
    except Exception:  # numpy reads no pickles; all that a reply can do here is fail
        return UNREADABLE


def number_of(reply: Message, n_clients: int) -> int | None:
    """Return which client an untrusted reply says it is of; None if it is none of 0, ..., n_clients - 1."""
    if reply.has_error():
        return None
    try:
        number = reply.content[CONFIG][CLIENT]
    except Exception:
        return None
    return number if type(number) is int and 0 <= number < n_clients else None
