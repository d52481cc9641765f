"""Flower's names, in one place: its telemetry is switched off before it is loaded, and its absence is told clearly."""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read once, when flwr is imported; "1" in the environment stays

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"federated rounds on Flower need flwr 1.41 ({error}): pip install 'privet[federated]'", name=error.name
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
