"""Federated rounds on Flower: the same server, plan and client training as :func:`privet.federated.simulate`, deployed.

On the server's side a :class:`PrivateStrategy` drives a :class:`~privet.federated.Server`; on the clients' side
:func:`client_app` runs a :class:`~privet.federated.ClientTrainer`. See docs/federated.md, and examples/flower for an
app that runs.
"""

from privet.federated.flower.client import client_app
from privet.federated.flower.strategy import FlowerResult, PrivateStrategy

__all__ = ["FlowerResult", "PrivateStrategy", "client_app"]
