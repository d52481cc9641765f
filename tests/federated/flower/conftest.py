"""A small Flower federation within this process."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def trainer(softmax, local):
    from torch import nn

    from privet.federated import ClientTrainer

    return ClientTrainer(softmax, nn.CrossEntropyLoss(), local, 0.5)


@pytest.fixture
def app(trainer, clients):
    from privet.federated.flower import client_app

    return client_app(
        lambda context: trainer, lambda context: clients[context.node_config["partition-id"]], random_state=5
    )


@pytest.fixture
def grid(app):
    """Return 20 nodes whose ids are unrelated to their client numbers."""
    from loopback import Loopback

    return Loopback({1000 + 7 * client % 20: client for client in range(20)}, app)
