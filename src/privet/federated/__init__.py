"""Federated learning with client-level privacy: the whole data of a client is the protected unit."""

from privet.federated.averaging import geometric, tail
from privet.federated.clients import Partitioned
from privet.federated.local_training import ClientTrainer, LocalTraining
from privet.federated.plan import client_plan, paper_plan
from privet.federated.server import Server
from privet.federated.simulation import FederatedResult, RoundReport, accuracy, simulate

__all__ = [
    "ClientTrainer",
    "FederatedResult",
    "LocalTraining",
    "Partitioned",
    "RoundReport",
    "Server",
    "accuracy",
    "client_plan",
    "geometric",
    "paper_plan",
    "simulate",
    "tail",
]
