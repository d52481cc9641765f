"""Federated learning with client-level privacy: the protected unit is the entire data of one client.

Names are imported on first use. A Flower client that is only asked for its number therefore starts without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet.federated.averaging import geometric, tail
    from privet.federated.clients import Partitioned
    from privet.federated.committee.plan import CommitteePlan, committee_plan
    from privet.federated.local_training import ClientTrainer, LocalTraining, order_source
    from privet.federated.plan import client_plan, paper_plan
    from privet.federated.results import RoundReport
    from privet.federated.scores import accuracy
    from privet.federated.server import Server
    from privet.federated.simulation import FederatedResult, simulate
    from privet.networks import trained_weights, with_weights
    from privet.plans.committee import Committee

__all__ = [
    "ClientTrainer",
    "Committee",
    "CommitteePlan",
    "FederatedResult",
    "LocalTraining",
    "Partitioned",
    "RoundReport",
    "Server",
    "accuracy",
    "client_plan",
    "committee_plan",
    "geometric",
    "order_source",
    "paper_plan",
    "simulate",
    "tail",
    "trained_weights",
    "with_weights",
]

_MODULES = {
    "privet.federated.averaging": ("geometric", "tail"),
    "privet.federated.clients": ("Partitioned",),
    "privet.federated.committee.plan": ("CommitteePlan", "committee_plan"),
    "privet.federated.local_training": ("ClientTrainer", "LocalTraining", "order_source"),
    "privet.federated.plan": ("client_plan", "paper_plan"),
    "privet.federated.results": ("RoundReport",),
    "privet.federated.server": ("Server",),
    "privet.federated.scores": ("accuracy",),
    "privet.federated.simulation": ("FederatedResult", "simulate"),
    "privet.networks": ("trained_weights", "with_weights"),
    "privet.plans.committee": ("Committee",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'privet.federated' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
