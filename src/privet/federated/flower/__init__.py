"""Federated learning on Flower, with the server, plan and client training of :func:`privet.federated.simulate`.

On the server, a :class:`PrivateStrategy` drives a :class:`~privet.federated.Server`. On each client, the app made by
:func:`client_app` runs a :class:`~privet.federated.ClientTrainer`. docs/federated.md explains the setup, and
examples/flower contains a complete app.
"""

from typing import TYPE_CHECKING, Any

from privet.federated.flower.client import client_app

if TYPE_CHECKING:
    from privet.federated.flower.strategy import FlowerResult, PrivateStrategy

__all__ = ["FlowerResult", "PrivateStrategy", "client_app"]


def __getattr__(name: str) -> Any:
    """Import the server's side on first use: clients do not need it."""
    if name in __all__:
        from privet.federated.flower import strategy

        return getattr(strategy, name)
    raise AttributeError(f"module 'privet.federated.flower' has no attribute {name!r}")
