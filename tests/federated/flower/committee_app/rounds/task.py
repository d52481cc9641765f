"""What the clients, the Flower server, the servers of the committee and the test share."""

import asyncio
from pathlib import Path

import numpy as np
import torch
from torch import nn

from privet.federated import ClientTrainer, Committee, CommitteePlan, LocalTraining, Partitioned
from privet.federated.committee import FederatedStudy, serve
from privet.federated.partition import iid
from privet.plans import FixedSize
from privet.plans.aggregation import AggregationPlan
from privet.privacy.noise.lattice import LatticeLaw

NODES, ROUNDS, CLIP, SCALE, SEED = 3, 2, 0.4, 1e6, 5
LAW = LatticeLaw(bits=2)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def study(ports: str) -> FederatedStudy:
    """Return a study with so little noise that models can be compared. It is useless for privacy."""
    size = sum(layer.numel() for layer in model().parameters())
    sums = AggregationPlan(size, ROUNDS, 2 * CLIP, NODES * CLIP, SCALE, LAW, 1e-12, delta=1e-5)
    plan = CommitteePlan(sums, FixedSize(NODES, NODES), CLIP, Committee("one", 2), NODES)
    return FederatedStudy("flower", plan, tuple(("127.0.0.1", int(port)) for port in ports.split("-")))


def clients() -> Partitioned:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 90)
    X = generator.normal(size=(90, 6)) + 3 * np.eye(6)[y]
    return Partitioned((X.astype(np.float32), y), iid(90, NODES, generator))


def trainer() -> ClientTrainer:
    return ClientTrainer(model(), nn.CrossEntropyLoss(), LocalTraining(0.2, batch_size=8, epochs=2), CLIP)


def server(ports: str, index: int, folder: str) -> None:
    """Run a server of the committee."""
    keys, state = Path(folder) / "keys", Path(folder) / f"state{index}"
    print(asyncio.run(serve(study(ports), index, keys=keys, state=state, connect_timeout=300, timeout=300)), flush=True)
