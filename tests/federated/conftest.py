"""Small federations that the tests share. The tests need torch: install the extra deep."""

from importlib.util import find_spec

import numpy as np
import pytest

collect_ignore_glob = [] if find_spec("torch") else ["*"]


@pytest.fixture
def blobs():
    """Return 600 points of three classes that are almost linearly separable, and their labels."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 600)
    X = generator.normal(size=(600, 6)) + 3 * np.eye(6)[y]
    return X.astype(np.float32), y


@pytest.fixture
def clients(blobs):
    """Return 20 clients of 30 points each."""
    from privet.federated import Partitioned
    from privet.federated.partition import iid

    return Partitioned(blobs, iid(600, 20, np.random.default_rng(1)))


@pytest.fixture
def softmax():
    """Return softmax regression with zero weights."""
    from torch import nn

    model = nn.Linear(6, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


@pytest.fixture
def local():
    from privet.federated import LocalTraining

    return LocalTraining(0.2, batch_size=8, epochs=2)
