"""All imports from Flower. Its telemetry is disabled before it is loaded, and an error explains how to install it."""

import os

from privet.extras import remedy

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # flwr reads it once, on import; set it to "1" to opt in

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"privet.federated.flower needs flwr 1.41 ({error}). {remedy('flwr')}",
        name=error.name,
    ) from error

__all__ = [
    "Array",
    "ArrayRecord",
    "ClientApp",
    "ConfigRecord",
    "Context",
    "Grid",
    "Message",
    "MessageType",
    "MetricRecord",
    "RecordDict",
    "Strategy",
]
