"""What server and clients share: the model, the training of a client, and the assignment of images to clients."""

import numpy as np
from flwr.app import Context
from sklearn.datasets import load_digits
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.partition import iid

IMAGES, PUBLIC = 1797, 360  # the last images belong to no client; the server scores models on them


def model() -> nn.Module:
    """Return softmax regression with zero weights, an initial model that does not depend on any data."""
    layer = nn.Linear(64, 10)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def images() -> tuple[np.ndarray, np.ndarray]:
    """Return images as rows of 64 values from 0 to 1, and their labels."""
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


def public_images() -> tuple[np.ndarray, np.ndarray]:
    """Return the images on which models are scored, and their labels."""
    X, y = images()
    return X[-PUBLIC:], y[-PUBLIC:]


def own_images(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of one client. A real client would read its own files here."""
    X, y = images()
    parts = iid(IMAGES - PUBLIC, int(context.run_config["clients"]), np.random.default_rng(0))
    rows = parts[int(context.node_config["partition-id"])]
    return X[rows], y[rows]


def trainer(context: Context) -> ClientTrainer:
    """Return the local training of a client."""
    settings = context.run_config
    local = LocalTraining(
        float(settings["learning-rate"]), batch_size=int(settings["batch-size"]), epochs=int(settings["local-epochs"])
    )
    return ClientTrainer(model(), nn.CrossEntropyLoss(), local, float(settings["clip-norm"]))
